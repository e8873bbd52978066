//! Prints the report: computes options as pprof's driver does, filters, aggregates, prints.

use std::io::Write;
use std::path::Path;

use crate::graph;
use crate::report::{self, ListingOrder, PprofReportOptions, ReportTimeZone};
use crate::reshape::{self, LabelUnits};
use anyhow::{Result, anyhow, bail};
use heapprof_profile::Profile;
use heapprof_text::{ControlReplacement, escaping};

use super::config::PprofConfig;
use super::profile_copy::{FileReaders, create_numbered};
use super::viewers::ShownFile;
use super::{filters, image, listings, viewers};

/// Filters the profile and prints the requested report, or shows it in a viewer, which gets the
/// file `shown`.
pub(super) fn report(
    mut profile: Profile,
    config: &PprofConfig<'_>,
    shown: Option<&ShownFile>,
) -> Result<()> {
    let options = prepare(&mut profile, config)?;
    let file = config.flags.text("output");
    if let Some(shown) = shown {
        let mut report = Vec::new();
        print(profile, config.format, &options, config, &mut report)?;
        return viewers::show(config, shown, &report);
    }
    let is_dialogue = config.is_shell || config.host.is_terminal();
    if file.is_empty() && is_dialogue && !file_extension(config.format).is_empty() {
        // This format is not for a terminal, so the report goes into a new file in the current
        // folder.
        let mut report = Vec::new();
        print(profile, config.format, &options, config, &mut report)?;
        let extension = file_extension(config.format);
        let (path, file) =
            create_numbered(Path::new(""), "profile", extension, FileReaders::Umask)?;
        config.note(&format!("Generating report in {}", path.display()));
        let name = path.display().to_string();
        return config
            .host
            .write_into(&name, file, Box::new(|out| Ok(out.write_all(&report)?)));
    }
    if !file.is_empty() {
        config.note(&format!("Generating report in {file}"));
    }
    let file = (!file.is_empty()).then(|| config.host.path(file));
    let body = |out: &mut dyn Write| print(profile, config.format, &options, config, out);
    config.host.write(file.as_deref(), Box::new(body))
}

/// Returns the lines that describe the profile, and the total of the sample type.
pub(super) fn profile_labels(
    profile: &Profile,
    config: &PprofConfig<'_>,
) -> Result<(Vec<String>, i64)> {
    let units = reshape::label_units(profile);
    let options = options(profile, &units, &NodeLimits::new(config), config)?;
    let labels = report::profile_labels(profile, &options, &options.values());
    Ok((labels, options.total))
}

/// Filters and aggregates the profile for the report that `config` requests. Returns the options of
/// the report.
pub(super) fn prepare(
    profile: &mut Profile,
    config: &PprofConfig<'_>,
) -> Result<PprofReportOptions> {
    let units = reshape::label_units(profile);
    for (key, ignored) in &units.ignored {
        let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
        config.note(&format!(
            "For tag {key} used unit {}, also encountered unit(s) {}",
            units.units[key],
            ignored.join(", ")
        ));
    }
    let limits = NodeLimits::new(config);
    filters::label_frames(profile, config);
    let relative = config.flags.is_on("relative_percentages");
    if relative {
        filters::apply(profile, &units, config)?;
    }
    let options = options(profile, &units, &limits, config)?;
    if !relative {
        filters::apply(profile, &units, config)?;
    }
    filters::aggregate(profile, limits.granularity, config);
    Ok(options)
}

/// Returns the file name extension for a format; empty for a format that may be shown in a
/// terminal.
fn file_extension(format: &str) -> &'static str {
    match format {
        "callgrind" => ".callgraph.out",
        "proto" | "topproto" => ".pb.gz",
        "svg" => ".svg",
        "png" => ".png",
        "gif" => ".gif",
        "pdf" => ".pdf",
        "ps" => ".ps",
        _ => "",
    }
}

/// Prints the report. Its bytes are pprof's, except that control characters in texts are replaced.
pub(super) fn print(
    profile: Profile,
    format: &str,
    options: &PprofReportOptions,
    config: &PprofConfig<'_>,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        "proto" => Ok(report::proto(profile, options, out)?),
        "topproto" => Ok(report::topproto(&profile, options, out)?),
        "svg" | "png" | "gif" | "pdf" | "ps" | "web" | "eog" | "evince" | "gv" => {
            let mut graph = Vec::new();
            print(profile, "dot", options, config, &mut graph)?;
            Ok(out.write_all(&image::draw(&graph, format)?)?)
        }
        format => escaping(out, ControlReplacement::Replacement, |out| {
            text(profile, format, options, config, out)
        }),
    }
}

fn text(
    profile: Profile,
    format: &str,
    options: &PprofReportOptions,
    config: &PprofConfig<'_>,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        "raw" => report::raw(&profile, &options.zone, out)?,
        "traces" => report::traces(&profile, options, out)?,
        "tags" => report::tags(&profile, options, out)?,
        "comments" => report::comments(&profile, out)?,
        "text" | "top" => report::top(&profile, options, out)?,
        "tree" | "peek" => report::tree(&profile, options, out)?,
        "callgrind" | "kcachegrind" => report::callgrind(&profile, options, out)?,
        "list" => listings::list(&profile, options, out)?,
        "disasm" => listings::disasm(&profile, options, ListingOrder::Name, config, out)?,
        "weblist" => listings::weblist(&profile, options, config, out)?,
        _ => report::dot(&profile, options, out)?,
    }
    Ok(())
}

/// The granularity and the limits on nodes and edges, computed from format and flags.
struct NodeLimits {
    granularity: &'static str,
    node_count: usize,
    node_fraction: f64,
    edge_fraction: f64,
}

impl NodeLimits {
    fn new(config: &PprofConfig<'_>) -> Self {
        let flags = &config.flags;
        let node_count = match (flags.int("nodecount"), config.format) {
            (-1, "text" | "top" | "topproto") => 0,
            (-1, _) => 80,
            (count, _) => usize::try_from(count).unwrap_or(0),
        };
        let granularity = match config.format {
            "list" => "lines",
            "disasm" | "weblist" | "proto" | "raw" | "callgrind" | "kcachegrind" => "addresses",
            _ => config.granularity,
        };
        let whole = matches!(
            config.format,
            "peek" | "list" | "disasm" | "weblist" | "proto" | "raw" | "callgrind" | "kcachegrind"
        );
        match flags.is_on("trim") && !whole {
            true => Self {
                granularity,
                node_count,
                node_fraction: flags.float("nodefraction"),
                edge_fraction: flags.float("edgefraction"),
            },
            false => Self {
                granularity,
                node_count: 0,
                node_fraction: 0.0,
                edge_fraction: 0.0,
            },
        }
    }
}

/// Flags of the filters that the header of a report lists.
const REPORTED_FILTERS: [&str; 9] = [
    "focus",
    "ignore",
    "hide",
    "show",
    "show_from",
    "tagfocus",
    "tagignore",
    "tagshow",
    "taghide",
];

fn options(
    profile: &Profile,
    units: &LabelUnits,
    limits: &NodeLimits,
    config: &PprofConfig<'_>,
) -> Result<PprofReportOptions> {
    let flags = &config.flags;
    let column = column(profile, &config.sample_index)?;
    let mean_divisor = config.mean.then_some(0);
    let divide_by = flags.float("divide_by");
    if divide_by == 0.0 {
        bail!("zero divisor specified");
    }
    let symbol = match &config.about {
        None => None,
        Some(text) => Some(
            filters::compile(text).map_err(|why| anyhow!("-{} {text:?}: {why}", config.format))?,
        ),
    };
    let r#type = profile.sample_type[column];
    let name = profile.text(r#type.r#type);
    let named = REPORTED_FILTERS.iter().map(|name| (name, flags.text(name)));
    let named = named.filter(|(_, text)| !text.is_empty());
    Ok(PprofReportOptions {
        cum_sort: config.cum_sort,
        call_tree: flags.is_on("call_tree"),
        drop_negative: flags.is_on("drop_negative"),
        compact_labels: flags.is_on("compact_labels"),
        ratio: 1.0 / divide_by,
        active_filters: named.map(|(name, text)| format!("{name}={text}")).collect(),
        num_label_units: units.units.clone(),
        node_count: limits.node_count,
        node_fraction: limits.node_fraction,
        edge_fraction: limits.edge_fraction,
        column,
        mean_divisor,
        sample_type: match config.mean {
            true => format!("mean_{name}"),
            false => name.to_string(),
        },
        sample_unit: profile.text(r#type.unit).to_string(),
        output_unit: flags.text("unit").to_string(),
        total: match config.format {
            // These formats show no total, so a total beyond 64 bits does not matter.
            "raw" | "proto" | "comments" => 0,
            _ => total(config, profile, column, mean_divisor),
        },
        intel_syntax: flags.is_on("intel_syntax"),
        symbol,
        source_path: flags.text("source_path").to_string(),
        trim_path: flags.text("trim_path").to_string(),
        zone: ReportTimeZone::from_tz(std::env::var("TZ").ok().as_deref()),
    })
}

/// Returns the total for percentages. A sum beyond 64 bits wraps, as in pprof, and a note tells the
/// user.
fn total(
    config: &PprofConfig<'_>,
    profile: &Profile,
    column: usize,
    mean_divisor: Option<usize>,
) -> i64 {
    if !graph::fits(profile, column) {
        config.note(&format!(
            "the total of {} does not fit in 64 bits, so none of its numbers can be trusted; as in \
             pprof, sums wrap around",
            profile.text(profile.sample_type[column].r#type)
        ));
    }
    graph::total(profile, column, mean_divisor)
}

/// Returns the index of the sample type whose number or name is `index`. If `index` is empty,
/// returns the profile's default type, or the last type if there is no default.
pub(super) fn column(profile: &Profile, index: &str) -> Result<usize> {
    let types = profile.type_names();
    let Some(last) = types.len().checked_sub(1) else {
        bail!("profile has no samples");
    };
    if index.is_empty() {
        let default = profile.text(profile.default_sample_type);
        let default = types
            .iter()
            .position(|t| !default.is_empty() && *t == default);
        return Ok(default.unwrap_or(last));
    }
    if let Ok(number) = index.parse::<i64>() {
        return match usize::try_from(number) {
            Ok(number) if number <= last => Ok(number),
            _ => bail!("sample_index {index} is outside the range [0..{last}]"),
        };
    }
    // The old name `space` stands for `inuse_space`.
    let bare = index.strip_prefix("inuse_").unwrap_or(index);
    let found = types.iter().position(|t| *t == index || *t == bare);
    found.ok_or_else(|| {
        anyhow!(
            "sample_index {index:?} must be one of: [{}]",
            types.join(" ")
        )
    })
}
