//! The connections that have not sent a request yet. The oldest of them is closed if there are too
//! many connections. Otherwise a client could block the page by opening many silent connections.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// One notifier for each waiting connection, the oldest first. A notification asks the connection
/// to close.
type WaitingConnections = Mutex<VecDeque<Arc<Notify>>>;

/// The list of connections that have not sent a request yet.
#[derive(Default)]
pub(super) struct ConnectionLobby(Arc<WaitingConnections>);

/// The entry of a connection in the list of waiting connections. Dropping it removes the entry.
pub(super) struct LobbySeat {
    lobby: Arc<WaitingConnections>,
    wanted: Arc<Notify>,
    has_asked: AtomicBool,
}

impl ConnectionLobby {
    /// Adds a connection to the list.
    pub(super) fn enter(&self) -> LobbySeat {
        let wanted = Arc::new(Notify::new());
        lock_waiting(&self.0).push_back(wanted.clone());
        LobbySeat {
            lobby: self.0.clone(),
            wanted,
            has_asked: AtomicBool::new(false),
        }
    }

    /// Asks the oldest waiting connection, if any, to close.
    pub(super) fn send_away(&self) {
        if let Some(oldest) = lock_waiting(&self.0).pop_front() {
            oldest.notify_one();
        }
    }
}

impl LobbySeat {
    /// Removes the connection from the list, because it has sent its request. From now on it is not
    /// asked to close.
    pub(super) fn leave(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
        lock_waiting(&self.lobby).retain(|other| !Arc::ptr_eq(other, &self.wanted));
    }

    /// Waits until the connection is asked to close. Never returns once the connection has sent its
    /// request.
    pub(super) async fn wait_until_wanted(&self) {
        self.wanted.notified().await;
        if self.has_asked.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }
}

impl Drop for LobbySeat {
    fn drop(&mut self) {
        self.leave();
    }
}

fn lock_waiting(lobby: &WaitingConnections) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
    lobby.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Whether a connection is asked to close now.
    fn is_wanted(seat: &LobbySeat) -> bool {
        let mut waits = pin!(seat.wait_until_wanted());
        let mut context = Context::from_waker(Waker::noop());
        matches!(waits.as_mut().poll(&mut context), Poll::Ready(()))
    }

    #[test]
    fn the_oldest_silent_connection_goes_first() {
        let lobby = ConnectionLobby::default();
        let [first, second, third] = [(); 3].map(|()| lobby.enter());
        assert!(!is_wanted(&first));
        lobby.send_away();
        assert!(is_wanted(&first) && !is_wanted(&second));
        lobby.send_away();
        assert!(is_wanted(&second) && !is_wanted(&third));
    }

    #[test]
    fn a_connection_that_has_asked_stays() {
        let lobby = ConnectionLobby::default();
        let [first, second] = [(); 2].map(|()| lobby.enter());
        first.leave();
        lobby.send_away();
        assert!(!is_wanted(&first) && is_wanted(&second));
        // It was asked to close, and sent its request at the same time.
        let third = lobby.enter();
        lobby.send_away();
        third.leave();
        assert!(!is_wanted(&third));
        lobby.send_away();
    }

    #[test]
    fn a_connection_that_ends_takes_no_place() {
        let lobby = ConnectionLobby::default();
        let first = lobby.enter();
        let second = lobby.enter();
        drop(first);
        lobby.send_away();
        assert!(is_wanted(&second));
        assert!(lock_waiting(&lobby.0).is_empty());
    }
}
