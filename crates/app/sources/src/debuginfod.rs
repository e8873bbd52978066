//! Fetches debug files by build id from the servers that the user names in `DEBUGINFOD_URLS`, into
//! the cache that elfutils uses. The protocol is described in debuginfod(8).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use heapprof_files::{FileAccess, FilePlace, PathTrust, make_folder};
use ureq::Agent;

use crate::url::{SecretUrl, host_of, without_secrets};

/// The variable with the addresses of the servers, between blanks.
pub const DEBUGINFOD_URLS: &str = "DEBUGINFOD_URLS";
/// Maximum number of bytes of a debug file.
const MAX_FILE_SIZE: u64 = 8 << 30;
/// Time for a server to answer, if the user does not name one. It is that of elfutils.
const DEFAULT_TIMEOUT_SECONDS: u64 = 90;
/// Longest time for a server to answer that a user may name.
const MAX_TIMEOUT_SECONDS: i64 = 24 * 60 * 60;
/// Longest time for a whole file to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Minimum and maximum number of digits of a build id.
const BUILD_ID_DIGITS: std::ops::RangeInclusive<usize> = 16..=128;

/// What became of a request for a debug file.
#[derive(Debug)]
pub enum DebugFileFetch {
    /// The cache has the file.
    Cached,
    /// The file was fetched from the server with this name.
    Fetched(String),
    /// The file has no build id by which servers know it.
    NoBuildId,
    /// No server has the file. There is a text for each server that could not be asked.
    NotFound(Vec<String>),
}

impl DebugFileFetch {
    /// Describes what became of the request; `None` if there is nothing to say.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        match self {
            Self::Cached => None,
            Self::Fetched(host) => Some(format!("debug file fetched from {host}")),
            Self::NoBuildId => Some("has no build id to ask for".to_string()),
            Self::NotFound(failures) if failures.is_empty() => {
                Some("no server has its debug file".to_string())
            }
            Self::NotFound(failures) => Some(format!(
                "no debug file was fetched: {}",
                failures.join("; ")
            )),
        }
    }
}

/// The servers of debug files, and the cache.
pub struct DebuginfodClient {
    /// The addresses, with marks in place of secrets.
    servers: Vec<String>,
    cache: PathBuf,
    agent: Agent,
    /// The numbers of the servers that did not answer.
    silent: RefCell<BTreeSet<usize>>,
}

impl DebuginfodClient {
    /// Makes a client from the variables of the environment that debuginfod(8) names.
    ///
    /// # Errors
    /// No server is named, or there is no place for the cache.
    pub fn from_environment() -> Result<Self> {
        let servers = env::var(DEBUGINFOD_URLS).unwrap_or_default();
        let timeout = env::var("DEBUGINFOD_TIMEOUT").ok();
        let timeout = timeout.and_then(|seconds| seconds.trim().parse::<i64>().ok());
        // 0 and less stand for no limit.
        let timeout = match timeout {
            Some(seconds) => u64::try_from(seconds.min(MAX_TIMEOUT_SECONDS))
                .ok()
                .filter(|&seconds| seconds > 0),
            None => Some(DEFAULT_TIMEOUT_SECONDS),
        };
        let timeout = timeout.map(Duration::from_secs);
        Self::new(&servers, cache_folder()?, timeout)
    }

    fn new(servers: &str, cache: PathBuf, timeout: Option<Duration>) -> Result<Self> {
        // An address with a query or an odd port can't be asked.
        let is_http = |url: &&str| {
            let plain = !url.contains(['?', '#', '\\']);
            let port = host_of(url).rsplit_once(':').map(|(_, port)| port);
            let has_port =
                port.is_none_or(|port| port.ends_with(']') || port.parse::<u16>().is_ok());
            plain && has_port && (url.starts_with("http://") || url.starts_with("https://"))
        };
        let servers = servers.split_whitespace().filter(is_http);
        let hide = |url: &str| without_secrets(url, true).unwrap_or_else(|| url.to_string());
        let servers: Vec<String> = servers.map(hide).collect();
        if servers.is_empty() {
            bail!(
                "{DEBUGINFOD_URLS} names no usable server; set it, for example to \
                 https://debuginfod.elfutils.org"
            );
        }
        let agent = Agent::config_builder()
            .timeout_connect(timeout)
            .timeout_recv_response(timeout)
            .timeout_per_read(timeout)
            .timeout_recv_body(Some(BODY_TIMEOUT))
            .build()
            .into();
        Ok(Self {
            servers,
            cache,
            agent,
            silent: RefCell::default(),
        })
    }

    /// Returns the folder of the cache. It has a folder for each build id.
    #[must_use]
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Puts the debug file with this build id into the cache.
    ///
    /// # Errors
    /// The cache can't be written.
    pub fn fetch(&self, build_id: &str) -> Result<DebugFileFetch> {
        let build_id = build_id.to_ascii_lowercase();
        let is_digit = |byte: u8| byte.is_ascii_hexdigit();
        if !BUILD_ID_DIGITS.contains(&build_id.len()) || !build_id.bytes().all(is_digit) {
            return Ok(DebugFileFetch::NoBuildId);
        }
        let folder = self.cache.join(&build_id);
        let file = folder.join("debuginfo");
        // elfutils keeps an empty file for what no server had.
        if std::fs::metadata(&file).is_ok_and(|of| of.is_file() && of.len() > 0) {
            return Ok(DebugFileFetch::Cached);
        }
        let mut failures = Vec::new();
        for (number, server) in self.servers.iter().enumerate() {
            if self.silent.borrow().contains(&number) {
                continue;
            }
            let url = format!(
                "{}/buildid/{build_id}/debuginfo",
                server.trim_end_matches('/')
            );
            let body = match SecretUrl::from_shown(&url).get(&self.agent) {
                Ok(response) => response.into_body().into_reader(),
                Err(ureq::Error::StatusCode(404)) => continue,
                Err(error) => {
                    // A server that did not answer is not asked for the next file.
                    if !matches!(error, ureq::Error::StatusCode(_)) {
                        self.silent.borrow_mut().insert(number);
                    }
                    failures.push(format!("{}: {error}", host_of(server)));
                    continue;
                }
            };
            make_folder(&folder, PathTrust::OwnLinks)
                .with_context(|| folder.display().to_string())?;
            match write(&file, &build_id, body) {
                Ok(()) => return Ok(DebugFileFetch::Fetched(host_of(server).to_string())),
                Err(CopyError::Read(error)) => {
                    failures.push(format!("{}: {error}", host_of(server)));
                }
                Err(CopyError::Write(file, error)) => {
                    return Err(error).with_context(|| file.display().to_string());
                }
            }
        }
        Ok(DebugFileFetch::NotFound(failures))
    }
}

/// Why a file could not be copied from a server.
enum CopyError {
    /// The server did not send it whole, or sent another one.
    Read(io::Error),
    /// The file can't be written.
    Write(PathBuf, io::Error),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Writes the body of an answer to a file, which appears only when it is whole and has the build id
/// that was asked for.
fn write(file: &Path, build_id: &str, body: impl Read) -> Result<(), CopyError> {
    let place = FilePlace::resolve(file, PathTrust::OwnLinks)?;
    let unwritable = |error: io::Error| CopyError::Write(file.to_path_buf(), error);
    let access = FileAccess::Exactly(0o600);
    let mut draft = place.draft(access).map_err(unwritable)?;
    let mut body = body.take(MAX_FILE_SIZE + 1);
    let size = io::copy(&mut body, draft.file())?;
    if size > MAX_FILE_SIZE {
        return Err(io::Error::other("the answer is larger than any debug file").into());
    }
    let written = format!("/proc/self/fd/{}", draft.file().as_fd().as_raw_fd());
    if heapprof_symbolize::build_id(Path::new(&written)).as_deref() != Some(build_id) {
        return Err(io::Error::other("the answer is another file").into());
    }
    draft.finish().map_err(unwritable)
}

/// Returns the folder of elfutils' cache.
fn cache_folder() -> Result<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable("DEBUGINFOD_CACHE_PATH") {
        return Ok(folder.into());
    }
    let caches = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let caches = caches.or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")));
    let caches = caches.context("there is no folder for fetched files: HOME is not set")?;
    Ok(caches.join("debuginfod_client"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// Answers each request with the text for the path that is asked for.
    fn serve(answer: fn(&str) -> &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let size = stream.read(&mut request).unwrap_or_default();
                let text = String::from_utf8_lossy(&request[..size]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default();
                let _ = stream.write_all(answer(path).as_bytes());
            }
        });
        host
    }

    fn client(servers: &str, folder: &Path) -> Result<DebuginfodClient> {
        DebuginfodClient::new(servers, folder.join("cache"), None)
    }

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn only_the_file_that_was_asked_for_is_kept() {
        let none =
            serve(|_| "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let cut =
            serve(|_| "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nsome");
        let other = serve(|path| match path {
            "/d/buildid/0123456789abcdef0123456789abcdef01234567/debuginfo" => {
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntext"
            }
            _ => "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        });
        let folder = tempfile::tempdir().unwrap();
        let servers = format!("file:///x http://{none} http://{cut} http://me:secret@{other}/d/");
        let client = client(&servers, folder.path()).unwrap();
        match client.fetch(ID).unwrap() {
            DebugFileFetch::NotFound(failures) => {
                assert_eq!(failures.len(), 2, "{failures:?}");
                assert!(
                    failures[1].ends_with("the answer is another file"),
                    "{failures:?}"
                );
                assert!(!failures.concat().contains("secret"), "{failures:?}");
            }
            other => panic!("{other:?}"),
        }
        let cached = client.cache().join(ID);
        assert_eq!(std::fs::read_dir(cached).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_build_id_is_not_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let client = client("http://127.0.0.1:1", folder.path()).unwrap();
        for text in [
            "",
            "../../etc/passwd",
            "0123456789abcdeg",
            "0123456789abcde",
        ] {
            let fetched = client.fetch(text).unwrap();
            assert!(matches!(fetched, DebugFileFetch::NoBuildId), "{text}");
        }
    }

    #[test]
    fn no_server_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for servers in [
            "",
            "  ",
            "file:///usr/lib/debug",
            "http://host:99999/",
            "http://host/?token=secret",
        ] {
            assert!(client(servers, folder.path()).is_err(), "{servers}");
        }
    }
}
