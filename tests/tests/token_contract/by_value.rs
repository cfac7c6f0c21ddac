//! Kinds that SoftHSM cannot unwrap, in a group that lets them go by value.

use crate::bench::{
    Bench, G1, Group, PIN, SOFTHSM, asked, case, group, name, public_record, record, sign, signing, verdict,
};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use aws_lc_rs::{hmac, signature};
use cryptoki::context::Pkcs11;
use cryptoki::object::{Attribute, AttributeType as Asked, ObjectClass as Class};
use cryptoki::session::UserType;
use cryptoki::types::AuthPin;
use keyraft_engine::domain::{
    AttributeType as A, AttributeValue as V, Curve, EnvelopeContent, KeyAlgorithm, Mechanism, ObjectClass,
    ObjectId, Parameters, WrapAlgorithm,
};
use keyraft_engine::token::{Originated, Sending, Token, TokenVerdict, UsedKey};
use keyraft_engine::wire::{SessionName, UseKind};
use std::sync::Arc;

const DATA: &[u8; 32] = b"thirty-two bytes to be signed...";
const VALUE: &[u8; 21] = b"twenty-one bytes long";
const ODD: KeyAlgorithm = KeyAlgorithm::ODD_SECRET;
const ED: KeyAlgorithm = KeyAlgorithm::Ed25519;

/// What a group of these members sends by value.
fn sending(tokens: &[Token]) -> Sending {
    let in_memory = tokens.iter().flat_map(|t| t.profile().carries_in_memory.iter().copied()).collect();
    Sending { generation: G1, in_memory }
}

/// RFC 8410.
fn ed25519_spki(point: &[u8]) -> Vec<u8> {
    [&[0x30, 0x2A, 0x30, 5, 6, 3, 0x2B, 0x65, 0x70, 3, 0x21, 0], point].concat()
}

fn goes_by_value(made: &Originated, bytes: usize) {
    let wrapped = made.wrapped.as_ref().expect("a value");
    assert_eq!((wrapped.algorithm, wrapped.bytes.len()), (WrapAlgorithm::InEnvelope, bytes));
    assert!(!made.facts.contains_key(&A::VALUE), "applications read the facts");
    let shown = format!("{made:?}");
    assert!(!shown.contains(&format!("{:?}", wrapped.bytes)), "{shown}");
}

/// What every token makes of one key: the same.
async fn made_by_all(tokens: &[Token], object: u64, kind: KeyAlgorithm, made: &Originated) -> Vec<u8> {
    let record = record(kind, &asked(kind), made);
    let mechanism = if kind == ED { signing(ED).expect("signs") } else { Mechanism::plain(0x221) };
    let mut all = Vec::new();
    for token in tokens {
        for _ in 0..2 {
            token.import(name(object), &record, made.wrapped.as_ref()).await.expect("an import");
        }
        all.push(sign(token, object, &mechanism, DATA).await.expect("a signature or MAC"));
        // The same as a session object.
        let content = EnvelopeContent { record: record.clone(), wrapped: made.wrapped.clone() };
        let session = SessionName((object + 1000).to_be_bytes().repeat(2).try_into().expect("16 bytes"));
        let guest = UsedKey::Session { name: session, content: Some((G1, Arc::new(content))) };
        let again =
            token.operate(guest, &UseKind::Sign, &mechanism, DATA).await.expect("by a session object");
        assert_eq!(Some(&*again), all.last());
    }
    let first = all.remove(0);
    assert!(all.iter().all(|other| *other == first), "{kind} differs");
    first
}

case!(what_softhsm_cannot_unwrap_is_equal_on_every_token, |bench: Bench| async move {
    let Group { tokens, .. } = group(bench.all()).await;
    for token in &tokens {
        let soft = token.profile().identity.manufacturer.contains("SoftHSM");
        let expected = if soft { vec![ODD, ED] } else { Vec::new() };
        assert_eq!(token.profile().carries_in_memory.iter().copied().collect::<Vec<_>>(), expected);
    }
    let sending = sending(&tokens);
    let mut object = 0;
    for maker in &tokens {
        object += 10;
        let made = maker.originate(sending.clone(), ED, &asked(ED)).await.expect("an Ed25519 pair");
        goes_by_value(&made, 32);
        let signature = made_by_all(&tokens, object, ED, &made).await;
        let public = public_record(ED, &made);
        let Some(V::Bytes(spki)) = public.attributes.get(&A::PUBLIC_KEY_INFO) else { panic!("{public:?}") };
        let outside = signature::UnparsedPublicKey::new(&signature::ED25519, &spki[spki.len() - 32..]);
        outside.verify(DATA, &signature).expect("it verifies outside all tokens");

        let pair = Ed25519KeyPair::generate().expect("a pair");
        let value = pair.to_pkcs8v1().expect("PKCS#8");
        let made = maker.originate_value(sending.clone(), ED, &asked(ED), value.as_ref()).await;
        let made = made.expect("a pair by value");
        goes_by_value(&made, 32);
        assert_eq!(made_by_all(&tokens, object + 1, ED, &made).await, pair.sign(DATA).as_ref());
        let told = V::Bytes(ed25519_spki(pair.public_key().as_ref()));
        assert_eq!(made.facts.get(&A::PUBLIC_KEY_INFO), Some(&told));

        let made = maker.originate(sending.clone(), ODD, &asked(ODD)).await.expect("a secret");
        goes_by_value(&made, 21);
        made_by_all(&tokens, object + 2, ODD, &made).await;
        let made = maker.originate_value(sending.clone(), ODD, &asked(ODD), VALUE).await.expect("a secret");
        goes_by_value(&made, 21);
        let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, VALUE), DATA);
        assert_eq!(made_by_all(&tokens, object + 3, ODD, &made).await, expected.as_ref());

        // Lengths that prove nothing by their use, and one that needs no such way.
        for bytes in [1, 19] {
            let kind = KeyAlgorithm::GenericSecret { bytes };
            let made = maker.originate(sending.clone(), kind, &asked(kind)).await.expect("a short secret");
            goes_by_value(&made, bytes.into());
        }
        let even = KeyAlgorithm::GenericSecret { bytes: 24 };
        let made = maker.originate(sending.clone(), even, &asked(even)).await.expect("a secret");
        assert_eq!(made.wrapped.expect("a blob").algorithm, WrapAlgorithm::Rfc5649);

        let wrong = maker.originate_value(sending.clone(), ODD, &asked(ODD), &VALUE[1..]).await;
        assert!(matches!(verdict(wrong), TokenVerdict::Caller(_)));
    }
    // Not extractable for those who use it, whatever it is wrapped by.
    let aes = KeyAlgorithm::Aes { bits: 256 };
    let made = tokens[0].originate(G1, aes, &asked(aes)).await.expect("a wrapping key");
    for token in &tokens {
        let record = record(aes, &asked(aes), &made);
        token.import(name(1), &record, made.wrapped.as_ref()).await.expect("an import");
        for mechanism in [0x2109, 0x210A, 0x210B] {
            let (by, key) = (UsedKey::Agreed(ObjectId(1)), UsedKey::Agreed(ObjectId(12)));
            token.wrap_key(&Mechanism::plain(mechanism), by, key).await.expect_err("it stays");
        }
    }
    let before = tokens[0].inventory().await.expect("an inventory").ours.len();
    assert_eq!(before, 17);
    stay_hidden(before);
    for token in tokens {
        assert_eq!(token.inventory().await.expect("an inventory").half_written, 0);
        token.close().await;
    }
});

/// Looks into the SoftHSM token beside the one that holds its keys.
fn stay_hidden(expected: usize) {
    let module = Pkcs11::new(SOFTHSM).expect("SoftHSM loads");
    // This process uses it already, and is logged in.
    let slots = module.get_slots_with_initialized_token().expect("slots");
    let label = |slot| module.get_token_info(slot).expect("a token").label().to_string();
    let slot = slots.into_iter().find(|slot| label(*slot) == "soft-token").expect("the token");
    let session = module.open_ro_session(slot).expect("a session");
    // Tells only that.
    let _ = session.login(UserType::User, Some(&AuthPin::new(PIN.into())));
    let mut seen = 0;
    for class in [Class::PRIVATE_KEY, Class::SECRET_KEY] {
        let found = session.find_objects(&[Attribute::Class(class)]).expect("a search");
        for object in found {
            let read = session.get_attributes(object, &[Asked::Sensitive, Asked::Extractable, Asked::Value]);
            let read = read.expect("attributes");
            assert_eq!(read, [Attribute::Sensitive(true), Attribute::Extractable(false)]);
            seen += 1;
        }
    }
    assert!(seen > expected, "the group's keys and the member's own: {seen}");
}

case!(what_is_unwrapped_or_derived_goes_by_value_too, |bench: Bench| async move {
    let Group { tokens, .. } = group(bench.all()).await;
    let sending = sending(&tokens);
    let rsa = KeyAlgorithm::Rsa { bits: 2048 };
    let p256 = KeyAlgorithm::Ec(Curve::P256);
    let pair = tokens[0].originate(G1, rsa, &asked(rsa)).await.expect("an RSA pair");
    let base = tokens[0].originate(G1, p256, &asked(p256)).await.expect("an EC pair");
    for token in &tokens {
        for (object, kind, made) in [(1, rsa, &pair), (2, p256, &base)] {
            let record = record(kind, &asked(kind), made);
            token.import(name(object), &record, made.wrapped.as_ref()).await.expect("an import");
        }
    }
    let public = UsedKey::Public(Arc::new(public_record(rsa, &pair)));
    let pkcs1 = Mechanism::plain(0x01);
    let sealed = tokens[0].operate(public, &UseKind::Encrypt, &pkcs1, VALUE).await.expect("RSA");
    let peer = PrivateKey::generate(&ECDH_P256).expect("a peer");
    let public = peer.compute_public_key().expect("its public key").as_ref().to_vec();
    let parameters = Parameters::Ecdh { kdf: 1, shared: Vec::new(), public };
    let ecdh = Mechanism { number: 0x1050, parameters };
    let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, VALUE), DATA);
    let mut derived = Vec::new();
    for (turn, maker) in (0u64..).zip(&tokens) {
        let (class, by, wishes) = (ObjectClass::SecretKey, UsedKey::Agreed(ObjectId(1)), asked(ODD));
        let made = maker.originate_unwrapped(sending.clone(), &pkcs1, by, &sealed, class, 0x10, &wishes);
        let (kind, made) = made.await.expect("an unwrapped secret");
        assert_eq!(kind, ODD);
        goes_by_value(&made, 21);
        assert_eq!(made_by_all(&tokens, 10 + turn, ODD, &made).await, expected.as_ref());

        let by = UsedKey::Agreed(ObjectId(2));
        let made = maker.originate_derived(sending.clone(), &ecdh, by, 0x10, Some(21), &asked(ODD)).await;
        let (kind, made) = made.expect("a derived secret");
        assert_eq!(kind, ODD);
        goes_by_value(&made, 21);
        derived.push((maker.profile().identity.manufacturer.clone(), made.wrapped.clone()));
        made_by_all(&tokens, 20 + turn, ODD, &made).await;
    }
    // Tokens differ in which end of an agreement they cut off; each is true to itself.
    for (one, other) in [(0, 2), (1, 3)] {
        assert_eq!(derived[one], derived[other]);
    }
    for token in tokens {
        assert_eq!(token.inventory().await.expect("an inventory").half_written, 0);
        token.close().await;
    }
});
