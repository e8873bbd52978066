//! Runs a tool that reads object files, without a shell, and reads what it prints line by line, up
//! to a limit. What the tool prints is data.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Maximum number of bytes of instructions that a tool may print. It is enough for 5 MB of code.
/// Each instruction takes several times its text in memory.
pub(crate) const MAX_INSTRUCTION_BYTES: u64 = 128 << 20;
/// Maximum number of bytes of symbols that a tool may print.
pub(crate) const MAX_SYMBOL_BYTES: u64 = 1 << 30;
/// Maximum number of bytes of a tool's error message that are shown.
const MAX_MESSAGE: usize = 200;

/// The command line of a tool.
pub(crate) struct ToolCommand {
    program: OsString,
    arguments: Vec<OsString>,
    input: Option<String>,
    deadline: Option<Instant>,
}

/// Reason why a tool gave no answer. It displays as one line with the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolError {
    /// The tool is not installed.
    NotInstalled(String),
    /// The tool can't be started, or what it prints can't be read or is too long.
    NotRead(String),
    /// The tool failed. What it printed was read.
    Failed(String),
}

impl fmt::Display for ToolError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotInstalled(why) | Self::NotRead(why) | Self::Failed(why)) = self;
        out.write_str(why)
    }
}

impl std::error::Error for ToolError {}

impl From<ToolError> for String {
    fn from(error: ToolError) -> Self {
        error.to_string()
    }
}

impl ToolCommand {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().into(),
            arguments: Vec::new(),
            input: None,
            deadline: None,
        }
    }

    pub(crate) fn arg(&mut self, argument: impl AsRef<OsStr>) {
        self.arguments.push(argument.as_ref().into());
    }

    /// Adds the name of a file. The tools take no name for an option or for a file of options.
    pub(crate) fn file(&mut self, file: &Path) {
        self.arguments.push(file_argument(file));
    }

    /// Sets what the tool reads from its stdin, which is empty otherwise.
    pub(crate) fn input(&mut self, text: String) {
        self.input = Some(text);
    }

    /// Sets when the tool is ended, if it has not ended until then; `None` for never.
    pub(crate) fn deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Returns the name of the tool.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.program.to_string_lossy()
    }

    /// Runs the tool, and gives each line that it prints to `body`, with its line end.
    ///
    /// # Errors
    /// The tool can't be started, fails, or prints more than `most` bytes.
    pub(crate) fn run(&self, most: u64, body: &mut dyn FnMut(&str)) -> Result<(), ToolError> {
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(match self.input {
                Some(_) => Stdio::piped(),
                None => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| {
            let why = self.failure(&error.to_string());
            match error.kind() {
                ErrorKind::NotFound => ToolError::NotInstalled(why),
                _ => ToolError::NotRead(why),
            }
        })?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let input = child.stdin.take();
        let mut process = ToolProcess::new(child, self.deadline);
        // Input is written and errors are read at the same time, so that the tool never waits.
        let (read, message) = std::thread::scope(|scope| {
            if let (Some(text), Some(mut input)) = (&self.input, input) {
                // A tool that does not read its input has ended, which is seen below.
                scope.spawn(move || drop(input.write_all(text.as_bytes())));
            }
            let message = scope.spawn(move || errors.map(read_message).unwrap_or_default());
            let read = match output {
                Some(output) => read_lines(output, most, body),
                None => Ok(()),
            };
            if read.is_err() {
                process.kill();
            }
            (read, message.join().unwrap_or_default())
        });
        let not_read = |why: String| ToolError::NotRead(self.failure(&why));
        read.map_err(not_read)?;
        let status = process.wait();
        if process.is_late() {
            return Err(not_read("did not end in the time of a request".to_string()));
        }
        let status = status.map_err(|error| not_read(error.to_string()))?;
        let why = match &*message {
            "" => status.to_string(),
            message => format!("{status}: {message}"),
        };
        match status.success() {
            true => Ok(()),
            false => Err(ToolError::Failed(self.failure(&why))),
        }
    }

    /// Returns an error that names the command line, as pprof does.
    fn failure(&self, why: &str) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        format!("[{}]: {why}", words.join(" "))
    }
}

/// A running tool, which is ended with its owner, or at its deadline.
pub(crate) struct ToolProcess {
    child: Child,
    watchdog: Option<ToolWatchdog>,
    /// Whether the tool was ended at its deadline.
    is_late: Arc<AtomicBool>,
}

/// A thread that ends a tool at its deadline.
struct ToolWatchdog {
    /// The thread ends when this is dropped.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl ToolProcess {
    pub(crate) fn new(child: Child, deadline: Option<Instant>) -> Self {
        let is_late = Arc::new(AtomicBool::new(false));
        let watchdog = deadline.map(|deadline| {
            let (stop, stopped) = channel();
            let (pid, is_late) = (Pid::from_child(&child), Arc::clone(&is_late));
            let thread = std::thread::spawn(move || {
                let time = deadline.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                    is_late.store(true, Ordering::Relaxed);
                    // The owner keeps the number of the process until this thread has ended. A
                    // tool that has ended already can't be killed, which is no error.
                    _ = kill_process(pid, Signal::KILL);
                }
            });
            ToolWatchdog { stop, thread }
        });
        Self {
            child,
            watchdog,
            is_late,
        }
    }

    /// Ends the tool.
    fn kill(&mut self) {
        // A tool that has ended already can't be killed, which is no error.
        _ = self.child.kill();
    }

    /// Whether the tool was ended at its deadline.
    fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Waits until the tool has ended.
    fn wait(&mut self) -> io::Result<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let pid = Pid::from_child(&self.child);
        let has_ended = || !matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR));
        while self.watchdog.is_some() && !has_ended() {}
        self.stop_watchdog();
        self.child.wait()
    }

    fn stop_watchdog(&mut self) {
        if let Some(ToolWatchdog { stop, thread }) = self.watchdog.take() {
            drop(stop);
            // The thread cannot panic.
            _ = thread.join();
        }
    }
}

impl Drop for ToolProcess {
    fn drop(&mut self) {
        self.stop_watchdog();
        self.kill();
        _ = self.child.wait();
    }
}

fn read_lines(output: impl Read, most: u64, body: &mut dyn FnMut(&str)) -> Result<(), String> {
    let mut reader = BufReader::new(output).take(most);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) if reader.limit() == 0 => {
                return Err(format!(
                    "printed more than {most} bytes, heapprof's limit; choose fewer functions"
                ));
            }
            Ok(0) => return Ok(()),
            Ok(_) => body(&String::from_utf8_lossy(&line)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Reads a tool's errors to their end. Returns the first line.
fn read_message(errors: impl Read) -> String {
    let mut reader = BufReader::new(errors);
    let mut start = Vec::new();
    _ = reader
        .by_ref()
        .take(MAX_MESSAGE as u64)
        .read_to_end(&mut start);
    _ = std::io::copy(&mut reader, &mut std::io::sink());
    let text = String::from_utf8_lossy(&start);
    text.lines().next().unwrap_or_default().to_string()
}

/// Returns a file name as an argument. A name that begins with a dash is no option, and a name that
/// begins with an at sign is no file of options.
pub(crate) fn file_argument(file: &Path) -> OsString {
    match file.as_os_str().as_encoded_bytes().first() {
        Some(b'-' | b'@') => Path::new(".").join(file).into(),
        _ => file.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_failures() {
        let run = |script: &str| {
            let mut command = ToolCommand::new("sh");
            command.arg("-c");
            command.arg(script);
            let mut lines = Vec::new();
            let result = command.run(100, &mut |line| lines.push(line.to_string()));
            (lines, result)
        };
        let (lines, result) = run("echo a; printf b");
        assert_eq!((lines, result), (vec!["a\n".into(), "b".into()], Ok(())));
        let (_, result) = run("echo 'no such thing' >&2; echo more >&2; exit 3");
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("[sh -c echo"), "{error}");
        assert!(error.ends_with("exit status: 3: no such thing"), "{error}");
        let (_, result) = run("yes");
        let error = result.unwrap_err().to_string();
        assert!(error.contains("printed more than 100 bytes"), "{error}");
        let missing = ToolCommand::new("/no/such/tool").run(100, &mut |_| {});
        let Err(ToolError::NotInstalled(why)) = missing else {
            panic!("{missing:?}");
        };
        assert!(why.starts_with("[/no/such/tool]: "), "{why}");
    }

    /// The deadline has passed before the tool begins, so no time is measured.
    #[test]
    fn a_tool_ends_at_its_deadline() {
        let mut command = ToolCommand::new("sleep");
        command.arg("1000");
        command.deadline(Some(Instant::now()));
        let error = command.run(100, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("did not end in the time"), "{error}");
        let mut command = ToolCommand::new("true");
        command.deadline(Some(Instant::now() + std::time::Duration::from_secs(1000)));
        assert_eq!(command.run(100, &mut |_| {}), Ok(()));
    }

    #[test]
    fn input_is_written_while_the_answer_is_read() {
        let mut command = ToolCommand::new("cat");
        command.input("line\n".repeat(100_000));
        let mut count = 0;
        let result = command.run(1 << 20, &mut |_| count += 1);
        assert_eq!((count, result), (100_000, Ok(())));
        let mut command = ToolCommand::new("true");
        command.input("line\n".repeat(100_000));
        assert_eq!(command.run(100, &mut |_| {}), Ok(()));
    }

    #[test]
    fn names_are_no_options() {
        assert_eq!(file_argument(Path::new("-M")), "./-M");
        assert_eq!(file_argument(Path::new("@options")), "./@options");
        assert_eq!(file_argument(Path::new("a-b")), "a-b");
    }
}
