//! The server of a page. It listens on this machine only, and refuses requests without the token.
//!
//! Each connection is for one request. The head and the whole request have limits of time and size.
//! An [`ApiHandler`] answers requests on separate threads, a few at a time.

mod answer;
mod guard;
mod lobby;
mod send;
mod token;

use std::future::{Future, poll_fn};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub use self::answer::{
    AcceptedBody, ApiAnswer, ApiHandler, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE,
};
use self::guard::RequestGuard;
use self::lobby::ConnectionLobby;
use self::send::RequestDesk;
use self::token::AccessToken;

/// Path prefix of the whole API.
pub const API_PATH: &str = "/api/v1";

/// Maximum number of open connections. One more connection closes the oldest one that has not sent
/// a request.
const MAX_CONNECTIONS: usize = 64;
/// Maximum size of a request's head in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Maximum number of headers in a request.
const MAX_HEADERS: usize = 64;
/// Longest time that the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that a request and its answer may take together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum number of answers that are computed at the same time. Further requests wait.
const MAX_WORKERS: usize = 2;
/// Pause before the next attempt to accept a connection, after an attempt failed, for example
/// because too many files are open.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A server that listens, but has not begun to answer.
pub struct PageServer {
    listener: TcpListener,
    address: SocketAddr,
    token: AccessToken,
}

/// Stops a server from another thread.
#[derive(Clone, Default)]
pub struct ServerStop(Arc<Notify>);

impl ServerStop {
    /// Stops the server. A server that has not begun yet will stop at once.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

impl PageServer {
    /// Listens on 127.0.0.1. Port 0 takes any free port.
    ///
    /// # Errors
    /// The port is in use or not allowed, or no random numbers are available for the token.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            token: AccessToken::new()?,
        })
    }

    /// Returns the URL of the page, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token.text())
    }

    /// Answers requests until `stop` stops the server.
    ///
    /// # Errors
    /// The system refuses resources that the server needs.
    pub fn serve(self, answers: Arc<dyn ApiHandler>, stop: &ServerStop) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_WORKERS)
            .build()?;
        let guard = RequestGuard::new(self.address.port(), self.token);
        let desk = Arc::new(RequestDesk::new(guard, answers));
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            tokio::spawn(listen(listener, desk));
            stop.0.notified().await;
            Ok::<_, io::Error>(())
        })?;
        // Clients that still wait for an answer do not get it.
        runtime.shutdown_background();
        Ok(())
    }
}

/// Accepts connections, and serves each in its own task.
async fn listen(listener: tokio::net::TcpListener, desk: Arc<RequestDesk>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let lobby = ConnectionLobby::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            }
        };
        let Some(place) = wait_for_place(&places, &lobby).await else {
            return;
        };
        let Some((stream, second)) = duplicate_stream(stream) else {
            continue;
        };
        let desk = desk.clone();
        let seat = Arc::new(lobby.enter());
        tokio::spawn(async move {
            let asks = seat.clone();
            let service = service_fn(move |request| {
                asks.leave();
                desk.clone().handle(request)
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .keep_alive(false)
                .max_buf_size(MAX_HEAD_BYTES)
                .max_headers(MAX_HEADERS)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = pin!(tokio::time::timeout(REQUEST_TIMEOUT, connection));
            let mut wanted = pin!(seat.wait_until_wanted());
            let is_slow = poll_fn(|context| match connection.as_mut().poll(context) {
                // A client that disconnects wants no answer, and a client that does not speak HTTP
                // already has one.
                Poll::Ready(ended) => {
                    Poll::Ready(matches!(ended, Ok(Err(error)) if error.is_timeout()))
                }
                Poll::Pending => wanted.as_mut().poll(context).map(|()| true),
            });
            let is_slow = is_slow.await;
            if is_slow {
                send::send_too_slow(second);
            }
            drop(place);
        });
    }
}

/// Waits until the number of connections allows one more. If there are too many, closes the
/// connection that has waited longest without a request.
async fn wait_for_place(
    places: &Arc<Semaphore>,
    lobby: &ConnectionLobby,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return Some(place);
    }
    lobby.send_away();
    places.clone().acquire_owned().await.ok()
}

/// Returns the connection and a second handle to it, over which an answer can be sent after the
/// first handle is closed.
fn duplicate_stream(stream: tokio::net::TcpStream) -> Option<(tokio::net::TcpStream, TcpStream)> {
    let stream = stream.into_std().ok()?;
    let second = stream.try_clone().ok()?;
    Some((tokio::net::TcpStream::from_std(stream).ok()?, second))
}
