//! Lines from a pipe or a file. The prompts are printed, because scripts may wait for them.

use std::io::{BufRead, Read, Write};

use anyhow::{Context, Result, bail};
use heapprof_dropin::CommandReader;

/// Maximum length of a line in bytes.
const MAX_LINE_LENGTH: u64 = 1 << 20;

/// Reader of the lines of a script.
pub struct ScriptReader<R, W> {
    input: R,
    output: W,
}

impl<R: BufRead, W: Write> ScriptReader<R, W> {
    /// Makes a reader of `input` that prints its prompts on `output`.
    pub fn new(input: R, output: W) -> Self {
        Self { input, output }
    }
}

impl<R: BufRead, W: Write> CommandReader for ScriptReader<R, W> {
    fn read_line(&mut self, prompt: &str) -> Result<Option<String>> {
        let printed = self.output.write_all(prompt.as_bytes());
        printed
            .and_then(|()| self.output.flush())
            .context("the prompt cannot be written")?;
        let mut line = Vec::new();
        let read = self
            .input
            .by_ref()
            .take(MAX_LINE_LENGTH)
            .read_until(b'\n', &mut line)
            .context("standard input: cannot be read")?;
        if read == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() as u64 == MAX_LINE_LENGTH {
            bail!("standard input: a line has more than {MAX_LINE_LENGTH} bytes");
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

    #[test]
    fn an_endless_line_is_an_error() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let error = ScriptReader::new(endless, Vec::new())
            .read_line("> ")
            .unwrap_err();
        assert!(error.to_string().contains("more than 1048576 bytes"));
    }
}
