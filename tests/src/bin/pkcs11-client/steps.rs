//! What Rust programs do by the cryptoki crate.

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::Error;
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::elliptic_curve::{EcKdf, Ecdh1DeriveParams};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsOaepParams, PkcsOaepSource, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;
use keyraft_engine::clock::Clock;
use std::time::Duration;

const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];
const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];
const DATA: &[u8] = b"what is signed and sealed";
const HASH: [u8; 32] = [7; 32];

/// Steps fail with words for people.
type Outcome = Result<(), String>;

fn words(error: Error) -> String {
    error.to_string()
}

fn check(right: bool, what: &str) -> Outcome {
    if right { Ok(()) } else { Err(what.into()) }
}

/// A step and its name.
type Step = (&'static str, fn(&Token) -> Outcome);

struct Token {
    library: Pkcs11,
    session: Session,
}

fn open(module: &str, label: &str, pin: &str) -> Result<Token, Error> {
    let library = Pkcs11::new(module)?;
    library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))?;
    for slot in library.get_slots_with_token()? {
        if library.get_token_info(slot)?.label() == label {
            let session = library.open_rw_session(slot)?;
            session.login(UserType::User, Some(&AuthPin::new(pin.into())))?;
            return Ok(Token { library, session });
        }
    }
    Err(Error::NotSupported)
}

/// Every step once: `ok NAME` or `failed NAME: why`.
pub fn steps(module: &str, label: &str, pin: &str) -> Outcome {
    let token = open(module, label, pin).map_err(words)?;
    let all: &[Step] = &[
        ("mechanisms and their sizes", mechanisms),
        ("RSA, PKCS#1, whole and in parts", rsa),
        ("RSA, PSS with SHA-256", pss),
        ("RSA, OAEP with SHA-1", |t| oaep(t, MechanismType::SHA1, PkcsMgfType::MGF1_SHA1)),
        ("RSA, OAEP with SHA-256", |t| oaep(t, MechanismType::SHA256, PkcsMgfType::MGF1_SHA256)),
        ("ECDSA P-256", |t| ecdsa(t, P256)),
        ("ECDSA P-384", |t| ecdsa(t, P384)),
        ("ECDSA P-521", |t| ecdsa(t, P521)),
        ("ECDSA with SHA-256, whole and in parts", ecdsa_hashed),
        ("Ed25519", ed25519),
        ("ECDH", ecdh),
        ("AES-CBC-PAD, whole and in parts", cbc_pad),
        ("AES-ECB and AES-CBC", blocks),
        ("AES-GCM", gcm),
        ("HMAC-SHA256", hmac),
        ("AES-CMAC", cmac),
        ("digests, whole and in parts", digests),
        ("random", random),
        ("wrap and unwrap", wrapping),
        ("attributes", attributes),
        ("find", find),
        ("copy and destroy", copy),
        ("data object", data),
    ];
    for (name, step) in all {
        match step(&token) {
            Ok(()) => println!("ok {name}"),
            Err(why) => println!("failed {name}: {}", why.replace('\n', " ")),
        }
    }
    Ok(())
}

/// The same few things over and over; the first failure ends it.
pub fn rounds(module: &str, label: &str, pin: &str, seconds: u64) -> Outcome {
    let token = open(module, label, pin).map_err(words)?;
    let end = Clock.now() + Duration::from_secs(seconds);
    let (public, private) = ec(&token, P256, true, "rust-kept").map_err(words)?;
    let kept = aes(&token, 32, false, "rust-session").map_err(words)?;
    let sealed = token.session.encrypt(&Mechanism::AesEcb, kept, &[3; 32]).map_err(words)?;
    let mut rounds = 0_u32;
    while Clock.now() < end {
        let at = |what: &'static str| move |error: Error| format!("round {rounds}, {what}: {error}");
        let signature = token.session.sign(&Mechanism::Ecdsa, private, &HASH).map_err(at("sign"))?;
        token.session.verify(&Mechanism::Ecdsa, public, &HASH, &signature).map_err(at("verify"))?;
        let again = token.session.encrypt(&Mechanism::AesEcb, kept, &[3; 32]).map_err(at("session key"))?;
        check(again == sealed, "the session key is another one")?;
        let label = format!("rust-round-{rounds}");
        let fresh = aes(&token, 16, true, &label).map_err(at("create"))?;
        let by_label = [Attribute::Label(label.into_bytes())];
        let found = token.session.find_objects(&by_label).map_err(at("find"))?;
        check(found == [fresh], &format!("round {rounds}: found {found:?}, made {fresh:?}"))?;
        token.session.destroy_object(fresh).map_err(at("destroy"))?;
        let found = token.session.find_objects(&by_label).map_err(at("find"))?;
        check(found.is_empty(), &format!("round {rounds}: found {found:?}, which was destroyed"))?;
        rounds += 1;
    }
    println!("{rounds} rounds");
    Ok(())
}

fn ec(token: &Token, curve: &[u8], stored: bool, label: &str) -> Result<(ObjectHandle, ObjectHandle), Error> {
    let public = [
        Attribute::Token(stored),
        Attribute::Verify(true),
        Attribute::EcParams(curve.into()),
        Attribute::Label(label.into()),
    ];
    let private = [
        Attribute::Token(stored),
        Attribute::Sign(true),
        Attribute::Derive(true),
        Attribute::Label(label.into()),
    ];
    token.session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private)
}

fn rsa_pair(token: &Token) -> Result<(ObjectHandle, ObjectHandle), Error> {
    let public = [
        Attribute::Verify(true),
        Attribute::Encrypt(true),
        Attribute::Wrap(true),
        Attribute::ModulusBits(2048.into()),
        Attribute::PublicExponent(vec![1, 0, 1]),
    ];
    let private = [Attribute::Sign(true), Attribute::Decrypt(true), Attribute::Unwrap(true)];
    token.session.generate_key_pair(&Mechanism::RsaPkcsKeyPairGen, &public, &private)
}

fn aes(token: &Token, bytes: u64, stored: bool, label: &str) -> Result<ObjectHandle, Error> {
    let template = [
        Attribute::Token(stored),
        Attribute::ValueLen(bytes.into()),
        Attribute::Encrypt(true),
        Attribute::Decrypt(true),
        Attribute::Sign(true),
        Attribute::Verify(true),
        Attribute::Wrap(true),
        Attribute::Unwrap(true),
        Attribute::Extractable(true),
        Attribute::Label(label.into()),
    ];
    token.session.generate_key(&Mechanism::AesKeyGen, &template)
}

fn mechanisms(token: &Token) -> Outcome {
    let slot = token.session.get_session_info().map_err(words)?.slot_id();
    let list = token.library.get_mechanism_list(slot).map_err(words)?;
    for mechanism in list.iter().copied() {
        token.library.get_mechanism_info(slot, mechanism).map_err(words)?;
    }
    check(list.contains(&MechanismType::ECDSA), "no ECDSA")
}

fn sign_both_ways(
    token: &Token,
    mechanism: &Mechanism<'_>,
    public: ObjectHandle,
    private: ObjectHandle,
) -> Outcome {
    let session = &token.session;
    let signature = session.sign(mechanism, private, DATA).map_err(words)?;
    session.verify(mechanism, public, DATA, &signature).map_err(words)?;
    check(
        session.verify(mechanism, public, b"something else", &signature).is_err(),
        "other data is verified",
    )?;
    session.sign_init(mechanism, private).map_err(words)?;
    session.sign_update(&DATA[..3]).map_err(words)?;
    session.sign_update(&DATA[3..]).map_err(words)?;
    let signature = session.sign_final().map_err(words)?;
    session.verify_init(mechanism, public).map_err(words)?;
    session.verify_update(&DATA[..9]).map_err(words)?;
    session.verify_update(&DATA[9..]).map_err(words)?;
    session.verify_final(&signature).map_err(words)
}

fn rsa(token: &Token) -> Outcome {
    let (public, private) = rsa_pair(token).map_err(words)?;
    sign_both_ways(token, &Mechanism::Sha256RsaPkcs, public, private)?;
    sign_both_ways(token, &Mechanism::Sha512RsaPkcs, public, private)?;
    let sealed = token.session.encrypt(&Mechanism::RsaPkcs, public, DATA).map_err(words)?;
    check(
        token.session.decrypt(&Mechanism::RsaPkcs, private, &sealed).map_err(words)? == DATA,
        "decrypts otherwise",
    )
}

fn pss(token: &Token) -> Outcome {
    let (public, private) = rsa_pair(token).map_err(words)?;
    let parameters =
        PkcsPssParams { hash_alg: MechanismType::SHA256, mgf: PkcsMgfType::MGF1_SHA256, s_len: 32.into() };
    sign_both_ways(token, &Mechanism::Sha256RsaPkcsPss(parameters), public, private)?;
    let raw = Mechanism::RsaPkcsPss(parameters);
    let signature = token.session.sign(&raw, private, &HASH).map_err(words)?;
    token.session.verify(&raw, public, &HASH, &signature).map_err(words)
}

fn oaep(token: &Token, hash: MechanismType, mgf: PkcsMgfType) -> Outcome {
    let (public, private) = rsa_pair(token).map_err(words)?;
    let mechanism = Mechanism::RsaPkcsOaep(PkcsOaepParams::new(hash, mgf, PkcsOaepSource::empty()));
    let sealed = token.session.encrypt(&mechanism, public, DATA).map_err(words)?;
    check(token.session.decrypt(&mechanism, private, &sealed).map_err(words)? == DATA, "decrypts otherwise")
}

fn ecdsa(token: &Token, curve: &[u8]) -> Outcome {
    let (public, private) = ec(token, curve, false, "rust-ec").map_err(words)?;
    let signature = token.session.sign(&Mechanism::Ecdsa, private, &HASH).map_err(words)?;
    token.session.verify(&Mechanism::Ecdsa, public, &HASH, &signature).map_err(words)?;
    check(
        token.session.verify(&Mechanism::Ecdsa, public, &[8; 32], &signature).is_err(),
        "another hash is verified",
    )
}

fn ecdsa_hashed(token: &Token) -> Outcome {
    let (public, private) = ec(token, P256, false, "rust-ec").map_err(words)?;
    sign_both_ways(token, &Mechanism::EcdsaSha256, public, private)
}

fn ed25519(token: &Token) -> Outcome {
    let public = [Attribute::Verify(true), Attribute::EcParams(ED25519.into())];
    let (public, private) = token
        .session
        .generate_key_pair(&Mechanism::EccEdwardsKeyPairGen, &public, &[Attribute::Sign(true)])
        .map_err(words)?;
    let mechanism = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519));
    let signature = token.session.sign(&mechanism, private, DATA).map_err(words)?;
    token.session.verify(&mechanism, public, DATA, &signature).map_err(words)
}

fn ecdh(token: &Token) -> Outcome {
    let (one_public, one) = ec(token, P256, false, "one").map_err(words)?;
    let (two_public, two) = ec(token, P256, false, "two").map_err(words)?;
    let derive = |private, public| -> Result<Vec<u8>, String> {
        let point = token.session.get_attributes(public, &[AttributeType::EcPoint]).map_err(words)?;
        let Some(Attribute::EcPoint(point)) = point.first() else { return Err("no point".into()) };
        let mechanism = Mechanism::Ecdh1Derive(Ecdh1DeriveParams::new(EcKdf::null(), point));
        let template = [
            Attribute::Class(ObjectClass::SECRET_KEY),
            Attribute::KeyType(KeyType::GENERIC_SECRET),
            Attribute::ValueLen(32.into()),
            Attribute::Sensitive(false),
            Attribute::Extractable(true),
        ];
        let key = token.session.derive_key(&mechanism, private, &template).map_err(words)?;
        match token.session.get_attributes(key, &[AttributeType::Value]).map_err(words)?.first() {
            Some(Attribute::Value(value)) => Ok(value.clone()),
            _ => Err("no value".into()),
        }
    };
    check(derive(one, two_public)? == derive(two, one_public)?, "both sides derive different secrets")
}

fn cbc_pad(token: &Token) -> Outcome {
    let key = aes(token, 32, false, "rust-aes").map_err(words)?;
    let (session, mechanism) = (&token.session, Mechanism::AesCbcPad([9; 16]));
    let sealed = session.encrypt(&mechanism, key, DATA).map_err(words)?;
    check(session.decrypt(&mechanism, key, &sealed).map_err(words)? == DATA, "decrypts otherwise")?;
    session.encrypt_init(&mechanism, key).map_err(words)?;
    let mut parts = session.encrypt_update(&DATA[..5]).map_err(words)?;
    parts.extend(session.encrypt_update(&DATA[5..]).map_err(words)?);
    parts.extend(session.encrypt_final().map_err(words)?);
    check(parts == sealed, "the parts are sealed otherwise")?;
    session.decrypt_init(&mechanism, key).map_err(words)?;
    let mut parts = session.decrypt_update(&sealed[..7]).map_err(words)?;
    parts.extend(session.decrypt_update(&sealed[7..]).map_err(words)?);
    parts.extend(session.decrypt_final().map_err(words)?);
    check(parts == DATA, "the parts open otherwise")
}

fn blocks(token: &Token) -> Outcome {
    let key = aes(token, 16, false, "rust-aes").map_err(words)?;
    for mechanism in [Mechanism::AesEcb, Mechanism::AesCbc([4; 16])] {
        let sealed = token.session.encrypt(&mechanism, key, &[5; 64]).map_err(words)?;
        check(
            token.session.decrypt(&mechanism, key, &sealed).map_err(words)? == [5; 64],
            "decrypts otherwise",
        )?;
    }
    Ok(())
}

fn gcm(token: &Token) -> Outcome {
    let key = aes(token, 32, false, "rust-aes").map_err(words)?;
    let parameters = |iv| GcmParams::new(iv, b"beside", 128.into()).map(Mechanism::AesGcm).map_err(words);
    let mut iv = [6; 12];
    let sealed = token.session.encrypt(&parameters(&mut iv)?, key, DATA).map_err(words)?;
    let mut iv = [6; 12];
    check(
        token.session.decrypt(&parameters(&mut iv)?, key, &sealed).map_err(words)? == DATA,
        "decrypts otherwise",
    )?;
    let mut forged = sealed;
    forged[0] ^= 1;
    let mut iv = [6; 12];
    check(token.session.decrypt(&parameters(&mut iv)?, key, &forged).is_err(), "a forged text is decrypted")
}

fn hmac(token: &Token) -> Outcome {
    let template = [
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::GENERIC_SECRET),
        Attribute::Value(vec![0x0b; 32]),
        Attribute::Sign(true),
        Attribute::Verify(true),
    ];
    let key = token.session.create_object(&template).map_err(words)?;
    sign_both_ways(token, &Mechanism::Sha256Hmac, key, key)
}

fn cmac(token: &Token) -> Outcome {
    let key = aes(token, 32, false, "rust-aes").map_err(words)?;
    let mac = token.session.sign(&Mechanism::AesCMac, key, DATA).map_err(words)?;
    check(mac.len() == 16, "not 16 bytes")?;
    token.session.verify(&Mechanism::AesCMac, key, DATA, &mac).map_err(words)
}

fn digests(token: &Token) -> Outcome {
    for mechanism in [Mechanism::Sha1, Mechanism::Sha256, Mechanism::Sha512] {
        let whole = token.session.digest(&mechanism, DATA).map_err(words)?;
        token.session.digest_init(&mechanism).map_err(words)?;
        token.session.digest_update(&DATA[..4]).map_err(words)?;
        token.session.digest_update(&DATA[4..]).map_err(words)?;
        check(token.session.digest_final().map_err(words)? == whole, "the parts differ")?;
    }
    Ok(())
}

fn random(token: &Token) -> Outcome {
    token.session.seed_random(b"a seed").map_err(words)?;
    let one = token.session.generate_random_vec(32).map_err(words)?;
    check(one != token.session.generate_random_vec(32).map_err(words)?, "twice the same")
}

fn wrapping(token: &Token) -> Outcome {
    let wrapping = aes(token, 32, false, "rust-wraps").map_err(words)?;
    let key = aes(token, 16, false, "rust-wrapped").map_err(words)?;
    let wrapped = token.session.wrap_key(&Mechanism::AesKeyWrap, wrapping, key).map_err(words)?;
    let template = [
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::AES),
        Attribute::Decrypt(true),
    ];
    let back =
        token.session.unwrap_key(&Mechanism::AesKeyWrap, wrapping, &wrapped, &template).map_err(words)?;
    let sealed = token.session.encrypt(&Mechanism::AesEcb, key, &[1; 16]).map_err(words)?;
    check(
        token.session.decrypt(&Mechanism::AesEcb, back, &sealed).map_err(words)? == [1; 16],
        "another key came back",
    )
}

fn attributes(token: &Token) -> Outcome {
    let key = aes(token, 32, true, "rust-attributes").map_err(words)?;
    let wanted =
        [AttributeType::Label, AttributeType::Local, AttributeType::ValueLen, AttributeType::KeyGenMechanism];
    let got = token.session.get_attributes(key, &wanted).map_err(words)?;
    for right in [
        Attribute::Label(b"rust-attributes".to_vec()),
        Attribute::Local(true),
        Attribute::ValueLen(32.into()),
        Attribute::KeyGenMechanism(MechanismType::AES_KEY_GEN),
    ] {
        check(got.contains(&right), &format!("{right:?} is not among {got:?}"))?;
    }
    token.session.update_attributes(key, &[Attribute::Label(b"rust-renamed".to_vec())]).map_err(words)?;
    let found = token.session.find_objects(&[Attribute::Label(b"rust-renamed".to_vec())]).map_err(words)?;
    token.session.destroy_object(key).map_err(words)?;
    check(found == [key], "the new label does not find it")
}

fn find(token: &Token) -> Outcome {
    let keys: Result<Vec<_>, _> = (0..12).map(|n| aes(token, 16, n % 2 == 0, "rust-find")).collect();
    let mut keys = keys.map_err(words)?;
    let mut found = token.session.find_objects(&[Attribute::Label(b"rust-find".to_vec())]).map_err(words)?;
    let by = |key: &ObjectHandle| key.handle();
    keys.sort_by_key(by);
    found.sort_by_key(by);
    check(found == keys, &format!("found {found:?}, made {keys:?}"))?;
    let stored = [Attribute::Label(b"rust-find".to_vec()), Attribute::Token(true)];
    check(token.session.find_objects(&stored).map_err(words)?.len() == 6, "not six on the token")?;
    keys.into_iter().try_for_each(|key| token.session.destroy_object(key)).map_err(words)
}

fn copy(token: &Token) -> Outcome {
    let key = aes(token, 16, false, "rust-copy").map_err(words)?;
    let copied =
        token.session.copy_object(key, &[Attribute::Label(b"rust-copied".to_vec())]).map_err(words)?;
    let sealed = token.session.encrypt(&Mechanism::AesEcb, key, &[1; 16]).map_err(words)?;
    check(
        token.session.encrypt(&Mechanism::AesEcb, copied, &[1; 16]).map_err(words)? == sealed,
        "another key",
    )?;
    token.session.destroy_object(copied).map_err(words)?;
    check(token.session.encrypt(&Mechanism::AesEcb, copied, &[1; 16]).is_err(), "it is used after its end")?;
    check(token.session.encrypt(&Mechanism::AesEcb, key, &[1; 16]).is_ok(), "the first one is gone too")
}

fn data(token: &Token) -> Outcome {
    let template = [
        Attribute::Class(ObjectClass::DATA),
        Attribute::Token(true),
        Attribute::Label(b"rust-data".to_vec()),
        Attribute::Value(DATA.to_vec()),
    ];
    let object = token.session.create_object(&template).map_err(words)?;
    let value = token.session.get_attributes(object, &[AttributeType::Value]).map_err(words)?;
    token.session.destroy_object(object).map_err(words)?;
    check(value == [Attribute::Value(DATA.to_vec())], "another value")
}
