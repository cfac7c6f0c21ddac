//! Everything that crosses this machine's network interfaces, loopback among them. Needs root.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// ETH_P_ALL as the kernel wants it: in network order.
const EVERYTHING: u32 = 0x0003_u16.to_be() as u32;
const FRAME_MAX_BYTES: usize = 128 * 1024;
const LOOK_UP: Duration = Duration::from_millis(100);

/// A capture under way.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u8>>,
}

impl Capture {
    /// Begins to capture.
    pub fn begin() -> Self {
        let protocol = Protocol::from_raw(NonZeroU32::new(EVERYTHING).expect("is not 0"));
        let socket = socket(AddressFamily::PACKET, SocketType::RAW, Some(protocol))
            .expect("capturing packets needs root (CAP_NET_RAW)");
        set_socket_timeout(&socket, Timeout::Recv, Some(LOOK_UP)).expect("takes a time-out");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut frame = vec![0; FRAME_MAX_BYTES];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((count, _)) = recv(&socket, &mut frame[..], RecvFlags::empty()) {
                    all.extend_from_slice(&frame[..count]);
                }
            }
            all
        });
        Self { stop, thread }
    }

    /// Ends, and gives every frame one after the other.
    pub fn end(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the capture does not panic")
    }
}
