//! What each command is about. The compiler asks for it of a new command.

use super::CliCommand;

/// What a command is about, which decides whether the options that choose a store mean something to
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandKind {
    /// A question about profiles, which may be selected from a store.
    ProfileQuestion,
    /// A list or a series of the moments that a store has.
    SeriesList,
    /// Anything else.
    Other,
}

impl CliCommand {
    /// Returns what the command is about.
    pub(crate) const fn kind(&self) -> CommandKind {
        match self {
            Self::Top(_)
            | Self::Tree(_)
            | Self::Peek(_)
            | Self::List(_)
            | Self::Traces(_)
            | Self::Tags(_)
            | Self::Info(_)
            | Self::Leaks(_)
            | Self::Diff(_)
            | Self::Flame(_)
            | Self::Report(_)
            | Self::Merge(_)
            | Self::Convert(_) => CommandKind::ProfileQuestion,
            Self::Ls(_) | Self::Series(_) | Self::Growth(_) => CommandKind::SeriesList,
            Self::Record(_)
            | Self::Stats(_)
            | Self::Timeline(_)
            | Self::ForkAudit(_)
            | Self::Web(_)
            | Self::Tui(_)
            | Self::Live(_)
            | Self::Follow(_)
            | Self::Dump(_)
            | Self::Attach(_)
            | Self::Detach(_)
            | Self::Ps(_)
            | Self::Heapwalk(_)
            | Self::PerlHeap(_)
            | Self::Proc(_)
            | Self::Watch(_)
            | Self::Mark(_)
            | Self::CompareAllocators(_)
            | Self::Bench(_)
            | Self::Listen(_)
            | Self::Alive(_)
            | Self::Wiretap(_)
            | Self::Load(_)
            | Self::Prune(_)
            | Self::Export(_)
            | Self::Import(_)
            | Self::Rm(_)
            | Self::Sql(_)
            | Self::Schema(_)
            | Self::Symbolize(_)
            | Self::Pprof(_)
            | Self::Jeprof(_)
            | Self::PreloadPath { .. }
            | Self::PerlInstall { .. }
            | Self::Completions { .. }
            | Self::Man { .. } => CommandKind::Other,
        }
    }
}
