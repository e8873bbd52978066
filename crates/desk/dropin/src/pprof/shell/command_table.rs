//! The commands of the shell that print a report, and what the help says about them.

/// The words that follow a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandWords {
    /// The command has no words of its own.
    None,
    /// `[n] [focus]* [-ignore]*`; rows can be sorted.
    Rows,
    /// `[n] [focus]* [-ignore]*`.
    Graph,
    /// A regular expression for functions, then words as for a graph.
    Functions,
    /// Words that select labels.
    Labels,
}

/// A command that prints or shows a report. Its name is also the name of the flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportCommand {
    pub(super) name: &'static str,
    words: CommandWords,
    help: &'static str,
    /// Whether the report is shown in another program, so that no file is named.
    is_shown: bool,
}

const fn printed(name: &'static str, words: CommandWords, help: &'static str) -> ReportCommand {
    ReportCommand {
        name,
        words,
        help,
        is_shown: false,
    }
}

const fn shown(name: &'static str, words: CommandWords, help: &'static str) -> ReportCommand {
    ReportCommand {
        name,
        words,
        help,
        is_shown: true,
    }
}

use CommandWords::{Functions, Graph, Labels, None as NoWords, Rows};

/// All commands, sorted by name.
#[rustfmt::skip]
const REPORT_COMMANDS: [ReportCommand; 25] = [
    printed("callgrind", Graph, "Write the call graph for KCachegrind into a file"),
    printed("comments", NoWords, "Print the profile's comments"),
    printed("disasm", Functions, "Print the instructions of functions with their values"),
    printed("dot", Graph, "Print the call graph for Graphviz"),
    shown("eog", Graph, "Show the call graph in eog"),
    shown("evince", Graph, "Show the call graph in evince"),
    printed("gif", Graph, "Write the call graph as GIF into a file"),
    shown("gv", Graph, "Show the call graph in gv"),
    shown("kcachegrind", Graph, "Show the call graph in KCachegrind"),
    printed("list", Functions, "Print the source lines of functions with their values"),
    printed("pdf", Graph, "Write the call graph as PDF into a file"),
    printed("peek", Functions, "Print the callers and callees of functions"),
    printed("png", Graph, "Write the call graph as PNG into a file"),
    printed("proto", NoWords, "Write the profile, filtered, into a file"),
    printed("ps", Graph, "Write the call graph as PostScript into a file"),
    printed("raw", NoWords, "Print everything in the profile"),
    printed("svg", Graph, "Write the call graph as SVG into a file"),
    printed("tags", Labels, "Print labels and their values"),
    printed("text", Rows, "Print functions by their values"),
    printed("top", Rows, "Print functions by their values"),
    printed("topproto", NoWords, "Write the rows of top as a profile into a file"),
    printed("traces", NoWords, "Print each sample with its stack"),
    printed("tree", Rows, "Print each function with its callers and callees"),
    shown("web", Graph, "Show the call graph in a browser"),
    shown("weblist", Functions, "Show source lines and instructions in a browser"),
];

impl ReportCommand {
    /// Returns the command with this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        REPORT_COMMANDS.iter().find(|command| command.name == name)
    }

    /// Returns all commands, sorted by name.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        REPORT_COMMANDS.iter()
    }

    /// Whether the command's first word is a regular expression for functions.
    pub(super) fn takes_functions(&self) -> bool {
        self.words == Functions
    }

    /// Whether the words of the command name functions, so that they are completed.
    pub(super) fn names_functions(&self) -> bool {
        self.words != Labels
    }

    /// Returns what the command does, in one line.
    pub(super) fn summary(&self) -> &'static str {
        self.help
    }

    /// Returns the whole help of the command.
    pub(super) fn help(&self) -> String {
        let file = if self.is_shown { "" } else { " [>FILE]" };
        let words = match self.words {
            NoWords => format!("  {}{file}", self.name),
            Rows => format!("  {} [N] [FOCUS]... [-IGNORE]... [-cum]{file}", self.name),
            Graph => format!("  {} [N] [FOCUS]... [-IGNORE]...{file}", self.name),
            Functions => format!("  {} FUNCTION [FOCUS]... [-IGNORE]...{file}", self.name),
            Labels => format!("  {} [LABEL]... [-LABEL]...{file}", self.name),
        };
        let mut help = format!("{}\n{words}\n", self.help);
        let explained: &[&str] = match self.words {
            NoWords => &[],
            Rows => &[
                NODE_LIMIT,
                FOCUS,
                "-cum sorts by what a function and its callees have.",
            ],
            Graph => &[NODE_LIMIT, FOCUS],
            Functions => &[
                "FUNCTION is a regular expression, or an address in hexadecimal.",
                FOCUS,
            ],
            Labels => &["LABEL selects labels as tagfocus does, and -LABEL as tagignore does."],
        };
        for line in explained {
            help += &format!("    {line}\n");
        }
        if !self.is_shown {
            help += "    >FILE writes the report into a file.\n";
        }
        help
    }
}

const NODE_LIMIT: &str = "N is the largest number of functions.";
const FOCUS: &str =
    "FOCUS and IGNORE are regular expressions for samples to keep and to leave out.";
