//! Fetches profiles over HTTP, as Go programs serve them at /debug/pprof/heap.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_dropin::FetchOptions;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::url::SecretUrl;

/// Longest time that a server may pause within a body. A server that profiles before it answers may
/// pause longer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of the answer to a text, in bytes.
const MAX_ANSWER_SIZE: u64 = 256 << 20;

/// Whether an argument is a URL that can be fetched.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Fetches a URL. `url` has marks in place of its secrets. Returns a stream of the body.
pub(crate) fn fetch(url: &str, transfer: &FetchOptions) -> Result<Box<dyn Read>> {
    let patience = transfer.timeout.unwrap_or_else(|| {
        let mut parts = url.split(['?', '&']);
        let seconds = parts.find_map(|part| part.strip_prefix("seconds=")?.parse::<u64>().ok());
        Duration::from_secs(60 + seconds.unwrap_or(0).saturating_mul(3) / 2)
    });
    let read_timeout = transfer.timeout.unwrap_or(SILENCE_TIMEOUT.max(patience));
    let agent = agent(transfer, patience, read_timeout)?;
    let response = match SecretUrl::from_shown(url).get(&agent) {
        Ok(response) => response,
        Err(ureq::Error::StatusCode(code)) => {
            bail!("the server answered {code}; is this the address of a profile?")
        }
        Err(error) => return Err(anyhow!("{error}")).context("cannot be fetched"),
    };
    Ok(Box::new(BodyReader {
        body: response.into_body().into_reader(),
        read_timeout,
    }))
}

/// Makes a client that waits `patience` for an answer to begin, and `read_timeout` for each piece.
fn agent(
    transfer: &FetchOptions,
    patience: Duration,
    read_timeout: Duration,
) -> Result<ureq::Agent> {
    Ok(ureq::Agent::config_builder()
        .tls_config(tls(transfer)?)
        .timeout_recv_response(Some(patience))
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_body(Some(Duration::from_secs(600)))
        .timeout_per_read(Some(read_timeout))
        .build()
        .into())
}

/// Sends a text to a URL, which has marks in place of its secrets, and returns the answer.
///
/// # Errors
/// The server does not answer, or its answer is an error or too long.
pub fn post(url: &str, text: String, transfer: &FetchOptions) -> Result<Vec<u8>> {
    let agent = agent(transfer, SILENCE_TIMEOUT, SILENCE_TIMEOUT)?;
    let answer = match SecretUrl::from_shown(url).post(&agent, text) {
        Ok(answer) => answer,
        Err(ureq::Error::StatusCode(code)) => bail!("the server answered {code}"),
        Err(error) => return Err(anyhow!("{error}")).context("cannot be asked"),
    };
    let mut body = Vec::new();
    let reader = answer.into_body().into_reader();
    let mut limited = reader.take(MAX_ANSWER_SIZE);
    limited.read_to_end(&mut body).context("cannot be read")?;
    if body.len() as u64 == MAX_ANSWER_SIZE {
        bail!("the answer has more than {MAX_ANSWER_SIZE} bytes");
    }
    Ok(body)
}

/// The body of an answer. If the server stops sending, reading fails with an error that says so.
struct BodyReader<R> {
    body: R,
    read_timeout: Duration,
}

impl<R: Read> Read for BodyReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer).map_err(|error| {
            let of_ureq = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<ureq::Error>());
            match of_ureq {
                Some(ureq::Error::Timeout(ureq::Timeout::PerRead)) => io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "the server sent nothing for {} s before the profile was complete",
                        self.read_timeout.as_secs_f64()
                    ),
                ),
                _ => error,
            }
        })
    }
}

fn tls(transfer: &FetchOptions) -> Result<TlsConfig> {
    let mut tls = TlsConfig::builder().disable_verification(transfer.insecure);
    if let Some((certificate, key)) = &transfer.client {
        let certificates = certificates(certificate)?;
        let named = || format!("{}: cannot be read", key.display());
        let pem = std::fs::read(key).with_context(named)?;
        let key = PrivateKey::from_pem(&pem).map_err(|_| {
            anyhow!(
                "{}: does not contain a private key in PEM format",
                key.display()
            )
        })?;
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
        true => bail!(
            "{}: does not contain a certificate in PEM format",
            file.display()
        ),
        false => Ok(certificates),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_body_that_stops_coming_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/heap", listener.local_addr().unwrap());
        let transfer = FetchOptions {
            timeout: Some(Duration::from_millis(500)),
            ..FetchOptions::default()
        };
        std::thread::spawn(move || {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome";
            // The connections stay open until the test ends.
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(head.as_bytes());
                open.push(stream);
            }
        });
        // On a busy machine the server may answer too late.
        let mut answers = std::iter::repeat_with(|| fetch(&url, &transfer));
        let mut body = answers.find_map(Result::ok).unwrap();
        let error = body.read_to_string(&mut String::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the server sent nothing for 0.5 s before the profile was complete"
        );
    }
}
