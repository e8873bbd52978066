//! The name of the running program, for names of files and comments of profiles.

use std::ffi::CStr;

use crate::sys;

/// Returns the name of the running program. This is the name by which it was started, if this name
/// leads to the running file. (A script's name does not.) The file's own name can be misleading:
/// one file may be many programs, and `vim` may be a link to `vim.basic`.
pub fn name() -> Vec<u8> {
    const EXECUTABLE_LINK: &CStr = c"/proc/thread-self/exe";
    let mut buf = [0u8; 4096];
    let path = sys::read_link(EXECUTABLE_LINK, &mut buf);
    let running = last_part(path.strip_suffix(b" (deleted)").unwrap_or(path));
    let name = match executed_path() {
        // Mostly both names are the same, and no system call is needed.
        Some(path)
            if last_part(path.to_bytes()) != running
                && (running.is_empty() || sys::is_same_file(path, EXECUTABLE_LINK)) =>
        {
            last_part(path.to_bytes())
        }
        _ => running,
    };
    if name.is_empty() {
        b"unknown".to_vec()
    } else {
        name.to_vec()
    }
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or_default()
}

/// Returns the path that was executed; `None` if the path contains no name. There is no name if the
/// program executed its own file again, or an open file.
fn executed_path() -> Option<&'static CStr> {
    sys::executed_path().filter(|path| {
        let path = path.to_bytes();
        let is_own = path.starts_with(b"/proc/") || path.ends_with(b"self/exe");
        !is_own && !path.starts_with(b"/dev/fd/")
    })
}
