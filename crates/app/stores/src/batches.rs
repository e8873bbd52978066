//! Lists, reads and writes batches of Parquet files, in a folder or in an object store.
//!
//! A batch is complete when its table `profile` exists, because this table is written last.

mod folder;
#[cfg(feature = "object-store")]
mod objects;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_analysis::portable::{
    ColumnValues, PORTABLE_TABLES, PortableBatch, SqliteTables, TableForm,
};

use crate::StoreError;

/// A store of batches: a folder or an object store.
pub enum BatchStore {
    /// A folder that has one subfolder for each batch.
    Folder(PathBuf),
    /// An object store.
    #[cfg(feature = "object-store")]
    Objects(objects::ObjectBatchStore),
}

const PLACE_HINT: &str = "use a folder, s3://BUCKET/PREFIX, or http(s)://HOST/FOLDER";

impl BatchStore {
    /// Opens the batches at `place`, which is a folder or an address. The library that reads
    /// Parquet panics on some damaged files, so the program must handle panics.
    pub fn at_place(place: &Path) -> Result<Self> {
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
                "this heapprof was built without object stores; build one with cargo install \
                 heapprof-cli --features object-store"
            ),
            _ => bail!("{scheme}: is not a known place; {PLACE_HINT}"),
        }
    }

    /// Returns the folder's path or the store's address, for errors and notes.
    pub fn name(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            #[cfg(feature = "object-store")]
            Self::Objects(objects) => objects.name().to_string(),
        }
    }

    /// Returns the sorted names of the complete batches.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = match self {
            Self::Folder(path) => folder::names(path)?,
            #[cfg(feature = "object-store")]
            Self::Objects(objects) => objects.names()?,
        };
        names.sort();
        Ok(names)
    }

    /// Returns the sorted names of the complete batches. Fails if there is none.
    pub(crate) fn some_names(&self) -> Result<Vec<String>> {
        let names = self.names()?;
        if names.is_empty() {
            return Err(StoreError::NoBatches(self.name()).into());
        }
        Ok(names)
    }

    /// Returns the path or the address of one table of a batch.
    pub(crate) fn place(&self, batch: &str, form: &TableForm) -> String {
        format!(
            "{}/{batch}/{}",
            self.name().trim_end_matches('/'),
            file_of(form)
        )
    }

    /// Reads one table of a batch.
    pub(crate) fn table(&self, batch: &str, form: &TableForm) -> Result<Vec<ColumnValues>> {
        let columns = match self {
            Self::Folder(path) => folder::table(&path.join(batch).join(file_of(form)), form),
            #[cfg(feature = "object-store")]
            Self::Objects(objects) => objects.table(batch, form),
        };
        columns.with_context(|| self.place(batch, form))
    }

    /// Reads a batch into SQLite tables.
    pub(crate) fn read(&self, batch: &str, tables: &SqliteTables) -> Result<()> {
        for form in &PORTABLE_TABLES {
            let columns = self.table(batch, form)?;
            tables
                .add(form, &columns)
                .with_context(|| self.place(batch, form))?;
        }
        Ok(())
    }

    /// Whether files of batches have a mode, as in a folder. Objects of a store have none.
    pub fn has_file_modes(&self) -> bool {
        matches!(self, Self::Folder(_))
    }

    /// Makes a writer that adds batches to this store. Makes the folder if it is missing. New files
    /// get the mode `mode`.
    pub(crate) fn writer(self, mode: u32) -> Result<BatchWriter> {
        match &self {
            Self::Folder(path) => folder::make(path)?,
            #[cfg(feature = "object-store")]
            Self::Objects(_) => {}
        }
        Ok(BatchWriter { to: self, mode })
    }

    /// Returns the URL of one table of a batch, for an engine that reads the files itself. An
    /// engine would interpret a plain path as a pattern.
    #[cfg(feature = "datafusion")]
    pub(crate) fn address(&self, batch: &str, form: &TableForm) -> String {
        let place = self.place(batch, form);
        match self {
            Self::Folder(_) => folder::address(Path::new(&place)),
            #[cfg(feature = "object-store")]
            Self::Objects(_) => place,
        }
    }

    /// Returns the object store, or `None` for a folder.
    #[cfg(all(feature = "datafusion", feature = "object-store"))]
    pub(crate) fn objects(&self) -> Option<&objects::ObjectBatchStore> {
        match self {
            Self::Folder(_) => None,
            Self::Objects(objects) => Some(objects),
        }
    }
}

/// The writer that adds batches to a store.
pub(crate) struct BatchWriter {
    to: BatchStore,
    mode: u32,
}

impl BatchWriter {
    /// Returns the store to which batches are added.
    pub(crate) fn store(&self) -> &BatchStore {
        &self.to
    }

    /// Writes a batch, unless it exists already.
    pub(crate) fn write(&self, batch: &PortableBatch) -> Result<()> {
        let name = format!("batch-{}", batch.name());
        match &self.to {
            BatchStore::Folder(path) => folder::write(path, self.mode, &name, batch),
            #[cfg(feature = "object-store")]
            BatchStore::Objects(objects) => objects.write(&name, batch),
        }
    }
}

/// Whether `name` is the name of a batch's folder.
fn is_batch(name: &str) -> bool {
    name.starts_with("batch-")
}

fn file_of(form: &TableForm) -> String {
    format!("{}.parquet", form.name)
}

/// Returns the table that is written last in each batch.
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
            assert!(error.contains("is not a known place"), "{error}");
        }
    }
}
