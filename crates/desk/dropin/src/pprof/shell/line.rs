//! A line at the prompt, taken apart as pprof does: an option that changes, or a command.

use anyhow::{Result, bail};

use super::command_table::ReportCommand;
use super::settings::ShellOption;
use crate::pprof::config::PprofConfig;

/// Mark of a comment behind the value of an option.
const COMMENT_START: &str = "//:";
/// Number of rows of `top` and `text` if no number is typed.
const DEFAULT_ROWS: i64 = 10;

/// Returns the option that a line changes, and the value if there is one; `None` if the line
/// changes no option.
pub(super) fn parse_assignment(line: &str) -> Option<(ShellOption, Option<&str>)> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (line, None),
    };
    let option = ShellOption::find(name.trim())?;
    let value = value.map(|value| match value.rfind(COMMENT_START) {
        Some(comment) => value[..comment].trim(),
        None => value.trim(),
    });
    Some((option, value))
}

/// Returns the request that a command makes: the settings of the shell, changed by the words of the
/// command.
pub(super) fn parse_command<'h>(
    words: &[&str],
    settings: &PprofConfig<'h>,
) -> Result<PprofConfig<'h>> {
    let Some((&typed, rest)) = words.split_first() else {
        bail!("there is no command");
    };
    let mut rest = rest.to_vec();
    let mut name = typed;
    let mut command = ReportCommand::find(name);
    if command.is_none() {
        let without_digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if !without_digits.is_empty() && without_digits != name {
            rest.insert(0, &name[without_digits.len()..]);
            name = without_digits;
            command = ReportCommand::find(name);
        }
    }
    let Some(command) = command else {
        if ShellOption::find(name).is_some_and(|option| option.choices().is_empty()) {
            let value = rest.first().copied().unwrap_or("<val>");
            bail!("did you mean: {name}={value}");
        }
        bail!("unrecognized command: {name:?}");
    };
    let mut config = settings.clone();
    config.format = command.name;
    config.about = None;
    if command.takes_functions() {
        if rest.is_empty() {
            bail!("command {name} requires an argument");
        }
        config.about = Some(rest.remove(0).to_string());
    }
    apply_words(&rest, &mut config)?;
    if config.flags.int("nodecount") == -1 && matches!(command.name, "text" | "top") {
        config.flags.set("nodecount", DEFAULT_ROWS.to_string());
    }
    Ok(config)
}

/// Changes a request by the words after a command: a number of rows, a file, the order, and regular
/// expressions.
fn apply_words(words: &[&str], config: &mut PprofConfig<'_>) -> Result<()> {
    let (mut focus, mut ignore) = (String::new(), String::new());
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        if let Ok(count) = word.parse::<i32>() {
            config.flags.set("nodecount", count.to_string());
        } else if let Some(file) = word.strip_prefix('>') {
            let file = match file {
                "" => words.next().copied(),
                file => Some(file),
            };
            let Some(file) = file else {
                bail!("unexpected end of line after >");
            };
            config.flags.set("output", file.to_string());
        } else if matches!(word, "-cum" | "--cum") {
            config.cum_sort = true;
        } else if let Some(pattern) = word.strip_prefix('-') {
            add_alternative(&mut ignore, pattern);
        } else {
            add_alternative(&mut focus, word);
        }
    }
    let (keep, drop) = match config.format {
        "tags" => ("tagfocus", "tagignore"),
        _ => ("focus", "ignore"),
    };
    for (option, pattern) in [(keep, focus), (drop, ignore)] {
        if !pattern.is_empty() {
            config.flags.set(option, pattern);
        }
    }
    Ok(())
}

fn add_alternative(pattern: &mut String, other: &str) {
    if !pattern.is_empty() && !other.is_empty() {
        pattern.push('|');
    }
    pattern.push_str(other);
}
