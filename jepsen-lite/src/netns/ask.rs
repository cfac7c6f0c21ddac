//! Questions to one member over its socket, as keyraft's own client asks them.

pub use keyraft_engine::client::CallError;
use keyraft_engine::client::Connection;
use keyraft_engine::domain::{AttributeType, AttributeValue, Mechanism, MemberId, ObjectId, Parameters};
use keyraft_engine::wire::{
    Answer, ClientRequest, Failure, FailureKind, GroupStatus, ObjectRow, SecretBytes, UseKind, UseRequest,
};
use std::path::PathBuf;
use std::time::Duration;

/// CKM_AES_ECB: the same of the same, so that members can be compared.
const AES_ECB: u64 = 0x1081;
/// What members make something of to prove a key.
const TEXT: &[u8; 16] = b"keyraft's proof.";

/// A member behind its socket.
#[derive(Debug)]
pub struct Member {
    socket: PathBuf,
    connection: Option<Connection>,
}

/// How a use at one member ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Used {
    /// With this.
    Output(Vec<u8>),
    /// There is no such key; said behind a read barrier.
    Absent,
    /// Nobody knows.
    Silent(String),
}

impl Member {
    /// The one at this socket.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, connection: None }
    }

    /// One question, and its answer.
    ///
    /// # Errors
    /// It was not answered, or with a failure.
    pub fn call(&mut self, request: &ClientRequest, limit: Duration) -> Result<Answer, CallError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.socket, limit)?,
        };
        let answer = connection.call(request, limit);
        if matches!(answer, Ok(_) | Err(CallError::Failed(_))) {
            self.connection = Some(connection);
        }
        answer
    }

    /// The group as it sees it.
    pub fn status(&mut self, limit: Duration) -> Result<GroupStatus, String> {
        match self.call(&ClientRequest::Status, limit).map_err(|error| error.to_string())? {
            Answer::Status(status) => Ok(*status),
            _ => Err("the member answered another question".into()),
        }
    }

    /// Every object that it lists, with all attributes.
    pub fn list(&mut self, limit: Duration) -> Result<Vec<ObjectRow>, String> {
        let mut rows: Vec<ObjectRow> = Vec::new();
        loop {
            let after = rows.last().map(|row| row.object);
            let request = ClientRequest::List { label: None, after };
            match self.call(&request, limit).map_err(|error| error.to_string())? {
                Answer::Objects { rows: more_rows, more } => {
                    let end = !more || more_rows.is_empty();
                    rows.extend(more_rows);
                    if end {
                        return Ok(rows);
                    }
                }
                _ => return Err("the member answered another question".into()),
            }
        }
    }

    /// Uses a key at this member and no other.
    pub fn use_key(&mut self, object: i64, at: MemberId, limit: Duration) -> Used {
        let request = ClientRequest::Use(UseRequest {
            object: ObjectId(u64::try_from(object).unwrap_or(0)),
            kind: UseKind::Encrypt,
            mechanism: Mechanism { number: AES_ECB, parameters: Parameters::None },
            data: SecretBytes(TEXT.to_vec().into()),
            at: Some(at),
        });
        match self.call(&request, limit) {
            Ok(Answer::Used { output, .. }) => Used::Output(output.0.to_vec()),
            Ok(_) => Used::Silent("it answered another question".into()),
            Err(CallError::Failed(Failure { kind: FailureKind::NotFound, .. })) => Used::Absent,
            Err(error) => Used::Silent(error.to_string()),
        }
    }
}

/// An attribute as text.
pub fn text(row: &ObjectRow, attribute: AttributeType) -> String {
    match row.attributes.get(&attribute) {
        Some(AttributeValue::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}
