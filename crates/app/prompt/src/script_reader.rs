//! Lines from a pipe or a file. The prompts are printed, because scripts may wait for them.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, Result, bail};
use heapprof_dropin::CommandReader;

/// Maximum length of a line in bytes.
const MAX_LINE_LENGTH: usize = 1 << 20;

/// Reader of the lines of a script.
pub struct ScriptReader<R, W> {
    input: R,
    output: W,
}

impl<R: Read, W: Write> ScriptReader<R, W> {
    /// Makes a reader of `input` that prints its prompts on `output`. It takes no byte behind the
    /// line that it reads, so `input` should be buffered.
    pub fn new(input: R, output: W) -> Self {
        Self { input, output }
    }
}

impl<R: Read, W: Write> CommandReader for ScriptReader<R, W> {
    fn read_line(&mut self, prompt: &str) -> Result<Option<String>> {
        let printed = self.output.write_all(prompt.as_bytes());
        printed
            .and_then(|()| self.output.flush())
            .context("the prompt cannot be written")?;
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            match self.input.read(&mut byte) {
                Ok(0) if line.is_empty() => return Ok(None),
                Ok(0) => break,
                Ok(_) if byte == *b"\n" => break,
                Ok(_) if line.len() == MAX_LINE_LENGTH => {
                    bail!("standard input: a line has more than {MAX_LINE_LENGTH} bytes");
                }
                Ok(_) => line.extend(byte),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("standard input: cannot be read"),
            }
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_follows_a_prompt() {
        let mut output = Vec::new();
        let mut reader = ScriptReader::new(&b"top\r\n\nq"[..], &mut output);
        let mut lines = Vec::new();
        while let Some(line) = reader.read_line("> ").unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["top\r", "", "q"]);
        assert_eq!(output, b"> > > > ");
    }

    /// A second shell of the same process goes on where the first one ended.
    #[test]
    fn nothing_is_read_ahead() {
        let mut input = &b"top\nquit\ntop2\n"[..];
        for expected in ["top", "quit", "top2"] {
            let line = ScriptReader::new(&mut input, Vec::new()).read_line("> ");
            assert_eq!(line.unwrap().as_deref(), Some(expected));
        }
        assert!(input.is_empty());
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let error = ScriptReader::new(endless, Vec::new())
            .read_line("> ")
            .unwrap_err();
        assert!(error.to_string().contains("more than 1048576 bytes"));
    }
}
