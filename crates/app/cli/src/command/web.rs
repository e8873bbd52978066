//! `heapprof web`: serves the page of `report`, and answers its questions from the whole profile.
//!
//! `heapprof-web` knows HTTP and no profile, and this module knows profiles and no HTTP. The trait
//! [`ApiHandler`] is between them: a question goes in, and an answer or a refusal comes out.
//!
//! * `commands.rs`: the commands that can be asked, from a table of what each may be asked. The
//!   parameters (`parameters.rs`) become a question (`question.rs`), which is the same that the
//!   command asks, and the answer is what the command prints with `--format json`.
//! * `library.rs`: the profiles that are offered. A question reads nothing else: every other name
//!   is an error, so that no parameter can name a file, a URL or stdin.
//! * `pages.rs`: the sessions of the last views. A view is a choice of profiles under filters; the
//!   page asks each again, for its report and for parts of the report's tree.
//! * `statement.rs`: statements of the user, which only read, and which end.
//!
//! `tests/desk/web/` compares each answer with the command's output, and sends hostile requests.

mod browser;
mod commands;
mod library;
mod pages;
mod parameters;
mod question;
mod statement;

use std::sync::{Arc, Mutex, TryLockError};

use anyhow::{Context, Result};
use heapprof_recorder::inherited_state;
use heapprof_sources::ProfileSources;
use heapprof_text::printable;
use heapprof_web::{
    API_PATH, AcceptedBody, ApiAnswer, ApiHandler, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE,
    PageServer, PageServerInfo, ServedPage, ServerStop,
};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::library::ProfileLibrary;
use self::pages::ReportViews;
use crate::args::web::MAX_NODES;
use crate::args::{ProfileArgs, SourceArgs, WebArgs};
use crate::context::CommandContext;
use crate::{messages, name, output};

/// The media type of bytes that have no other type.
const BINARY_MEDIA_TYPE: &str = "application/octet-stream";
/// Largest statement, in bytes.
const MAX_STATEMENT_BYTES: usize = 64 << 10;
/// Largest profile that may be sent, in bytes.
const MAX_UPLOAD_BYTES: usize = 256 << 20;

pub(super) fn run(context: CommandContext, args: &WebArgs) -> Result<()> {
    serve(context.sources, args)
}

/// Serves the page that `pprof -http` asks for.
pub(super) fn serve_for_pprof(
    sources: &ProfileSources,
    page: &heapprof_dropin::WebPageRequest,
) -> Result<()> {
    let filters = [("focus", &page.focus), ("ignore", &page.ignore)];
    let mut state = form_urlencoded::Serializer::new(String::new());
    state.extend_pairs(filters.iter().filter(|(_, pattern)| !pattern.is_empty()));
    let args = WebArgs {
        profiles: ProfileArgs {
            profiles: page.sources.clone(),
        },
        base: page.base.iter().cloned().collect(),
        port: page.port,
        no_open: !page.opens_browser,
        upload: false,
        max_nodes: MAX_NODES,
        source: false,
        source_files: SourceArgs::default(),
        added_up: true,
        state: state.finish(),
    };
    serve(sources.as_ours(), &args)
}

fn serve(sources: ProfileSources, args: &WebArgs) -> Result<()> {
    let library = ProfileLibrary::open(sources, args)?;
    let title = library.title();
    let server = PageServer::bind(args.port)
        .with_context(|| format!("port {}: cannot be listened on", args.port))?;
    let url = match args.state.as_str() {
        "" => server.url(),
        state => format!("{}#{state}", server.url()),
    };
    let desk = Arc::new(WebDesk {
        pages: ReportViews::new(args),
        upload: args.upload,
        source: args.source,
        statement: Mutex::default(),
        title: title.clone(),
        library,
    });
    // The first view is made while the browser starts.
    let first = desk.clone();
    std::thread::spawn(move || drop(first.pages.report(&first.library, &ApiRequest::default())));

    let stop = ServerStop::default();
    // Under nohup, the end of the terminal is not the server's end.
    let ending = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|&signal| signal != SIGHUP || !inherited_state::is_ignored(signal));
    let mut signals = Signals::new(ending).context("signals")?;
    let stopper = stop.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    });
    output::text(None, &format!("{url}\n"))?;
    messages::note(&format!("serving {title} to this machine until Ctrl-C"));
    let page = match args.no_open {
        true => None,
        false => browser::open(&url),
    };
    let served = server.serve(desk, &stop).context("the server");
    drop(page);
    served
}

/// The desk that answers the page's questions.
struct WebDesk {
    library: ProfileLibrary,
    pages: ReportViews,
    /// Locked while a statement runs, so that one worker is left for the page.
    statement: Mutex<()>,
    title: String,
    upload: bool,
    source: bool,
}

impl ApiHandler for WebDesk {
    fn page(&self) -> ServedPage {
        let server = PageServerInfo {
            api: API_PATH.to_string(),
            refresh_ms: self
                .library
                .is_live()
                .then_some(library::REFRESH_INTERVAL_MS),
        };
        let title = name::shown(&self.title);
        heapprof_web::served_page(&format!("{} - heapprof", printable(&title)), &server)
    }

    fn accepted_body(&self, path: &str) -> Result<Option<AcceptedBody>, ApiRefusal> {
        match path {
            "sql" => Ok(Some(AcceptedBody {
                media: JSON_MEDIA_TYPE,
                max_bytes: MAX_STATEMENT_BYTES,
            })),
            "upload" if self.upload => {
                // Nothing is received for which there is no room.
                self.library.check_sent()?;
                Ok(Some(AcceptedBody {
                    media: BINARY_MEDIA_TYPE,
                    max_bytes: MAX_UPLOAD_BYTES,
                }))
            }
            "upload" => Err(ApiRefusal::new(
                403,
                "This server takes no profiles",
                "Start it with heapprof web --upload",
            )),
            _ => Ok(None),
        }
    }

    fn answer(&self, asked: &ApiRequest) -> Result<ApiAnswer, ApiRefusal> {
        match asked.path.as_str() {
            "report" => self.pages.report(&self.library, asked),
            "subtree" => self.pages.subtree(&self.library, asked),
            "profiles" => {
                allow(asked, &[])?;
                Ok(ApiAnswer::json(&json!({
                    "profiles": self.library.offered(),
                    "shown": self.library.shown(),
                    "upload": self.upload,
                })))
            }
            "commands" => {
                allow(asked, &[])?;
                Ok(ApiAnswer::json(&commands::describe_api(self.upload)))
            }
            "sql" => match self.statement.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let help = "Ask again when it has ended; it has 10 s";
                    Err(ApiRefusal::new(503, "Another statement runs", help))
                }
                _held => statement::answer(&self.library, asked),
            },
            "upload" => {
                allow(asked, &["name"])?;
                let name = self.library.take(asked.parameter("name"), &asked.body)?;
                Ok(ApiAnswer::json(&json!({ "name": name })))
            }
            _ => commands::answer(&self.library, asked, self.source),
        }
    }
}

/// Refuses a parameter that is not in `known` and does not choose profiles.
fn allow(asked: &ApiRequest, known: &[&str]) -> Result<(), ApiRefusal> {
    let is_known =
        |name: &str| known.contains(&name) || commands::CHOICE_PARAMETERS.contains(&name);
    let unknown = asked.parameters.iter().find(|(name, _)| !is_known(name));
    let Some((name, _)) = unknown else {
        return Ok(());
    };
    Err(unknown_parameter(
        asked,
        name,
        commands::CHOICE_PARAMETERS.iter().chain(known).copied(),
    ))
}

/// Returns the refusal of a parameter that a path does not have.
fn unknown_parameter<'a>(
    asked: &ApiRequest,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> ApiRefusal {
    let known = known.collect::<Vec<_>>().join(", ");
    let what = format!("{} has no parameter {name:?}", asked.path);
    ApiRefusal::new(400, what, format!("It has {known}"))
}

/// Returns the refusal of a question that can't be answered, with the message of the command line.
fn refusal(error: &anyhow::Error) -> ApiRefusal {
    ApiRefusal {
        status: 400,
        what: messages::text(error),
        ..ApiRefusal::default()
    }
}
