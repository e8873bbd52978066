//! The name of the running program, for names of files and comments of profiles.

use std::ffi::CStr;

use crate::sys;

/// Returns the name of the running program: the name by which it was started, or else the name of
/// its file. The first name counts only if it leads to the running file, which the name of a script
/// does not. It is preferred because one file may be many programs, and `vim` may be a link to
/// `vim.basic`.
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

/// Returns the path that was executed; `None` if the path contains no name of the program, because
/// the program executed its own file again, or an open file.
fn executed_path() -> Option<&'static CStr> {
    sys::executed_path().filter(|path| {
        let path = path.to_bytes();
        let is_own = path.starts_with(b"/proc/") || path.ends_with(b"self/exe");
        !is_own && !path.starts_with(b"/dev/fd/")
    })
}
