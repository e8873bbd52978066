//! The bytes of a stored profile, in pprof's format. They are stored in parts, beside the rows that
//! say the same.
//!
//! A question that needs stacks reads these bytes, as it would read the file. Putting the rows
//! together again takes five times as long. The rows decide: if their totals are not those of the
//! bytes, somebody changed them, and the bytes are not used. Profiles that an older heapprof stored
//! may have no bytes.

use std::io::{self, Read, Write};

use heapprof_profile::{EncodeOptions, Gzip, Profile, decode, encode_with};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Error;
use heapprof_totals::totals::{Total, whole};

/// The size of a part. SQLite limits the size of a value, and nothing needs all bytes at once.
const PART: usize = 1 << 20;

/// Stores the bytes of a profile.
pub(super) fn write(connection: &Connection, id: i64, profile: &Profile) -> Result<(), Error> {
    // Somebody may have deleted the row of a profile by hand. Its bytes are then still here, and
    // its number is given again.
    connection.execute("DELETE FROM profile_part WHERE profile = ?1", [id])?;
    let mut parts = Parts {
        connection,
        id,
        position: 0,
        part: Vec::with_capacity(PART),
    };
    let loosely = EncodeOptions::default().gzip(Gzip::Loose);
    encode_with(profile, &mut parts, loosely)?;
    parts.flush().map_err(failed)
}

/// The profile as it was loaded, if its bytes are there and agree with its rows.
pub(super) fn read(
    connection: &Connection,
    id: i64,
    totals: &[Total],
) -> Result<Option<Profile>, Error> {
    let known = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'profile_part'";
    let is_known: i64 = connection.query_row(known, [], |row| row.get(0))?;
    if is_known == 0 {
        return Ok(None);
    }
    let mut reader = Parts {
        connection,
        id,
        position: 0,
        part: Vec::new(),
    }
    .reader();
    if reader.fill().map_err(failed)? == 0 {
        return Ok(None);
    }
    let Ok(profile) = decode(reader) else {
        return Ok(None);
    };
    let columns: Vec<usize> = (0..profile.sample_type.len()).collect();
    let header = "SELECT time_nanos, duration_nanos, period FROM profile WHERE id = ?1";
    let header: [i64; 3] = connection.query_row(header, [id], |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?])
    })?;
    let is_same = header == [profile.time_nanos, profile.duration_nanos, profile.period]
        && whole(&profile, &columns).is_ok_and(|found| found == totals);
    Ok(is_same.then_some(profile))
}

fn failed(error: io::Error) -> Error {
    Error::Sql(error.to_string())
}

/// The parts of one profile.
struct Parts<'c> {
    connection: &'c Connection,
    id: i64,
    /// The position of the next part.
    position: i64,
    /// What is not written yet, or what was read from the database.
    part: Vec<u8>,
}

impl<'c> Parts<'c> {
    fn reader(self) -> Reader<'c> {
        Reader {
            parts: self,
            read: 0,
        }
    }
}

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        if self.part.len() == PART {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO profile_part VALUES (?1, ?2, ?3)")
            .map_err(io::Error::other)?;
        insert
            .execute((self.id, self.position, &self.part))
            .map_err(io::Error::other)?;
        self.position += 1;
        self.part.clear();
        Ok(())
    }
}

struct Reader<'c> {
    parts: Parts<'c>,
    /// How much of the part has been read.
    read: usize,
}

impl Reader<'_> {
    /// Fetches the next part if the last one has been read. Returns how many bytes there are to
    /// read.
    fn fill(&mut self) -> io::Result<usize> {
        let parts = &mut self.parts;
        if self.read == parts.part.len() {
            let mut select = parts
                .connection
                .prepare_cached(
                    "SELECT bytes FROM profile_part WHERE profile = ?1 AND position = ?2",
                )
                .map_err(io::Error::other)?;
            let part = &mut parts.part;
            part.clear();
            self.read = 0;
            select
                .query_row([parts.id, parts.position], |row| {
                    part.extend_from_slice(row.get_ref(0)?.as_blob()?);
                    Ok(())
                })
                .optional()
                .map_err(io::Error::other)?;
            parts.position += 1;
        }
        Ok(parts.part.len() - self.read)
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let there = self.fill()?.min(buffer.len());
        buffer[..there].copy_from_slice(&self.parts.part[self.read..self.read + there]);
        self.read += there;
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heapprof_profile::ProfileBuilder;

    use super::super::{guard, schema};
    use super::*;
    use crate::Query;
    use crate::Question;
    use crate::Session;
    use crate::Source;
    use crate::Store;
    use crate::Types;
    use crate::traces;

    fn profile() -> Arc<Profile> {
        let mut builder = ProfileBuilder::new(&[("objects", "count"), ("space", "bytes")]);
        let mut labels = [
            builder.number_label("bytes", 16, "bytes"),
            builder.text_label("thread", "main"),
        ];
        builder.folded_with_labels("main;parse;alloc", &[3, 48], &mut labels);
        builder.folded("main;parse;alloc", &[1, 16]);
        builder.folded("main;parse;alloc", &[2, 32]);
        builder.folded("main;0x1f@/bin/app", &[1, 8]);
        builder.folded("main>>walk;main", &[-1, -8]);
        builder.folded("", &[1, 1]);
        Arc::new(builder.finish())
    }

    /// Everything that a question sees of stacks, values and labels.
    fn seen(source: Source) -> Vec<String> {
        let query = Query::default();
        let question = Question::new(vec![source], &query, Types::One).unwrap();
        let session = Session::new(question).unwrap();
        let report = traces(&session, &query).unwrap();
        let rows = report.rows.iter().map(|row| {
            let stack = row.stack.iter().map(|&p| report.places.get(p).label());
            format!(
                "{} {:?} {:?}",
                row.value,
                stack.collect::<Vec<_>>(),
                row.labels
            )
        });
        rows.collect()
    }

    fn loaded() -> Store {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .pragma_update(None, "foreign_keys", false)
            .unwrap();
        schema::migrate(&mut connection).unwrap();
        let budget = guard::set_up(&mut connection, 0).unwrap();
        let mut store = Store { connection, budget };
        store.load("p", &profile(), &mut |_, _| {}).unwrap();
        store
    }

    fn bytes_of(store: &Store) -> Option<Profile> {
        let totals = [(9, 7), (113, 97)].map(|(total, net)| Total { total, net });
        read(&store.connection, 1, &totals).unwrap()
    }

    #[test]
    fn the_bytes_are_the_profile() {
        let store = loaded();
        assert_eq!(bytes_of(&store).as_ref(), Some(&*profile()));
    }

    #[test]
    fn without_bytes_or_beside_other_rows_the_rows_count() {
        let from_bytes = seen(loaded().restore("p").unwrap());
        assert_eq!(from_bytes, seen(Source::new("p", profile())));
        for change in [
            "DELETE FROM profile_part",
            "DROP TABLE profile_part",
            "UPDATE profile_part SET bytes = x'1f8b'",
            "UPDATE profile_total SET total = total + 1",
            "UPDATE profile SET time_nanos = 7",
        ] {
            let store = loaded();
            store.connection.execute_batch(change).unwrap();
            let source = store.restore("p").unwrap();
            assert!(source.totals.is_some(), "{change}: put together from rows");
            assert_eq!(seen(source), from_bytes, "{change}");
        }
    }

    #[test]
    fn bytes_go_with_their_profile() {
        let mut store = loaded();
        store.remove(&["p".to_string()]).unwrap();
        assert_eq!(bytes_of(&store), None);
    }
}
