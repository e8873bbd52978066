//! `heapprof web`: serves the page of `report`, and answers its questions from the whole profile.
//!
//! The crate `heapprof-page` makes the answers, and `heapprof-web` is the server. This module
//! handles the options, the browser and the signals.

mod host;

use std::sync::Arc;

use anyhow::{Context, Result};
use heapprof_dropin::WebPageRequest;
use heapprof_page::{BinaryFolders, PageDesk, PageSettings, open_in_browser};
use heapprof_recorder::inherited_state;
use heapprof_sources::ProfileSources;
use heapprof_web::{PageServer, ServerStop};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::host::CommandLinePage;
use crate::args::web::MAX_NODES;
use crate::args::{BINARY_ADVICE, SourceArgs, WebArgs};
use crate::context::CommandContext;
use crate::{messages, output};

pub(super) fn run(context: CommandContext, args: &WebArgs) -> Result<()> {
    let settings = PageSettings {
        profiles: args.profiles.profiles.clone(),
        base: args.base.clone(),
        takes_profiles: args.upload,
        max_nodes: args.max_nodes,
        has_source: args.source,
        source_folders: args.source_files.folders(),
        binaries: BinaryFolders::new(&args.debug_dir, BINARY_ADVICE),
        ..PageSettings::default()
    };
    let start = ServerStart {
        port: args.port,
        opens_browser: !args.no_open,
        state: String::new(),
    };
    serve(context.sources, settings, start)
}

/// Serves the page for the command `pprof -http`.
pub(super) fn serve_for_pprof(sources: &ProfileSources, page: &WebPageRequest) -> Result<()> {
    let filters = [("focus", &page.focus), ("ignore", &page.ignore)];
    let mut state = form_urlencoded::Serializer::new(String::new());
    state.extend_pairs(filters.iter().filter(|(_, pattern)| !pattern.is_empty()));
    let settings = PageSettings {
        profiles: page.sources.clone(),
        base: page.base.iter().cloned().collect(),
        is_sum: true,
        max_nodes: MAX_NODES,
        source_folders: SourceArgs::default().folders(),
        pprof: page.views.clone(),
        ..PageSettings::default()
    };
    let start = ServerStart {
        port: page.port,
        opens_browser: page.opens_browser,
        state: state.finish(),
    };
    serve(sources.as_ours(), settings, start)
}

/// The settings with which a server starts.
struct ServerStart {
    /// The port to listen on; 0 takes any free port.
    port: u16,
    opens_browser: bool,
    /// The state in which the page opens, as the fragment of its address.
    state: String,
}

fn serve(sources: ProfileSources, settings: PageSettings, start: ServerStart) -> Result<()> {
    let desk = PageDesk::open(sources, settings, Arc::new(CommandLinePage))?;
    let server = PageServer::bind(start.port)
        .with_context(|| format!("port {}: cannot listen on it", start.port))?;
    let url = match start.state.as_str() {
        "" => server.url(),
        state => format!("{}#{state}", server.url()),
    };
    let desk = Arc::new(desk);
    let title = desk.title().to_string();
    // The first view is made while the browser starts.
    let first = desk.clone();
    std::thread::spawn(move || first.prepare());

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
    let page = match start.opens_browser {
        true => open_in_browser(&url, messages::note),
        false => None,
    };
    let served = server.serve(desk, &stop).context("the server");
    drop(page);
    served
}
