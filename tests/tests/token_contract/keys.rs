//! Keys: every kind is equal on every token, whatever way it is held.

use crate::bench::{
    Bench, G1, GROUP, Group, LeftKey, asked, case, group, name, public_record, record, sign, signing, verdict,
};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use aws_lc_rs::{hmac, rsa::KeySize};
use keyraft_engine::domain::{
    AttributeType as A, AttributeValue as V, ContentKey, Curve, KeyAlgorithm, Mechanism, ObjectId,
    Parameters, Residency, Version,
};
use keyraft_engine::token::{Originated, SmkPresence, Token, TokenVerdict};
use keyraft_engine::wire::UseKind;

const DATA: &[u8; 32] = b"thirty-two bytes to be signed...";

async fn import(token: &Token, object: u64, algorithm: KeyAlgorithm, made: &Originated) {
    let record = record(algorithm, &asked(algorithm), made);
    token.import(name(object), &record, made.wrapped.as_ref()).await.expect("an import");
}

/// What one token makes with a key, every other takes.
async fn equal_everywhere(tokens: &[&Token], object: u64, algorithm: KeyAlgorithm, made: &Originated) {
    for token in tokens {
        import(token, object, algorithm, made).await;
    }
    for maker in tokens {
        for taker in tokens {
            let id = ObjectId(object);
            if let Some(mechanism) = signing(algorithm) {
                let signature = sign(maker, object, &mechanism, DATA).await.expect("a signature");
                if algorithm.is_pair() {
                    let public = public_record(algorithm, made);
                    let verify = UseKind::Verify(signature.clone());
                    taker.use_public(&public, &verify, &mechanism, DATA).await.expect("it verifies");
                    let wrong = taker.use_public(&public, &verify, &mechanism, &[7; 32]).await;
                    assert_eq!(verdict(wrong), TokenVerdict::Caller(0xC0), "{algorithm}");
                } else {
                    let verify = UseKind::Verify(signature);
                    taker.use_key(id, &verify, &mechanism, DATA).await.expect("the MAC verifies");
                }
            }
            if matches!(algorithm, KeyAlgorithm::Aes { .. }) {
                let parameters = Parameters::Gcm { iv: vec![9; 12], aad: vec![1, 2], tag_bits: 128 };
                let gcm = Mechanism { number: 0x1087, parameters };
                let sealed = maker.use_key(id, &UseKind::Encrypt, &gcm, DATA).await.expect("it encrypts");
                let clear = taker.use_key(id, &UseKind::Decrypt, &gcm, &sealed).await.expect("it decrypts");
                assert_eq!(clear.as_slice(), DATA);
            }
            if matches!(algorithm, KeyAlgorithm::Rsa { .. }) {
                let parameters = Parameters::Oaep { hash: 0x220, mgf: 1, label: Vec::new() };
                let oaep = Mechanism { number: 9, parameters };
                let public = public_record(algorithm, made);
                let sealed = maker.use_public(&public, &UseKind::Encrypt, &oaep, DATA).await.expect("OAEP");
                let clear = taker.use_key(id, &UseKind::Decrypt, &oaep, &sealed).await.expect("OAEP back");
                assert_eq!(clear.as_slice(), DATA);
                let pss = Parameters::Pss { hash: 0x250, mgf: 2, salt_bytes: 32 };
                let pss = Mechanism { number: 0x43, parameters: pss };
                let signature = sign(maker, object, &pss, b"any length").await.expect("PSS");
                let verify = UseKind::Verify(signature);
                taker.use_public(&public, &verify, &pss, b"any length").await.expect("PSS verifies");
            }
        }
    }
    for token in tokens {
        assert_eq!(token.held_version(ObjectId(object)), Some(Version(1)));
        token.drop_object(ObjectId(object)).await.expect("a drop");
        assert_eq!(token.held_version(ObjectId(object)), None);
        let used = token.use_key(ObjectId(object), &UseKind::Sign, &Mechanism::plain(0x40), DATA).await;
        assert_eq!(verdict(used), TokenVerdict::Missing);
    }
}

case!(every_kind_is_equal_on_every_token, |bench: Bench| async move {
    let Group { tokens, .. } = group(bench.all()).await;
    let mut object = 0;
    for algorithm in KeyAlgorithm::promised() {
        let able: Vec<&Token> =
            tokens.iter().filter(|t| t.profile().can_carry(algorithm, false).is_ok()).collect();
        let embedded_alone = algorithm == KeyAlgorithm::Ed25519;
        assert_eq!(able.len(), if embedded_alone { 2 } else { 4 }, "{algorithm}");
        // Large RSA keys take seconds to make: one maker is enough for them.
        let makers =
            if matches!(algorithm, KeyAlgorithm::Rsa { bits } if bits > 2048) { 1 } else { able.len() };
        for maker in &able[..makers] {
            object += 1;
            let made = maker.originate(G1, algorithm, &asked(algorithm)).await.expect("a key");
            equal_everywhere(&able, object, algorithm, &made).await;
        }
    }
    for token in tokens {
        let left = token.inventory().await.expect("an inventory");
        assert_eq!((left.ours.len(), left.foreign, left.half_written), (0, 0, 0));
        token.close().await;
    }
});

case!(softhsm_refuses_what_it_would_change, |bench: Bench| async move {
    let configs =
        vec![bench.softhsm("soft", Residency::Token), bench.embedded("embedded", Residency::Session)];
    let Group { tokens, .. } = group(configs).await;
    let odd = KeyAlgorithm::GenericSecret { bytes: 21 };
    for refused in [odd, KeyAlgorithm::Ed25519] {
        let result = tokens[0].originate(G1, refused, &asked(refused)).await;
        assert_eq!(verdict(result), TokenVerdict::Refused, "{refused}");
    }
    // Yet SoftHSM verifies what an Ed25519 key of another member signs.
    let ed = KeyAlgorithm::Ed25519;
    let made = tokens[1].originate(G1, ed, &asked(ed)).await.expect("an Ed25519 key");
    import(&tokens[1], 2, ed, &made).await;
    let signature = sign(&tokens[1], 2, &Mechanism::plain(0x1057), DATA).await.expect("a signature");
    let verify = UseKind::Verify(signature);
    let public = public_record(ed, &made);
    tokens[0].use_public(&public, &verify, &Mechanism::plain(0x1057), DATA).await.expect("it verifies");
    // The embedded token keeps all 21 bytes: its MAC is that of the very value.
    let made =
        tokens[1].originate_value(G1, odd, &asked(odd), b"twenty-one bytes long").await.expect("a secret");
    import(&tokens[1], 1, odd, &made).await;
    let mac = sign(&tokens[1], 1, &Mechanism::plain(0x251), DATA).await.expect("a MAC");
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"twenty-one bytes long");
    assert_eq!(mac, hmac::sign(&key, DATA).as_ref());
    let refused = tokens[0].import(name(1), &record(odd, &asked(odd), &made), made.wrapped.as_ref()).await;
    assert_eq!(verdict(refused), TokenVerdict::Refused);
});

case!(secrets_of_every_length_are_carried_or_refused, |bench: Bench| async move {
    let Group { tokens, .. } = group(bench.all()).await;
    let mut object = 0;
    for bytes in [1, 7, 8, 16, 19, 20, 24, 31, 32, 33, 64, 1024] {
        let kind = KeyAlgorithm::GenericSecret { bytes };
        let able: Vec<&Token> =
            tokens.iter().filter(|t| t.profile().can_carry(kind, false).is_ok()).collect();
        assert_eq!(able.len(), if bytes % 8 == 0 { 4 } else { 2 });
        let value: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &value), DATA);
        for maker in &able {
            object += 1;
            let made = maker.originate_value(G1, kind, &asked(kind), &value).await.expect("a secret");
            for token in &able {
                import(token, object, kind, &made).await;
                // SoftHSM uses no HMAC key shorter than the hash; what it wrapped is compared by others.
                match sign(token, object, &Mechanism::plain(0x251), DATA).await {
                    Ok(mac) => assert_eq!(mac, expected.as_ref(), "{kind}"),
                    Err(error) => assert!(bytes < 32 && error.verdict() == TokenVerdict::Caller(0x62)),
                }
            }
            maker.originate(G1, kind, &asked(kind)).await.expect("a generated secret");
        }
    }
});

case!(keys_brought_in_by_value_are_those_keys, |bench: Bench| async move {
    let Group { tokens, .. } = group(bench.all()).await;
    let scheme = &aws_lc_rs::signature::ECDSA_P384_SHA384_FIXED_SIGNING;
    let ec = EcdsaKeyPair::generate(scheme).expect("an EC pair");
    let ec_value = ec.to_pkcs8v1().expect("PKCS#8");
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("an RSA pair");
    let rsa_value = rsa.as_der().expect("PKCS#8");
    let ed = Ed25519KeyPair::generate().expect("an Ed25519 pair");
    let ed_value = ed.to_pkcs8v1().expect("PKCS#8");
    let values: [(_, &[u8], _); 5] = [
        (KeyAlgorithm::Aes { bits: 192 }, &[5; 24], None),
        (KeyAlgorithm::GenericSecret { bytes: 40 }, &[6; 40], None),
        (KeyAlgorithm::Ec(Curve::P384), ec_value.as_ref(), Some(spki(ec.public_key()))),
        (KeyAlgorithm::Rsa { bits: 2048 }, rsa_value.as_ref(), Some(spki(rsa.public_key()))),
        (KeyAlgorithm::Ed25519, ed_value.as_ref(), Some(spki(ed.public_key()))),
    ];
    let mut object = 0;
    for (algorithm, value, public) in values {
        let able: Vec<&Token> =
            tokens.iter().filter(|t| t.profile().can_carry(algorithm, false).is_ok()).collect();
        for maker in &able {
            object += 1;
            let made = maker.originate_value(G1, algorithm, &asked(algorithm), value).await.expect("a key");
            if let Some(public) = &public {
                assert_eq!(
                    made.facts.get(&A::PUBLIC_KEY_INFO),
                    Some(&V::Bytes(public.clone())),
                    "{algorithm}"
                );
            }
            equal_everywhere(&able, object, algorithm, &made).await;
            let wrong = maker.originate_value(G1, algorithm, &asked(algorithm), &value[1..]).await;
            assert!(matches!(verdict(wrong), TokenVerdict::Caller(_)), "{algorithm}");
        }
    }
});

fn spki(key: &impl AsDer<PublicKeyX509Der<'static>>) -> Vec<u8> {
    key.as_der().expect("a public key in DER").as_ref().to_vec()
}

case!(readable_keys_travel_by_value, |bench: Bench| async move {
    let Group { tokens, .. } = group(bench.all()).await;
    let kinds = [
        KeyAlgorithm::Aes { bits: 256 },
        KeyAlgorithm::GenericSecret { bytes: 40 },
        KeyAlgorithm::Rsa { bits: 2048 },
        KeyAlgorithm::Ec(Curve::P256),
        KeyAlgorithm::Ec(Curve::P521),
        KeyAlgorithm::Ed25519,
    ];
    let mut object = 0;
    for algorithm in kinds {
        let able: Vec<&Token> =
            tokens.iter().filter(|t| t.profile().can_carry(algorithm, false).is_ok()).collect();
        let mut open = asked(algorithm);
        open.insert(A::SENSITIVE, V::Bool(false));
        open.insert(A::EXTRACTABLE, V::Bool(true));
        for maker in &able {
            object += 1;
            let made = maker.originate(G1, algorithm, &open).await.expect("a readable key");
            assert!(made.wrapped.is_none() && made.facts.contains_key(&A::VALUE));
            let record = record(algorithm, &open, &made);
            for token in &able {
                token.import(name(object), &record, None).await.expect("an import by value");
            }
            if let Some(mechanism) = signing(algorithm) {
                let signature = sign(maker, object, &mechanism, DATA).await.expect("a signature");
                for token in able.iter().filter(|_| algorithm.is_pair()) {
                    let public = public_record(algorithm, &made);
                    let verify = UseKind::Verify(signature.clone());
                    token.use_public(&public, &verify, &mechanism, DATA).await.expect("it verifies");
                }
            }
        }
    }
});

case!(imports_are_idempotent_and_versions_replace_each_other, |bench: Bench| async move {
    for config in bench.all() {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        let kind = KeyAlgorithm::Ec(Curve::P256);
        let made = token.originate(G1, kind, &asked(kind)).await.expect("a key");
        for _ in 0..3 {
            import(token, 7, kind, &made).await;
        }
        let second = ContentKey { version: Version(2), ..name(7) };
        let record = record(kind, &asked(kind), &made);
        token.import(second, &record, made.wrapped.as_ref()).await.expect("a second version");
        assert_eq!(token.held().into_iter().collect::<Vec<_>>(), [(ObjectId(7), Version(2))]);
        assert_eq!(token.inventory().await.expect("an inventory").ours, [second]);
        // A damaged blob is refused and changes nothing.
        let mut bad = made.wrapped.clone().expect("a blob");
        bad.bytes[20] ^= 1;
        let third = ContentKey { version: Version(3), ..second };
        assert_eq!(verdict(token.import(third, &record, Some(&bad)).await), TokenVerdict::Refused);
        assert_eq!(token.inventory().await.expect("an inventory").ours, [second]);
        sign(token, 7, &Mechanism::plain(0x1041), DATA).await.expect("version 2 is still of use");
        token.canary().await.expect("the token is well");
        for _ in 0..2 {
            token.drop_object(ObjectId(7)).await.expect("dropping twice is harmless");
        }
        assert!(token.inventory().await.expect("an inventory").ours.is_empty());
        for token in tokens {
            token.close().await;
        }
    }
});

case!(errors_say_whose_fault_they_are, |bench: Bench| async move {
    for config in bench.all() {
        let Group { tokens, .. } = group(vec![config]).await;
        let token = &tokens[0];
        let aes = KeyAlgorithm::Aes { bits: 256 };
        let made = token.originate(G1, aes, &asked(aes)).await.expect("a key");
        import(token, 1, aes, &made).await;
        let cbc = Mechanism { number: 0x1082, parameters: Parameters::Bytes(vec![0; 16]) };
        let bad = [
            (UseKind::Encrypt, cbc.clone(), 15),
            (UseKind::Encrypt, Mechanism::plain(0x7777), 16),
            (UseKind::Sign, Mechanism::plain(0x251), 16),
        ];
        for (kind, mechanism, length) in bad {
            let result = token.use_key(ObjectId(1), &kind, &mechanism, &vec![0; length]).await;
            assert!(matches!(verdict(result), TokenVerdict::Caller(_)), "{mechanism:?}");
            // The session that failed is not used again.
            token.use_key(ObjectId(1), &UseKind::Encrypt, &cbc, &[0; 16]).await.expect("the next use works");
        }
        let parameters = Parameters::Gcm { iv: vec![9; 12], aad: Vec::new(), tag_bits: 128 };
        let gcm = Mechanism { number: 0x1087, parameters };
        let forged = token.use_key(ObjectId(1), &UseKind::Decrypt, &gcm, &[0; 40]).await;
        assert!(matches!(verdict(forged), TokenVerdict::Caller(_)), "a forged ciphertext is no broken token");
        let long = vec![0; keyraft_engine::limits::OPERATION_DATA_MAX_BYTES + 1];
        let long = token.use_key(ObjectId(1), &UseKind::Encrypt, &cbc, &long).await;
        assert_eq!(verdict(long), TokenVerdict::Limit);
        for token in tokens {
            token.close().await;
        }
    }
});

/// What the first process leaves for the second.
#[derive(serde::Serialize, serde::Deserialize)]
struct Left {
    self_blob: Vec<u8>,
    keys: Vec<LeftKey>,
}

const KINDS: [KeyAlgorithm; 5] = [
    KeyAlgorithm::Aes { bits: 256 },
    KeyAlgorithm::GenericSecret { bytes: 32 },
    KeyAlgorithm::Rsa { bits: 2048 },
    KeyAlgorithm::Ec(Curve::P256),
    KeyAlgorithm::Ec(Curve::P521),
];

case!(a_new_process_finds_what_was_left, |bench: Bench| async move {
    if !bench.folder.join("left-3").exists() {
        for (number, config) in bench.all().into_iter().enumerate() {
            let Group { tokens, self_blob } = group(vec![config]).await;
            let mut keys = Vec::new();
            for (object, kind) in (1..).zip(KINDS) {
                let made = tokens[0].originate(G1, kind, &asked(kind)).await.expect("a key");
                import(&tokens[0], object, kind, &made).await;
                keys.push(LeftKey::new(object, kind, made));
            }
            let left = serde_json::to_vec(&Left { self_blob, keys }).expect("JSON");
            std::fs::write(bench.folder.join(format!("left-{number}")), left).expect("a file");
        }
        let again = crate::bench::spawn("keys::a_new_process_finds_what_was_left", &bench.folder).wait();
        assert!(again.expect("a second process").success());
        return;
    }
    for (number, config) in bench.all().into_iter().enumerate() {
        let left = std::fs::read(bench.folder.join(format!("left-{number}"))).expect("a file");
        let left: Left = serde_json::from_slice(&left).expect("JSON");
        let resident = config.residency == Some(Residency::Token);
        let token = Token::open(config).expect("the token opens again");
        assert!(token.held().is_empty(), "nothing is known before the group is");
        token.bind(GROUP);
        // Token-resident keys are found, unverified; session-resident ones are gone with their process.
        let found = if resident { Some(Version(0)) } else { None };
        for object in 1..=5 {
            assert_eq!(token.held_version(ObjectId(object)), found);
        }
        assert_eq!(token.has_smk(G1, &left.self_blob).await.expect("an answer"), SmkPresence::Present);
        for key in left.keys {
            key.import(&token).await;
            assert_eq!(token.held_version(ObjectId(key.object)), Some(Version(1)));
        }
        let ours = token.inventory().await.expect("an inventory").ours;
        assert_eq!(ours, (1..=5).map(name).collect::<Vec<_>>(), "no key twice");
        token.close().await;
    }
});
