//! Object ids, puts, removals, and how they end.

use super::apply::{Applied, cut_refusal, malformed};
use super::command::FIRST_VERSION;
use super::{
    Effects, NewObject, Object, Outcome, PartialKeys, Phase, Refusal, Rejection, RequestContext,
    RequestState, Settlement, State, Verdict,
};
use crate::domain::{Envelope, LogIndex, MemberId, ObjectId, RequestId, Version};
use crate::limits::{
    ENVELOPE_MAX_BYTES, ID_BLOCK_COUNT, MEMBERS_MAX, OBJECTS_PER_REQUEST_MAX, RESERVED_IDS_MAX,
    SETTLEMENTS_PER_ENTRY_MAX,
};
use crate::mutant::{self, Mutant};
use std::collections::{BTreeMap, BTreeSet};

/// Ids end below the top bit: handles with it set are a client's own session objects.
const OBJECT_ID_END: u64 = 1 << 63;

impl State {
    pub(super) fn reserve_ids(&mut self, member: MemberId, count: u64) -> Applied {
        if !self.members.contains_key(&member) {
            return Err(Rejection::NoSuchMember(member));
        }
        let count = count.min(ID_BLOCK_COUNT);
        let first = self.next_object;
        if count == 0 || OBJECT_ID_END - first < count {
            return Err(malformed("no ids were asked for, or none are left"));
        }
        if !mutant::is_on(Mutant::ReuseAnId) {
            self.next_object = first + count;
        }
        let reserved = self.reserved.entry(member).or_default();
        reserved.extend((first..first + count).map(ObjectId));
        // Leftovers of a primary's earlier blocks lapse: gaps are allowed, an unbounded list is not.
        while reserved.len() > RESERVED_IDS_MAX {
            reserved.remove_min();
        }
        Ok(Effects { outcome: Outcome::Reserved { first: ObjectId(first), count }, ..Effects::default() })
    }

    pub(super) fn put(
        &mut self,
        index: LogIndex,
        request: &RequestContext,
        objects: Vec<NewObject>,
    ) -> Applied {
        if let Some(known) = self.requests.check(request, index)? {
            return Ok(Effects { outcome: Outcome::Request(known), ..Effects::default() });
        }
        // A refused put is not recorded: the primary mends it and asks again under the same request id.
        self.check_put(request, &objects)?;
        let ids: Vec<ObjectId> = objects.iter().map(|object| object.content.object).collect();
        let mut contents = Vec::with_capacity(objects.len());
        for NewObject { content, class, envelope, excluded } in objects {
            self.use_id(content.object);
            let excluded = if class.is_resident() { self.present(excluded) } else { BTreeMap::new() };
            let phase = Phase::Pending(request.id);
            self.objects.insert(content.object, Object { content, class, phase, excluded, index });
            contents.push((content, envelope));
        }
        self.unsettled.insert(request.id);
        let state = RequestState::Creating(ids.clone());
        self.requests.record(request, index, state.clone());
        Ok(Effects { outcome: Outcome::Request(state), contents, objects: ids, roster: false })
    }

    fn check_put(&self, request: &RequestContext, objects: &[NewObject]) -> Result<(), Rejection> {
        check_ids(request, objects.iter().map(|object| object.content.object))?;
        for NewObject { content, envelope, excluded, .. } in objects {
            if content.version != FIRST_VERSION {
                return Err(malformed("a new object has version 1"));
            }
            check_envelope(envelope)?;
            if excluded.len() > MEMBERS_MAX {
                return Err(malformed("more members are excluded than a group has"));
            }
            if !excluded.is_empty() && self.options.partial_keys == PartialKeys::Refuse {
                return Err(malformed("members are excluded, but partial_keys is refuse"));
            }
            if Some(content.generation) != self.generation() {
                return Err(Rejection::StaleGeneration(content.generation));
            }
            if self.reserver(content.object).is_none() && !mutant::is_on(Mutant::ReuseAReservedBlock) {
                return Err(Rejection::IdNotFree(content.object));
            }
        }
        Ok(())
    }

    /// The primary that an unused id is reserved for.
    fn reserver(&self, id: ObjectId) -> Option<MemberId> {
        self.reserved.iter().find(|(_, ids)| ids.contains(&id)).map(|(member, _)| *member)
    }

    fn use_id(&mut self, id: ObjectId) {
        if let Some(ids) = self.reserver(id).and_then(|member| self.reserved.get_mut(&member)) {
            ids.remove(&id);
        }
    }

    /// Exclusions of members that are still there, with reasons of bounded length.
    fn present(&self, excluded: BTreeMap<MemberId, Refusal>) -> BTreeMap<MemberId, Refusal> {
        let present = excluded.into_iter().filter(|(member, _)| self.members.contains_key(member));
        present.map(|(member, refusal)| (member, cut_refusal(refusal))).collect()
    }

    pub(super) fn remove(
        &mut self,
        index: LogIndex,
        request: &RequestContext,
        ids: Vec<ObjectId>,
    ) -> Applied {
        if let Some(known) = self.requests.check(request, index)? {
            return Ok(Effects { outcome: Outcome::Request(known), ..Effects::default() });
        }
        check_ids(request, ids.iter().copied())?;
        if let Some(missing) = ids.iter().find(|id| !self.is_settled(**id)) {
            let state = RequestState::Rejected(Rejection::NoSuchObject(*missing));
            self.requests.record(request, index, state.clone());
            return Ok(Effects { outcome: Outcome::Request(state), ..Effects::default() });
        }
        for id in &ids {
            if let Some(object) = self.objects.get_mut(id) {
                object.phase = Phase::Removing(request.id);
                object.index = index;
            }
        }
        self.unsettled.insert(request.id);
        let state = RequestState::Removing(ids.clone());
        self.requests.record(request, index, state.clone());
        Ok(Effects { outcome: Outcome::Request(state), objects: ids, ..Effects::default() })
    }

    pub(super) fn replace(&mut self, index: LogIndex, request: &RequestContext, new: NewObject) -> Applied {
        if let Some(known) = self.requests.check(request, index)? {
            return Ok(Effects { outcome: Outcome::Request(known), ..Effects::default() });
        }
        let NewObject { content, class, envelope, .. } = new;
        let id = content.object;
        check_ids(request, std::iter::once(id))?;
        check_envelope(&envelope)?;
        let known = self.smks.contains_key(&content.generation);
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.phase == Phase::Settled) else {
            return Err(Rejection::NoSuchObject(id));
        };
        let old = object.content.version;
        if old.0.checked_add(1) != Some(content.version.0) {
            return Err(Rejection::Superseded(old));
        }
        if class != object.class || !known {
            return Err(malformed("a new version keeps its class, and an SMK that lives"));
        }
        object.content = content;
        object.index = index;
        let state = RequestState::Replaced(id);
        self.requests.record(request, index, state.clone());
        let outcome = Outcome::Request(state);
        Ok(Effects { outcome, contents: vec![(content, envelope)], objects: vec![id], roster: false })
    }

    pub(super) fn differ(
        &mut self,
        index: LogIndex,
        request: &RequestContext,
        id: ObjectId,
        version: Version,
    ) -> Applied {
        if let Some(known) = self.requests.check(request, index)? {
            return Ok(Effects { outcome: Outcome::Request(known), ..Effects::default() });
        }
        check_ids(request, std::iter::once(id))?;
        let settled = self.objects.get(&id).filter(|object| object.phase == Phase::Settled);
        let now = settled.ok_or(Rejection::NoSuchObject(id))?.content.version;
        if now != version {
            return Err(Rejection::Superseded(now));
        }
        let state = RequestState::Differs(id);
        self.requests.record(request, index, state.clone());
        Ok(Effects { outcome: Outcome::Request(state), ..Effects::default() })
    }

    fn is_settled(&self, id: ObjectId) -> bool {
        self.objects.get(&id).is_some_and(|object| object.phase == Phase::Settled)
    }

    pub(super) fn settle(&mut self, index: LogIndex, settlements: Vec<Settlement>) -> Applied {
        if settlements.len() > SETTLEMENTS_PER_ENTRY_MAX {
            return Err(malformed("too many settlements in one entry"));
        }
        let mut objects = Vec::new();
        let honoured = settlements
            .into_iter()
            .map(|Settlement { request, verdict }| match self.settle_one(index, request, verdict) {
                Some(mut changed) => {
                    objects.append(&mut changed);
                    true
                }
                None => false,
            })
            .collect();
        Ok(Effects { outcome: Outcome::Settled(honoured), objects, ..Effects::default() })
    }

    /// Ends one request if the verdict may be honoured now; gives the objects whose rows changed.
    fn settle_one(&mut self, index: LogIndex, id: RequestId, verdict: Verdict) -> Option<Vec<ObjectId>> {
        let (state, objects) = match (self.requests.get(id)?, verdict) {
            (RequestState::Creating(ids), Verdict::Done { holders, excluded }) => {
                let excluded = self.accepted(&holders, excluded);
                if !ids.iter().all(|id| self.is_carried(*id, &holders, &excluded)) {
                    return None;
                }
                ids.iter().for_each(|id| self.publish(index, *id, &excluded));
                (RequestState::Created(ids.clone()), ids)
            }
            (RequestState::Creating(ids), Verdict::Aborted(refusal)) => {
                self.drop_rows(&ids);
                (RequestState::Aborted(cut_refusal(refusal)), ids)
            }
            (RequestState::Removing(ids), Verdict::Done { holders, .. }) => {
                if !ids.iter().all(|id| self.must_act(*id).is_subset(&holders)) {
                    return None;
                }
                self.drop_rows(&ids);
                (RequestState::Removed(ids.clone()), ids)
            }
            // A removal is never aborted, and what has ended has ended.
            _ => return None,
        };
        self.unsettled.remove(&id);
        self.requests.finish(id, index, state);
        Some(objects)
    }

    /// The exclusions of a Done that count. Those that the put recorded are in the rows already.
    fn accepted(
        &self,
        holders: &BTreeSet<MemberId>,
        mut excluded: BTreeMap<MemberId, Refusal>,
    ) -> BTreeMap<MemberId, Refusal> {
        if self.options.partial_keys == PartialKeys::Refuse {
            return BTreeMap::new();
        }
        excluded.retain(|member, _| !holders.contains(member));
        self.present(excluded)
    }

    /// True if every member that is counted on holds the object or is excluded, and at least one holds it.
    fn is_carried(
        &self,
        id: ObjectId,
        holders: &BTreeSet<MemberId>,
        excluded: &BTreeMap<MemberId, Refusal>,
    ) -> bool {
        let Some(object) = self.objects.get(&id) else { return false };
        if !object.class.is_resident() {
            return true;
        }
        let needed = self.must_act(id);
        needed.iter().all(|member| holders.contains(member) || excluded.contains_key(member))
            && needed.iter().any(|member| holders.contains(member))
    }

    fn publish(&mut self, index: LogIndex, id: ObjectId, excluded: &BTreeMap<MemberId, Refusal>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.phase = Phase::Settled;
        object.index = index;
        if object.class.is_resident() {
            for (member, refusal) in excluded {
                object.excluded.entry(*member).or_insert_with(|| refusal.clone());
            }
        }
    }

    fn drop_rows(&mut self, ids: &[ObjectId]) {
        for id in ids {
            self.objects.remove(id);
        }
    }
}

fn check_envelope(envelope: &Envelope) -> Result<(), Rejection> {
    if envelope.sealed.is_empty() || envelope.sealed.len() > ENVELOPE_MAX_BYTES {
        return Err(malformed("an envelope is empty or too long"));
    }
    Ok(())
}

fn check_ids(request: &RequestContext, ids: impl Iterator<Item = ObjectId>) -> Result<(), Rejection> {
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for id in ids {
        seen.insert(id);
        count += 1;
    }
    if request.id.sequence == 0 {
        return Err(malformed("request sequences count from 1"));
    }
    if count == 0 || count > OBJECTS_PER_REQUEST_MAX || seen.len() != count {
        return Err(malformed("a request names one object or two different ones"));
    }
    Ok(())
}
