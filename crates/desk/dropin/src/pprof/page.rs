//! `-http`: the page that heapprof serves. Its first view is heapprof's; pprof's views are at
//! pprof's paths.

use anyhow::{Result, bail};

use crate::host::WebPageRequest;
use crate::pprof::config::PprofConfig;
use crate::pprof::remote;

/// Names of this machine in `-http=HOST:PORT`. As in pprof, an empty host is this machine.
const LOCAL_HOSTS: [&str; 4] = ["", "localhost", "127.0.0.1", "[::1]"];
/// Flags that have an effect on heapprof's own page. A note to the user names the other flags. All
/// flags have an effect on pprof's views.
const SUPPORTED_FLAGS: [&str; 6] = ["base", "diff_base", "focus", "http", "ignore", "no_browser"];

/// Returns the request for the page that the flags describe, without pprof's views, because the
/// profile is not read yet.
pub(super) fn page_request(config: &PprofConfig<'_>) -> Result<WebPageRequest> {
    let (flags, host) = (&config.flags, config.host);
    let place = flags.text("http");
    let Some((name, port)) = place.rsplit_once(':') else {
        bail!("-http={place}: give a port, as in -http=localhost:8080 or -http=:");
    };
    if !LOCAL_HOSTS.contains(&name) {
        bail!(
            "-http={place}: heapprof serves this machine only; leave {name} out, and forward the \
             port with ssh -L"
        );
    }
    let port = match port {
        "" => Ok(0),
        port => port.parse(),
    };
    let Ok(port) = port else {
        bail!("-http={place}: the port is not a number from 0 to 65535");
    };
    let others = flags
        .flags()
        .into_iter()
        .filter(|flag| !SUPPORTED_FLAGS.contains(flag));
    let others: Vec<String> = others.map(|flag| format!("-{flag}")).collect();
    if !others.is_empty() {
        let others = others.join(", ");
        host.note(&format!(
            "{others}: no effect on the page at /, which has its own controls, but on pprof's \
             views, such as /top"
        ));
    }
    let url = |source: &String| {
        let is_file = host.path(source).exists();
        let address = remote::parse_address(source, is_file, flags);
        address.map_or_else(|| source.clone(), |address| address.url)
    };
    Ok(WebPageRequest {
        port,
        opens_browser: !flags.is_on("no_browser"),
        sources: config.sources.iter().map(url).collect(),
        base: config.base.as_ref().map(url),
        focus: flags.text("focus").to_string(),
        ignore: flags.text("ignore").to_string(),
        views: None,
    })
}
