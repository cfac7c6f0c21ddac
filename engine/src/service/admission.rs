//! Admission: the primary verifies an invitation and a cloning domain, commits the newcomer, and delivers the SMK.
//! The handshake itself is the cloning room's; here its steps meet the log, the token and the authority.

use super::{Core, consensus_failure, token_failure};
use crate::aside;
use crate::cloning::{
    DomainKey, ExpectHello, ExpectProof, GenerationSecrets, JoinerFacts, MemberFacts, Nonce, Proven, Secrets,
    verify_invite_proof,
};
use crate::domain::{ApplicationName, Generation, MemberCard, MemberId};
use crate::limits;
use crate::state::{Authority, Command, InviteId, LeaveReason, Outcome};
use crate::telemetry::Event;
use crate::transport::{ConnectionId, pki, random_bytes};
use crate::wire::{Answer, Delivery, Failure, FailureKind, JoinAnswer, JoinRequest, Roster, RosterRow};
use parking_lot::Mutex;
use std::collections::HashMap;
use tracing::{info, warn};
use zeroize::Zeroizing;

/// A join between its two steps.
struct Pending {
    expect: ExpectProof,
    entry: Entry,
}

/// Who asks, and by what right.
enum Entry {
    /// A newcomer with an invitation.
    Newcomer { invite: InviteId, card: Box<MemberCard>, signing_request: Vec<u8> },
    /// A member with a new token.
    Member { member: MemberId, card: Box<MemberCard> },
}

/// Joins under way, one a connection, at most `limits::JOINS_MAX`.
#[derive(Default)]
pub struct Joins {
    pending: Mutex<HashMap<ConnectionId, Pending>>,
    domain: Mutex<Option<DomainKey>>,
}

impl Joins {
    /// Forgets the join of a connection that closed.
    pub fn forget(&self, connection: ConnectionId) {
        self.pending.lock().remove(&connection);
    }

    fn keep(&self, connection: ConnectionId, pending: Pending) -> Result<(), Failure> {
        let mut all = self.pending.lock();
        if all.len() >= limits::JOINS_MAX && !all.contains_key(&connection) {
            return Err(Failure::new(FailureKind::Busy, "too many members join at once: try again"));
        }
        all.insert(connection, pending);
        Ok(())
    }
}

impl Core {
    /// One step of a newcomer's join.
    pub(super) async fn join(
        &self,
        connection: ConnectionId,
        request: JoinRequest,
    ) -> Result<JoinAnswer, Failure> {
        self.only_primary()?;
        match request {
            JoinRequest::Open { invite: Some(invite), proof, card, signing_request, hello } => {
                self.verify_invite(invite, &hello, &proof)?;
                if pki::request_fingerprint(&signing_request).ok() != Some(card.tls) {
                    let text = "the signing request is not for the card's TLS key";
                    return Err(Failure::new(FailureKind::Forbidden, text));
                }
                let entry = Entry::Newcomer { invite, card: card.clone(), signing_request };
                self.challenge(connection, &card, &hello, entry).await
            }
            JoinRequest::Open { invite: None, .. } => Err(Failure::new(
                FailureKind::Forbidden,
                "joining needs an invitation: 'keyraft invite' makes one",
            )),
            JoinRequest::Prove { proof } => self.prove(connection, &proof).await,
        }
    }

    /// One step of a member that asks for the SMK again, for a new token.
    pub(super) async fn readmit(
        &self,
        connection: ConnectionId,
        from: MemberId,
        request: JoinRequest,
    ) -> Result<JoinAnswer, Failure> {
        self.only_primary()?;
        match request {
            JoinRequest::Open { card, hello, .. } => {
                let known = self.agreed.read(|state| state.member(from).map(|row| row.card.tls));
                if known != Some(card.tls) {
                    return Err(Failure::new(
                        FailureKind::Forbidden,
                        "the card names another TLS key than the roster",
                    ));
                }
                let entry = Entry::Member { member: from, card: card.clone() };
                self.challenge(connection, &card, &hello, entry).await
            }
            JoinRequest::Prove { proof } => self.prove(connection, &proof).await,
        }
    }

    fn only_primary(&self) -> Result<(), Failure> {
        let leadership = *self.consensus.leadership().borrow();
        if leadership.leader == Some(self.me) && leadership.ready {
            return Ok(());
        }
        let primary = leadership.leader.filter(|leader| *leader != self.me);
        let at = primary.and_then(|p| self.agreed.read(|s| s.member(p).map(|row| row.card.address.clone())));
        let text = match at {
            Some(address) => format!("{} is not the primary: ask {address}", self.named(self.me)),
            None => "the group has no primary now: try again".to_string(),
        };
        Err(Failure::new(FailureKind::NotPrimary { primary }, text))
    }

    fn verify_invite(&self, invite: InviteId, hello: &[u8], proof: &[u8]) -> Result<(), Failure> {
        let now = self.clock.unix();
        let hash = self.agreed.read(|s| s.invite(invite).filter(|i| i.expires > now).map(|i| i.secret_hash));
        if hash.is_some_and(|hash| verify_invite_proof(&hash, hello, proof)) {
            return Ok(());
        }
        warn!(code = Event::InvitationRefused.code(), %invite, "a join was refused: its invitation is unknown, used, expired or not proved");
        let text = "the invitation is unknown, used or expired: ask for a new one with 'keyraft invite'";
        Err(Failure::new(FailureKind::Forbidden, text))
    }

    async fn challenge(
        &self,
        connection: ConnectionId,
        card: &MemberCard,
        hello: &[u8],
        entry: Entry,
    ) -> Result<JoinAnswer, Failure> {
        let facts =
            JoinerFacts { group: self.group, transport_key: card.transport_key.clone(), tls: card.tls };
        let ours = self.agreed.read(|s| s.member(self.me).map(|row| row.card.transport_key.clone()));
        let transport_key =
            ours.ok_or_else(|| Failure::new(FailureKind::NotInSync, "this member is not in the roster"))?;
        let member = MemberFacts { group: self.group, member: self.me, transport_key };
        let nonce = Nonce(random_bytes().map_err(|e| Failure::new(FailureKind::Internal, e))?);
        let domain = self.domain_key().await;
        let step = ExpectHello::new(domain, member).and_then(|expect| expect.receive(hello, &facts, nonce));
        let (expect, challenge) = step.map_err(|error| handshake_failure(&card.name, &error))?;
        self.joins.keep(connection, Pending { expect, entry })?;
        Ok(JoinAnswer::Challenge { challenge })
    }

    /// The domain's secret, stretched once.
    async fn domain_key(&self) -> DomainKey {
        if let Some(key) = self.joins.domain.lock().clone() {
            return key;
        }
        let (domain, group) = (self.domain.clone(), self.group);
        let key = aside::start(move || domain.key(group)).await.expect("stretching does not panic");
        self.joins.domain.lock().insert(key).clone()
    }

    async fn prove(&self, connection: ConnectionId, proof: &[u8]) -> Result<JoinAnswer, Failure> {
        let pending = self.joins.pending.lock().remove(&connection);
        let Some(Pending { expect, entry }) = pending else {
            return Err(Failure::new(FailureKind::BadRequest, "the join was not opened on this connection"));
        };
        let name = match &entry {
            Entry::Newcomer { card, .. } | Entry::Member { card, .. } => card.name.clone(),
        };
        let proven = expect.receive(proof).map_err(|error| handshake_failure(&name, &error))?;
        match entry {
            Entry::Newcomer { invite, card, signing_request } => {
                let admit = Command::Admit { invite, at: self.clock.unix(), card };
                let member = match self.consensus.propose(admit).await.map_err(|e| consensus_failure(&e))?.1 {
                    Outcome::Admitted(member) => member,
                    Outcome::Rejected(rejection) => return Err(super::change::rejection_failure(&rejection)),
                    other => return Err(super::change::unexpected(&other)),
                };
                info!(code = Event::MemberAdmitted.code(), %member, name, "admitted a member");
                self.deliver(proven, member, &signing_request).await
            }
            Entry::Member { member, card } => {
                // What its old token held counts no more: it enters the in-sync set anew.
                let reason = LeaveReason::TokenFailed("its token was replaced".into());
                let leave = Command::LeaveInSync { member, reason };
                self.consensus.propose(leave).await.map_err(|e| consensus_failure(&e))?;
                self.announce(member, *card).await?;
                // Its operator has asked for it where the member lives.
                self.settle_simple(Command::Recover { member }).await?;
                info!(code = Event::TokenReplaced.code(), %member, name, "a member has a new token: delivering the SMK to it");
                self.deliver(proven, member, &[]).await
            }
        }
    }

    async fn deliver(&self, proven: Proven, member: MemberId, request: &[u8]) -> Result<JoinAnswer, Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, e);
        let smks: Vec<(Generation, Vec<u8>)> =
            self.agreed.read(|s| s.smks().map(|smk| (smk.generation, smk.self_blob.clone())).collect());
        let mut generations = Vec::with_capacity(smks.len());
        for (generation, self_blob) in smks {
            let recipient = &proven.joiner().transport_key;
            let wrapped = self.token.deliver_smk(generation, &self_blob, recipient).await;
            let wrapped_smk = wrapped.map_err(|e| token_failure(self.me, &e))?;
            let envelope_key = self
                .keys
                .get(generation)
                .cloned()
                .ok_or_else(|| internal(&format!("no envelope key of {generation}")))?;
            generations.push(GenerationSecrets { generation, wrapped_smk, envelope_key, self_blob });
        }
        let nonce = random_bytes().map_err(|e| internal(&e))?;
        let sealed = proven.seal(&Secrets { generations }, member, nonce).map_err(|e| internal(&e))?;
        let group = self.agreed.read(|s| s.group().cloned()).ok_or_else(|| internal(&"no group"))?;
        let certificate = match request {
            [] => Vec::new(),
            request => self.certify(&group.authority, request, member)?,
        };
        let roster = self.agreed.read(|s| {
            let row = |(member, row): (MemberId, &crate::state::Member)| RosterRow {
                member,
                address: row.card.address.clone(),
                tls: row.card.tls,
            };
            Roster(s.members().map(row).collect())
        });
        Ok(JoinAnswer::Admitted(Box::new(Delivery {
            group: group.id,
            lineage: group.lineage,
            label: group.label,
            member,
            certificate,
            authority: group.authority.certificate,
            roster,
            sealed,
        })))
    }

    /// Signs a newcomer's certificate with the group's authority.
    fn certify(&self, authority: &Authority, request: &[u8], member: MemberId) -> Result<Vec<u8>, Failure> {
        let clear = self.authority_key(authority)?;
        pki::sign(&authority.certificate, &clear, request, member, self.group)
            .map_err(|e| Failure::new(FailureKind::BadRequest, e))
    }

    /// Lets an application in, and signs its certificate. Runs at the primary. Asked again for the same key it signs
    /// again: the first answer may have been lost.
    pub(super) async fn add_client(&self, name: ApplicationName, request: &[u8]) -> Result<Answer, Failure> {
        let tls = pki::request_fingerprint(request).map_err(|e| Failure::new(FailureKind::BadRequest, e))?;
        let group = self.agreed.read(|state| state.group().cloned());
        let authority = group
            .ok_or_else(|| Failure::new(FailureKind::NotInSync, "this member knows no group yet"))?
            .authority;
        let clear = self.authority_key(&authority)?;
        let certificate = pki::sign_application(&authority.certificate, &clear, request, &name, self.group)
            .map_err(|e| Failure::new(FailureKind::BadRequest, e))?;
        drop(clear);
        self.settle_simple(Command::AddClient { name: name.clone(), tls }).await?;
        info!(code = Event::ClientCertified.code(), %name, "a client has a certificate");
        Ok(Answer::Certified { certificate, authority: authority.certificate })
    }

    /// The applications that have a certificate. Behind a barrier.
    pub(super) async fn clients(&self) -> Result<Answer, Failure> {
        self.patient_barrier().await?;
        Ok(Answer::Clients(
            self.agreed.read(|s| s.applications().all().map(|(name, tls)| (name.clone(), tls)).collect()),
        ))
    }

    fn authority_key(&self, authority: &Authority) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, e);
        let key = self.keys.get(Generation(1)).ok_or_else(|| internal(&"no envelope key of g1"))?;
        let context = authority_context(self.group);
        crate::envelope::open_bytes(key, &context, &authority.sealed_key).map_err(|e| internal(&e))
    }

    /// Makes the roster show what this member is now; says if it does.
    pub async fn announce_self(&self, card: &MemberCard) -> bool {
        let known = self.agreed.read(|state| state.member(self.me).map(|row| row.card == *card));
        match known {
            Some(true) => return true,
            Some(false) => {}
            None => return false,
        }
        let leader = self.consensus.leadership().borrow().leader;
        let told = match leader {
            Some(leader) if leader == self.me => self.announce(self.me, card.clone()).await,
            Some(leader) => {
                let request = crate::wire::MemberRequest::Announce(Box::new(card.clone()));
                self.call_member(leader, request, limits::ATTEMPT).await.map(|_| ())
            }
            None => return false,
        };
        if let Err(failure) = told {
            tracing::debug!(%failure, "the primary did not note what this member is now; trying again");
        }
        false
    }

    /// Notes what a member says it is now, if it differs from the roster.
    pub(super) async fn announce(&self, member: MemberId, card: MemberCard) -> Result<(), Failure> {
        let known = self.agreed.read(|state| state.member(member).map(|row| row.card.clone()));
        match known {
            None => Err(super::change::rejection_failure(&crate::state::Rejection::NoSuchMember(member))),
            Some(known) if known.tls != card.tls => Err(Failure::new(
                FailureKind::Forbidden,
                "a member's TLS key does not change: it joins as a new one",
            )),
            Some(known) if known == card => Ok(()),
            Some(_) => {
                let command = Command::Announce { member, card: Box::new(card) };
                self.settle_simple(command).await.map(|_| ())
            }
        }
    }
}

/// What the authority's sealed key is bound to.
pub fn authority_context(group: crate::domain::GroupId) -> Vec<u8> {
    [b"keyraft authority key ".as_slice(), &group.0].concat()
}

fn handshake_failure(name: &str, error: &crate::cloning::HandshakeError) -> Failure {
    warn!(code = Event::HandshakeRefused.code(), name, %error, "a join was refused in its handshake; no SMK was moved");
    Failure::new(FailureKind::Forbidden, error)
}
