//! Frames on a blocking stream: what the module and the thread that answers it share. One system call a frame in
//! either direction, as long as frames are short.

use super::frame::{self, Frame, FrameError, HEADER_BYTES};
use rustix::net::{SendFlags, send};
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use zeroize::Zeroizing;

/// Read ahead in one call, bytes: a signature's frames fit many times over.
const READ_AHEAD_BYTES: usize = 4096;

/// A blocking stream of bytes.
pub(crate) trait Pipe {
    /// Writes everything. A peer that has gone is an error, not a SIGPIPE: the process may not be ours.
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Reads what is there, waiting for at least a byte; 0 at the stream's end.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize>;
}

impl Pipe for UnixStream {
    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(&*self, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read(bytes)
    }
}

/// A stream with what was read ahead of it.
#[derive(Debug)]
pub(crate) struct FrameStream<S> {
    stream: S,
    /// Bytes read and not yet used.
    ahead: Zeroizing<Vec<u8>>,
}

impl<S: Pipe> FrameStream<S> {
    /// Takes a blocking stream over.
    pub fn new(stream: S) -> Self {
        Self { stream, ahead: Zeroizing::new(Vec::with_capacity(READ_AHEAD_BYTES)) }
    }

    /// The stream, to set its limits of time.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Writes a frame.
    pub fn write(&mut self, frame: &Frame) -> io::Result<()> {
        self.stream.send_all(frame)
    }

    /// Reads one frame of at most `limit` bytes; None if the stream ended between frames.
    pub fn read<B: DeserializeOwned>(&mut self, limit: usize) -> Result<Option<(u64, B)>, FrameError> {
        while self.ahead.len() < HEADER_BYTES {
            if self.more(READ_AHEAD_BYTES)? == 0 {
                let torn = !self.ahead.is_empty();
                return if torn {
                    Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
                } else {
                    Ok(None)
                };
            }
        }
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&self.ahead[..HEADER_BYTES]);
        let end = HEADER_BYTES + frame::body_length(header, limit)?;
        // Memory grows as bytes arrive, not by what a header claims.
        while self.ahead.len() < end {
            let step = (end - self.ahead.len()).clamp(READ_AHEAD_BYTES, 16 * READ_AHEAD_BYTES);
            if self.more(step)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        let decoded = frame::decode(&self.ahead[HEADER_BYTES..end]);
        let rest = Zeroizing::new(self.ahead.split_off(end));
        self.ahead.iter_mut().for_each(|byte| *byte = 0);
        self.ahead.clear();
        self.ahead.extend_from_slice(&rest);
        self.ahead.shrink_to(16 * READ_AHEAD_BYTES);
        decoded.map(Some)
    }

    fn more(&mut self, most: usize) -> io::Result<usize> {
        let have = self.ahead.len();
        self.ahead.resize(have + most, 0);
        let read = loop {
            match self.stream.receive(&mut self.ahead[have..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.ahead.truncate(have + *read.as_ref().unwrap_or(&0));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FRAME_MAX_BYTES;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (mut writer, mut reader) = (FrameStream::new(here), FrameStream::new(there));
        let bodies = [vec![1u8; 3], vec![2u8; 20_000], vec![3u8; 1]];
        let sent = bodies.clone();
        let sending = std::thread::spawn(move || {
            let mut all = Zeroizing::new(Vec::new());
            for (id, body) in (1..).zip(&sent) {
                all.extend_from_slice(&frame::encode(id, body, FRAME_MAX_BYTES).expect("encodes"));
            }
            for piece in all.chunks(777) {
                writer.write(&Zeroizing::new(piece.to_vec())).expect("writes");
            }
        });
        for (id, body) in (1..).zip(&bodies) {
            assert_eq!(reader.read::<Vec<u8>>(FRAME_MAX_BYTES).expect("reads"), Some((id, body.clone())));
        }
        sending.join().expect("sends");
        assert!(reader.read::<Vec<u8>>(FRAME_MAX_BYTES).expect("the end").is_none());
    }

    #[test]
    fn a_torn_frame_and_a_long_one_are_errors() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (mut writer, mut reader) = (FrameStream::new(here), FrameStream::new(there));
        writer.write(&Zeroizing::new(vec![0, 0, 0, 9, 1])).expect("writes");
        drop(writer);
        assert!(matches!(reader.read::<Vec<u8>>(FRAME_MAX_BYTES), Err(FrameError::Stream(_))));
        let (here, there) = UnixStream::pair().expect("a pair");
        let (mut writer, mut reader) = (FrameStream::new(here), FrameStream::new(there));
        writer.write(&Zeroizing::new(vec![0xFF; 8])).expect("writes");
        assert!(matches!(reader.read::<Vec<u8>>(FRAME_MAX_BYTES), Err(FrameError::TooLong { .. })));
    }
}
