//! The SMK and the member's own RSA keys. No token stores an extractable SMK, and no process sees its value.

use super::carry;
use super::der::PublicKey;
use super::door::{Handle, Session};
use super::tag::Tag;
use super::template::{self, Template};
use super::vault::{MemberKey, Passing, Smk, Vault};
use super::{NewSmk, SmkPresence, TokenError, TokenVerdict};
use crate::domain::{AttributeType as A, Generation, KeyAlgorithm, Mechanism, ObjectClass, Parameters};

const SMK: KeyAlgorithm = KeyAlgorithm::Aes { bits: 256 };
const MEMBER_KEY: KeyAlgorithm = KeyAlgorithm::Rsa { bits: 3072 };

/// RSA-OAEP with SHA-1, the one form that every token takes; OAEP's security does not rest on collisions.
pub(super) fn oaep() -> Mechanism {
    const RSA_PKCS_OAEP: u64 = 0x09;
    const SHA_1: u64 = 0x220;
    const MGF1_SHA1: u64 = 0x01;
    let parameters = Parameters::Oaep { hash: SHA_1, mgf: MGF1_SHA1, label: Vec::new() };
    Mechanism { number: RSA_PKCS_OAEP, parameters }
}

/// What one of the two RSA keys is for. One key with both uses would let C_Decrypt return the SMK.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Unwraps SMKs, nothing else.
    Transport,
    /// Decrypts what locks the data folder, nothing else.
    Unlock,
}

impl Vault {
    /// The member's key for a purpose; made if the token has none.
    pub fn member_key(&self, purpose: Purpose) -> Result<MemberKey, TokenError> {
        let _exclusive = self.gate.write();
        let (known, found) = {
            let index = self.ledger.index.lock();
            let (known, tag) = match purpose {
                Purpose::Transport => (index.transport.clone(), Tag::Transport),
                Purpose::Unlock => (index.unlock.clone(), Tag::Unlock),
            };
            (known, index.found.get(&tag).and_then(|handles| handles.first().copied()))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let handle = match found {
            Some(handle) => handle,
            None => self.make_member_key(purpose)?,
        };
        let key = MemberKey { handle, public: carry::read_public(&self.keeper, handle, MEMBER_KEY)? };
        let mut index = self.ledger.index.lock();
        match purpose {
            Purpose::Transport => index.transport = Some(key.clone()),
            Purpose::Unlock => index.unlock = Some(key.clone()),
        }
        Ok(key)
    }

    fn make_member_key(&self, purpose: Purpose) -> Result<Handle, TokenError> {
        let (tag, usage) = match purpose {
            Purpose::Transport => (Tag::Transport, A::UNWRAP),
            Purpose::Unlock => (Tag::Unlock, A::DECRYPT),
        };
        let public = Template::default()
            .number(A::CLASS, ObjectClass::PublicKey.number())
            .number(A::KEY_TYPE, MEMBER_KEY.key_type())
            .flag(A::TOKEN, false)
            .number(A::MODULUS_BITS, 3072)
            .bytes(A::PUBLIC_EXPONENT, &[1, 0, 1]);
        let mut private = template::key(MEMBER_KEY, true, true, false)
            .usages(ObjectClass::PrivateKey, |u| u == usage)
            .bytes(A::ID, tag.text().as_bytes())
            .bytes(A::LABEL, tag.text().as_bytes());
        if purpose == Purpose::Transport {
            private = self.abilities.confine(private, &[(A::SENSITIVE, true), (A::EXTRACTABLE, false)]);
        }
        let private = self.abilities.seal(private);
        let mechanism = Mechanism::plain(MEMBER_KEY.generator());
        let (public, private) = self.keeper.generate_pair(&mechanism, &public, &private)?;
        self.keeper.destroy(public)?;
        self.lock_down(private, true, false)?;
        Ok(private)
    }

    /// The SMK as it must lie in a token, or as a session copy no weaker than that.
    fn smk_template(&self, tag: Option<Tag>) -> Template {
        let mut template = template::key(SMK, tag.is_some(), true, false)
            .usages(ObjectClass::SecretKey, |usage| usage == A::WRAP || usage == A::UNWRAP);
        template = self.abilities.confine(template, &[(A::SENSITIVE, true)]);
        if let Some(tag) = tag {
            template = template.bytes(A::ID, tag.text().as_bytes()).bytes(A::LABEL, tag.text().as_bytes());
        }
        self.abilities.seal(template)
    }

    /// Makes the SMK of a new generation.
    pub fn create_smk(
        &self,
        session: &Session,
        generation: Generation,
        recovery: Option<&[u8]>,
    ) -> Result<NewSmk, TokenError> {
        let transport = self.member_key(Purpose::Transport)?;
        let tag = Tag::Smk(self.group()?, generation);
        let recovery = recovery.map(parse_rsa).transpose()?;
        let _exclusive = self.gate.write();
        self.must_be_free(generation)?;
        let mut passing = Passing::new(session);
        let extractable = template::key(SMK, false, true, true)
            .usages(ObjectClass::SecretKey, |_| false)
            .number(A::VALUE_LEN, 32);
        let generator = Mechanism::plain(SMK.generator());
        let passing_smk = passing.keep(session.generate(&generator, &extractable)?);
        let wrapped = self.wrap_to(session, passing_smk, &transport.public)?;
        let recovery = recovery.map(|public| self.wrap_to(session, passing_smk, &public)).transpose()?;
        let token = self.keeper.unwrap(&oaep(), transport.handle, &wrapped, &self.smk_template(Some(tag)))?;
        let kept = self.lock_down(token, true, false).and_then(|()| {
            let self_blob = session.wrap(&self.abilities.rfc5649, token, passing_smk)?;
            self.keep_smk(generation, token, &self_blob)?;
            Ok(self_blob)
        });
        match kept {
            Ok(self_blob) => Ok(NewSmk { self_blob, recovery }),
            Err(error) => {
                self.destroy(token)?;
                Err(error)
            }
        }
    }

    /// Says if the token holds the SMK whose own blob this is.
    pub fn has_smk(&self, generation: Generation, self_blob: &[u8]) -> Result<SmkPresence, TokenError> {
        let group = self.group()?;
        let _exclusive = self.gate.write();
        let (known, candidates, others) = {
            let index = self.ledger.index.lock();
            let known = index.smks.get(&generation).map(|smk| smk.token);
            let candidates = index.found.get(&Tag::Smk(group, generation)).cloned().unwrap_or_default();
            let others = index.found.keys().any(|tag| matches!(tag, Tag::Smk(g, _) if *g != group));
            (known, candidates, others)
        };
        if let Some(handle) = known {
            let proved = self.proves(handle, self_blob)?;
            return Ok(if proved { SmkPresence::Present } else { SmkPresence::Foreign });
        }
        let mut proved = Vec::new();
        for handle in &candidates {
            if self.proves(*handle, self_blob)? {
                proved.push(*handle);
            }
        }
        match proved.split_first() {
            Some((first, rest)) => {
                self.keep_smk(generation, *first, self_blob)?;
                // A kill during a token write can leave whole extra copies of the same key.
                for extra in rest {
                    self.destroy(*extra)?;
                }
                Ok(SmkPresence::Present)
            }
            None if candidates.is_empty() && !others => Ok(SmkPresence::Absent),
            None => Ok(SmkPresence::Foreign),
        }
    }

    /// Wraps the SMK to another member's transport key. It exists as an extractable session object, good for
    /// nothing else, only inside this call.
    pub fn deliver_smk(
        &self,
        session: &Session,
        generation: Generation,
        self_blob: &[u8],
        recipient: &[u8],
    ) -> Result<Vec<u8>, TokenError> {
        let recipient = parse_rsa(recipient)?;
        let smk = self.smk(generation)?;
        let _exclusive = self.gate.write();
        let mut passing = Passing::new(session);
        let template = template::key(SMK, false, true, true).usages(ObjectClass::SecretKey, |_| false);
        let copy = passing.keep(session.unwrap(&self.abilities.rfc5649, smk, self_blob, &template)?);
        self.wrap_to(session, copy, &recipient)
    }

    /// Takes a delivered SMK in, proves it by its own blob, and destroys it if it is another.
    pub fn accept_smk(
        &self,
        generation: Generation,
        wrapped: &[u8],
        self_blob: &[u8],
    ) -> Result<(), TokenError> {
        match self.has_smk(generation, self_blob)? {
            SmkPresence::Present => return Ok(()),
            SmkPresence::Foreign if self.holds_generation(generation)? => {
                return Err(TokenError::ForeignSmk(generation));
            }
            SmkPresence::Foreign | SmkPresence::Absent => {}
        }
        let transport = self.member_key(Purpose::Transport)?;
        let tag = Tag::Smk(self.group()?, generation);
        let _exclusive = self.gate.write();
        let token = self.keeper.unwrap(&oaep(), transport.handle, wrapped, &self.smk_template(Some(tag)))?;
        let proved = self.lock_down(token, true, false).and_then(|()| {
            if self.proves(token, self_blob)? {
                self.keep_smk(generation, token, self_blob)
            } else {
                Err(TokenError::Differs("the delivered SMK does not open its own blob"))
            }
        });
        if proved.is_err() {
            self.destroy(token)?;
        }
        proved
    }

    fn holds_generation(&self, generation: Generation) -> Result<bool, TokenError> {
        let group = self.group()?;
        let index = self.ledger.index.lock();
        Ok(index.smks.contains_key(&generation) || index.found.contains_key(&Tag::Smk(group, generation)))
    }

    fn must_be_free(&self, generation: Generation) -> Result<(), TokenError> {
        if self.holds_generation(generation)? { Err(TokenError::ForeignSmk(generation)) } else { Ok(()) }
    }

    /// Notes an SMK, with a session copy for use: unwrapped from its own blob, so no weaker than the token object.
    fn keep_smk(&self, generation: Generation, token: Handle, self_blob: &[u8]) -> Result<(), TokenError> {
        let copy = self.keeper.unwrap(&self.abilities.rfc5649, token, self_blob, &self.smk_template(None));
        let working = match copy {
            Ok(copy) => self.lock_down(copy, true, false).ok().map(|()| copy),
            Err(fault) => return Err(fault.into()),
        };
        let group = self.group()?;
        let mut index = self.ledger.index.lock();
        index.found.remove(&Tag::Smk(group, generation));
        index.smks.insert(generation, Smk { token, working });
        Ok(())
    }

    /// RFC 5649 has integrity: only the right SMK opens its blob. An error means that the token is broken.
    fn proves(&self, smk: Handle, self_blob: &[u8]) -> Result<bool, TokenError> {
        let template = self.smk_template(None);
        match self.keeper.unwrap(&self.abilities.rfc5649, smk, self_blob, &template) {
            Ok(copy) => Ok(self.keeper.destroy(copy).map(|()| true)?),
            Err(fault) => match self.diagnose(fault.into()) {
                error if error.verdict() == TokenVerdict::Failed => Err(error),
                _ => Ok(false),
            },
        }
    }

    fn wrap_to(&self, session: &Session, key: Handle, public: &PublicKey) -> Result<Vec<u8>, TokenError> {
        let mut passing = Passing::new(session);
        let recipient = passing.keep(carry::create_public(session, public, &[A::WRAP])?);
        Ok(session.wrap(&oaep(), recipient, key)?)
    }
}

/// Reads an RSA SubjectPublicKeyInfo of at least 2048 bits.
fn parse_rsa(spki: &[u8]) -> Result<PublicKey, TokenError> {
    match PublicKey::parse(spki) {
        Some(key @ PublicKey::Rsa(..)) => match &key {
            PublicKey::Rsa(modulus, _) if modulus.len() >= 256 => Ok(key),
            _ => Err(TokenError::BadInput("an RSA key of less than 2048 bits")),
        },
        _ => Err(TokenError::BadInput("no RSA public key (SubjectPublicKeyInfo, DER)")),
    }
}
