//! What the shell says about itself: the help, the options and their values.

use heapprof_profile::Profile;

use super::command_table::ReportCommand;
use super::settings::ShellOption;
use crate::pprof::config::PprofConfig;

/// Returns the help on a topic, or on all of the shell if the topic is empty; `None` if there is no
/// such topic.
pub(super) fn help(topic: &str) -> Option<String> {
    if topic.is_empty() {
        return Some(overview());
    }
    if let Some(command) = ReportCommand::find(topic) {
        return Some(command.help());
    }
    let option = ShellOption::find(topic)?;
    Some(match option {
        ShellOption::Value(_) => format!("{}\n  {topic}=VALUE\n", option.help()),
        ShellOption::Chosen(_) => format!("{}\n  {topic}=true\n", option.help()),
        ShellOption::Choice(..) => {
            format!("One of {}\n  {topic}=VALUE\n", option.choices().join(", "))
        }
    })
}

fn overview() -> String {
    let line = |name: &str, help: &str| format!("    {name:<21}{help}\n");
    let mut text = "  Commands:\n".to_string();
    for command in ReportCommand::all() {
        text += &line(command.name, command.summary());
    }
    text += &line("o, options", "List the options and their values");
    text += &line(":", "Forget focus, ignore, hide, tagfocus and tagignore");
    text += &line("q, quit, exit", "End the shell, as Ctrl-D does");
    text += "\n  Options, changed with OPTION=VALUE:\n";
    let mut options: Vec<ShellOption> = ShellOption::with_values().collect();
    options.sort_by_key(|option| option.name());
    for option in options {
        let choices = option.choices();
        match choices.is_empty() {
            true => text += &line(option.name(), option.help()),
            false => text += &line(option.name(), &choices.join(" | ")),
        }
    }
    text += "\n  A type of the samples chooses what is shown: inuse_space, total_inuse_space, \
             mean_inuse_space\n  help COMMAND and help OPTION say more\n";
    text
}

/// Returns the list of the options with their values, as pprof prints it.
pub(super) fn option_list(profile: &Profile, config: &PprofConfig<'_>) -> String {
    let types = profile.type_names();
    let mut lines: Vec<String> = ShellOption::with_values()
        .filter(|option| option.name() != "source_path")
        .map(|option| option_line(option, &types, config))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn option_line(option: ShellOption, types: &[&str], config: &PprofConfig<'_>) -> String {
    let (name, choices) = (option.name(), option.choices());
    let mut value = option.value(config);
    let comment = match name {
        _ if !choices.is_empty() => format!("[{}]", choices.join(" | ")),
        "sample_index" => {
            if value.is_empty() {
                value = types.last().copied().unwrap_or_default().to_string();
            }
            format!("[{}]", types.join(" | "))
        }
        "nodecount" if value == "-1" => "default".to_string(),
        _ => {
            if value.is_empty() {
                value = "\"\"".to_string();
            }
            String::new()
        }
    };
    if name == "granularity" && value.is_empty() {
        value = "(default)".to_string();
    }
    let comment = match comment.is_empty() {
        true => comment,
        false => format!("//: {comment}"),
    };
    format!("  {name:<25} = {value:<20} {comment}")
}
