//! What applications do with keys: session objects, wrapping, unwrapping, derivation, random numbers.

use crate::bench::{Bench, G1, Group, asked, case, group, name, public_record, record, verdict};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::{digest, hkdf, hmac};
use keyraft_engine::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, Curve, EnvelopeContent,
    KeyAlgorithm, Mechanism, ObjectClass, ObjectId, Parameters, Residency,
};
use keyraft_engine::limits;
use keyraft_engine::token::{Originated, Token, TokenConfig, TokenError, TokenVerdict, UsedKey};
use keyraft_engine::wire::{SessionName, UseKind};
use std::sync::Arc;

const DATA: &[u8; 32] = b"thirty-two bytes to be signed...";
const AES: KeyAlgorithm = KeyAlgorithm::Aes { bits: 256 };
const P256: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P256);
const P384: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P384);
const P521: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P521);
const SECRET: KeyAlgorithm = KeyAlgorithm::GenericSecret { bytes: 32 };
const RSA: KeyAlgorithm = KeyAlgorithm::Rsa { bits: 2048 };
const ECB: u64 = 0x1081;
const HMAC: u64 = 0x251;

fn both(bench: &Bench) -> [TokenConfig; 2] {
    [bench.softhsm("soft", Residency::Token), bench.embedded("embedded", Residency::Session)]
}

/// As [`asked`], and free to leave.
fn extractable(algorithm: KeyAlgorithm) -> Attributes {
    let mut attributes = asked(algorithm);
    attributes.insert(A::EXTRACTABLE, V::Bool(true));
    attributes
}

/// The session object that a new key makes.
fn session_key(number: u64, algorithm: KeyAlgorithm, asked: &Attributes, made: &Originated) -> UsedKey {
    let content = EnvelopeContent { record: record(algorithm, asked, made), wrapped: made.wrapped.clone() };
    UsedKey::Session { name: session(number), content: Some((G1, Arc::new(content))) }
}

fn session(number: u64) -> SessionName {
    SessionName(u128::from(number).to_be_bytes())
}

/// A session object by its name alone.
fn by_name(number: u64) -> UsedKey {
    UsedKey::Session { name: session(number), content: None }
}

async fn encrypt(token: &Token, key: UsedKey) -> Result<Vec<u8>, TokenError> {
    token.operate(key, &UseKind::Encrypt, &Mechanism::plain(ECB), DATA).await.map(|out| out.to_vec())
}

async fn mac(token: &Token, key: UsedKey) -> Vec<u8> {
    let made = token.operate(key, &UseKind::Sign, &Mechanism::plain(HMAC), DATA).await;
    made.expect("a MAC").to_vec()
}

fn knows(token: &Token, mechanism: u64) -> bool {
    token.profile().mechanisms.iter().any(|info| info.number == mechanism)
}

case!(session_objects_are_kept_put_out_and_made_again, |bench: Bench| async move {
    for config in both(&bench) {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        let made = token.originate(G1, AES, &asked(AES)).await.expect("a key");
        let whole = session_key(1, AES, &asked(AES), &made);
        assert!(!token.knows_session(session(1)));
        let unknown = encrypt(token, by_name(1)).await;
        assert!(matches!(unknown, Err(TokenError::UnknownSession)), "{unknown:?}");
        assert_eq!(verdict(unknown), TokenVerdict::Missing);
        let first = encrypt(token, whole.clone()).await.expect("made and used");
        assert!(token.knows_session(session(1)));
        assert_eq!(encrypt(token, by_name(1)).await.expect("by its name"), first);
        // As many others as may be: the one that is used meanwhile stays, the other goes.
        let second = session_key(2, AES, &asked(AES), &made);
        encrypt(token, second.clone()).await.expect("a second one");
        for number in 3..=limits::SESSION_OBJECTS_MAX as u64 + 1 {
            encrypt(token, session_key(number, AES, &asked(AES), &made)).await.expect("another one");
            encrypt(token, by_name(1)).await.expect("still there");
        }
        assert!(!token.knows_session(session(2)), "the longest unused one went");
        assert!(encrypt(token, by_name(2)).await.is_err());
        assert_eq!(encrypt(token, second).await.expect("made again"), first);
        assert!(!token.knows_session(session(3)) && token.knows_session(session(1)));
        assert!(token.held().is_empty(), "session objects are none of the group's");
        let found = token.inventory().await.expect("an inventory");
        assert_eq!((found.ours.len(), found.foreign, found.half_written), (0, 0, 0));
        for token in tokens {
            token.close().await;
        }
    }
});

case!(session_objects_of_every_kind_work, |bench: Bench| async move {
    for config in both(&bench) {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        // A readable secret goes by its value.
        let mut readable = extractable(SECRET);
        readable.insert(A::SENSITIVE, V::Bool(false));
        let made = token.originate_value(G1, SECRET, &readable, DATA).await.expect("a secret");
        let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, DATA), DATA);
        assert_eq!(mac(token, session_key(1, SECRET, &readable, &made)).await, expected.as_ref());
        // A pair, both halves as session objects; and the public half as a record, again and again.
        for (number, kind, mechanism) in [(10, P256, 0x1041), (20, RSA, 0x40)] {
            let made = token.originate(G1, kind, &asked(kind)).await.expect("a pair");
            let private = session_key(number, kind, &asked(kind), &made);
            let mechanism = Mechanism::plain(mechanism);
            let signature = token.operate(private, &UseKind::Sign, &mechanism, DATA).await;
            let verify = UseKind::Verify(signature.expect("a signature").to_vec());
            let public = Arc::new(EnvelopeContent { record: public_record(kind, &made), wrapped: None });
            let of_session = UsedKey::Session { name: session(number + 1), content: Some((G1, public)) };
            let of_record = UsedKey::Public(Arc::new(public_record(kind, &made)));
            for key in [of_session, by_name(number + 1), of_record.clone(), of_record] {
                token.operate(key.clone(), &verify, &mechanism, DATA).await.expect("it verifies");
                let wrong =
                    token.operate(key, &verify, &mechanism, b"other bytes, thirty-two of them.").await;
                assert_eq!(verdict(wrong), TokenVerdict::Caller(0xC0));
            }
        }
        for token in tokens {
            token.close().await;
        }
    }
});

/// Uses a key as its kind can be used, so that equal keys give equal answers or verify each other's.
async fn is_same(token: &Token, algorithm: KeyAlgorithm, made: &Originated, one: UsedKey, other: UsedKey) {
    match algorithm {
        KeyAlgorithm::Aes { .. } => {
            let (one, other) = (encrypt(token, one).await, encrypt(token, other).await);
            assert_eq!(one.expect("a block"), other.expect("a block"));
        }
        KeyAlgorithm::GenericSecret { .. } => assert_eq!(mac(token, one).await, mac(token, other).await),
        _ => {
            let mechanism = Mechanism::plain(if matches!(algorithm, RSA) { 0x40 } else { 0x1041 });
            let signature = token.operate(other, &UseKind::Sign, &mechanism, DATA).await;
            let verify = UseKind::Verify(signature.expect("a signature").to_vec());
            let public = UsedKey::Public(Arc::new(public_record(algorithm, made)));
            token.operate(public, &verify, &mechanism, DATA).await.expect("it is the same pair");
        }
    }
}

fn class(algorithm: KeyAlgorithm) -> ObjectClass {
    if algorithm.is_pair() { ObjectClass::PrivateKey } else { ObjectClass::SecretKey }
}

case!(keys_are_wrapped_and_unwrapped_for_applications, |bench: Bench| async move {
    for config in both(&bench) {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        let made = token.originate(G1, AES, &asked(AES)).await.expect("a wrapping key");
        let made_record = record(AES, &asked(AES), &made);
        token.import(name(1), &made_record, made.wrapped.as_ref()).await.expect("an import");
        let wrapping = UsedKey::Agreed(ObjectId(1));
        let pair = token.originate(G1, RSA, &asked(RSA)).await.expect("an RSA pair");
        let mut public = public_record(RSA, &pair);
        public.attributes.insert(A::WRAP, V::Bool(true));
        let public = UsedKey::Public(Arc::new(public));
        let private = session_key(1, RSA, &asked(RSA), &pair);
        let oaep = Parameters::Oaep { hash: 0x220, mgf: 1, label: Vec::new() };
        let cbc_pad = Mechanism { number: 0x1085, parameters: Parameters::Bytes(vec![7; 16]) };
        let padded = if knows(token, 0x210B) { 0x210B } else { 0x210A };
        let mut ways = vec![
            (Mechanism::plain(0x2109), wrapping.clone(), wrapping.clone(), vec![AES, SECRET]),
            (
                Mechanism::plain(padded),
                wrapping.clone(),
                wrapping.clone(),
                vec![AES, SECRET, P256, P384, P521, RSA],
            ),
            (Mechanism::plain(0x01), public.clone(), private.clone(), vec![AES, SECRET]),
            (Mechanism { number: 0x09, parameters: oaep }, public, private, vec![AES, SECRET]),
        ];
        if knows(token, 0x210B) {
            ways.push((cbc_pad, wrapping.clone(), wrapping, vec![AES, SECRET, P256, RSA]));
        }
        let mut number = 100;
        for (mechanism, wrapping, unwrapping, kinds) in ways {
            for kind in kinds {
                let made = token.originate(G1, kind, &extractable(kind)).await.expect("a key");
                number += 2;
                let key = session_key(number, kind, &extractable(kind), &made);
                let wrapped = token.wrap_key(&mechanism, wrapping.clone(), key.clone()).await;
                let wrapped = wrapped.unwrap_or_else(|error| panic!("{kind} by {mechanism:?}: {error}"));
                let wishes = asked(kind);
                let back = token
                    .originate_unwrapped(
                        G1,
                        &mechanism,
                        unwrapping.clone(),
                        &wrapped,
                        class(kind),
                        kind.key_type(),
                        &wishes,
                    )
                    .await;
                let (found, back) = back.unwrap_or_else(|error| panic!("{kind} by {mechanism:?}: {error}"));
                assert_eq!((found, back.facts.clone()), (kind, made.facts.clone()));
                let other = session_key(number + 1, kind, &asked(kind), &back);
                is_same(token, kind, &made, key, other).await;
            }
        }
        for token in tokens {
            token.close().await;
        }
    }
});

case!(unwrapped_secrets_keep_their_length_or_are_refused, |bench: Bench| async move {
    for config in both(&bench) {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        let pair = token.originate(G1, RSA, &asked(RSA)).await.expect("an RSA pair");
        let private = session_key(1, RSA, &asked(RSA), &pair);
        let public = UsedKey::Public(Arc::new(public_record(RSA, &pair)));
        let pkcs1 = Mechanism::plain(0x01);
        for bytes in [16u16, 21, 24, 33, 64] {
            let value = vec![0xC3; usize::from(bytes)];
            let sealed = token.operate(public.clone(), &UseKind::Encrypt, &pkcs1, &value).await.expect("RSA");
            let class = ObjectClass::SecretKey;
            let made = token
                .originate_unwrapped(G1, &pkcs1, private.clone(), &sealed, class, 0x1F, &asked(AES))
                .await;
            assert_eq!(made.is_ok(), matches!(bytes, 16 | 24), "AES has no key of {bytes} bytes");
            for sensitive in [true, false] {
                let mut wishes = extractable(SECRET);
                wishes.insert(A::SENSITIVE, V::Bool(sensitive));
                let made = token
                    .originate_unwrapped(G1, &pkcs1, private.clone(), &sealed, class, 0x10, &wishes)
                    .await;
                let kind = KeyAlgorithm::GenericSecret { bytes };
                if token.profile().can_carry(kind, false).is_err() {
                    assert_eq!(verdict(made), TokenVerdict::Refused, "{bytes} bytes would become more");
                    continue;
                }
                let (found, made) = made.expect("a secret");
                assert_eq!((found, made.facts.get(&A::VALUE_LEN)), (kind, Some(&V::Number(bytes.into()))));
                let told = made.facts.get(&A::VALUE);
                assert_eq!(told, (!sensitive).then_some(&V::Bytes(value.clone())));
            }
        }
        for token in tokens {
            token.close().await;
        }
    }
});

/// A derivation's secret, readable.
async fn derived(token: &Token, mechanism: &Mechanism, base: UsedKey, bytes: u16) -> Vec<u8> {
    let mut readable = extractable(SECRET);
    readable.insert(A::SENSITIVE, V::Bool(false));
    let made =
        token.originate_derived(G1, mechanism, base, SECRET.key_type(), Some(bytes.into()), &readable).await;
    let (kind, made) = made.unwrap_or_else(|error| panic!("{mechanism:?}: {error}"));
    assert_eq!(kind, KeyAlgorithm::GenericSecret { bytes });
    match made.facts.get(&A::VALUE) {
        Some(V::Bytes(value)) => value.clone(),
        other => panic!("no value: {other:?}"),
    }
}

case!(derived_keys_are_what_they_must_be, |bench: Bench| async move {
    for config in both(&bench) {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        // ECDH against another implementation, the public value in both of its shapes.
        let made = token.originate(G1, P256, &asked(P256)).await.expect("a pair");
        let base = session_key(1, P256, &asked(P256), &made);
        let peer = PrivateKey::generate(&ECDH_P256).expect("a peer");
        let peer_public = peer.compute_public_key().expect("its public key");
        let own = match made.facts.get(&A::EC_POINT) {
            Some(V::Bytes(point)) => point[2..].to_vec(),
            other => panic!("no point: {other:?}"),
        };
        let agreed = agree(&peer, UnparsedPublicKey::new(&ECDH_P256, own), (), |secret| Ok(secret.to_vec()));
        let agreed = agreed.expect("an agreement");
        let bare = peer_public.as_ref().to_vec();
        let der = [&[0x04, 0x41][..], &bare].concat();
        let with = |kdf, shared: &[u8], public| {
            let parameters = Parameters::Ecdh { kdf, shared: shared.to_vec(), public };
            Mechanism { number: 0x1050, parameters }
        };
        let ecdh = |public| with(1, &[], public);
        for public in [bare.clone(), der] {
            assert_eq!(derived(token, &ecdh(public), base.clone(), 32).await, agreed);
        }
        // CKD_SHA256_KDF (ANSI X9.63), which SoftHSM does not have.
        let kdf = with(6, b"shared", bare.clone());
        if knows(token, 0x402A) {
            let hashed = [&agreed[..], &[0, 0, 0, 1], b"shared"].concat();
            let expected = digest::digest(&digest::SHA256, &hashed);
            assert_eq!(derived(token, &kdf, base.clone(), 32).await, expected.as_ref());
        } else {
            let refused = token.originate_derived(G1, &kdf, base.clone(), 0x10, None, &asked(SECRET)).await;
            assert_eq!(verdict(refused), TokenVerdict::Caller(0x71));
        }
        // The same, sensitive, with and without a length; and as an AES key.
        for (value_len, number) in [(None, 2), (Some(32), 3)] {
            let derived = token
                .originate_derived(G1, &ecdh(bare.clone()), base.clone(), 0x10, value_len, &asked(SECRET))
                .await;
            let (kind, secret) = derived.expect("a secret");
            assert_eq!((kind, secret.facts.get(&A::VALUE)), (SECRET, None));
            let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &agreed), DATA);
            let key = session_key(number, SECRET, &asked(SECRET), &secret);
            assert_eq!(mac(token, key).await, expected.as_ref());
        }
        let aes =
            token.originate_derived(G1, &ecdh(bare), base, 0x1F, Some(32), &asked(AES)).await.expect("a key");
        let value = token.originate_value(G1, AES, &asked(AES), &agreed).await.expect("the same key");
        assert_eq!(aes, (AES, value.clone()));
        // What AES makes of data, against its encryption; the base is an agreed key.
        let mut wishes = asked(AES);
        wishes.insert(A::DERIVE, V::Bool(true));
        let agreed_record = record(AES, &wishes, &value);
        token.import(name(9), &agreed_record, value.wrapped.as_ref()).await.expect("an import");
        let base = UsedKey::Agreed(ObjectId(9));
        let ecb = Mechanism { number: 0x1104, parameters: Parameters::StringData(DATA.to_vec()) };
        let blocks = encrypt(token, base.clone()).await.expect("two blocks");
        assert_eq!(derived(token, &ecb, base.clone(), 32).await, blocks);
        let cbc = Parameters::CbcEncryptData { iv: [9; 16], data: DATA.to_vec() };
        let cbc = Mechanism { number: 0x1105, parameters: cbc };
        let plain = Mechanism { number: 0x1082, parameters: Parameters::Bytes(vec![9; 16]) };
        let blocks = token.operate(base.clone(), &UseKind::Encrypt, &plain, DATA).await.expect("two blocks");
        assert_eq!(derived(token, &cbc, base, 32).await, blocks.to_vec());
        derivations_of_secrets(token).await;
        for token in tokens {
            token.close().await;
        }
    }
});

/// HKDF and the concatenations, where the token has them.
async fn derivations_of_secrets(token: &Token) {
    let made = token.originate_value(G1, SECRET, &asked(SECRET), DATA).await.expect("a secret");
    token.import(name(20), &record(SECRET, &asked(SECRET), &made), made.wrapped.as_ref()).await.expect("it");
    let base = UsedKey::Agreed(ObjectId(20));
    if knows(token, 0x402A) {
        let parameters = Parameters::Hkdf {
            extract: true,
            expand: true,
            hash: 0x250,
            salt: Some(b"salt".to_vec()),
            info: b"info".to_vec(),
        };
        let made = derived(token, &Mechanism { number: 0x402A, parameters }, base.clone(), 32).await;
        let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, b"salt").extract(DATA);
        let mut expected = [0; 32];
        pseudorandom
            .expand(&[b"info"], hkdf::HKDF_SHA256)
            .and_then(|expanded| expanded.fill(&mut expected))
            .expect("HKDF");
        assert_eq!(made, expected);
    }
    // What is put together from a key is as sensitive as that, and leaves no more than that does.
    let mut readable = extractable(SECRET);
    token.import(name(21), &record(SECRET, &readable, &made), made.wrapped.as_ref()).await.expect("it");
    readable.insert(A::SENSITIVE, V::Bool(false));
    let data = || Parameters::StringData(b"12345678".to_vec());
    for (number, base, parameters, expected) in [
        (0x362, 20, data(), [&DATA[..], b"12345678"].concat()),
        (0x363, 21, data(), [b"12345678", &DATA[..]].concat()),
    ] {
        if !knows(token, number) {
            continue;
        }
        let (mechanism, key) = (Mechanism { number, parameters }, UsedKey::Agreed(ObjectId(base)));
        let length = Some(expected.len() as u64);
        let made = token.originate_derived(G1, &mechanism, key, 0x10, length, &readable).await;
        let (kind, made) = made.unwrap_or_else(|error| panic!("{mechanism:?}: {error}"));
        assert_eq!(made.facts.get(&A::SENSITIVE), Some(&V::Bool(true)), "{mechanism:?}");
        assert_eq!(made.facts.get(&A::EXTRACTABLE), (base == 20).then_some(&V::Bool(false)), "{mechanism:?}");
        assert_eq!(made.facts.get(&A::VALUE), None);
        let key = session_key(number, kind, &readable, &made);
        let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &expected), DATA);
        assert_eq!(mac(token, key).await, expected.as_ref(), "{mechanism:?}");
    }
    // A second key inside a parameter is one that nobody was asked about.
    let mechanism = Mechanism { number: 0x360, parameters: Parameters::Number(21) };
    let refused = token.originate_derived(G1, &mechanism, base, 0x10, Some(64), &asked(SECRET)).await;
    assert_eq!(verdict(refused), TokenVerdict::Caller(0x71));
}

case!(random_numbers_come_from_the_token, |bench: Bench| async move {
    for config in both(&bench) {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        let (one, other) = (token.random(32).await.expect("bytes"), token.random(32).await.expect("bytes"));
        assert!(one != other && one.len() == 32);
        let most = token.random(limits::RANDOM_MAX_BYTES).await.expect("many bytes");
        assert_eq!(most.len(), limits::RANDOM_MAX_BYTES);
        assert_eq!(verdict(token.random(limits::RANDOM_MAX_BYTES + 1).await), TokenVerdict::Limit);
        for token in tokens {
            token.close().await;
        }
    }
});

case!(codes_of_callers_mistakes_come_through, |bench: Bench| async move {
    for config in both(&bench) {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        let made = token.originate(G1, AES, &asked(AES)).await.expect("a key");
        let wrapping = session_key(1, AES, &asked(AES), &made);
        let kept = session_key(2, AES, &asked(AES), &made);
        let free = session_key(3, AES, &extractable(AES), &made);
        let usages: Attributes =
            asked(AES).into_iter().filter(|(a, _)| *a != A::WRAP && *a != A::UNWRAP).collect();
        let unable = session_key(4, AES, &usages, &made);
        let wrap = Mechanism::plain(0x2109);
        let caller = |code| TokenVerdict::Caller(code);
        // Not extractable; a key without WRAP; a mechanism that there is not; a structure of another mechanism.
        let result = token.wrap_key(&wrap, wrapping.clone(), kept).await;
        assert_eq!(verdict(result), caller(0x6A));
        let result = token.wrap_key(&wrap, unable.clone(), free.clone()).await;
        // kryoptic calls it no wrapping key at all.
        assert!(matches!(verdict(result), TokenVerdict::Caller(0x68 | 0x113)));
        let result = token.wrap_key(&Mechanism::plain(0x7777), wrapping.clone(), free.clone()).await;
        assert_eq!(verdict(result), caller(0x70));
        let foreign = Mechanism { number: 0x1087, parameters: Parameters::Bytes(vec![0x41; 48]) };
        let result = token.operate(wrapping.clone(), &UseKind::Encrypt, &foreign, DATA).await;
        assert_eq!(verdict(result), caller(0x71));
        let unwrap = async |blob: &[u8], by: UsedKey, class, key_type| {
            let wishes = asked(AES);
            verdict(token.originate_unwrapped(G1, &wrap, by, blob, class, key_type, &wishes).await)
        };
        let secret = ObjectClass::SecretKey;
        // A forged blob is the caller's mistake whatever the token calls it, and the token is well.
        let forged = unwrap(&[0x55; 40], wrapping.clone(), secret, 0x1F).await;
        assert!(matches!(forged, TokenVerdict::Caller(_)));
        let result = unwrap(&[0x55; 40], unable, secret, 0x1F).await;
        assert!(matches!(result, TokenVerdict::Caller(0x68 | 0x113)), "{result:?}");
        assert_eq!(unwrap(&[0x55; 40], wrapping.clone(), secret, 0x15).await, caller(0x13));
        assert_eq!(unwrap(&[0x55; 40], wrapping.clone(), ObjectClass::PublicKey, 0).await, caller(0x13));
        assert_eq!(unwrap(&[0x55; 40], by_name(77), secret, 0x1F).await, TokenVerdict::Missing);
        let absent = unwrap(&[0x55; 40], UsedKey::Agreed(ObjectId(77)), secret, 0x1F).await;
        assert_eq!(absent, TokenVerdict::Missing);
        token.canary().await.expect("the token is well");
        encrypt(token, wrapping).await.expect("and its keys are");
        let nothing =
            AttributeRecord { class: ObjectClass::PublicKey, algorithm: None, attributes: Attributes::new() };
        let result = encrypt(token, UsedKey::Public(Arc::new(nothing))).await;
        assert_eq!(verdict(result), caller(0x07));
        for token in tokens {
            token.close().await;
        }
    }
});
