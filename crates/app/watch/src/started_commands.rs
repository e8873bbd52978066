//! Commands that a watch starts when its rule holds, and what became of them.

use std::io::{self, stderr};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use heapprof_process::clock;

use crate::ProcessWatcher;

/// The kind of notes about commands that were started.
const NOTE_KIND: &str = "then";

/// The commands that a watch has started and that still run, each with its words.
#[derive(Debug, Default)]
pub struct StartedCommands(Vec<(Child, String)>);

impl StartedCommands {
    /// Starts a command because of the process `pid`. What it prints goes to stderr, because it is
    /// no part of the report.
    ///
    /// # Errors
    /// The command can't be started. The watch has a note about that.
    pub fn start(
        &mut self,
        words: &[String],
        pid: u32,
        watcher: &mut ProcessWatcher,
    ) -> io::Result<()> {
        let shown = words.join(" ");
        let own = stderr().as_fd().try_clone_to_owned();
        let stdout = own.map_or_else(|_| Stdio::null(), Stdio::from);
        let started = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(stdout)
            .spawn();
        match started {
            Ok(child) => {
                self.0.push((child, shown));
                Ok(())
            }
            Err(error) => {
                let text = format!("{shown}: {error}");
                watcher.note(Some(pid), clock::millis(), NOTE_KIND, text);
                Err(error)
            }
        }
    }

    /// Notes the end of each command that has ended.
    pub fn note_ends(&mut self, watcher: &mut ProcessWatcher) {
        self.0.retain_mut(|(child, shown)| {
            let ending = match child.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let text = format!("{shown}: {ending}");
            watcher.note(None, clock::millis(), NOTE_KIND, text);
            false
        });
    }

    /// Notes which commands still run.
    pub fn note_others(&self, watcher: &mut ProcessWatcher) {
        for (_, shown) in &self.0 {
            let text = format!("{shown}: still runs");
            watcher.note(None, clock::millis(), NOTE_KIND, text);
        }
    }
}
