//! A member in your own process: makes a group of one with an embedded token, creates a key, signs, verifies.
//!
//! Run it with `cargo run --example embed`. More members join with `keyraft join`, or with `assembly::join` as here.

use keyraft_engine::assembly::{Engine, InitGroup, MemberConfig, init};
use keyraft_engine::cloning::Domain;
use keyraft_engine::consensus::Timings;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, ClientId, Curve, KeyAlgorithm, LogIndex, Mechanism, ObjectClass, ObjectId,
    RequestId,
};
use keyraft_engine::token::{ModuleSource, Pin, SlotChoice, TokenConfig, initialize};
use keyraft_engine::wire::{
    Answer, ClientRequest, CreateKey, KeyTemplate, ObjectRow, SecretBytes, UseKind, UseRequest,
};
use keyraft_storage::Storage;
use std::error::Error;
use std::path::Path;
use zeroize::Zeroizing;

const CKM_ECDSA: u64 = 0x1041;

/// What a member needs to know. A real one reads the PIN and the domain's secret from a safe place.
fn config(folder: &Path, pin: &Pin) -> Result<MemberConfig, Box<dyn Error>> {
    Ok(MemberConfig {
        folder: folder.to_path_buf(),
        name: "embedded".into(),
        listen: "127.0.0.1:0".parse()?,
        advertise: "127.0.0.1:7400".into(),
        socket: folder.join("keyraft.sock"),
        socket_users: Vec::new(),
        token: TokenConfig {
            source: ModuleSource::Embedded { folder: folder.join("token") },
            slot: SlotChoice::Only,
            pin: Some(pin.clone()),
            residency: None,
        },
        domain: Domain::new("example", Zeroizing::new(b"a secret of the whole group".to_vec()))?,
        timings: Timings::default(),
        monitored_interfaces: Vec::new(),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let pin = Pin::new("1234-example".into());
    let config = config(folder.path(), &pin)?;
    initialize(&config.token.source, "example", &Pin::new("5678-example".into()), &pin)?;

    // A group begins once; later runs only start the member.
    let storage = Storage::open(&config.folder)?;
    let group = InitGroup { label: "example".into(), ..InitGroup::default() };
    let begun = init(&config, group, storage.log, storage.store).await?;
    println!("group {} begins with {}", begun.group, begun.member);

    let storage = Storage::open(&config.folder)?;
    let engine = Engine::start(config, storage.log, storage.store).await?;
    let [private, public] = create_pair(&engine).await?;
    println!("key pair {} and {} is on the token", private.object, public.object);

    // ECDSA takes a hash; the private key never leaves the token.
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"hello");
    let signature = use_key(&engine, private.object, UseKind::Sign, hash.as_ref()).await?;
    println!("signature of {} bytes", signature.len());
    use_key(&engine, public.object, UseKind::Verify(signature), hash.as_ref()).await?;
    println!("the signature is good");

    engine.stop().await;
    Ok(())
}

/// Asks for a P-256 pair. A change carries a request id: repeated under the same one, it happens once.
async fn create_pair(engine: &Engine) -> Result<[ObjectRow; 2], Box<dyn Error>> {
    let Answer::Status(status) = engine.call(ClientRequest::Status).await? else {
        return Err("no status".into());
    };
    let mut nonce = [0; 8];
    aws_lc_rs::rand::fill(&mut nonce)?;
    let client = ClientId { born: LogIndex(status.applied.0), nonce: u64::from_be_bytes(nonce) };
    let label = AttributeValue::Bytes(b"my key".to_vec());
    let create = CreateKey {
        request: RequestId { client, sequence: 1 },
        watermark: 1,
        template: KeyTemplate {
            algorithm: KeyAlgorithm::Ec(Curve::P256),
            attributes: [(AttributeType::LABEL, label)].into(),
        },
    };
    let Answer::Created(rows) = engine.call(ClientRequest::Create(create)).await? else {
        return Err("no key".into());
    };
    let mut rows: [ObjectRow; 2] = rows.try_into().map_err(|_| "no pair")?;
    rows.sort_by_key(|row| row.class == ObjectClass::PublicKey);
    Ok(rows)
}

async fn use_key(
    engine: &Engine,
    object: ObjectId,
    kind: UseKind,
    data: &[u8],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let request = UseRequest {
        object,
        kind,
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: SecretBytes(Zeroizing::new(data.to_vec())),
        at: None,
    };
    match engine.call(ClientRequest::Use(request)).await? {
        Answer::Used { output, .. } => Ok(output.0.to_vec()),
        _ => Err("not used".into()),
    }
}
