use crate::checkpoint;
use crate::error::StorageError;
use crate::log::Shared;
use crate::shelf::{Contents, ShelfKey, record};
use crate::writer::Operation;
use keyraft_engine::consensus::store::{Checkpoint, Store};
use keyraft_engine::domain::{ContentKey, Envelope};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Contents in sled, the checkpoint in a file beside it.
pub struct SledStore {
    shared: Arc<Shared>,
    /// One checkpoint is written at a time.
    saving: Mutex<()>,
}

const FIRST: [u8; 16] = [0; 16];
const LAST: [u8; 16] = [0xff; 16];

impl SledStore {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, saving: Mutex::new(()) }
    }
}

impl Store for SledStore {
    fn put_contents(&self, contents: &[(ContentKey, Envelope)]) -> io::Result<()> {
        let encode = |(key, envelope): &(ContentKey, Envelope)| record::<Contents>(*key, envelope);
        let records: Vec<_> =
            contents.iter().map(encode).collect::<Result<_, _>>().map_err(StorageError::TooLong)?;
        self.shared.disk.folder().need(records.iter().map(|r| r.bytes).sum())?;
        Ok(self.shared.disk.write(records)?)
    }

    fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>> {
        Ok(self.shared.disk.get::<Contents>(key)?)
    }

    /// What is dropped may come back after a power cut, until the next call.
    fn retain_contents(&self, keep: &dyn Fn(ContentKey) -> bool) -> io::Result<u64> {
        let key = |bytes: [u8; 16]| ContentKey::from_bytes(&bytes).expect("16 bytes are a content key");
        let mut dropped = 0;
        for name in self.shared.disk.keys::<Contents>(key(FIRST)..=key(LAST))? {
            if !keep(name) {
                self.shared.disk.remove_backwards::<Contents>(name..=name)?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.disk.check()?;
        let (tx, rx) = sync_channel(1);
        let done = Box::new(move |result| {
            // Nobody else holds the receiver: it is there.
            let _ = tx.send(result);
        });
        self.shared.writer.queue(Operation::Sync, 0, None, done);
        rx.recv().map_err(|_| io::Error::other("the log's writer has ended: restart the member"))?
    }

    fn save_checkpoint(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        let _one = self.saving.lock();
        let bytes = checkpoint::encode(checkpoint)?;
        self.shared.disk.folder().need(bytes.len())?;
        self.sync()?;
        let folder = self.shared.disk.folder().path();
        checkpoint::write(folder, &bytes)
            .map_err(|e| self.shared.disk.poisoned_by("write the checkpoint", &e).into())
    }

    fn load_checkpoint(&self) -> io::Result<Option<Checkpoint>> {
        self.shared.disk.check()?;
        Ok(checkpoint::load(self.shared.disk.folder().path())?)
    }
}
