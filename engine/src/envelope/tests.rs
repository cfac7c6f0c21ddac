use super::*;
use crate::domain::{
    AttributeRecord, AttributeType, Generation, KeyAlgorithm, ObjectClass, ObjectId, Version, WrapAlgorithm,
    WrappedKey,
};
use data_encoding::HEXLOWER;

const GROUP: GroupId = GroupId([1, 2, 3, 4, 5, 6, 7, 8]);
const NAME: ContentKey = ContentKey { object: ObjectId(7), version: Version(1), generation: Generation(2) };

fn key() -> EnvelopeKey {
    EnvelopeKey::from_bytes([0x42; 32])
}

fn content() -> EnvelopeContent {
    let mut attributes = Attributes::new();
    attributes.insert(AttributeType::LABEL, AttributeValue::Bytes(b"payments".to_vec()));
    attributes.insert(AttributeType::SENSITIVE, AttributeValue::Bool(true));
    let record = AttributeRecord {
        class: ObjectClass::SecretKey,
        algorithm: Some(KeyAlgorithm::Aes { bits: 256 }),
        attributes,
    };
    let wrapped = WrappedKey { algorithm: WrapAlgorithm::Rfc5649, bytes: vec![0xA5; 40] };
    EnvelopeContent { record, wrapped: Some(wrapped) }
}

#[test]
fn frozen_vectors() {
    let sealed = seal(&key(), GROUP, NAME, &content(), [9; 12]).expect("seals");
    assert_eq!(HEXLOWER.encode(&sealed.sealed), OBJECT_VECTOR);
    assert_eq!(open(&key(), GROUP, NAME, &sealed), Ok(content()));
    let sealed = seal_bytes(&key(), b"authority key", b"clear text", [9; 12]).expect("seals");
    assert_eq!(HEXLOWER.encode(&sealed.sealed), BYTES_VECTOR);
    assert_eq!(open_bytes(&key(), b"authority key", &sealed).expect("opens").as_slice(), b"clear text");
}

/// AES-256-GCM, key 42.., nonce 09.., checked with another implementation.
const OBJECT_VECTOR: &str = "3ccda86aaa99464bfc8578fdb740c829015a71121eaf2f10020bdde42339016bde228a445a0b47769772808fdd0c8a99759d748ac2619df72248c28ca062ff09416cac18cd1347326c4cd8a2038dbf4efd1b5c";
const BYTES_VECTOR: &str = "5ea5cc0b23b9332c87f3e2442935bd8b8b1f6e787a3f9eb28425";

#[test]
fn another_name_key_or_bit_does_not_open() {
    let sealed = seal(&key(), GROUP, NAME, &content(), [9; 12]).expect("seals");
    let refused = Err(EnvelopeError::DoesNotOpen);
    let names = [
        ContentKey { object: ObjectId(8), ..NAME },
        ContentKey { version: Version(2), ..NAME },
        ContentKey { generation: Generation(1), ..NAME },
    ];
    for name in names {
        assert_eq!(open(&key(), GROUP, name, &sealed), refused);
    }
    assert_eq!(open(&key(), GroupId([0; 8]), NAME, &sealed), refused);
    assert_eq!(open(&EnvelopeKey::from_bytes([0x43; 32]), GROUP, NAME, &sealed), refused);
    for bit in 0..sealed.sealed.len() * 8 {
        let mut altered = sealed.clone();
        altered.sealed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(&key(), GROUP, NAME, &altered), refused);
    }
    for len in 0..sealed.sealed.len() {
        let cut = Envelope { nonce: sealed.nonce, sealed: sealed.sealed[..len].to_vec() };
        assert_eq!(open(&key(), GROUP, NAME, &cut), refused);
    }
}

#[test]
fn kinds_of_sealing_cannot_stand_in_for_each_other() {
    let name = associated(GROUP, NAME);
    let sealed = seal_bytes(&key(), &name[16..], b"clear", [1; 12]).expect("seals");
    assert_eq!(open(&key(), GROUP, NAME, &sealed), Err(EnvelopeError::DoesNotOpen));
    assert!(open_bytes(&key(), b"other", &sealed).is_err());
}

#[test]
fn bounds() {
    let mut long = content();
    long.wrapped =
        Some(WrappedKey { algorithm: WrapAlgorithm::Rfc5649, bytes: vec![0; WRAPPED_KEY_MAX_BYTES + 1] });
    assert!(matches!(
        seal(&key(), GROUP, NAME, &long, [0; 12]),
        Err(EnvelopeError::TooLong { what: "a wrapped key", .. })
    ));
    let mut long = content();
    long.record
        .attributes
        .insert(AttributeType::VALUE, AttributeValue::Bytes(vec![0; ATTRIBUTE_MAX_BYTES + 1]));
    assert!(matches!(
        seal(&key(), GROUP, NAME, &long, [0; 12]),
        Err(EnvelopeError::TooLong { what: "an attribute", .. })
    ));
    let mut many = content();
    for number in 0..=ATTRIBUTES_MAX {
        many.record.attributes.insert(AttributeType(0x8000_0000 + number as u64), AttributeValue::Bool(true));
    }
    assert!(seal(&key(), GROUP, NAME, &many, [0; 12]).is_err());
    let mut deep = content();
    let inner =
        Attributes::from([(AttributeType::WRAP_TEMPLATE, AttributeValue::Template(Attributes::new()))]);
    deep.record.attributes.insert(AttributeType::WRAP_TEMPLATE, AttributeValue::Template(inner));
    assert_eq!(seal(&key(), GROUP, NAME, &deep, [0; 12]), Err(EnvelopeError::TooDeep));
    assert!(seal_bytes(&key(), b"c", &vec![0; ENVELOPE_MAX_BYTES - TAG_BYTES], [0; 12]).is_ok());
    assert!(seal_bytes(&key(), b"c", &vec![0; ENVELOPE_MAX_BYTES], [0; 12]).is_err());
    assert!(seal_bytes(&key(), &[0; TEXT_MAX_BYTES + 1], b"", [0; 12]).is_err());
    let huge = Envelope { nonce: [0; 12], sealed: vec![0; ENVELOPE_MAX_BYTES + 1] };
    assert!(matches!(open_bytes(&key(), b"c", &huge), Err(EnvelopeError::TooLong { .. })));
}

#[test]
fn nothing_is_printed() {
    let mut keys = crate::envelope::EnvelopeKeys::default();
    keys.insert(Generation(2), key());
    assert_eq!(format!("{:?} {keys:?}", key()), "EnvelopeKey(..) EnvelopeKeys([g2])");
    assert_eq!(keys.current().map(|(generation, _)| generation), Some(Generation(2)));
}
