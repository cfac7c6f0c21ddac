//! Creating, using and deleting keys through a member's socket.

use crate::{STEP_LIMIT, eventually};
use futures::FutureExt;
use futures::future::BoxFuture;
use keyraft_engine::domain::{AttributeType, AttributeValue, KeyAlgorithm, MemberId, ObjectClass, ObjectId};
use keyraft_engine::wire::{
    Answer, ClientRequest, CoverageRow, CoverageState, CreateKey, Deletion, Failure, FailureKind,
    KeyTemplate, ObjectRow, SecretBytes, UseKind, UseRequest,
};
use keyraft_node::caller::{Ask, Caller, repeat};
use keyraft_node::command::Keyring;
use keyraft_node::demo::outside;
use keyraft_node::engine::Socket;
use keyraft_node::mechanism::{Named, Purpose};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use zeroize::Zeroizing;

/// What tests sign and encrypt.
pub const DATA: &[u8] = b"what the tests sign";

/// A key that was made: the secret, or the private and the public half.
#[derive(Clone, Debug)]
pub struct Made {
    /// CKA_LABEL.
    pub label: String,
    /// Its kind.
    pub algorithm: KeyAlgorithm,
    /// As it was answered.
    pub rows: Vec<ObjectRow>,
}

impl Made {
    /// The ids of all its objects.
    pub fn ids(&self) -> Vec<ObjectId> {
        self.rows.iter().map(|row| row.object).collect()
    }

    /// The object that lives in tokens.
    pub fn inner(&self) -> ObjectId {
        let inner = self.rows.iter().find(|row| row.class.is_resident());
        inner.expect("a key has a half inside tokens").object
    }

    /// The public half's id.
    pub fn public(&self) -> Option<ObjectId> {
        self.rows.iter().find(|row| row.class == ObjectClass::PublicKey).map(|row| row.object)
    }
}

/// Several members: the next attempt after a failure asks the next of them.
pub struct AnyMember {
    sockets: Vec<Socket>,
    turn: AtomicUsize,
}

impl AnyMember {
    /// Begins with one of these sockets.
    pub fn new(paths: Vec<PathBuf>, first: usize) -> Self {
        Self { sockets: paths.into_iter().map(Socket::new).collect(), turn: AtomicUsize::new(first) }
    }
}

impl Ask for AnyMember {
    fn ask(&self, request: ClientRequest, limit: Duration) -> BoxFuture<'_, Result<Answer, Failure>> {
        async move {
            let turn = self.turn.load(Ordering::Relaxed);
            let answer = self.sockets[turn % self.sockets.len()].ask(request, limit).await;
            if answer.is_err() {
                self.turn.store(turn + 1, Ordering::Relaxed);
            }
            answer
        }
        .boxed()
    }
}

/// Asks for a new key; repeats under one request id until it is answered.
pub async fn create(caller: &mut Caller<'_>, label: &str, algorithm: KeyAlgorithm) -> Result<Made, Failure> {
    let attributes = [(AttributeType::LABEL, AttributeValue::Bytes(label.as_bytes().to_vec()))].into();
    let template = KeyTemplate { algorithm, attributes };
    let answer = caller
        .change(|request, watermark| {
            ClientRequest::Create(CreateKey { request, watermark, template: template.clone() })
        })
        .await?;
    match answer {
        Answer::Created(rows) => Ok(Made { label: label.into(), algorithm, rows }),
        other => panic!("a creation was answered by {other:?}"),
    }
}

/// A new key, asked for by a client of its own.
pub async fn create_at(ask: &dyn Ask, label: &str, algorithm: KeyAlgorithm) -> Result<Made, Failure> {
    let mut caller = Caller::begin(ask, STEP_LIMIT).await.expect("makes contact");
    create(&mut caller, label, algorithm).await
}

/// Deletes a key; repeats under one request id until it is answered.
pub async fn delete(caller: &mut Caller<'_>, key: &Made) -> Result<(), Failure> {
    let objects = key.ids();
    let answer = caller
        .change(|request, watermark| {
            ClientRequest::Delete(Deletion { request, watermark, objects: objects.clone() })
        })
        .await?;
    assert!(matches!(answer, Answer::Done), "a deletion was answered by {answer:?}");
    Ok(())
}

/// Uses an object; gives the output and the member that did it.
pub async fn use_key(
    ask: &dyn Ask,
    object: ObjectId,
    kind: UseKind,
    named: Named,
    data: &[u8],
    at: Option<MemberId>,
) -> Result<(Vec<u8>, MemberId), Failure> {
    // Tests may use a fixed nonce: their keys are thrown away.
    let nonce = vec![7; named.prefix_bytes()];
    let make = || {
        ClientRequest::Use(UseRequest {
            object,
            kind: kind.clone(),
            mechanism: named.mechanism(&nonce, b""),
            data: SecretBytes(Zeroizing::new(data.to_vec())),
            at,
        })
    };
    match repeat(ask, STEP_LIMIT, make).await? {
        Answer::Used { output, by } => Ok((output.0.to_vec(), by)),
        other => panic!("a use was answered by {other:?}"),
    }
}

/// One attempt to sign, within `limit`: who did it, or why not.
pub async fn sign_once(
    ask: &dyn Ask,
    key: &Made,
    at: Option<MemberId>,
    limit: Duration,
) -> Result<MemberId, FailureKind> {
    let named = Named::default_for(Some(key.algorithm), Purpose::Sign).expect("signs");
    let usage = UseRequest {
        object: key.inner(),
        kind: UseKind::Sign,
        mechanism: named.mechanism(&[], b""),
        data: SecretBytes(Zeroizing::new(named.prepare(DATA.to_vec()))),
        at,
    };
    match ask.ask(ClientRequest::Use(usage), limit).await {
        Ok(Answer::Used { by, .. }) => Ok(by),
        Ok(other) => panic!("a use was answered by {other:?}"),
        Err(failure) => Err(failure.kind),
    }
}

/// Uses a key at one member as its kind allows, and proves the result: signatures outside all tokens, everything
/// else at the members named in `beside`.
pub async fn prove(ask: &dyn Ask, key: &Made, at: MemberId, beside: &[MemberId]) {
    let shown = format!("'{}' ({}) at {at}", key.label, key.algorithm);
    if let Ok(named) = Named::default_for(Some(key.algorithm), Purpose::Sign) {
        let data = named.prepare(DATA.to_vec());
        let signed = use_key(ask, key.inner(), UseKind::Sign, named, &data, Some(at)).await;
        let (signature, by) = signed.unwrap_or_else(|e| panic!("signing with {shown}: {e}"));
        assert_eq!(by, at, "{shown}");
        match key.public() {
            Some(public) => {
                let row = show(ask, public).await;
                assert!(outside::verifies(&row, named, DATA, &signature), "{shown}: the signature is bad");
                assert!(!outside::verifies(&row, named, b"other", &signature), "{shown}: anything verifies");
            }
            None => {
                for member in beside {
                    let verify = UseKind::Verify(signature.clone());
                    let good = use_key(ask, key.inner(), verify, named, &data, Some(*member)).await;
                    good.unwrap_or_else(|e| panic!("the MAC of {shown} at {member}: {e}"));
                }
            }
        }
    }
    if let Ok(named) = Named::default_for(Some(key.algorithm), Purpose::Encrypt) {
        let locking = key.public().unwrap_or(key.inner());
        let locked = use_key(ask, locking, UseKind::Encrypt, named, DATA, Some(at)).await;
        let (locked, _) = locked.unwrap_or_else(|e| panic!("encrypting with {shown}: {e}"));
        assert_ne!(locked, DATA);
        for member in beside {
            let clear = use_key(ask, key.inner(), UseKind::Decrypt, named, &locked, Some(*member)).await;
            let (clear, by) = clear.unwrap_or_else(|e| panic!("decrypting {shown} at {member}: {e}"));
            assert_eq!((clear.as_slice(), by), (DATA, *member), "{shown}");
        }
    }
}

/// One object with all its attributes.
pub async fn show(ask: &dyn Ask, object: ObjectId) -> ObjectRow {
    Keyring::new(ask, STEP_LIMIT).show(object).await.unwrap_or_else(|e| panic!("object {object}: {e}"))
}

/// Every object that a member lists.
pub async fn list(ask: &dyn Ask) -> Vec<ObjectRow> {
    Keyring::new(ask, STEP_LIMIT).list(None, usize::MAX).await.expect("lists").0
}

/// Who holds what, as one member finds it.
pub async fn coverage(ask: &dyn Ask) -> Vec<CoverageRow> {
    let mut all: Vec<CoverageRow> = Vec::new();
    loop {
        let after = all.last().map(|row| row.object);
        match repeat(ask, STEP_LIMIT, || ClientRequest::Coverage { after }).await.expect("covers") {
            Answer::Coverage { rows, more } => {
                let end = rows.is_empty() || !more;
                all.extend(rows);
                if end {
                    return all;
                }
            }
            other => panic!("coverage was answered by {other:?}"),
        }
    }
}

/// Waits until a member finds every object present on so many members, and gives the number of objects. A member that
/// has just come back may not be heard yet.
pub async fn everywhere(ask: &dyn Ask, members: usize) -> usize {
    eventually(async || {
        let rows = coverage(ask).await;
        let present = |row: &CoverageRow| row.members.iter().all(|cell| cell.state == CoverageState::Present);
        match rows.iter().find(|row| row.members.len() != members || !present(row)) {
            None => Ok(rows.len()),
            Some(row) => Err(format!("{row:?}")),
        }
    })
    .await
}

/// CKA_LABEL of a row, as text.
pub fn label(row: &ObjectRow) -> String {
    match row.attributes.get(&AttributeType::LABEL) {
        Some(AttributeValue::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}
