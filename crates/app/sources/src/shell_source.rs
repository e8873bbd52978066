//! Profiles that a shell reads once, for all of its commands.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use heapprof_analysis::QuestionSource;
use heapprof_formats::SQLITE_MAGIC;
use heapprof_text::file_name as name;

use crate::settings::SourceSettings;

/// The source that the commands of a shell ask about, unless they name another one.
#[derive(Default)]
pub struct ShellSource {
    /// The arguments that name the source; empty if it is a database.
    names: Vec<String>,
    /// The profiles of these arguments.
    profiles: Vec<QuestionSource>,
    /// How they were read.
    settings: Option<SourceSettings>,
    database: Option<PathBuf>,
}

impl ShellSource {
    /// Makes the source of profiles that were read, in the order of the arguments.
    pub(crate) fn of_profiles(
        names: Vec<String>,
        profiles: Vec<QuestionSource>,
        settings: SourceSettings,
    ) -> Self {
        Self {
            names,
            profiles,
            settings: Some(settings),
            database: None,
        }
    }

    /// Makes the source of a database.
    pub(crate) fn of_database(path: PathBuf) -> Self {
        Self {
            database: Some(path),
            ..Self::default()
        }
    }

    /// Returns the arguments that name the source; none if it is a database.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the database, if the source is one.
    pub fn database(&self) -> Option<&PathBuf> {
        self.database.as_ref()
    }

    /// Returns the names of all functions, sorted, each once.
    pub fn function_names(&self) -> Vec<String> {
        let profiles = self.profiles.iter().map(|source| &source.profile);
        let names = profiles.flat_map(|profile| profile.function_names());
        let mut names: Vec<String> = names.map(str::to_string).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether a profile would be the same if it was read again with these settings.
    pub(crate) fn was_read_with(&self, settings: &SourceSettings) -> bool {
        self.settings.as_ref().is_some_and(|own| {
            own.options.max_inflated == settings.options.max_inflated
                && own.options.values == settings.options.values
                && own.options.as_pprof == settings.options.as_pprof
                && own.over_time == settings.over_time
                && own.backend == settings.backend
        })
    }

    /// Returns the profile of an argument, if it is kept.
    pub(crate) fn find(&self, argument: &str) -> Option<&QuestionSource> {
        let at = self.names.iter().position(|name| name == argument)?;
        self.profiles.get(at)
    }
}

/// Whether an argument names a database.
pub fn is_database(argument: &str) -> bool {
    let mut head = [0; SQLITE_MAGIC.len()];
    let path = name::path(argument);
    path.is_file()
        && File::open(path)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok()
        && head == SQLITE_MAGIC
}
