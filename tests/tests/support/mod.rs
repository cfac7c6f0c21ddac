//! Groups of members in this process.
#![allow(dead_code, reason = "each test binary uses its part")]

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use keyraft_engine::assembly::{self, Engine, InitGroup, MemberConfig, StartError};
use keyraft_engine::clock::Clock;
use keyraft_engine::cloning::{Domain, Invitation};
use keyraft_engine::consensus::Timings;
use keyraft_engine::consensus::store::Store;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, Attributes, ClientId, KeyAlgorithm, LogIndex, Mechanism, MemberId,
    ObjectClass, ObjectId, RequestId,
};
use keyraft_engine::limits::VOTERS_MAX;
use keyraft_engine::token::{ModuleSource, Pin, SlotChoice, TokenConfig, initialize};
use keyraft_engine::wire::{
    Answer, ClientRequest, CompareAndSet, CreateKey, Deletion, Failure, GroupStatus, ImportKey, KeyTemplate,
    ObjectRow, SecretBytes, UseKind, UseRequest,
};
use keyraft_storage::Storage;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use zeroize::Zeroizing;

const PIN: &str = "1234567890";
const SECRET: &[u8] = b"a domain secret of some length";
const DATA: &[u8] = b"what is signed";
/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// A create request that can be repeated.
#[derive(Clone)]
pub struct Making {
    pub request: RequestId,
    pub algorithm: KeyAlgorithm,
    pub label: String,
}

impl Making {
    pub fn into_request(self) -> ClientRequest {
        let attributes =
            Attributes::from([(AttributeType::LABEL, AttributeValue::Bytes(self.label.into_bytes()))]);
        let template = KeyTemplate { algorithm: self.algorithm, attributes };
        ClientRequest::Create(CreateKey { request: self.request, watermark: 1, template })
    }
}

/// The output of a use.
#[derive(Debug)]
pub struct Used {
    pub output: Vec<u8>,
    pub by: MemberId,
}

/// A group: its members' configurations and those that run.
pub struct Group {
    root: tempfile::TempDir,
    configs: BTreeMap<u64, MemberConfig>,
    running: BTreeMap<u64, Arc<Engine>>,
    sequence: AtomicU64,
}

impl Group {
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let mut group =
            Self { root, configs: BTreeMap::new(), running: BTreeMap::new(), sequence: AtomicU64::new(1) };
        group.add_config(1);
        group
    }

    fn token_folder(&self, id: u64) -> PathBuf {
        self.root.path().join(format!("token-{id}"))
    }

    pub fn add_config(&mut self, id: u64) {
        self.fresh_token(id);
        let listen = free_address();
        let config = MemberConfig {
            folder: self.root.path().join(format!("member-{id}")),
            name: format!("member-{id}"),
            listen,
            advertise: listen.to_string(),
            socket: self.root.path().join(format!("socket-{id}")),
            socket_users: Vec::new(),
            token: TokenConfig {
                source: ModuleSource::Embedded { folder: self.token_folder(id) },
                slot: SlotChoice::Only,
                pin: Some(Pin::new(PIN.into())),
                residency: None,
            },
            domain: domain(SECRET),
            timings: Timings {
                heartbeat: Duration::from_millis(100),
                election_min: Duration::from_millis(500),
                election_max: Duration::from_millis(1000),
            },
            monitored_interfaces: Vec::new(),
        };
        self.configs.insert(id, config);
    }

    pub fn wrong_domain(&mut self, id: u64) {
        self.configs.get_mut(&id).expect("is configured").domain = domain(b"another secret, as long");
    }

    pub fn right_domain(&mut self, id: u64) {
        self.configs.get_mut(&id).expect("is configured").domain = domain(SECRET);
    }

    pub async fn init(&self) {
        let config = &self.configs[&1];
        let storage = Storage::open(&config.folder.join("store")).expect("opens");
        let group = InitGroup { label: "keys".into(), ..InitGroup::default() };
        assembly::init(config, group, storage.log, storage.store as Arc<dyn Store>).await.expect("a group");
    }

    pub async fn try_start(&mut self, id: u64) -> Result<(), StartError> {
        let config = self.configs[&id].clone();
        let started = Clock.now();
        // What ran before lets go of the folder within moments.
        let storage = loop {
            match Storage::open(&config.folder.join("store")) {
                Ok(storage) => break storage,
                Err(error) if Clock.now().duration_since(started) > LONG => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let engine = Engine::start(config, storage.log, storage.store as Arc<dyn Store>).await?;
        self.running.insert(id, Arc::new(engine));
        Ok(())
    }

    pub async fn start(&mut self, id: u64) {
        let started = Clock.now();
        loop {
            match self.try_start(id).await {
                Ok(()) => return,
                // A killed member's token closes in the background.
                Err(error) if Clock.now().duration_since(started) > LONG => panic!("member {id}: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    pub async fn stop(&mut self, id: u64) {
        let engine = Arc::into_inner(self.running.remove(&id).expect("runs"));
        engine.expect("nobody asks it any more").stop().await;
    }

    /// Gone without a word.
    pub fn kill(&mut self, id: u64) {
        drop(self.running.remove(&id).expect("runs"));
    }

    pub async fn invite(&self) -> String {
        let request = ClientRequest::Invite { life_seconds: 600 };
        match self.call(1, request).await.expect("invites") {
            Answer::Invitation(text) => text,
            other => panic!("{other:?}"),
        }
    }

    pub async fn try_join(&self, id: u64, invitation: &str) -> Result<(), StartError> {
        let invitation = Invitation::parse(invitation).expect("an invitation");
        assembly::join(&self.configs[&id], invitation).await.map(drop)
    }

    pub async fn recover(&self, id: u64) {
        assembly::recover(&self.configs[&id]).await.expect("recovers");
    }

    /// A group of `count` members, all in sync.
    pub async fn form(&mut self, count: u64) {
        self.init().await;
        self.start(1).await;
        for id in 2..=count {
            self.add_config(id);
            let invitation = self.invite().await;
            self.try_join(id, &invitation).await.expect("joins");
            self.start(id).await;
        }
        self.wait_in_sync(1, count as usize).await;
    }

    /// Mounts each other's tokens.
    pub fn swap_tokens(&mut self, one: u64, other: u64) {
        let token = self.configs[&one].token.clone();
        let theirs =
            std::mem::replace(&mut self.configs.get_mut(&other).expect("is configured").token, token);
        self.configs.get_mut(&one).expect("is configured").token = theirs;
    }

    /// Brings an object in by value.
    pub async fn import(
        &self,
        at: u64,
        class: ObjectClass,
        algorithm: Option<KeyAlgorithm>,
        extra: &[(AttributeType, bool)],
        value: &[u8],
    ) -> Result<Vec<ObjectRow>, Failure> {
        let attributes = extra.iter().map(|(a, v)| (*a, AttributeValue::Bool(*v))).collect();
        let value = SecretBytes(Zeroizing::new(value.to_vec()));
        let request = self.request();
        let import = ImportKey { request, watermark: 1, class, algorithm, attributes, value };
        match self.call(at, ClientRequest::Import(import)).await? {
            Answer::Created(rows) => Ok(rows),
            other => panic!("{other:?}"),
        }
    }

    pub fn lose_token(&self, id: u64) {
        std::fs::remove_dir_all(self.token_folder(id)).expect("was there");
    }

    pub fn fresh_token(&self, id: u64) {
        let source = ModuleSource::Embedded { folder: self.token_folder(id) };
        let label = format!("token-{id}");
        initialize(&source, &label, &Pin::new(PIN.into()), &Pin::new(PIN.into())).expect("a token");
    }

    /// A member that runs, to be asked by another task.
    pub fn engine(&self, id: u64) -> Arc<Engine> {
        self.running[&id].clone()
    }

    /// The Unix socket that a member serves at.
    pub fn socket(&self, id: u64) -> PathBuf {
        self.configs[&id].socket.clone()
    }

    pub async fn call(&self, at: u64, request: ClientRequest) -> Result<Answer, Failure> {
        self.running[&at].call(request).await
    }

    pub async fn status(&self, at: u64) -> GroupStatus {
        match self.call(at, ClientRequest::Status).await.expect("answers") {
            Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub async fn primary(&self, at: u64) -> u64 {
        self.status(at).await.primary.expect("one leads").0
    }

    pub async fn wait_in_sync(&self, at: u64, count: usize) {
        let started = Clock.now();
        loop {
            let status = self.status(at).await;
            let voters = status.members.iter().filter(|member| member.voter).count();
            if status.members.iter().filter(|member| member.in_sync).count() == count
                && voters >= count.min(VOTERS_MAX)
            {
                return;
            }
            assert!(Clock.now().duration_since(started) < LONG, "not {count} in sync: {status:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn request(&self) -> RequestId {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        RequestId { client: ClientId { born: LogIndex(1), nonce: 7 }, sequence }
    }

    pub async fn making(&self, algorithm: KeyAlgorithm, label: &str) -> Making {
        Making { request: self.request(), algorithm, label: label.into() }
    }

    pub async fn make(&self, at: u64, making: &Making) -> Result<Vec<ObjectRow>, Failure> {
        match self.call(at, making.clone().into_request()).await? {
            Answer::Created(rows) => Ok(rows),
            other => panic!("{other:?}"),
        }
    }

    pub async fn create(
        &self,
        at: u64,
        algorithm: KeyAlgorithm,
        label: &str,
    ) -> Result<Vec<ObjectRow>, Failure> {
        self.make(at, &self.making(algorithm, label).await).await
    }

    /// A compare-and-set of CKA_ID that can be repeated.
    pub fn swap(&self, object: ObjectId, expected: &[u8], value: &[u8]) -> ClientRequest {
        let bytes = |bytes: &[u8]| AttributeValue::Bytes(bytes.to_vec());
        ClientRequest::CompareAndSet(Box::new(CompareAndSet {
            request: self.request(),
            watermark: 1,
            object,
            attribute: AttributeType::ID,
            expected: Some(bytes(expected)),
            value: bytes(value),
        }))
    }

    /// A delete request that can be repeated.
    pub fn deletion(&self, objects: &[ObjectId]) -> ClientRequest {
        let deletion = Deletion { request: self.request(), watermark: 1, objects: objects.to_vec() };
        ClientRequest::Delete(deletion)
    }

    pub async fn delete(&self, at: u64, objects: &[ObjectId]) -> Result<(), Failure> {
        self.call(at, self.deletion(objects)).await.map(drop)
    }

    pub async fn labels(&self, at: u64) -> Vec<String> {
        match self.call(at, ClientRequest::List { label: None, after: None }).await.expect("lists") {
            Answer::Objects { rows, more: false } => rows
                .iter()
                .map(|row| match row.attributes.get(&AttributeType::LABEL) {
                    Some(AttributeValue::Bytes(label)) => String::from_utf8_lossy(label).into_owned(),
                    _ => String::new(),
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Signs with an EC or Ed25519 key.
    pub async fn sign(&self, at: u64, object: ObjectId, by: Option<u64>) -> Result<Used, Failure> {
        let row = self.call(at, ClientRequest::Show(object)).await?;
        let Answer::Objects { rows, .. } = row else { panic!("{row:?}") };
        let (mechanism, data) = match rows[0].algorithm {
            Some(KeyAlgorithm::Ed25519) => (CKM_EDDSA, DATA.to_vec()),
            _ => (CKM_ECDSA, digest()),
        };
        self.use_key(at, object, UseKind::Sign, mechanism, data, by).await
    }

    pub async fn use_key(
        &self,
        at: u64,
        object: ObjectId,
        kind: UseKind,
        mechanism: u64,
        data: Vec<u8>,
        by: Option<u64>,
    ) -> Result<Used, Failure> {
        let request = UseRequest {
            object,
            kind,
            mechanism: Mechanism::plain(mechanism),
            data: SecretBytes(Zeroizing::new(data)),
            at: by.map(MemberId),
        };
        match self.call(at, ClientRequest::Use(request)).await? {
            Answer::Used { output, by } => Ok(Used { output: output.0.to_vec(), by }),
            other => panic!("{other:?}"),
        }
    }
}

const CKM_ECDSA: u64 = 0x1041;
const CKM_EDDSA: u64 = 0x1057;

fn digest() -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, DATA).as_ref().to_vec()
}

fn domain(secret: &[u8]) -> Domain {
    Domain::new("home", Zeroizing::new(secret.to_vec())).expect("a domain")
}

/// A free port below those that the kernel gives to outgoing connections: one of those could take it while its member
/// is away.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 200) as u16 * 100;
    let free = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed)).take(1000);
    free.map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a free port")
}

/// Verifies a P-256 signature by the public key's record, outside of any token.
pub fn verify_outside(public: &ObjectRow, signature: &[u8]) {
    let Some(AttributeValue::Bytes(point)) = public.attributes.get(&AttributeType::EC_POINT) else {
        panic!("a public key has its point");
    };
    // A DER OCTET STRING of 65 bytes.
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point[2..]).verify(DATA, signature).expect("verifies");
}

/// Signs with a pair's private key and verifies with its public one, inside and outside.
pub async fn sign_and_verify(group: &Group, at: u64, pair: &[ObjectRow]) {
    let signature = group.sign(at, pair[0].object, None).await.expect("signs").output;
    verify_outside(&pair[1], &signature);
    let kind = UseKind::Verify(signature);
    group.use_key(at, pair[1].object, kind, CKM_ECDSA, digest(), None).await.expect("verifies");
}
