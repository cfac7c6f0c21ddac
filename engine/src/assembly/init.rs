//! How a group begins: its first member, its SMK, its authority, the first entry of its log.

use super::home::{self, Identity, LockedGeneration};
use super::{FIRST_MEMBER, MemberConfig, StartError, card, open_token, random};
use crate::consensus::types::TypeConfig;
use crate::consensus::{Consensus, ConsensusError, LinkFailure, RaftLinks, store::Store};
use crate::domain::{Generation, GroupId, Lineage, MemberId, Role};
use crate::envelope::{EnvelopeKey, seal_bytes};
use crate::service::authority_context;
use crate::state::{Authority, Bootstrap, Command, Options, RecoveryCopy, Smk};
use crate::transport::pki;
use crate::virtual_slot::pin;
use crate::wire::{Lane, RaftCall, Roster, RosterRow, SecretBytes};
use futures::future::BoxFuture;
use openraft::storage::RaftLogStorage;
use std::sync::Arc;
use std::time::Duration;

/// What a new group shall be.
#[derive(Clone, Debug, Default)]
pub struct InitGroup {
    /// The virtual token's label.
    pub label: String,
    /// SubjectPublicKeyInfo (DER) of an offline RSA key that can open everything if all tokens are lost.
    pub recovery_key: Option<Vec<u8>>,
    /// The options at birth.
    pub options: Options,
    /// The virtual token's user PIN; nobody can log in until one is set.
    pub user_pin: Option<SecretBytes>,
    /// Its security officer's PIN.
    pub so_pin: Option<SecretBytes>,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitReport {
    /// The group.
    pub group: GroupId,
    /// Its first member.
    pub member: MemberId,
    /// True if an offline recovery key can open the group's keys.
    pub recoverable: bool,
}

/// A group of one has nobody to call.
struct NoLinks;

impl RaftLinks for NoLinks {
    fn call(
        &self,
        to: MemberId,
        _lane: Lane,
        _call: RaftCall,
        _body: Vec<u8>,
        _deadline: Duration,
    ) -> BoxFuture<'_, Result<Vec<u8>, LinkFailure>> {
        Box::pin(async move { Err(LinkFailure::Unreachable(format!("{to}: the group is being made"))) })
    }
}

const FIRST_GENERATION: Generation = Generation(1);

/// What sets the PINs that were given.
fn pins(group: &InitGroup) -> Result<Vec<Command>, StartError> {
    let given = [(Role::User, &group.user_pin), (Role::SecurityOfficer, &group.so_pin)];
    let set = given.into_iter().filter_map(|(role, pin)| Some((role, pin.as_ref()?)));
    set.map(|(role, pin)| {
        let hash = Some(pin::hash(pin, random()?)?);
        Ok(Command::SetPin { role, hash, follows: 0, by: None })
    })
    .collect()
}

/// The first entries of the group's log.
async fn begin(
    consensus: &Consensus,
    bootstrap: Bootstrap,
    pins: Vec<Command>,
) -> Result<(), ConsensusError> {
    consensus.bootstrap(bootstrap).await?;
    for pin in pins {
        consensus.propose(pin).await?;
    }
    Ok(())
}

/// Makes a group with this member as its first. Everything is on disk when this returns, nothing is running.
pub async fn init<L: RaftLogStorage<TypeConfig>>(
    config: &MemberConfig,
    group: InitGroup,
    log: L,
    store: Arc<dyn Store>,
) -> Result<InitReport, StartError> {
    home::refuse_occupied(&config.folder)?;
    let pins = pins(&group)?;
    home::prepare(&config.folder)?;
    let id = GroupId(random()?);
    let token = open_token(config.token.clone()).await?;
    token.bind(id);
    let keys = token.member_keys().await?;
    let smk = token.create_smk(FIRST_GENERATION, group.recovery_key.as_deref()).await?;
    let envelope_key = EnvelopeKey::from_bytes(random()?);
    let locked_envelope_key = token.lock(envelope_key.expose()).await?;
    let recovery = match (group.recovery_key, smk.recovery) {
        (Some(recipient), Some(smk)) => {
            let envelope_key = token.encrypt_to(&recipient, envelope_key.expose()).await?;
            Some(RecoveryCopy { recipient, smk, envelope_key })
        }
        _ => None,
    };
    let recoverable = recovery.is_some();

    let (authority, authority_key) = pki::new_authority(id)?;
    let tls_key = pki::new_tls_key()?;
    let request = pki::signing_request(&tls_key)?;
    let certificate = pki::sign(&authority, &authority_key, &request, FIRST_MEMBER, id)?;
    let tls = pki::fingerprint(&certificate)?;
    let sealed_key = seal_bytes(&envelope_key, &authority_context(id), &authority_key, random()?)?;
    let bootstrap = Bootstrap {
        group: id,
        lineage: Lineage(1),
        label: group.label,
        card: card(config, tls, &keys, &token),
        smk: Smk { generation: FIRST_GENERATION, self_blob: smk.self_blob.clone(), recovery },
        authority: Authority { certificate: authority.clone(), sealed_key },
        options: group.options,
    };
    token.close().await;
    let consensus = Consensus::start(FIRST_MEMBER, log, store, Arc::new(NoLinks), config.timings).await?;
    let begun = begin(&consensus, bootstrap, pins).await;
    consensus.shutdown().await;
    begun?;
    let address = config.advertise.clone();
    let identity = Identity {
        group: id,
        lineage: Lineage(1),
        member: FIRST_MEMBER,
        certificate,
        authority,
        tls_key,
        roster: Roster(vec![RosterRow { member: FIRST_MEMBER, address, tls }]),
        generations: vec![LockedGeneration {
            generation: FIRST_GENERATION,
            self_blob: smk.self_blob,
            locked_envelope_key,
        }],
    };
    home::save(&config.folder, &identity)?;
    Ok(InitReport { group: id, member: FIRST_MEMBER, recoverable })
}
