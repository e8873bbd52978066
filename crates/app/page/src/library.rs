//! The profiles that a server offers: from the user's arguments, from the database, and from
//! clients. Each profile is read when a question first needs it, and again if its file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use heapprof_analysis::{QuestionSource, agree, in_order_of_time, store::ProfileStore};
use heapprof_sources::{ProfileSources, is_database};
use heapprof_text::file_name as name;
use heapprof_web::{ApiRefusal, ApiRequest};
use serde_json::json;

use crate::host::{PageHost, refusal};
use crate::settings::PageSettings;

/// Maximum number of database profiles that stay in memory after they were read.
const MAX_KEPT_PROFILES: usize = 8;
/// Time after which a process is read again, in milliseconds.
pub(crate) const REFRESH_INTERVAL_MS: u32 = 2000;
/// Maximum number of profiles that clients may send.
const MAX_SENT_PROFILES: usize = 16;
/// Longest name of a profile that a client sends, in characters.
const MAX_NAME_CHARS: usize = 100;

/// The profiles that a server offers.
pub(crate) struct ProfileLibrary {
    host: Arc<dyn PageHost>,
    shelf: Mutex<LibraryShelf>,
    /// The lock for reading, so that no profile is read twice at the same time. The field `shelf`
    /// is not locked during a reading.
    reading: Mutex<()>,
    /// The names of the first view's profiles, in the order of time.
    first: Vec<String>,
    /// Whether the first view compares its last profile with the first one.
    is_compared: bool,
}

struct LibraryShelf {
    sources: ProfileSources,
    host: Arc<dyn PageHost>,
    offered: Vec<OfferedProfile>,
    /// The state of the database's file when its profiles were listed.
    database: Option<[i64; 4]>,
    /// Number of readings so far, from which each reading gets its number.
    readings: u64,
    sent: usize,
}

struct OfferedProfile {
    name: String,
    time_nanos: i64,
    from: ProfileOrigin,
    read: Option<LibraryProfile>,
}

#[derive(Clone)]
enum ProfileOrigin {
    /// Arguments of the command line. Their profiles are added up.
    Arguments(Vec<String>),
    /// The database.
    Database,
    /// A client, which sent the profile.
    Upload,
}

impl ProfileOrigin {
    fn read(&self, sources: &ProfileSources, name: &str) -> Result<QuestionSource> {
        match self {
            Self::Arguments(arguments) => sources.read(arguments),
            // A name of the database is no file's name, whatever it looks like.
            Self::Database => sources.read_restored(name),
            Self::Upload => anyhow::bail!("{name}: there is no such profile"),
        }
    }
}

/// The result of a search for a profile in the library.
enum ShelfLookup {
    Available(LibraryProfile),
    /// The profile must be read. The value is the present state of its file.
    Unread(Option<[i64; 4]>),
}

/// A profile that was read.
#[derive(Clone)]
pub(crate) struct LibraryProfile {
    pub(crate) source: QuestionSource,
    /// The number of the reading that produced the profile.
    pub(crate) number: u64,
    /// The state of the profile's file when it was read.
    file: Option<[i64; 4]>,
    /// Why the profile is not up to date, if it is not.
    pub(crate) note: Option<String>,
}

/// The profiles of a question, and whether the first is compared with the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileChoice {
    pub(crate) names: Vec<String>,
    pub(crate) is_compared: bool,
}

impl ProfileLibrary {
    /// Makes the library, and reads the profiles of the first view.
    pub(crate) fn open(
        mut sources: ProfileSources,
        settings: &PageSettings,
        host: Arc<dyn PageHost>,
    ) -> Result<Self> {
        let mut named = sources.or_newest(&settings.profiles)?;
        if let [one] = &named[..]
            && is_database(one)
        {
            sources.set_db(name::path(one));
            named.clear();
        }
        let from_database = named.is_empty();
        let mut stored = Vec::new();
        if sources.db().exists() {
            let db = sources.db().display().to_string();
            let store = ProfileStore::open(sources.db()).with_context(|| db.clone());
            match store.and_then(|store| store.profiles().with_context(|| db)) {
                Ok(profiles) => stored = profiles,
                // An unreadable database is no error if the user did not ask for it.
                Err(error) if from_database => return Err(error),
                Err(_) => {}
            }
        }
        let offered = stored.iter().map(|stored| OfferedProfile {
            name: stored.name.clone(),
            time_nanos: stored.time_nanos,
            from: ProfileOrigin::Database,
            read: None,
        });
        let mut shelf = LibraryShelf {
            offered: offered.collect(),
            database: state(sources.db()),
            sources,
            host: host.clone(),
            readings: 0,
            sent: 0,
        };
        let mut first = Vec::new();
        if from_database {
            let newest = stored.last().map(|stored| stored.name.clone());
            first.extend(newest);
            anyhow::ensure!(
                !first.is_empty(),
                "{}: there is no profile in it; heapprof db load adds them",
                shelf.sources.db().display()
            );
        } else if settings.base.is_empty() && settings.is_sum {
            first.push(shelf.offer(&named));
        } else if settings.base.is_empty() {
            for name in host.expand_names(&named)? {
                first.push(shelf.offer(&[name]));
            }
        } else {
            first.push(shelf.offer(&settings.base));
            first.push(shelf.offer(&named));
        }
        let mut read = Vec::new();
        for name in &first {
            let (at, wanted) = shelf.find(name)?;
            let mut source = match wanted {
                ShelfLookup::Available(known) => known.source,
                ShelfLookup::Unread(file) => {
                    let source = shelf.offered[at].from.read(&shelf.sources, name)?;
                    shelf.put(name, source, file, None).source
                }
            };
            source.name.clone_from(name);
            read.push(source);
        }
        let is_compared = !settings.base.is_empty();
        match is_compared {
            // Profiles that can't be compared are an error before the first view is shown.
            true => {
                if let [before, after] = &mut read[..] {
                    agree(before, after)?;
                }
            }
            false => in_order_of_time(&mut read),
        }
        if !from_database && !stored.iter().any(|stored| first.contains(&stored.name)) {
            // Other profiles are offered only if one of them was named.
            shelf
                .offered
                .retain(|offered| !matches!(offered.from, ProfileOrigin::Database));
        }
        Ok(Self {
            host,
            first: read.into_iter().map(|source| source.name).collect(),
            is_compared,
            shelf: Mutex::new(shelf),
            reading: Mutex::default(),
        })
    }

    /// Whether any profile comes from a running process, and so changes by itself.
    pub(crate) fn is_live(&self) -> bool {
        let shelf = self.shelf();
        let mut offered = shelf.offered.iter();
        offered.any(|offered| match &offered.from {
            ProfileOrigin::Arguments(arguments) => {
                arguments.iter().any(|one| self.host.is_process(one))
            }
            ProfileOrigin::Database | ProfileOrigin::Upload => false,
        })
    }

    /// Returns a title of the served profiles, for people.
    pub(crate) fn title(&self) -> String {
        match &self.first[..] {
            [before, after] if self.is_compared => {
                format!("{} beside {}", name::shown(after), name::shown(before))
            }
            [one] => name::shown(one).into_owned(),
            several => format!("{} profiles", several.len()),
        }
    }

    /// Returns the list of all profiles that are offered.
    pub(crate) fn offered(&self) -> Vec<serde_json::Value> {
        let mut shelf = self.shelf();
        shelf.refresh();
        let one = |offered: &OfferedProfile| {
            json!({
                "name": offered.name,
                "title": name::shown(&offered.name),
                "time_nanos": offered.time_nanos,
            })
        };
        shelf.offered.iter().map(one).collect()
    }

    /// Returns the profiles of the first view if it shows one profile or compares two. Otherwise,
    /// returns an empty object.
    pub(crate) fn shown(&self) -> serde_json::Value {
        match &self.first[..] {
            [base, profile] if self.is_compared => json!({ "profile": profile, "base": base }),
            [profile] => json!({ "profile": profile }),
            _ => json!({}),
        }
    }

    /// Returns the profiles that a request chooses by its parameters. Without such parameters,
    /// returns the profiles of the first view.
    pub(crate) fn parse_choice(&self, asked: &ApiRequest) -> Result<ProfileChoice, ApiRefusal> {
        let one = |parameter: &str| -> Result<Option<String>, ApiRefusal> {
            let Some(name) = asked.parameter(parameter) else {
                return Ok(None);
            };
            let mut shelf = self.shelf();
            shelf.refresh();
            let known = shelf.offered.iter().find(|offered| offered.name == name);
            let known = known.map(|offered| Some(offered.name.clone()));
            known.ok_or_else(|| {
                let what = format!("There is no profile {name:?} here");
                ApiRefusal::new(404, what, "See /api/v1/profiles for their names")
            })
        };
        let last = || self.first.last().cloned().unwrap_or_default();
        let (profile, base) = (one("profile")?, one("base")?);
        let choice = |names, is_compared| ProfileChoice { names, is_compared };
        Ok(match (profile, base) {
            (profile, Some(base)) => choice(vec![base, profile.unwrap_or_else(last)], true),
            (Some(profile), None) => choice(vec![profile], false),
            (None, None) => choice(self.first.clone(), self.is_compared),
        })
    }

    /// Returns the offered profile of this name, and reads it if necessary.
    pub(crate) fn read(&self, name: &str) -> Result<LibraryProfile, ApiRefusal> {
        self.read_or_fail(name)
            .map_err(|error| refusal(&*self.host, &error))
    }

    fn read_or_fail(&self, name: &str) -> Result<LibraryProfile> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (sources, from, file) = {
            let shelf = self.shelf();
            let (at, wanted) = shelf.find(name)?;
            match wanted {
                ShelfLookup::Available(known) => return Ok(known),
                ShelfLookup::Unread(file) => {
                    (shelf.sources.clone(), shelf.offered[at].from.clone(), file)
                }
            }
        };
        match from.read(&sources, name) {
            Ok(source) => Ok(self.shelf().put(name, source, file, None)),
            Err(error) => {
                // A process that has ended leaves its last reading.
                let last = self
                    .shelf()
                    .last_of_process(name)
                    .with_context(|| format!("{error:#}"))?;
                let note = format!("this is the last one that was read: {error:#}");
                Ok(self.shelf().put(name, last, file, Some(note)))
            }
        }
    }

    /// Returns the offered profiles with the names `names`.
    pub(crate) fn read_all(&self, names: &[String]) -> Result<Vec<QuestionSource>, ApiRefusal> {
        let one = |name: &String| Ok(self.read(name)?.source);
        names.iter().map(one).collect()
    }

    /// Returns the database's file, if any profile of it is offered.
    pub(crate) fn database(&self) -> Option<std::path::PathBuf> {
        let shelf = self.shelf();
        let is_offered = shelf
            .offered
            .iter()
            .any(|o| matches!(o.from, ProfileOrigin::Database));
        is_offered.then(|| shelf.sources.db().to_path_buf())
    }

    /// Fails if clients have already sent the maximum number of profiles.
    pub(crate) fn check_sent(&self) -> Result<(), ApiRefusal> {
        if self.shelf().sent < MAX_SENT_PROFILES {
            return Ok(());
        }
        let what = format!("{MAX_SENT_PROFILES} profiles were sent");
        Err(ApiRefusal::new(
            429,
            what,
            "Restart heapprof web to send more",
        ))
    }

    /// Adds a profile that a client sent. Returns the name that it gets in the library.
    pub(crate) fn take(&self, wished: Option<&str>, bytes: &[u8]) -> Result<String, ApiRefusal> {
        self.check_sent()?;
        let wished: String = wished
            .unwrap_or("sent")
            .chars()
            .take(MAX_NAME_CHARS)
            .collect();
        let sources = self.shelf().sources.clone();
        let profile = sources.read_sent(&wished, bytes);
        let profile = profile.map_err(|error| refusal(&*self.host, &error))?;
        let mut shelf = self.shelf();
        let mut name = wished.clone();
        let mut count = 1;
        while shelf.offered.iter().any(|offered| offered.name == name) {
            count += 1;
            name = format!("{wished} ({count})");
        }
        shelf.sent += 1;
        shelf.readings += 1;
        let known = LibraryProfile {
            number: shelf.readings,
            file: None,
            note: None,
            source: QuestionSource::new(name.clone(), profile),
        };
        shelf.offered.push(OfferedProfile {
            time_nanos: known.source.profile.time_nanos,
            name: name.clone(),
            from: ProfileOrigin::Upload,
            read: Some(known),
        });
        Ok(name)
    }

    fn shelf(&self) -> MutexGuard<'_, LibraryShelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LibraryShelf {
    /// Offers the profile that `arguments` name. Returns the profile's name in the library.
    fn offer(&mut self, arguments: &[String]) -> String {
        let name = arguments.join(" + ");
        if !self.offered.iter().any(|offered| offered.name == name) {
            self.offered.push(OfferedProfile {
                name: name.clone(),
                time_nanos: 0,
                from: ProfileOrigin::Arguments(arguments.to_vec()),
                read: None,
            });
        }
        name
    }

    /// Returns the position of a profile, and its last reading if that is still valid.
    fn find(&self, name: &str) -> Result<(usize, ShelfLookup)> {
        let at = self.offered.iter().position(|offered| offered.name == name);
        let at = at.with_context(|| format!("{name}: there is no such profile"))?;
        let offered = &self.offered[at];
        let file = match &offered.from {
            ProfileOrigin::Arguments(arguments) => state_of_file(arguments, &*self.host),
            ProfileOrigin::Database => state(self.sources.db()),
            ProfileOrigin::Upload => None,
        };
        Ok(match &offered.read {
            // Stdin and URLs have no state, and are read once.
            Some(known) if file.is_none() || known.file == file => {
                (at, ShelfLookup::Available(known.clone()))
            }
            _ => (at, ShelfLookup::Unread(file)),
        })
    }

    /// Stores a profile that was read while its file had the state `file`.
    fn put(
        &mut self,
        name: &str,
        source: QuestionSource,
        file: Option<[i64; 4]>,
        note: Option<String>,
    ) -> LibraryProfile {
        self.readings += 1;
        let known = LibraryProfile {
            number: self.readings,
            file,
            source,
            note,
        };
        self.forget();
        // The profile may have left the database meanwhile.
        if let Some(offered) = self.offered.iter_mut().find(|offered| offered.name == name) {
            offered.time_nanos = known.source.profile.time_nanos;
            offered.read = Some(known.clone());
        }
        known
    }

    /// Returns the last reading of a profile if the profile comes from a process.
    fn last_of_process(&self, name: &str) -> Option<QuestionSource> {
        let offered = self.offered.iter().find(|offered| offered.name == name)?;
        let ProfileOrigin::Arguments(arguments) = &offered.from else {
            return None;
        };
        let is_process = arguments.iter().any(|one| self.host.is_process(one));
        let read = offered.read.as_ref().filter(|_| is_process)?;
        Some(read.source.clone())
    }

    /// Lists the profiles of the database again if it has changed.
    fn refresh(&mut self) {
        let is_stored = |offered: &OfferedProfile| matches!(offered.from, ProfileOrigin::Database);
        let now = state(self.sources.db());
        if now == self.database || !self.offered.iter().any(is_stored) {
            return;
        }
        let listed = ProfileStore::open(self.sources.db()).and_then(|store| store.profiles());
        // A client that asks for a profile of a missing database gets an error then.
        let Ok(listed) = listed else { return };
        self.database = now;
        self.offered.retain(|offered| {
            !is_stored(offered) || listed.iter().any(|stored| stored.name == offered.name)
        });
        for stored in listed {
            if !self
                .offered
                .iter()
                .any(|offered| offered.name == stored.name)
            {
                self.offered.push(OfferedProfile {
                    name: stored.name,
                    time_nanos: stored.time_nanos,
                    from: ProfileOrigin::Database,
                    read: None,
                });
            }
        }
    }

    /// Drops the oldest reading of a database profile, if too many are in memory. The profile can
    /// be read again.
    fn forget(&mut self) {
        let stored = self.offered.iter_mut();
        let stored = stored.filter(|offered| matches!(offered.from, ProfileOrigin::Database));
        let mut kept: Vec<&mut OfferedProfile> =
            stored.filter(|offered| offered.read.is_some()).collect();
        if kept.len() >= MAX_KEPT_PROFILES {
            kept.sort_by_key(|offered| offered.read.as_ref().map(|known| known.number));
            kept[0].read = None;
        }
    }
}

/// Returns the state of the source that the arguments name: numbers that change whenever the
/// profile may have changed. For a single file, they change with the file. For a process, they
/// change with time. Returns `None` for any other arguments.
fn state_of_file(arguments: &[String], host: &dyn PageHost) -> Option<[i64; 4]> {
    if arguments.iter().any(|one| host.is_process(one)) {
        return Some([host.now_millis() / i64::from(REFRESH_INTERVAL_MS), 0, 0, 0]);
    }
    let [one] = arguments else { return None };
    let (whole, _) = heapprof_sources::split_part(one);
    state(&name::path(whole))
}

/// Returns numbers that change whenever a file is written.
fn state(path: &Path) -> Option<[i64; 4]> {
    let found = std::fs::metadata(path).ok()?;
    let of_file = [
        found.ino() as i64,
        found.size() as i64,
        found.mtime(),
        found.mtime_nsec(),
    ];
    found.is_file().then_some(of_file)
}
