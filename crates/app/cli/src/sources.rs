//! Makes the sources of profiles from the options of a command line.

use std::sync::Arc;

use anyhow::Result;
use heapprof_analysis::{QuestionSource, series::MomentAggregation};
use heapprof_formats::FormatReadOptions;
use heapprof_profile::Profile;
use heapprof_sources::{ProfileSources, SourceError, SourceHost, SourceSettings};
use heapprof_symbolize::{SymbolizeOptions, symbolize};

use crate::args::{Cli, CliCommand, ConvertCommand, DbCommand, OverTimeMode};
use crate::progress::WorkBar;
use crate::{messages, outside};
use heapprof_process::clock;

/// Makes the sources of profiles for a command.
pub(crate) fn from_command_line(cli: &Cli) -> ProfileSources {
    let is_perl_script = matches!(
        &cli.command,
        CliCommand::Jeprof(_) | CliCommand::GooglePprof(_)
    );
    let shared = &cli.shared;
    let settings = SourceSettings {
        db: shared.db(),
        is_db_named: shared.typed_db().is_some(),
        options: FormatReadOptions::default()
            .max_inflated(shared.max_inflated())
            .values(shared.values.clone())
            .as_pprof(matches!(cli.command, CliCommand::Pprof(_))),
        names_in_use: is_perl_script,
        backend: shared.backend(),
        is_loading: matches!(cli.command, CliCommand::Db(DbCommand::Load(_))),
        sum: shared.sum,
        over_time: match shared.over_time() {
            OverTimeMode::Last => MomentAggregation::Last,
            OverTimeMode::Mean => MomentAggregation::Mean,
            OverTimeMode::Max => MomentAggregation::Max,
        },
        clock: clock::nanos,
    };
    // A server must not open files for what a profile names, and other tools show what is written.
    let names_code = !is_perl_script
        && !matches!(
            cli.command,
            CliCommand::Web(_)
                | CliCommand::Pprof(_)
                | CliCommand::ConvertPart(ConvertCommand::Symbolize(_))
        );
    ProfileSources::new(settings, Arc::new(CommandLineReader { names_code }))
}

/// This program as the host of the sources of profiles: it prints their notes and progress.
struct CommandLineReader {
    /// Whether code without names gets names where that is safe.
    names_code: bool,
}

impl SourceHost for CommandLineReader {
    fn note(&self, text: &str) {
        messages::note(text);
    }

    fn progress(&self, length: Option<u64>) -> Box<dyn FnMut(u64)> {
        let mut bar = WorkBar::reading(length);
        Box::new(move |read| bar.at(read, length))
    }

    fn explain(&self, error: SourceError) -> anyhow::Error {
        match error {
            SourceError::Format(error) => messages::reading_error(error),
            error @ SourceError::SameProcess { .. } => {
                anyhow::anyhow!("{error}: take the last one, use diff, or add --sum")
            }
        }
    }

    fn name_own_code(&self, profile: &mut Profile) {
        if self.names_code {
            let options = SymbolizeOptions {
                number_functions: true,
                ..SymbolizeOptions::default()
            };
            symbolize(profile, &options);
        }
    }

    fn is_outside(&self, argument: &str) -> bool {
        outside::is_outside(argument)
    }

    fn read_outside(&self, argument: &str) -> Result<Option<QuestionSource>> {
        outside::read(argument)
    }
}
