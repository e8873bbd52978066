//! Table of all flags of pprof: name, kind of value, default, help.

use crate::kind::FlagKind;

/// The section of the help that lists a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagGroup {
    /// Output formats. Only one flag of this group is allowed.
    Format,
    /// Formats that are shown in another program. They count as output formats, too.
    Shown,
    /// Flags that control the content and look of a report.
    Display,
    /// Order of rows. Only one flag of this group is allowed.
    Sort,
    /// Granularity of rows. Only one flag of this group is allowed.
    Granularity,
    /// Flags that select samples and frames.
    Filter,
    /// Flags about the sources of profiles and symbols.
    Source,
    /// Short forms of other flags.
    Short,
}

/// A flag of pprof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PprofFlag {
    /// The name without its dash.
    pub(crate) name: &'static str,
    pub(crate) kind: FlagKind,
    /// The default value, as text.
    pub(crate) default: &'static str,
    pub(crate) group: FlagGroup,
    pub(crate) help: &'static str,
}

const fn flag(
    group: FlagGroup,
    kind: FlagKind,
    name: &'static str,
    default: &'static str,
    help: &'static str,
) -> PprofFlag {
    PprofFlag {
        name,
        kind,
        default,
        group,
        help,
    }
}

use FlagGroup::{Display, Filter, Format, Granularity, Short, Shown, Sort, Source};
use FlagKind::{Bool, Float, Int, Regex, Text};

/// All flags of pprof.
#[rustfmt::skip]
const PPROF_FLAGS: &[PprofFlag] = &[
    flag(Format, Bool, "top", "false", "Functions by their values"),
    flag(Format, Bool, "text", "false", "The same as -top"),
    flag(Format, Bool, "tree", "false", "Each function with its callers and callees"),
    flag(Format, Regex, "peek", "", "Like -tree, but only functions that match"),
    flag(Format, Regex, "list", "", "Source lines of functions that match"),
    flag(Format, Regex, "disasm", "", "Instructions of functions that match (needs objdump, nm)"),
    flag(Format, Bool, "traces", "false", "Each sample with its stack"),
    flag(Format, Bool, "tags", "false", "Labels and their values"),
    flag(Format, Bool, "raw", "false", "Everything in the profile"),
    flag(Format, Bool, "comments", "false", "The profile's comments"),
    flag(Format, Bool, "dot", "false", "The call graph for Graphviz"),
    flag(Format, Bool, "svg", "false", "The call graph as SVG (needs Graphviz)"),
    flag(Format, Bool, "png", "false", "The call graph as PNG (needs Graphviz)"),
    flag(Format, Bool, "gif", "false", "The call graph as GIF (needs Graphviz)"),
    flag(Format, Bool, "pdf", "false", "The call graph as PDF (needs Graphviz)"),
    flag(Format, Bool, "ps", "false", "The call graph as PostScript (needs Graphviz)"),
    flag(Format, Bool, "callgrind", "false", "For KCachegrind"),
    flag(Format, Bool, "proto", "false", "The profile, filtered, as a profile"),
    flag(Format, Bool, "topproto", "false", "The rows of -top as a profile"),

    flag(Shown, Bool, "web", "false", "The call graph in a browser"),
    flag(Shown, Regex, "weblist", "", "Source lines and instructions in a browser"),
    flag(Shown, Bool, "eog", "false", "The call graph in eog"),
    flag(Shown, Bool, "evince", "false", "The call graph in evince"),
    flag(Shown, Bool, "gv", "false", "The call graph in gv"),
    flag(Shown, Bool, "kcachegrind", "false", "The call graph in KCachegrind"),
    flag(Shown, Text, "http", "", "[HOST]:[PORT] for heapprof's page; this machine only"),
    flag(Shown, Bool, "no_browser", "false", "Goes with -http"),

    flag(Display, Text, "output", "", "File to write to instead of stdout"),
    flag(Display, Text, "sample_index", "", "Which value of samples: its type or position from 0"),
    flag(Display, Text, "unit", "minimum", "Unit to show: minimum, auto, bytes, kb, mb, ns, ms, s, ..."),
    flag(Display, Float, "divide_by", "1", "Divide all values by this"),
    flag(Display, Bool, "mean", "false", "Divide by the first value of samples, the count"),
    flag(Display, Bool, "normalize", "false", "Scale the profile to the base's totals"),
    flag(Display, Bool, "compact_labels", "false", "Fewer lines above the report"),
    flag(Display, Bool, "call_tree", "false", "A tree by call paths (-dot and images, -callgrind)"),
    flag(Display, Bool, "relative_percentages", "false", "Percentages of what the filters keep"),
    flag(Display, Text, "source_path", "", "Folders with sources, separated by colons"),
    flag(Display, Text, "trim_path", "", "Prefixes to cut off file names, separated by colons"),
    flag(Display, Bool, "intel_syntax", "false", "Goes with -disasm and -weblist"),

    flag(Sort, Bool, "flat", "false", "By a function's own values (default)"),
    flag(Sort, Bool, "cum", "false", "By values that include all that a function called"),

    flag(Granularity, Bool, "functions", "false", "By function (default)"),
    flag(Granularity, Bool, "filefunctions", "false", "By function and file"),
    flag(Granularity, Bool, "files", "false", "By file"),
    flag(Granularity, Bool, "lines", "false", "By line"),
    flag(Granularity, Bool, "addresses", "false", "By address"),

    flag(Filter, Int, "nodecount", "-1", "Show at most this many functions; -1: all for -top, 80 \
                                          for graphs"),
    flag(Filter, Float, "nodefraction", "0.005", "Hide functions below this share of the total"),
    flag(Filter, Float, "edgefraction", "0.001", "Hide edges below this share of the total"),
    flag(Filter, Bool, "trim", "true", "Obey nodecount, nodefraction, edgefraction; =false shows \
                                        all"),
    flag(Filter, Bool, "drop_negative", "false", "Hide functions with values below 0"),
    flag(Filter, Text, "focus", "", "Keep only samples with a match"),
    flag(Filter, Text, "ignore", "", "Leave out samples with a match"),
    flag(Filter, Text, "prune_from", "", "Cut what is below a match"),
    flag(Filter, Text, "hide", "", "Leave matching functions out of stacks"),
    flag(Filter, Text, "show", "", "Keep only matching functions in stacks"),
    flag(Filter, Text, "show_from", "", "Cut what is above the highest match"),
    flag(Filter, Text, "tagfocus", "", "Keep only samples with such a label: [key=]regex or range"),
    flag(Filter, Text, "tagignore", "", "Leave out samples with such a label"),
    flag(Filter, Text, "tagshow", "", "Show only labels whose key matches"),
    flag(Filter, Text, "taghide", "", "Leave out labels whose key matches"),
    flag(Filter, Text, "tagroot", "", "Keys of labels (K1,K2) that become frames at the root"),
    flag(Filter, Text, "tagleaf", "", "Keys of labels (K1,K2) that become frames at the leaf"),
    flag(Filter, Bool, "noinlines", "false", "Count inlined functions as their caller"),
    flag(Filter, Bool, "showcolumns", "false", "Show columns beside line numbers"),
    flag(Filter, Bool, "all_frames", "false", "Ignore the profile's drop_frames and keep_frames"),

    flag(Source, Text, "base", "", "Profile to subtract"),
    flag(Source, Text, "diff_base", "", "Profile to compare with; percentages are of it"),
    flag(Source, Int, "seconds", "-1", "How many seconds a server should collect"),
    flag(Source, Int, "timeout", "-1", "Seconds to wait for a server"),
    flag(Source, Text, "add_comment", "", "Comment to add"),
    flag(Source, Text, "buildid", "", "Build id of the main binary, if it has none"),
    flag(Source, Text, "symbolize", "", "none, local, fastlocal, remote, force, demangle=MODE; \
                                         with colons between"),
    flag(Source, Text, "tools", "", "Folders of objdump, nm, ...: [TOOL:]FOLDER,...; default: \
                                    PPROF_TOOLS, PATH"),
    flag(Source, Text, "tls_cert", "", "Client certificate for servers"),
    flag(Source, Text, "tls_key", "", "Its private key"),
    flag(Source, Text, "tls_ca", "", "Certificates of authorities to trust"),

    flag(Short, Bool, "inuse_space", "false", "-sample_index=inuse_space"),
    flag(Short, Bool, "inuse_objects", "false", "-sample_index=inuse_objects"),
    flag(Short, Bool, "alloc_space", "false", "-sample_index=alloc_space"),
    flag(Short, Bool, "alloc_objects", "false", "-sample_index=alloc_objects"),
    flag(Short, Bool, "total_delay", "false", "-sample_index=delay"),
    flag(Short, Bool, "contentions", "false", "-sample_index=contentions"),
    flag(Short, Bool, "mean_delay", "false", "-mean -sample_index=delay"),
];

/// Returns the flag with this name.
pub(crate) fn find_flag(name: &str) -> Option<&'static PprofFlag> {
    PPROF_FLAGS.iter().find(|flag| flag.name == name)
}

/// Returns the flags of a group.
pub(crate) fn flags_in_group(group: FlagGroup) -> impl Iterator<Item = &'static PprofFlag> {
    PPROF_FLAGS.iter().filter(move |flag| flag.group == group)
}

const FLAG_GROUPS: [(FlagGroup, &str); 8] = [
    (Format, "Formats, at most one; without one, the shell opens"),
    (Shown, "Formats that another program shows"),
    (Sort, "Order"),
    (Granularity, "What a row is"),
    (Display, "Display"),
    (Filter, "Filters"),
    (Source, "Sources and symbols"),
    (Short, "Short forms"),
];

/// Returns the help of `heapprof pprof` that follows its usage.
pub fn help() -> String {
    format!(
        "SOURCE is a profile: a file, a URL, or HOST:PORT/PATH of a server. Several are added up. \
         BINARY is the program, if the profile does not name it.\n\n{}\n\nExit code: 0 done, 2 it \
         could not be done.\n\nExample: heapprof pprof -top -cum -nodecount=10 profile.pb.gz",
        flags()
    )
}

/// Returns all flags with their help, one on each line.
fn flags() -> String {
    let mut text = String::new();
    for (group, title) in FLAG_GROUPS {
        text += &format!("{title}:\n");
        for flag in flags_in_group(group) {
            let name = format!("-{}{}", flag.name, flag.kind.value());
            text += &format!("  {name:<22} {}\n", flag.help);
        }
        text.push('\n');
    }
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_fit() {
        for (i, flag) in PPROF_FLAGS.iter().enumerate() {
            assert_eq!(
                PPROF_FLAGS.iter().position(|f| f.name == flag.name),
                Some(i)
            );
            match flag.kind {
                Bool => assert!(flag.default.parse::<bool>().is_ok(), "{}", flag.name),
                Int => assert!(flag.default.parse::<i64>().is_ok(), "{}", flag.name),
                Float => assert!(flag.default.parse::<f64>().is_ok(), "{}", flag.name),
                Text | Regex => {}
            }
            assert!(
                flags().contains(&format!("  -{}", flag.name)),
                "{}",
                flag.name
            );
        }
    }
}
