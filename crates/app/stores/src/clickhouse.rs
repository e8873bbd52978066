//! A ClickHouse cluster as a store: parses its address, loads profiles into it, and queries it.

use anyhow::Result;
use heapprof_analysis::stored_moment::SeriesStore;

#[cfg(feature = "clickhouse")]
pub use with::load_into_clickhouse;
#[cfg(feature = "clickhouse")]
pub(crate) use with::query;

/// Opens the store at an address.
#[cfg(feature = "clickhouse")]
pub(crate) fn open(address: &str) -> Result<Box<dyn SeriesStore>> {
    let servers = with::servers(address)?;
    Ok(Box::new(heapprof_analysis::portable::SqlStore(servers)))
}

#[cfg(not(feature = "clickhouse"))]
const WITHOUT_CLICKHOUSE: &str = "this heapprof was built without ClickHouse; build one with cargo \
                       install heapprof-cli --features clickhouse";

/// Fails, because this heapprof was built without ClickHouse.
#[cfg(not(feature = "clickhouse"))]
pub(crate) fn open(_: &str) -> Result<Box<dyn SeriesStore>> {
    anyhow::bail!(WITHOUT_CLICKHOUSE)
}

/// Fails, because this heapprof was built without ClickHouse.
#[cfg(not(feature = "clickhouse"))]
pub fn load_into_clickhouse(
    _: &str,
    _: impl Iterator<Item = Result<crate::load::LabelledProfile>>,
) -> Result<crate::load::LoadCount> {
    anyhow::bail!(WITHOUT_CLICKHOUSE)
}

/// Fails, because this heapprof was built without ClickHouse.
#[cfg(not(feature = "clickhouse"))]
pub(crate) fn query(_: &str, _: &str) -> Result<heapprof_analysis::statement::ResultTable> {
    anyhow::bail!(WITHOUT_CLICKHOUSE)
}

#[cfg(feature = "clickhouse")]
mod with {
    use std::collections::{HashMap, HashSet};
    use std::time::Duration;

    use anyhow::{Context, Result, bail};
    use heapprof_analysis::{
        portable::clickhouse::{ClickHouse, ClickHouseAddress, ClickHouseTransport, UrlParameter},
        portable::{PortableBatch, SqlEngine, SqlStore},
        statement::ResultTable,
        stored_moment::SeriesStore,
    };

    use crate::load::{LabelledProfile, LoadCount};
    use crate::{StoreError, store_user};

    /// Number of samples at which a batch is written.
    const MAX_BATCH_SAMPLES: usize = 200_000;
    const ADDRESS_HINT: &str = "write it as clickhouse://HOST:PORT/DB, or for a cluster \
                        clickhouse://HOST:PORT,HOST:PORT/DB?cluster=NAME";

    /// Longest time that a server may take for an answer.
    const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
    /// Largest answer that is read, in bytes.
    const MAX_ANSWER_BYTES: u64 = 4 << 30;

    /// The HTTP client of a cluster, with the user and the password that it sends.
    pub(super) struct HttpTransport {
        agent: ureq::Agent,
        user: String,
        password: String,
    }

    impl HttpTransport {
        /// Makes a client that sends the user and the password from the environment.
        fn new() -> Self {
            let (user, password) = store_user::from_environment();
            let agent = ureq::Agent::config_builder()
                .timeout_connect(Some(Duration::from_secs(10)))
                .timeout_recv_response(Some(REQUEST_TIMEOUT))
                .timeout_recv_body(Some(REQUEST_TIMEOUT))
                .http_status_as_error(false)
                // The password goes to this server alone.
                .max_redirects(0)
                .build()
                .into();
            Self {
                agent,
                user,
                password,
            }
        }
    }

    impl ClickHouseTransport for HttpTransport {
        fn post(
            &self,
            server: &str,
            parameters: &[UrlParameter<'_>],
            body: &str,
        ) -> Result<String, String> {
            let request = self.agent.post(format!("{server}/"));
            let request = request.query_pairs(parameters.iter().copied());
            let mut request = request.header("X-ClickHouse-User", &self.user);
            if !self.password.is_empty() {
                request = request.header("X-ClickHouse-Key", &self.password);
            }
            let answer = request.send(body).map_err(|error| error.to_string())?;
            let status = answer.status();
            let text = answer
                .into_body()
                .into_with_config()
                .limit(MAX_ANSWER_BYTES)
                .read_to_string();
            let text = text.map_err(|error| error.to_string())?;
            match status.is_success() {
                true => Ok(text),
                false => Err(format!(
                    "{status}: {}",
                    text.lines().next().unwrap_or_default()
                )),
            }
        }
    }

    /// Returns a client for the servers in an address.
    pub(super) fn servers(text: &str) -> Result<ClickHouse<HttpTransport>> {
        Ok(ClickHouse::new(parse_address(text)?, HttpTransport::new()))
    }

    fn parse_address(text: &str) -> Result<ClickHouseAddress> {
        // The text may contain a password, so it is not shown.
        if text.contains('@') {
            return Err(StoreError::UserInAddress.into());
        }
        let split = text.split_once("://");
        let (scheme, rest) = match split {
            Some(("clickhouse", rest)) => ("http", rest),
            Some(("clickhouses", rest)) => ("https", rest),
            _ => bail!("{text}: is not the address of a store; {ADDRESS_HINT}"),
        };
        let (place, query) = match rest.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (rest, None),
        };
        let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
        let is_word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        if hosts.is_empty() || !is_word(database) {
            bail!("{text}: does not name a database; {ADDRESS_HINT}");
        }
        let cluster = match query.map(|query| query.strip_prefix("cluster=")) {
            None => None,
            Some(Some(cluster)) if is_word(cluster) => Some(cluster.to_string()),
            // The rest may be a password, so it is not shown.
            Some(_) => {
                bail!("{place}: only ?cluster=NAME may follow the database; {ADDRESS_HINT}")
            }
        };
        let servers: Vec<String> = hosts
            .split(',')
            .map(|host| match host.rsplit_once(':') {
                Some((_, port)) if port.parse::<u16>().is_ok() => format!("{scheme}://{host}"),
                _ => format!(
                    "{scheme}://{host}:{}",
                    if scheme == "https" { 8443 } else { 8123 }
                ),
            })
            .collect();
        if servers.len() > 1 && cluster.is_none() {
            bail!("{text}: several servers need the name of their cluster; {ADDRESS_HINT}");
        }
        Ok(ClickHouseAddress {
            servers,
            database: database.to_string(),
            cluster,
        })
    }

    /// Stores profiles with their names and labels in the ClickHouse store at an address. Skips
    /// profiles that are stored already.
    pub fn load_into_clickhouse(
        address: &str,
        profiles: impl Iterator<Item = Result<LabelledProfile>>,
    ) -> Result<LoadCount> {
        let named = || address.to_string();
        let store = servers(address)?;
        store.make_tables().with_context(named)?;
        let store = SqlStore(store);
        let moments = store.moments().with_context(named)?;
        let mut names: HashMap<String, HashSet<i64>> = HashMap::new();
        for moment in moments {
            names.entry(moment.name).or_default().insert(moment.id);
        }
        let (mut batch, mut count) = (PortableBatch::default(), LoadCount::default());
        let write = |batch: &mut PortableBatch| {
            store.0.write(batch).with_context(named)?;
            *batch = PortableBatch::default();
            Ok::<_, anyhow::Error>(())
        };
        for profile in profiles {
            let (name, profile, labels) = profile?;
            if let Some(known) = names.get(&name) {
                let mut same = PortableBatch::default();
                same.add(&name, &profile, &labels)
                    .with_context(|| name.clone())?;
                if !same.profiles().iter().any(|id| known.contains(id)) {
                    write(&mut batch)?;
                    bail!("{address}: already has another profile named {name:?}");
                }
                count.skipped += 1;
                continue;
            }
            batch
                .add(&name, &profile, &labels)
                .with_context(|| name.clone())?;
            names
                .entry(name)
                .or_default()
                .extend(batch.profiles().last());
            count.loaded += 1;
            if batch.samples() >= MAX_BATCH_SAMPLES {
                write(&mut batch)?;
            }
        }
        write(&mut batch)?;
        Ok(count)
    }

    /// Runs a statement that the user wrote.
    pub(crate) fn query(address: &str, statement: &str) -> Result<ResultTable> {
        let answer = servers(address)?.table(statement.trim_end().trim_end_matches(';'));
        let (columns, rows) = answer.context("the statement")?;
        Ok(ResultTable { columns, rows })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn addresses_are_read() {
            let one = parse_address("clickhouse://db1/heap").unwrap();
            assert_eq!(
                (&one.servers[..], &*one.database),
                (&["http://db1:8123".to_string()][..], "heap")
            );
            let two = parse_address("clickhouses://a:1,b/heap?cluster=all").unwrap();
            assert_eq!(two.servers, ["https://a:1", "https://b:8443"]);
            assert_eq!(two.cluster.as_deref(), Some("all"));
            for (text, expected) in [
                ("http://a/heap", "is not the address"),
                ("clickhouse://a", "does not name a database"),
                ("clickhouse://a/he-ap", "does not name a database"),
                ("clickhouse://a,b/heap", "need the name"),
                ("clickhouse://a/heap?x=1", "only ?cluster"),
            ] {
                let error = parse_address(text).unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
            }
            let secret = parse_address("clickhouse://me:geheim@a/heap")
                .unwrap_err()
                .to_string();
            assert!(
                !secret.contains("geheim") && secret.contains("PASSWORD"),
                "{secret}"
            );
        }
    }
}
