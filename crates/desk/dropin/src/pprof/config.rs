//! The combined request of all flags: one format, one order, one granularity, one sample type.

use std::time::Instant;

use anyhow::{Result, bail};
use heapprof_symbolize::program::object_file;

use super::flags::PprofArguments;
use crate::host::DropinHost;
use crate::kind::FlagKind;
use crate::pprof::flag_table::{FlagGroup, flags_in_group};

/// A valid request, made from the command line or from a command of the shell.
#[derive(Clone)]
pub(super) struct PprofConfig<'h> {
    /// The program that reads profiles, writes reports and prints notes.
    pub(super) host: &'h dyn DropinHost,
    /// Name of the format's flag; `shell` or `http` if there is none.
    pub(super) format: &'static str,
    /// The format's regular expression, if the format takes one.
    pub(super) about: Option<String>,
    pub(super) granularity: &'static str,
    pub(super) cum_sort: bool,
    /// The sample type as typed. Empty means the profile's default.
    pub(super) sample_index: String,
    pub(super) mean: bool,
    /// The executable, if the command line names one before the sources.
    pub(super) binary: Option<String>,
    pub(super) sources: Vec<String>,
    pub(super) base: Option<String>,
    /// Whether the base stays visible and is marked (`-diff_base`).
    pub(super) diff: bool,
    /// Whether a command of the shell makes the request.
    pub(super) is_shell: bool,
    /// When outside tools are ended; `None` for never.
    pub(super) tool_deadline: Option<Instant>,
    /// The values of all flags, as they were parsed.
    pub(super) flags: PprofArguments,
}

/// Short flags for `-sample_index`, with the sample type of each. If several are used, the first
/// one in this list wins.
const SHORT_FORMS: [(&str, &str); 7] = [
    ("total_delay", "delay"),
    ("mean_delay", "delay"),
    ("contentions", "contentions"),
    ("inuse_space", "inuse_space"),
    ("inuse_objects", "inuse_objects"),
    ("alloc_space", "alloc_space"),
    ("alloc_objects", "alloc_objects"),
];

impl<'h> PprofConfig<'h> {
    pub(super) fn new(host: &'h dyn DropinHost, mut flags: PprofArguments) -> Result<Self> {
        for name in &flags.repeated {
            if matches!(*name, "base" | "diff_base") {
                host.note(&format!(
                    "-{name} is given more than once; the last one counts"
                ));
            }
        }
        let mut sources = std::mem::take(&mut flags.words);
        let is_binary = sources.len() > 1 && object_file(&host.path(&sources[0])).is_some();
        let binary = is_binary.then(|| sources.remove(0));
        let sort = one_of(&flags, FlagGroup::Sort)?;
        let granularity = one_of(&flags, FlagGroup::Granularity)?;
        let (format, about) = format(&flags)?;
        if flags.text("http").is_empty() && flags.is_on("no_browser") {
            bail!("-no_browser only makes sense with -http");
        }
        let sample_index = sample_index(host, &flags);
        let text = |name| Some(flags.text(name)).filter(|text| !text.is_empty());
        let (base, diff_base) = (text("base"), text("diff_base"));
        if base.is_some() && diff_base.is_some() {
            bail!("-base and -diff_base flags cannot both be specified");
        }
        let diff = diff_base.is_some();
        let base = base.or(diff_base).map(str::to_string);
        if flags.is_on("normalize") && base.is_none() {
            bail!("must have base profile to normalize by");
        }
        let format = match format {
            Some(format) => format,
            None if flags.text("http").is_empty() => "shell",
            None => "http",
        };
        Ok(Self {
            host,
            format,
            about,
            granularity: granularity.unwrap_or(""),
            cum_sort: sort == Some("cum"),
            sample_index,
            mean: flags.is_on("mean") || flags.is_on("mean_delay"),
            binary,
            sources,
            base,
            diff,
            is_shell: false,
            tool_deadline: None,
            flags,
        })
    }

    /// Prints a note about the report. In the shell, it is a line of the dialogue.
    pub(super) fn note(&self, text: &str) {
        match self.is_shell {
            true => self.host.print_lines(text),
            false => self.host.note(text),
        }
    }
}

/// Returns the flag of a group that is turned on. Fails if several flags are on.
fn one_of(flags: &PprofArguments, group: FlagGroup) -> Result<Option<&'static str>> {
    let on: Vec<&str> = flags_in_group(group)
        .map(|f| f.name)
        .filter(|n| flags.is_on(n))
        .collect();
    match on[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => bail!("conflicting options set: [{}]", on.join(" ")),
    }
}

fn format(flags: &PprofArguments) -> Result<(Option<&'static str>, Option<String>)> {
    let mut chosen = None;
    for flag in flags_in_group(FlagGroup::Format).chain(flags_in_group(FlagGroup::Shown)) {
        let about = match flag.kind {
            FlagKind::Bool if flag.name != "no_browser" && flags.is_on(flag.name) => None,
            FlagKind::Regex if !flags.text(flag.name).is_empty() => Some(flags.text(flag.name)),
            _ => continue,
        };
        if chosen.is_some() {
            bail!("must set at most one output format");
        }
        chosen = Some((flag.name, about.map(str::to_string)));
    }
    if chosen.is_some() && !flags.text("http").is_empty() {
        bail!("-http is not compatible with an output format on the command line");
    }
    Ok(match chosen {
        Some((name, about)) => (Some(name), about),
        None => (None, None),
    })
}

fn sample_index(host: &dyn DropinHost, flags: &PprofArguments) -> String {
    let mut index = flags.text("sample_index").to_string();
    for (flag, r#type) in SHORT_FORMS {
        if !flags.is_on(flag) {
            continue;
        }
        match index.is_empty() {
            true => index = r#type.to_string(),
            false => host.note(&format!("Multiple value selections, ignoring -{flag}")),
        }
    }
    index
}
