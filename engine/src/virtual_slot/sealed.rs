//! Session objects: sealed under the envelope key, so that any member opens what the module keeps, and nobody else.

use super::traits::Traits;
use crate::codec;
use crate::domain::{AttributeRecord, Envelope, EnvelopeContent, Generation, GroupId, ObjectClass};
use crate::envelope::{self, EnvelopeError, EnvelopeKey, EnvelopeKeys};
use crate::limits;
use crate::wire::{Sealed, SessionName};
use std::collections::HashMap;
use std::sync::Arc;

/// First bytes of a session object's associated data; group and name follow.
const LABEL: &[u8] = b"keyraft session object";

fn context(group: GroupId, name: SessionName) -> Vec<u8> {
    [LABEL, &group.0, &name.0].concat()
}

/// Seals a session object. `nonce` must be fresh and random.
pub fn seal(
    (generation, key): (Generation, &EnvelopeKey),
    group: GroupId,
    name: SessionName,
    content: &EnvelopeContent,
    nonce: [u8; 12],
) -> Result<Sealed, EnvelopeError> {
    let clear = codec::encode_secret(content)?;
    let envelope = envelope::seal_bytes(key, &context(group, name), &clear, nonce)?;
    Ok(Sealed { generation, envelope })
}

/// Opens a session object. Fails unless it was sealed in this group under this name.
pub fn open(
    keys: &EnvelopeKeys,
    group: GroupId,
    name: SessionName,
    sealed: &Sealed,
) -> Result<EnvelopeContent, EnvelopeError> {
    let key = keys.get(sealed.generation).ok_or(EnvelopeError::DoesNotOpen)?;
    let envelope: &Envelope = &sealed.envelope;
    let clear = envelope::open_bytes(key, &context(group, name), envelope)?;
    Ok(codec::decode(&clear, limits::ENVELOPE_MAX_BYTES)?)
}

/// A session object that a member has opened.
#[derive(Debug)]
pub struct Opened {
    /// The generation that it was wrapped under.
    pub generation: Generation,
    /// What it is.
    pub content: Arc<EnvelopeContent>,
    /// What a use needs of it.
    pub traits: Traits,
    /// Of a public key: what a token needs to use it.
    pub public: Option<Arc<AttributeRecord>>,
}

impl Opened {
    /// Of an object's content, and the generation that it is wrapped under.
    pub fn new(generation: Generation, content: EnvelopeContent) -> Self {
        let traits = Traits::of(&content.record);
        let is_public = content.record.class == ObjectClass::PublicKey;
        let public = is_public.then(|| Arc::new(content.record.clone()));
        Self { generation, content: Arc::new(content), traits, public }
    }
}

/// The session objects that a member has opened lately, at most [`limits::SESSION_OBJECTS_MAX`], the longest unused
/// going first.
#[derive(Default)]
pub struct Sessions {
    opened: HashMap<SessionName, (u64, Arc<Opened>)>,
    clock: u64,
}

impl Sessions {
    /// An object that was opened.
    pub fn get(&mut self, name: SessionName) -> Option<Arc<Opened>> {
        self.clock += 1;
        let (used, opened) = self.opened.get_mut(&name)?;
        *used = self.clock;
        Some(opened.clone())
    }

    /// Keeps an opened object.
    pub fn keep(
        &mut self,
        name: SessionName,
        generation: Generation,
        content: EnvelopeContent,
    ) -> Arc<Opened> {
        let opened = Arc::new(Opened::new(generation, content));
        self.admit(name, opened.clone());
        opened
    }

    /// The same for one that is opened already.
    pub fn admit(&mut self, name: SessionName, opened: Arc<Opened>) {
        if self.opened.len() >= limits::SESSION_OBJECTS_MAX && !self.opened.contains_key(&name) {
            let oldest = self.opened.iter().min_by_key(|(_, (used, _))| *used).map(|(name, _)| *name);
            oldest.map(|oldest| self.opened.remove(&oldest));
        }
        self.clock += 1;
        self.opened.insert(name, (self.clock, opened));
    }

    /// Forgets an object that has gone.
    pub fn forget(&mut self, name: SessionName) {
        self.opened.remove(&name);
    }
}
