//! Profiles over HTTP, as Go programs serve them at /debug/pprof/heap.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_dropin::Transfer;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Whether an argument is a URL that can be fetched.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Fetches a URL. Returns a stream of the body.
pub(crate) fn fetch(url: &str, transfer: &Transfer) -> Result<Box<dyn Read>> {
    let patience = transfer.patience.unwrap_or_else(|| {
        let mut parts = url.split(['?', '&']);
        let seconds = parts.find_map(|part| part.strip_prefix("seconds=")?.parse::<u64>().ok());
        Duration::from_secs(60 + seconds.unwrap_or(0).saturating_mul(3) / 2)
    });
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls(transfer)?)
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

fn tls(transfer: &Transfer) -> Result<TlsConfig> {
    let mut tls = TlsConfig::builder().disable_verification(transfer.insecure);
    if let Some((certificate, key)) = &transfer.client {
        let certificates = certificates(certificate)?;
        let named = || format!("{}: cannot be read", key.display());
        let pem = std::fs::read(key).with_context(named)?;
        let key = PrivateKey::from_pem(&pem)
            .map_err(|_| anyhow!("{}: holds no private key in PEM form", key.display()))?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates, key)));
    }
    if let Some(authorities) = &transfer.authorities {
        tls = tls.root_certs(RootCerts::new_with_certs(&certificates(authorities)?));
    }
    Ok(tls.build())
}

fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>> {
    let named = || format!("{}: cannot be read", file.display());
    let pem = std::fs::read(file).with_context(named)?;
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = items.collect();
    match certificates.is_empty() {
        true => bail!("{}: holds no certificate in PEM form", file.display()),
        false => Ok(certificates),
    }
}
