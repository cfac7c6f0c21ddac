//! Everything that crosses this machine's network interfaces, loopback among them. Needs root.

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// ETH_P_ALL as the kernel wants it: in network order.
const EVERYTHING: u32 = 0x0003_u16.to_be() as u32;
const FRAME_MAX_BYTES: usize = 128 * 1024;
/// What the kernel may keep while the capturing thread waits for the processor.
const BUFFER_BYTES: usize = 64 * 1024 * 1024;
const LOOK_UP: Duration = Duration::from_millis(100);

/// A capture under way.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Capture {
    /// Begins to capture.
    pub fn begin() -> Self {
        let protocol = Protocol::from_raw(NonZeroU32::new(EVERYTHING).expect("is not 0"));
        let socket = socket(AddressFamily::PACKET, SocketType::RAW, Some(protocol))
            .expect("capturing packets needs root (CAP_NET_RAW)");
        set_socket_timeout(&socket, Timeout::Recv, Some(LOOK_UP)).expect("takes a time-out");
        set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).expect("a large buffer needs root");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut frame = vec![0; FRAME_MAX_BYTES];
            loop {
                // What came before the end is read even if it has waited; what comes later is not waited for.
                let ends = stopped.load(Ordering::Relaxed);
                let flags = if ends { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
                match recv(&socket, &mut frame[..], flags) {
                    Ok((count, _)) => all.push(frame[..count].to_vec()),
                    Err(_) if ends => return all,
                    Err(_) => {}
                }
            }
        });
        Self { stop, thread }
    }

    /// Ends, and gives what was captured.
    pub fn end(self) -> Traffic {
        self.stop.store(true, Ordering::Relaxed);
        Traffic { frames: self.thread.join().expect("the capture does not panic") }
    }
}

/// What was captured.
pub struct Traffic {
    /// Every frame, in the order of its coming.
    pub frames: Vec<Vec<u8>>,
}

/// One direction of one TCP connection: addresses and ports of the sender and of the receiver.
type Direction = [u8; 12];

impl Traffic {
    /// Bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.frames.iter().map(Vec::len).sum()
    }

    /// What was sent over TCP (IPv4), put together again as the receiver reads it: one run of bytes for each
    /// direction of each connection, and another one behind each gap in the capture.
    pub fn streams(&self) -> Vec<Vec<u8>> {
        let mut directions: BTreeMap<Direction, Vec<(u32, &[u8])>> = BTreeMap::new();
        for (direction, sequence, payload) in self.frames.iter().filter_map(|frame| segment(frame)) {
            directions.entry(direction).or_default().push((sequence, payload));
        }
        directions.into_values().flat_map(put_together).collect()
    }
}

/// Direction, sequence number and payload of a frame, if it is TCP over IPv4 and carries any.
fn segment(frame: &[u8]) -> Option<(Direction, u32, &[u8])> {
    const ETHERNET_BYTES: usize = 14;
    const IPV4: [u8; 2] = [0x08, 0x00];
    const TCP: u8 = 6;
    if frame.get(12..ETHERNET_BYTES)? != IPV4 {
        return None;
    }
    let packet = &frame[ETHERNET_BYTES..];
    let (first, total) = (*packet.first()?, u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    // A length of 0 is what the kernel writes for a packet that a card would cut.
    let packet = if total == 0 { packet } else { packet.get(..usize::from(total))? };
    if first >> 4 != 4 || *packet.get(9)? != TCP {
        return None;
    }
    let tcp = packet.get(usize::from(first & 0x0F) * 4..)?;
    let mut direction = [0; 12];
    direction[..8].copy_from_slice(packet.get(12..20)?);
    direction[8..].copy_from_slice(tcp.get(..4)?);
    let sequence = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    let payload = tcp.get(usize::from(*tcp.get(12)? >> 4) * 4..)?;
    (!payload.is_empty()).then_some((direction, sequence, payload))
}

/// Sorts segments by their sequence numbers, which wrap around, and drops what came twice: loopback shows each frame
/// leaving and coming, and TCP repeats.
fn put_together(segments: Vec<(u32, &[u8])>) -> Vec<Vec<u8>> {
    let Some(&(origin, _)) = segments.first() else { return Vec::new() };
    let from_origin = |sequence: u32| i64::from(sequence.wrapping_sub(origin).cast_signed());
    let mut segments: Vec<(i64, &[u8])> = segments.into_iter().map(|(s, p)| (from_origin(s), p)).collect();
    segments.sort_by_key(|(at, payload)| (*at, payload.len()));
    let mut runs: Vec<Vec<u8>> = Vec::new();
    let mut end = i64::MIN;
    for (at, payload) in segments {
        let stop = at + i64::try_from(payload.len()).expect("a frame is short");
        match runs.last_mut() {
            Some(run) if at <= end => {
                let known = usize::try_from(end - at).expect("is not negative").min(payload.len());
                run.extend_from_slice(&payload[known..]);
            }
            _ => runs.push(payload.to_vec()),
        }
        end = end.max(stop);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(from: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00]);
        let total = u16::try_from(40 + payload.len()).expect("is short");
        frame.extend([0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        frame.extend(from.to_be_bytes());
        frame.extend(9_u16.to_be_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        // What pads a short frame is not payload.
        frame.extend([0xEE; 3]);
        frame
    }

    #[test]
    fn segments_out_of_order_repeated_and_around_the_end_of_the_numbers() {
        let high = u32::MAX - 1;
        let frames = vec![
            frame(1, high, b"abcd"),
            frame(2, 70, b"other"),
            frame(1, 6, b"ij"),
            frame(1, 2, b"efgh"),
            frame(1, high, b"abcd"),
            frame(1, 0, b"cdef"),
            frame(1, 5, b"hij"),
            frame(1, 100, b"behind a gap"),
            b"too short".to_vec(),
        ];
        let streams = Traffic { frames }.streams();
        let texts: Vec<_> = streams.iter().map(|s| String::from_utf8_lossy(s)).collect();
        assert_eq!(texts, ["abcdefghij", "behind a gap", "other"]);
    }
}
