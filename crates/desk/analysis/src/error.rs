//! Errors for questions that could not be answered.

/// An error that occurred while a question was answered, as one line. The caller adds which profile
/// or database it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The numbers could not be computed: a filter is wrong, or a sum is too large.
    #[error(transparent)]
    Totals(#[from] heapprof_totals::TotalsError),
    /// The profile lacks the sample type.
    #[error(transparent)]
    SampleType(#[from] heapprof_profile::SampleTypeError),
    /// The profile has no sample types, so no report could name what the profile counts.
    #[error("has no sample types, so there is nothing to report")]
    NoTypes,
    /// The profile lacks a sample type of memory in use.
    #[error("has no {missing}, so it does not say what is in use; it has {}", listed(.present))]
    NotInUse {
        /// The sample type that is missing.
        missing: String,
        /// The sample types that are present.
        present: Vec<String>,
    },
    /// A line of a suppression file cannot be read.
    #[error("{file}:{line}: {why}")]
    Suppression {
        /// The path of the suppression file.
        file: String,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with the line.
        why: String,
    },
    /// The two profiles can't be compared, because they have different sample types.
    #[error("cannot be compared: before has {before}, after {after}")]
    DifferentTypes {
        /// The type and unit of the earlier profile.
        before: String,
        /// The type and unit of the later profile.
        after: String,
    },
    /// The values of the later profile can't be scaled, because their total is 0.
    #[error("cannot be compared: the total after is 0, so it can't be scaled to the total before")]
    NothingToScale,
    /// The table of all sample types would have too many columns.
    #[error("a table can show at most {most} sample types side by side, but there are {types}")]
    TooWide {
        /// The number of sample types.
        types: usize,
        /// The largest number of sample types that is allowed.
        most: usize,
    },
    /// An error about one of several profiles.
    #[error("{name}: {error}")]
    InProfile {
        /// The profile's name.
        name: String,
        /// What is wrong with the profile.
        error: Box<AnalysisError>,
    },
    /// An error in the profile itself.
    #[error(transparent)]
    Profile(#[from] heapprof_profile::Error),
    /// An error in the user's statement or in the database file.
    #[error("{0}")]
    Sql(String),
    /// The database was written by a newer heapprof.
    #[error(
        "was written by a newer heapprof (schema {found}, this one knows {known}); update heapprof"
    )]
    Newer {
        /// The schema version of the file.
        found: i64,
        /// The newest schema version that this build knows.
        known: i64,
    },
    /// The file is a SQLite database of another program, or no database at all.
    #[error("is not a heapprof database{0}")]
    NotADatabase(String),
    /// No profile has the requested name.
    #[error("has no profile named {name:?}; it has {}", listed(.present))]
    NoSuchProfile {
        /// The requested name.
        name: String,
        /// The names that are present.
        present: Vec<String>,
    },
    /// A profile already has the new name.
    #[error("already has a profile named {0:?}")]
    NameTaken(String),
    /// The database, or its folder, can't be written.
    #[error("the database, or its folder, can't be written")]
    ReadOnly,
    /// A selector chooses no moment.
    #[error(
        "{selector}: chooses none of the {moments} stored profiles; their services are {}; \
         heapprof db series lists them", listed(.services)
    )]
    NothingChosen {
        /// The selector.
        selector: String,
        /// The number of stored profiles.
        moments: usize,
        /// The services that the stored profiles name.
        services: Vec<String>,
    },
    /// Growth was requested for a sample type whose values never shrink.
    #[error("{0} only counts what was allocated; growth is about values in use")]
    OnlyGrows(String),
    /// There are too few moments to judge growth. The field is the number of moments.
    #[error("has too few moments in time: {0}, and growth needs at least 3")]
    TooFewSteps(usize),
    /// A [`GateRule`](crate::gate::GateRule) cannot be read, or cannot be judged.
    #[error("rule {rule:?}: {why}")]
    Rule {
        /// The rule.
        rule: String,
        /// What is wrong with the rule.
        why: String,
    },
}

/// Largest number of names that an error lists. If there are more, the error says how many.
const MAX_LISTED_NAMES: usize = 12;

fn listed(names: &[String]) -> String {
    match names {
        [] => "none".to_string(),
        names if names.len() <= MAX_LISTED_NAMES => names.join(", "),
        names => {
            let more = names.len() - MAX_LISTED_NAMES;
            format!("{} and {more} more", names[..MAX_LISTED_NAMES].join(", "))
        }
    }
}

impl From<rusqlite::Error> for AnalysisError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ffi::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => AnalysisError::NotADatabase(String::new()),
            Some(ErrorCode::DatabaseBusy) => AnalysisError::Sql(
                "another process has locked the database for over a minute; try again".to_string(),
            ),
            Some(ErrorCode::CannotOpen) => AnalysisError::Sql(
                "cannot be opened as a database; is it a file in an existing folder, and may you \
                 access both?"
                    .to_string(),
            ),
            Some(ErrorCode::ReadOnly) => AnalysisError::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt) => AnalysisError::Sql(
                "the database is damaged; remove it, and load the profiles again".to_string(),
            ),
            Some(ErrorCode::OperationInterrupted) => AnalysisError::Sql(
                "reading the database takes more work than its size justifies; it is damaged or \
                 malicious; remove it, and load the profiles again"
                    .to_string(),
            ),
            Some(ErrorCode::TooBig) => AnalysisError::Sql(
                "a value is longer than a database can hold (64 MiB), or longer than its file; the \
                 file is damaged, or the profile is too large"
                    .to_string(),
            ),
            Some(ErrorCode::SystemIoFailure) => AnalysisError::Sql(format!(
                "the database can't be read or written ({error})"
            )),
            _ => AnalysisError::Sql(match error {
                rusqlite::Error::SqliteFailure(_, Some(message)) => message,
                rusqlite::Error::SqlInputError { msg, offset, .. } if offset >= 0 => {
                    format!("{msg}, at character {}", offset + 1)
                }
                rusqlite::Error::InvalidColumnType(_, column, found) => {
                    format!("column {column} holds a {found}: the database is damaged")
                }
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::Utf8Error(..) => {
                    format!("{error}: the database is damaged")
                }
                other => other.to_string(),
            }),
        }
    }
}
