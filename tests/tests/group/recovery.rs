//! All tokens are lost. What is left is the offline recovery key, what `keyraft status --json` said of it once, and a
//! copy of one member's store: that is enough to have every key back, without any token and without keyraft running.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrapPadded};
use aws_lc_rs::rsa::{KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, PrivateDecryptingKey};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use data_encoding::BASE64;
use keyraft_engine::consensus::store::Store;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, ContentKey, Curve, Generation, GroupId, KeyAlgorithm, ObjectId,
};
use keyraft_engine::envelope::{self, EnvelopeKey};
use keyraft_engine::state::command::FIRST_VERSION;
use keyraft_node::text;
use keyraft_storage::Storage;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::group::write_private;
use keyraft_tests::keys::{create_at, list, show};
use keyraft_tests::{Group, turn};
use std::fs;

fn new_key() -> PrivateDecryptingKey {
    PrivateDecryptingKey::generate(KeySize::Rsa3072).expect("makes a key")
}

/// Opens what was wrapped to a recovery key; None if it is another one's.
fn open(key: &PrivateDecryptingKey, text: &serde_json::Value) -> Option<[u8; 32]> {
    let wrapped = BASE64.decode(text.as_str().expect("is text").as_bytes()).expect("is base64");
    let key = OaepPrivateDecryptingKey::new(key.clone()).expect("is a key");
    let mut clear = vec![0; key.min_output_size()];
    let clear = key.decrypt(&OAEP_SHA1_MGF1SHA1, &wrapped, &mut clear, None).ok()?;
    Some(<[u8; 32]>::try_from(&*clear).expect("SMK and envelope key have 32 bytes"))
}

/// What recovery has of one group.
struct Left {
    group: GroupId,
    store: Storage,
    smk: [u8; 32],
    envelope_key: EnvelopeKey,
}

impl Left {
    /// The clear value of a key: PKCS#8 for a private one.
    fn value(&self, object: ObjectId) -> Vec<u8> {
        let name = ContentKey { object, version: FIRST_VERSION, generation: Generation(1) };
        let sealed = self.store.store.content(name).expect("the store reads").expect("the store holds it");
        let content = envelope::open(&self.envelope_key, self.group, name, &sealed).expect("opens");
        let wrapped = content.wrapped.expect("is wrapped").bytes.clone();
        let kek = AesKek::new(&AES_256, &self.smk).expect("is a key");
        let mut clear = vec![0; wrapped.len()];
        kek.unwrap_with_padding(&wrapped, &mut clear).expect("the SMK opens it").to_vec()
    }
}

#[tokio::test]
async fn the_offline_key_brings_every_key_back_without_a_token() {
    let _turn = turn().await;
    for kind in [Embedded, SoftHsm] {
        let (offline, another) = (new_key(), new_key());
        let public: PublicKeyX509Der = offline.public_key().as_der().expect("has a public half");
        let mut group = Group::prepare(&[kind]);
        let pem = group.path("recovery.pem");
        write_private(&pem, &text::to_pem("PUBLIC KEY", public.as_ref()));
        group.begin_with(&["--recovery-key", &pem.display().to_string()]).await;

        let value: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(41) ^ 0x3C);
        let file = group.path("value");
        write_private(&file, &text::hex(&value));
        let file = file.display().to_string();
        group
            .json(0, &["key", "import", "aes:256", "--label", "known", "--encoding", "hex", "--in", &file])
            .await;
        let socket = &group.members[0].socket;
        let pair = create_at(socket, "pair", KeyAlgorithm::Ec(Curve::P256)).await.expect("is made");
        let known = list(socket).await.iter().find(|row| keyraft_tests::keys::label(row) == "known").cloned();
        let known = known.expect("is listed").object;
        let public_row = show(socket, pair.public().expect("has a public half")).await;
        let status = group.json(0, &["status"]).await;
        let id = group.status(0).await.group;

        group.stop(0).await;
        let token = group.members[0].token(kind);
        fs::remove_dir_all(&token).expect("the token is lost");

        let [recovery] = status["recovery"].as_array().expect("is a list").as_slice() else {
            panic!("one generation: {status}");
        };
        assert_eq!(recovery["generation"], 1);
        assert_eq!(recovery["recipient"], BASE64.encode(public.as_ref()));
        assert_eq!(open(&another, &recovery["smk"]), None, "another key opens nothing");
        assert_eq!(open(&another, &recovery["envelope_key"]), None, "another key opens nothing");
        let left = Left {
            group: id,
            store: Storage::open(&group.members[0].data()).expect("the store opens"),
            smk: open(&offline, &recovery["smk"]).expect("the SMK opens"),
            envelope_key: EnvelopeKey::from_bytes(
                open(&offline, &recovery["envelope_key"]).expect("the envelope key opens"),
            ),
        };
        assert_eq!(left.value(known), value);
        let private = left.value(pair.inner());
        let private = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &private).expect("is a key");
        let Some(AttributeValue::Bytes(point)) = public_row.attributes.get(&AttributeType::EC_POINT) else {
            panic!("has a point: {public_row:?}");
        };
        assert!(point.ends_with(private.public_key().as_ref()), "it is the pair's private half");
    }
}

#[tokio::test]
async fn a_group_without_an_offline_key_says_so() {
    let _turn = turn().await;
    let mut group = Group::prepare(&[Embedded]);
    let so_pin = group.path("so-pin").display().to_string();
    let begun = group.run(0, &["init", "--create-token", "--so-pin-file", &so_pin]).await;
    assert_eq!(begun.code, 0, "{}", begun.said());
    assert!(begun.err.contains("no --recovery-key was named"), "{}", begun.said());
    group.start(0).await;
    assert_eq!(group.json(0, &["status"]).await["recovery"], serde_json::json!([]));
}
