//! The simulated clients: the workload's, each an application of its own on the machine outside. Half of them ask any
//! member, the others one alone each.

use super::application::{Application, SessionObjects};
use super::asks::Asker;
use super::network::{Network, guard};
use super::recorder::Recorder;
use crate::limits;
use crate::watch::News;
use crate::workload::{Board, Client, Work};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// A client that could not log in rests so long.
const LOGIN_PAUSE: Duration = Duration::from_millis(100);
/// A client rests so many times as long as the workload says: simulated time is cheap, and what is done in it is not.
const REST_TIMES: u32 = 4;

/// What all clients share.
pub struct Clients {
    work: Work,
    network: Network,
    recorder: Arc<Recorder>,
    board: Mutex<Board>,
    objects: SessionObjects,
    /// Who hears of keys that come and go, by member.
    news: Vec<mpsc::UnboundedSender<News>>,
    stop: AtomicBool,
    working: AtomicUsize,
}

impl Clients {
    /// Clients that tell of keys through `news`.
    pub fn new(
        work: Work,
        network: &Network,
        recorder: &Arc<Recorder>,
        news: Vec<mpsc::UnboundedSender<News>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            work,
            network: network.clone(),
            recorder: recorder.clone(),
            board: Mutex::default(),
            objects: SessionObjects::default(),
            news,
            stop: AtomicBool::new(false),
            working: AtomicUsize::new(work.clients),
        })
    }

    /// From now on nobody begins anything.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True once all have had their last answer.
    pub fn have_ended(&self) -> bool {
        self.working.load(Ordering::Relaxed) == 0
    }

    /// The life of one client.
    pub async fn live(self: Arc<Self>, index: usize) {
        let mut client = Client::new(&self.work, index);
        let places = match client.member() {
            Some(member) => vec![member],
            None => (0..self.work.members).collect(),
        };
        let seed = self.work.seed.wrapping_mul(7_919).wrapping_add(index as u64);
        let timeout = Duration::from_millis(limits::CALL_MS);
        let asker = Asker::new(&self.network, &places, seed, timeout);
        let mut application = Application::new(asker, self.objects.clone(), self.work.seed);
        while !self.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(client.rest_ms()) * REST_TIMES).await;
            if !application.log_in().await {
                tokio::time::sleep(LOGIN_PAUSE).await;
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let call = client.next(&mut guard(&self.board));
            self.recorder.take(client.before(&call));
            let outcome = application.act(&call).await;
            let event = client.after(&call, &outcome, &mut guard(&self.board));
            let news = News::of(&event);
            self.recorder.take(event);
            for (to, news) in self.news.iter().zip(news.into_iter().cycle()) {
                // Nobody listens once the run ends.
                let _ = to.send(news);
            }
        }
        self.working.fetch_sub(1, Ordering::Relaxed);
    }
}
