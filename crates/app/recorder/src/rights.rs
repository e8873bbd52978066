//! The rights of a process that heapprof reads. A file that the process named is opened, read or
//! written with the least rights that the process may have had while its ledger was open.
//!
//! A process lowers its rights while it runs, and another user who controls it afterwards can write
//! into its ledger. Two sources can show that rights were lowered: a message of the library, and
//! the kernel, until the process is reaped. Only the kernel can show that they were not lowered. If
//! the rights can't be known, only files that everybody may read are opened.

mod ledger;
mod namer;

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use heapprof_process::status;

pub use ledger::RightsLedger;
pub use namer::ProcessNamer;

use heapprof_files::{FileOwner, acting};

/// The rights with which files are opened for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessRights {
    /// The rights of a user. For the user of this process, they are the rights of this process.
    User(FileOwner),
    /// The rights that everybody has.
    Public,
}

/// The rights that the kernel shows for a process now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObservedRights {
    pub(crate) rights: ProcessRights,
    /// Whether the process can't become another user any more.
    pub(crate) is_final: bool,
}

impl ProcessRights {
    /// Returns the rights of this process.
    pub fn us() -> Self {
        Self::User(FileOwner::us())
    }

    /// Returns the rights of a process now. If the process is gone, its rights are not known: the
    /// result is [`Public`](Self::Public) for root, and this process's own rights for another user.
    pub fn now(pid: u32) -> Self {
        match Self::observe(pid) {
            Some(found) => found.rights,
            None if is_root() => Self::Public,
            None => Self::us(),
        }
    }

    /// Returns the rights that `self` and `other` have in common.
    pub fn with(self, other: Self) -> Self {
        let (Self::User(one), Self::User(two)) = (self, other) else {
            return Self::Public;
        };
        let us = FileOwner::us();
        match (one.user == two.user, one.is_us(), two.is_us()) {
            (true, true, _) => Self::us(),
            // The group of this process is the one that was given up.
            (true, ..) if one.group == two.group || one.group == us.group => other,
            (true, ..) if two.group == us.group => self,
            (true, ..) => Self::Public,
            // Only root can become others.
            (_, true, _) => other,
            (_, _, true) => self,
            _ => Self::Public,
        }
    }

    /// Returns the owner of files that are written for a process with these rights. With public
    /// rights, this is the user of the current process.
    pub fn owner(self) -> FileOwner {
        match self {
            Self::User(owner) => owner,
            Self::Public => FileOwner::us(),
        }
    }

    /// Whether the rights are the rights of this process.
    pub fn are_ours(self) -> bool {
        matches!(self, Self::User(owner) if owner.is_us())
    }

    /// Does `work` with these rights. With [`Public`](Self::Public), `work` runs with the rights of
    /// this process, and must itself open only files that everybody may read.
    pub fn acting<R: Send>(self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        acting(self.owner(), work)
    }

    /// Returns the rights that the kernel shows for a process that was not reaped yet; `None` if
    /// the process is gone.
    pub(crate) fn observe(pid: u32) -> Option<ObservedRights> {
        let [users, groups, permitted, effective] =
            status(pid, ["Uid:", "Gid:", "CapPrm:", "CapEff:"]);
        // The real, the effective, the saved and the file-system number.
        let numbers = |text: &str| -> Option<[u32; 4]> {
            let all: Vec<u32> = text.split_whitespace().flat_map(str::parse).collect();
            all.try_into().ok()
        };
        let (users, groups) = (numbers(&users)?, numbers(&groups)?);
        let of = |i: usize| {
            let (user, group) = (users[i], groups[i]);
            Self::User(FileOwner { user, group })
        };
        let mut rights = of(1).with(of(3));
        if !is_root() {
            return Some(ObservedRights {
                rights,
                is_final: false,
            });
        }
        // Root without its capabilities, or in another user namespace, does not have this root's
        // rights.
        if rights.are_ours() && !(has_our_capabilities(&effective) && is_among_our_users(pid)) {
            rights = Self::Public;
        }
        // In a container, root may be unable to act as another user.
        if !rights.are_ours() && !may_become_others() {
            rights = Self::Public;
        }
        let is_one = users == [users[0]; 4] && groups == [groups[0]; 4];
        let has_none = u64::from_str_radix(&permitted, 16) == Ok(0);
        Some(ObservedRights {
            rights,
            is_final: is_one && has_none && users[0] != 0,
        })
    }
}

/// Whether this process is root, even if the current thread acts for another user.
pub fn is_root() -> bool {
    FileOwner::us().user == 0
}

/// Returns the capabilities of this process.
fn own_capabilities() -> Option<u64> {
    // This process as a whole keeps its capabilities. Only single threads act for others.
    static OWN_CAPABILITIES: OnceLock<Option<u64>> = OnceLock::new();
    *OWN_CAPABILITIES.get_or_init(|| {
        let [own] = status(std::process::id(), ["CapEff:"]);
        u64::from_str_radix(&own, 16).ok()
    })
}

/// Whether capabilities, in the kernel's text form, include all capabilities of this process.
fn has_our_capabilities(effective: &str) -> bool {
    match (own_capabilities(), u64::from_str_radix(effective, 16)) {
        (Some(own), Ok(its)) => own & !its == 0,
        _ => false,
    }
}

/// Whether a thread of this process, which is root, can act as another user. True if the
/// capabilities of this process are not known.
fn may_become_others() -> bool {
    const SETGID: u64 = 1 << 6;
    const SETUID: u64 = 1 << 7;
    own_capabilities().is_none_or(|own| own & SETUID != 0 && own & SETGID != 0)
}

/// Whether a process is in the user namespace of this process.
fn is_among_our_users(pid: u32) -> bool {
    static OWN_NAMESPACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user")).ok();
    let own = OWN_NAMESPACE.get_or_init(|| namespace("self"));
    match (own, &namespace(&pid.to_string())) {
        (Some(own), Some(its)) => own == its,
        // The kernel was built without user namespaces.
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_may_do_no_more_than_either() {
        let us = FileOwner::us();
        let user = |user: u32, group: u32| ProcessRights::User(FileOwner { user, group });
        let (ours, other) = (ProcessRights::us(), us.user + 1);
        let third = us.user + 2;
        let group = us.group + 1;
        for (one, two, expected) in [
            (ours, ours, ours),
            (ours, user(us.user, group), ours),
            (ours, user(other, group), user(other, group)),
            (
                user(other, us.group),
                user(other, group),
                user(other, group),
            ),
            (
                user(other, group),
                user(other, group + 1),
                ProcessRights::Public,
            ),
            (
                user(other, group),
                user(third, group),
                ProcessRights::Public,
            ),
            (ours, ProcessRights::Public, ProcessRights::Public),
        ] {
            assert_eq!(one.with(two), expected, "{one:?} {two:?}");
            assert_eq!(two.with(one), expected, "{two:?} {one:?}");
        }
    }

    #[test]
    fn this_process_has_our_rights() {
        let found = ProcessRights::observe(std::process::id()).unwrap();
        assert!(found.rights.are_ours() && !found.is_final);
        assert_eq!(ProcessRights::observe(0), None);
    }
}
