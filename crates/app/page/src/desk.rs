//! The desk that answers the page's requests: it passes each request on to the module that answers
//! it.

use std::sync::{Arc, Mutex, TryLockError};

use anyhow::Result;
use heapprof_sources::ProfileSources;
use heapprof_text::{file_name, printable};
use heapprof_web::{
    API_PATH, AcceptedBody, ApiAnswer, ApiHandler, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE,
    PageServerInfo, ServedPage,
};
use serde_json::json;

use crate::host::PageHost;
use crate::library::{ProfileLibrary, REFRESH_INTERVAL_MS};
use crate::parameters::allow;
use crate::pprof_pages::{PprofPages, PprofTarget};
use crate::settings::PageSettings;
use crate::views::{BINARY_MEDIA_TYPE, ReportViews};
use crate::{commands, statement};

/// Largest statement, in bytes.
const MAX_STATEMENT_BYTES: usize = 64 << 10;
/// Largest profile that a client may send, in bytes.
const MAX_UPLOAD_BYTES: usize = 256 << 20;

/// The desk that answers the page's requests.
pub struct PageDesk {
    host: Arc<dyn PageHost>,
    settings: PageSettings,
    library: ProfileLibrary,
    views: ReportViews,
    /// The lock of the running statement: only one statement runs at a time, so that a worker stays
    /// free for the page.
    statement: Mutex<()>,
    /// The pages at pprof's paths, if there are any.
    pprof: Option<PprofPages>,
    title: String,
}

impl PageDesk {
    /// Makes the desk, and reads the profiles of the first view.
    pub fn open(
        sources: ProfileSources,
        settings: PageSettings,
        host: Arc<dyn PageHost>,
    ) -> Result<Self> {
        let library = ProfileLibrary::open(sources, &settings, host.clone())?;
        Ok(Self {
            views: ReportViews::new(&settings, host.clone()),
            statement: Mutex::default(),
            pprof: settings.pprof.clone().map(PprofPages::new),
            title: library.title(),
            library,
            settings,
            host,
        })
    }

    /// Returns a title of the served profiles, for people.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Makes the first view, so that it is ready when the page requests it.
    pub fn prepare(&self) {
        drop(self.views.report(&self.library, &ApiRequest::default()));
    }
}

impl ApiHandler for PageDesk {
    fn page(&self) -> ServedPage {
        let server = PageServerInfo {
            api: API_PATH.to_string(),
            reads_binaries: self.settings.has_source,
            pprof_views: self.pprof.is_some().then_some("./flamegraph"),
            refresh_ms: self.library.is_live().then_some(REFRESH_INTERVAL_MS),
        };
        let title = file_name::shown(&self.title);
        heapprof_web::served_page(&format!("{} - heapprof", printable(&title)), &server)
    }

    fn has_path(&self, path: &str) -> bool {
        self.pprof.is_some() && PprofTarget::parse(path).is_some()
    }

    fn accepted_body(&self, path: &str) -> Result<Option<AcceptedBody>, ApiRefusal> {
        match path {
            "sql" => Ok(Some(AcceptedBody {
                media: JSON_MEDIA_TYPE,
                max_bytes: MAX_STATEMENT_BYTES,
            })),
            "upload" if self.settings.takes_profiles => {
                // Nothing is received for which there is no room.
                self.library.check_sent()?;
                Ok(Some(AcceptedBody {
                    media: BINARY_MEDIA_TYPE,
                    max_bytes: MAX_UPLOAD_BYTES,
                }))
            }
            "upload" => Err(ApiRefusal::new(
                403,
                "This server does not accept profiles",
                self.host.words().upload,
            )),
            // The body is empty. But because of its type, a browser asks this server before it
            // sends such a request of another page.
            _ if PprofTarget::changes_settings(path) => Ok(Some(AcceptedBody {
                media: JSON_MEDIA_TYPE,
                max_bytes: 0,
            })),
            _ => Ok(None),
        }
    }

    fn answer(&self, asked: &ApiRequest) -> Result<ApiAnswer, ApiRefusal> {
        match asked.path.as_str() {
            "report" => self.views.report(&self.library, asked),
            "subtree" => self.views.subtree(&self.library, asked),
            "profiles" => {
                allow(asked, &[])?;
                Ok(ApiAnswer::json(&json!({
                    "profiles": self.library.offered(),
                    "shown": self.library.shown(),
                    "upload": self.settings.takes_profiles,
                })))
            }
            "commands" => {
                allow(asked, &[])?;
                Ok(ApiAnswer::json(&commands::describe_api(
                    self.settings.takes_profiles,
                )))
            }
            "sql" => match self.statement.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let help = "Try again when it has ended; it may run for 10 s";
                    Err(ApiRefusal::new(503, "Another statement is running", help))
                }
                _held => statement::answer(&self.library, asked, &*self.host),
            },
            "upload" => {
                allow(asked, &["name"])?;
                let name = self.library.take(asked.parameter("name"), &asked.body)?;
                Ok(ApiAnswer::json(&json!({ "name": name })))
            }
            path => match self.pprof.as_ref().zip(PprofTarget::parse(path)) {
                Some((pages, target)) => pages.answer(target, asked, &*self.host),
                None => commands::answer(&self.library, asked, &self.settings, &*self.host),
            },
        }
    }
}
