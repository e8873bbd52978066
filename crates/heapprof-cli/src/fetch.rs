//! Profiles over HTTP, as Go programs serve them at /debug/pprof/heap.

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// Whether an argument is a URL that can be fetched.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// A stream of the body. The answer must begin within a minute (more when the URL asks for seconds of profiling).
pub(crate) fn fetch(url: &str) -> Result<Box<dyn Read>> {
    let seconds = url
        .split(['?', '&'])
        .filter_map(|part| part.strip_prefix("seconds=")?.parse::<u64>().ok())
        .next()
        .unwrap_or(0);
    let patience = Duration::from_secs(60 + seconds.saturating_mul(3) / 2);
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_recv_response(Some(patience))
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_body(Some(Duration::from_secs(600)))
        .build()
        .into();
    let response = match agent.get(url).call() {
        Ok(response) => response,
        Err(ureq::Error::StatusCode(code)) => {
            bail!("the server answers {code}; is that the address of a profile?")
        }
        Err(error) => return Err(anyhow!("{error}")).context("cannot be fetched"),
    };
    Ok(Box::new(response.into_body().into_reader()))
}
