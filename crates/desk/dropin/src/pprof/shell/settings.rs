//! The options that a person changes at the shell's prompt, which hold until the shell ends.

use anyhow::{Result, anyhow, bail};

use crate::kind::FlagKind;
use crate::pprof::config::PprofConfig;
use crate::pprof::flag_table::{FlagGroup, PprofFlag, find_flag, flags_in_group};
use crate::pprof::flags::boolean;
use crate::pprof::setting_value::written_as_go;

/// A group of flags of which one is chosen: its name, and the group.
const CHOICES: [(&str, FlagGroup); 2] = [
    ("sort", FlagGroup::Sort),
    ("granularity", FlagGroup::Granularity),
];

/// An option that can be changed at the prompt.
#[derive(Clone, Copy, Debug)]
pub(super) enum ShellOption {
    /// An option with a value of its own.
    Value(&'static PprofFlag),
    /// An option whose value is one of the flags of a group.
    Choice(&'static str, FlagGroup),
    /// One of the values of a choice, which is turned on by its own name.
    Chosen(&'static PprofFlag),
}

impl ShellOption {
    /// Returns the option with this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        if let Some(&(name, group)) = CHOICES.iter().find(|(choice, _)| *choice == name) {
            return Some(Self::Choice(name, group));
        }
        let flag = find_flag(name)?;
        match flag.group {
            FlagGroup::Display | FlagGroup::Filter if is_option(flag) => Some(Self::Value(flag)),
            FlagGroup::Sort | FlagGroup::Granularity => Some(Self::Chosen(flag)),
            _ => None,
        }
    }

    /// Returns all options with a value: the rows of the list of options.
    pub(super) fn with_values() -> impl Iterator<Item = Self> {
        let groups = [FlagGroup::Display, FlagGroup::Filter];
        let values = groups.into_iter().flat_map(flags_in_group);
        let values = values.filter(|flag| is_option(flag)).map(Self::Value);
        values.chain(CHOICES.map(|(name, group)| Self::Choice(name, group)))
    }

    /// Returns all options, the values of choices included.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let choices = CHOICES.iter().flat_map(|&(_, group)| flags_in_group(group));
        Self::with_values().chain(choices.map(Self::Chosen))
    }

    /// Returns the name that is typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Value(flag) | Self::Chosen(flag) => flag.name,
            Self::Choice(name, _) => name,
        }
    }

    /// Returns what the option does, in one line. A choice says nothing: its values do.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::Value(flag) | Self::Chosen(flag) => flag.help,
            Self::Choice(..) => "",
        }
    }

    /// Whether the option may be typed without a value.
    pub(super) fn stands_alone(self) -> bool {
        match self {
            Self::Value(flag) => flag.kind == FlagKind::Bool,
            Self::Choice(..) => false,
            Self::Chosen(_) => true,
        }
    }

    /// Returns the values that a choice allows, sorted; empty for an option of another kind.
    pub(super) fn choices(self) -> Vec<&'static str> {
        let Self::Choice(_, group) = self else {
            return Vec::new();
        };
        let mut names: Vec<&str> = flags_in_group(group).map(|flag| flag.name).collect();
        names.sort_unstable();
        names
    }

    /// Returns the option's value as text.
    pub(super) fn value(self, config: &PprofConfig<'_>) -> String {
        match self.name() {
            "sort" if config.cum_sort => "cum".to_string(),
            "sort" => "flat".to_string(),
            "granularity" => config.granularity.to_string(),
            "mean" => config.mean.to_string(),
            "sample_index" => config.sample_index.clone(),
            name => config.flags.text(name).to_string(),
        }
    }

    /// Changes the option's value. Fails if the value does not fit the option.
    pub(super) fn set(self, config: &mut PprofConfig<'_>, value: &str) -> Result<()> {
        match self {
            Self::Value(flag) => set_value(flag, config, value),
            Self::Choice(name, group) => {
                let chosen = flags_in_group(group).find(|flag| flag.name == value);
                let Some(chosen) = chosen else {
                    let choices = self.choices().join(", ");
                    bail!("invalid {name:?} value {value:?}; it is one of {choices}");
                };
                choose(chosen, config);
                Ok(())
            }
            // As in pprof, the name alone chooses nothing.
            Self::Chosen(flag) => match boolean(value) {
                Some(true) => {
                    choose(flag, config);
                    Ok(())
                }
                _ => bail!("{:?} takes true: {0}=true", flag.name),
            },
        }
    }
}

/// Whether a flag of the groups about display and filters is an option of the shell. What a
/// profile keeps when it is loaded can't be changed afterwards.
fn is_option(flag: &PprofFlag) -> bool {
    flag.name != "all_frames"
}

fn choose(flag: &'static PprofFlag, config: &mut PprofConfig<'_>) {
    match flag.group {
        FlagGroup::Sort => config.cum_sort = flag.name == "cum",
        _ => config.granularity = flag.name,
    }
}

fn set_value(flag: &'static PprofFlag, config: &mut PprofConfig<'_>, value: &str) -> Result<()> {
    let invalid = |what: &str| anyhow!("{}: {value:?} is not {what}", flag.name);
    let what = match flag.kind {
        FlagKind::Bool => "true or false",
        FlagKind::Int => "a whole number",
        _ => "a number",
    };
    let value = written_as_go(flag.kind, value).ok_or_else(|| invalid(what))?;
    match flag.name {
        "mean" => config.mean = value == "true",
        "sample_index" => config.sample_index = value,
        name => config.flags.set(name, value),
    }
    Ok(())
}
