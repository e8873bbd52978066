//! Adds up the growth of each line of code in the processes of one user, since the line was last
//! reported.

use std::collections::HashMap;

use heapprof_analysis::CodePlace as Line;

use crate::tail::TailMessage;

/// Maximum number of a user's processes that are followed. If there are more, the process whose
/// last message is oldest is dropped.
const MAX_PROCESSES: usize = 1024;
/// Maximum size of the data about a user's lines, in bytes. If it is exceeded, the process whose
/// last message is oldest is dropped.
const MAX_LINE_BYTES: usize = 64 << 20;
/// Size of the data about a line without its texts, in bytes.
const LINE_OVERHEAD_BYTES: usize = size_of::<(Line, i64)>() + 32;

/// The followed processes of one user.
#[derive(Default)]
pub(crate) struct FollowedProcesses {
    processes: HashMap<u32, FollowedProcess>,
    /// Size of the data about the lines of all processes, in bytes.
    bytes: usize,
    /// Number of messages so far, of all processes.
    messages: u64,
}

/// A process whose growing lines of code are reported.
#[derive(Default)]
struct FollowedProcess {
    /// When the process's recording began.
    began: i64,
    /// Value of `messages` at the process's last message.
    last: u64,
    /// Size of the data about the process's lines, in bytes.
    bytes: usize,
    /// The growth of each line since it was last reported, in bytes.
    growth: HashMap<Line, i64>,
}

impl FollowedProcesses {
    /// Adds the growth that a process reported. Returns the lines that have grown by at least
    /// `least` bytes since they were last reported, with their growth, the largest first.
    pub(crate) fn add(
        &mut self,
        message: &TailMessage,
        grown: Vec<(Line, i64)>,
        least: i64,
    ) -> Vec<(Line, i64)> {
        self.messages += 1;
        let mut process = self.processes.remove(&message.process).unwrap_or_default();
        self.bytes -= process.bytes;
        if process.began != message.began {
            // This is another recording, whose memory in use began at zero.
            process = FollowedProcess {
                began: message.began,
                ..FollowedProcess::default()
            };
        }
        process.last = self.messages;
        let mut said = Vec::new();
        for (line, bytes) in grown {
            let sum = match process.growth.get_mut(&line) {
                Some(sum) => sum,
                None => {
                    let file = line.file.as_ref().map_or(0, String::len);
                    process.bytes += LINE_OVERHEAD_BYTES + line.function.len() + file;
                    if process.bytes > MAX_LINE_BYTES {
                        // Further lines are lost; no program that a person wrote has as many.
                        process.bytes = MAX_LINE_BYTES;
                        continue;
                    }
                    process.growth.entry(line.clone()).or_default()
                }
            };
            *sum = sum.saturating_add(bytes);
            if *sum >= least {
                said.push((line, std::mem::take(sum)));
            }
        }
        while self.processes.len() >= MAX_PROCESSES || self.bytes + process.bytes > MAX_LINE_BYTES {
            let silent = self.processes.iter().min_by_key(|(_, of)| of.last);
            let Some(silent) = silent.map(|(&id, _)| id) else {
                break;
            };
            let gone = self.processes.remove(&silent);
            self.bytes -= gone.map_or(0, |gone| gone.bytes);
        }
        self.bytes += process.bytes;
        self.processes.insert(message.process, process);
        said.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(function: &str) -> Line {
        Line {
            function: function.to_string(),
            file: None,
            line: Some(1),
            ..Line::default()
        }
    }

    /// Adds `grown` bytes of growth to the line `f` of a process. Returns the growth that is then
    /// reported.
    fn said(followed: &mut FollowedProcesses, process: u32, began: i64, grown: i64) -> i64 {
        let message = TailMessage {
            process,
            began,
            is_exact: true,
            profile: Vec::new(),
        };
        let said = followed.add(&message, vec![(line("f"), grown)], 100);
        said.into_iter().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn a_line_is_said_once_it_has_grown_enough() {
        let mut followed = FollowedProcesses::default();
        let mut step = |process, began, grown| said(&mut followed, process, began, grown);
        assert_eq!(step(1, 5, 60), 0);
        assert_eq!(step(2, 5, 60), 0);
        assert_eq!(step(1, 5, 60), 120);
        assert_eq!(step(1, 5, -60), 0);
        assert_eq!(step(1, 5, 99), 0);
        assert_eq!(step(1, 5, 61), 100);
        // Another recording begins at zero.
        assert_eq!(step(2, 6, 60), 0);
    }

    #[test]
    fn silent_processes_give_way() {
        let mut followed = FollowedProcesses::default();
        for process in 0..3000 {
            said(&mut followed, process, 1, 60);
        }
        assert_eq!(followed.processes.len(), MAX_PROCESSES);
        assert_eq!(said(&mut followed, 2999, 1, 60), 120);
        assert_eq!(said(&mut followed, 0, 1, 60), 0);
        let long = "f".repeat(1 << 20);
        for process in 0..100 {
            let message = TailMessage {
                process,
                began: 1,
                is_exact: true,
                profile: Vec::new(),
            };
            followed.add(&message, vec![(line(&long), 1)], 100);
        }
        assert!(followed.bytes <= MAX_LINE_BYTES);
        let sum: usize = followed.processes.values().map(|of| of.bytes).sum();
        assert_eq!(sum, followed.bytes);
        assert!(followed.processes.len() < 70);
    }
}
