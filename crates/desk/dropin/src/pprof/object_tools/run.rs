//! Runs a tool and reads what it prints, line by line.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Maximum number of bytes of instructions that a tool may print. It is enough for 5 MB of code.
/// Each instruction takes several times its text in memory.
pub(super) const MAX_INSTRUCTION_BYTES: u64 = 128 << 20;
/// Maximum number of bytes of symbols that a tool may print.
pub(super) const MAX_SYMBOL_BYTES: u64 = 1 << 30;
/// Maximum number of bytes of a tool's error message that are shown.
const MAX_MESSAGE: usize = 200;

/// The command line of a tool.
pub(super) struct ToolCommand {
    program: OsString,
    arguments: Vec<OsString>,
}

impl ToolCommand {
    pub(super) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().into(),
            arguments: Vec::new(),
        }
    }

    pub(super) fn arg(&mut self, argument: impl AsRef<OsStr>) {
        self.arguments.push(argument.as_ref().into());
    }

    /// Runs the tool, and gives each line that it prints to `body`.
    ///
    /// # Errors
    /// The tool can't be started, fails, or prints more than `most` bytes.
    pub(super) fn run(&self, most: u64, body: &mut dyn FnMut(&str)) -> Result<(), String> {
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = ToolProcess(child.map_err(|error| self.failure(&error.to_string()))?);
        let (output, errors) = (child.0.stdout.take(), child.0.stderr.take());
        // Errors are read from a separate thread, so that the tool never waits for its reader.
        let (read, message) = std::thread::scope(|scope| {
            let message = scope.spawn(move || errors.map(read_message).unwrap_or_default());
            let read = match output {
                Some(output) => read_lines(output, most, body),
                None => Ok(()),
            };
            if read.is_err() {
                _ = child.0.kill();
            }
            (read, message.join().unwrap_or_default())
        });
        read.map_err(|why| self.failure(&why))?;
        let status = child.0.wait();
        let status = status.map_err(|error| self.failure(&error.to_string()))?;
        match status.success() {
            true => Ok(()),
            false if message.is_empty() => Err(self.failure(&status.to_string())),
            false => Err(self.failure(&format!("{status}: {message}"))),
        }
    }

    /// Returns an error that names the command line, as pprof does.
    fn failure(&self, why: &str) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        format!("[{}]: {why}", words.join(" "))
    }
}

/// A running tool, which is ended with its owner.
pub(super) struct ToolProcess(pub(super) Child);

impl Drop for ToolProcess {
    fn drop(&mut self) {
        // A tool that has ended already can't be killed, which is no error.
        _ = self.0.kill();
        _ = self.0.wait();
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

/// Returns a file name as an argument. A name that begins with a dash is no option.
pub(super) fn file_argument(file: &Path) -> OsString {
    match file.as_os_str().as_encoded_bytes().first() {
        Some(b'-') => Path::new(".").join(file).into(),
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
        let error = result.unwrap_err();
        assert!(error.starts_with("[sh -c echo"), "{error}");
        assert!(error.ends_with("exit status: 3: no such thing"), "{error}");
        let (_, result) = run("yes");
        let error = result.unwrap_err();
        assert!(error.contains("printed more than 100 bytes"), "{error}");
        let missing = ToolCommand::new("/no/such/tool").run(100, &mut |_| {});
        assert!(missing.unwrap_err().starts_with("[/no/such/tool]: "));
    }

    #[test]
    fn names_are_no_options() {
        assert_eq!(file_argument(Path::new("-M")), "./-M");
        assert_eq!(file_argument(Path::new("a-b")), "a-b");
    }
}
