//! Suggests a command to a user who typed a word that is no command: a word of another tool, or a
//! typing error.

use crate::args::{cli_command, current_name, old_names};

/// The commands of pprof, heaptrack, massif, perf and other tools, with heapprof's own for them.
const FOREIGN_COMMANDS: &[(&str, &str)] = &[
    ("addr2line", "symbolize"),
    ("analyze", "top"),
    ("annotate", "list"),
    ("callees", "peek"),
    ("callers", "peek"),
    ("callgraph", "tree"),
    ("callgrind", "convert --to callgrind"),
    ("calltree", "tree"),
    ("collapse", "convert --to folded"),
    ("compare", "diff"),
    ("delete", "db rm"),
    ("disasm", "list"),
    ("dot", "pprof -dot"),
    ("doctor", "why"),
    ("dumpheap", "dump"),
    ("explain", "why"),
    ("firefox", "convert --to firefox"),
    ("flamegraph", "flame"),
    ("folded", "convert --to folded"),
    ("functions", "top"),
    ("graph", "tree"),
    ("histogram", "stats"),
    ("gui", "web"),
    ("history", "timeline"),
    ("hotspots", "top"),
    ("icicle", "flame --root top"),
    ("labels", "tags"),
    ("memleak", "heap blocks"),
    ("parse", "convert"),
    ("print", "top"),
    ("profile", "record"),
    ("query", "sql"),
    ("remove", "db rm"),
    ("run", "record"),
    ("source", "list"),
    ("speedscope", "convert --to speedscope"),
    ("stacks", "traces"),
    ("stat", "stats"),
    ("summary", "stats"),
    ("svg", "flame"),
    ("symbols", "symbolize"),
    ("table", "top"),
    ("text", "top"),
    ("trace", "record"),
    ("transform", "convert"),
    ("weblist", "list"),
];

/// Returns advice about a word that is not a command.
pub(crate) fn suggest_command(typed: &str) -> Option<String> {
    let plain: String = typed.to_lowercase().replace(['-', '_'], "");
    if let Some((_, ours)) = FOREIGN_COMMANDS.iter().find(|(word, _)| *word == plain) {
        return Some(format!("here that is heapprof {}", current_name(ours)));
    }
    let cli = cli_command();
    let commands = cli.get_subcommands().map(|command| command.get_name());
    let near = commands
        .chain(old_names())
        .map(|name| (name, name))
        .chain(FOREIGN_COMMANDS.iter().copied())
        .map(|(word, ours)| (strsim::damerau_levenshtein(word, &plain), word, ours))
        .filter(|&(slips, word, _)| slips <= if word.len() < 5 { 1 } else { 2 })
        // Among equally near words heapprof's own comes first.
        .min_by_key(|&(slips, word, ours)| (slips, word != ours));
    near.map(|(_, _, ours)| format!("perhaps heapprof {}", current_name(ours)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_and_slips_lead_to_our_commands() {
        for (typed, expected) in [
            ("tpo", "perhaps heapprof top"),
            ("tops", "perhaps heapprof top"),
            ("summary", "here that is heapprof info stats"),
            ("reprot", "perhaps heapprof report"),
            ("call-tree", "here that is heapprof tree"),
            ("recrod", "perhaps heapprof record"),
            ("leak", "perhaps heapprof leaks"),
            ("dif", "perhaps heapprof diff"),
            ("flmae", "perhaps heapprof flame"),
            ("symbolise", "perhaps heapprof convert symbolize"),
            ("LS", "perhaps heapprof db ls"),
        ] {
            assert_eq!(suggest_command(typed).as_deref(), Some(expected), "{typed}");
        }
        assert_eq!(suggest_command("bananas"), None);
    }

    #[test]
    fn each_word_leads_to_a_command() {
        let cli = cli_command();
        for (word, ours) in FOREIGN_COMMANDS {
            let command = current_name(ours).split(' ').next().unwrap_or_default();
            assert!(cli.find_subcommand(command).is_some(), "{word}: {ours}");
            assert!(cli.find_subcommand(word).is_none(), "{word} is one");
        }
    }
}
