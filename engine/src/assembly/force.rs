//! `force-quorum`: a new history with one survivor, when the majority is lost for good. Nothing here happens by itself.

use super::engine::Seeds;
use super::home::{self, Identity};
use super::{MemberConfig, StartError};
use crate::consensus::types::TypeConfig;
use crate::consensus::{self, Remains, store::Store};
use crate::domain::{GroupId, Lineage, MemberId};
use crate::limits;
use crate::state::{Phase, Standing};
use crate::transport::{self, Links, Peers};
use crate::wire::{Hello, Lane, MemberRequest, PROTOCOL, Request, Roster, RosterRow};
use futures::future::join_all;
use openraft::storage::RaftLogStorage;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a survivor has, what it loses, and what speaks against it. For a person to read first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The group.
    pub group: GroupId,
    /// The survivor.
    pub member: MemberId,
    /// The history that ends.
    pub lineage: Lineage,
    /// The history that begins.
    pub next: Lineage,
    /// Keys and other objects that stay.
    pub objects: usize,
    /// The members that lose their place: id, name, address, and whether one answers there now.
    pub lost: Vec<(MemberId, String, String, bool)>,
    /// What is lost, or may be, and what to know; one sentence each.
    pub warnings: Vec<String>,
}

/// The survivor's store, read, and what it says.
pub struct Survivor<L> {
    identity: Identity,
    remains: Remains,
    survey: Survey,
    log: L,
    store: Arc<dyn Store>,
}

impl<L: RaftLogStorage<TypeConfig>> Survivor<L> {
    /// Reads the store of a member that is not running, and asks the others whether they live. Changes nothing.
    /// Refused while those who answer are a quorum.
    pub async fn examine(
        config: &MemberConfig,
        mut log: L,
        store: Arc<dyn Store>,
    ) -> Result<Self, StartError> {
        let identity = home::load(&config.folder)?;
        let remains = consensus::remains(&mut log, &store).await?;
        let state = &remains.state;
        let Some(lineage) = state.group().map(|group| group.lineage) else {
            return Err(StartError::NothingLeft);
        };
        let me = identity.member;
        if state.member(me).is_none() {
            return Err(StartError::NothingLeft);
        }
        let others: Vec<RosterRow> = state
            .members()
            .filter(|(id, _)| *id != me)
            .map(|(member, row)| RosterRow { member, address: row.card.address.clone(), tls: row.card.tls })
            .collect();
        // Of two histories, it is one that was begun and cut off: nothing speaks against finishing it.
        let fresh = identity.lineage == lineage;
        if fresh && remains.voters == BTreeSet::from([me]) {
            return Err(StartError::AloneAlready(me));
        }
        let alive = alive(&identity, lineage, others).await;
        let answering = remains.voters.iter().filter(|m| **m == me || alive.contains(m)).count();
        if fresh && answering * 2 > remains.voters.len() {
            return Err(StartError::QuorumLives(alive.into_iter().collect()));
        }
        let survey = survey(&identity, &remains, lineage, &alive);
        Ok(Self { identity, remains, survey, log, store })
    }

    /// What a person should read before going on.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Begins the new history. Repeating it after a crash, at any moment, finishes it. The old members are shut out
    /// first, so that there are never two primaries of one history.
    pub async fn begin_anew(mut self, config: &MemberConfig) -> Result<Survey, StartError> {
        home::note_forced(&config.folder, &self.survey.to_string())?;
        self.identity.lineage = self.survey.next;
        let own = self.remains.state.member(self.identity.member);
        self.identity.roster = Roster(
            own.map(|row| RosterRow {
                member: self.identity.member,
                address: row.card.address.clone(),
                tls: row.card.tls,
            })
            .into_iter()
            .collect(),
        );
        home::save(&config.folder, &self.identity)?;
        self.remains.begin_anew(self.identity.member, &mut self.log, &self.store).await?;
        Ok(self.survey)
    }
}

/// Which of the others answer as members of this group.
async fn alive(identity: &Identity, lineage: Lineage, others: Vec<RosterRow>) -> BTreeSet<MemberId> {
    let hello = Hello {
        protocol: PROTOCOL,
        group: Some(identity.group),
        lineage,
        member: Some(identity.member),
        lane: Lane::Calls,
    };
    let tls = transport::Identity {
        certificate: identity.certificate.clone(),
        key: identity.tls_key.clone(),
        authority: identity.authority.clone(),
    };
    let members: Vec<MemberId> = others.iter().map(|row| row.member).collect();
    let links = Links::new(tls, hello, Arc::new(Seeds(Roster(others))));
    let asked = members.into_iter().map(|member| {
        let asked =
            links.call(member, Lane::Calls, Request::Member(MemberRequest::Failures), limits::ATTEMPT);
        async move { asked.await.is_ok().then_some(member) }
    });
    let alive = join_all(asked).await.into_iter().flatten().collect();
    links.close();
    alive
}

fn survey(identity: &Identity, remains: &Remains, lineage: Lineage, alive: &BTreeSet<MemberId>) -> Survey {
    let (me, state) = (identity.member, &remains.state);
    let lost: Vec<(MemberId, String, String, bool)> = state
        .members()
        .filter(|(id, _)| *id != me)
        .map(|(id, row)| (id, row.card.name.clone(), row.card.address.clone(), alive.contains(&id)))
        .collect();
    let mut warnings = vec![
        "what only the lost members had agreed is lost: keys made, changed or deleted without this member, and PINs \
         set without it; a key that was deleted without it lives again"
            .to_string(),
    ];
    match state.member(me).map(|row| &row.standing) {
        Some(Standing::InSync) => {}
        _ => warnings.push(format!(
            "{me} was not in sync: keys may have been answered as made that it never saw. Look for a member that was \
             in sync before you go on"
        )),
    }
    if remains.uncertain > 0 {
        warnings.push(format!(
            "{} entries at the end of its log may never have been answered; they are kept as agreed",
            remains.uncertain
        ));
    }
    let unsettled = state.unsettled().count();
    if unsettled > 0 {
        warnings.push(format!("{unsettled} changes were under way; they are finished by this member alone"));
    }
    let lacking: Vec<String> = state
        .objects()
        .filter(|(_, row)| row.phase == Phase::Settled && row.excluded.contains_key(&me))
        .map(|(id, _)| id.to_string())
        .collect();
    if !lacking.is_empty() {
        let count = lacking.len();
        let named = lacking.into_iter().take(limits::FORCED_NAMED_MAX).collect::<Vec<_>>().join(", ");
        warnings.push(format!(
            "the token of {me} cannot hold {count} of the keys, which stay unusable until a member joins whose token \
             can: {named}"
        ));
    }
    for (id, name, address, _) in lost.iter().filter(|(.., answers)| *answers) {
        warnings.push(format!(
            "{id} ('{name}') answers at {address}: stop it for good first, or applications go on using it"
        ));
    }
    Survey {
        group: identity.group,
        member: me,
        lineage,
        next: Lineage(lineage.0 + 1),
        objects: state.objects().filter(|(_, row)| row.phase == Phase::Settled).count(),
        lost,
        warnings,
    }
}

impl std::fmt::Display for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, member, lineage, next, objects, lost, warnings } = self;
        writeln!(
            f,
            "{member} begins the history {next} of group {group} alone; the history {lineage} ends."
        )?;
        writeln!(f, "{objects} objects stay. These members are removed, and return only as new ones:")?;
        for (id, name, address, answers) in lost {
            let answers = if *answers { ", which answers now" } else { "" };
            writeln!(f, "  {id} ('{name}') at {address}{answers}")?;
        }
        warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}
