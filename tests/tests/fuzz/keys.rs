//! What applications and tokens say of keys: DER, templates, tickets, sealed objects, names of objects in a token.

use crate::run::fuzz;
use crate::samples::{GENERATION, bytes, content, mechanisms, reads, secret, template, ticket};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use keyraft_engine::clock::UnixMillis;
use keyraft_engine::codec;
use keyraft_engine::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, EnvelopeContent, GroupId,
    KeyAlgorithm, Mechanism, ObjectClass,
};
use keyraft_engine::doors;
use keyraft_engine::envelope::{EnvelopeKey, EnvelopeKeys, seal_bytes};
use keyraft_engine::limits::FRAME_MAX_BYTES;
use keyraft_engine::token::is_public_key;
use keyraft_engine::virtual_slot::template::{self as plans, Brought, History};
use keyraft_engine::virtual_slot::{Traits, pin, sealed, ticket as tickets, visible};
use keyraft_engine::wire::{ClientName, Role, Sealed, SessionName, Ticket};
use zeroize::Zeroizing;

/// SubjectPublicKeyInfo and PKCS#8 of one key of each kind.
fn pairs() -> [(Vec<u8>, Zeroizing<Vec<u8>>); 3] {
    let rsa = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).expect("a pair");
    let ec = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a pair");
    let ed = Ed25519KeyPair::generate().expect("a pair");
    let spki = |der: PublicKeyX509Der<'_>| der.as_ref().to_vec();
    let pkcs8 = |der: Pkcs8V1Der<'_>| Zeroizing::new(der.as_ref().to_vec());
    [
        (spki(rsa.public_key().as_der().expect("DER")), pkcs8(rsa.as_der().expect("DER"))),
        (
            spki(ec.public_key().as_der().expect("DER")),
            Zeroizing::new(ec.to_pkcs8v1().expect("DER").as_ref().to_vec()),
        ),
        (
            spki(ed.public_key().as_der().expect("DER")),
            Zeroizing::new(ed.to_pkcs8v1().expect("DER").as_ref().to_vec()),
        ),
    ]
}

#[test]
fn public_keys_in_der() {
    let seeds = pairs().into_iter().map(|(public, _)| public).collect();
    fuzz(seeds, |der| {
        let kinds = KeyAlgorithm::promised().into_iter().filter(|kind| is_public_key(der, *kind)).count();
        assert!(kinds <= 1, "a key of {kinds} kinds");
        doors::public_key(der)
    });
}

#[test]
fn private_keys_in_der() {
    fuzz(pairs().into_iter().map(|(_, private)| private.to_vec()).collect(), doors::private_key);
}

#[test]
fn names_of_objects_in_tokens() {
    let names = ["kr1:0102030405060708:77.2.3", "kr1:0102030405060708:smk.1", "kr1:transport", "kr1:canary"];
    fuzz(names.map(|name| name.as_bytes().to_vec()).into(), doors::tag);
}

/// The tests' own curve, as CKA_EC_PARAMS names it.
const P384: [u8; 7] = [6, 5, 0x2B, 0x81, 4, 0, 0x22];

/// Templates of every kind of object that applications bring in.
fn brought() -> Vec<Attributes> {
    let [(rsa, _), (ec, _), (ed, _)] = pairs();
    let of = |class: ObjectClass, key_type: u64, more: Vec<(A, V)>| {
        let named = [(A::CLASS, V::Number(class.number())), (A::KEY_TYPE, V::Number(key_type))];
        named.into_iter().chain(more).collect::<Attributes>()
    };
    let bytes = |bytes: &[u8]| V::Bytes(bytes.to_vec());
    // The last 97 bytes of a P-384 key's SubjectPublicKeyInfo are its point.
    let point = &ec[ec.len() - 97..];
    let parts = [A::MODULUS, A::PUBLIC_EXPONENT, A::PRIVATE_EXPONENT, A::PRIME_1, A::PRIME_2];
    let rest = [A::EXPONENT_1, A::EXPONENT_2, A::COEFFICIENT];
    let private_rsa = parts.into_iter().chain(rest).map(|part| (part, bytes(&[0xC1; 256]))).collect();
    let modulus = vec![(A::MODULUS, bytes(&[0xC1; 256])), (A::PUBLIC_EXPONENT, bytes(&[1, 0, 1]))];
    let curve = |more| vec![(A::EC_PARAMS, bytes(&P384)), more];
    let named_ed = vec![(A::EC_PARAMS, bytes(b"\x13\x0Cedwards25519")), (A::VALUE, bytes(&[3; 32]))];
    vec![
        of(ObjectClass::SecretKey, 0x1F, vec![(A::VALUE, bytes(&[1; 32])), (A::VALUE_LEN, V::Number(32))]),
        of(ObjectClass::PublicKey, 0x00, vec![(A::PUBLIC_KEY_INFO, bytes(&rsa))]),
        of(ObjectClass::PublicKey, 0x40, vec![(A::PUBLIC_KEY_INFO, bytes(&ed))]),
        of(ObjectClass::PublicKey, 0x00, modulus),
        of(ObjectClass::PublicKey, 0x03, curve((A::EC_POINT, bytes(point)))),
        of(ObjectClass::PrivateKey, 0x00, private_rsa),
        of(ObjectClass::PrivateKey, 0x03, curve((A::VALUE, bytes(&[1; 48])))),
        of(ObjectClass::PrivateKey, 0x40, named_ed),
    ]
}

/// True if one of the ways to make an object takes the template.
fn takes(template: &Attributes) -> bool {
    let made = match plans::create(template) {
        Ok(Brought::Plain(record)) => Some(record),
        Ok(Brought::Key(plan, _)) => Some(plans::key_record(plan, &Attributes::new(), History::Imported)),
        Err(_) => None,
    };
    if let Some(record) = &made {
        let _ = plans::copy(record, template);
        let _ = plans::change(record, template);
        let _ = (visible(record), Traits::of(record));
    }
    let generated = KeyAlgorithm::promised().map(KeyAlgorithm::generator).into_iter().any(|mechanism| {
        plans::generate(mechanism, template).is_ok()
            | plans::generate_pair(mechanism, template, template).is_ok()
    });
    let unwrapped = plans::coming(template, Some(&V::Template(template.clone())), None);
    made.is_some() | generated | unwrapped.is_ok()
}

#[test]
fn templates_of_applications() {
    fuzz(brought().iter().map(bytes).collect(), |bytes| {
        codec::decode::<Attributes>(bytes, FRAME_MAX_BYTES).is_ok_and(|template| takes(&template))
    });
}

#[test]
fn mechanisms_of_applications() {
    fuzz(mechanisms().iter().map(bytes).collect(), reads::<Mechanism>);
}

fn keys() -> EnvelopeKeys {
    let mut keys = EnvelopeKeys::default();
    keys.insert(GENERATION, EnvelopeKey::from_bytes([4; 32]));
    keys
}

#[test]
fn tickets_of_logins() {
    let (keys, now) = (keys(), UnixMillis(1_000));
    let who = ClientName("uid:5".into());
    let good = tickets::make(&keys, ticket().client, &who, Role::User, 1, now).expect("makes");
    fuzz(vec![bytes(&good)], |bytes| {
        let Ok(ticket) = codec::decode::<Ticket>(bytes, FRAME_MAX_BYTES) else { return false };
        let accepted = tickets::check_made(&keys, &ticket, &who, now).is_ok();
        assert_eq!(accepted, ticket == good, "another ticket passes");
        reads::<Ticket>(bytes)
    });
}

#[test]
fn hashes_of_pins() {
    let hash = pin::hash(&secret(b"1234"), [7; 16]).expect("hashes");
    fuzz(vec![hash.0.into_bytes()], |bytes| doors::pin_hash(&String::from_utf8_lossy(bytes)));
}

#[test]
fn contents_of_envelopes() {
    fuzz(vec![bytes(&content())], reads::<EnvelopeContent>);
}

/// What stands inside is hostile, although the envelope opens.
#[test]
fn session_objects_that_open() {
    let (keys, group, name) = (keys(), GroupId([1; 8]), SessionName([2; 16]));
    let context = [&b"keyraft session object"[..], &group.0, &name.0].concat();
    let contents = brought().into_iter().map(|attributes| EnvelopeContent {
        record: AttributeRecord { class: ObjectClass::PrivateKey, algorithm: None, attributes },
        wrapped: None,
    });
    let seeds = contents.chain([content()]).map(|content| bytes(&content)).collect();
    fuzz(seeds, |clear| {
        let (generation, key) = keys.current().expect("there is a key");
        let Ok(envelope) = seal_bytes(key, &context, clear, [3; 12]) else { return false };
        let opened = sealed::open(&keys, group, name, &Sealed { generation, envelope });
        let Ok(content) = opened else { return false };
        let _ = (visible(&content.record), Traits::of(&content.record));
        let _ = plans::copy(&content.record, &template());
        true
    });
}
