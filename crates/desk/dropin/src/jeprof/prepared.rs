//! The profile of a command line, prepared as the scripts do: read, filtered, with its totals.

use std::borrow::Cow;

use anyhow::{Result, anyhow, bail};
use heapprof_profile::Profile;
use heapprof_totals::pattern::regex_error;
use regex::Regex;

use super::names::NameShortener;
use super::options::JeprofArguments;
use super::reading::{name_unnamed_by_number, read_as_jeprof};
use super::report::JeprofMeasure;
use super::stacks::{JeprofStacks, StackFilters};
use super::tool::PerlTool;
use crate::host::{DropinHost, ToolReadOptions};
use crate::pprof;

/// A profile that is ready for reports.
pub(super) struct PreparedReport {
    /// The stacks that passed the filters of the command line.
    pub(super) stacks: JeprofStacks,
    /// Index of the sample type.
    pub(super) column: usize,
    pub(super) measure: JeprofMeasure,
    /// The names of the threads to report, or one `None` for all threads together.
    pub(super) threads: Vec<Option<String>>,
    /// The total of each thread, before any filter.
    pub(super) totals: Vec<i128>,
    pub(super) tool: PerlTool,
}

impl PreparedReport {
    /// Reads and prepares the profile. `flags` are flags of pprof with the same meaning as the
    /// options.
    pub(super) fn new(
        host: &dyn DropinHost,
        flags: &[String],
        typed: &JeprofArguments,
        tool: PerlTool,
    ) -> Result<Self> {
        let reader = pprof::ToolReader {
            how: ToolReadOptions {
                convert: read_as_jeprof,
                stacks_as_written: false,
                threads_as_counted: typed.is_on("thread"),
            },
            name_unsymbolized: name_unnamed_by_number,
        };
        let loaded = pprof::load_all_frames(host, flags, reader)?;
        let measure = measure(&loaded.profile, loaded.column, typed);
        let names = NameShortener::new(typed.is_on("no_strip_temp"))?;
        let mut stacks = JeprofStacks::new(loaded.profile, tool, &names);
        let wanted = typed.text("thread");
        let threads = match wanted {
            "" => {
                stacks.remove_labels();
                vec![None]
            }
            wanted => stacks.threads(wanted).into_iter().map(Some).collect(),
        };
        match (wanted, &threads[..]) {
            ("*", []) => bail!("--thread: the profile does not tell threads apart"),
            (_, []) => bail!("--thread={wanted}: the profile has no such thread"),
            _ => {}
        }
        if typed.is_on("drop_negative") && typed.is_on("base") {
            stacks.merge_equal()?;
            stacks.drop_negative();
        }
        let totals = stacks.sums(loaded.column, threads.len());
        stacks.cut_allocator();
        stacks.filter(&filters(typed)?);
        Ok(Self {
            stacks,
            column: loaded.column,
            measure,
            threads,
            totals,
            tool,
        })
    }

    /// Returns the stacks of the thread at a position.
    pub(super) fn stacks_of_thread(&self, place: usize) -> Cow<'_, JeprofStacks> {
        if self.threads.len() < 2 {
            return Cow::Borrowed(&self.stacks);
        }
        let mut stacks = self.stacks.clone();
        stacks.keep_thread(place);
        Cow::Owned(stacks)
    }
}

/// Compiles the filters of the command line.
fn filters(typed: &JeprofArguments) -> Result<StackFilters> {
    let filter = |name: &str| -> Result<Option<Regex>> {
        let text = typed.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let regex = Regex::new(text);
        regex
            .map(Some)
            .map_err(|error| anyhow!("--{name} {text:?}: {}", regex_error(&error)))
    };
    Ok(StackFilters {
        focus: filter("focus")?,
        ignore: filter("ignore")?,
        retain: filter("retain")?,
        exclude: filter("exclude")?,
    })
}

/// Returns how the values of a column are shown.
fn measure(profile: &Profile, column: usize, typed: &JeprofArguments) -> JeprofMeasure {
    let unit = profile.text(profile.sample_type[column].unit);
    let r#type = profile.text(profile.sample_type[column].r#type);
    match unit {
        "bytes" if typed.is_on("show_bytes") => JeprofMeasure::Bytes,
        "bytes" => JeprofMeasure::Megabytes,
        "nanoseconds" if r#type.contains("delay") => JeprofMeasure::Seconds,
        _ if r#type.ends_with("objects") => JeprofMeasure::Objects,
        _ => JeprofMeasure::Samples,
    }
}
