//! Does work with another user's rights: in that user's folders, `record` as root does only what
//! the user could do.

use std::io;
use std::sync::OnceLock;

use rustix::fs::Stat;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The owner of a file: a user, and the group of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileOwner {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
}

impl FileOwner {
    /// Returns the owner of a file.
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            user: stat.st_uid,
            group: stat.st_gid,
        }
    }

    /// Returns the user and the group of this process, also in a thread that acts for another user.
    pub fn us() -> Self {
        static THIS_PROCESS: OnceLock<FileOwner> = OnceLock::new();
        *THIS_PROCESS.get_or_init(|| Self {
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
        })
    }

    /// Whether the owner is the user of this process.
    pub fn is_us(self) -> bool {
        self.user == Self::us().user
    }

    /// Whether this thread acts as the owner, without the rights of any other user.
    pub fn is_acting(self) -> bool {
        self.user == geteuid().as_raw()
    }
}

/// Does `work` as `owner`. If this thread already acts as `owner`, it does the work itself.
/// Otherwise a new thread gives up all other rights and does the work. Only root can act for
/// others.
pub fn acting<R: Send>(owner: FileOwner, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    // The user of this process must be known before a thread acts for another user.
    FileOwner::us();
    if owner.is_acting() {
        return Ok(work());
    }
    if !geteuid().is_root() {
        return Err(io::Error::other(format!(
            "belongs to user {}, and only root can act as another user",
            owner.user
        )));
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            become_user(owner)?;
            Ok(work())
        })?;
        let ended = thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("could not be done")))
    })
}

/// Gives up all rights of this thread except those of `owner`. The thread's real user does not
/// change, so `owner` can't send it signals.
fn become_user(owner: FileOwner) -> io::Result<()> {
    let same = "can't switch to the rights of its owner";
    let refused = |error: rustix::io::Errno| io::Error::other(format!("{same}: {error}"));
    let (group, user) = (Gid::from_raw(owner.group), Uid::from_raw(owner.user));
    set_thread_groups(&[]).map_err(refused)?;
    set_thread_res_gid(None, group, None).map_err(refused)?;
    set_thread_res_uid(None, user, None).map_err(refused)?;
    match (geteuid(), getegid()) == (user, group) {
        true => Ok(()),
        false => Err(io::Error::other(same)),
    }
}
