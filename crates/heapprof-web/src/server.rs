//! The server of a page: it listens on this machine only, and lets nobody in without the token.
//!
//! One connection carries one request, so that each has an end: a time for its head, a time for
//! all of it, and a number of bytes. What is asked is answered by an [`Answers`] on threads of its
//! own, a few at a time.

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

pub use self::answer::{Answer, Answers, Asked, JSON, Refusal, Takes};
use self::guard::Guard;
use self::lobby::Lobby;
use self::send::Desk;
use self::token::Token;

/// The path that all of the interface begins with.
pub const API: &str = "/api/v1";

/// So many connections are open at once. For another one, the oldest that has not asked is closed.
const CONNECTIONS: usize = 64;
/// So many bytes a request's head may have.
const HEAD: usize = 16 << 10;
/// So many headers a request may have.
const HEADERS: usize = 64;
/// So long the head of a request may take.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// So long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// So many answers are worked at. Others wait.
const WORKERS: usize = 2;
/// How long a failed accept waits, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// A server that listens, and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
}

/// Ends a server from another thread.
#[derive(Clone, Default)]
pub struct Stop(Arc<Notify>);

impl Stop {
    /// Ends the server, also if it has not begun yet.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

impl Server {
    /// Listens on 127.0.0.1. Port 0 takes any that is free.
    ///
    /// # Errors
    /// The port may be taken or not allowed, and there may be no random numbers.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            token: Token::new()?,
        })
    }

    /// Returns the address of the page, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token.text())
    }

    /// Answers until it is stopped.
    ///
    /// # Errors
    /// The system may not give what a server needs.
    pub fn serve(self, answers: Arc<dyn Answers>, stop: &Stop) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WORKERS)
            .build()?;
        let guard = Guard::new(self.address.port(), self.token);
        let desk = Arc::new(Desk::new(guard, answers));
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            tokio::spawn(listen(listener, desk));
            stop.0.notified().await;
            Ok::<_, io::Error>(())
        })?;
        // Whoever waits for an answer does not get it any more.
        runtime.shutdown_background();
        Ok(())
    }
}

/// Takes connections in, one task for each.
async fn listen(listener: tokio::net::TcpListener, desk: Arc<Desk>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let lobby = Lobby::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(place) = place(&places, &lobby).await else {
            return;
        };
        let Some((stream, second)) = twice(stream) else {
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
                .header_read_timeout(HEAD_PATIENCE)
                .keep_alive(false)
                .max_buf_size(HEAD)
                .max_headers(HEADERS)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = pin!(tokio::time::timeout(PATIENCE, connection));
            let mut wanted = pin!(seat.is_wanted());
            let is_slow = poll_fn(|context| match connection.as_mut().poll(context) {
                // A client that breaks off wants no answer, and one that speaks no HTTP has got it.
                Poll::Ready(ended) => {
                    Poll::Ready(matches!(ended, Ok(Err(error)) if error.is_timeout()))
                }
                Poll::Pending => wanted.as_mut().poll(context).map(|()| true),
            });
            let is_slow = is_slow.await;
            if is_slow {
                send::too_slow(second);
            }
            drop(place);
        });
    }
}

/// Waits for a place. Whoever has one and has not asked for the longest time gives it up.
async fn place(places: &Arc<Semaphore>, lobby: &Lobby) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return Some(place);
    }
    lobby.send_away();
    places.clone().acquire_owned().await.ok()
}

/// A connection, and once more for what is to be said after its end.
fn twice(stream: tokio::net::TcpStream) -> Option<(tokio::net::TcpStream, TcpStream)> {
    let stream = stream.into_std().ok()?;
    let second = stream.try_clone().ok()?;
    Some((tokio::net::TcpStream::from_std(stream).ok()?, second))
}
