//! The wiretap of a program: `heapprof_alive` reports that code ran. When the process ends, it
//! reports the number of datagrams that it has sent.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use heapprof_engine::{ENGINE, LoadAttempt, LoadOutcome};
use heapprof_wiretap::{self as wiretap, DatagramSender, RouteError, WiretapRoute};

use crate::environment;
use crate::messages::{say, text};

static WIRETAP_SENDER: DatagramSender = DatagramSender::new();

/// Sets up the wiretap, if the environment requests it.
pub fn prepare() {
    let Some((address, key_file)) = environment::wiretap() else {
        return;
    };
    let key_file = key_file.map(|path| Path::new(OsStr::from_bytes(path)));
    match WiretapRoute::new(address, key_file) {
        Ok(route) => WIRETAP_SENDER.set(route),
        Err(wrong) => {
            let is_of_key = matches!(wrong, RouteError::Key(_));
            say(&[
                b"heapprof: ",
                environment::wrong_wiretap(is_of_key).as_bytes(),
                b": ",
                wrong.to_string().as_bytes(),
                b"; nothing is sent",
            ]);
        }
    }
}

/// Reports the number of datagrams that this process has sent, unless the program is in a sandbox,
/// where the system call may be forbidden.
pub fn end() {
    if !ENGINE.lifecycle().is_sandboxed() {
        WIRETAP_SENDER.end();
    }
}

/// Resets the count of sent datagrams in a forked child.
pub fn restart_in_child() {
    if !ENGINE.lifecycle().is_sandboxed() {
        WIRETAP_SENDER.note_fork();
    }
}

/// Reports that a forked child has tried to load a module.
pub fn load(load: &LoadAttempt) {
    if !WIRETAP_SENDER.is_set() || ENGINE.lifecycle().is_sandboxed() {
        return;
    }
    let outcome = match load.outcome {
        LoadOutcome::Loaded => wiretap::ModuleOutcome::Loaded,
        LoadOutcome::Failed => wiretap::ModuleOutcome::Failed,
        LoadOutcome::NotFound => wiretap::ModuleOutcome::Missing,
    };
    let us = u64::try_from(load.micros).unwrap_or(0);
    WIRETAP_SENDER.load(load.name.as_bytes(), load.site.as_bytes(), outcome, us);
}

/// Reports that the code `name` has run. May be called in any thread, and in a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_alive(name: *const c_char) {
    // SAFETY: the caller's contract.
    unsafe { heapprof_alive_at(name, std::ptr::null()) };
}

/// Reports that the code `name` has run, and the place `site` from which it was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_alive_at(name: *const c_char, site: *const c_char) {
    if !WIRETAP_SENDER.is_set() || ENGINE.lifecycle().is_sandboxed() {
        return;
    }
    // SAFETY: the caller's contract: each is a string, or null.
    let (name, site) = unsafe { (text(name), text(site)) };
    WIRETAP_SENDER.alive(name.unwrap_or_default(), site.unwrap_or_default());
}
