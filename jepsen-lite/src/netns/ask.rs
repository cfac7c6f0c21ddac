//! Questions to one member over its socket, as keyraft's own client asks them.

use crate::watch::{Used, use_at};
pub use keyraft_engine::client::CallError;
use keyraft_engine::client::Connection;
use keyraft_engine::domain::MemberId;
use keyraft_engine::wire::{Answer, ClientRequest, GroupStatus, ObjectRow};
use std::path::PathBuf;
use std::time::Duration;

/// A member behind its socket.
#[derive(Debug)]
pub struct Member {
    socket: PathBuf,
    connection: Option<Connection>,
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
        match self.call(&use_at(object, at), limit) {
            Ok(answer) => Used::answered(Ok(answer)),
            Err(CallError::Failed(failure)) => Used::answered(Err(failure)),
            Err(error) => Used::Silent(error.to_string()),
        }
    }
}
