//! New objects, by all of PKCS#11's ways: agreed ones by the log, session objects sealed for the module to keep.

use super::super::create::Source;
use super::super::{Core, token_failure};
use super::{Halt, Named};
use crate::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, EnvelopeContent, Generation,
    KeyAlgorithm, Mechanism, ObjectClass, ObjectId, ckk,
};
use crate::limits;
use crate::token::{Originated, UsedKey};
use crate::virtual_slot::policy::{Asker, Need, may_see_private, may_touch, may_use};
use crate::virtual_slot::template::{self, Brought, ComingPlan, History, KeyPlan, PairPlan};
use crate::virtual_slot::{Traits, ckr, visible};
use crate::wire::{Change, Failure, FailureKind, Keep, KeyRef, Made, MakeBy, SessionName, SlotAnswer};
use zeroize::Zeroizing;

/// How new objects come into being, once their templates are understood.
pub(in crate::service) enum Birth {
    /// A token generates a secret.
    Key { plan: KeyPlan, mechanism: u64 },
    /// A token generates a pair.
    Pair { plan: PairPlan, mechanism: u64 },
    /// A token takes in a value.
    Value { plan: KeyPlan, value: Zeroizing<Vec<u8>> },
    /// No token takes part: a plain object, or a copy under the same wrapping.
    Record { generation: Option<Generation>, content: Box<EnvelopeContent> },
    /// A token unwraps it by a key of the application's.
    Unwrapped { plan: ComingPlan, mechanism: Mechanism, unwrapping: UsedKey, wrapped: Vec<u8> },
    /// A token derives it from a key of the application's.
    Derived { plan: ComingPlan, mechanism: Mechanism, base: UsedKey, history: History },
}

impl Birth {
    /// The kind that tokens must carry, where it is known before.
    pub(in crate::service) fn carried(&self) -> Option<KeyAlgorithm> {
        match self {
            Self::Key { plan, .. } | Self::Value { plan, .. } => Some(plan.algorithm),
            Self::Pair { plan, .. } => Some(plan.algorithm),
            Self::Record { .. } | Self::Unwrapped { .. } | Self::Derived { .. } => None,
        }
    }

    /// Objects that it makes.
    pub(in crate::service) fn count(&self) -> u64 {
        if matches!(self, Self::Pair { .. }) { 2 } else { 1 }
    }

    /// True if one of them is private.
    fn is_private(&self) -> bool {
        let private = |attributes: &Attributes| attributes.get(&A::PRIVATE) == Some(&V::Bool(true));
        match self {
            Self::Key { plan, .. } | Self::Value { plan, .. } => private(&plan.attributes),
            Self::Pair { plan, .. } => private(&plan.public) || private(&plan.private),
            Self::Record { content, .. } => private(&content.record.attributes),
            Self::Unwrapped { plan, .. } | Self::Derived { plan, .. } => private(&plan.attributes),
        }
    }
}

/// Gives a new object's record what belongs to where it lives.
pub(in crate::service) fn name(record: &mut AttributeRecord, token: bool, unique: String) {
    record.attributes.insert(A::TOKEN, V::Bool(token));
    record.attributes.insert(A::UNIQUE_ID, V::Bytes(unique.into_bytes()));
}

impl Core {
    pub(super) async fn slot_make(
        &self,
        change: Change,
        keep: Keep,
        by: &MakeBy,
        asker: Asker,
    ) -> Result<SlotAnswer, Halt> {
        if keep == Keep::Session {
            self.may_serve()?;
            let birth = self.birth(by, asker).await?;
            let made = self.make_session(&birth).await?;
            self.fenced()?;
            self.source_still_there(by)?;
            return Ok(SlotAnswer::Made(made));
        }
        let context = self.context(change.request, change.watermark, &unsealed(by))?;
        let ids = match self.repeated(&context)? {
            Some(state) => self.created(self.wait_settled(change.request, state).await?)?,
            None => {
                let birth = self.birth(by, asker).await?;
                self.put(context, Source::Slot(&birth)).await?
            }
        };
        let made = ids.into_iter().map(|id| self.made(id)).collect::<Result<_, _>>()?;
        Ok(SlotAnswer::Made(made))
    }

    /// Refuses what came from an agreed object that was deleted while the token worked: the answer would come after the
    /// deletion's.
    fn source_still_there(&self, by: &MakeBy) -> Result<(), Failure> {
        let (key, code) = match by {
            MakeBy::Copy { of, .. } => (of, ckr::OBJECT_HANDLE_INVALID),
            MakeBy::Unwrap { unwrapping, .. } => (unwrapping, ckr::UNWRAPPING_KEY_HANDLE_INVALID),
            MakeBy::Derive { base, .. } => (base, ckr::KEY_HANDLE_INVALID),
            MakeBy::Generate { .. } | MakeBy::GeneratePair { .. } | MakeBy::Create { .. } => return Ok(()),
        };
        match key {
            KeyRef::Object(object) if self.settled(*object).is_none() => {
                Err(Failure::pkcs11(code, format!("there is no object {object} any more")))
            }
            KeyRef::Object(_) | KeyRef::Session { .. } => Ok(()),
        }
    }

    /// An object that was made, though somebody may have destroyed it since: whoever made it has its handle, and is told
    /// of the rest when the handle is used.
    fn made(&self, object: ObjectId) -> Result<Made, Failure> {
        let record = self.settled(object).map(|name| self.record(name)).transpose()?;
        Ok(Made { key: KeyRef::Object(object), record: record.as_ref().map(visible) })
    }

    /// Lets objects come into being that are not agreed, and says under which generation.
    pub(super) async fn born(&self, birth: &Birth) -> Result<(Generation, Vec<EnvelopeContent>), Failure> {
        let newest = self.agreed.read(|state| state.generation()).ok_or_else(|| {
            Failure::new(FailureKind::NotInSync, format!("{} does not know the group's SMK yet", self.me))
        })?;
        match birth {
            Birth::Record { generation, content } => {
                Ok((generation.unwrap_or(newest), vec![EnvelopeContent::clone(content)]))
            }
            _ => {
                let born = tokio::time::timeout(limits::GENERATE_ATTEMPT, self.bear(birth, newest));
                let text = format!("the token of {} did not answer in time", self.me);
                Ok((newest, born.await.map_err(|_| Failure::new(FailureKind::TokenFailed, text))??))
            }
        }
    }

    /// Makes session objects: nothing of them stays here.
    async fn make_session(&self, birth: &Birth) -> Result<Vec<Made>, Failure> {
        self.excluded(birth.carried())?;
        let (generation, contents) = self.born(birth).await?;
        // What is unwrapped or derived shows its kind only now: every member must be able to take it in.
        for content in contents.iter().filter(|content| content.record.class.is_resident()) {
            self.excluded(content.record.algorithm)?;
        }
        let seal = |mut content: EnvelopeContent| {
            let unique = self.new_session_name()?;
            name(&mut content.record, false, data_encoding::HEXLOWER.encode(&unique.0));
            let record = visible(&content.record);
            Ok(Made { key: self.seal_session(unique, generation, content)?, record: Some(record) })
        };
        contents.into_iter().map(seal).collect()
    }

    pub(super) fn new_session_name(&self) -> Result<SessionName, Failure> {
        let bytes = crate::transport::random_bytes().map_err(|e| Failure::new(FailureKind::Internal, e))?;
        Ok(SessionName(bytes))
    }

    /// Understands what is asked, and refuses what may not be.
    pub(super) async fn birth(&self, by: &MakeBy, asker: Asker) -> Result<Birth, Halt> {
        let templates: Vec<&Attributes> = match by {
            MakeBy::GeneratePair { public, private, .. } => vec![public, private],
            MakeBy::Generate { template, .. }
            | MakeBy::Create { template }
            | MakeBy::Copy { template, .. }
            | MakeBy::Unwrap { template, .. }
            | MakeBy::Derive { template, .. } => vec![template],
        };
        templates.into_iter().try_for_each(|template| template::check_trusted(template, asker.role))?;
        let birth = match by {
            MakeBy::Generate { mechanism, template } => {
                let plan = template::generate(mechanism.number, template)?;
                Birth::Key { plan, mechanism: mechanism.number }
            }
            MakeBy::GeneratePair { mechanism, public, private } => {
                let plan = template::generate_pair(mechanism.number, public, private)?;
                Birth::Pair { plan, mechanism: mechanism.number }
            }
            MakeBy::Create { template } => match template::create(template)? {
                Brought::Key(plan, value) => Birth::Value { plan, value },
                Brought::Plain(record) => {
                    let content = Box::new(EnvelopeContent { record, wrapped: None });
                    Birth::Record { generation: None, content }
                }
            },
            MakeBy::Copy { of, template } => {
                let original = self.opened(of, ckr::OBJECT_HANDLE_INVALID).await?;
                may_touch(&Traits::of(&original.content.record), A::COPYABLE, asker.role)?;
                copy(&original, template)?
            }
            MakeBy::Unwrap { mechanism, unwrapping, wrapped, template } => {
                let by = self.opened(unwrapping, ckr::UNWRAPPING_KEY_HANDLE_INVALID).await?;
                let record = &by.content.record;
                may_use(&Traits::of(record), Need::Unwrap, mechanism.number, asker)?;
                let demanded = record.attributes.get(&A::UNWRAP_TEMPLATE);
                let plan = template::coming(template, demanded, None)?;
                template::check_trusted(&plan.attributes, asker.role)?;
                Birth::Unwrapped {
                    plan,
                    mechanism: mechanism.clone(),
                    unwrapping: by.used(),
                    wrapped: wrapped.clone(),
                }
            }
            MakeBy::Derive { mechanism, base, template } => {
                let base = self.opened(base, ckr::KEY_HANDLE_INVALID).await?;
                let record = &base.content.record;
                may_use(&Traits::of(record), Need::Derive, mechanism.number, asker)?;
                let demanded = record.attributes.get(&A::DERIVE_TEMPLATE);
                let default = Some((ObjectClass::SecretKey, ckk::GENERIC_SECRET));
                let history = History::Derived {
                    always_sensitive: record.flag(A::ALWAYS_SENSITIVE),
                    never_extractable: record.flag(A::NEVER_EXTRACTABLE),
                };
                let plan = template::coming(template, demanded, default)?;
                template::check_trusted(&plan.attributes, asker.role)?;
                Birth::Derived { plan, mechanism: mechanism.clone(), base: base.used(), history }
            }
        };
        may_see_private(birth.is_private(), asker.role)?;
        Ok(birth)
    }

    /// Lets new objects come into being, unnamed: the public key before the private one.
    pub(in crate::service) async fn bear(
        &self,
        birth: &Birth,
        generation: Generation,
    ) -> Result<Vec<EnvelopeContent>, Failure> {
        let failed = |error| token_failure(self.me, &error);
        let sending = self.sending(generation);
        let key = |plan: KeyPlan, made: Originated, history| EnvelopeContent {
            record: template::key_record(plan, &made.facts, history),
            wrapped: made.wrapped,
        };
        match birth {
            Birth::Key { plan, mechanism } => {
                let made = self.token.originate(sending, plan.algorithm, &plan.attributes).await;
                Ok(vec![key(plan.clone(), made.map_err(failed)?, History::Generated(*mechanism))])
            }
            Birth::Pair { plan, mechanism } => {
                let PairPlan { algorithm, public, private } = plan.clone();
                let made = self.token.originate(sending, algorithm, &private).await.map_err(failed)?;
                let history = History::Generated(*mechanism);
                let public = template::public_record(algorithm, public, &made.facts, history);
                let private = key(KeyPlan { algorithm, attributes: private }, made, history);
                Ok(vec![EnvelopeContent { record: public, wrapped: None }, private])
            }
            Birth::Value { plan, value } => {
                let made = self.token.originate_value(sending, plan.algorithm, &plan.attributes, value).await;
                Ok(vec![key(plan.clone(), made.map_err(failed)?, History::Imported)])
            }
            Birth::Record { generation: wrapped_under, content } => {
                if wrapped_under.is_some_and(|wrapped_under| wrapped_under != generation) {
                    let text = "the original is wrapped under an SMK that is no longer current";
                    return Err(Failure::new(FailureKind::Refused, text));
                }
                Ok(vec![EnvelopeContent::clone(content)])
            }
            Birth::Unwrapped { plan, mechanism, unwrapping, wrapped } => {
                let ComingPlan { class, key_type, attributes, .. } = plan;
                let made = self.token.originate_unwrapped(
                    sending,
                    mechanism,
                    unwrapping.clone(),
                    wrapped,
                    *class,
                    *key_type,
                    attributes,
                );
                let (algorithm, made) = made.await.map_err(failed)?;
                let plan = KeyPlan { algorithm, attributes: attributes.clone() };
                Ok(vec![key(plan, made, History::Imported)])
            }
            Birth::Derived { plan, mechanism, base, history } => {
                let ComingPlan { key_type, value_len, attributes, .. } = plan;
                let made = self.token.originate_derived(
                    sending,
                    mechanism,
                    base.clone(),
                    *key_type,
                    *value_len,
                    attributes,
                );
                let (algorithm, made) = made.await.map_err(failed)?;
                let plan = KeyPlan { algorithm, attributes: attributes.clone() };
                Ok(vec![key(plan, made, *history)])
            }
        }
    }
}

fn copy(original: &Named, template: &Attributes) -> Result<Birth, Failure> {
    let record = template::copy(&original.content.record, template)?;
    let wrapped = original.content.wrapped.clone();
    let generation = wrapped.is_some().then_some(original.generation);
    Ok(Birth::Record { generation, content: Box::new(EnvelopeContent { record, wrapped }) })
}

/// What a repeated request has in common with the first: session objects by name, whether their sealed form comes
/// along or not.
fn unsealed(by: &MakeBy) -> MakeBy {
    let mut by = by.clone();
    match &mut by {
        MakeBy::Copy { of: key, .. }
        | MakeBy::Unwrap { unwrapping: key, .. }
        | MakeBy::Derive { base: key, .. } => {
            if let KeyRef::Session { sealed, .. } = key {
                *sealed = None;
            }
        }
        MakeBy::Generate { .. } | MakeBy::GeneratePair { .. } | MakeBy::Create { .. } => {}
    }
    by
}
