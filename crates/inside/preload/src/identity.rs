//! Hooks on functions that change the identity or the namespaces of a process. These functions act
//! on all threads of the process, or require that it has only one thread. Some of them lower the
//! rights of the process. The hooks report this before it happens.
//!
//! The library's own thread ends before the call, for two reasons: libc gives each thread the new
//! identity, and ends the program if that fails for a thread. And the kernel denies some namespaces
//! to a process with two threads.

use std::ffi::c_int;

use heapprof_engine::{ENGINE, RightsLeft};
use heapprof_platform::sys;

use crate::hook::announced;
use crate::other_root;
use crate::real_functions::HookedFunction;

/// Argument for a user id that is to stay unchanged.
const NO_CHANGE: u32 = u32::MAX;

/// Runs before a function whose change is not reported to the engine. Only ends the library's
/// thread, and moves the ledger to its file, because the ledger keeper may not recognize the
/// process after the change.
unsafe extern "C" fn before_call() {
    before_others();
}

/// Ends the library's thread, and moves the ledger to its file. All hooks of this module need this.
fn before_others() {
    ENGINE.lifecycle().end_clock();
    ENGINE.lifecycle().move_ledger_to_file();
}

fn before_user_change(user: u32, is_for_good: bool) {
    before_others();
    if user != NO_CHANGE {
        let left = RightsLeft::User { user, is_for_good };
        ENGINE.lifecycle().lowers_rights(left);
    }
}

/// Runs before setuid, which changes all user ids of a root process.
unsafe extern "C" fn before_setuid(user: u32) {
    before_user_change(user, true);
}

/// Runs before seteuid.
unsafe extern "C" fn before_seteuid(user: u32) {
    before_user_change(user, false);
}

/// Runs before setreuid.
unsafe extern "C" fn before_setreuid(real: u32, effective: u32) {
    before_user_change(effective, real == effective);
}

/// Runs before setresuid.
unsafe extern "C" fn before_setresuid(real: u32, effective: u32, saved: u32) {
    before_user_change(effective, [real, saved] == [effective; 2]);
}

/// Runs before unshare.
unsafe extern "C" fn before_unshare(flags: c_int) {
    before_others();
    if flags & libc::CLONE_NEWUSER != 0 {
        ENGINE.lifecycle().lowers_rights(RightsLeft::Unknown);
    }
}

/// Runs before setns. If `kind` is 0, only the kernel knows the kind of namespace of the file.
unsafe extern "C" fn before_setns(_file: c_int, kind: c_int) {
    before_others();
    if kind == 0 || kind & libc::CLONE_NEWNS != 0 {
        other_root::prepare_to_leave();
    }
    if kind == 0 || kind & libc::CLONE_NEWUSER != 0 {
        ENGINE.lifecycle().lowers_rights(RightsLeft::Unknown);
    }
}

/// Runs before capset, which may take capabilities away from root.
unsafe extern "C" fn before_capset(header: usize, data: usize) {
    /// Versions of the header since Linux 2.6.25. The data of a call with these versions have twice
    /// as many words as before.
    const VERSIONS: [u32; 2] = [0x2007_1026, 0x2008_0522];
    ENGINE.lifecycle().move_ledger_to_file();
    // Under a filter of system calls this is not reported: the filter may forbid what comes next.
    if ENGINE.lifecycle().is_filtered() {
        return;
    }
    let mut version = [0; 4];
    if sys::read_memory(header, &mut version) < version.len() {
        return;
    }
    let is_long = VERSIONS.contains(&u32::from_ne_bytes(version));
    if let Some(wanted) = effective(data, is_long)
        && let Some(own) = own_capabilities()
        && own & !wanted != 0
    {
        ENGINE.lifecycle().lowers_rights(RightsLeft::Unknown);
    }
}

/// Reads the effective capabilities from the data of capset or capget; `None` if the data cannot be
/// read.
fn effective(data: usize, is_long: bool) -> Option<u64> {
    let mut words = [0; 24];
    let len = if is_long { 24 } else { 12 };
    (sys::read_memory(data, &mut words[..len]) == len).then_some(())?;
    let word = |at: usize| {
        let bytes = words[at..at + 4].try_into().unwrap_or_default();
        u64::from(u32::from_ne_bytes(bytes))
    };
    // The short form says nothing about the upper half.
    Some(word(0) | word(12) << 32)
}

/// Returns the effective capabilities of this thread.
fn own_capabilities() -> Option<u64> {
    let header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    let args = [
        header.as_ptr() as usize,
        data.as_mut_ptr() as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes as much as `data` has.
    let result = unsafe { sys::call(libc::SYS_capget, args) };
    (result == 0).then_some(())?;
    effective(data.as_ptr() as usize, true)
}

announced! {
    before_call, BEHIND, IdentityCall:
    setgid, setegid, setregid, setresgid, setgroups, initgroups,
}

announced! { before_setuid, SETUID, PlaceOfSetuid: setuid }
announced! { before_seteuid, SETEUID, PlaceOfSeteuid: seteuid }
announced! { before_setreuid, SETREUID, PlaceOfSetreuid: setreuid }
announced! { before_setresuid, SETRESUID, PlaceOfSetresuid: setresuid }
announced! { before_unshare, UNSHARE, PlaceOfUnshare: unshare }
announced! { before_setns, SETNS, PlaceOfSetns: setns }
announced! { before_capset, CAPSET, PlaceOfCapset: capset }

/// Runs before syscall, and handles system calls that change a process's identity, namespaces or
/// root folder.
pub fn before_syscall(number: libc::c_long, [first, second, third]: [usize; 3]) {
    let [user, effective, saved] = [first as u32, second as u32, third as u32];
    // SAFETY: these read their arguments, and capset's as the kernel does.
    unsafe {
        match number {
            libc::SYS_setuid => before_setuid(user),
            libc::SYS_setreuid => before_setreuid(user, effective),
            libc::SYS_setresuid => before_setresuid(user, effective, saved),
            libc::SYS_unshare => before_unshare(first as c_int),
            libc::SYS_setns => before_setns(first as c_int, second as c_int),
            libc::SYS_capset => before_capset(first, second),
            libc::SYS_chroot | libc::SYS_pivot_root => {
                ENGINE.lifecycle().move_ledger_to_file();
                other_root::prepare_to_leave();
            }
            libc::SYS_mount => ENGINE.lifecycle().move_ledger_to_file(),
            _ => {}
        }
    }
}

/// Looks up the real functions behind this module's hooks. It is called at the library's start.
pub fn prepare() {
    let tables: [&[HookedFunction]; 8] = [
        &BEHIND, &SETUID, &SETEUID, &SETREUID, &SETRESUID, &UNSHARE, &SETNS, &CAPSET,
    ];
    for function in tables.into_iter().flatten() {
        function.find();
    }
}
