//! Answers the page's requests for the report of chosen profiles with filters, and for the part of
//! a report below a path.
//!
//! The sessions of the last few views are kept, because the page may request further parts of them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Context, Result};
use heapprof_analysis::{
    AnalysisSession, Granularity, ProfileQuestion, Query, TreeOptions, TypeSelection, agree,
    report::{report, report_below},
};
use heapprof_web::{ApiAnswer, ApiRefusal, ApiRequest, ReportContainer};
use sha2::{Digest, Sha256};

use crate::host::{PageHost, refusal};
use crate::library::{ProfileChoice, ProfileLibrary};
use crate::parameters::allow;
use crate::paths::PathNames;
use crate::question::QuestionNote;
use crate::rows::{ReportPage, page_rows};
use crate::settings::PageSettings;
use crate::source_file::{SourceFiles, SourceFolders};

/// The media type of bytes that have no other type.
pub(crate) const BINARY_MEDIA_TYPE: &str = "application/octet-stream";
/// Maximum number of views that are kept.
const MAX_VIEWS: usize = 4;
/// Maximum number of functions in one list of a path.
const MAX_PATH_DEPTH: usize = 4096;
/// Maximum number of lists of functions in a path. Each list begins in the part of the report to
/// which the list before it leads.
const MAX_OPENED_PARTS: usize = 64;

/// The last views that a server made.
pub(crate) struct ReportViews {
    views: Mutex<Vec<Arc<ReportView>>>,
    most: usize,
    /// A number that makes the tags of every server different.
    salt: u64,
    /// Where to find source files, if the text of their lines is shown.
    source: Option<SourceFolders>,
    host: Arc<dyn PageHost>,
}

/// The profiles and filters by which a view is found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportViewKey {
    choice: ProfileChoice,
    /// The number of each profile's reading.
    readings: Vec<u64>,
    /// Notes about profiles that are not up to date.
    late: Vec<String>,
    focus: Option<String>,
    ignore: Option<String>,
}

struct ReportView {
    key: ReportViewKey,
    made: OnceLock<Result<Mutex<ViewSession>, ApiRefusal>>,
}

struct ViewSession {
    session: AnalysisSession,
    notes: Vec<String>,
    /// The report as packed bytes; `None` until a client requests it.
    packed: Option<Vec<u8>>,
}

impl ReportViews {
    /// Makes an empty list of views.
    pub(crate) fn new(settings: &PageSettings, host: Arc<dyn PageHost>) -> Self {
        Self {
            views: Mutex::default(),
            most: settings.max_nodes.max(1),
            salt: RandomState::new().build_hasher().finish(),
            source: settings.has_source.then(|| settings.source_folders.clone()),
            host,
        }
    }

    /// Answers with the report of a view.
    pub(crate) fn report(
        &self,
        library: &ProfileLibrary,
        asked: &ApiRequest,
    ) -> Result<ApiAnswer, ApiRefusal> {
        allow(asked, &["focus", "ignore"])?;
        let view = self.view(library, asked)?;
        let tag = view.key.tag(self.salt);
        if asked.known_tag.as_ref() == Some(&tag) {
            return Ok(ApiAnswer {
                media: BINARY_MEDIA_TYPE,
                tag: Some(tag),
                ..ApiAnswer::default()
            });
        }
        let mut made = self.lock_session(&view, library)?;
        let packed = match &made.packed {
            Some(packed) => packed.clone(),
            None => {
                let found =
                    report(&made.session).map_err(|error| refusal(&*self.host, &error.into()))?;
                let packed = self.pack_report(&view.key, found)?;
                made.packed.insert(packed).clone()
            }
        };
        Ok(ApiAnswer {
            media: BINARY_MEDIA_TYPE,
            body: Some(packed),
            tag: Some(tag),
            notes: made.notes.clone(),
            ..ApiAnswer::default()
        })
    }

    /// Answers with the part of the report below a path. The parameter `path` is a list of function
    /// names, or a list of such lists. Each list begins in the part of the report to which the list
    /// before it leads.
    pub(crate) fn subtree(
        &self,
        library: &ProfileLibrary,
        asked: &ApiRequest,
    ) -> Result<ApiAnswer, ApiRefusal> {
        allow(asked, &["focus", "ignore", "path"])?;
        let Some(paths) = parse_paths(asked.parameter("path").unwrap_or("[]")) else {
            let what = "The path is not a JSON list of function names, nor a list of such lists";
            return Err(ApiRefusal::new(400, what, "Send path=[\"main\",\"parse\"]"));
        };
        let view = self.view_as_shown(library, asked)?;
        let made = self.lock_session(&view, library)?;
        let found = report_below(&made.session, &paths)
            .map_err(|error| refusal(&*self.host, &error.into()))?;
        if found.nodes.is_empty() {
            let what = "Nothing was left out below this path";
            return Err(ApiRefusal::new(404, what, "Ask for the report again"));
        }
        Ok(ApiAnswer {
            media: BINARY_MEDIA_TYPE,
            body: Some(self.pack_report(&view.key, found)?),
            tag: None,
            notes: made.notes.clone(),
            ..ApiAnswer::default()
        })
    }

    /// Returns the newest view for a request, even if the profile has changed since. So a requested
    /// part fits the report that the page shows. If there is no view, makes one.
    fn view_as_shown(
        &self,
        library: &ProfileLibrary,
        asked: &ApiRequest,
    ) -> Result<Arc<ReportView>, ApiRefusal> {
        let choice = library.parse_choice(asked)?;
        let (focus, ignore) = (asked.parameter("focus"), asked.parameter("ignore"));
        let is_asked = |view: &&Arc<ReportView>| {
            view.key.choice == choice
                && view.key.focus.as_deref() == focus
                && view.key.ignore.as_deref() == ignore
        };
        let known = {
            let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
            views.iter().rfind(is_asked).cloned()
        };
        match known {
            Some(view) => Ok(view),
            None => self.view(library, asked),
        }
    }

    /// Returns the view for a request from up-to-date profiles. If there is no view, makes one.
    fn view(
        &self,
        library: &ProfileLibrary,
        asked: &ApiRequest,
    ) -> Result<Arc<ReportView>, ApiRefusal> {
        let choice = library.parse_choice(asked)?;
        let mut readings = Vec::new();
        let mut late = Vec::new();
        for name in &choice.names {
            let read = library.read(name)?;
            readings.push(read.number);
            late.extend(read.note);
        }
        let text = |name: &str| asked.parameter(name).map(str::to_string);
        let key = ReportViewKey {
            choice,
            readings,
            late,
            focus: text("focus"),
            ignore: text("ignore"),
        };
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let at = views.iter().position(|view| view.key == key);
        let view = match at {
            Some(at) => views.remove(at),
            None => Arc::new(ReportView {
                key,
                made: OnceLock::new(),
            }),
        };
        // The view that was asked for last comes last.
        views.push(view.clone());
        if views.len() > MAX_VIEWS {
            views.remove(0);
        }
        Ok(view)
    }

    fn lock_session<'v>(
        &self,
        view: &'v ReportView,
        library: &ProfileLibrary,
    ) -> Result<MutexGuard<'v, ViewSession>, ApiRefusal> {
        let made = view.made.get_or_init(|| {
            let made = self.open_session(&view.key, library)?;
            Ok(Mutex::new(made))
        });
        match made {
            Ok(made) => Ok(made.lock().unwrap_or_else(PoisonError::into_inner)),
            Err(refusal) => Err(refusal.clone()),
        }
    }

    fn open_session(
        &self,
        key: &ReportViewKey,
        library: &ProfileLibrary,
    ) -> Result<ViewSession, ApiRefusal> {
        let mut sources = library.read_all(&key.choice.names)?;
        let mut query = Query {
            granularity: Granularity::Lines,
            ..Query::default()
        };
        query.filters.focus.clone_from(&key.focus);
        query.filters.ignore.clone_from(&key.ignore);
        let options = TreeOptions {
            reverse: false,
            least: 0.0,
            most: Some(self.most),
        };
        let made = || -> Result<ViewSession> {
            if let [before, after] = &mut sources[..]
                && key.choice.is_compared
            {
                agree(before, after)?;
            }
            let question = ProfileQuestion::new(sources, &query, TypeSelection::All)?;
            let notes = question.notes();
            let notes = notes.iter().map(QuestionNote::Filter);
            let mut notes: Vec<String> = notes.map(|note| self.host.note_text(&note)).collect();
            notes.extend_from_slice(&key.late);
            Ok(ViewSession {
                session: AnalysisSession::new(question.with_tree(options))?,
                notes,
                packed: None,
            })
        };
        made().map_err(|error| refusal(&*self.host, &error))
    }

    fn pack_report(
        &self,
        key: &ReportViewKey,
        found: heapprof_analysis::report::ReportContents,
    ) -> Result<Vec<u8>, ApiRefusal> {
        let ProfileChoice { names, is_compared } = &key.choice;
        let (base, after) = match is_compared {
            true => names.split_at(1),
            false => names.split_at(0),
        };
        let files = self.source.as_ref().map(SourceFiles::new);
        let page = ReportPage {
            names: after,
            base,
            paths: PathNames::Full,
            sources: files.as_ref(),
            commands: &|names, base, paths| self.host.view_commands(names, base, paths),
        };
        let packed = ReportContainer::pack_quickly(&page_rows(found, &page)).context("the page");
        Ok(packed
            .map_err(|error| refusal(&*self.host, &error))?
            .into_bytes())
    }
}

/// Parses the parameter `path`. Returns `None` if the text is no path, or is too long.
fn parse_paths(text: &str) -> Option<Vec<Vec<String>>> {
    let one = serde_json::from_str(text).map(|path| vec![path]);
    let paths: Vec<Vec<String>> = one.or_else(|_| serde_json::from_str(text)).ok()?;
    let is_fit =
        paths.len() <= MAX_OPENED_PARTS && paths.iter().all(|path| path.len() <= MAX_PATH_DEPTH);
    is_fit.then_some(paths)
}

impl ReportViewKey {
    /// Returns a text that differs for every view, for use as an entity tag.
    fn tag(&self, salt: u64) -> String {
        let digest = Sha256::digest(format!("{salt} {self:?}"));
        let hex: String = digest[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("\"{hex}\"")
    }
}
