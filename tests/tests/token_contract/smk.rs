//! The SMK and the member keys: made, delivered, proved; and nothing extractable stays behind.

use crate::bench::{Bench, G1, GROUP, Group, PIN, SOFTHSM, asked, case, group, name, record, verdict};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::object::{Attribute, AttributeType, ObjectClass};
use cryptoki::session::UserType;
use keyraft_engine::domain::{Curve, Generation, GroupId, KeyAlgorithm, Residency};
use keyraft_engine::token::{ModuleSource, Pin, SlotChoice, SmkPresence, Token, TokenError, TokenVerdict};
use rsa_oaep::{decrypt, recovery_pair};

/// The recovery key outside all tokens.
mod rsa_oaep {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::{KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, PrivateDecryptingKey};

    pub fn recovery_pair() -> (PrivateDecryptingKey, Vec<u8>) {
        let private = PrivateDecryptingKey::generate(KeySize::Rsa3072).expect("an RSA pair");
        let public = private.public_key().as_der().expect("DER").as_ref().to_vec();
        (private, public)
    }

    pub fn decrypt(private: PrivateDecryptingKey, sealed: &[u8]) -> Option<Vec<u8>> {
        let key = OaepPrivateDecryptingKey::new(private).expect("OAEP");
        let mut out = vec![0; key.min_output_size()];
        key.decrypt(&OAEP_SHA1_MGF1SHA1, sealed, &mut out, None).ok().map(|clear| clear.to_vec())
    }
}

case!(the_smk_is_made_delivered_and_proved, |bench: Bench| async move {
    let configs = bench.all();
    for first in 0..configs.len() {
        let mut configs = configs.clone();
        configs.swap(0, first);
        let generation = Generation(u32::try_from(first).expect("small") + 1);
        let tokens: Vec<Token> =
            configs.into_iter().map(|c| Token::open(c).expect("the token opens")).collect();
        tokens.iter().for_each(|token| token.bind(GROUP));
        let (recovery, recovery_public) = recovery_pair();
        let made = tokens[0].create_smk(generation, Some(&recovery_public)).await.expect("an SMK");
        assert_eq!(made.self_blob.len(), 40);
        let value = decrypt(recovery, &made.recovery.expect("a recovery copy")).expect("it opens");
        assert_eq!(value.len(), 32);
        assert_eq!(
            tokens[0].has_smk(generation, &made.self_blob).await.expect("an answer"),
            SmkPresence::Present
        );
        let repeated = tokens[0].create_smk(generation, None).await;
        assert!(matches!(repeated, Err(TokenError::ForeignSmk(_))), "an SMK is never made over another");
        for pair in tokens.windows(2) {
            let (giver, taker) = (&pair[0], &pair[1]);
            assert_ne!(
                taker.has_smk(generation, &made.self_blob).await.expect("an answer"),
                SmkPresence::Present
            );
            let recipient = taker.member_keys().await.expect("member keys").transport_key;
            let wrapped =
                giver.deliver_smk(generation, &made.self_blob, &recipient).await.expect("a delivery");
            // For another, or with another blob: refused, and nothing stays.
            let mut other_blob = made.self_blob.clone();
            other_blob[9] ^= 1;
            assert!(taker.accept_smk(generation, &wrapped, &other_blob).await.is_err());
            let mut bad = wrapped.clone();
            bad[100] ^= 1;
            let refused = taker.accept_smk(generation, &bad, &made.self_blob).await;
            assert_eq!(verdict(refused), TokenVerdict::Refused);
            for _ in 0..2 {
                taker.accept_smk(generation, &wrapped, &made.self_blob).await.expect("accepted, also twice");
            }
            let smks = taker.inventory().await.expect("an inventory").smks;
            assert_eq!(smks.iter().filter(|g| **g == generation).count(), 1);
            assert_eq!(
                taker.has_smk(generation, &other_blob).await.expect("an answer"),
                SmkPresence::Foreign
            );
        }
        for token in tokens {
            token.close().await;
        }
    }
});

case!(another_groups_smk_is_foreign_and_left_alone, |bench: Bench| async move {
    for config in bench.all() {
        let Group { tokens, self_blob } = group(vec![config.clone()]).await;
        for token in tokens {
            token.close().await;
        }
        let token = Token::open(config.clone()).expect("the token opens");
        let other = GroupId([0xB2; 8]);
        token.bind(other);
        assert_eq!(token.has_smk(G1, &self_blob).await.expect("an answer"), SmkPresence::Foreign);
        let found = token.inventory().await.expect("an inventory");
        assert_eq!(found.other_groups, [(GROUP, 1)]);
        token.create_smk(G1, None).await.expect("a second group's SMK lies beside the first");
        token.close().await;
        let token = Token::open(config).expect("the token opens");
        token.bind(GROUP);
        assert_eq!(token.has_smk(G1, &self_blob).await.expect("an answer"), SmkPresence::Present);
        token.close().await;
    }
});

case!(a_folder_locked_by_one_token_opens_with_no_other, |bench: Bench| async move {
    let tokens: Vec<Token> =
        bench.all().into_iter().map(|c| Token::open(c).expect("the token opens")).collect();
    for (number, token) in tokens.iter().enumerate() {
        let locked = token.lock(&[number as u8; 190]).await.expect("it locks");
        assert_eq!(token.unlock(&locked).await.expect("it unlocks").as_slice(), [number as u8; 190]);
        let other = &tokens[(number + 1) % tokens.len()];
        other.member_keys().await.expect("member keys");
        assert_eq!(verdict(other.unlock(&locked).await), TokenVerdict::Refused);
        assert_eq!(verdict(token.lock(&[0; 191]).await), TokenVerdict::Limit);
        let keys = token.member_keys().await.expect("member keys");
        assert_eq!(keys, token.member_keys().await.expect("the same again"));
        // The transport key unwraps and never decrypts.
        let sealed = token.encrypt_to(&keys.transport_key, b"an SMK").await.expect("OAEP");
        assert!(token.unlock(&sealed).await.is_err());
    }
});

case!(an_independent_client_sees_nothing_extractable, |bench: Bench| async move {
    if !bench.folder.join("second").exists() {
        let configs = vec![bench.softhsm("one", Residency::Token), bench.softhsm("two", Residency::Session)];
        let Group { tokens, self_blob } = group(configs).await;
        for (object, kind) in (1..).zip([KeyAlgorithm::Aes { bits: 256 }, KeyAlgorithm::Ec(Curve::P256)]) {
            let made = tokens[1].originate(G1, kind, &asked(kind)).await.expect("a key");
            for token in &tokens {
                let record = record(kind, &asked(kind), &made);
                token.import(name(object), &record, made.wrapped.as_ref()).await.expect("an import");
            }
        }
        let recipient = tokens[0].member_keys().await.expect("member keys").transport_key;
        tokens[1].deliver_smk(G1, &self_blob, &recipient).await.expect("a delivery back");
        std::fs::write(bench.folder.join("second"), "").expect("a note");
        let name = "smk::an_independent_client_sees_nothing_extractable";
        assert!(crate::bench::spawn(name, &bench.folder).wait().expect("a second process").success());
        return;
    }
    let library = Pkcs11::new(SOFTHSM).expect("SoftHSM");
    library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).expect("C_Initialize");
    let mut keys = 0;
    for slot in library.get_slots_with_initialized_token().expect("slots") {
        let session = library.open_rw_session(slot).expect("a session");
        session.login(UserType::User, Some(&PIN.into())).expect("a login");
        for object in session.find_objects(&[]).expect("objects") {
            let read = |kind| session.get_attributes(object, &[kind]).expect("an attribute").pop();
            let class = read(AttributeType::Class);
            if matches!(class, Some(Attribute::Class(ObjectClass::SECRET_KEY | ObjectClass::PRIVATE_KEY))) {
                keys += 1;
                assert_eq!(read(AttributeType::Sensitive), Some(Attribute::Sensitive(true)));
                assert_eq!(read(AttributeType::Extractable), Some(Attribute::Extractable(false)));
            }
        }
    }
    // On each token an SMK, a transport key, a canary; and both keys on the one that keeps them. Unlock keys are
    // made with the transport keys.
    assert_eq!(keys, 2 * 3 + 2 + 2);
});

case!(a_second_handle_a_wrong_pin_and_a_wrong_label_are_refused, |bench: Bench| async move {
    for config in bench.all() {
        let token = Token::open(config.clone()).expect("the token opens");
        assert!(matches!(Token::open(config.clone()), Err(TokenError::InUse)));
        token.close().await;
        let wrong =
            keyraft_engine::token::TokenConfig { pin: Some(Pin::new("wrong-pin".into())), ..config.clone() };
        assert!(matches!(Token::open(wrong), Err(TokenError::WrongPin)));
        let slot = SlotChoice::Label("nowhere".into());
        let wrong = keyraft_engine::token::TokenConfig { slot, ..config.clone() };
        assert!(matches!(Token::open(wrong), Err(TokenError::NoSlot { .. })));
        let token = Token::open(config).expect("it opens again after all that");
        token.canary().await.expect("the token is well");
        token.close().await;
    }
    let source = ModuleSource::Library { path: "/nowhere/lib.so".into() };
    let pin = Pin::new(PIN.into());
    let missing = keyraft_engine::token::initialize(&source, "x", &pin, &pin);
    assert!(matches!(missing, Err(TokenError::Module { .. })));
    let full = ModuleSource::Embedded { folder: bench.folder.join("embedded-token") };
    let taken = keyraft_engine::token::initialize(&full, "x", &pin, &pin);
    assert!(matches!(taken, Err(TokenError::Exists { .. })), "a token is never overwritten");
});
