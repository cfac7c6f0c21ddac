//! The simulated clients: the workload's, each an application of its own on the machine outside. Half of them ask any
//! member, the others one alone each.

use super::application::{Application, SessionObjects};
use super::asks::Asker;
use super::network::{Network, guard};
use super::recorder::Recorder;
use crate::history::{Function, Kind};
use crate::limits;
use crate::workload::{Board, Client, Work};
use std::collections::BTreeMap;
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
    /// By the member that a slot asks; None for the slot that asks any.
    objects: BTreeMap<Option<usize>, SessionObjects>,
    /// Who hears of new keys, by member.
    fresh: Vec<mpsc::UnboundedSender<i64>>,
    stop: AtomicBool,
    working: AtomicUsize,
}

impl Clients {
    /// Clients that tell of new keys through `fresh`.
    pub fn new(
        work: Work,
        network: &Network,
        recorder: &Arc<Recorder>,
        fresh: Vec<mpsc::UnboundedSender<i64>>,
    ) -> Arc<Self> {
        let slots = (0..work.members).map(Some).chain([None]);
        Arc::new(Self {
            work,
            network: network.clone(),
            recorder: recorder.clone(),
            board: Mutex::default(),
            objects: slots.map(|slot| (slot, SessionObjects::default())).collect(),
            fresh,
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
        let objects = self.objects.get(&client.member()).cloned().unwrap_or_default();
        let mut application = Application::new(asker, objects, self.work.seed);
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
            if let (Function::Create, Kind::Ok, Some(id)) = (&event.function, event.kind, event.value.int()) {
                for fresh in &self.fresh {
                    // Nobody listens once the run ends.
                    let _ = fresh.send(id);
                }
            }
            self.recorder.take(event);
        }
        self.working.fetch_sub(1, Ordering::Relaxed);
    }
}
