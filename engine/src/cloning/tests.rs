//! The handshake as a pair of sides in one process: what must succeed, what must be refused, and where.

use super::*;
use crate::domain::{Fingerprint, Generation, GroupId, MemberId};
use crate::envelope::EnvelopeKey;
use crate::state::InviteId;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;
use zeroize::Zeroizing;

const GROUP: GroupId = GroupId(*b"group 01");
const JOINER: MemberId = MemberId(4);
const JOINER_NONCE: Nonce = Nonce([0x11; 32]);
const MEMBER_NONCE: Nonce = Nonce([0x22; 32]);
/// Stretched once: it is dear by design.
static KEY: LazyLock<DomainKey> = LazyLock::new(|| domain("payments", b"sixteen bytes ok").key(GROUP));

fn domain(name: &str, secret: &[u8]) -> Domain {
    Domain::new(name, Zeroizing::new(secret.to_vec())).expect("a domain")
}

fn card() -> JoinerFacts {
    JoinerFacts { group: GROUP, transport_key: vec![0xAA; 20], tls: Fingerprint([0xBB; 32]) }
}

fn facts() -> MemberFacts {
    MemberFacts { group: GROUP, member: MemberId(1), transport_key: vec![0xCC; 20] }
}

fn secrets() -> Secrets {
    let generation = |number: u32| GenerationSecrets {
        generation: Generation(number),
        wrapped_smk: vec![number as u8; 32],
        envelope_key: EnvelopeKey::from_bytes([0x40 + number as u8; 32]),
        self_blob: vec![0x50; 40],
    };
    Secrets { generations: vec![generation(1), generation(2)] }
}

/// A full exchange; each message passes through `tamper` with its number on the way.
fn exchange(
    joiner: DomainKey,
    member: DomainKey,
    tamper: impl Fn(usize, &mut Vec<u8>),
) -> Result<Secrets, (Side, HandshakeError)> {
    let at = |side: Side| move |error| (side, error);
    let (expect_challenge, mut hello) =
        JoinerHello::begin(joiner, card(), JOINER_NONCE).map_err(at(Side::Joiner))?;
    tamper(0, &mut hello);
    let expect_hello = ExpectHello::new(member, facts()).map_err(at(Side::Member))?;
    let (expect_proof, mut challenge) =
        expect_hello.receive(&hello, &card(), MEMBER_NONCE).map_err(at(Side::Member))?;
    tamper(1, &mut challenge);
    let (expect_delivery, mut proof) = expect_challenge.receive(&challenge).map_err(at(Side::Joiner))?;
    tamper(2, &mut proof);
    let proven = expect_proof.receive(&proof).map_err(at(Side::Member))?;
    assert_eq!(proven.joiner(), &card());
    let mut sealed = proven.seal(&secrets(), JOINER, [7; 12]).map_err(at(Side::Member))?;
    tamper(3, &mut sealed);
    expect_delivery.open(&sealed, GROUP, JOINER).map_err(at(Side::Joiner))
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Side {
    Joiner,
    Member,
}

fn messages() -> [Vec<u8>; 4] {
    let seen = std::cell::RefCell::new(<[Vec<u8>; 4]>::default());
    exchange(KEY.clone(), KEY.clone(), |number, bytes| seen.borrow_mut()[number] = bytes.clone())
        .expect("untouched");
    seen.into_inner()
}

#[test]
fn an_untouched_exchange_delivers_every_generation() {
    let got = exchange(KEY.clone(), KEY.clone(), |_, _| ()).expect("delivered");
    for (got, sent) in got.generations.iter().zip(secrets().generations) {
        assert_eq!(got.generation, sent.generation);
        assert_eq!(got.wrapped_smk, sent.wrapped_smk);
        assert_eq!(got.envelope_key.expose(), sent.envelope_key.expose());
        assert_eq!(got.self_blob, sent.self_blob);
    }
    assert_eq!(got.generations.len(), 2);
}

#[test]
fn frozen_vectors() {
    assert_eq!(HEXLOWER.encode(KEY.key.as_slice()), DOMAIN_KEY);
    let digests = messages().map(|message| HEXLOWER.encode(&Sha256::digest(message)[..8]));
    assert_eq!(digests, MESSAGES);
}

/// argon2id v1.3, 19 MiB, 2 passes, 1 lane, salt SHA-256("keyraft/domain/1" || group || name).
const DOMAIN_KEY: &str = "3f0eb741b4ef57f66138f02b45d10c132385b4e53a5ffe976980152802fafe46";
/// SHA-256 of each message, first 8 bytes. Key and messages were computed by a second implementation, in Python.
const MESSAGES: [&str; 4] = ["45bbe4d2962e34a5", "1d58c9e22aac62fd", "c5855bb1c16d6181", "20e3dd68fc42ab0f"];

#[test]
fn another_secret_is_refused_by_the_member_before_anything_is_given() {
    let other = domain("payments", b"another secret, long").key(GROUP);
    let refused = exchange(other.clone(), KEY.clone(), |_, _| ()).expect_err("refused");
    assert_eq!(refused, (Side::Member, HandshakeError::NotProved));
    let refused = exchange(KEY.clone(), other, |_, _| ()).expect_err("refused");
    assert_eq!(refused, (Side::Member, HandshakeError::NotProved));
}

#[test]
fn another_name_or_group_is_refused() {
    let named = domain("other", b"sixteen bytes ok").key(GROUP);
    let refused = exchange(named, KEY.clone(), |_, _| ()).expect_err("refused");
    assert!(matches!(refused, (Side::Member, HandshakeError::OtherDomain { .. })));
    let foreign = domain("payments", b"sixteen bytes ok").key(GroupId([0; 8]));
    let refused = exchange(foreign, KEY.clone(), |_, _| ()).expect_err("refused");
    assert_eq!(refused, (Side::Joiner, HandshakeError::OtherGroup));
}

#[test]
fn every_altered_bit_of_every_message_is_refused() {
    for (number, message) in messages().iter().enumerate() {
        for bit in 0..message.len() * 8 {
            let refused = exchange(KEY.clone(), KEY.clone(), |at, bytes| {
                if at == number {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            });
            let (side, _) = refused.expect_err(&format!("message {number}, bit {bit}"));
            // Only an altered delivery is found by the joiner alone; before that the member finds it, or the
            // joiner cannot read the challenge. Either way no secret has moved.
            assert!(number != 3 || side == Side::Joiner);
            assert!(number == 1 || number == 3 || side == Side::Member);
        }
    }
}

#[test]
fn every_cut_or_lengthened_message_is_refused() {
    for (number, message) in messages().iter().enumerate() {
        for len in (0..message.len()).chain([message.len() + 1]) {
            let refused = exchange(KEY.clone(), KEY.clone(), |at, bytes| {
                if at == number {
                    bytes.resize(len, 0);
                }
            });
            assert!(refused.is_err(), "message {number} cut to {len}");
        }
    }
}

#[test]
fn a_replayed_message_meets_a_fresh_nonce() {
    let [hello, challenge, proof, sealed] = messages();
    // Old hello and proof against a member that draws a new nonce.
    let member = ExpectHello::new(KEY.clone(), facts()).expect("ready");
    let (expect_proof, _) = member.receive(&hello, &card(), Nonce([0x33; 32])).expect("challenges");
    assert_eq!(expect_proof.receive(&proof).err(), Some(HandshakeError::NotProved));
    // Old challenge and delivery against a joiner that draws a new nonce.
    let (joiner, _) = JoinerHello::begin(KEY.clone(), card(), Nonce([0x44; 32])).expect("hello");
    let (expect_delivery, _) = joiner.receive(&challenge).expect("proves");
    assert_eq!(expect_delivery.open(&sealed, GROUP, JOINER).err(), Some(HandshakeError::NotForUs));
}

#[test]
fn a_reflected_message_is_refused() {
    let [hello, challenge, proof, _] = messages();
    let joiner = || JoinerHello::begin(KEY.clone(), card(), JOINER_NONCE).expect("hello").0;
    assert_eq!(joiner().receive(&hello).err(), Some(HandshakeError::OutOfOrder));
    assert_eq!(joiner().receive(&proof).err(), Some(HandshakeError::OutOfOrder));
    let member = || ExpectHello::new(KEY.clone(), facts()).expect("ready");
    let at = |bytes: &[u8]| member().receive(bytes, &card(), MEMBER_NONCE);
    assert_eq!(at(&challenge).err(), Some(HandshakeError::OutOfOrder));
    let (expect_proof, own) = at(&hello).expect("challenges");
    assert_eq!(expect_proof.receive(&own).err(), Some(HandshakeError::OutOfOrder));
    // A challenge that carries our own nonce or key back.
    let mirrored = MemberFacts { transport_key: card().transport_key, ..facts() };
    let mirror = ExpectHello::new(KEY.clone(), mirrored).expect("ready");
    assert_eq!(mirror.receive(&hello, &card(), MEMBER_NONCE).err(), Some(HandshakeError::Reflected));
    let echo = message::Message::Challenge { facts: facts(), nonce: JOINER_NONCE }.encode().expect("encodes");
    assert_eq!(joiner().receive(&echo).err(), Some(HandshakeError::Reflected));
    // The joiner's proof sent back as the delivery.
    let (expect_delivery, proof) = joiner().receive(&challenge).expect("proves");
    assert!(expect_delivery.open(&proof, GROUP, JOINER).is_err());
}

#[test]
fn a_delivery_opens_only_for_the_id_and_group_it_was_sealed_for() {
    let [_, challenge, _, sealed] = messages();
    let joiner = || {
        let (joiner, _) = JoinerHello::begin(KEY.clone(), card(), JOINER_NONCE).expect("hello");
        joiner.receive(&challenge).expect("proves").0
    };
    assert_eq!(joiner().member(), MemberId(1));
    assert!(joiner().open(&sealed, GROUP, JOINER).is_ok());
    assert_eq!(joiner().open(&sealed, GROUP, MemberId(5)).err(), Some(HandshakeError::NotForUs));
    assert_eq!(joiner().open(&sealed, GROUP, MemberId(1)).err(), Some(HandshakeError::NotForUs));
    assert_eq!(joiner().open(&sealed, GroupId([0; 8]), JOINER).err(), Some(HandshakeError::OtherGroup));
}

#[test]
fn the_hello_must_agree_with_the_card() {
    let [hello, ..] = messages();
    let cards = [
        JoinerFacts { transport_key: vec![1; 20], ..card() },
        JoinerFacts { tls: Fingerprint([0; 32]), ..card() },
    ];
    for other in cards {
        let member = ExpectHello::new(KEY.clone(), facts()).expect("ready");
        assert_eq!(member.receive(&hello, &other, MEMBER_NONCE).err(), Some(HandshakeError::NotTheCard));
    }
}

#[test]
fn domains_have_bounds_and_are_not_printed() {
    let short = Domain::new("d", Zeroizing::new(vec![0; 15])).err();
    assert_eq!(short, Some(HandshakeError::SecretLength { len: 15 }));
    assert_eq!(Domain::new("", Zeroizing::new(vec![0; 16])).err(), Some(HandshakeError::DomainName));
    let printed = format!("{:?} {:?} {:?}", domain("d", b"sixteen bytes ok"), *KEY, secrets());
    assert_eq!(
        printed,
        "Domain(\"d\", ..) DomainKey(\"payments\", 67726f7570203031, ..) Secrets(2 generations)"
    );
}

#[test]
fn too_much_is_not_sealed() {
    let seal = |secrets: &Secrets| {
        let (_, hello) = JoinerHello::begin(KEY.clone(), card(), JOINER_NONCE).expect("hello");
        let member = ExpectHello::new(KEY.clone(), facts()).expect("ready");
        let (expect_proof, challenge) = member.receive(&hello, &card(), MEMBER_NONCE).expect("challenges");
        let (joiner, _) = JoinerHello::begin(KEY.clone(), card(), JOINER_NONCE).expect("hello");
        let (_, proof) = joiner.receive(&challenge).expect("proves");
        expect_proof.receive(&proof).expect("proven").seal(secrets, JOINER, [0; 12])
    };
    assert_eq!(seal(&Secrets { generations: vec![] }).err(), Some(HandshakeError::TooMuch(0)));
    let mut twice = secrets();
    twice.generations[1].generation = Generation(1);
    assert!(matches!(seal(&twice).err(), Some(HandshakeError::FieldLength(_))));
    let mut long = secrets();
    long.generations[1].self_blob = vec![0; 2000];
    assert!(matches!(seal(&long).err(), Some(HandshakeError::FieldLength(_))));
}

fn invitation() -> Invitation {
    Invitation {
        group: GROUP,
        addresses: vec!["127.0.0.1:7100".into()],
        authority: Fingerprint([9; 32]),
        id: InviteId([3; 8]),
        secret: Zeroizing::new([5; 32]),
    }
}

#[test]
fn invitations_survive_being_typed() {
    let text = invitation().to_text().expect("prints");
    assert_eq!(*text, INVITATION);
    for typed in [text.to_string(), text.to_uppercase(), format!("  {}\n", *text)] {
        let parsed = Invitation::parse(&typed).expect("parses");
        assert_eq!(
            (parsed.group, parsed.id, parsed.authority),
            (GROUP, InviteId([3; 8]), Fingerprint([9; 32]))
        );
        assert_eq!(parsed.secret_hash(), invitation().secret_hash());
        assert_eq!(parsed.addresses, invitation().addresses);
    }
    for at in 4..text.len() {
        let mut typed = text.to_string().into_bytes();
        typed[at] = if typed[at] == b'a' { b'b' } else { b'a' };
        let typed = String::from_utf8(typed).expect("ascii");
        assert_eq!(Invitation::parse(&typed).err(), Some(InvitationError::Mistyped), "letter {at}");
        assert!(Invitation::parse(&text[..at]).is_err());
    }
    for text in ["", "kr", "kr2-aaaa", "ключ"] {
        assert_eq!(Invitation::parse(text).err(), Some(InvitationError::NotOne));
    }
    assert_eq!(
        Invitation { addresses: vec![], ..invitation() }.to_text().err(),
        Some(InvitationError::Addresses)
    );
    assert_eq!(format!("{:?}", invitation()), "Invitation(67726f7570203031, 0303030303030303, ..)");
}

const INVITATION: &str = "kr1-aftxe33voaqdamibbyytenzogaxdalrrhi3tcmbqbeeqscijbeeqscijbeeqscijbeeqscijbeeqscijbeeqscijbeeqgaydambqgaydaucqkbifaucqkbifaucqkbifaucqkbifaucqkbifaucqkbifaucq5dfnh4";

#[test]
fn an_invitation_is_proved_for_one_hello() {
    let hash = invitation().secret_hash();
    let proof = invite_proof(&[5; 32], b"hello");
    assert!(verify_invite_proof(&hash, b"hello", &proof));
    assert!(!verify_invite_proof(&hash, b"hellp", &proof));
    assert!(!verify_invite_proof(&[0; 32], b"hello", &proof));
    assert!(!verify_invite_proof(&hash, b"hello", &invite_proof(&[6; 32], b"hello")));
    // Whoever has read the hash from the agreed state cannot make a proof of it.
    assert!(!verify_invite_proof(&hash, b"hello", &invite_proof(&hash, b"hello")));
    for len in 0..proof.len() {
        assert!(!verify_invite_proof(&hash, b"hello", &proof[..len]));
    }
    for bit in 0..proof.len() * 8 {
        let mut altered = proof.to_vec();
        altered[bit / 8] ^= 1 << (bit % 8);
        assert!(!verify_invite_proof(&hash, b"hello", &altered));
    }
}
