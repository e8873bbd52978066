//! The settings of the terminal, which a killed command cannot restore itself.

use std::fs::OpenOptions;
use std::io::{Write, stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Shows the cursor, wraps lines, and leaves the alternate screen, as terminals like xterm do.
const LEAVE_VIEW: &[u8] = b"\x1b[?25h\x1b[?7h\x1b[?1049l";

/// The settings of the terminal before a command; nothing without a terminal.
pub(crate) struct TerminalSettings(Option<Termios>);

impl TerminalSettings {
    pub(crate) fn of_stdin() -> Self {
        Self(tcgetattr(stdin()).ok())
    }

    /// Restores the settings if a command left lines that are not edited. Such a command may also
    /// have had the whole screen.
    pub(crate) fn restore(&self) {
        let (Some(before), Ok(now)) = (&self.0, tcgetattr(stdin())) else {
            return;
        };
        let edits = |settings: &Termios| settings.local_modes.contains(LocalModes::ICANON);
        if !edits(before) || edits(&now) {
            return;
        }
        // If the terminal can't be used any more, there is nothing to restore.
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        if let Ok(mut tty) = OpenOptions::new().write(true).open("/dev/tty") {
            let _ = tty.write_all(LEAVE_VIEW);
        }
    }
}
