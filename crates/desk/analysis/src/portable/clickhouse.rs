//! Stored profiles in a cluster of ClickHouse, over HTTP.
//!
//! Each server has all small tables. The rows of samples are divided between the servers by
//! profile. Each server has its share of the rows in tables `…_shard`. `heap_sample` and the other
//! tables of samples are `Distributed` tables over the shards. Without a cluster there is only one
//! server, and it has plain tables.
//!
//! A profile is written in this order: samples and all that they refer to, then the row of
//! `profile`, on each server. So a reader that sees that row sees all of the profile. A writer that
//! writes again, because a server did not answer, writes the same rows. ClickHouse removes
//! duplicate rows when it merges, and until then the statements count them once.
//!
//! Format: rows are sent as JSONEachRow. In this format, even a server of 2018 refuses a row that
//! was cut off. Answers come as JSONCompact.

use serde_json::{Map, Value as Json, json};

use super::engine::{SqlAnswer, SqlEngine};
use super::{ColumnKind, ColumnValues, PORTABLE_TABLES, PortableBatch, TableForm};
use crate::error::AnalysisError;
use crate::statement::SqlValue;

/// Maximum number of rows in one request.
const MAX_INSERT_ROWS: usize = 100_000;

/// The name and the value of a URL parameter, not yet encoded.
pub type UrlParameter<'a> = (&'a str, &'a str);

/// A transport that sends statements to servers.
pub trait ClickHouseTransport {
    /// Sends a body to a server, with parameters in its address, and returns the answer.
    ///
    /// # Errors
    /// The error says in one line why there is no answer, or what the server refused.
    fn post(
        &self,
        server: &str,
        parameters: &[UrlParameter<'_>],
        body: &str,
    ) -> Result<String, String>;
}

/// The servers, the database and the cluster that hold the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClickHouseAddress {
    /// The servers, such as `http://127.0.0.1:8123`.
    pub servers: Vec<String>,
    /// The name of the database.
    pub database: String,
    /// The cluster's name in the servers' configuration. It is needed if there are several servers.
    pub cluster: Option<String>,
}

/// Stored profiles on ClickHouse servers.
pub struct ClickHouse<T> {
    transport: T,
    address: ClickHouseAddress,
}

fn server_error(server: &str, error: impl std::fmt::Display) -> AnalysisError {
    AnalysisError::Sql(format!("{server}: {error}"))
}

impl<T: ClickHouseTransport> ClickHouse<T> {
    /// Makes a store on the servers of this address. No request is sent yet.
    #[must_use]
    pub fn new(address: ClickHouseAddress, transport: T) -> Self {
        Self { transport, address }
    }

    /// Sends a statement to a server. For an INSERT, the rows follow it.
    fn ask(&self, server: &str, sql: &str, rows: Option<&str>) -> Result<String, AnalysisError> {
        self.request(server, sql, rows, &[])
    }

    /// Sends a statement to a server, with additional settings.
    fn request(
        &self,
        server: &str,
        sql: &str,
        rows: Option<&str>,
        settings: &[UrlParameter<'_>],
    ) -> Result<String, AnalysisError> {
        let longest = (sql.len().max(262_144) + 1024).to_string();
        let mut parameters = vec![("max_query_size", &*longest)];
        parameters.extend(settings);
        if rows.is_some() {
            parameters.push(("query", sql));
        }
        let body = rows.unwrap_or(sql);
        let answer = self.transport.post(server, &parameters, body);
        answer.map_err(|error| server_error(server, error))
    }

    /// Returns a table's name with its database.
    fn name(&self, table: &str) -> String {
        format!("{}.\"{table}\"", self.address.database)
    }

    /// Returns the table that rows are inserted into: the table of the server itself, not the
    /// distributed one.
    fn own(&self, form: &TableForm) -> String {
        match form.is_large && self.address.cluster.is_some() {
            true => self.name(&format!("{}_shard", form.name)),
            false => self.name(form.name),
        }
    }

    /// Creates the tables that are missing, on all servers.
    ///
    /// # Errors
    /// A server does not answer, or refuses a statement.
    pub fn make_tables(&self) -> Result<(), AnalysisError> {
        let database = &self.address.database;
        for server in &self.address.servers {
            self.ask(
                server,
                &format!("CREATE DATABASE IF NOT EXISTS {database}"),
                None,
            )?;
            for form in &PORTABLE_TABLES {
                let columns = form.columns.iter().map(|(name, kind)| {
                    let kind = match kind {
                        ColumnKind::Int => "Int64",
                        ColumnKind::MaybeInt => "Nullable(Int64)",
                        ColumnKind::MaybeReal => "Nullable(Float64)",
                        ColumnKind::Text => "String",
                    };
                    format!("\"{name}\" {kind}")
                });
                let columns = columns.collect::<Vec<String>>().join(", ");
                let key = form.key.iter().map(|key| format!("\"{key}\""));
                let key = key.collect::<Vec<String>>().join(", ");
                let own = self.own(form);
                self.ask(
                    server,
                    &format!(
                        "CREATE TABLE IF NOT EXISTS {own} ({columns}) ENGINE = \
                         ReplacingMergeTree() ORDER BY ({key})"
                    ),
                    None,
                )?;
                if let Some(cluster) = self.address.cluster.as_ref().filter(|_| form.is_large) {
                    self.ask(
                        server,
                        &format!(
                            "CREATE TABLE IF NOT EXISTS {} ({columns}) ENGINE = \
                             Distributed({cluster}, {database}, {}_shard)",
                            self.name(form.name),
                            form.name
                        ),
                        None,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Writes a batch. When the function returns without an error, all rows are on all servers that
    /// they belong to.
    ///
    /// # Errors
    /// A server does not answer, or refuses rows. The batch can be written again then.
    pub fn write(&self, batch: &PortableBatch) -> Result<(), AnalysisError> {
        let servers = &self.address.servers;
        for (form, columns) in batch.sorted_tables() {
            let count = super::batch::length(&columns);
            // Questions go to the first server, so rows are written to that server last.
            for (at, server) in servers.iter().enumerate().rev() {
                let is_here = |row: usize| match (form.is_large, &columns[0]) {
                    (true, ColumnValues::Int(profiles)) => {
                        profiles[row].rem_euclid(servers.len() as i64) as usize == at
                    }
                    _ => true,
                };
                let rows: Vec<usize> = (0..count).filter(|&row| is_here(row)).collect();
                let insert = format!("INSERT INTO {} FORMAT JSONEachRow", self.own(form));
                for rows in rows.chunks(MAX_INSERT_ROWS) {
                    let mut body = String::new();
                    for &row in rows {
                        body.push_str(&line(form, &columns, row));
                        body.push('\n');
                    }
                    self.ask(server, &insert, Some(&body))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns a row as JSON.
fn line(form: &TableForm, columns: &[ColumnValues], row: usize) -> String {
    let mut object = Map::new();
    for ((name, _), cells) in form.columns.iter().zip(columns) {
        let value = match cells {
            ColumnValues::Int(cells) => json!(cells[row]),
            ColumnValues::MaybeInt(cells) => json!(cells[row]),
            ColumnValues::MaybeReal(cells) => json!(cells[row]),
            ColumnValues::Text(cells) => json!(cells[row]),
        };
        object.insert((*name).to_string(), value);
    }
    Json::Object(object).to_string()
}

impl<T: ClickHouseTransport> SqlEngine for ClickHouse<T> {
    /// Runs a statement on the first server.
    fn table(&self, sql: &str) -> Result<SqlAnswer, AnalysisError> {
        let server = self.address.servers.first().map_or("", String::as_str);
        // The setting `readonly` keeps a question from writing, whatever its text is.
        let settings = [
            ("database", &*self.address.database),
            ("output_format_json_quote_64bit_integers", "1"),
            ("readonly", "2"),
        ];
        let sql = format!("{sql}\nFORMAT JSONCompact");
        let text = self.request(server, &sql, None, &settings)?;
        let document: Json =
            serde_json::from_str(&text).map_err(|error| server_error(server, error))?;
        let wrong = || server_error(server, "the answer does not come from ClickHouse");
        let meta = document["meta"].as_array().ok_or_else(wrong)?;
        let names = meta
            .iter()
            .map(|column| column["name"].as_str().unwrap_or_default());
        let types: Vec<&str> = meta
            .iter()
            .map(|column| column["type"].as_str().unwrap_or_default())
            .collect();
        let rows = document["data"].as_array().ok_or_else(wrong)?;
        let rows = rows.iter().map(|row| {
            let cells = row.as_array().ok_or_else(wrong)?;
            let values = cells.iter().zip(&types);
            values
                .map(|(cell, of)| value(cell, of).ok_or_else(wrong))
                .collect()
        });
        Ok((
            names.map(str::to_string).collect(),
            rows.collect::<Result<Vec<Vec<SqlValue>>, AnalysisError>>()?,
        ))
    }
}

/// Returns the value of a cell of an answer; `None` if it does not have the type that `of` names.
/// 64-bit whole numbers come as texts.
fn value(cell: &Json, of: &str) -> Option<SqlValue> {
    let of = of
        .strip_prefix("Nullable(")
        .and_then(|of| of.strip_suffix(')'))
        .unwrap_or(of);
    Some(match (cell, of) {
        (Json::Null, _) => SqlValue::Null,
        (Json::String(text), "Int64" | "UInt64") => SqlValue::Int(text.parse().ok()?),
        (Json::Number(number), _) if of.contains("Int") => SqlValue::Int(number.as_i64()?),
        (Json::Number(number), _) => SqlValue::Real(number.as_f64()?),
        (Json::String(text), _) => SqlValue::Text(text.clone()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use heapprof_tests::harness::sample_profiles;

    use super::*;

    /// Two servers that keep the rows of each INSERT, and that answer only a limited number of
    /// requests.
    #[derive(Default)]
    struct FakeServers {
        /// The rows: server, table, row.
        rows: RefCell<Vec<(String, String, String)>>,
        /// The number of requests that will still be answered.
        answered: RefCell<usize>,
    }

    impl ClickHouseTransport for &FakeServers {
        fn post(
            &self,
            server: &str,
            parameters: &[UrlParameter<'_>],
            body: &str,
        ) -> Result<String, String> {
            let mut answered = self.answered.borrow_mut();
            *answered = answered.checked_sub(1).ok_or("it is gone")?;
            let insert = parameters.iter().find(|(name, _)| *name == "query");
            if let Some((_, insert)) = insert {
                let table = insert.split('"').nth(1).unwrap();
                for row in body.lines() {
                    let row = (server.to_string(), table.to_string(), row.to_string());
                    self.rows.borrow_mut().push(row);
                }
            }
            Ok(String::new())
        }
    }

    /// Checks that the first server has a profile only if all rows of the profile are stored,
    /// wherever a load is cut off.
    #[test]
    fn whoever_sees_a_profile_sees_all_of_it() {
        let bytes = std::fs::read(sample_profiles().join("fleet/web1-00.pb.gz")).unwrap();
        let profile = Arc::new(heapprof_profile::decode(&bytes[..]).unwrap());
        let mut batch = PortableBatch::default();
        batch.add("p", &profile, &BTreeMap::new()).unwrap();
        let address = ClickHouseAddress {
            servers: vec!["a".to_string(), "b".to_string()],
            database: "heap".to_string(),
            cluster: Some("all".to_string()),
        };
        let write = |answered: usize| {
            let servers = FakeServers::default();
            *servers.answered.borrow_mut() = answered;
            let done = ClickHouse::new(address.clone(), &servers).write(&batch);
            (done.is_ok(), servers.rows.into_inner())
        };
        let (is_whole, all) = write(usize::MAX);
        assert!(is_whole);
        let rows_of = |rows: &[(String, String, String)], server: &str, table: &str| {
            let here = rows.iter().filter(|row| row.0 == server && row.1 == table);
            here.count()
        };
        let samples = |server| rows_of(&all, server, "heap_sample_shard");
        assert!(samples("a") + samples("b") > 0 && samples("a") * samples("b") == 0);
        let mut cut_off = 0;
        for answered in 0.. {
            let (is_whole, rows) = write(answered);
            if is_whole {
                break;
            }
            cut_off += 1;
            if rows_of(&rows, "a", "profile") > 0 {
                assert_eq!(rows, all, "after {answered} requests");
            }
        }
        assert!(cut_off > 10, "{cut_off}");
    }
}
