//! A sensitive value that was brought in is nowhere in the clear: not in stores, tokens' files, logs, or on the wire.

use keyraft_engine::codec;
use keyraft_engine::domain::{
    AttributeRecord, AttributeType, AttributeValue, EnvelopeContent, KeyAlgorithm, ObjectClass,
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

    let file = group.path("value");
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private(&file, &hex);
    assert_eq!(needles.find_below(&group.path("")).hits.len(), 1, "the search finds the value's own file");
    let shown = file.display().to_string();
    let capture = root("capturing loopback traffic").then(Capture::begin);
    group
        .json(1, &["key", "import", "aes:256", "--label", "known", "--encoding", "hex", "--in", &shown])
        .await;
    fs::remove_file(&file).expect("is removed");
    let shown = group.json(0, &["key", "show", "known"]).await;
    assert_eq!(needles.find(shown.to_string().as_bytes()), None, "{shown}");
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
