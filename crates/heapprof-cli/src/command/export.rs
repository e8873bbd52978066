//! `heapprof export --parquet DIR`: stored profiles as files that other engines read.

use anyhow::Result;

use super::Shared;
use crate::args::ExportArgs;

#[cfg(not(feature = "parquet"))]
pub(super) fn run(_: &Shared, _: &ExportArgs) -> Result<()> {
    anyhow::bail!("{}", crate::stores::WITHOUT_PARQUET)
}

#[cfg(feature = "parquet")]
pub(super) fn run(shared: &Shared, args: &ExportArgs) -> Result<()> {
    parquet::run(shared, args)
}

#[cfg(feature = "parquet")]
mod parquet {
    use std::collections::HashSet;
    use std::path::Path;
    use std::sync::Arc;

    use anyhow::{Context, Result};
    use heapprof_analysis::{Batch, SqliteTables, Store, TABLES, write_parquet};
    use rustix::fs::{AtFlags, Mode, RenameFlags, mkdirat, renameat_with, unlinkat};
    use rustix::io::Errno;

    use super::super::Shared;
    use crate::args::{ExportArgs, FileMode};
    use crate::backend::Backend;
    use crate::place::{Access, Place, Trust, make_folder, open_folder};
    use crate::stores::{self, batches, read_batch};
    use crate::{messages, output, selection};

    pub(super) fn run(shared: &Shared, args: &ExportArgs) -> Result<()> {
        let mode = args.file_mode.mode()?;
        let db = shared.sources.db();
        let named = || db.display().to_string();
        let (_, moments) = stores::open(&Backend::Database(db.to_path_buf()))?;
        let moments = selection::choose(args.selector.as_deref().unwrap_or_default(), &moments)?;
        let folder = &args.parquet;
        make_folder(folder, Trust::Any)
            .with_context(|| format!("{}: cannot be made", folder.display()))?;
        let known = names_in(folder)?;
        let store = Store::open(db).with_context(named)?;
        let (mut batch, mut done, mut there) = (Batch::default(), [0, 0], 0);
        for moment in &moments.moments {
            if known.contains(&(moment.name.clone(), moment.time_nanos)) {
                there += 1;
                continue;
            }
            let source = store.restore(&moment.name).with_context(named)?;
            let profile = Arc::clone(&source.profile);
            batch.add(&moment.name, &profile, &moment.labels)?;
            if batch.samples() >= args.batch {
                done[0] += batch.profiles().len();
                done[1] += 1;
                write(folder, mode, &batch)?;
                batch = Batch::default();
            }
        }
        if !batch.profiles().is_empty() {
            done[0] += batch.profiles().len();
            done[1] += 1;
            write(folder, mode, &batch)?;
        }
        let there = match there {
            0 => String::new(),
            n => format!("; {n} were there already"),
        };
        messages::note(&format!(
            "exported {} profiles in {} batches into {}{there}",
            done[0],
            done[1],
            folder.display()
        ));
        Ok(())
    }

    /// The names and times of the profiles that the folder has.
    fn names_in(folder: &Path) -> Result<HashSet<(String, i64)>> {
        let mut known = HashSet::new();
        let form = &TABLES[TABLES.len() - 1];
        for batch in batches(folder)? {
            let path = batch.join(format!("{}.parquet", form.name));
            let named = || path.display().to_string();
            let file = std::fs::File::open(&path).with_context(named)?;
            let columns = heapprof_analysis::read_parquet(form, file).with_context(named)?;
            if let [
                _,
                heapprof_analysis::Cells::Text(names),
                heapprof_analysis::Cells::Int(times),
                ..,
            ] = &columns[..]
            {
                known.extend(names.iter().cloned().zip(times.iter().copied()));
            }
        }
        Ok(known)
    }

    /// Writes a batch. Its folder gets its name when all files are there: that is the mark of what
    /// is whole.
    fn write(folder: &Path, mode: FileMode, batch: &Batch) -> Result<()> {
        let name = format!("batch-{}", batch.name());
        if folder.join(&name).exists() {
            return Ok(());
        }
        let named = || format!("{}: cannot be written", folder.display());
        let at = open_folder(folder, Trust::Any).with_context(named)?;
        let draft = format!(".new-{}-{}", batch.name(), std::process::id());
        let rights = Mode::from_raw_mode(0o700 | (mode.0 & 0o044) | ((mode.0 & 0o044) >> 2));
        mkdirat(&at, &draft, rights).with_context(named)?;
        let inside = open_folder(&folder.join(&draft), Trust::Any).with_context(named)?;
        let written = batch.sorted().try_for_each(|(form, columns)| {
            let file = format!("{}.parquet", form.name);
            let mut bytes = Vec::new();
            write_parquet(form, &columns, &mut bytes)?;
            let place = Place::in_folder(inside.try_clone()?, &file);
            let shown = folder.join(&draft).join(&file).display().to_string();
            output::replace(&place, &shown, Access::Exactly(mode.0), |out| {
                Ok(std::io::Write::write_all(out, &bytes)?)
            })
        });
        let named_now =
            written.map(|()| renameat_with(&at, &draft, &at, &name, RenameFlags::NOREPLACE));
        if !matches!(named_now, Ok(Ok(()))) {
            for form in &TABLES {
                let _ = unlinkat(&inside, format!("{}.parquet", form.name), AtFlags::empty());
            }
            let _ = unlinkat(&at, &draft, AtFlags::REMOVEDIR);
        }
        match named_now? {
            // Another export wrote the same batch in the meantime.
            Err(Errno::EXIST) => Ok(()),
            named_now => named_now.with_context(named),
        }
    }

    /// Reads the folder's batches back into the database.
    pub(in crate::command) fn import(
        shared: &Shared,
        args: &crate::args::ImportArgs,
    ) -> Result<()> {
        use heapprof_analysis::{SeriesStore, SqlStore, read_profile};

        let mode = args.file_mode.mode()?;
        let db = shared.sources.db();
        let named = || db.display().to_string();
        let (mut loaded, mut there) = (0, 0);
        for batch in batches(&args.folder)? {
            let tables = SqliteTables::new()?;
            read_batch(&batch, &tables)?;
            let from = SqlStore(tables);
            let of_batch = || batch.display().to_string();
            output::make_for_own(db, mode)?;
            let mut store = Store::open_or_create(db).with_context(named)?;
            for moment in from.moments().with_context(of_batch)? {
                if store.find(&moment.name).is_ok() {
                    there += 1;
                    continue;
                }
                let profile = read_profile(&from.0, moment.id, &moment.types);
                let profile = Arc::new(profile.with_context(of_batch)?);
                store
                    .load_labelled(&moment.name, &profile, &moment.labels, &mut |_, _| {})
                    .with_context(named)?;
                loaded += 1;
            }
        }
        let there = match there {
            0 => String::new(),
            n => format!("; {n} names were there already"),
        };
        messages::note(&format!(
            "imported {loaded} profiles into {}{there}",
            db.display()
        ));
        Ok(())
    }
}

#[cfg(not(feature = "parquet"))]
pub(super) fn import(_: &Shared, _: &crate::args::ImportArgs) -> Result<()> {
    anyhow::bail!("{}", crate::stores::WITHOUT_PARQUET)
}

#[cfg(feature = "parquet")]
pub(super) fn import(shared: &Shared, args: &crate::args::ImportArgs) -> Result<()> {
    parquet::import(shared, args)
}
