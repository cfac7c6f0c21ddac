//! The monitor's port: `/metrics` for Prometheus and `/healthz` for whoever sends traffic here. It tells numbers and whether
//! the member serves, nothing of keys; nothing can be changed through it.

use crate::engine::Monitor;
use crate::exit::{Exit, Problem};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use keyraft_engine::limits;
use keyraft_engine::telemetry::{Event, metrics};
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// A port that nobody is answered on yet.
pub struct Port(TcpListener);

impl Port {
    /// Takes the port, so that a member that cannot have it ends before it touches anything.
    pub async fn bind(address: SocketAddr) -> Result<Self, Problem> {
        TcpListener::bind(address).await.map(Self).map_err(|e| {
            let what = format!("cannot listen for monitors on {address}: {e}");
            Problem::new(Exit::Config, what, "choose another member.metrics, or leave it out")
        })
    }

    /// Answers monitors until the future is dropped.
    pub async fn serve(self, monitor: Monitor) {
        if let Ok(address) = self.0.local_addr() {
            tracing::info!(code = Event::MonitorOpen.code(), %address, "monitors are answered");
        }
        let router = Router::new()
            .route("/metrics", get(numbers))
            .route("/healthz", get(health))
            .with_state(monitor)
            .layer(axum::middleware::map_response(only_one));
        let doorman = Doorman { listener: self.0, places: Arc::new(Semaphore::new(limits::MONITORS_MAX)) };
        if let Err(error) = axum::serve(doorman, router).await {
            tracing::error!(code = Event::MonitorEnded.code(), %error, "monitors are answered no more");
        }
    }
}

async fn numbers(State(monitor): State<Monitor>) -> Response {
    match monitor.metrics() {
        Some(Ok(text)) => page(StatusCode::OK, metrics::CONTENT_TYPE, text),
        // Half a page would be read as a whole one.
        Some(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn health(State(monitor): State<Monitor>) -> Response {
    let health = monitor.health();
    let status = if health.refuses.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "serving": health.refuses.is_none(),
        "standby": health.standby,
        "reason": health.refuses,
        "member": health.member.map(|m| m.to_string()),
        "primary": health.primary.map(|m| m.to_string()),
    });
    page(status, "application/json", format!("{body}\n"))
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Ends the connection with its first answer: one that is kept for a next request holds a place that others need.
async fn only_one(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Lets in so many at once, each for a while.
struct Doorman {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Listener for Doorman {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        loop {
            // Never closed: then nobody would be let in any more, which a pending wait says as well.
            let Ok(place) = self.places.clone().acquire_owned().await else {
                return std::future::pending().await;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let end = Box::pin(tokio::time::sleep(limits::MONITOR_LIFE));
                    return (Visit { stream, end, _place: place }, address);
                }
                Err(error) => {
                    tracing::debug!(%error, "a monitor could not be accepted");
                    tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A monitor's connection. It ends after [`limits::MONITOR_LIFE`], however slowly its peer talks.
struct Visit {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Visit {
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        self.end.as_mut().poll(context).is_ready()
    }
}

fn over<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)))
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(context) { over() } else { Pin::new(&mut self.stream).poll_read(context, buffer) }
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_over(context) { over() } else { Pin::new(&mut self.stream).poll_write(context, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
