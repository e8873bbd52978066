//! Writes files that a test runs. No descriptor of this process is ever open for writing on them:
//! a child that another thread forks at that moment would hold it until its exec, and the kernel
//! runs no file that is open for writing ("Text file busy").

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Copies a program with its mode, through a process of its own.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--").args([from, to]).output();
    let copied = copied.expect("cp runs");
    let reported = String::from_utf8_lossy(&copied.stderr);
    assert!(copied.status.success(), "{}: {reported}", to.display());
}

/// Writes `content`, for example a script, to a file that everybody may run.
pub fn write_program(path: &Path, content: &[u8]) {
    let draft = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(draft.path(), content).unwrap();
    copy_program(draft.path(), path);
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}
