//! What the shell says: its welcome, its help, and its answer to an unknown command.

use crate::jeprof::tool::PerlTool;

/// Returns the line with which the shell begins.
pub(super) fn welcome(tool: PerlTool) -> String {
    let name = tool.shell_name();
    format!("Welcome to {name}!  For help, type 'help'.")
}

/// The answer to a line that is no command.
pub(super) const UNKNOWN_COMMAND: &str = "Unknown command: try 'help'.";

/// Returns the help of the shell.
pub(super) fn help(tool: PerlTool) -> String {
    format!(
        "\
The shell of heapprof {command}. Its commands:

  top, topN [--cum] [--lines] [-IGNORE...]
      Prints the N functions with the largest values (10 if there is no number): their own
      values first, or with --cum their values with all that they called.
  text
      Is another name of top.
  list REGEX [-IGNORE...]
      Prints the source lines of the functions that match.
  weblist REGEX [-IGNORE...]
      Shows source lines and their instructions in a browser.
  disasm REGEX [-IGNORE...]
      Prints the instructions of the functions that match.
  callgrind [FILE]
      Writes a callgrind file. Without a name, KCachegrind shows it.
  gv, evince, web [FOCUS] [-IGNORE...]
      Show the call graph in gv, in evince or in a browser. With FOCUS, only stacks with a match
      are counted.
  help
      Prints this text.
  quit, or the end of the input
      Ends the shell.

-IGNORE leaves out stacks with a match. REGEX, FOCUS and IGNORE are regular expressions. Several
words are alternatives.",
        command = tool.command()
    )
}
