//! Frames on a stream: read one, write many, and know when the peer was last heard.

use crate::frames::frame::{self, Frame, FrameError, HEADER_BYTES};
use crate::limits;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

/// Memory is taken for a body in such steps, as its bytes arrive. Bytes.
const READ_STEP_BYTES: usize = 64 * 1024;

/// When a peer was last heard: any byte counts, so that a long frame on a slow way is no silence.
#[derive(Clone)]
pub(super) struct Ear(Arc<Mutex<Instant>>);

impl Ear {
    /// How long the peer has been silent.
    pub(super) fn silence(&self) -> Duration {
        self.0.lock().elapsed()
    }
}

/// A stream's reading half that notes when it hears something.
pub(super) struct Heard<R> {
    inner: R,
    ear: Ear,
}

/// Buffers a reading half and gives an ear to it.
pub(super) fn listen<R: AsyncRead + Unpin>(inner: R) -> (BufReader<Heard<R>>, Ear) {
    let ear = Ear(Arc::new(Mutex::new(Instant::now())));
    (BufReader::with_capacity(READ_STEP_BYTES, Heard { inner, ear: ear.clone() }), ear)
}

impl<R: AsyncRead + Unpin> AsyncRead for Heard<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        if buffer.filled().len() > before {
            *self.ear.0.lock() = Instant::now();
        }
        Poll::Ready(read)
    }
}

/// Reads one frame of at most `limit` bytes; None if the stream ended between frames.
pub(super) async fn read<B, R>(reader: &mut R, limit: usize) -> Result<Option<(u64, B)>, FrameError>
where
    B: DeserializeOwned,
    R: AsyncRead + Unpin,
{
    let mut header = [0; HEADER_BYTES];
    if reader.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut header[1..]).await?;
    let length = frame::body_length(header, limit)?;
    let mut body = Zeroizing::new(Vec::new());
    while body.len() < length {
        let missing = length - body.len();
        body.reserve(missing.min(READ_STEP_BYTES));
        if (&mut *reader).take(missing as u64).read_buf(&mut *body).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    frame::decode(&body).map(Some)
}

/// Writes queued frames, gathered into few writes, until the queue ends; then closes the writing half.
pub(super) async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut queue: mpsc::Receiver<Frame>,
) -> io::Result<()> {
    let mut batch = Zeroizing::new(Vec::with_capacity(2 * limits::WRITE_BATCH_BYTES));
    while let Some(first) = queue.recv().await {
        batch.clear();
        batch.extend_from_slice(&first);
        while batch.len() < limits::WRITE_BATCH_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            batch.extend_from_slice(&next);
        }
        let written = async {
            writer.write_all(&batch).await?;
            writer.flush().await
        };
        in_time(written).await?;
        // A rare long frame must not keep its memory for the life of the connection.
        batch.shrink_to(2 * limits::WRITE_BATCH_BYTES);
    }
    in_time(writer.shutdown()).await
}

async fn in_time(written: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(limits::WRITE_MAX, written)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use proptest::prelude::*;

    fn read_all(mut bytes: &[u8]) -> (Vec<(u64, String)>, bool) {
        let mut frames = Vec::new();
        loop {
            match read(&mut bytes, 1000).now_or_never().expect("memory never waits") {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return (frames, true),
                Err(_) => return (frames, false),
            }
        }
    }

    #[tokio::test]
    async fn frames_are_gathered_and_found_again() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (sender, queue) = mpsc::channel(10);
        for id in 0..10u64 {
            let frame = frame::encode(id, &"x".repeat(usize::try_from(id).expect("small")), 1000);
            sender.send(frame.expect("encodes")).await.expect("queued");
        }
        drop(sender);
        write(near, queue).await.expect("written");
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.expect("read");
        let (frames, clean) = read_all(&bytes);
        assert!(clean);
        assert_eq!(frames.len(), 10);
        assert_eq!(frames[3], (3, "xxx".into()));
        // Cut anywhere but between frames, the stream ends in an error, not in silence.
        assert!(!read_all(&bytes[..bytes.len() - 1]).1);
        assert!(!read_all(&bytes[..2]).1);
    }

    proptest! {
        #[test]
        fn any_stream_ends_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let _ = read_all(&bytes);
        }
    }
}
