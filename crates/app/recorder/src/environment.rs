//! The environment variables that a recorded program gets: they load the library and configure it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use heapprof_abi::environment::{self as variable, EnvironmentVariable, VariableSetter};

use crate::settings::RecordingSettings;

/// The environment variables that a recorded program gets in addition to the inherited ones.
pub(crate) struct ProgramEnvironment(Vec<(&'static str, OsString)>);

impl ProgramEnvironment {
    /// Makes the environment of a recording whose processes report into the folder `list`.
    pub(crate) fn new(wanted: &RecordingSettings, list: &Path) -> Self {
        let mut preload = wanted.library.as_os_str().to_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|p| !p.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let answer = |yes: bool| OsString::from(if yes { "yes" } else { "no" });
        let number = |number: u64| OsString::from(number.to_string());
        let mut all = Self(vec![
            ("LD_PRELOAD", preload),
            (variable::OUTPUT.name, wanted.names.pattern.clone()),
            (
                variable::FILE_MODE.name,
                format!("{:o}", wanted.file_mode).into(),
            ),
            (variable::LIST.name, list.into()),
            (
                variable::RECORD.name,
                format!("{}:{:010}", std::process::id(), 0).into(),
            ),
            (
                variable::MODE.name,
                if wanted.is_exact { "exact" } else { "sampled" }.into(),
            ),
            (variable::PERIOD.name, number(wanted.period)),
            (variable::PEAK.name, answer(wanted.on_peak)),
            (variable::MMAP.name, answer(wanted.counts_mappings)),
            (variable::FOLLOW.name, answer(wanted.follows_children)),
        ]);
        let inherited = || std::env::var_os(variable::ALLOCATORS.name);
        let chosen = wanted.allocators.map(|choice| choice.to_string().into());
        if let Some(allocators) = chosen.or_else(inherited) {
            all.set(variable::ALLOCATORS.name, allocators);
        }
        if let Some(interval) = wanted.interval {
            let interval = format!("{}ms", interval.as_millis());
            all.set(variable::INTERVAL.name, interval);
        }
        if let Some(least) = wanted.least_of_child() {
            all.set(variable::LEAST.name, least.to_string());
        }
        if let Some(pattern) = &wanted.names.children {
            all.set(variable::CHILDREN.name, pattern);
        }
        if let Some(option) = &wanted.perl_option {
            let mut options = std::env::var_os("PERL5OPT").unwrap_or_default();
            options.push(if options.is_empty() { "" } else { " " });
            options.push(option);
            all.set("PERL5OPT", options);
        }
        all.set(variable::FRAMES.name, wanted.frames);
        all.set(
            variable::THREADS.name,
            answer(wanted.by_thread || wanted.audits_forks),
        );
        all.set(
            variable::COMMAND_LINE.name,
            answer(wanted.keeps_command_line),
        );
        all.set(variable::PERL_EVALS.name, wanted.perl_evals);
        all.set(
            variable::PERL_VALUES.name,
            answer(wanted.traces_perl_values),
        );
        if let Some(objects) = wanted.records_python_objects {
            all.set(variable::PYTHON_OBJECTS.name, answer(objects));
        }
        if let Some(wrappers) = &wanted.wrappers {
            all.set(variable::WRAPPERS.name, wrappers);
        }
        all.set(variable::LIVE.name, answer(wanted.view.is_some()));
        all.set(variable::LOG.name, answer(wanted.log.is_some()));
        all.set(variable::LAST_READING.name, answer(wanted.divides_peaks));
        if let Some(growth) = wanted.on_growth {
            all.set(variable::GROWTH.name, number(growth));
        }
        if let Some(lines) = &wanted.lines {
            all.set(variable::LINES.name, number(lines.least));
        }
        if let Some(signal) = wanted.on_signal {
            all.set(variable::SIGNAL.name, signal.to_string());
        }
        all
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.0.push((name, value.into()));
    }

    /// Sets the variables in the environment of a command.
    pub(crate) fn put_into(&self, command: &mut Command) {
        // Variables that an earlier setup left would mix with the options of this recording.
        let ours = |variable: &&EnvironmentVariable| {
            !matches!(
                variable.setter,
                VariableSetter::Gperftools
                    | VariableSetter::UserPassthrough
                    | VariableSetter::Watch
            )
        };
        for variable in variable::ALL.iter().filter(ours) {
            command.env_remove(variable.name);
        }
        command.envs(self.0.iter().map(|(name, value)| (name, value)));
    }
}
