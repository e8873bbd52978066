//! What each command is about. The compiler asks for it of a new command.

use super::{CliCommand, ConvertCommand, DbCommand, InfoCommand};

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
            | Self::List(_)
            | Self::TreePart(_)
            | Self::InfoPart(InfoCommand::Tags(_))
            | Self::Info(_)
            | Self::Leaks(_)
            | Self::Diff(_)
            | Self::Flame(_)
            | Self::Report(_)
            | Self::ConvertPart(ConvertCommand::Merge(_))
            | Self::Convert(_) => CommandKind::ProfileQuestion,
            Self::Growth(_) | Self::Db(DbCommand::Ls(_) | DbCommand::Series(_)) => {
                CommandKind::SeriesList
            }
            Self::Record(_)
            | Self::InfoPart(InfoCommand::Stats(_))
            | Self::GrowthPart(_)
            | Self::WatchPart(_)
            | Self::ConvertPart(ConvertCommand::Symbolize(_))
            | Self::ForkAudit(_)
            | Self::Web(_)
            | Self::Tui(_)
            | Self::Shell(_)
            | Self::Live(_)
            | Self::Dump(_)
            | Self::Attach(_)
            | Self::Heap(_)
            | Self::HeapPart(_)
            | Self::Proc(_)
            | Self::Why(_)
            | Self::Watch(_)
            | Self::Bench(_)
            | Self::BenchPart(_)
            | Self::Alive(_)
            | Self::Sql(_)
            | Self::Pprof(_)
            | Self::Jeprof(_)
            | Self::GooglePprof(_)
            | Self::Db(_)
            | Self::Setup(_) => CommandKind::Other,
        }
    }
}
