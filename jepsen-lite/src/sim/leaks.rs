//! Looks for keys in clear in all that simulated members keep and say. A client's creation by value holds its key by nature, on
//! its way to a member and from there to the primary: where real members speak, TLS hides it. Nothing else may.
//!
//! What was looked through is counted in pieces: how long a certificate is, the seed does not decide.

use super::network::{OUTSIDE, Place, guard};
use crate::edn::Value;
use crate::history::{Event, Function};
use crate::leaks::{holds, search};
use crate::limits;
use crate::workload::MARK_BYTES;
use keyraft_engine::codec::decode;
use keyraft_engine::limits::FRAME_MAX_BYTES;
use keyraft_engine::wire::{ClientRequest, MakeBy, MemberRequest, Request, SlotRequest};
use std::path::Path;
use std::sync::Mutex;

/// What was looked through, and what was found.
#[derive(Debug)]
pub struct Search {
    mark: [u8; MARK_BYTES],
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    written: i64,
    said: i64,
    /// The first [`limits::LEAKS_MAX`].
    leaks: Vec<String>,
}

fn name(place: Place) -> String {
    if place == OUTSIDE { "a client".into() } else { format!("member {place}") }
}

impl Search {
    /// One for the run of this mark.
    pub fn new(mark: [u8; MARK_BYTES]) -> Self {
        Self { mark, heard: Mutex::default() }
    }

    fn found(heard: &mut Heard, place: String) {
        if heard.leaks.len() < limits::LEAKS_MAX {
            heard.leaks.push(place);
        }
    }

    /// A member's disk takes this.
    pub fn written(&self, place: Place, bytes: &[u8]) {
        let mut heard = guard(&self.heard);
        heard.written += 1;
        if holds(bytes, &self.mark) {
            Self::found(&mut heard, format!("the disk of member {place}"));
        }
    }

    /// One asks another.
    pub fn asked(&self, from: Place, to: Place, request: &[u8]) {
        let mut heard = guard(&self.heard);
        heard.said += 1;
        if holds(request, &self.mark) && !brings_a_value(request) {
            Self::found(&mut heard, format!("a request of {} to {}", name(from), name(to)));
        }
    }

    /// One answers another.
    pub fn answered(&self, from: Place, to: Place, answer: &[u8]) {
        let mut heard = guard(&self.heard);
        heard.said += 1;
        if holds(answer, &self.mark) {
            Self::found(&mut heard, format!("an answer of {} to {}", name(from), name(to)));
        }
    }

    /// Looks through the members' folders too, and tells what was found.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn end(&self, folders: &Path) -> Result<Event, String> {
        let files = search(folders, self.mark)?;
        let heard = guard(&self.heard);
        let shown = files.leaks.iter().map(|path| path.strip_prefix(folders).unwrap_or(path));
        let mut shown: Vec<String> = shown.map(|path| path.display().to_string()).collect();
        shown.sort();
        let leaks = heard.leaks.iter().cloned().chain(shown).map(Value::Text).collect();
        let value = Value::map([
            ("disk-pieces", Value::Int(heard.written)),
            ("wire-pieces", Value::Int(heard.said)),
            ("leaks", Value::List(leaks)),
        ]);
        Ok(Event::nemesis(Function::InClear, value))
    }
}

/// True for a client's creation by value, also if another member passes it on.
fn brings_a_value(request: &[u8]) -> bool {
    let asked = match decode::<Request>(request, FRAME_MAX_BYTES) {
        Ok(Request::Client(asked)) => asked,
        Ok(Request::Member(MemberRequest::Forward(asked))) => *asked,
        _ => return false,
    };
    let ClientRequest::Slot(call) = asked else { return false };
    matches!(&call.ask, SlotRequest::Make { by, .. } if matches!(**by, MakeBy::Create { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{mark, value_of};
    use keyraft_engine::codec::encode;
    use keyraft_engine::consensus::model_disk::ModelDisk;
    use keyraft_engine::domain::{
        AttributeType, AttributeValue, Attributes, ClientId, ClientName, ContentKey, Envelope, Generation,
        LogIndex, ObjectId, RequestId, Version,
    };
    use keyraft_engine::wire::{Change, Keep, RaftCall, SlotCall};
    use std::sync::Arc;

    fn leaks(search: &Search) -> Vec<String> {
        let folder = tempfile::tempdir().expect("makes a folder");
        let inner = folder.path().join("m0-0");
        std::fs::create_dir_all(&inner).expect("makes folders");
        std::fs::write(inner.join("identity"), value_of(7, "v2.2")).expect("writes");
        let told = search.end(folder.path()).expect("is read").value;
        let all = told.get("leaks").and_then(Value::list).expect("has a list");
        all.iter().filter_map(Value::text).map(str::to_string).collect()
    }

    #[test]
    fn a_planted_key_is_found_wherever_a_member_keeps_it() {
        let search = Arc::new(Search::new(mark(7)));
        let (disk, ear) = (ModelDisk::default(), search.clone());
        disk.set_witness(Arc::new(move |bytes| ear.written(1, bytes)));
        let key = ContentKey { object: ObjectId(1), version: Version(1), generation: Generation(1) };
        let content = |of: u64| Envelope { nonce: [0; 12], sealed: value_of(of, "v3.1").to_vec() };
        disk.store().put_contents(&[(key, content(8))]).expect("is written");
        assert_eq!(leaks(&search), ["m0-0/identity"], "another run's is none");
        disk.store().put_contents(&[(key, content(7))]).expect("is written");
        disk.store().retain_contents(&|_| false).expect("is deleted again");
        assert_eq!(leaks(&search), ["the disk of member 1", "m0-0/identity"]);
    }

    #[test]
    fn a_planted_key_is_heard_unless_a_client_creates_it() {
        let search = Search::new(mark(7));
        let value = value_of(7, "v3.1").to_vec();
        let by = MakeBy::Create {
            template: Attributes::from([(AttributeType::VALUE, AttributeValue::Bytes(value.clone()))]),
        };
        let request = RequestId { client: ClientId { born: LogIndex(1), nonce: 1 }, sequence: 1 };
        let make = || SlotRequest::Make {
            change: Change { request, watermark: 1 },
            keep: Keep::Agreed,
            by: Box::new(by.clone()),
        };
        let call = |ask| {
            let who = ClientName::default();
            ClientRequest::Slot(Box::new(SlotCall {
                who,
                ticket: None,
                seen: LogIndex(0),
                tries: 1,
                ask,
                direct: false,
            }))
        };
        let bytes = |request: &Request| encode(request).expect("is encoded");
        search.asked(OUTSIDE, 0, &bytes(&Request::Client(call(make()))));
        search.asked(0, 1, &bytes(&Request::Member(MemberRequest::Forward(Box::new(call(make()))))));
        assert_eq!(leaks(&search), ["m0-0/identity"], "the client's own words");
        let raft = MemberRequest::Raft { call: RaftCall::Append, body: value.clone() };
        search.asked(0, 1, &bytes(&Request::Member(raft)));
        search.answered(1, OUTSIDE, &value);
        assert_eq!(
            leaks(&search),
            ["a request of member 0 to member 1", "an answer of member 1 to a client", "m0-0/identity"]
        );
    }
}
