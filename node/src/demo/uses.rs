//! Every key of the story used at a member: signatures verified outside, ciphertexts and MACs of one token checked by
//! another.

use super::group::Group;
use super::outside;
use super::report::Report;
use super::story::STEP_LIMIT;
use crate::caller::Ask;
use crate::command::Keyring;
use crate::command::uses::{Job, decryption, encryption, public_half};
use crate::exit::{Exit, Problem};
use crate::mechanism::{Named, Purpose};
use keyraft_engine::domain::{KeyAlgorithm, MemberId, ObjectClass, ObjectId};
use keyraft_engine::wire::{ObjectRow, UseKind};
use zeroize::Zeroizing;

const DATA: &[u8] = b"what keyraft demo signs";

/// A key that the story has made: the secret or private half, and the public one.
#[derive(Clone)]
pub(super) struct Made {
    pub label: String,
    pub algorithm: KeyAlgorithm,
    pub rows: Vec<ObjectRow>,
}

impl Made {
    /// Its objects.
    pub(super) fn ids(&self) -> Vec<ObjectId> {
        self.rows.iter().map(|row| row.object).collect()
    }

    /// The half that is used inside a token.
    fn inner(&self) -> Result<ObjectId, Problem> {
        let inner = self.rows.iter().find(|row| row.class != ObjectClass::PublicKey);
        inner
            .map(|row| row.object)
            .ok_or_else(|| Problem::new(Exit::Unexpected, "a key came without its half", ""))
    }
}

/// Uses every key at one member, asked through its own socket. What another token can check, the next running
/// member's token makes.
pub(super) async fn all_at(
    group: &Group,
    report: &mut Report,
    keys: &[Made],
    members: &[MemberId],
    at: usize,
) -> Result<(), Problem> {
    let ask: &dyn Ask = &group.members[at].socket;
    let count = members.len();
    let next = (1..count).map(|step| (at + step) % count).find(|other| group.members[*other].runs());
    let (here, there) = (members[at], members[next.unwrap_or(at)]);
    for key in keys {
        match key.algorithm {
            KeyAlgorithm::Aes { .. } => cipher(ask, report, key, there, here).await?,
            KeyAlgorithm::GenericSecret { .. } => mac(ask, report, key, there, here).await?,
            _ => sign(ask, report, key, here).await?,
        }
    }
    Ok(())
}

/// One use of a key over the demo's data.
pub(super) fn job(key: &Made, kind: UseKind, named: Named, at: Option<MemberId>) -> Result<Job, Problem> {
    let mechanism = named.mechanism(&[], &[]);
    let data = Zeroizing::new(named.prepare(DATA.to_vec()));
    Ok(Job { object: key.inner()?, kind, mechanism, data, at })
}

async fn sign(ask: &dyn Ask, report: &mut Report, key: &Made, at: MemberId) -> Result<(), Problem> {
    let named = Named::default_for(Some(key.algorithm), Purpose::Sign)?;
    let (signature, by) = job(key, UseKind::Sign, named, Some(at))?.run(ask, STEP_LIMIT).await?;
    let public = public_half(&key.rows).ok_or_else(|| {
        Problem::new(Exit::Unexpected, format!("'{}' came without a public key", key.label), "")
    })?;
    // What a creation answers may be short of attributes; the object itself is not.
    let public = Keyring::new(ask, STEP_LIMIT).show(public.object).await?;
    let good = outside::verifies(&public, named, DATA, &signature)
        && !outside::verifies(&public, named, b"something else", &signature);
    let name = named.name();
    report
        .check(by == at && good, format!("signed by {by} with '{}' ({name}), verified outside", key.label))?;
    report.verified += 1;
    Ok(())
}

async fn cipher(
    ask: &dyn Ask,
    report: &mut Report,
    key: &Made,
    from: MemberId,
    to: MemberId,
) -> Result<(), Problem> {
    let data = Zeroizing::new(DATA.to_vec());
    let (job, mut sealed) = encryption(key.inner()?, Named::AesGcm, data, b"", Some(from))?;
    let (ciphertext, maker) = job.run(ask, STEP_LIMIT).await?;
    sealed.extend_from_slice(&ciphertext);
    let job = decryption(key.inner()?, Named::AesGcm, &sealed, b"", Some(to))?;
    let (clear, by) = job.run(ask, STEP_LIMIT).await?;
    let good = maker == from && by == to && clear.as_slice() == DATA && !ciphertext.starts_with(DATA);
    report.check(good, format!("encrypted by {from} with '{}', decrypted by {to}", key.label))
}

async fn mac(
    ask: &dyn Ask,
    report: &mut Report,
    key: &Made,
    from: MemberId,
    to: MemberId,
) -> Result<(), Problem> {
    let (mac, maker) = job(key, UseKind::Sign, Named::HmacSha256, Some(from))?.run(ask, STEP_LIMIT).await?;
    let verify = job(key, UseKind::Verify(mac.to_vec()), Named::HmacSha256, Some(to))?;
    let verified = verify.run(ask, STEP_LIMIT).await;
    let good = maker == from && verified.is_ok_and(|(_, by)| by == to);
    report.check(good, format!("MAC by {from} with '{}', verified by {to}", key.label))
}
