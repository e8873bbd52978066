//! The programs that show pictures and pages, and the files that they show.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::host::DropinHost;
use crate::jeprof::tool::PerlTool;

/// Files for viewers, in a folder of their own that only the user can read. They are removed with
/// this value.
#[derive(Debug)]
pub(super) struct ViewedFiles {
    tool: PerlTool,
    folder: Option<TempDir>,
    next: usize,
}

impl ViewedFiles {
    pub(super) fn new(tool: PerlTool) -> Self {
        Self {
            tool,
            folder: None,
            next: 0,
        }
    }

    /// Creates a file whose name ends in `extension`.
    pub(super) fn create(&mut self, extension: &str) -> Result<(PathBuf, File)> {
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => tempfile::Builder::new()
                .prefix(self.tool.shell_name())
                .tempdir()
                .context("a folder for temporary files cannot be made")?,
        };
        let folder = self.folder.insert(folder);
        let path = folder.path().join(format!("{}.{extension}", self.next));
        self.next += 1;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path);
        let file = file.with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok((path, file))
    }
}

/// Programs that open a page in the user's browser, in the order of the scripts.
const BROWSERS: [&str; 4] = [
    "/etc/alternatives/gnome-www-browser",
    "/etc/alternatives/x-www-browser",
    "google-chrome",
    "firefox",
];

/// Shows a page in the first browser that accepts it, and waits for that program.
pub(super) fn show_in_browser(host: &dyn DropinHost, page: &Path) {
    host.print_lines(&format!("Loading web page file://{}", page.display()));
    let browsers: &[&str] = match cfg!(target_os = "macos") {
        true => &["/usr/bin/open"],
        false => &BROWSERS,
    };
    let accepts = |browser: &&&str| {
        let status = Command::new(browser).arg(page).status();
        status.is_ok_and(|status| status.success())
    };
    if browsers.iter().find(accepts).is_none() {
        host.note(&format!(
            "Could not load web browser: none of {} accepts the page",
            browsers.join(", ")
        ));
    }
}

/// Starts a viewer. With `waits`, returns when the viewer has ended.
pub(super) fn show(viewer: &str, arguments: &[&str], file: &Path, waits: bool) -> Result<()> {
    let mut command = Command::new(viewer);
    command.args(arguments).arg(file).stdin(Stdio::null());
    if !waits {
        // Ctrl-C is for the shell's commands.
        command.process_group(0);
    }
    let started = command.spawn();
    let mut child = match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "{viewer} is not installed; install the package of that name, or use another command"
        ),
        started => started.with_context(|| format!("{viewer} cannot be started"))?,
    };
    if waits {
        child.wait()?;
    } else {
        // A viewer that has ended leaves no entry in the process table.
        std::thread::spawn(move || child.wait());
    }
    Ok(())
}
