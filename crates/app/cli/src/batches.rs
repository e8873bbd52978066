//! Batches of Parquet files are listed, read and written: in a folder, or in an object store.
//!
//! A batch is there when its table `profile` is, which is written last.

mod folder;
#[cfg(feature = "object-store")]
mod objects;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_analysis::{ColumnValues, PORTABLE_TABLES, PortableBatch, SqliteTables, TableForm};

use crate::args::FileModeArgs;
use crate::messages;

/// Where batches are.
pub(crate) enum BatchStore {
    /// A folder, with a folder in it for each batch.
    Folder(PathBuf),
    /// An object store.
    #[cfg(feature = "object-store")]
    Objects(objects::ObjectBatchStore),
}

const PLACE_HINT: &str = "write a folder, s3://BUCKET/PREFIX, or http(s)://HOST/FOLDER";

impl BatchStore {
    /// The batches at a place: a folder, or an address. From here on a panic is an error, because
    /// the library that reads Parquet panics at some damaged files.
    pub(crate) fn at_place(place: &Path) -> Result<Self> {
        exit_on_panic(place);
        let Some((scheme, rest)) = place.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(Self::Folder(place.to_path_buf()));
        };
        match scheme {
            "file" if rest.starts_with('/') => Ok(Self::Folder(rest.into())),
            #[cfg(feature = "object-store")]
            "s3" | "http" | "https" => Ok(Self::Objects(objects::ObjectBatchStore::open(
                scheme, rest,
            )?)),
            #[cfg(not(feature = "object-store"))]
            "s3" | "http" | "https" => bail!(
                "this heapprof was built without object stores; build one by cargo install \
                 --features object-store"
            ),
            _ => bail!("{scheme}: is no place that heapprof knows; {PLACE_HINT}"),
        }
    }

    /// Its name, for errors and notes.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            #[cfg(feature = "object-store")]
            Self::Objects(objects) => objects.name().to_string(),
        }
    }

    /// The names of the batches that are whole, in order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = match self {
            Self::Folder(path) => folder::names(path)?,
            #[cfg(feature = "object-store")]
            Self::Objects(objects) => objects.names()?,
        };
        names.sort();
        Ok(names)
    }

    /// The names of the batches, of which there must be one.
    pub(crate) fn some_names(&self) -> Result<Vec<String>> {
        let names = self.names()?;
        if names.is_empty() {
            bail!(
                "{}: has no profiles; heapprof export --parquet writes them there",
                self.name()
            );
        }
        Ok(names)
    }

    /// The place of a table of a batch.
    pub(crate) fn place(&self, batch: &str, form: &TableForm) -> String {
        format!(
            "{}/{batch}/{}",
            self.name().trim_end_matches('/'),
            file_of(form)
        )
    }

    /// A table of a batch.
    pub(crate) fn table(&self, batch: &str, form: &TableForm) -> Result<Vec<ColumnValues>> {
        let columns = match self {
            Self::Folder(path) => folder::table(&path.join(batch).join(file_of(form)), form),
            #[cfg(feature = "object-store")]
            Self::Objects(objects) => objects.table(batch, form),
        };
        columns.with_context(|| self.place(batch, form))
    }

    /// Adds a batch to tables in SQLite.
    pub(crate) fn read(&self, batch: &str, tables: &SqliteTables) -> Result<()> {
        for form in &PORTABLE_TABLES {
            let columns = self.table(batch, form)?;
            tables
                .add(form, &columns)
                .with_context(|| self.place(batch, form))?;
        }
        Ok(())
    }

    /// Gets ready for writing: makes a folder that is missing. A mode of files means something in
    /// folders only.
    pub(crate) fn writer(self, mode: &FileModeArgs) -> Result<BatchWriter> {
        let mode = match &self {
            Self::Folder(_) => mode.mode()?,
            #[cfg(feature = "object-store")]
            Self::Objects(objects) if mode.is_typed() => {
                bail!("{}: --file-mode has no effect there", objects.name())
            }
            #[cfg(feature = "object-store")]
            Self::Objects(_) => mode.mode()?,
        };
        if let Self::Folder(path) = &self {
            folder::make(path)?;
        }
        Ok(BatchWriter { to: self, mode })
    }

    /// The address of a table of a batch, for an engine that asks the files itself. The path of a
    /// folder would be taken for a pattern.
    #[cfg(feature = "datafusion")]
    pub(crate) fn address(&self, batch: &str, form: &TableForm) -> String {
        let place = self.place(batch, form);
        match self {
            Self::Folder(_) => folder::address(Path::new(&place)),
            #[cfg(feature = "object-store")]
            Self::Objects(_) => place,
        }
    }

    /// The object store, if it is one.
    #[cfg(all(feature = "datafusion", feature = "object-store"))]
    pub(crate) fn objects(&self) -> Option<&objects::ObjectBatchStore> {
        match self {
            Self::Folder(_) => None,
            Self::Objects(objects) => Some(objects),
        }
    }
}

/// Batches that may be added to.
pub(crate) struct BatchWriter {
    pub(crate) to: BatchStore,
    mode: crate::args::FileMode,
}

impl BatchWriter {
    /// Writes a batch, unless it is there.
    pub(crate) fn write(&self, batch: &PortableBatch) -> Result<()> {
        let name = format!("batch-{}", batch.name());
        match &self.to {
            BatchStore::Folder(path) => folder::write(path, self.mode, &name, batch),
            #[cfg(feature = "object-store")]
            BatchStore::Objects(objects) => objects.write(&name, batch),
        }
    }
}

/// Makes an error of each panic from here on.
#[allow(
    clippy::disallowed_methods,
    reason = "a panic never gets back to main, which decides exit codes otherwise"
)]
fn exit_on_panic(place: &Path) {
    let shown = place.display().to_string();
    std::panic::set_hook(Box::new(move |panic| {
        let why = panic.payload_as_str().unwrap_or("it panics");
        messages::error(&anyhow::anyhow!(
            "{shown}: a file is damaged: Parquet's library says: {why}"
        ));
        std::process::exit(2);
    }));
}

/// Whether a folder is a batch, by its name.
fn is_batch(name: &str) -> bool {
    name.starts_with("batch-")
}

fn file_of(form: &TableForm) -> String {
    format!("{}.parquet", form.name)
}

/// The table that is written last.
pub(crate) fn last_table() -> &'static TableForm {
    &PORTABLE_TABLES[PORTABLE_TABLES.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_table_says_what_is_whole() {
        assert_eq!(last_table().name, "profile");
    }

    #[test]
    fn places_are_told_apart() {
        let name =
            |place: &str| BatchStore::at_place(Path::new(place)).map(|batches| batches.name());
        assert_eq!(name("fleet").unwrap(), "fleet");
        assert_eq!(name("file:///srv/fleet").unwrap(), "/srv/fleet");
        for place in ["file://fleet", "gs://bucket/fleet", "ftp://host/x"] {
            let error = name(place).unwrap_err().to_string();
            assert!(error.contains("is no place"), "{error}");
        }
    }
}
