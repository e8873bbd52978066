//! A program for tests, which is known to run and to wait for its input.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// A program that sends back what it gets. It ends when this is dropped.
pub(crate) struct EchoProgram(Child);

impl EchoProgram {
    /// Starts the program by a shell, which runs `before` first. It runs when this returns.
    pub(crate) fn start(before: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}; exec cat")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Self(command.spawn().unwrap());
        program.echo();
        program
    }

    /// The number of the process.
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
