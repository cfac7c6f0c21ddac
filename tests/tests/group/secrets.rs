//! A sensitive value that was brought in is nowhere in the clear: not in stores, tokens' files, logs, or on the wire.

use keyraft_engine::codec;
use keyraft_engine::domain::{
    AttributeRecord, AttributeType, AttributeValue, EnvelopeContent, KeyAlgorithm, ObjectClass,
    WrapAlgorithm, WrappedKey,
};
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::group::write_private;
use keyraft_tests::search::Needles;
use keyraft_tests::wire::{Capture, Traffic};
use keyraft_tests::{Group, root, turn};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

#[tokio::test]
async fn an_imported_value_is_found_nowhere() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, SoftHsm, Embedded]).await;
    let value: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(73) ^ 0xA5);
    let needles = Needles::of(&value);
    // The search itself, and what a member would write if it did not seal.
    let attributes = [(AttributeType::VALUE, AttributeValue::Bytes(value.to_vec()))].into();
    let class = ObjectClass::SecretKey;
    let record = AttributeRecord { class, algorithm: Some(KeyAlgorithm::Aes { bits: 256 }), attributes };
    let unsealed = codec::encode(&EnvelopeContent { record, wrapped: None }).expect("encodes");
    assert_eq!(needles.find(&unsealed), Some("raw"));

    let capture = root("capturing loopback traffic").then(Capture::begin);
    import(&group, "aes:256", &value, &needles).await;
    group.wait_in_sync().await;
    if let Some(capture) = capture {
        let traffic = capture.end();
        assert!(traffic.bytes() > 10_000, "the members talked: {} bytes", traffic.bytes());
        assert_eq!(shown_by(&traffic, &needles), (None, None), "on the wire");
        let control = Capture::begin();
        send_in_clear(&[&value]);
        let whole = shown_by(&control.end(), &needles);
        assert_eq!(whole, (Some("raw"), Some("raw")), "the capture sees what is sent in the clear");
        let control = Capture::begin();
        send_in_clear(&[&value[..9], &value[9..]]);
        let split = shown_by(&control.end(), &needles);
        assert_eq!(split, (None, Some("raw")), "what two frames share is seen in their stream alone");
    }

    let nowhere = |when: &str| {
        let found = needles.find_below(&group.path(""));
        assert!(found.hits.is_empty(), "{when}: {:?}", found.hits);
        assert!(found.files > 10 && found.bytes > 10_000, "{when}: {found:?}");
    };
    nowhere("while the members run");
    for index in 0..group.members.len() {
        group.stop(index).await;
    }
    let found = needles.find_below(&group.path(""));
    assert!(found.hits.is_empty(), "after the members have stopped: {:?}", found.hits);

    write_private(
        &group.path("a/data/control"),
        &format!("before {} after", data_encoding::BASE64.encode(&value)),
    );
    assert_eq!(
        needles.find_below(&group.path("")).hits.len(),
        1,
        "the search finds a file written on purpose"
    );
}

/// What no wrapping carries to SoftHSM lies by value in its envelope.
#[tokio::test]
async fn a_value_that_passes_through_memory_is_found_nowhere() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, SoftHsm]).await;
    group.json(0, &["option", "set", "allow_inmemory_import", "true"]).await;
    let secret: [u8; 33] = std::array::from_fn(|i| (i as u8).wrapping_mul(57) ^ 0x3C);
    let seed: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(91) ^ 0x69);
    let pkcs8 =
        [&[0x30, 0x2E, 2, 1, 0, 0x30, 5, 6, 3, 0x2B, 0x65, 0x70, 4, 0x22, 4, 0x20][..], &seed].concat();
    let bytes = WrappedKey { algorithm: WrapAlgorithm::InEnvelope, bytes: seed.to_vec() };
    let all = [Needles::of(&secret), Needles::of(&seed)];
    assert_eq!(all[1].find(&codec::encode(&bytes).expect("encodes")), Some("raw"));
    let capture = root("capturing loopback traffic").then(Capture::begin);
    import(&group, "secret:33", &secret, &all[0]).await;
    import(&group, "ed25519", &pkcs8, &all[1]).await;
    group.wait_in_sync().await;
    // Read from the log once more, used, and shown in full.
    for index in [0, 1] {
        group.stop(index).await;
        group.start(index).await;
    }
    group.wait_in_sync().await;
    let document = group.path("document");
    write_private(&document, "a document");
    let document = document.display().to_string();
    for index in [0, 1] {
        for key in ["ed25519", "secret:33"] {
            let signed = group.run(index, &["key", "sign", key, "--in", &document]).await;
            assert!(signed.code == 0 && !signed.out.is_empty(), "{}", signed.said());
        }
    }
    if let Some(capture) = capture {
        let traffic = capture.end();
        assert!(traffic.bytes() > 10_000, "the members talked: {} bytes", traffic.bytes());
        for needles in &all {
            assert_eq!(shown_by(&traffic, needles), (None, None), "on the wire");
        }
    }
    for when in ["while the members run", "after they have stopped"] {
        for needles in &all {
            let found = needles.find_below(&group.path(""));
            assert!(found.hits.is_empty(), "{when}: {:?}", found.hits);
            assert!(found.files > 10 && found.bytes > 10_000, "{when}: {found:?}");
        }
        for index in 0..group.members.len() {
            if group.members[index].runs() {
                group.stop(index).await;
            }
        }
    }
}

/// Brings a value in from a file that goes at once, under its kind as a label.
async fn import(group: &Group, kind: &str, value: &[u8], needles: &Needles) {
    let file = group.path("value");
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private(&file, &hex);
    assert_eq!(needles.find_below(&group.path("")).hits.len(), 1, "the search finds the value's own file");
    let path = file.display().to_string();
    group.json(1, &["key", "import", kind, "--label", kind, "--encoding", "hex", "--in", &path]).await;
    fs::remove_file(&file).expect("is removed");
    let shown = group.json(0, &["key", "show", kind]).await;
    assert_eq!(needles.find(shown.to_string().as_bytes()), None, "{shown}");
}

/// How the value shows in single frames, and in streams.
fn shown_by(traffic: &Traffic, needles: &Needles) -> (Option<&'static str>, Option<&'static str>) {
    let streams = traffic.streams();
    let frames = traffic.frames.iter().find_map(|frame| needles.find(frame));
    (frames, streams.iter().find_map(|stream| needles.find(stream)))
}

/// Sends pieces, each in a frame of its own, over a loopback connection that nothing protects.
fn send_in_clear(pieces: &[&[u8]]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let mut sender = TcpStream::connect(listener.local_addr().expect("has an address")).expect("connects");
    sender.set_nodelay(true).expect("sends at once");
    let (mut receiver, _) = listener.accept().expect("accepts");
    for piece in pieces {
        sender.write_all(piece).expect("sends");
        receiver.read_exact(&mut vec![0; piece.len()]).expect("receives");
    }
}
