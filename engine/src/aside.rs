//! Work that blocks, off the threads that answer.

use crate::simulation;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// Work under way on a thread where it may block. It goes on if this is dropped. Its outcome is an error if it panicked,
/// or if the runtime ends.
#[must_use = "whoever drops it does not learn what came of it"]
pub enum Aside<T> {
    /// On a thread of its own.
    Thread(JoinHandle<T>),
    /// Done already, in a simulation; None once its outcome was taken.
    Done(Option<T>),
}

/// Starts work that blocks.
pub fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Aside<T> {
    if simulation::is_on() {
        Aside::Done(Some(work()))
    } else {
        Aside::Thread(tokio::task::spawn_blocking(work))
    }
}

/// An outcome is moved out whole; nothing in it is pinned.
impl<T> Unpin for Aside<T> {}

impl<T> Future for Aside<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        match self.get_mut() {
            Self::Thread(handle) => Pin::new(handle).poll(context).map_err(io::Error::other),
            Self::Done(outcome) => {
                Poll::Ready(outcome.take().ok_or_else(|| io::Error::other("its outcome was taken before")))
            }
        }
    }
}
