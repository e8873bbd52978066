//! Reads the profile that a PROFILE argument names: a file, stdin, a URL, or a name in the
//! database.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    QuestionSource,
    comment::ProfiledProcess,
    series::{MomentAggregation, is_selector},
    store::ProfileStore,
};
use heapprof_dropin::{FetchOptions, ToolReadOptions};
use heapprof_formats::{FormatReadOptions, MprofCall, PartSelector, ProfileFormat, ProfileReading};
use heapprof_profile::{Profile, merge_all};
use heapprof_stores::{StoreBackend, read_selection};
use heapprof_symbolize::demangle_names;
use heapprof_text::file_name as name;
use rustix::process::geteuid;

use crate::host::{ProgressReader, SourceError, SourceHost};
use crate::largest_process::LargestProcess;
use crate::own_recording::is_own_recording;
use crate::settings::SourceSettings;
use crate::shell_source::{ShellSource, is_database};
use crate::{default_profile, fetch, largest_process};

/// What standard input is used for.
#[derive(Clone, Copy)]
enum StdinUse {
    /// For nothing yet.
    Unread,
    /// A profile was read from it.
    ReadOnce,
    /// It has the commands of a shell.
    ShellCommands,
}

/// The sources of profiles, and how they are read.
#[derive(Clone)]
pub struct ProfileSources {
    settings: SourceSettings,
    host: Arc<dyn SourceHost>,
    /// Profiles that were read before.
    kept: Option<Arc<ShellSource>>,
    stdin: Cell<StdinUse>,
}

/// A profile that was read, and the names of the stored profiles that it adds up.
pub struct SelectedSource {
    /// The profile that was read.
    pub source: QuestionSource,
    /// The names of the stored profiles that a selector added up. `None` if no selector was used,
    /// or if a profile does not count exactly once in the sum.
    pub selected: Option<Vec<String>>,
}

impl From<QuestionSource> for SelectedSource {
    fn from(source: QuestionSource) -> Self {
        Self {
            source,
            selected: None,
        }
    }
}

/// The path that replaces the `-` of `-#12`, because an argument that begins with a dash would be
/// read as an option.
pub const STDIN_PATH: &str = "/dev/stdin";

impl ProfileSources {
    /// Makes sources with these settings, for the front end `host`.
    pub fn new(settings: SourceSettings, host: Arc<dyn SourceHost>) -> Self {
        Self {
            settings,
            host,
            kept: None,
            stdin: Cell::new(StdinUse::Unread),
        }
    }

    /// Reads the source of a shell: the profiles that the arguments name. A single argument may
    /// also be a database, in which the commands look up names. Standard input can't be read any
    /// more, because it has the commands.
    ///
    /// # Errors
    /// A profile can't be read.
    pub fn keep(&self, names: &[String]) -> Result<ShellSource> {
        self.stdin.set(StdinUse::ShellCommands);
        match names {
            [one] if is_database(one) => Ok(ShellSource::of_database(name::path(one))),
            names => {
                let profiles = self.read_each(names)?;
                let settings = self.settings.clone();
                Ok(ShellSource::of_profiles(names.to_vec(), profiles, settings))
            }
        }
    }

    /// Returns these sources with the profiles that a shell read before. They are not read again,
    /// and a command that names no profile is about them. Standard input can't be read.
    #[must_use]
    pub fn with_shell_source(mut self, kept: Arc<ShellSource>) -> Self {
        if let Some(database) = kept.database()
            && self.typed_db().is_none()
        {
            self.set_db(database.clone());
        }
        self.kept = Some(kept);
        self.stdin.set(StdinUse::ShellCommands);
        self
    }

    /// Returns the options by which files are read.
    pub fn options(&self) -> &FormatReadOptions {
        &self.settings.options
    }

    /// Returns these sources for heapprof's own page, without the settings that serve pprof's and
    /// jeprof's reports.
    pub fn as_ours(&self) -> Self {
        Self {
            settings: SourceSettings {
                options: self.settings.options.clone().as_pprof(false),
                names_in_use: false,
                ..self.settings.clone()
            },
            ..self.clone()
        }
    }

    /// Sets the database in which names are looked up.
    pub fn set_db(&mut self, db: PathBuf) {
        self.settings.backend = StoreBackend::Database(db.clone());
        self.settings.db = db;
    }

    /// Returns the path of the database, if the user named it.
    pub fn typed_db(&self) -> Option<&Path> {
        self.settings.is_db_named.then_some(&*self.settings.db)
    }

    /// Returns the path of the database.
    pub fn db(&self) -> &Path {
        &self.settings.db
    }

    /// Returns the store in which selectors are resolved.
    pub fn backend(&self) -> &StoreBackend {
        &self.settings.backend
    }

    /// Returns the arguments. If there are none, returns those of the shell's source, or else the
    /// newest recording in the current folder.
    pub fn or_newest(&self, names: &[String]) -> Result<Vec<String>> {
        if !names.is_empty() {
            return Ok(names.to_vec());
        }
        if let Some(kept) = &self.kept {
            return match kept.database() {
                None => Ok(kept.names().to_vec()),
                Some(database) => bail!(
                    "{}: no PROFILE is given; db ls lists the profiles of this database",
                    database.display()
                ),
            };
        }
        if !matches!(self.settings.backend, StoreBackend::Database(_)) {
            bail!(
                "{}: choose its profiles by a name or a selector such as service=shop",
                self.settings.backend.name()
            );
        }
        let newest = default_profile::newest()?;
        Ok(vec![match largest_process::find(&newest) {
            None => {
                let note = format!("reading {newest}, the newest recording here");
                self.host.note(&note);
                newest
            }
            Some(LargestProcess { path, processes }) => {
                self.host.note(&format!(
                    "reading {path}, the largest of the {processes} processes of the newest \
                     recording here, {newest}"
                ));
                path
            }
        }])
    }

    /// Returns the arguments, or those of the shell's source if there are none.
    pub fn or_shell_source<'a>(&'a self, names: &'a [String]) -> &'a [String] {
        match &self.kept {
            Some(kept) if names.is_empty() => kept.names(),
            _ => names,
        }
    }

    /// Reads one profile from all arguments. Several profiles are added up.
    pub fn read(&self, names: &[String]) -> Result<QuestionSource> {
        Ok(self.read_selected(names)?.source)
    }

    /// Reads one profile as [`read`](Self::read) does. If the only argument is a selector, also
    /// returns the names of the profiles that the selector added up.
    pub fn read_selected(&self, names: &[String]) -> Result<SelectedSource> {
        let read = match names {
            [] => bail!("no profile is given"),
            [one] => self.one(one)?,
            several => {
                let mut moments = SummedProcesses::default();
                let parts = several.iter().map(|name| {
                    let source = self.one(name)?.source;
                    if !self.settings.sum {
                        let added = moments.add(&source);
                        added.map_err(|error| self.host.explain(error))?;
                    }
                    Ok(to_owned_profile(source))
                });
                let merged =
                    merge_all(parts.map(|r: Result<Profile>| r.map_err(MergeFailure::Reading)));
                let merged = merged.map_err(|failed| match failed {
                    MergeFailure::Reading(error) => error,
                    MergeFailure::Merging(error) => {
                        anyhow::Error::from(error).context(several.join(" + "))
                    }
                })?;
                QuestionSource::new(name::shown(&several.join(" + ")), merged).into()
            }
        };
        self.say_warnings(&read.source);
        Ok(read)
    }

    /// Reads a separate profile from each argument.
    pub fn read_each(&self, names: &[String]) -> Result<Vec<QuestionSource>> {
        let one = |name: &String| self.read(std::slice::from_ref(name));
        names.iter().map(one).collect()
    }

    /// Reads the profile of one argument, and returns the format of its file. A profile from the
    /// database has no format.
    pub fn read_with_format(&self, name: &str) -> Result<(QuestionSource, Option<ProfileFormat>)> {
        let format = Cell::new(None);
        let read = self.read_one(name, |reading| {
            format.set(Some(reading.format));
            as_shown(reading)
        })?;
        let source = read.source;
        self.say_warnings(&source);
        Ok((source, format.get()))
    }

    /// Reads the profile of one argument. If Devel::MProf wrote the file, also returns the calls in
    /// it.
    pub fn read_with_calls(&self, name: &str) -> Result<(QuestionSource, Vec<MprofCall>)> {
        let calls = RefCell::new(Vec::new());
        let read = self.read_one(name, |mut reading| {
            calls.replace(std::mem::take(&mut reading.calls));
            as_shown(reading)
        })?;
        let source = read.source;
        self.say_warnings(&source);
        Ok((source, calls.into_inner()))
    }

    /// Returns the options for reading files as a certain tool does.
    fn read_as(&self, how: ToolReadOptions) -> FormatReadOptions {
        self.settings
            .options
            .clone()
            .stacks_as_written(how.stacks_as_written)
            .threads_as_counted(how.threads_as_counted)
    }

    /// Reads the profile of one argument as a certain tool reads it.
    pub fn read_as_tool(&self, name: &str, how: ToolReadOptions) -> Result<Profile> {
        let read = self.read_one_as(name, &self.read_as(how), how.convert)?;
        Ok(self.name_in_use(to_owned_profile(read.source)))
    }

    /// Fetches the profile at a URL, and reads it as [`read_as_tool`](Self::read_as_tool) does.
    pub fn fetch_as_tool(
        &self,
        url: &str,
        transfer: &FetchOptions,
        how: ToolReadOptions,
    ) -> Result<Profile> {
        let body = fetch::fetch(url, transfer).with_context(|| url.to_string())?;
        let reading = self.decode(url, body, None, self.read_as(how))?;
        Ok(self.name_in_use((how.convert)(reading)))
    }

    fn name_in_use(&self, mut profile: Profile) -> Profile {
        if self.settings.names_in_use {
            profile.name_in_use();
        }
        profile
    }

    fn one(&self, name: &str) -> Result<SelectedSource> {
        if let Some(kept) = &self.kept
            && let Some(source) = kept.find(name)
            // A process has changed since, and a core file has no such options.
            && (self.host.is_outside(name) || kept.was_read_with(&self.settings))
        {
            return Ok(source.clone().into());
        }
        self.read_one(name, as_shown)
    }

    fn read_one(
        &self,
        name: &str,
        keep: impl Fn(ProfileReading) -> Profile,
    ) -> Result<SelectedSource> {
        self.read_one_as(name, &self.settings.options, keep)
    }

    fn read_one_as(
        &self,
        name: &str,
        options: &FormatReadOptions,
        keep: impl Fn(ProfileReading) -> Profile,
    ) -> Result<SelectedSource> {
        if name.is_empty() {
            bail!("an empty PROFILE is given; leave it out for the newest recording here");
        }
        let (whole, part) = split_part(name);
        if let Some(source) = self.host.read_outside(name)? {
            return Ok(source.into());
        }
        if whole == "-" || whole == STDIN_PATH {
            self.claim_stdin()?;
            let name = name.replacen(whole, "stdin", 1);
            let stdin = io::stdin().lock();
            let reading = self.decode(&name, stdin, None, options.clone().part(part))?;
            return Ok(QuestionSource::new(name, keep(reading)).into());
        }
        if fetch::is_url(whole) {
            let body =
                fetch::fetch(whole, &FetchOptions::default()).with_context(|| name.to_string())?;
            let reading = self.decode(name, body, None, options.clone().part(part))?;
            return Ok(QuestionSource::new(name, keep(reading)).into());
        }
        // A path is tried before a name.
        let path = name::path(whole);
        if path.exists() {
            let (reading, is_own) = self.read_file(name, &path, options.clone().part(part))?;
            let mut profile = keep(reading);
            if is_own && is_own_recording(&profile) {
                self.host.name_own_code(&mut profile);
            }
            return Ok(QuestionSource::new(name::shown(name), profile).into());
        }
        let is_elsewhere = !matches!(self.settings.backend, StoreBackend::Database(_))
            && !self.settings.is_loading;
        if is_elsewhere || is_selector(name) && !self.is_stored_name(name) {
            let now = (self.settings.clock)();
            let over_time = self.settings.over_time;
            let selected = read_selection(&self.settings.backend, name, now, over_time)?;
            self.host.note(&selected.about);
            // A statement would show the frames that the profile drops.
            let profile = &selected.source.profile;
            let is_whole = profile.text(profile.drop_frames).is_empty();
            let names = selected.names.filter(|_| is_whole);
            return Ok(SelectedSource {
                source: selected.source,
                selected: names,
            });
        }
        match self.find_database(name)? {
            Some(store) => {
                let restored = store.restore(name);
                Ok(restored
                    .with_context(|| self.settings.db.display().to_string())?
                    .into())
            }
            None => bail!(
                "{name}: there is no such file, and no database {} with a profile of that name",
                self.settings.db.display()
            ),
        }
    }

    /// Returns how values in use of several moments are combined.
    pub fn over_time(&self) -> MomentAggregation {
        self.settings.over_time
    }

    /// Reads a profile from bytes that a client sent.
    pub fn read_sent(&self, name: &str, bytes: &[u8]) -> Result<Profile> {
        let length = bytes.len() as u64;
        let reading = self.decode(name, bytes, Some(length), self.settings.options.clone())?;
        Ok(as_shown(reading))
    }

    /// Reads the stored profile with this name from the database.
    pub fn read_restored(&self, name: &str) -> Result<QuestionSource> {
        let store = ProfileStore::open(&self.settings.db).and_then(|store| store.restore(name));
        store.with_context(|| self.settings.db.display().to_string())
    }

    /// Claims standard input for a reader.
    ///
    /// # Errors
    /// It was read before, or it has the commands of a shell.
    pub fn claim_stdin(&self) -> Result<()> {
        match self.stdin.get() {
            StdinUse::Unread => {
                self.stdin.set(StdinUse::ReadOnce);
                Ok(())
            }
            StdinUse::ReadOnce => bail!("- (stdin) can be read only once"),
            StdinUse::ShellCommands => {
                bail!("- (stdin) has the commands of this shell; give a file")
            }
        }
    }

    /// Whether an argument names a profile: a file or a part of it, standard input, a URL, a
    /// stored profile, or a selector of such profiles.
    pub fn is_known(&self, name: &str) -> bool {
        let (whole, _) = split_part(name);
        let is_there = || std::fs::metadata(name::path(whole)).is_ok_and(|found| !found.is_dir());
        let is_file = whole == "-" || whole == STDIN_PATH || is_there();
        is_file || fetch::is_url(whole) || is_selector(name) || self.is_stored_name(name)
    }

    /// Whether the database has a profile of exactly this name.
    fn is_stored_name(&self, name: &str) -> bool {
        self.settings.db.exists()
            && ProfileStore::open(&self.settings.db).is_ok_and(|store| store.find(name).is_ok())
    }

    /// Opens the database, if the argument can only be a name in it. Returns `None` if the argument
    /// can be something else, or if there is no database. Fails if the database does not have the
    /// name.
    fn find_database(&self, name: &str) -> Result<Option<ProfileStore>> {
        let (whole, _) = split_part(name);
        let is_name = whole != "-"
            && !fetch::is_url(whole)
            && !self.host.is_outside(whole)
            && !name::path(whole).exists();
        if !is_name || !self.settings.db.exists() {
            return Ok(None);
        }
        let store = ProfileStore::open(&self.settings.db)
            .with_context(|| self.settings.db.display().to_string())?;
        match store.find(name) {
            Ok(_) => {}
            Err(error @ heapprof_analysis::AnalysisError::NoSuchProfile { .. }) => {
                bail!(
                    "{name}: there is no such file, and {} {error}",
                    self.settings.db.display()
                )
            }
            Err(error) => {
                return Err(error).with_context(|| self.settings.db.display().to_string());
            }
        }
        Ok(Some(store))
    }

    /// Reads a file. Also returns whether it is a regular file of this user.
    fn read_file(
        &self,
        name: &str,
        path: &Path,
        options: FormatReadOptions,
    ) -> Result<(ProfileReading, bool)> {
        let file = File::open(path).with_context(|| format!("{name}: cannot be read"))?;
        let metadata = file
            .metadata()
            .with_context(|| format!("{name}: cannot be read"))?;
        if metadata.is_dir() {
            bail!("{name}: is a folder, not a profile; give a file in it");
        }
        let length = metadata.is_file().then_some(metadata.len());
        let is_own = metadata.is_file() && metadata.uid() == geteuid().as_raw();
        Ok((self.decode(name, file, length, options)?, is_own))
    }

    fn decode(
        &self,
        name: &str,
        reader: impl Read,
        length: Option<u64>,
        options: FormatReadOptions,
    ) -> Result<ProfileReading> {
        let reader = ProgressReader::new(reader, self.host.progress(length));
        heapprof_formats::read(reader, &options)
            .map_err(|error| self.host.explain(error.into()))
            .with_context(|| name.to_string())
    }

    /// Shows the warnings about a profile to the user.
    fn say_warnings(&self, source: &QuestionSource) {
        for warning in &source.profile.warnings {
            self.host.note(&format!("{}: {warning}", source.name));
        }
    }
}

/// Returns the part `12` of the argument `-#12`; `None` for any other argument.
pub fn part_of_stdin(arg: &str) -> Option<&str> {
    arg.strip_prefix("-#")
        .filter(|part| PartSelector::parse(part).is_some())
}

/// Splits an argument such as `SOURCE#12`, `SOURCE#peak` or `SOURCE#last` into the source and the
/// part. If a file has the whole argument as its name, there is no part.
pub fn split_part(name: &str) -> (&str, Option<PartSelector>) {
    let split = || {
        let (whole, part) = name.rsplit_once('#')?;
        let part = PartSelector::parse(part)?;
        (!whole.is_empty() && !name::path(name).exists()).then_some((whole, Some(part)))
    };
    split().unwrap_or((name, None))
}

/// Returns the profile of a file as heapprof's own reports show it: with the name of its format,
/// and with source names in place of linker names. Other tools' reports read the names as they are
/// in the file, because each tool demangles names by its own rules.
fn as_shown(reading: ProfileReading) -> Profile {
    let mut profile = reading.commented();
    demangle_names(&mut profile);
    profile
}

/// Returns a profile that may be changed. It is copied if it is shared.
pub fn to_owned_profile(source: QuestionSource) -> Profile {
    std::sync::Arc::try_unwrap(source.profile).unwrap_or_else(|shared| (*shared).clone())
}

/// The processes of the profiles that are added up, each with the name of its profile.
#[derive(Default)]
struct SummedProcesses(Vec<(String, ProfiledProcess)>);

impl SummedProcesses {
    /// Adds the process of a profile. Fails if the process was added before, because memory in use
    /// at both moments would count twice.
    fn add(&mut self, source: &QuestionSource) -> Result<(), SourceError> {
        let Some(process) = ProfiledProcess::from_profile(&source.profile) else {
            return Ok(());
        };
        let name = source.name.clone();
        if let Some((earlier, _)) = self
            .0
            .iter()
            .find(|(_, known)| known.is_same_process(&process))
        {
            return Err(SourceError::SameProcess {
                earlier: earlier.clone(),
                later: name,
                process: process.to_string(),
            });
        }
        self.0.push((name, process));
        Ok(())
    }
}

/// Why a merge failed: a profile could not be read, or the profiles could not be merged.
enum MergeFailure {
    Reading(anyhow::Error),
    Merging(heapprof_profile::Error),
}

impl From<heapprof_profile::Error> for MergeFailure {
    fn from(error: heapprof_profile::Error) -> Self {
        MergeFailure::Merging(error)
    }
}

#[cfg(test)]
mod tests;
