//! The question of `list`: the lines of functions whose name matches a regular expression, with
//! their values.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Granularity, ProfileQuestion, Query, QuestionSource, TypeSelection,
    list::{AddressValues, ListReport, list, list_addresses},
};
use heapprof_assembly::{InstructionKey, ProfileAssembly, WantedFunction, assemble};
use heapprof_symbolize::SymbolizeOptions;
use heapprof_text::explain_shown_match;
use regex::Regex;

use super::{NoteSink, QuestionError, open_plain_session};

/// The question of the command `list`: the lines of functions whose name matches a regular
/// expression, with their values.
pub struct ListQuestion {
    query: Query,
    wanted: Regex,
}

/// Where to find the files that have the code of a profile's functions.
#[derive(Clone, Debug, Default)]
pub struct BinaryFolders {
    /// Folders with binaries and debug files, which are searched besides the places that the
    /// profile names.
    pub folders: Vec<PathBuf>,
    /// Advice about a file that is not found.
    pub advice: &'static str,
}

impl BinaryFolders {
    /// Makes the places to search, with advice about a file that is not found.
    #[must_use]
    pub fn new(folders: &[PathBuf], advice: &'static str) -> Self {
        Self {
            folders: folders.to_vec(),
            advice,
        }
    }
}

/// The two sessions of a [`ListQuestion`].
pub struct ListSessions {
    /// The session whose rows are functions, separate for each file.
    pub functions: AnalysisSession,
    /// The session whose rows are lines.
    pub lines: AnalysisSession,
}

impl ListQuestion {
    /// Makes the question. `wanted` is the regular expression that functions' names must match.
    pub fn new(query: Query, wanted: Regex) -> Result<Self> {
        if query.granularity != Granularity::Functions {
            return Err(QuestionError::NoGranularity.into());
        }
        Ok(Self { query, wanted })
    }

    /// Starts the sessions that answer the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<ListSessions> {
        let types = TypeSelection::Requested;
        let by_function = self.by(Granularity::FileFunctions);
        let functions = open_plain_session(source.clone(), &by_function, types, note)?;
        // The session by function has given the notes on filters.
        let lines = ProfileQuestion::new(vec![source], &self.by(Granularity::Lines), types)?;
        Ok(ListSessions {
            functions,
            lines: AnalysisSession::new(lines)?,
        })
    }

    /// Returns the rows of the report. `name` is the profile's name for the error if no function
    /// matches.
    pub fn rows(&self, sessions: &ListSessions, name: &str) -> Result<ListReport> {
        let ListSessions { functions, lines } = sessions;
        let by_function = self.by(Granularity::FileFunctions);
        let report = list(functions, lines, &by_function, |function| {
            self.wanted.is_match(function)
        })?;
        if report.rows.is_empty() {
            let whole = Query {
                limit: None,
                ..by_function
            };
            let all = list(functions, lines, &whole, |_| true)?;
            let all = all.rows.iter().map(|row| &*row.function);
            let error = QuestionError::NoMatch {
                profile: name.to_string(),
                sample_type: report.header.sample_type.r#type,
                regex: self.wanted.as_str().to_string(),
                reason: explain_shown_match(&self.wanted, all),
            };
            return Err(error.into());
        }
        Ok(report)
    }

    /// Returns the instructions of the functions of a report, with their values, or the reasons why
    /// they are missing. `source` is the profile of the report.
    ///
    /// Flat and cum of an instruction are those of a function at an address, for a profile whose
    /// addresses are instructions. So they are defined as everywhere else.
    pub fn assembly(
        &self,
        mut source: QuestionSource,
        report: &ListReport,
        binaries: &BinaryFolders,
    ) -> Result<ProfileAssembly> {
        let wanted = report.rows.iter().map(|row| WantedFunction {
            name: &row.function,
            file: &row.file,
        });
        let wanted: Vec<WantedFunction<'_>> = wanted.collect();
        let options = SymbolizeOptions {
            debug_dirs: binaries.folders.clone(),
            ..SymbolizeOptions::default()
        };
        let mut assembly = assemble(&source.profile, &wanted, self.query.no_inlines, &options);
        assembly.mark(Arc::make_mut(&mut source.profile));
        let query = self.by(Granularity::Addresses);
        let question = ProfileQuestion::new(vec![source], &query, TypeSelection::Requested)?;
        let session = AnalysisSession::new(question)?;
        let values = list_addresses(&session, report, &query)?;
        for (function, values) in values.into_iter().enumerate() {
            for AddressValues { address, flat, cum } in values {
                if let Some(key) = InstructionKey::from_number(address) {
                    assembly.set_values(function, key, flat, cum);
                }
            }
        }
        Ok(assembly)
    }

    fn by(&self, granularity: Granularity) -> Query {
        Query {
            granularity,
            ..self.query.clone()
        }
    }
}
