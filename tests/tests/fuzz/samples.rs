//! Valid values to begin with, and the check that a codec's value keeps.

use keyraft_engine::clock::UnixMillis;
use keyraft_engine::codec;
use keyraft_engine::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, ClientId, Curve, Envelope,
    EnvelopeContent, Fingerprint, Generation, KeyAlgorithm, LogIndex, Mechanism, MechanismInfo, MemberCard,
    MemberId, ObjectClass, ObjectId, Parameters, Profile, RequestId, Residency, TokenIdentity, WrapAlgorithm,
    WrappedKey,
};
use keyraft_engine::limits::FRAME_MAX_BYTES;
use keyraft_engine::wire::{ClientName, Role, SecretBytes, Ticket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use zeroize::Zeroizing;

/// A value's bytes.
pub fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    codec::encode(value).expect("encodes")
}

/// Decodes; what was read can be written, and read again.
pub fn reads<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(value) = codec::decode::<T>(bytes, FRAME_MAX_BYTES) else { return false };
    let again = codec::encode(&value).expect("what was read can be written");
    assert!(codec::decode::<T>(&again, FRAME_MAX_BYTES).is_ok(), "what was written can be read");
    true
}

/// The bytes in one of the engine's golden files.
pub fn golden(file: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/scripts/format").join(file);
    let text = std::fs::read_to_string(&path).expect("reads the golden bytes");
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    lines.map(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).expect("hexadecimal")).collect()
}

pub fn request() -> RequestId {
    RequestId { client: ClientId { born: LogIndex(300), nonce: 7 }, sequence: 4 }
}

pub fn secret(bytes: &[u8]) -> SecretBytes {
    SecretBytes(Zeroizing::new(bytes.to_vec()))
}

pub fn template() -> Attributes {
    let inner = Attributes::from([(A::SENSITIVE, V::Bool(true)), (A::VALUE_LEN, V::Number(32))]);
    Attributes::from([
        (A::LABEL, V::Bytes(b"pay".to_vec())),
        (A::SIGN, V::Bool(true)),
        (A::VALUE_LEN, V::Number(70_000)),
        (A::UNWRAP_TEMPLATE, V::Template(inner)),
    ])
}

pub fn content() -> EnvelopeContent {
    let algorithm = Some(KeyAlgorithm::Ec(Curve::P384));
    EnvelopeContent {
        record: AttributeRecord { class: ObjectClass::PrivateKey, algorithm, attributes: template() },
        wrapped: Some(WrappedKey { algorithm: WrapAlgorithm::Rfc5649, bytes: vec![9; 40] }),
    }
}

pub fn envelope() -> Envelope {
    Envelope { nonce: [7; 12], sealed: vec![3; 60] }
}

pub fn card() -> MemberCard {
    MemberCard {
        name: "one".into(),
        address: "one:7400".into(),
        tls: Fingerprint([1; 32]),
        transport_key: vec![2; 422],
        profile: Profile {
            identity: TokenIdentity { label: "token".into(), ..TokenIdentity::default() },
            wraps: [WrapAlgorithm::Rfc5649].into(),
            carries: KeyAlgorithm::promised().into(),
            carries_in_memory: std::collections::BTreeSet::new(),
            exact_lengths: true,
            unwrap_template: true,
            residency: Residency::Session,
            mechanisms: vec![MechanismInfo { number: 0x1080, min_key: 16, max_key: 32, flags: 0x8000 }; 3],
        },
    }
}

pub fn ticket() -> Ticket {
    Ticket {
        client: request().client,
        who: ClientName("uid:1000".into()),
        role: Role::User,
        pin_version: 1,
        expires: UnixMillis(1_900_000_000_000),
        mac: [5; 32],
    }
}

pub fn mechanisms() -> Vec<Mechanism> {
    let parameters = [
        Parameters::None,
        Parameters::Bytes(vec![1; 16]),
        Parameters::Pss { hash: 0x250, mgf: 2, salt_bytes: 32 },
        Parameters::Oaep { hash: 0x250, mgf: 2, label: vec![1] },
        Parameters::Gcm { iv: vec![2; 12], aad: vec![3; 4], tag_bits: 128 },
        Parameters::Ccm { data_bytes: 16, nonce: vec![2; 12], aad: vec![3; 4], mac_bytes: 16 },
        Parameters::Ctr { counter_bits: 64, block: [4; 16] },
        Parameters::Ecdh { kdf: 1, shared: vec![], public: vec![4; 65] },
        Parameters::Eddsa { prehash: false, context: vec![1] },
        Parameters::Hkdf { extract: true, expand: true, hash: 0x250, salt: Some(vec![1]), info: vec![2] },
        Parameters::CbcEncryptData { iv: [1; 16], data: vec![2; 16] },
        Parameters::StringData(vec![1; 16]),
        Parameters::Number(16),
        Parameters::RsaAesWrap { aes_bits: 256, hash: 0x250, mgf: 2, label: vec![] },
    ];
    parameters.map(|parameters| Mechanism { number: 0x1087, parameters }).into()
}

/// The member that receives most of it.
pub const MEMBER: MemberId = MemberId(2);
/// An object.
pub const OBJECT: ObjectId = ObjectId(259);
/// A generation.
pub const GENERATION: Generation = Generation(1);
