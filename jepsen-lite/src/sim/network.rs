//! The simulated network: requests and answers as bytes, each with a way and a time of its own. What is lost is never
//! told: its caller waits until its deadline, or until its connection is given up, as real ones are.

use super::leaks::Search;
use crate::dice::Dice;
use keyraft_engine::codec::decode;
use keyraft_engine::domain::MemberId;
use keyraft_engine::health::DEAD_AFTER;
use keyraft_engine::limits::{FRAME_MAX_BYTES, SILENCE_MAX, UNACKNOWLEDGED_MAX};
use keyraft_engine::transport::pki::Named;
use keyraft_engine::transport::{Caller, ConnectionId, LinkError};
use keyraft_engine::wire::{MemberRequest, Request, Response, Undecided};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// A machine's place. Members have the first ones; clients and watchers live on [`OUTSIDE`].
pub type Place = usize;
/// The machine of whoever is no member.
pub const OUTSIDE: Place = usize::MAX;

/// What a message takes without any fault, at least and at most, milliseconds.
const LATENCY_MS: (u64, u64) = (1, 3);
/// How late a message may come that is delayed, milliseconds.
const DELAYED_MS: u64 = 250;
/// Of a thousand messages over a bad link so many are lost, doubled, delayed.
const LOST: u64 = 120;
const DOUBLED: u64 = 200;
const DELAYED: u64 = 300;
/// How often connections are looked through for those that are dead, milliseconds.
const LOOK_MS: u64 = 20;

/// A request as it reaches a process.
#[derive(Debug)]
pub struct Incoming {
    /// Its number.
    pub call: u64,
    /// Who asks.
    pub caller: Caller,
    /// What a member's certificate says.
    pub bearer: Option<Named>,
    /// Over which connection.
    pub connection: ConnectionId,
    /// What.
    pub request: Vec<u8>,
}

/// Who asks, and whom.
#[derive(Clone, Debug)]
pub struct Way {
    /// From where.
    pub from: Place,
    /// To where.
    pub to: Place,
    /// As whom.
    pub caller: Caller,
    /// What a member's certificate says.
    pub bearer: Option<Named>,
    /// Over which connection.
    pub connection: ConnectionId,
}

/// What is bad about links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bad {
    /// They lose messages.
    Loses,
    /// They deliver some twice.
    Doubles,
    /// They deliver some late, and behind later ones.
    Delays,
}

/// What is on its way.
enum Parcel {
    Request {
        to: Place,
        incoming: Incoming,
        from: Place,
    },
    Answer {
        call: u64,
        outcome: Result<Vec<u8>, LinkError>,
    },
    /// The connections to a process broke, and nobody listens any more.
    Gone {
        at: Place,
        who: Place,
    },
}

struct Pending {
    from: Place,
    to: Place,
    since: u64,
    sure: bool,
    /// Since when it, or its answer, is lost, milliseconds.
    lost: Option<u64>,
    /// It came twice, and leaves this undecided if one copy is lost.
    doubled: Option<Undecided>,
    answer: oneshot::Sender<Result<Vec<u8>, LinkError>>,
}

/// What one process learns of others besides answers.
#[derive(Debug)]
pub struct Ear {
    /// Members that are known to be gone.
    pub absent: Mutex<BTreeSet<MemberId>>,
    /// Grows whenever one has become absent.
    pub absences: watch::Sender<u64>,
}

impl Default for Ear {
    fn default() -> Self {
        Self { absent: Mutex::default(), absences: watch::Sender::new(0) }
    }
}

impl Ear {
    fn missed(&self, member: MemberId) {
        guard(&self.absent).insert(member);
        self.absences.send_modify(|count| *count += 1);
    }

    /// It has answered.
    pub fn heard(&self, member: MemberId) {
        guard(&self.absent).remove(&member);
    }
}

/// One machine on the network.
#[derive(Default)]
struct Station {
    listens: Option<mpsc::UnboundedSender<Incoming>>,
    ear: Option<Arc<Ear>>,
    member: Option<MemberId>,
    /// Since when it is stopped, milliseconds.
    paused: Option<u64>,
}

struct Inner {
    /// Milliseconds.
    now: u64,
    dice: Dice,
    /// By the time at which it arrives, then in the order of sending.
    parcels: BTreeMap<(u64, u64), Parcel>,
    sent: u64,
    calls: u64,
    connections: u64,
    pending: BTreeMap<u64, Pending>,
    stations: BTreeMap<Place, Station>,
    /// Since when nothing from the first reaches the second, milliseconds.
    cuts: BTreeMap<(Place, Place), u64>,
    /// Links from and to these are bad.
    bad: BTreeMap<Bad, BTreeSet<Place>>,
    /// The last arrival on each link that keeps its order.
    order: BTreeMap<(Place, Place), u64>,
    /// Hears all that is said.
    search: Arc<Search>,
}

/// The network. Clones are the same one.
#[derive(Clone)]
pub struct Network(Arc<Mutex<Inner>>);

/// A lock that nobody can poison: there is one thread.
pub fn guard<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    /// One without faults, on which keys in clear are looked for.
    pub fn new(dice: Dice, search: Arc<Search>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now: 0,
            dice,
            parcels: BTreeMap::new(),
            sent: 0,
            calls: 0,
            connections: 0,
            pending: BTreeMap::new(),
            stations: BTreeMap::new(),
            cuts: BTreeMap::new(),
            bad: BTreeMap::new(),
            order: BTreeMap::new(),
            search,
        })))
    }

    /// A connection that nobody has had before.
    pub fn connection(&self) -> ConnectionId {
        let mut inner = guard(&self.0);
        inner.connections += 1;
        ConnectionId(inner.connections)
    }

    /// A process listens from now on, as this member.
    pub fn listen(&self, place: Place, member: MemberId) -> mpsc::UnboundedReceiver<Incoming> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut inner = guard(&self.0);
        let station = inner.stations.entry(place).or_default();
        station.listens = Some(sender);
        station.member = Some(member);
        receiver
    }

    /// A process has an ear for who is gone.
    pub fn lend(&self, place: Place, ear: Arc<Ear>) {
        guard(&self.0).stations.entry(place).or_default().ear = Some(ear);
    }

    /// A process is gone: its connections break, and whoever is not cut off from its machine hears that.
    pub fn hang_up(&self, place: Place) {
        let mut inner = guard(&self.0);
        let station = inner.stations.entry(place).or_default();
        station.listens = None;
        station.ear = None;
        inner.pending.retain(|_, pending| pending.from != place);
        let broken: Vec<(u64, Place)> = inner
            .pending
            .iter()
            .filter(|(_, pending)| pending.to == place)
            .map(|(call, pending)| (*call, pending.from))
            .collect();
        for (call, from) in broken {
            inner.send(place, from, Parcel::Answer { call, outcome: Err(LinkError::Lost) }, true);
        }
        let others: Vec<Place> = inner.stations.keys().copied().filter(|other| *other != place).collect();
        for other in others {
            inner.send(place, other, Parcel::Gone { at: other, who: place }, true);
        }
    }

    /// A process is stopped, or goes on.
    pub fn pause(&self, place: Place, paused: bool) {
        let mut inner = guard(&self.0);
        let since = inner.now;
        inner.stations.entry(place).or_default().paused = paused.then_some(since);
    }

    /// From now on nothing passes these links, each from the first to the second, and all others are open.
    pub fn cut(&self, links: &BTreeSet<(Place, Place)>) {
        let mut inner = guard(&self.0);
        let now = inner.now;
        inner.cuts.retain(|link, _| links.contains(link));
        for link in links {
            inner.cuts.entry(*link).or_insert(now);
        }
    }

    /// From now on the links of these are bad in this way, and no others.
    pub fn spoil(&self, bad: Bad, members: BTreeSet<Place>) {
        guard(&self.0).bad.insert(bad, members);
    }

    /// Who is at a place now.
    pub fn member_at(&self, place: Place) -> Option<MemberId> {
        guard(&self.0).stations.get(&place).and_then(|station| station.member)
    }

    /// Where a member is.
    pub fn place_of(&self, member: MemberId) -> Option<Place> {
        let inner = guard(&self.0);
        inner.stations.iter().find(|(_, station)| station.member == Some(member)).map(|(place, _)| *place)
    }

    /// Sends a request; the answer comes through what this gives. `sure` is of watchers, whom no fault hits.
    pub fn ask(
        &self,
        way: Way,
        request: Vec<u8>,
        sure: bool,
    ) -> oneshot::Receiver<Result<Vec<u8>, LinkError>> {
        let (answer, receiver) = oneshot::channel();
        let mut inner = guard(&self.0);
        inner.calls += 1;
        let (call, since) = (inner.calls, inner.now);
        inner.pending.insert(
            call,
            Pending { from: way.from, to: way.to, since, sure, lost: None, doubled: None, answer },
        );
        let Way { from, to, caller, bearer, connection } = way;
        inner.search.asked(from, to, &request);
        let incoming = Incoming { call, caller, bearer, connection, request };
        inner.send(from, to, Parcel::Request { to, incoming, from }, sure);
        receiver
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As real links fail: at the deadline at the latest.
    pub async fn call(
        &self,
        way: Way,
        request: Vec<u8>,
        deadline: Duration,
        sure: bool,
    ) -> Result<Vec<u8>, LinkError> {
        let answer = self.ask(way, request, sure);
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(LinkError::Lost),
            Err(_) => Err(LinkError::Deadline),
        }
    }

    /// A process answers a request.
    pub fn answer(&self, call: u64, outcome: Result<Vec<u8>, LinkError>) {
        let mut inner = guard(&self.0);
        let way = inner.pending.get(&call).map(|pending| (pending.from, pending.to, pending.sure));
        if let Some((from, to, sure)) = way {
            if let Ok(answer) = &outcome {
                inner.search.answered(to, from, answer);
            }
            inner.send(to, from, Parcel::Answer { call, outcome }, sure);
        }
    }

    /// True unless a message between members is lost whose connection is not given up yet: until then a member may be left
    /// alone by another, though nothing is broken any more.
    pub fn is_clear(&self) -> bool {
        let inner = guard(&self.0);
        !inner.pending.values().any(|pending| pending.lost.is_some() && pending.from != OUTSIDE)
    }

    /// Delivers what has arrived by now.
    pub fn deliver(&self, now: Duration) {
        let mut inner = guard(&self.0);
        let inner = &mut *inner;
        inner.now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        while let Some(entry) = inner.parcels.first_entry() {
            if entry.key().0 > inner.now {
                break;
            }
            let parcel = entry.remove();
            inner.arrives(parcel);
        }
        if inner.now.is_multiple_of(LOOK_MS) {
            inner.give_up();
        }
    }
}

impl Inner {
    fn is_bad(&self, bad: Bad, from: Place, to: Place) -> bool {
        self.bad.get(&bad).is_some_and(|members| members.contains(&from) || members.contains(&to))
    }

    /// Puts a parcel on its way, or loses it.
    fn send(&mut self, from: Place, to: Place, parcel: Parcel, sure: bool) {
        if self.cuts.contains_key(&(from, to)) {
            self.note_lost(&parcel);
            return;
        }
        let mut chance = |of: u64| !sure && self.dice.below(1000) < of;
        let (lost, doubled, delayed) = (chance(LOST), chance(DOUBLED), chance(DELAYED));
        if lost && self.is_bad(Bad::Loses, from, to) {
            self.note_lost(&parcel);
            return;
        }
        if doubled && self.is_bad(Bad::Doubles, from, to) {
            let again = match &parcel {
                Parcel::Request { to, incoming, from } => {
                    if let Some(pending) = self.pending.get_mut(&incoming.call) {
                        pending.doubled = Some(undecided(&incoming.request));
                    }
                    Some(Parcel::Request { to: *to, incoming: copied(incoming), from: *from })
                }
                // The second answer to a call is of no use to anybody.
                Parcel::Answer { .. } | Parcel::Gone { .. } => None,
            };
            if let Some(again) = again {
                let late = self.now + LATENCY_MS.0 + self.dice.below(DELAYED_MS);
                self.put(late, again);
            }
        }
        let takes = LATENCY_MS.0 + self.dice.below(LATENCY_MS.1 - LATENCY_MS.0 + 1);
        let arrives = if delayed && self.is_bad(Bad::Delays, from, to) {
            self.now + takes + self.dice.below(DELAYED_MS)
        } else {
            let last = self.order.entry((from, to)).or_default();
            *last = (self.now + takes).max(*last);
            *last
        };
        self.put(arrives, parcel);
    }

    fn note_lost(&mut self, parcel: &Parcel) {
        let call = match parcel {
            Parcel::Request { incoming, .. } => incoming.call,
            Parcel::Answer { call, .. } => *call,
            Parcel::Gone { .. } => return,
        };
        if let Some(pending) = self.pending.get_mut(&call) {
            pending.lost = Some(self.now);
        }
    }

    fn put(&mut self, arrives: u64, parcel: Parcel) {
        self.sent += 1;
        self.parcels.insert((arrives, self.sent), parcel);
    }

    fn arrives(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Request { to, incoming, from } => {
                let call = incoming.call;
                let station = self.stations.get(&to);
                let taken = station.and_then(|station| station.listens.as_ref()).map(|to| to.send(incoming));
                if !matches!(taken, Some(Ok(()))) {
                    let outcome = Err(LinkError::Unreachable("connection refused".into()));
                    self.send(to, from, Parcel::Answer { call, outcome }, true);
                }
            }
            Parcel::Answer { call, outcome } => {
                let Some(pending) = self.pending.remove(&call) else { return };
                if let Err(LinkError::Unreachable(_)) = &outcome {
                    self.missed(pending.from, pending.to);
                }
                let outcome = match pending.doubled {
                    Some(undecided) => believed(outcome, undecided),
                    None => outcome,
                };
                // The caller may have stopped waiting.
                let _ = pending.answer.send(outcome);
            }
            Parcel::Gone { at, who } => {
                if self.stations.get(&who).is_some_and(|station| station.listens.is_none()) {
                    self.missed(at, who);
                }
            }
        }
    }

    fn missed(&self, at: Place, who: Place) {
        let ear = self.stations.get(&at).and_then(|station| station.ear.as_ref());
        let member = self.stations.get(&who).and_then(|station| station.member);
        if let (Some(ear), Some(member)) = (ear, member) {
            ear.missed(member);
        }
    }

    /// Ends calls whose connection a real process would have given up by now.
    fn give_up(&mut self) {
        let now = self.now;
        let over = |since: Option<u64>, call: u64, limit: Duration| {
            since.is_some_and(|since| {
                now.saturating_sub(since.max(call)) >= u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
            })
        };
        let lost: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| {
                let (from, to) = (pending.from, pending.to);
                let cut = self.cuts.get(&(from, to)).or_else(|| self.cuts.get(&(to, from))).copied();
                let paused = self.stations.get(&to).and_then(|station| station.paused);
                let silence = if from == OUTSIDE { DEAD_AFTER } else { SILENCE_MAX };
                // A process sends again what was lost, until its connection is given up. An application has its own patience.
                let lost = pending.lost.filter(|_| from != OUTSIDE);
                over(cut, pending.since, UNACKNOWLEDGED_MAX)
                    || over(lost, pending.since, UNACKNOWLEDGED_MAX)
                    || over(paused, pending.since, silence)
            })
            .map(|(call, _)| *call)
            .collect();
        for call in lost {
            if let Some(pending) = self.pending.remove(&call) {
                // Applications tell silence from a broken connection.
                let why = if pending.from == OUTSIDE { LinkError::Deadline } else { LinkError::Lost };
                let _ = pending.answer.send(Err(why));
            }
        }
        // Nobody waits for these any more.
        self.pending.retain(|_, pending| !pending.answer.is_closed());
    }
}

/// What a request leaves undecided that came twice.
fn undecided(request: &[u8]) -> Undecided {
    match decode::<Request>(request, FRAME_MAX_BYTES) {
        Ok(Request::Client(asked)) => asked.undecided(),
        Ok(Request::Member(MemberRequest::Forward(asked))) => asked.undecided(),
        Ok(Request::Member(_) | Request::Join(_)) | Err(_) => Undecided::Making,
    }
}

/// Real connections deliver nothing twice: a request comes twice where one broke and its caller asked again. Such a
/// caller knows that the refusal of one copy says nothing of the other.
fn believed(outcome: Result<Vec<u8>, LinkError>, of: Undecided) -> Result<Vec<u8>, LinkError> {
    match outcome.as_deref().map(|bytes| decode::<Response>(bytes, FRAME_MAX_BYTES)) {
        Ok(Ok(Response::Failed(failure))) if failure.clone().after_a_loss(of) != failure => {
            Err(LinkError::Lost)
        }
        // The other copy may come once somebody listens.
        Err(LinkError::Unreachable(_)) => Err(LinkError::Lost),
        _ => outcome,
    }
}

fn copied(incoming: &Incoming) -> Incoming {
    Incoming {
        call: incoming.call,
        caller: incoming.caller.clone(),
        bearer: incoming.bearer,
        connection: incoming.connection,
        request: incoming.request.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::MARK_BYTES;

    #[test]
    fn what_a_cut_swallows_is_given_up_also_when_the_cut_is_over() {
        let network = Network::new(Dice::new(1), Arc::new(Search::new([0; MARK_BYTES])));
        let _listens = network.listen(1, MemberId(2));
        let way = |from: Place| Way {
            from,
            to: 1,
            caller: Caller::Unproven,
            bearer: None,
            connection: network.connection(),
        };
        for (from, waits) in [(0, true), (OUTSIDE, false)] {
            network.cut(&BTreeSet::from([(from, 1)]));
            let mut answer = network.ask(way(from), Vec::new(), false);
            network.cut(&BTreeSet::new());
            assert_eq!(network.is_clear(), !waits);
            let later =
                guard(&network.0).now + u64::try_from(UNACKNOWLEDGED_MAX.as_millis()).expect("is short");
            network.deliver(Duration::from_millis(later - LOOK_MS));
            assert_eq!(network.is_clear(), !waits);
            network.deliver(Duration::from_millis(later));
            assert!(network.is_clear());
            // An application has its own patience.
            assert_eq!(matches!(answer.try_recv(), Ok(Err(LinkError::Lost))), waits);
        }
    }
}
