//! How a member joins a group, and how one with a new token gets the group's keys again.

use super::home::{self, Identity, LockedGeneration};
use super::{MemberConfig, StartError, card, open_token, random};
use crate::aside;
use crate::cloning::{ExpectDelivery, Invitation, JoinerFacts, JoinerHello, Nonce, Secrets, invite_proof};
use crate::domain::{Fingerprint, GroupId, Lineage, MemberId};
use crate::limits;
use crate::token::{MemberKeys, Token};
use crate::transport::{self, Links, Peers, Pinned, Sponsors, pki};
use crate::wire::{
    Delivery, FailureKind, Hello, JoinAnswer, JoinRequest, Lane, MemberAnswer, MemberRequest, PROTOCOL,
    Request, Response,
};
use std::sync::Arc;

/// What came of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReport {
    /// The group.
    pub group: GroupId,
    /// This member.
    pub member: MemberId,
}

/// Joins a group by an invitation: identity and keys are on disk and in the token when this returns; `serve` does
/// the rest.
pub async fn join(config: &MemberConfig, invitation: Invitation) -> Result<JoinReport, StartError> {
    join_through(config, invitation, &Pinned).await
}

/// [`join`] by another way to the invitation's addresses.
///
/// # Errors
/// As there.
pub async fn join_through(
    config: &MemberConfig,
    invitation: Invitation,
    sponsors: &dyn Sponsors,
) -> Result<JoinReport, StartError> {
    home::refuse_occupied(&config.folder)?;
    home::prepare(&config.folder)?;
    let token = open_token(config.token.clone()).await?;
    let joined = join_with(config, &invitation, sponsors, &token).await;
    token.close().await;
    settled_at(config, &joined?)
}

fn settled_at(config: &MemberConfig, identity: &Identity) -> Result<JoinReport, StartError> {
    home::save(&config.folder, identity)?;
    Ok(JoinReport { group: identity.group, member: identity.member })
}

async fn join_with(
    config: &MemberConfig,
    invitation: &Invitation,
    sponsors: &dyn Sponsors,
    token: &Token,
) -> Result<Identity, StartError> {
    token.bind(invitation.group);
    let keys = token.member_keys().await?;
    let tls_key = pki::new_tls_key()?;
    let signing_request = pki::signing_request(&tls_key)?;
    let tls = pki::key_fingerprint(&tls_key)?;
    let mut reasons = Vec::new();
    for address in &invitation.addresses {
        let facts = JoinerFacts { group: invitation.group, transport_key: keys.transport_key.clone(), tls };
        let (expect, hello) = hello(config, facts).await?;
        let open = JoinRequest::Open {
            invite: Some(invitation.id),
            proof: invite_proof(&invitation.secret, &hello).to_vec(),
            card: Box::new(card(config, tls, &keys, token)),
            signing_request: signing_request.clone(),
            hello,
        };
        let admitted = async {
            let client = sponsors.connect(address, invitation.authority).await?;
            let challenge = challenge(client.call(open, limits::OVERALL).await?)?;
            let (expect, proof) = expect.receive(&challenge)?;
            let delivery = delivery(client.call(JoinRequest::Prove { proof }, limits::OVERALL).await?)?;
            Ok::<_, StartError>((expect, delivery))
        };
        match admitted.await {
            Ok((expect, delivery)) => {
                return settle_in(token, expect, delivery, Some(tls_key), None).await;
            }
            // Another member may be the primary; a refusal by the primary is final.
            Err(StartError::Group(failure)) if !matches!(failure.kind, FailureKind::NotPrimary { .. }) => {
                return Err(StartError::Group(failure));
            }
            Err(StartError::Handshake(error)) => return Err(StartError::Handshake(error)),
            Err(error) => reasons.push(format!("{address}: {error}")),
        }
    }
    Err(StartError::NobodyThere(reasons.join("; ")))
}

/// Gives a member with a new (or emptied) token the group's keys again, over the member's own TLS identity. The member
/// must not be running.
pub async fn recover(config: &MemberConfig) -> Result<JoinReport, StartError> {
    let old = home::load(&config.folder)?;
    let token = open_token(config.token.clone()).await?;
    let recovered = recover_with(config, &old, &token).await;
    token.close().await;
    settled_at(config, &recovered?)
}

async fn recover_with(config: &MemberConfig, old: &Identity, token: &Token) -> Result<Identity, StartError> {
    token.bind(old.group);
    let keys = token.member_keys().await?;
    let tls = pki::fingerprint(&old.certificate)?;
    let links = recovery_links(old);
    let mut reasons = Vec::new();
    for row in old.roster.0.iter().filter(|row| row.member != old.member) {
        match readmit(config, old, token, &keys, tls, &links, row.member).await {
            Ok((expect, delivery)) => {
                return settle_in(token, expect, delivery, None, Some(old)).await;
            }
            Err(error) => reasons.push(format!("{}: {error}", row.address)),
        }
    }
    Err(StartError::NobodyThere(reasons.join("; ")))
}

fn recovery_links(old: &Identity) -> Arc<Links> {
    let hello = Hello {
        protocol: PROTOCOL,
        group: Some(old.group),
        lineage: old.lineage,
        member: Some(old.member),
        lane: Lane::Calls,
    };
    let identity = transport::Identity {
        certificate: old.certificate.clone(),
        key: old.tls_key.clone(),
        authority: old.authority.clone(),
    };
    Arc::new(Links::new(identity, hello, Arc::new(super::engine::Seeds(old.roster.clone()))))
}

async fn readmit(
    config: &MemberConfig,
    old: &Identity,
    token: &Token,
    keys: &MemberKeys,
    tls: Fingerprint,
    links: &Links,
    to: MemberId,
) -> Result<(ExpectDelivery, Delivery), StartError> {
    let facts = JoinerFacts { group: old.group, transport_key: keys.transport_key.clone(), tls };
    let (expect, hello) = hello(config, facts).await?;
    let card = Box::new(card(config, tls, keys, token));
    let open =
        JoinRequest::Open { invite: None, proof: Vec::new(), card, signing_request: Vec::new(), hello };
    let challenge = challenge(ask(links, to, open).await?)?;
    let (expect, proof) = expect.receive(&challenge)?;
    let delivery = delivery(ask(links, to, JoinRequest::Prove { proof }).await?)?;
    Ok((expect, delivery))
}

async fn ask(links: &Links, to: MemberId, request: JoinRequest) -> Result<JoinAnswer, StartError> {
    let request = Request::Member(MemberRequest::Readmit(Box::new(request)));
    match links.call(to, Lane::Calls, request, limits::OVERALL).await {
        Ok(Response::Member(MemberAnswer::Readmit(answer))) => Ok(*answer),
        Ok(Response::Failed(failure)) => Err(failure.into()),
        Ok(_) => Err(out_of_order().into()),
        Err(error) => Err(StartError::NobodyThere(error.to_string())),
    }
}

async fn hello(
    config: &MemberConfig,
    facts: JoinerFacts,
) -> Result<(crate::cloning::ExpectChallenge, Vec<u8>), StartError> {
    let (domain, group) = (config.domain.clone(), facts.group);
    let key = aside::start(move || domain.key(group)).await.expect("stretching does not panic");
    Ok(JoinerHello::begin(key, facts, Nonce(random()?))?)
}

fn challenge(answer: JoinAnswer) -> Result<Vec<u8>, StartError> {
    match answer {
        JoinAnswer::Challenge { challenge } => Ok(challenge),
        JoinAnswer::Admitted(_) => Err(out_of_order().into()),
    }
}

fn delivery(answer: JoinAnswer) -> Result<Delivery, StartError> {
    match answer {
        JoinAnswer::Admitted(delivery) => Ok(*delivery),
        JoinAnswer::Challenge { .. } => Err(out_of_order().into()),
    }
}

fn out_of_order() -> crate::wire::Failure {
    crate::wire::Failure::new(FailureKind::Internal, "the member answered another question")
}

/// Opens the delivery, gives the token its SMKs, locks the envelope keys to it.
async fn settle_in(
    token: &Token,
    expect: ExpectDelivery,
    delivery: Delivery,
    tls_key: Option<zeroize::Zeroizing<Vec<u8>>>,
    old: Option<&Identity>,
) -> Result<Identity, StartError> {
    let Secrets { generations } = expect.open(&delivery.sealed, delivery.group, delivery.member)?;
    let mut locked = Vec::with_capacity(generations.len());
    for secrets in generations {
        token.accept_smk(secrets.generation, &secrets.wrapped_smk, &secrets.self_blob).await?;
        locked.push(LockedGeneration {
            generation: secrets.generation,
            self_blob: secrets.self_blob,
            locked_envelope_key: token.lock(secrets.envelope_key.expose()).await?,
        });
    }
    let lineage: Lineage = delivery.lineage;
    let (certificate, tls_key) = match (old, tls_key) {
        (Some(old), _) => (old.certificate.clone(), old.tls_key.clone()),
        (None, Some(key)) => (delivery.certificate, key),
        (None, None) => return Err(out_of_order().into()),
    };
    Ok(Identity {
        group: delivery.group,
        lineage,
        member: delivery.member,
        certificate,
        authority: delivery.authority,
        tls_key,
        roster: delivery.roster,
        generations: locked,
    })
}
