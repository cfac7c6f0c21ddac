//! Frames, as they travel on every connection: a length (u32, big-endian), then the codec's bytes of (id, body). Pure.
//!
//! An answer bears the id of its request. Id 0 is for hello and ping, which nobody waits for by id.

use crate::codec::{self, CodecError};
use crate::wire::{Failure, Hello};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

/// Bytes of a frame's length.
pub(crate) const HEADER_BYTES: usize = 4;
/// The id of frames that belong to no request.
pub(crate) const NO_REQUEST: u64 = 0;

/// From the side that connected. `R` is a request, owned or borrowed. Order is the wire format.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask<R> {
    /// The first frame.
    Hello(Hello),
    /// "Are you there?"
    Ping,
    /// A request.
    Request(R),
}

/// From the side that accepted. `R` is a response, owned or borrowed. Order is the wire format.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply<R> {
    /// The first frame: the connection may be used.
    Welcome(Hello),
    /// The first frame: it may not, and why. The connection is closed behind it.
    Refused(Failure),
    /// "I am."
    Pong,
    /// The response to the request of this id.
    Response(R),
    /// The request of this id is being worked on: the member lives.
    Working,
}

/// Why a frame is not one. The connection that sent it is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// Longer than the limit, bytes with header.
    #[error("a frame of {len} bytes is over the limit of {limit}")]
    TooLong {
        /// Bytes claimed or needed.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A length of zero.
    #[error("a frame without a body")]
    Empty,
    /// The body is not what it should be.
    #[error(transparent)]
    Body(#[from] CodecError),
    /// The stream ended or failed inside a frame.
    #[error("{0}")]
    Stream(#[from] std::io::Error),
}

/// An encoded frame, header included. Wiped on drop: it may carry a secret.
pub(crate) type Frame = Zeroizing<Vec<u8>>;

/// Encodes a frame of at most `limit` bytes.
pub(crate) fn encode<B: Serialize>(id: u64, body: &B, limit: usize) -> Result<Frame, FrameError> {
    let body = codec::encode_secret(&(id, body))?;
    let len = HEADER_BYTES + body.len();
    let too_long = FrameError::TooLong { len, limit };
    let Some(length) = u32::try_from(body.len()).ok().filter(|_| len <= limit) else {
        return Err(too_long);
    };
    let mut frame = Zeroizing::new(Vec::with_capacity(len));
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Bytes of the body behind a header, checked before any memory is taken for them.
pub(crate) fn body_length(header: [u8; HEADER_BYTES], limit: usize) -> Result<usize, FrameError> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    let len = length.saturating_add(HEADER_BYTES);
    match length {
        0 => Err(FrameError::Empty),
        _ if len > limit => Err(FrameError::TooLong { len, limit }),
        _ => Ok(length),
    }
}

/// Decodes a frame's body.
pub(crate) fn decode<B: DeserializeOwned>(body: &[u8]) -> Result<(u64, B), FrameError> {
    Ok(codec::decode(body, body.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{FRAME_MAX_BYTES, FRAME_UNPROVEN_MAX_BYTES};
    use crate::wire::{ClientRequest, Request, Response};
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_a_frame() {
        let ask = Ask::Request(Request::Client(ClientRequest::Status));
        let frame = encode(7, &ask, FRAME_MAX_BYTES).expect("encodes");
        assert_eq!(**frame, [0, 0, 0, 5, 1, 7, 2, 1, 0]);
        let ping = encode(NO_REQUEST, &Ask::<Request>::Ping, FRAME_MAX_BYTES).expect("encodes");
        assert_eq!(**ping, [0, 0, 0, 3, 1, 0, 1]);
        let working = encode(7, &Reply::<Response>::Working, FRAME_MAX_BYTES).expect("encodes");
        assert_eq!(**working, [0, 0, 0, 3, 1, 7, 4]);
        let (id, body) = decode::<Ask<Request>>(&frame[HEADER_BYTES..]).expect("decodes");
        assert_eq!(id, 7);
        assert!(matches!(body, Ask::Request(Request::Client(ClientRequest::Status))));
    }

    #[test]
    fn lengths_are_checked_first() {
        assert!(matches!(body_length([0; 4], 100), Err(FrameError::Empty)));
        assert!(matches!(body_length([0xff; 4], FRAME_MAX_BYTES), Err(FrameError::TooLong { .. })));
        assert!(matches!(
            body_length(97u32.to_be_bytes(), 100),
            Err(FrameError::TooLong { len: 101, limit: 100 })
        ));
        assert!(matches!(body_length(96u32.to_be_bytes(), 100), Ok(96)));
        let long = vec![0u8; FRAME_UNPROVEN_MAX_BYTES];
        assert!(matches!(encode(1, &long, FRAME_UNPROVEN_MAX_BYTES), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn a_forged_text_length_is_refused_before_memory_is_taken() {
        // Reply::Refused with a message that claims 512 MiB.
        let mut body = vec![1, 0, 1, 13, 252];
        body.extend_from_slice(&(512u32 << 20).to_le_bytes());
        let error = decode::<Reply<Response>>(&body).expect_err("refused");
        assert!(error.to_string().contains("LimitExceeded"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(body in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = decode::<Ask<Request>>(&body);
            let _ = decode::<Reply<Response>>(&body);
        }

        #[test]
        fn damaged_frames_decode_or_are_refused(id: u64, at: prop::sample::Index, value: u8) {
            let failure = Failure::new(crate::wire::FailureKind::Refused, "a reason of some length");
            let frame = encode(id, &Reply::Response(Response::Failed(failure)), FRAME_MAX_BYTES).expect("encodes");
            let mut body = frame[HEADER_BYTES..].to_vec();
            let at = at.index(body.len());
            body[at] = value;
            let _ = decode::<Reply<Response>>(&body);
            let _ = decode::<Reply<Response>>(&body[..at]);
        }

        #[test]
        fn a_header_is_within_the_limit_or_refused(header: [u8; 4], limit in 4usize..FRAME_MAX_BYTES) {
            if let Ok(length) = body_length(header, limit) {
                prop_assert!(length > 0 && length + HEADER_BYTES <= limit);
            }
        }
    }
}
