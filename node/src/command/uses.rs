//! Sign, verify, encrypt, decrypt.

use super::keyring::{Keyring, Want};
use super::streams;
use crate::caller::{Ask, repeat, status, unexpected};
use crate::cli::{Format, KeyCipher, KeySign, KeyUse, KeyVerify};
use crate::exit::{Exit, Problem};
use crate::mechanism::{self, Named, Purpose};
use crate::output::View;
use crate::text::{self, Encoding};
use aws_lc_rs::rand;
use keyraft_engine::domain::{Mechanism, MemberId, ObjectClass, ObjectId};
use keyraft_engine::wire::{Answer, ClientRequest, ObjectRow, SecretBytes, UseKind, UseRequest};
use serde_json::json;
use std::time::Duration;
use zeroize::Zeroizing;

/// One use of a key, as it is asked for.
pub(crate) struct Job {
    pub object: ObjectId,
    pub kind: UseKind,
    pub mechanism: Mechanism,
    pub data: Zeroizing<Vec<u8>>,
    pub at: Option<MemberId>,
}

impl Job {
    /// Does it; gives the output and who made it.
    pub async fn run(
        &self,
        ask: &dyn Ask,
        limit: Duration,
    ) -> Result<(Zeroizing<Vec<u8>>, MemberId), Problem> {
        let make = || {
            ClientRequest::Use(UseRequest {
                object: self.object,
                kind: self.kind.clone(),
                mechanism: self.mechanism.clone(),
                data: SecretBytes(self.data.clone()),
                at: self.at,
            })
        };
        match repeat(ask, limit, make).await? {
            Answer::Used { output, by } => Ok((output.0, by)),
            other => Err(unexpected(&other)),
        }
    }
}

/// Refuses a member that the group does not have, before anything waits for it.
async fn known(ask: &dyn Ask, limit: Duration, at: Option<MemberId>) -> Result<(), Problem> {
    let Some(member) = at else { return Ok(()) };
    if status(ask, limit).await?.members.iter().any(|row| row.member == member) {
        return Ok(());
    }
    Err(Problem::new(
        Exit::NotFound,
        format!("there is no member {member}"),
        "'keyraft member list' shows them",
    ))
}

fn choose(with: &KeyUse, row: &ObjectRow, purpose: Purpose) -> Result<Named, Problem> {
    match with.mechanism {
        Some(named) => named.must_be(purpose),
        None => Named::default_for(row.algorithm, purpose),
    }
}

pub(super) async fn sign(ask: &dyn Ask, limit: Duration, sign: &KeySign) -> Result<Option<View>, Problem> {
    known(ask, limit, sign.with.at).await?;
    let row = Keyring::new(ask, limit).find(&sign.with.key, Want::Private).await?;
    let named = choose(&sign.with, &row, Purpose::Sign)?;
    let data = streams::read(sign.streams.input.as_deref())?;
    let job = Job {
        object: row.object,
        kind: UseKind::Sign,
        mechanism: named.mechanism(&[], &[]),
        data: Zeroizing::new(named.prepare(data.to_vec())),
        at: sign.with.at,
    };
    let (raw, _) = job.run(ask, limit).await?;
    let signature = match (named.is_ecdsa(), sign.format) {
        (true, Format::Der) => text::ecdsa_to_der(&raw),
        _ => raw.to_vec(),
    };
    let bytes = sign.encoding.encode(&signature);
    streams::write(sign.streams.out.as_deref(), &bytes, sign.encoding != Encoding::Raw)?;
    Ok(None)
}

pub(super) async fn verify(
    ask: &dyn Ask,
    limit: Duration,
    verify: &KeyVerify,
) -> Result<Option<View>, Problem> {
    known(ask, limit, verify.with.at).await?;
    let row = Keyring::new(ask, limit).find(&verify.with.key, Want::Public).await?;
    let named = choose(&verify.with, &row, Purpose::Sign)?;
    let given = streams::read(Some(&verify.signature))?;
    let mut signature = verify.encoding.decode(&given, "the signature")?;
    if named.is_ecdsa() && verify.format == Format::Der {
        signature = mechanism::signature_from_der(&signature, row.algorithm)?;
    }
    let data = streams::read(verify.input.as_deref())?;
    let job = Job {
        object: row.object,
        kind: UseKind::Verify(signature),
        mechanism: named.mechanism(&[], &[]),
        data: Zeroizing::new(named.prepare(data.to_vec())),
        at: verify.with.at,
    };
    match job.run(ask, limit).await {
        Ok((_, by)) => {
            let json = json!({"good": true, "by": by.to_string(), "mechanism": named.name()});
            Ok(Some(View::line(format!("the signature is good ({}, {by})", named.name()), json)))
        }
        Err(problem) if problem.exit == Exit::BadSignature => Err(Problem::new(
            Exit::BadSignature,
            "the signature is not good",
            "check data, key and --mechanism",
        )),
        Err(problem) => Err(problem),
    }
}

fn random(count: usize) -> Result<Vec<u8>, Problem> {
    let mut bytes = vec![0; count];
    rand::fill(&mut bytes)
        .map_err(|_| Problem::new(Exit::Unexpected, "the machine gives no random bytes", "try again"))?;
    Ok(bytes)
}

/// An encryption ready to be asked for, and the nonce or IV that goes before its ciphertext.
pub(crate) fn encryption(
    object: ObjectId,
    named: Named,
    data: Zeroizing<Vec<u8>>,
    aad: &[u8],
    at: Option<MemberId>,
) -> Result<(Job, Vec<u8>), Problem> {
    let prefix = random(named.prefix_bytes())?;
    let mechanism = named.mechanism(&prefix, aad);
    Ok((Job { object, kind: UseKind::Encrypt, mechanism, data, at }, prefix))
}

/// A decryption of what [`encryption`] and its prefix made.
pub(crate) fn decryption(
    object: ObjectId,
    named: Named,
    sealed: &[u8],
    aad: &[u8],
    at: Option<MemberId>,
) -> Result<Job, Problem> {
    let (prefix, ciphertext) = sealed.split_at_checked(named.prefix_bytes()).ok_or_else(|| {
        Problem::usage(
            "the ciphertext is too short",
            "give what 'keyraft key encrypt' made, in its --encoding",
        )
    })?;
    let mechanism = named.mechanism(prefix, aad);
    Ok(Job { object, kind: UseKind::Decrypt, mechanism, data: Zeroizing::new(ciphertext.to_vec()), at })
}

pub(super) async fn encrypt(
    ask: &dyn Ask,
    limit: Duration,
    cipher: &KeyCipher,
) -> Result<Option<View>, Problem> {
    known(ask, limit, cipher.with.at).await?;
    let row = Keyring::new(ask, limit).find(&cipher.with.key, Want::Public).await?;
    let named = choose(&cipher.with, &row, Purpose::Encrypt)?;
    refuse_aad(named, cipher)?;
    let data = streams::read(cipher.streams.input.as_deref())?;
    let (job, mut sealed) = encryption(row.object, named, data, cipher.aad.as_bytes(), cipher.with.at)?;
    sealed.extend_from_slice(&job.run(ask, limit).await?.0);
    let bytes = cipher.encoding.encode(&sealed);
    streams::write(cipher.streams.out.as_deref(), &bytes, cipher.encoding != Encoding::Raw)?;
    Ok(None)
}

pub(super) async fn decrypt(
    ask: &dyn Ask,
    limit: Duration,
    cipher: &KeyCipher,
) -> Result<Option<View>, Problem> {
    known(ask, limit, cipher.with.at).await?;
    let row = Keyring::new(ask, limit).find(&cipher.with.key, Want::Private).await?;
    let named = choose(&cipher.with, &row, Purpose::Encrypt)?;
    refuse_aad(named, cipher)?;
    let given = streams::read(cipher.streams.input.as_deref())?;
    let sealed = cipher.encoding.decode(&given, "the ciphertext")?;
    let job = decryption(row.object, named, &sealed, cipher.aad.as_bytes(), cipher.with.at)?;
    let (clear, _) = job.run(ask, limit).await?;
    streams::write(cipher.streams.out.as_deref(), &clear, false)?;
    Ok(None)
}

fn refuse_aad(named: Named, cipher: &KeyCipher) -> Result<(), Problem> {
    if named == Named::AesGcm || cipher.aad.is_empty() {
        return Ok(());
    }
    Err(Problem::usage(
        format!("{} has no additional data", named.name()),
        "leave --aad away, or use aes-gcm",
    ))
}

/// A public key's row, if there is one of that class.
pub(crate) fn public_half(rows: &[ObjectRow]) -> Option<&ObjectRow> {
    rows.iter().find(|row| row.class == ObjectClass::PublicKey)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::Parameters;

    #[test]
    fn the_nonce_stands_before_the_ciphertext() {
        let data = || Zeroizing::new(b"clear".to_vec());
        let (job, prefix) = encryption(ObjectId(1), Named::AesGcm, data(), b"a", None).expect("is made");
        assert_eq!(prefix.len(), 12);
        let Parameters::Gcm { iv, aad, tag_bits } = &job.mechanism.parameters else { panic!("is GCM") };
        assert_eq!((iv, aad.as_slice(), *tag_bits), (&prefix, &b"a"[..], 128));
        let sealed = [&prefix[..], b"cipher"].concat();
        let back = decryption(ObjectId(1), Named::AesGcm, &sealed, b"a", None).expect("is made");
        assert_eq!(back.mechanism, job.mechanism);
        assert_eq!(*back.data, b"cipher");
        assert!(decryption(ObjectId(1), Named::AesGcm, b"short", b"", None).is_err());
        let (job, prefix) = encryption(ObjectId(1), Named::RsaOaep, data(), b"", None).expect("is made");
        assert!(prefix.is_empty() && *job.data == b"clear");
    }
}
