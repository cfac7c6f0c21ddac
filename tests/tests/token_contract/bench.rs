//! Fresh tokens for a case, and the processes that cases run in.

use keyraft_engine::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, ContentKey, Generation, GroupId,
    KeyAlgorithm, Mechanism, ObjectClass, ObjectId, Residency, Version, WrappedKey,
};
use keyraft_engine::token::{
    ModuleSource, Originated, Pin, SlotChoice, Token, TokenConfig, TokenError, TokenVerdict, initialize,
};
use keyraft_engine::wire::UseKind;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const SOFTHSM: &str = "/usr/lib/softhsm/libsofthsm2.so";
pub const GROUP: GroupId = GroupId([0xA1; 8]);
pub const G1: Generation = Generation(1);
pub const PIN: &str = "user-pin-1";
const FOLDER: &str = "KEYRAFT_CONTRACT_FOLDER";

/// Declares a case: a test that runs its body in a process of its own, in a fresh folder.
macro_rules! case {
    ($(#[$attribute:meta])* $name:ident, $body:expr) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            let module = module_path!().split_once("::").expect("the case lies in a module").1;
            $crate::bench::run_case(&format!("{module}::{}", stringify!($name)), $body);
        }
    };
}
pub(crate) use case;

/// The parent starts the child; the child runs the body.
pub fn run_case<F: Future<Output = ()>>(name: &str, body: impl FnOnce(Bench) -> F) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(body(Bench { folder: folder.into() }));
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let status = spawn(name, folder.path()).wait().expect("the case's process");
    assert!(status.success(), "the case failed in its process: {status}");
}

/// Starts this program again for one case in a folder.
pub fn spawn(name: &str, folder: &Path) -> Child {
    assert!(Path::new(SOFTHSM).exists(), "SoftHSM is missing: apt-get install softhsm2");
    let tokens = folder.join("softhsm");
    std::fs::create_dir_all(&tokens).expect("a folder for SoftHSM");
    let conf = folder.join("softhsm2.conf");
    std::fs::write(&conf, format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display()))
        .expect("SoftHSM's configuration");
    Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--include-ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env("SOFTHSM2_CONF", conf)
        .stdout(Stdio::inherit())
        .spawn()
        .expect("this program starts again")
}

/// The folder of one case, and the tokens in it.
pub struct Bench {
    pub folder: PathBuf,
}

impl Bench {
    /// A SoftHSM token; made if it is new.
    pub fn softhsm(&self, label: &str, residency: Residency) -> TokenConfig {
        let source = ModuleSource::Library { path: SOFTHSM.into() };
        self.config(source, label, residency, self.folder.join(format!("{label}.made")))
    }

    /// An embedded token; made if it is new.
    pub fn embedded(&self, label: &str, residency: Residency) -> TokenConfig {
        let folder = self.folder.join(label);
        self.config(ModuleSource::Embedded { folder: folder.clone() }, label, residency, folder)
    }

    fn config(&self, source: ModuleSource, label: &str, residency: Residency, made: PathBuf) -> TokenConfig {
        let pin = Pin::new(PIN.to_string());
        if !made.exists() {
            initialize(&source, label, &Pin::new("so-pin-22".to_string()), &pin).expect("a token is made");
            if matches!(source, ModuleSource::Library { .. }) {
                std::fs::write(made, "").expect("a note that the token is made");
            }
        }
        TokenConfig {
            source,
            slot: SlotChoice::Label(label.to_string()),
            pin: Some(pin),
            residency: Some(residency),
        }
    }

    /// The four ways to hold keys: both tokens, both residencies.
    pub fn all(&self) -> Vec<TokenConfig> {
        vec![
            self.softhsm("soft-token", Residency::Token),
            self.embedded("embedded-session", Residency::Session),
            self.softhsm("soft-session", Residency::Session),
            self.embedded("embedded-token", Residency::Token),
        ]
    }
}

/// Tokens that share an SMK.
pub struct Group {
    pub tokens: Vec<Token>,
    pub self_blob: Vec<u8>,
}

/// The first token makes the SMK and delivers it to the others.
pub async fn group(configs: Vec<TokenConfig>) -> Group {
    let tokens: Vec<Token> = configs.into_iter().map(|c| Token::open(c).expect("the token opens")).collect();
    for token in &tokens {
        token.bind(GROUP);
    }
    let self_blob = tokens[0].create_smk(G1, None).await.expect("an SMK").self_blob;
    for token in &tokens[1..] {
        let recipient = token.member_keys().await.expect("member keys").transport_key;
        let wrapped = tokens[0].deliver_smk(G1, &self_blob, &recipient).await.expect("a delivery");
        token.accept_smk(G1, &wrapped, &self_blob).await.expect("the SMK is accepted");
    }
    Group { tokens, self_blob }
}

pub fn name(object: u64) -> ContentKey {
    ContentKey { object: ObjectId(object), version: Version(1), generation: G1 }
}

/// What a key of a kind is asked to be: sensitive, not extractable, every usage that suits it.
pub fn asked(algorithm: KeyAlgorithm) -> Attributes {
    let usages: &[A] = match algorithm {
        KeyAlgorithm::Aes { .. } => &[A::ENCRYPT, A::DECRYPT, A::WRAP, A::UNWRAP],
        KeyAlgorithm::GenericSecret { .. } => &[A::SIGN, A::VERIFY, A::DERIVE],
        KeyAlgorithm::Rsa { .. } => &[A::SIGN, A::DECRYPT, A::UNWRAP],
        KeyAlgorithm::Ec(_) => &[A::SIGN, A::DERIVE],
        KeyAlgorithm::Ed25519 => &[A::SIGN],
    };
    let mut attributes: Attributes = usages.iter().map(|usage| (*usage, V::Bool(true))).collect();
    attributes.insert(A::SENSITIVE, V::Bool(true));
    attributes.insert(A::EXTRACTABLE, V::Bool(false));
    attributes
}

/// The record of an originated key.
pub fn record(algorithm: KeyAlgorithm, asked: &Attributes, made: &Originated) -> AttributeRecord {
    let mut attributes = asked.clone();
    attributes.extend(made.facts.clone());
    let class = if algorithm.is_pair() { ObjectClass::PrivateKey } else { ObjectClass::SecretKey };
    AttributeRecord { class, algorithm: Some(algorithm), attributes }
}

/// The record of the public key beside it.
pub fn public_record(algorithm: KeyAlgorithm, made: &Originated) -> AttributeRecord {
    let mut attributes = made.facts.clone();
    attributes.insert(A::VERIFY, V::Bool(true));
    attributes.insert(A::ENCRYPT, V::Bool(matches!(algorithm, KeyAlgorithm::Rsa { .. })));
    AttributeRecord { class: ObjectClass::PublicKey, algorithm: Some(algorithm), attributes }
}

/// The mechanism that signs with a kind (32 bytes of data), or None.
pub fn signing(algorithm: KeyAlgorithm) -> Option<Mechanism> {
    let number = match algorithm {
        KeyAlgorithm::Aes { .. } => return None,
        KeyAlgorithm::GenericSecret { .. } => 0x251,
        KeyAlgorithm::Rsa { .. } => 0x40,
        KeyAlgorithm::Ec(_) => 0x1041,
        KeyAlgorithm::Ed25519 => 0x1057,
    };
    Some(Mechanism::plain(number))
}

/// A key that one process leaves for the next.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct LeftKey {
    pub object: u64,
    pub kind: KeyAlgorithm,
    facts: Vec<(A, V)>,
    wrapped: Option<WrappedKey>,
}

impl LeftKey {
    pub fn new(object: u64, kind: KeyAlgorithm, made: Originated) -> Self {
        Self { object, kind, facts: made.facts.into_iter().collect(), wrapped: made.wrapped }
    }

    pub async fn import(&self, token: &Token) {
        let made = Originated { wrapped: None, facts: self.facts.iter().cloned().collect() };
        let record = record(self.kind, &asked(self.kind), &made);
        token.import(name(self.object), &record, self.wrapped.as_ref()).await.expect("an import");
    }
}

/// Uses a held key.
pub async fn sign(
    token: &Token,
    object: u64,
    mechanism: &Mechanism,
    data: &[u8],
) -> Result<Vec<u8>, TokenError> {
    token.use_key(ObjectId(object), &UseKind::Sign, mechanism, data).await.map(|out| out.to_vec())
}

/// The verdict of what must be an error.
pub fn verdict<T>(result: Result<T, TokenError>) -> TokenVerdict {
    result.err().expect("an error").verdict()
}
