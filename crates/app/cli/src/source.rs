//! Reads what a PROFILE argument means: a file, stdin, a URL, or a name in the database.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    MomentAggregation, ProfileStore, ProfiledProcess, QuestionSource, is_selector,
};
use heapprof_dropin::{FetchOptions, ToolReadOptions};
use heapprof_formats::{FormatReadOptions, MprofCall, PartSelector, ProfileFormat, ProfileReading};
use heapprof_profile::{Profile, merge_all};
use heapprof_stores::{StoreBackend, read_selection};

use crate::args::{self, Cli, CliCommand};
use crate::progress::ProgressReader;
use crate::{default_profile, fetch, messages, name, now, outside};

/// The sources of profiles, and how they are read by the options of the command line.
#[derive(Clone)]
pub(crate) struct ProfileSources {
    db: PathBuf,
    /// Whether the database was named on the command line.
    is_typed: bool,
    options: FormatReadOptions,
    /// Whether the short names of types in use (`objects`, `space`) become the long ones, because
    /// jeprof does not distinguish the two.
    names_in_use: bool,
    /// The store that is asked for selectors, and for names if it is not the database.
    backend: StoreBackend,
    /// The names of the profiles that each selector added up, if each profile counts once.
    selected: RefCell<HashMap<String, Option<Vec<String>>>>,
    /// Whether what is read is stored in the backend, so that no name can be one of the store.
    is_loading: bool,
    /// Whether moments of one process may be added up.
    sum: bool,
    /// How a selector combines values in use over time.
    over_time: MomentAggregation,
    stdin_read: Cell<bool>,
    /// The only profiles that there are, by name, if all were read already.
    known: Option<HashMap<String, QuestionSource>>,
}

/// The path that replaces the `-` of `-#12`, because an argument that begins with a dash is taken
/// for an option.
pub(crate) const STDIN_PATH: &str = "/dev/stdin";

impl ProfileSources {
    pub(crate) fn new(cli: &Cli) -> Self {
        Self {
            db: cli.db(),
            is_typed: cli.typed_db().is_some(),
            options: FormatReadOptions::default()
                .max_inflated(cli.max_inflated)
                .values(cli.values.clone())
                .as_pprof(matches!(cli.command, CliCommand::Pprof(_))),
            names_in_use: matches!(cli.command, CliCommand::Jeprof(_)),
            backend: cli.backend(),
            selected: RefCell::default(),
            is_loading: matches!(cli.command, CliCommand::Load(_)),
            sum: cli.sum,
            over_time: match cli.over_time {
                args::OverTimeMode::Last => MomentAggregation::Last,
                args::OverTimeMode::Mean => MomentAggregation::Mean,
                args::OverTimeMode::Max => MomentAggregation::Max,
            },
            stdin_read: Cell::new(false),
            known: None,
        }
    }

    /// Returns the options by which files are read.
    pub(crate) fn options(&self) -> &FormatReadOptions {
        &self.options
    }

    /// Returns these sources for heapprof's own page instead of pprof's reports.
    pub(crate) fn as_ours(&self) -> Self {
        Self {
            options: self.options.clone().as_pprof(false),
            names_in_use: false,
            ..self.clone()
        }
    }

    /// Returns sources that have only these profiles, which were read already.
    pub(crate) fn with_known(&self, known: HashMap<String, QuestionSource>) -> Self {
        Self {
            known: Some(known),
            ..self.clone()
        }
    }

    /// Whether all profiles were read already, so that no name is that of a file.
    pub(crate) fn are_known(&self) -> bool {
        self.known.is_some()
    }

    /// Makes another database the one in which names are found.
    pub(crate) fn set_db(&mut self, db: PathBuf) {
        self.backend = StoreBackend::Database(db.clone());
        self.db = db;
    }

    /// Returns the database, if it was named on the command line.
    pub(crate) fn typed_db(&self) -> Option<&Path> {
        self.is_typed.then_some(&*self.db)
    }

    pub(crate) fn db(&self) -> &Path {
        &self.db
    }

    /// Returns the names of the profiles that a selector added up; `None` if `name` was no
    /// selector, or if the profiles do not count alike.
    pub(crate) fn selected(&self, name: &str) -> Option<Vec<String>> {
        self.selected.borrow().get(name).cloned().flatten()
    }

    /// Returns the store that is asked for selectors.
    pub(crate) fn backend(&self) -> &StoreBackend {
        &self.backend
    }

    /// Returns the arguments, or the newest recording in this folder if there are none.
    pub(crate) fn or_newest(&self, names: &[String]) -> Result<Vec<String>> {
        if !names.is_empty() {
            return Ok(names.to_vec());
        }
        if !matches!(self.backend, StoreBackend::Database(_)) {
            bail!(
                "{}: say which profiles of it, by a name or a selector such as service=shop",
                self.backend.name()
            );
        }
        let newest = default_profile::newest()?;
        messages::note(&format!("reading {newest}, the newest recording here"));
        Ok(vec![newest])
    }

    /// Reads one profile from all these arguments. Several profiles are added up.
    pub(crate) fn read(&self, names: &[String]) -> Result<QuestionSource> {
        let source = match names {
            [] => bail!("no profile is named"),
            [one] => self.one(one)?,
            several => {
                let mut moments = SummedProcesses::default();
                let parts = several.iter().map(|name| {
                    let source = self.one(name)?;
                    if !self.sum {
                        moments.add(&source)?;
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
                QuestionSource::new(name::shown(&several.join(" + ")), merged)
            }
        };
        if self.known.is_none() {
            say_warnings(&source.name, &source.profile);
        }
        Ok(source)
    }

    /// Reads a profile from each of these arguments.
    pub(crate) fn read_each(&self, names: &[String]) -> Result<Vec<QuestionSource>> {
        let one = |name: &String| self.read(std::slice::from_ref(name));
        names.iter().map(one).collect()
    }

    /// Reads the profile behind one argument, and returns the format of its file. A profile from
    /// the database has none.
    pub(crate) fn read_with_format(
        &self,
        name: &str,
    ) -> Result<(QuestionSource, Option<ProfileFormat>)> {
        let format = Cell::new(None);
        let source = self.read_one(name, |reading| {
            format.set(Some(reading.format));
            reading.commented()
        })?;
        say_warnings(&source.name, &source.profile);
        Ok((source, format.get()))
    }

    /// Reads the profile behind one argument, and returns the calls of its file if Devel::MProf
    /// wrote it.
    pub(crate) fn read_with_calls(&self, name: &str) -> Result<(QuestionSource, Vec<MprofCall>)> {
        let calls = RefCell::new(Vec::new());
        let source = self.read_one(name, |mut reading| {
            calls.replace(std::mem::take(&mut reading.calls));
            reading.commented()
        })?;
        say_warnings(&source.name, &source.profile);
        Ok((source, calls.into_inner()))
    }

    /// Returns the options for a tool that reads files in its own way.
    fn read_as(&self, how: ToolReadOptions) -> FormatReadOptions {
        self.options
            .clone()
            .stacks_as_written(how.stacks_as_written)
            .threads_as_counted(how.threads_as_counted)
    }

    /// Reads the profile behind one argument as a tool sees it.
    pub(crate) fn read_as_tool(&self, name: &str, how: ToolReadOptions) -> Result<Profile> {
        let source = self.read_one_as(name, &self.read_as(how), how.convert)?;
        Ok(self.name_in_use(to_owned_profile(source)))
    }

    /// Reads the profile at a URL as [`read_as_tool`](Self::read_as_tool) reads an argument.
    pub(crate) fn fetch_as_tool(
        &self,
        url: &str,
        transfer: &FetchOptions,
        how: ToolReadOptions,
    ) -> Result<Profile> {
        let body = fetch::fetch(url, transfer).with_context(|| url.to_string())?;
        let reading = decode(url, body, None, self.read_as(how))?;
        Ok(self.name_in_use((how.convert)(reading)))
    }

    fn name_in_use(&self, mut profile: Profile) -> Profile {
        if self.names_in_use {
            profile.name_in_use();
        }
        profile
    }

    fn one(&self, name: &str) -> Result<QuestionSource> {
        self.read_one(name, ProfileReading::commented)
    }

    fn read_one(
        &self,
        name: &str,
        keep: impl Fn(ProfileReading) -> Profile,
    ) -> Result<QuestionSource> {
        self.read_one_as(name, &self.options, keep)
    }

    fn read_one_as(
        &self,
        name: &str,
        options: &FormatReadOptions,
        keep: impl Fn(ProfileReading) -> Profile,
    ) -> Result<QuestionSource> {
        if let Some(known) = &self.known {
            let source = known.get(name).cloned();
            return source.with_context(|| format!("{name}: there is no such profile here"));
        }
        if name.is_empty() {
            bail!("an empty PROFILE is named; leave it out for the newest recording here");
        }
        let (whole, part) = split_part(name);
        if let Some(source) = outside::read(name)? {
            return Ok(source);
        }
        if whole == "-" || whole == STDIN_PATH {
            if self.stdin_read.replace(true) {
                bail!("- (stdin) can be read only once");
            }
            let name = name.replacen(whole, "stdin", 1);
            let reading = decode(&name, io::stdin().lock(), None, options.clone().part(part))?;
            return Ok(QuestionSource::new(name, keep(reading)));
        }
        if fetch::is_url(whole) {
            let body =
                fetch::fetch(whole, &FetchOptions::default()).with_context(|| name.to_string())?;
            return Ok(QuestionSource::new(
                name,
                keep(decode(name, body, None, options.clone().part(part))?),
            ));
        }
        // A path is tried before a name.
        let path = name::path(whole);
        if path.exists() {
            let reading = file(name, &path, options.clone().part(part))?;
            return Ok(QuestionSource::new(name::shown(name), keep(reading)));
        }
        let is_elsewhere = !matches!(self.backend, StoreBackend::Database(_)) && !self.is_loading;
        if is_elsewhere || is_selector(name) && !self.is_stored_name(name) {
            let selected = read_selection(&self.backend, name, now::nanos(), self.over_time)?;
            messages::note(&selected.about);
            // A statement would show the frames that the profile drops.
            let profile = &selected.source.profile;
            let is_whole = profile.text(profile.drop_frames).is_empty();
            let names = selected.names.filter(|_| is_whole);
            self.selected.borrow_mut().insert(name.to_string(), names);
            return Ok(selected.source);
        }
        match self.find_database(name)? {
            Some(store) => store
                .restore(name)
                .with_context(|| self.db.display().to_string()),
            None => bail!(
                "{name}: there is no such file, and no database {} with a profile of that name",
                self.db.display()
            ),
        }
    }

    /// Returns how values in use of several moments are combined.
    pub(crate) fn over_time(&self) -> MomentAggregation {
        self.over_time
    }

    /// Reads a profile from bytes that a client sent.
    pub(crate) fn read_sent(&self, name: &str, bytes: &[u8]) -> Result<Profile> {
        let length = bytes.len() as u64;
        decode(name, bytes, Some(length), self.options.clone()).map(ProfileReading::commented)
    }

    /// Reads the profile that the database has under this name.
    pub(crate) fn read_restored(&self, name: &str) -> Result<QuestionSource> {
        let store = ProfileStore::open(&self.db).and_then(|store| store.restore(name));
        store.with_context(|| self.db.display().to_string())
    }

    /// Whether the database has a profile of exactly this name.
    fn is_stored_name(&self, name: &str) -> bool {
        self.db.exists() && ProfileStore::open(&self.db).is_ok_and(|store| store.find(name).is_ok())
    }

    /// Returns the database, if the argument can only be a name in it.
    fn find_database(&self, name: &str) -> Result<Option<ProfileStore>> {
        let (whole, _) = split_part(name);
        let is_name = whole != "-"
            && !fetch::is_url(whole)
            && !outside::is_outside(whole)
            && !name::path(whole).exists();
        if !is_name || self.known.is_some() || !self.db.exists() {
            return Ok(None);
        }
        let store = ProfileStore::open(&self.db).with_context(|| self.db.display().to_string())?;
        match store.find(name) {
            Ok(_) => {}
            Err(error @ heapprof_analysis::AnalysisError::NoSuchProfile { .. }) => {
                bail!(
                    "{name}: there is no such file, and {} {error}",
                    self.db.display()
                )
            }
            Err(error) => return Err(error).with_context(|| self.db.display().to_string()),
        }
        Ok(Some(store))
    }
}

fn file(name: &str, path: &Path, options: FormatReadOptions) -> Result<ProfileReading> {
    let file = File::open(path).with_context(|| format!("{name}: cannot be read"))?;
    let metadata = file
        .metadata()
        .with_context(|| format!("{name}: cannot be read"))?;
    if metadata.is_dir() {
        bail!("{name}: is a folder, not a profile; name a file in it");
    }
    let length = metadata.is_file().then_some(metadata.len());
    decode(name, file, length, options)
}

fn decode(
    name: &str,
    reader: impl Read,
    length: Option<u64>,
    options: FormatReadOptions,
) -> Result<ProfileReading> {
    let reader = ProgressReader::new(reader, length);
    heapprof_formats::read(reader, &options)
        .map_err(messages::reading_error)
        .with_context(|| name.to_string())
}

/// Returns the 12 of `-#12`.
pub(crate) fn part_of_stdin(arg: &str) -> Option<&str> {
    arg.strip_prefix("-#")
        .filter(|part| PartSelector::parse(part).is_some())
}

/// Splits an argument into a source and the part of it that `SOURCE#12`, `#peak` or `#last` asks
/// for. A file whose own name ends like that comes first.
pub(crate) fn split_part(name: &str) -> (&str, Option<PartSelector>) {
    let split = || {
        let (whole, part) = name.rsplit_once('#')?;
        let part = PartSelector::parse(part)?;
        (!whole.is_empty() && !name::path(name).exists()).then_some((whole, Some(part)))
    };
    split().unwrap_or((name, None))
}

/// Prints the warnings about a file.
pub(crate) fn say_warnings(name: &str, profile: &Profile) {
    for warning in &profile.warnings {
        messages::note(&format!("{name}: {warning}"));
    }
}

/// Returns the profile to be changed. It is copied if it is shared.
pub(crate) fn to_owned_profile(source: QuestionSource) -> Profile {
    std::sync::Arc::try_unwrap(source.profile).unwrap_or_else(|shared| (*shared).clone())
}

/// The processes of the profiles that are added up.
#[derive(Default)]
struct SummedProcesses(Vec<(String, ProfiledProcess)>);

impl SummedProcesses {
    /// Fails for a second moment of a process, because what both have in use would count twice.
    fn add(&mut self, source: &QuestionSource) -> Result<()> {
        let Some(process) = ProfiledProcess::from_profile(&source.profile) else {
            return Ok(());
        };
        let name = source.name.clone();
        if let Some((earlier, _)) = self
            .0
            .iter()
            .find(|(_, known)| known.is_same_process(&process))
        {
            bail!(
                "{earlier} and {name} are two moments of one process ({process}); adding them up \
                 counts the same memory twice: take the last, use diff, or say --sum"
            );
        }
        self.0.push((name, process));
        Ok(())
    }
}

/// The failure of a merge: an error of reading, or `merge_all`'s own.
enum MergeFailure {
    Reading(anyhow::Error),
    Merging(heapprof_profile::Error),
}

impl From<heapprof_profile::Error> for MergeFailure {
    fn from(error: heapprof_profile::Error) -> Self {
        MergeFailure::Merging(error)
    }
}
