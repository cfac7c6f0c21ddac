//! The end of what was changed on one member's own slot: `synchronize` undoes it or makes it the group's.

use super::create::Source;
use super::slot::Birth;
use super::{Core, token_failure};
use crate::aside;
use crate::direct::{DirectError, List, Made, session_name};
use crate::domain::{ClientId, ContentKey, MemberId, ObjectId, RequestId};
use crate::envelope;
use crate::limits;
use crate::state::DirectChanges;
use crate::telemetry::Event;
use crate::wire::{
    Adoption, Answer, ClientRequest, Deletion, Failure, FailureKind, MemberAnswer, MemberRequest,
};
use std::sync::Arc;
use tracing::{info, warn};

impl Core {
    /// Undoes or adopts what was changed on members' own slots, on all of them. Gives what could not be ended.
    pub(super) async fn end_direct_everywhere(&self) -> Vec<(MemberId, String)> {
        let members: Vec<MemberId> = self.agreed.read(|state| state.members().map(|(id, _)| id).collect());
        let ends = members.into_iter().map(async |member| {
            self.end_direct_of(member).await.into_iter().map(|finding| (member, finding)).collect::<Vec<_>>()
        });
        futures::future::join_all(ends).await.concat()
    }

    async fn end_direct_of(&self, member: MemberId) -> Vec<String> {
        if member == self.me {
            return self.end_direct().await;
        }
        let why = match self.call_member(member, MemberRequest::EndDirect, limits::GENERATE_ATTEMPT).await {
            Ok(MemberAnswer::DirectEnded(findings)) => return findings,
            Ok(_) => "it answered another question".to_string(),
            Err(failure) => failure.message,
        };
        let member = self.named(member);
        vec![format!(
            "{member}: if anything was changed on its own slot, ending that is still under way, or waits for the next \
             time: {why}"
        )]
    }

    /// The same on this member.
    pub(super) async fn end_direct(&self) -> Vec<String> {
        let _turn = self.direct_turn.lock().await;
        let list = self.direct.list();
        let Some(summary) = list.summary() else { return Vec::new() };
        let me = self.named(self.me);
        // The option as everybody sees it now.
        let ended = match self.barrier().await {
            Err(failure) => Err(failure),
            Ok(_) => match self.agreed.read(|state| state.options().direct_changes) {
                DirectChanges::Undo => self.undo(&list).await,
                DirectChanges::Adopt => Ok(self.adopt_all(&list).await),
            },
        };
        match ended {
            Ok(findings) => {
                info!(
                    code = Event::DirectChangesEnded.code(),
                    changes = summary,
                    left = findings.len(),
                    "the changes of this member alone are ended"
                );
                findings.into_iter().map(|finding| format!("{me}: {finding}")).collect()
            }
            Err(failure) => vec![format!("{me}: {summary}, and stays so: {failure}")],
        }
    }

    /// Puts another list in the place of the one that it was made from; durable when it returns.
    pub(super) async fn save_direct(&self, before: &Arc<List>, list: List) -> Result<(), Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, e);
        let (direct, before) = (self.direct.clone(), before.clone());
        let saved = aside::start(move || direct.save(&before, list)).await;
        saved.map_err(|e| internal(&e))?.map_err(|error| match error {
            DirectError::Superseded => Failure::new(FailureKind::Busy, error),
            error => internal(&error),
        })
    }

    /// Makes what is left of an object of this member alone go.
    pub(super) async fn forget_direct(&self, content: ContentKey) {
        let name = session_name(content);
        self.sessions.lock().forget(name);
        if let Err(error) = self.token.drop_session(name).await {
            // Nobody can name it any more, and it goes with the process.
            warn!(code = Event::DirectCopyStays.code(), object = %content.object, %error, "a copy of a deleted object stays in the token");
        }
    }

    async fn undo(&self, old: &Arc<List>) -> Result<Vec<String>, Failure> {
        let mut list = List::clone(old);
        old.objects().for_each(|made| list.hand_over(made.content.object));
        old.deleted().for_each(|object| list.restore(object));
        self.save_direct(old, list).await?;
        for made in old.objects() {
            self.forget_direct(made.content).await;
        }
        self.compare_soon();
        let deadline = self.clock.now() + limits::OVERALL;
        loop {
            let missing: Vec<ObjectId> = old.deleted().filter(|object| self.lacks(*object)).collect();
            if missing.is_empty() {
                return Ok(Vec::new());
            }
            if self.clock.now() >= deadline {
                return Ok(missing
                    .iter()
                    .map(|id| format!("object {id} is not imported again yet"))
                    .collect());
            }
            tokio::time::sleep(limits::RETRY_PAUSE).await;
        }
    }

    /// True if the token should hold an object and does not.
    fn lacks(&self, object: ObjectId) -> bool {
        let meant = self.agreed.read(|state| state.object(object).is_some_and(|row| row.is_held_by(self.me)));
        meant && self.token.held_version(object).is_none()
    }

    async fn adopt_all(&self, old: &List) -> Vec<String> {
        let mut findings = Vec::new();
        for made in old.objects() {
            if let Err(failure) = self.hand_to_group(made).await {
                findings
                    .push(format!("object {} is still this member's alone: {failure}", made.content.object));
            }
        }
        for object in old.deleted() {
            if let Err(failure) = self.delete_in_group(object).await {
                findings.push(format!("object {object} is still deleted on this member alone: {failure}"));
            }
        }
        findings
    }

    /// A request of this member's own.
    fn own_request(&self) -> Result<RequestId, Failure> {
        let nonce = crate::transport::random_bytes().map_err(|e| Failure::new(FailureKind::Internal, e))?;
        let client =
            ClientId { born: self.agreed.read(|state| state.applied()), nonce: u64::from_be_bytes(nonce) };
        Ok(RequestId { client, sequence: 1 })
    }

    async fn hand_to_group(&self, made: &Made) -> Result<(), Failure> {
        let object = made.content.object;
        let request = match made.adoption {
            Some(request) => request,
            None => {
                // Noted first: whatever happens now, the group gets the object once.
                let request = self.own_request()?;
                let before = self.direct.list();
                let mut list = List::clone(&before);
                list.begin_adoption(object, request);
                self.save_direct(&before, list).await?;
                request
            }
        };
        let adoption = Adoption { request, content: made.content, envelope: made.envelope.clone() };
        if let Err(failure) = self.at_primary(ClientRequest::Adopt(Box::new(adoption))).await {
            // The group says no under this id for ever: the next time asks anew.
            if failure.kind == FailureKind::Refused {
                let before = self.direct.list();
                let mut list = List::clone(&before);
                list.end_adoption(object);
                self.save_direct(&before, list).await?;
            }
            return Err(failure);
        }
        let before = self.direct.list();
        let mut list = List::clone(&before);
        list.hand_over(object);
        self.save_direct(&before, list).await?;
        self.forget_direct(made.content).await;
        Ok(())
    }

    async fn delete_in_group(&self, object: ObjectId) -> Result<(), Failure> {
        let request = self.own_request()?;
        let deletion = Deletion { request, watermark: 0, objects: vec![object] };
        match self.at_primary(ClientRequest::Delete(deletion)).await {
            Ok(_) => {}
            Err(failure) if failure.kind == FailureKind::NotFound => {}
            Err(failure) => return Err(failure),
        }
        let before = self.direct.list();
        let mut list = List::clone(&before);
        list.restore(object);
        self.save_direct(&before, list).await
    }

    /// Makes an object of one member alone the group's: the same key, a new id. Runs at the primary.
    pub(super) async fn adopt(&self, adoption: Adoption) -> Result<Answer, Failure> {
        let name = adoption.content;
        let context = self.context(adoption.request, 0, &name)?;
        let bad = |text: String| Failure::new(FailureKind::BadRequest, text);
        let key = self.keys.get(name.generation).ok_or_else(|| {
            Failure::new(
                FailureKind::NotInSync,
                format!("{} has no envelope key of {}", self.me, name.generation),
            )
        })?;
        let content = envelope::open(key, self.group, name, &adoption.envelope)
            .map_err(|error| bad(format!("the object is none of this group's: {error}")))?;
        let generation = content.wrapped.is_some().then_some(name.generation);
        let birth = Birth::Record { generation, content: Box::new(content) };
        self.put(context, Source::Slot(&birth)).await?;
        Ok(Answer::Done)
    }

    /// Makes this member's copies of an object of the group go, and keeps them away.
    pub(super) async fn drop_directly(&self, object: ObjectId) -> Result<(), Failure> {
        // The reconciler takes an import back that is under way, and ends this should its caller go.
        self.compare_soon();
        let dropped = self.token.drop_object(object).await;
        dropped.map_err(|error| token_failure(self.me, &error))
    }
}
