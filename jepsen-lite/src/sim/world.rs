//! The simulated world: its machines, its network, its time. Whoever holds it decides when time goes on.

use super::entropy;
use super::host::{Host, TICK};
use super::journal;
use super::leaks::Search;
use super::machine::Machine;
use super::network::{Network, OUTSIDE, Way, guard};
use super::recorder::Recorder;
use super::tokens;
use crate::dice::Dice;
use keyraft_engine::codec::{decode, encode};
use keyraft_engine::limits::FRAME_MAX_BYTES;
use keyraft_engine::transport::Caller;
use keyraft_engine::wire::{Answer, ClientRequest, Failure, Request, Response};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// All of it.
pub struct World {
    /// The network.
    pub network: Network,
    /// The members' machines, by place.
    pub machines: Vec<Machine>,
    /// The machine of clients and watchers, which nothing befalls.
    pub outside: Host,
    now: Duration,
    dice: Dice,
    /// Processes that ended by themselves since somebody asked: where and why.
    pub ended: VecDeque<(usize, String)>,
    /// Who is told what tokens destroy, once somebody wants to know.
    pub recorder: Option<Arc<Recorder>>,
}

/// Why a request from outside brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The member said no.
    Failed(Failure),
    /// It said nothing.
    Silent(String),
}

impl World {
    /// Machines without members; keys in clear are looked for in what they keep and say.
    ///
    /// # Errors
    /// The system gives no runtime.
    pub fn new(
        machines: usize,
        folder: &Path,
        dice: &mut Dice,
        search: &Arc<Search>,
    ) -> Result<Self, String> {
        let network = Network::new(Dice::new(dice.below(u64::MAX)), search.clone());
        let mut outside = Host::default();
        outside.start(std::future::pending())?;
        Ok(Self {
            machines: (0..machines)
                .map(|place| Machine::new(place, folder, &network, search))
                .collect::<Result<_, _>>()?,
            network,
            outside,
            now: entropy::elapsed(),
            dice: Dice::new(dice.below(u64::MAX)),
            ended: VecDeque::new(),
            recorder: None,
        })
    }

    /// The time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Lets a tick go by.
    ///
    /// # Errors
    /// A process cannot be started again.
    pub fn step(&mut self) -> Result<(), String> {
        self.network.deliver(self.now);
        for place in self.dice.mixed((0..=self.machines.len()).collect()) {
            journal::at(place);
            match self.machines.get_mut(place) {
                Some(machine) => {
                    machine.host.step();
                    self.recorder.iter().for_each(|recorder| tokens::note_destroyed(machine, recorder));
                }
                None => self.outside.step(),
            }
        }
        self.now += TICK;
        entropy::set_now(self.now);
        for machine in &mut self.machines {
            if let Some(why) = machine.supervise(self.now)? {
                self.ended.push_back((machine.place, why));
            }
        }
        Ok(())
    }

    /// Lets time go by.
    ///
    /// # Errors
    /// As [`World::step`].
    pub fn rest(&mut self, time: Duration) -> Result<(), String> {
        let until = self.now + time;
        while self.now < until {
            self.step()?;
        }
        Ok(())
    }

    /// Lets time go by until something outside has come to its end; None if that takes longer than `limit`.
    ///
    /// # Errors
    /// As [`World::step`].
    pub fn wait<T: Send + 'static>(
        &mut self,
        task: impl Future<Output = T> + Send + 'static,
        limit: Duration,
    ) -> Result<Option<T>, String> {
        let (put, taken) = (Arc::new(Mutex::new(None)), self.now + limit);
        let place = Arc::clone(&put);
        self.outside.spawn(async move {
            let done = task.await;
            *guard(&place) = Some(done);
        });
        while self.now < taken {
            self.step()?;
            if let Some(done) = guard(&put).take() {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Runs this on a machine in place of its member, to its end; None if that takes longer than `limit`.
    ///
    /// # Errors
    /// As [`World::step`].
    pub fn wait_at<T: Send + 'static>(
        &mut self,
        place: usize,
        task: impl Future<Output = T> + Send + 'static,
        limit: Duration,
    ) -> Result<Option<T>, String> {
        let (put, late) = (Arc::new(Mutex::new(None)), self.now + limit);
        let cell = Arc::clone(&put);
        let machine = self.machines.get_mut(place).ok_or_else(|| format!("there is no machine {place}"))?;
        machine.run(async move {
            let done = task.await;
            *guard(&cell) = Some(done);
        })?;
        let mut done = None;
        while done.is_none() && self.now < late {
            self.step()?;
            done = guard(&put).take();
        }
        if let Some(machine) = self.machines.get_mut(place) {
            machine.kill();
        }
        Ok(done)
    }

    /// Asks one member as an operator does, and lets time go by until it has answered.
    ///
    /// # Errors
    /// As [`World::step`]; inside, that the member did not do it.
    pub fn ask(
        &mut self,
        place: usize,
        request: ClientRequest,
        limit: Duration,
    ) -> Result<Result<Answer, Unanswered>, String> {
        let asked = asks(self.network.clone(), place, request, limit);
        let late = Unanswered::Silent("no answer in time".into());
        Ok(self.wait(asked, limit + TICK)?.unwrap_or(Err(late)))
    }
}

/// Asks one member as an operator on its machine does; no fault of the network hits the way.
///
/// # Errors
/// It said no, or nothing.
pub async fn asks(
    network: Network,
    place: usize,
    request: ClientRequest,
    limit: Duration,
) -> Result<Answer, Unanswered> {
    let silent = |why: &dyn std::fmt::Display| Unanswered::Silent(why.to_string());
    let caller = Caller::Local { uid: 0, pid: None };
    let way = Way { from: OUTSIDE, to: place, caller, bearer: None, connection: network.connection() };
    let request = encode(&Request::Client(request)).map_err(|error| silent(&error))?;
    let answer = network.call(way, request, limit, true).await.map_err(|error| silent(&error))?;
    match decode::<Response>(&answer, FRAME_MAX_BYTES).map_err(|error| silent(&error))? {
        Response::Client(answer) => Ok(answer),
        Response::Failed(failure) => Err(Unanswered::Failed(failure)),
        Response::Member(_) | Response::Join(_) => Err(silent(&"it answered another question")),
    }
}
