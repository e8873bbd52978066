//! Batches in an object store: S3, servers that speak its protocol, or an HTTP server with WebDAV.
//!
//! A single object is written whole or not at all, but a batch consists of several objects. The
//! table `profile` is written last, and a batch without it is ignored. Other engines ignore the
//! samples of such a batch, too, because statements use only samples of the profiles in `profile`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use heapprof_analysis::{
    portable::parquet::{read_parquet, write_parquet},
    portable::{ColumnValues, PortableBatch, TableForm},
};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ClientOptions, HeaderMap, HeaderValue, ObjectStore, ObjectStoreExt,
    PutPayload, RetryConfig,
};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::{PLACE_HINT, file_of, is_batch, last_table};
use crate::store_user;

/// Longest time that a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// Largest object that is read, in bytes.
const MAX_OBJECT_BYTES: u64 = 4 << 30;
/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 32;

/// The object store with the batches below an address.
pub struct ObjectBatchStore {
    address: String,
    prefix: Path,
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
}

/// Converts the error of an object store to one line, with a hint if heapprof knows one.
fn to_store_error(error: impl std::fmt::Display) -> anyhow::Error {
    let text = error.to_string();
    // A server may have answered with a whole page. Of S3's pages only the error code is of use.
    let code = text
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once('<'))
        .map(|(code, _)| format!(" ({code})"));
    let code = code.unwrap_or_default();
    let text = text.split('<').next().unwrap_or_default();
    let text = text.trim_end_matches(|c: char| c == ':' || c.is_whitespace());
    let mut hint = "";
    if text.contains("PROPFIND") && [" 405 ", " 501 "].iter().any(|no| text.contains(no)) {
        hint = "; the server must speak WebDAV, which lists folders";
    } else if text.contains("//169.254.169.254/") {
        hint = "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    }
    anyhow!("{text}{code}{hint}")
}

impl ObjectBatchStore {
    /// Opens the store at an address, whose parts are `scheme` before `://` and `rest` after it.
    /// Sends no request yet.
    pub(super) fn open(scheme: &str, rest: &str) -> Result<Self> {
        let address = format!("{scheme}://{rest}");
        // The text may contain a password, so it is not shown.
        if rest.contains('@') {
            bail!(
                "the address has a user or a password in it, which others may see; set \
                 HEAPPROF_STORE_USER and HEAPPROF_STORE_PASSWORD instead"
            );
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~=+,/:[]".contains(c);
        if host.is_empty() || !rest.chars().all(is_plain) {
            bail!(
                "{address}: is not the address of a store; {PLACE_HINT}, with only letters, digits \
                 and -_.~=+"
            );
        }
        let prefix = Path::parse(path.trim_end_matches('/'))
            .map_err(|error| anyhow!("{address}: {error}"))?;
        Ok(Self {
            store: client(scheme, host).map_err(|error| anyhow!("{address}: {error}"))?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            address,
            prefix,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.address
    }

    fn path(&self, batch: &str, form: &TableForm) -> Path {
        self.prefix.clone().join(batch).join(file_of(form))
    }

    /// Returns the names of the complete batches below the address.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let named = |error| {
            anyhow!(
                "{}: cannot be read: {}",
                self.address,
                to_store_error(error)
            )
        };
        self.runtime.block_on(async {
            let listed = self.store.list_with_delimiter(Some(&self.prefix)).await;
            let folders = listed.map_err(named)?.common_prefixes;
            let folders = folders.iter().filter_map(|folder| folder.filename());
            let folders: Vec<&str> = folders.filter(|name| is_batch(name)).collect();
            let mut whole = Vec::new();
            for folders in folders.chunks(MAX_CONCURRENT_REQUESTS) {
                let mut asked = JoinSet::new();
                for &name in folders {
                    let (store, name) = (Arc::clone(&self.store), name.to_string());
                    let path = self.path(&name, last_table());
                    asked.spawn(async move { (name, store.head(&path).await) });
                }
                while let Some(answer) = asked.join_next().await {
                    match answer? {
                        (name, Ok(_)) => whole.push(name),
                        (_, Err(object_store::Error::NotFound { .. })) => {}
                        (_, Err(error)) => return Err(named(error)),
                    }
                }
            }
            Ok(whole)
        })
    }

    pub(super) fn table(&self, batch: &str, form: &TableForm) -> Result<Vec<ColumnValues>> {
        let path = self.path(batch, form);
        let bytes = self.runtime.block_on(async {
            let found = self.store.get(&path).await.map_err(to_store_error)?;
            if found.meta.size > MAX_OBJECT_BYTES {
                bail!(
                    "has {} bytes, which is more than heapprof reads",
                    found.meta.size
                );
            }
            found.bytes().await.map_err(to_store_error)
        })?;
        Ok(read_parquet(form, bytes)?)
    }

    pub(super) fn write(&self, name: &str, batch: &PortableBatch) -> Result<()> {
        let named = |error| {
            anyhow!(
                "{}: cannot be written: {}",
                self.address,
                to_store_error(error)
            )
        };
        let mark = self.path(name, last_table());
        match self.runtime.block_on(self.store.head(&mark)) {
            Ok(_) => return Ok(()),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(named(error)),
        }
        for (form, columns) in batch.sorted_tables() {
            let mut bytes = Vec::new();
            write_parquet(form, &columns, &mut bytes)?;
            let path = self.path(name, form);
            let put = self.store.put(&path, PutPayload::from(bytes));
            self.runtime.block_on(put).map_err(named)?;
        }
        Ok(())
    }

    /// Returns the root of the objects' addresses and a new client, for an engine that reads the
    /// objects itself. An engine needs its own client, because the connections of a client belong
    /// to one runtime.
    #[cfg(feature = "datafusion")]
    pub(crate) fn for_engine(&self) -> Result<(String, Arc<dyn ObjectStore>)> {
        let (scheme, rest) = self.address.split_once("://").unwrap_or_default();
        let (host, _) = rest.split_once('/').unwrap_or((rest, ""));
        Ok((format!("{scheme}://{host}"), client(scheme, host)?))
    }
}

/// Makes a client of an object store. AWS's usual environment variables configure a client of S3.
fn client(scheme: &str, host: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig {
        max_retries: 3,
        retry_timeout: Duration::from_secs(60),
        ..RetryConfig::default()
    };
    if scheme == "s3" {
        let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
        let store = AmazonS3Builder::from_env()
            .with_config(timeout, format!("{} seconds", REQUEST_TIMEOUT.as_secs()))
            .with_bucket_name(host)
            .with_retry(retry)
            .build()?;
        return Ok(Arc::new(store));
    }
    let mut options = ClientOptions::new()
        .with_timeout(REQUEST_TIMEOUT)
        .with_allow_http(true);
    let (user, password) = store_user::from_environment();
    if !password.is_empty() {
        let both = STANDARD.encode(format!("{user}:{password}"));
        if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {both}")) {
            value.set_sensitive(true);
            let mut headers = HeaderMap::new();
            headers.insert("authorization", value);
            options = options.with_default_headers(headers);
        }
    }
    let store = HttpBuilder::new()
        .with_url(format!("{scheme}://{host}"))
        .with_client_options(options)
        .with_retry(retry)
        .build()?;
    Ok(Arc::new(store))
}
