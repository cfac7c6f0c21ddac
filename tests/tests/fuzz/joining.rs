//! How a member is admitted: invitations, the handshake's messages, certificates, the identity that it keeps.

use crate::run::fuzz;
use crate::samples::bytes;
use data_encoding::BASE32_NOPAD;
use keyraft_engine::assembly::Identity;
use keyraft_engine::assembly::home::{self, LockedGeneration};
use keyraft_engine::cloning::{
    Domain, DomainKey, ExpectChallenge, ExpectDelivery, ExpectHello, ExpectProof, GenerationSecrets,
    Invitation, JoinerFacts, JoinerHello, MemberFacts, Nonce, Secrets, invite_proof, verify_invite_proof,
};
use keyraft_engine::domain::{Fingerprint, Generation, GroupId, Lineage, MemberId};
use keyraft_engine::envelope::EnvelopeKey;
use keyraft_engine::state::InviteId;
use keyraft_engine::transport::pki;
use keyraft_engine::wire::{Roster, RosterRow};
use std::os::unix::fs::PermissionsExt;
use zeroize::Zeroizing;

const GROUP: GroupId = GroupId([7; 8]);
const JOINER: MemberId = MemberId(4);

fn joiner() -> JoinerFacts {
    JoinerFacts { group: GROUP, transport_key: vec![0xAA; 20], tls: Fingerprint([0xBB; 32]) }
}

fn member() -> MemberFacts {
    MemberFacts { group: GROUP, member: MemberId(1), transport_key: vec![0xCC; 20] }
}

/// Both sides, each waiting for its next message, and the four messages that an untouched exchange has.
struct Exchange(DomainKey);

impl Exchange {
    fn hello(&self) -> (ExpectChallenge, Vec<u8>) {
        JoinerHello::begin(self.0.clone(), joiner(), Nonce([1; 32])).expect("begins")
    }

    fn expect_hello(&self) -> ExpectHello {
        ExpectHello::new(self.0.clone(), member()).expect("is ready")
    }

    fn challenge(&self) -> (ExpectProof, Vec<u8>) {
        self.expect_hello().receive(&self.hello().1, &joiner(), Nonce([2; 32])).expect("challenges")
    }

    fn proof(&self) -> (ExpectDelivery, Vec<u8>) {
        self.hello().0.receive(&self.challenge().1).expect("proves")
    }

    fn delivery(&self) -> Vec<u8> {
        let generation = GenerationSecrets {
            generation: Generation(1),
            wrapped_smk: vec![1; 384],
            envelope_key: EnvelopeKey::from_bytes([2; 32]),
            self_blob: vec![3; 40],
        };
        let secrets = Secrets { generations: vec![generation] };
        let proven = self.challenge().0.receive(&self.proof().1).expect("is proven");
        proven.seal(&secrets, JOINER, [5; 12]).expect("seals")
    }

    /// Hands a message to the side that waits for the message of this number.
    fn accepts(&self, number: u8, message: &[u8]) -> bool {
        match number {
            0 => self.expect_hello().receive(message, &joiner(), Nonce([2; 32])).is_ok(),
            1 => self.hello().0.receive(message).is_ok(),
            2 => self.challenge().0.receive(message).is_ok(),
            _ => self.proof().0.open(message, GROUP, JOINER).is_ok(),
        }
    }
}

#[test]
fn the_handshake() {
    let domain = Domain::new("home", Zeroizing::new(vec![9; 32])).expect("a domain");
    let exchange = Exchange(domain.key(GROUP));
    let messages = [exchange.hello().1, exchange.challenge().1, exchange.proof().1, exchange.delivery()];
    let seeds = (0u8..).zip(messages).map(|(number, message)| [&[number][..], &message].concat()).collect();
    fuzz(seeds, |bytes| {
        let Some((number, message)) = bytes.split_first() else { return false };
        exchange.accepts(*number, message)
    });
}

fn checksum(content: &[u8]) -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content).as_ref()[..4].to_vec()
}

#[test]
fn invitations() {
    let invitation = Invitation {
        group: GROUP,
        addresses: vec!["one:7400".into(), "[::1]:7400".into()],
        authority: Fingerprint([1; 32]),
        id: InviteId([2; 8]),
        secret: Zeroizing::new([3; 32]),
    };
    let text = invitation.to_text().expect("writes");
    // The content behind a right checksum, and the text as it is.
    fuzz(vec![bytes(&invitation), text.as_bytes().to_vec()], |bytes| {
        let body = BASE32_NOPAD.encode(&[bytes, &checksum(bytes)].concat());
        let sealed = Invitation::parse(&format!("kr1-{body}"));
        if let Ok(invitation) = &sealed {
            let text = invitation.to_text().expect("what was read can be written");
            assert!(Invitation::parse(&text).is_ok());
        }
        sealed.is_ok() | Invitation::parse(&String::from_utf8_lossy(bytes)).is_ok()
    });
}

#[test]
fn proofs_of_invitations() {
    let secret = [3; 32];
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &secret);
    let hash: [u8; 32] = hash.as_ref().try_into().expect("32 bytes");
    let good = invite_proof(&secret, b"hello").to_vec();
    fuzz(vec![good.clone()], |bytes| {
        let accepted = verify_invite_proof(&hash, b"hello", bytes);
        assert_eq!(accepted, bytes == good.as_slice(), "another proof passes");
        true
    });
}

#[test]
fn certificates_and_requests_for_them() {
    let (authority, authority_key) = pki::new_authority(GROUP).expect("an authority");
    let key = pki::new_tls_key().expect("a key");
    let request = pki::signing_request(&key).expect("a request");
    let certificate = pki::sign(&authority, &authority_key, &request, JOINER, GROUP).expect("signs");
    let seeds = vec![certificate, authority, request, key.to_vec()];
    fuzz(seeds, |der| {
        pki::named(der).is_ok()
            | pki::fingerprint(der).is_ok()
            | pki::request_fingerprint(der).is_ok()
            | pki::key_fingerprint(der).is_ok()
    });
}

#[test]
fn the_identity_that_a_member_keeps() {
    let locked = LockedGeneration {
        generation: Generation(1),
        self_blob: vec![1; 40],
        locked_envelope_key: vec![2; 384],
    };
    let row = RosterRow { member: JOINER, address: "one:7400".into(), tls: Fingerprint([1; 32]) };
    let identity = Identity {
        group: GROUP,
        lineage: Lineage(1),
        member: JOINER,
        certificate: vec![1; 300],
        authority: vec![2; 300],
        tls_key: Zeroizing::new(vec![3; 100]),
        roster: Roster(vec![row; 3]),
        generations: vec![locked],
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("identity");
    home::save(folder.path(), &identity).expect("saves");
    let load = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("writes");
        home::load(folder.path()).is_ok()
    };
    assert_eq!(std::fs::metadata(&file).expect("is there").permissions().mode() & 0o777, 0o600);
    fuzz(vec![bytes(&identity)], |body| {
        // As it is, and behind a right checksum, which damage would never get past.
        load(body) | load(&[&crc32fast::hash(body).to_be_bytes()[..], body].concat())
    });
}
