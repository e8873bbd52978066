//! The wiretap of a Rust program: `alive!` reports that code ran.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Once;

use heapprof_abi::environment as variable;
use heapprof_engine::ENGINE;
use heapprof_wiretap::{DatagramSender, WiretapRoute};

use crate::process;

static WIRETAP_SENDER: DatagramSender = DatagramSender::new();

/// Reports that the code `name` has run, and the place `site` of the code. [`alive!`](crate::alive)
/// adds the place automatically.
///
/// The first call reads the environment, and may allocate; its allocations are not recorded. No
/// call waits or fails. If a variable's value is invalid, nothing is sent, and no message is
/// printed. (The preloaded library prints one.)
pub fn alive_at(name: &str, site: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| ENGINE.lifecycle().with_guard_and_signals_blocked(set_up));
    WIRETAP_SENDER.alive(name.as_bytes(), site.as_bytes());
}

fn set_up() {
    let get = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(address) = get(variable::WIRETAP.name) else {
        return;
    };
    let key_file = get(variable::WIRETAP_KEY_FILE.name);
    if let Ok(route) = WiretapRoute::new(address.as_bytes(), key_file.as_deref().map(Path::new)) {
        WIRETAP_SENDER.set(route);
        process::call_at_exit(end_wiretap);
    }
}

extern "C" fn end_wiretap() {
    WIRETAP_SENDER.end();
}
