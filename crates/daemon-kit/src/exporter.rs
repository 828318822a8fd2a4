//! Prometheus metrics over HTTP: `GET /metrics` answers in the OpenMetrics text format.
//!
//! Every client that reaches the address can read the page, so the address should be on loopback or on a trusted
//! network. A hostile client costs little: at most 16 connections at a time, 10 s each.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at the same time; more wait.
const CONNECTIONS: usize = 16;
/// The longest time that one connection lasts.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The address cannot be listened on.
#[derive(Debug, Error)]
#[error("{address}: {source}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// A listening socket that is not served yet: open it before privileges are dropped.
#[derive(Debug)]
pub struct Exporter {
    listener: TcpListener,
    address: SocketAddr,
}

impl Exporter {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(address: SocketAddr) -> Result<Exporter, BindError> {
        let error = |source| BindError { address, source };
        let listener = TcpListener::bind(address).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        Ok(Exporter { listener, address })
    }

    /// Returns the address that it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the future is dropped, in a tokio runtime with I/O and time. Each request calls `gather`; `None`
    /// answers 503.
    ///
    /// # Errors
    /// The socket cannot be used in the runtime.
    pub async fn serve<G, F>(self, gather: G) -> io::Result<()>
    where
        G: Fn() -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Option<Registry>> + Send,
    {
        let metrics = move || {
            let gather = gather.clone();
            async move { page(gather().await) }
        };
        let router = Router::new()
            .route(
                "/",
                get(|| async { Html("<a href=\"/metrics\">metrics</a>\n") }),
            )
            .route("/metrics", get(metrics));
        self.serve_router(router).await
    }

    /// Serves other pages with the same bounds until the future is dropped.
    ///
    /// # Errors
    /// The socket cannot be used in the runtime.
    pub async fn serve_router(self, router: Router) -> io::Result<()> {
        let listener = ConnectionLimiter {
            listener: tokio::net::TcpListener::from_std(self.listener)?,
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
        };
        axum::serve(listener, router).await
    }
}

fn page(registry: Option<Registry>) -> Response {
    let mut text = String::new();
    match registry.map(|registry| encode(&mut text, &registry)) {
        Some(Ok(())) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// A listener that bounds the number of connections and the time of each.
struct ConnectionLimiter {
    listener: tokio::net::TcpListener,
    permits: Arc<Semaphore>,
}

impl axum::serve::Listener for ConnectionLimiter {
    type Io = TimedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TimedStream, SocketAddr) {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let end = Box::pin(tokio::time::sleep(TIMEOUT));
                    return (
                        TimedStream {
                            stream,
                            end,
                            _permit: permit,
                        },
                        address,
                    );
                }
                Err(error) => {
                    // Out of file descriptors, most likely: other connections must end first.
                    tracing::warn!(event = "metrics_accept_failed", %error, "cannot accept a metrics connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends at a deadline.
struct TimedStream {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            return Poll::Ready(result);
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_write(context, bytes) {
            return Poll::Ready(result);
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use std::io::{Read, Write};
    use std::net::TcpStream as Client;

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut client = Client::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_reading_in_the_text_format() {
        let exporter = Exporter::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = exporter.local_address();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(exporter.serve(|| async {
                let counter = Counter::<u64>::default();
                counter.inc_by(7);
                let mut registry = Registry::default();
                registry.register("seen", "What was seen", counter);
                Some(registry)
            }))
        });
        let answer = ask(address, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(
            answer.contains("content-type: application/openmetrics-text"),
            "{answer}"
        );
        assert!(answer.contains("seen_total 7\n# EOF\n"), "{answer}");
        assert!(ask(address, "/").contains("/metrics"));
        assert!(ask(address, "/other").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn nothing_to_show_is_503() {
        let exporter = Exporter::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = exporter.local_address();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(exporter.serve(|| async { None }))
        });
        assert!(ask(address, "/metrics").starts_with("HTTP/1.1 503"));
    }

    #[test]
    fn a_taken_address_is_named() {
        let first = Exporter::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = Exporter::bind(first.local_address()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&first.local_address().to_string())
        );
    }
}
