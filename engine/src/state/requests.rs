//! The request table: what became of each client's requests, so that a repeated one happens once.

use super::{Rejection, RequestContext, RequestState};
use crate::domain::{ClientId, LogIndex, RequestId};
use crate::limits::{CLIENTS_MAX, OUTCOMES_PER_CLIENT_MAX};
use crate::mutant::{self, Mutant};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};

/// Outcomes by client and sequence. Bounded in clients and in outcomes a client; an outcome that is still open is
/// never dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTable {
    #[serde(deserialize_with = "super::shared::map")]
    clients: OrdMap<ClientId, ClientRow>,
    /// The youngest birth among forgotten clients: an unknown client that is not younger may be one of them.
    forgotten: Option<LogIndex>,
}

/// One client's outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ClientRow {
    watermark: u64,
    last: LogIndex,
    /// Outcomes that wait for a Settle.
    open: u64,
    #[serde(deserialize_with = "super::shared::map")]
    outcomes: OrdMap<u64, Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    parameters: [u8; 16],
    state: RequestState,
}

impl RequestTable {
    /// Where a request stands, if its outcome is kept.
    pub fn get(&self, id: RequestId) -> Option<RequestState> {
        let row = self.clients.get(&id.client)?.outcomes.get(&id.sequence)?;
        Some(row.state.clone())
    }

    /// The state of a request that is in the table; [`Rejection::ParametersDiffer`] if it was another one.
    pub(super) fn known(&self, request: &RequestContext) -> Result<Option<RequestState>, Rejection> {
        let client = self.clients.get(&request.id.client);
        match client.and_then(|row| row.outcomes.get(&request.id.sequence)) {
            None => Ok(None),
            Some(_) if mutant::is_on(Mutant::ApplyTwice) => Ok(None),
            Some(row) if row.parameters == request.parameters => Ok(Some(row.state.clone())),
            Some(_) => Err(Rejection::ParametersDiffer),
        }
    }

    /// Says whether a request is new (None), has an outcome already, or may not be asked. Changes nothing.
    pub(super) fn check(
        &self,
        request: &RequestContext,
        index: LogIndex,
    ) -> Result<Option<RequestState>, Rejection> {
        let RequestId { client, sequence } = request.id;
        let Some(row) = self.clients.get(&client) else {
            return self.check_newcomer(request, index);
        };
        if let Some(outcome) = self.known(request)? {
            return Ok(Some(outcome));
        }
        let watermark = row.watermark.max(request.watermark);
        if sequence < watermark {
            return Err(Rejection::Expired);
        }
        let full = row.outcomes.len() >= OUTCOMES_PER_CLIENT_MAX;
        if full && row.outcomes.len() - row.droppable(watermark).count() >= OUTCOMES_PER_CLIENT_MAX {
            return Err(Rejection::TooManyRequests);
        }
        Ok(None)
    }

    fn check_newcomer(
        &self,
        request: &RequestContext,
        index: LogIndex,
    ) -> Result<Option<RequestState>, Rejection> {
        let RequestId { client, sequence } = request.id;
        // A birth that lies ahead would, once forgotten, shut out every client born until then.
        if client.born >= index {
            return Err(Rejection::Malformed("the client's birth lies ahead of the log".into()));
        }
        if sequence < request.watermark || self.forgotten.is_some_and(|forgotten| client.born <= forgotten) {
            return Err(Rejection::Expired);
        }
        if self.clients.len() >= CLIENTS_MAX && self.longest_idle().is_none() {
            return Err(Rejection::TooManyRequests);
        }
        Ok(None)
    }

    /// Keeps the outcome of a request that [`RequestTable::check`] called new, raises the client's watermark and
    /// drops what lies below it.
    pub(super) fn record(&mut self, request: &RequestContext, index: LogIndex, state: RequestState) {
        let RequestId { client, sequence } = request.id;
        if !self.clients.contains_key(&client) && self.clients.len() >= CLIENTS_MAX {
            self.forget_one();
        }
        let row = self.clients.entry(client).or_default();
        row.watermark = row.watermark.max(request.watermark);
        let below: Vec<u64> = row.droppable(row.watermark).collect();
        for sequence in below {
            row.outcomes.remove(&sequence);
        }
        row.last = index;
        row.open += u64::from(is_open(&state));
        row.outcomes.insert(sequence, Row { parameters: request.parameters, state });
    }

    /// Replaces the state of an open request by its end.
    pub(super) fn finish(&mut self, id: RequestId, index: LogIndex, state: RequestState) {
        let Some(client) = self.clients.get_mut(&id.client) else { return };
        let Some(row) = client.outcomes.get_mut(&id.sequence) else { return };
        client.open -= u64::from(is_open(&row.state));
        row.state = state;
        client.last = index;
    }

    fn longest_idle(&self) -> Option<ClientId> {
        let idle = self.clients.iter().filter(|(_, row)| row.open == 0);
        idle.min_by_key(|(client, row)| (row.last, **client)).map(|(client, _)| *client)
    }

    fn forget_one(&mut self) {
        if let Some(client) = self.longest_idle() {
            self.clients.remove(&client);
            self.forgotten = self.forgotten.max(Some(client.born));
        }
    }

    /// Every open request, for the checks of tests.
    #[cfg(test)]
    pub(super) fn open(&self) -> impl Iterator<Item = RequestId> {
        self.clients.iter().flat_map(|(client, row)| {
            let open = row.outcomes.iter().filter(|(_, row)| is_open(&row.state));
            open.map(|(sequence, _)| RequestId { client: *client, sequence: *sequence })
        })
    }
}

impl ClientRow {
    fn droppable(&self, watermark: u64) -> impl Iterator<Item = u64> {
        self.outcomes
            .range(..watermark)
            .filter(|(_, row)| !is_open(&row.state))
            .map(|(sequence, _)| *sequence)
    }
}

fn is_open(state: &RequestState) -> bool {
    matches!(state, RequestState::Creating(_) | RequestState::Removing(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ObjectId;

    fn request(born: u64, nonce: u64, sequence: u64, watermark: u64) -> RequestContext {
        let client = ClientId { born: LogIndex(born), nonce };
        RequestContext { id: RequestId { client, sequence }, watermark, parameters: [1; 16] }
    }

    #[test]
    fn a_full_table_forgets_the_longest_idle_client_with_nothing_open() {
        let mut table = RequestTable::default();
        let end = |n| RequestState::Created(vec![ObjectId(n)]);
        table.record(&request(1, 0, 1, 0), LogIndex(10), RequestState::Creating(vec![ObjectId(1)]));
        for nonce in 1..CLIENTS_MAX as u64 {
            table.record(&request(2, nonce, 1, 0), LogIndex(10 + nonce), end(nonce));
        }
        let newcomer = request(9000, 1, 1, 0);
        assert_eq!(table.check(&newcomer, LogIndex(9001)), Ok(None));
        table.record(&newcomer, LogIndex(9001), end(5));
        assert_eq!(table.get(request(1, 0, 1, 0).id), Some(RequestState::Creating(vec![ObjectId(1)])));
        assert_eq!(table.get(request(2, 1, 1, 0).id), None);
        assert_eq!(table.check(&request(2, 1, 1, 0), LogIndex(9002)), Err(Rejection::Expired));
        assert_eq!(table.check(&request(2, 77_777, 1, 0), LogIndex(9002)), Err(Rejection::Expired));
        assert_eq!(table.check(&request(3, 77_777, 1, 0), LogIndex(9002)), Ok(None));
        assert_eq!(table.check(&request(2, 2, 1, 0), LogIndex(9002)), Ok(Some(end(2))));
    }

    #[test]
    fn a_table_full_of_open_requests_takes_no_newcomer() {
        let mut table = RequestTable::default();
        for nonce in 0..CLIENTS_MAX as u64 {
            table.record(
                &request(1, nonce, 1, 0),
                LogIndex(2),
                RequestState::Creating(vec![ObjectId(nonce)]),
            );
        }
        assert_eq!(table.check(&request(1, 99_999, 1, 0), LogIndex(3)), Err(Rejection::TooManyRequests));
    }

    #[test]
    fn a_client_has_so_many_outcomes_until_it_raises_its_watermark() {
        let mut table = RequestTable::default();
        for sequence in 1..=OUTCOMES_PER_CLIENT_MAX as u64 {
            let next = request(1, 1, sequence, 0);
            assert_eq!(table.check(&next, LogIndex(2)), Ok(None));
            let state = match sequence {
                1 => RequestState::Removing(vec![]),
                _ => RequestState::Removed(vec![]),
            };
            table.record(&next, LogIndex(2), state);
        }
        let next = OUTCOMES_PER_CLIENT_MAX as u64 + 1;
        assert_eq!(table.check(&request(1, 1, next, 0), LogIndex(3)), Err(Rejection::TooManyRequests));
        // Sequence 1 is still open: raising the watermark to 2 frees nothing.
        assert_eq!(table.check(&request(1, 1, next, 2), LogIndex(3)), Err(Rejection::TooManyRequests));
        assert_eq!(table.check(&request(1, 1, next, 3), LogIndex(3)), Ok(None));
        table.record(&request(1, 1, next, 3), LogIndex(3), RequestState::Removed(vec![]));
        assert_eq!(table.get(request(1, 1, 1, 0).id), Some(RequestState::Removing(vec![])));
        assert_eq!(table.get(request(1, 1, 2, 0).id), None);
        assert_eq!(table.check(&request(1, 1, 2, 0), LogIndex(4)), Err(Rejection::Expired));
    }

    #[test]
    fn a_birth_ahead_of_the_log_is_refused() {
        let refused = RequestTable::default().check(&request(7, 1, 1, 0), LogIndex(7));
        assert!(matches!(refused, Err(Rejection::Malformed(_))));
    }
}
