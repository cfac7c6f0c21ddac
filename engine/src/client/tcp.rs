//! How every TCP connection of the group is set up, whoever opens it.

use crate::limits;
use rustix::net::sockopt;
use std::io;
use std::os::fd::AsFd;

/// Sends small frames at once, and lets the kernel end a connection whose peer acknowledges nothing, also an idle one.
pub(crate) fn prepare(stream: impl AsFd) -> io::Result<()> {
    let millis = u32::try_from(limits::UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_nodelay(&stream, true)?;
    sockopt::set_tcp_user_timeout(&stream, millis)?;
    sockopt::set_tcp_keepidle(&stream, limits::SILENCE_MAX)?;
    sockopt::set_tcp_keepintvl(&stream, limits::UNACKNOWLEDGED_MAX)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    Ok(())
}
