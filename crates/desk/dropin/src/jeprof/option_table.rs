//! Table of all options of jeprof: name, kind of value, handling, help.

use super::tool::PerlTool;
use crate::kind::FlagKind;
use FlagKind::{Bool, Float, Int, Text};

/// How an option is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionHandling {
    /// Chooses an output format. Only one option of this kind is allowed.
    Output,
    /// Handled by the `jeprof` module itself.
    Here,
    /// Passed on to the `pprof` module, under the same name.
    Passed,
    /// Controls how jeprof finds symbols or draws. Such an option has no effect here.
    NoEffect,
    /// Not supported. The text names an alternative.
    Instead(&'static str),
}

use OptionHandling::{Here, Instead, NoEffect, Output, Passed};

const STACKS_MESSAGE: &str = "--collapsed prints stacks, and heapprof tree traces shows them";

/// An option of jeprof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JeprofOption {
    /// The name without its dashes.
    pub(crate) name: &'static str,
    pub(crate) kind: FlagKind,
    pub(crate) fate: OptionHandling,
    /// The help text; empty for an option that the help does not list.
    help: &'static str,
    /// The only script that has the option. `None` if both have it.
    only: Option<PerlTool>,
}

impl JeprofOption {
    /// Whether a script has the option.
    pub(crate) fn is_of(&self, tool: PerlTool) -> bool {
        self.only.is_none_or(|only| only == tool)
    }

    const fn only(mut self, tool: PerlTool) -> Self {
        self.only = Some(tool);
        self
    }
}

const fn option(
    name: &'static str,
    kind: FlagKind,
    fate: OptionHandling,
    help: &'static str,
) -> JeprofOption {
    JeprofOption {
        name,
        kind,
        fate,
        help,
        only: None,
    }
}

/// All options of both scripts.
#[rustfmt::skip]
pub(crate) const JEPROF_OPTIONS: &[JeprofOption] = &[
    option("text", Bool, Output, "Functions by their values (default if stdout is no terminal)"),
    option("collapsed", Bool, Output, "Stacks on one line each, for flame graphs"),
    option("interactive", Bool, Output, "A shell that reads commands (default on a terminal)"),
    option("list", Text, Output, "Source lines of functions that match"),
    option("disasm", Text, Output, "Instructions of functions that match (needs nm, objdump)"),
    option("gv", Bool, Output, "The call graph, shown by gv (needs Graphviz)"),
    option("evince", Bool, Output, "The call graph, shown by evince (needs Graphviz)"),
    option("web", Bool, Output, "The call graph, shown by a browser (needs Graphviz)"),
    option("dot", Bool, Output, "The call graph for Graphviz"),
    option("svg", Bool, Output, "The call graph as SVG (needs Graphviz)"),
    option("gif", Bool, Output, "The call graph as GIF (needs Graphviz)"),
    option("pdf", Bool, Output, "The call graph as PDF (needs Graphviz)"),
    option("ps", Bool, Output, "The call graph as PostScript (needs Graphviz)"),
    option("callgrind", Bool, Output, "For KCachegrind"),
    option("cum", Bool, Here, "Sort by values that include all that a function called"),
    option("base", Text, Passed, "Profile to subtract"),
    option("drop_negative", Bool, Here, "Count what shrank since the base as 0"),
    option("functions", Bool, Passed, "By function (default)"),
    option("lines", Bool, Passed, "By line"),
    option("addresses", Bool, Passed, "By address"),
    option("files", Bool, Passed, "By file"),
    option("inuse_space", Bool, Passed, "Bytes in use (default)"),
    option("inuse_objects", Bool, Passed, "Objects in use"),
    option("alloc_space", Bool, Passed, "Bytes ever allocated"),
    option("alloc_objects", Bool, Passed, "Objects ever allocated"),
    option("show_bytes", Bool, Here, "Show bytes instead of megabytes"),
    option("focus", Text, Here, "Keep only stacks with a match"),
    option("ignore", Text, Here, "Leave out stacks with a match"),
    option("retain", Text, Here, "Keep only matching functions in each stack")
        .only(PerlTool::Jeprof),
    option("exclude", Text, Here, "Leave matching functions out of each stack")
        .only(PerlTool::Jeprof),
    option("thread", Text, Here, "Show one thread, or each one with *").only(PerlTool::Jeprof),
    option("nodecount", Int, Passed, "Show at most this many functions in a graph"),
    option("nodefraction", Float, Passed, "Hide functions below this share in a graph"),
    option("edgefraction", Float, Passed, "Hide edges below this share in a graph"),
    option("total_delay", Bool, Passed, "Delay in contention profiles"),
    option("contentions", Bool, Passed, "Number of delays"),
    option("mean_delay", Bool, Passed, "Mean delay"),
    option("seconds", Int, Passed, "How many seconds a server should collect"),
    option("help", Bool, Here, "This text"),
    option("version", Bool, Here, "Version"),
    option("show_addresses", Bool, Here, "Show addresses behind functions and lines")
        .only(PerlTool::GooglePprof),
    option("no_strip_temp", Bool, Here, "Keep template arguments in names")
        .only(PerlTool::GooglePprof),
    option("stacks", Bool, Instead(STACKS_MESSAGE), "").only(PerlTool::GooglePprof),
    option("no-auto-signal-frm", Bool, NoEffect, "").only(PerlTool::GooglePprof),
    option("symbols", Bool, Instead("heapprof convert symbolize gives a profile's addresses their names"), ""),
    option("raw", Bool, Instead("heapprof convert symbolize -o OUT.pb.gz FILE writes a profile that needs no program"), ""),
    option("test", Bool, Instead("heapprof's tests come with its source"), ""),
    option("maxdegree", Int, NoEffect, ""),
    option("scale", Int, NoEffect, ""),
    option("heapcheck", Bool, NoEffect, ""),
    option("add_lib", Text, NoEffect, ""),
    option("lib_prefix", Text, NoEffect, ""),
    option("tools", Text, NoEffect, ""),
    option("debug", Bool, NoEffect, ""),
    option("debug-syms-by-id", Bool, NoEffect, "").only(PerlTool::Jeprof),
];

/// Returns the help of `heapprof jeprof` that follows its usage.
pub fn help() -> String {
    help_of(PerlTool::Jeprof)
}

/// Returns the help of `heapprof google-pprof` that follows its usage.
pub fn google_pprof_help() -> String {
    help_of(PerlTool::GooglePprof)
}

fn help_of(tool: PerlTool) -> String {
    let mut text = "PROGRAM is the executable; profiles that name it, or hold symbols, need none. \
                    Several profiles are added up.\n\nOptions:\n"
        .to_string();
    for option in JEPROF_OPTIONS
        .iter()
        .filter(|option| !option.help.is_empty() && option.is_of(tool))
    {
        let name = format!("--{}{}", option.name, option.kind.value());
        text += &format!("  {name:<22} {}\n", option.help);
    }
    let command = tool.command();
    text + &format!(
        "\nExit code: 0 done, 2 it could not be done.\n\n\
         Example: heapprof {command} --text --cum profile.pb.gz"
    )
}
