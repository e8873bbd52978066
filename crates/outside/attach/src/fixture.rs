//! A program for tests. It already waits for input when a test gets it.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// A program that writes its input to its output. It is killed when this value is dropped.
pub(crate) struct EchoProgram(Child);

impl EchoProgram {
    /// Starts the program by a shell, which runs `before` first. Returns when the program runs.
    pub(crate) fn start(before: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}; exec cat")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Self(command.spawn().unwrap());
        program.echo();
        program
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends a byte, and waits until it comes back.
    pub(crate) fn echo(&mut self) {
        let (input, output) = (self.0.stdin.as_mut(), self.0.stdout.as_mut());
        input.unwrap().write_all(b"x").unwrap();
        let mut byte = [0];
        output.unwrap().read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }
}

impl Drop for EchoProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
