//! What a process is told by its machine and nobody can repeat: random bytes and the time. The functions of libc that tell
//! it are ours in this program: they tell the truth until a simulation is begun, and what its seed decides from then on.
//!
//! Everything random in a member comes from `getrandom`: nonces, names, keys, the order within hash maps, the seeds of
//! tokio's and openraft's own generators. Every reading of a clock comes from `clock_gettime`, or from tokio's paused
//! clock, which begins with one. Only libraries of C that ask the kernel themselves are not reached (TLS keys and
//! signatures of certificates): nothing that a history tells depends on those.

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use rustix::time::ClockId;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// True once the seed decides.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// The generator (splitmix64): what was added up so far.
static SUM: AtomicU64 = AtomicU64::new(0);
/// Since the simulated machines were switched on, nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);

/// The simulated wall clock at [`NOW`] 0, seconds since 1970: the beginning of 2026.
const WALL_SECONDS: i64 = 1_767_225_600;
/// The monotonic clocks at [`NOW`] 0, seconds: some code takes times back from now.
const BOOT_SECONDS: i64 = 100_000;
const NANOS: u64 = 1_000_000_000;
/// CLOCK_REALTIME and CLOCK_REALTIME_COARSE.
const REAL_TIME: [c_int; 2] = [0, 5];

/// The first reading of the simulated monotonic clock.
static FIRST: OnceLock<Instant> = OnceLock::new();

/// From now on, in this whole process, the seed decides what is random, and [`set_now`] what the time is. What a thread
/// has drawn before stays with it: a simulation runs on a thread that was started afterwards.
#[expect(clippy::disallowed_methods, reason = "the simulated clock's first reading")]
pub fn begin(seed: u64) {
    SUM.store(seed, Ordering::Relaxed);
    BEGUN.store(true, Ordering::Release);
    // Every runtime's clock begins with such a reading, so that all have the same beginning.
    let _ = FIRST.set(Instant::now());
}

/// Says what the time is, since the simulated machines were switched on.
pub fn set_now(now: Duration) {
    NOW.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The time since the simulated machines were switched on, as the machine that asks has it.
#[expect(clippy::disallowed_methods, reason = "in a simulation this is the simulated time")]
pub fn elapsed() -> Duration {
    let now = match tokio::runtime::Handle::try_current() {
        // Its runtime's clock goes on within a tick.
        Ok(_) => tokio::time::Instant::now().into_std(),
        Err(_) => Instant::now(),
    };
    now.saturating_duration_since(*FIRST.get_or_init(Instant::now))
}

fn draw() -> u64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut z = SUM.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// libc's structure of a time.
#[repr(C)]
struct TimeSpec {
    seconds: i64,
    nanos: i64,
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

fn fail(why: Errno) {
    // SAFETY: libc gives the place of this thread's errno, which is always there.
    unsafe { *__errno_location() = why.raw_os_error() };
}

/// libc's getrandom.
///
/// # Safety
/// As libc has it: `length` bytes can be written at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    if length == 0 {
        return 0;
    }
    // SAFETY: the caller says that so many bytes can be written there; nothing is read from them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<std::mem::MaybeUninit<u8>>(), length) };
    if BEGUN.load(Ordering::Acquire) {
        for part in bytes.chunks_mut(8) {
            for (to, from) in part.iter_mut().zip(draw().to_le_bytes()) {
                to.write(from);
            }
        }
        return isize::try_from(length).unwrap_or(isize::MAX);
    }
    match rustix::rand::getrandom(bytes, GetRandomFlags::from_bits_retain(flags)) {
        Ok((written, _)) => isize::try_from(written.len()).unwrap_or(isize::MAX),
        Err(why) => {
            fail(why);
            -1
        }
    }
}

/// libc's clock_gettime.
///
/// # Safety
/// As libc has it: a time can be written at `time`.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut TimeSpec) -> c_int {
    let told = if BEGUN.load(Ordering::Acquire) {
        let now = NOW.load(Ordering::Relaxed);
        let begun = if REAL_TIME.contains(&clock) { WALL_SECONDS } else { BOOT_SECONDS };
        let seconds = begun.saturating_add(i64::try_from(now / NANOS).unwrap_or(i64::MAX));
        Ok(TimeSpec { seconds, nanos: i64::try_from(now % NANOS).unwrap_or(0) })
    } else {
        ClockId::try_from(clock).map(|clock| {
            let real = rustix::time::clock_gettime(clock);
            TimeSpec { seconds: real.tv_sec, nanos: real.tv_nsec }
        })
    };
    match told {
        Ok(told) => {
            // SAFETY: the caller says that a time can be written there.
            unsafe { time.write(told) };
            0
        }
        Err(why) => {
            fail(why);
            -1
        }
    }
}
