//! The programs that show a picture or a page: browsers, gv, evince, eog, KCachegrind.
//!
//! The report goes into a temporary file, which is removed at the end, and the first viewer that
//! can be started gets its path. Source: google/pprof, internal/driver/commands.go.

use std::env;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};

use super::config::PprofConfig;
use super::profile_copy::{FileReaders, create_numbered};

/// Time that a viewer gets to open its file. It may be a script that starts another program and
/// ends at once.
const OPENING_TIME: Duration = Duration::from_secs(1);

/// Names of browsers, in the order in which they are tried.
const BROWSERS: [&str; 5] = [
    "chrome",
    "google-chrome",
    "chromium",
    "firefox",
    "sensible-browser",
];

/// Kind of program that shows a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GraphViewer {
    Browser,
    Program(&'static [&'static str]),
}

/// Returns the file name extension and the viewer of a format that is shown; `None` for a format
/// that is printed.
fn viewer(format: &str) -> Option<(&'static str, GraphViewer)> {
    Some(match format {
        "web" => (".svg", GraphViewer::Browser),
        "weblist" => (".html", GraphViewer::Browser),
        "eog" => (".svg", GraphViewer::Program(&["eog"])),
        "evince" => (".pdf", GraphViewer::Program(&["evince"])),
        "gv" => (".ps", GraphViewer::Program(&["gv", "--noantialias"])),
        "kcachegrind" => (".grind", GraphViewer::Program(&["kcachegrind"])),
        _ => return None,
    })
}

/// A temporary file for a viewer, which only the user may read: its path, and the open file.
pub(super) type ShownFile = (PathBuf, File);

/// The temporary files of viewers. They are removed at the end: viewers that run on have opened
/// theirs.
#[derive(Default)]
pub(super) struct ShownFiles(Vec<ShownFile>);

impl ShownFiles {
    /// Makes the file for a request whose format is shown; `None` for any other request. A file
    /// that stayed empty, because its report failed, is used again.
    pub(super) fn reserve(&mut self, config: &PprofConfig<'_>) -> Result<Option<&ShownFile>> {
        let is_unused = |shown: &ShownFile| shown.1.metadata().is_ok_and(|file| file.len() == 0);
        if let Some(unused) = self.0.pop_if(|last| is_unused(last)) {
            // A failure means that the file is gone already.
            let _ = std::fs::remove_file(&unused.0);
        }
        let Some((extension, _)) = viewer(config.format) else {
            return Ok(None);
        };
        if !config.flags.text("output").is_empty() {
            return Ok(None);
        }
        let folder = env::temp_dir();
        let made = create_numbered(&folder, "pprof", extension, FileReaders::Owner)?;
        self.0.push(made);
        Ok(self.0.last())
    }
}

impl Drop for ShownFiles {
    fn drop(&mut self) {
        for (path, _) in &self.0 {
            // The user or a viewer may have removed the file, so a failure does not matter.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Shows a report in the format's viewer. In the shell, the viewer runs on while the next commands
/// are typed.
pub(super) fn show(config: &PprofConfig<'_>, shown: &ShownFile, report: &[u8]) -> Result<()> {
    let Some((_, viewer)) = viewer(config.format) else {
        bail!("-{}: there is no program that shows it", config.format);
    };
    let (path, mut file) = (&shown.0, &shown.1);
    file.write_all(report)?;
    let commands = commands(viewer);
    let mut last_problem = None;
    for words in &commands {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        let mut command = Command::new(program);
        // As in pprof, stdin and stdout belong to pprof alone.
        command.args(arguments).arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if config.is_shell {
            // Ctrl-C is for the shell's commands.
            command.process_group(0);
        }
        match command.spawn() {
            Ok(child) => return wait_for(child, config),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => last_problem = Some(format!("{program} can't be started: {error}")),
        }
    }
    if let Some(problem) = last_problem {
        bail!("-{}: {problem}", config.format);
    }
    let names: Vec<&str> = commands
        .iter()
        .filter_map(|words| words.first())
        .map(String::as_str)
        .collect();
    bail!(
        "-{}: no viewer is installed (looked for {}); write a file with -output",
        config.format,
        names.join(", ")
    )
}

fn wait_for(mut child: Child, config: &PprofConfig<'_>) -> Result<()> {
    if config.is_shell {
        sleep(OPENING_TIME);
        // A viewer that has ended leaves no entry in the process table; one that runs on does until
        // the shell ends.
        let _ = child.try_wait();
        return Ok(());
    }
    let status = child.wait()?;
    sleep(OPENING_TIME);
    match status.success() {
        true => Ok(()),
        false => bail!("-{}: the viewer ended with {status}", config.format),
    }
}

/// Returns the command lines to try, each as its words.
fn commands(viewer: GraphViewer) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_string).collect();
    match viewer {
        GraphViewer::Program(line) => vec![line.iter().map(ToString::to_string).collect()],
        GraphViewer::Browser => {
            let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
            let own = set("BROWSER").map(|line| words(&line));
            let desktop = set("DISPLAY").map(|_| words("xdg-open"));
            let browsers = BROWSERS.map(words);
            own.into_iter().chain(browsers).chain(desktop).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shown_format_has_a_viewer() {
        let gv = commands(GraphViewer::Program(&["gv", "--noantialias"]));
        assert_eq!(gv, [["gv", "--noantialias"]]);
        assert!(viewer("web").is_some() && viewer("svg").is_none());
        let browsers = commands(GraphViewer::Browser);
        assert!(browsers.iter().any(|words| words == &["chromium"]));
    }
}
