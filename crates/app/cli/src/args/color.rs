//! `--color`: whether an answer has colours.

use std::env::var_os;

use clap::ValueEnum;

/// When an answer has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorMode {
    Auto,
    Always,
    Never,
}

impl ColorMode {
    /// Whether an answer has colours. `is_terminal` says whether it goes to a terminal, and is
    /// asked only in [`Auto`](Self::Auto), where `NO_COLOR` and a dumb terminal count, too.
    pub(crate) fn has_colour(self, is_terminal: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let no_color = var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let is_dumb = var_os("TERM").is_some_and(|value| value == "dumb");
                !no_color && !is_dumb && is_terminal()
            }
        }
    }
}
