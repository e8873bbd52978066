//! Sources that are not files: URLs and server addresses, and how they are fetched.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use super::flags::PprofArguments;
use crate::host::FetchOptions;

/// Path that is added to an address without a path. Go programs serve their CPU profile there.
const DEFAULT_PATH: &str = "/debug/pprof/profile";

/// A source on a server: its URL, the duration of profiling, and whether any certificate is
/// accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteAddress {
    pub(super) url: String,
    seconds: i64,
    insecure: bool,
}

/// Parses the address of a source. Returns `None` if the source is a file or has no host.
pub(super) fn parse_address(
    source: &str,
    is_file: bool,
    flags: &PprofArguments,
) -> Option<RemoteAddress> {
    if is_file || source == "-" {
        return None;
    }
    let (scheme, rest) = match source.split_once("://") {
        Some((scheme @ ("http" | "https" | "https+insecure"), rest)) => (scheme, rest),
        Some(_) => return None,
        // In HOST:PORT/PATH, the part before the first colon is not a scheme.
        None => match source.split(['/', '?']).next() {
            Some(host) if host.contains(':') && !host.starts_with(':') => ("http", source),
            _ => return None,
        },
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = match place.find('/') {
        Some(at) => place.split_at(at),
        None => (place, ""),
    };
    if host.is_empty() {
        return None;
    }
    let path = match path {
        "" | "/" => DEFAULT_PATH,
        path => path,
    };
    let mut parts: Vec<String> = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(str::to_string)
        .collect();
    let mut seconds = flags.int("seconds");
    if seconds > 0 {
        parts.retain(|part| !part.starts_with("seconds="));
        parts.push(format!("seconds={seconds}"));
    } else {
        let mut given = parts.iter().filter_map(|p| p.strip_prefix("seconds="));
        seconds = given.find_map(|s| s.parse().ok()).unwrap_or(0);
    }
    parts.sort();
    let query = match parts.is_empty() {
        true => String::new(),
        false => format!("?{}", parts.join("&")),
    };
    let insecure = scheme == "https+insecure";
    let scheme = if insecure { "https" } else { scheme };
    Some(RemoteAddress {
        url: format!("{scheme}://{host}{path}{query}"),
        seconds,
        insecure,
    })
}

/// Returns the options for fetching from an address.
pub(super) fn fetch_options(
    address: &RemoteAddress,
    flags: &PprofArguments,
) -> Result<FetchOptions> {
    let path = |name| Some(flags.text(name)).filter(|t| !t.is_empty());
    let client = match (path("tls_cert"), path("tls_key")) {
        (Some(certificate), Some(key)) => Some((PathBuf::from(certificate), PathBuf::from(key))),
        (None, None) => None,
        (None, _) => bail!("-tls_key is specified, so -tls_cert must also be specified"),
        (_, None) => bail!("-tls_cert is specified, so -tls_key must also be specified"),
    };
    let timeout = match flags.int("timeout") {
        timeout if timeout > 0 => timeout,
        _ if address.seconds > 0 => address.seconds.saturating_mul(3) / 2,
        _ => 60,
    };
    // The client waits a little longer than the server should need.
    let patience = Duration::from_secs(timeout.unsigned_abs().saturating_add(5));
    Ok(FetchOptions {
        timeout: Some(patience),
        client,
        authorities: path("tls_ca").map(PathBuf::from),
        insecure: address.insecure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |line: &str| {
            let args: Vec<String> = line.split(' ').map(str::to_string).collect();
            let flags = PprofArguments::parse(&args).unwrap();
            parse_address(&flags.words[0], false, &flags)
        };
        let table = [
            (
                "localhost:6060",
                Some("http://localhost:6060/debug/pprof/profile"),
            ),
            (
                "localhost:6060/",
                Some("http://localhost:6060/debug/pprof/profile"),
            ),
            (
                "10.0.0.1:80/heap?gc=1",
                Some("http://10.0.0.1:80/heap?gc=1"),
            ),
            ("http://host/heap", Some("http://host/heap")),
            ("https+insecure://host/heap", Some("https://host/heap")),
            (
                "-seconds=5 http://host/heap?gc=1",
                Some("http://host/heap?gc=1&seconds=5"),
            ),
            (
                "-seconds=5 http://host/heap?seconds=9",
                Some("http://host/heap?seconds=5"),
            ),
            ("nowhere.pb.gz", None),
            ("folder/a:b", None),
            (":6060", None),
            ("http://", None),
            ("ftp://host/heap", None),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line).map(|a| a.url).as_deref(), expected, "{line}");
        }
        assert!(parse("https+insecure://host/heap").unwrap().insecure);
    }
}
