//! The connections that have not asked yet. They have no right to a place that others want: whoever
//! opens many and is silent would keep the page out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What tells each connection to go whose question has not come, the oldest first.
type WaitingConnections = Mutex<VecDeque<Arc<Notify>>>;

/// The connections whose question has not come.
#[derive(Default)]
pub(super) struct ConnectionLobby(Arc<WaitingConnections>);

/// The seat of a connection. It is free again after it was dropped.
pub(super) struct LobbySeat {
    lobby: Arc<WaitingConnections>,
    wanted: Arc<Notify>,
    has_asked: AtomicBool,
}

impl ConnectionLobby {
    /// Takes a connection in.
    pub(super) fn enter(&self) -> LobbySeat {
        let wanted = Arc::new(Notify::new());
        lock_waiting(&self.0).push_back(wanted.clone());
        LobbySeat {
            lobby: self.0.clone(),
            wanted,
            has_asked: AtomicBool::new(false),
        }
    }

    /// Asks the oldest connection to go, if there is one.
    pub(super) fn send_away(&self) {
        if let Some(oldest) = lock_waiting(&self.0).pop_front() {
            oldest.notify_one();
        }
    }
}

impl LobbySeat {
    /// The connection has asked, and keeps its place from now on.
    pub(super) fn leave(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
        lock_waiting(&self.lobby).retain(|other| !Arc::ptr_eq(other, &self.wanted));
    }

    /// Waits until the place is wanted for another. That is too late once the connection has asked.
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
