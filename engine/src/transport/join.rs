//! A joiner's connection: no certificate yet, and trust in the invitation's authority alone.

use super::connection::{self, Connection, Watch};
use super::pki::Named;
use super::{LinkError, Sponsor, Sponsors, hello, tls};
use crate::client::tcp;
use crate::domain::Fingerprint;
use crate::limits;
use crate::wire::{Failure, FailureKind, Hello, JoinAnswer, JoinRequest, Request, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// Reaches members over TLS with the invitation's authority pinned.
pub struct Pinned;

impl Sponsors for Pinned {
    fn connect<'a>(
        &'a self,
        address: &'a str,
        authority: Fingerprint,
    ) -> BoxFuture<'a, Result<Box<dyn Sponsor>, Failure>> {
        async move {
            let client = JoinClient::connect(address, authority).await?;
            Ok(Box::new(client) as Box<dyn Sponsor>)
        }
        .boxed()
    }
}

impl Sponsor for JoinClient {
    fn call(&self, request: JoinRequest, deadline: Duration) -> BoxFuture<'_, Result<JoinAnswer, Failure>> {
        async move {
            match self.connection.call(&Request::Join(request), Instant::now() + deadline).await? {
                Response::Join(answer) => Ok(answer),
                Response::Failed(failure) => Err(failure),
                Response::Member(_) | Response::Client(_) => {
                    Err(Failure::new(FailureKind::Internal, "the member answered another question"))
                }
            }
        }
        .boxed()
    }
}

/// A connection of a joiner to a member. The steps of a join run on one connection.
pub struct JoinClient {
    connection: Connection,
    member: Named,
}

impl JoinClient {
    /// Connects to `host:port` within [`limits::CONNECT`], and trusts whatever member the authority with this
    /// fingerprint signed. A failure whose remedy is another member means that nothing was sent.
    pub async fn connect(address: &str, authority: Fingerprint) -> Result<Self, Failure> {
        let late =
            || LinkError::Unreachable(format!("no connection within {} ms", limits::CONNECT.as_millis()));
        let connected = timeout(limits::CONNECT, Self::open(address, authority)).await;
        connected.unwrap_or_else(|_| Err(late())).map_err(|error| {
            let failure = Failure::from(error);
            Failure::new(failure.kind, format!("{address}: {}", failure.message))
        })
    }

    /// Who answers, by the certificate that the authority signed.
    pub fn member(&self) -> Named {
        self.member
    }

    async fn open(address: &str, authority: Fingerprint) -> Result<Self, LinkError> {
        let config = tls::pinned(authority).map_err(|e| LinkError::Refused(e.to_string()))?;
        let stream = TcpStream::connect(address).await.map_err(|e| LinkError::Unreachable(e.to_string()))?;
        tcp::prepare(&stream).map_err(|e| LinkError::Unreachable(e.to_string()))?;
        let stream = TlsConnector::from(config)
            .connect(tls::server_name(), stream)
            .await
            .map_err(|e| connection::broken(&e.into()))?;
        let named = tls::peer(stream.get_ref().1.peer_certificates());
        let member = named
            .map_err(|e| LinkError::Refused(e.to_string()))?
            .ok_or_else(|| LinkError::Refused("it shows no certificate".into()))?;
        let (connection, theirs) = Connection::open(stream, &Hello::anonymous(), Watch::Pings).await?;
        hello::judge_protocol(&theirs).map_err(LinkError::Refused)?;
        Ok(Self { connection, member })
    }
}
