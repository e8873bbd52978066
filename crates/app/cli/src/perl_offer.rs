//! Builds Devel::HeapProf when a recording needs it, and the user allows it.

use std::path::Path;

use anyhow::Result;
use heapprof_inspect::has_perl;
use heapprof_symbolize::program::inspect;
use heapprof_terminal::ask_line;

use crate::{messages, perl_module};

/// The purpose for which a recording uses the module Devel::HeapProf.
#[derive(Clone, Copy)]
pub(crate) enum ModuleUse {
    /// Tracing of Perl's values, which is not possible without the module.
    Values,
    /// An audit of forks, which knows less without the module.
    Audit,
}

impl ModuleUse {
    fn text(self) -> &'static str {
        match self {
            Self::Values => "--perl-values traces no value",
            Self::Audit => {
                "the audit cannot tell which modules were only searched for, how long loads took, \
                 or what Perl writes when it cleans up"
            }
        }
    }
}

/// Builds the module Devel::HeapProf for the perl that is about to run, if the perl has no such
/// module. The user must allow that, by an option or by an answer at the terminal. Does nothing for
/// a program that is not a perl, or if no module can be built.
pub(crate) fn offer(program: &Path, used_for: ModuleUse, is_allowed: bool) -> Result<()> {
    // The file of a script is its interpreter.
    let file = inspect(program).file;
    if !has_perl::is_perl(&file) {
        return Ok(());
    }
    let Ok(state) = perl_module::module_state(&file) else {
        // It may be no perl at all.
        return Ok(());
    };
    let shown = file.display();
    match state {
        perl_module::ModuleState::Built => Ok(()),
        perl_module::ModuleState::Missing { .. } if is_allowed => {
            let built = perl_module::install(&file)?;
            messages::note(&format!(
                "Devel::HeapProf for {} was built, and is in {}",
                built.perl,
                built.folder.display()
            ));
            Ok(())
        }
        perl_module::ModuleState::Missing { can_be_built: true } => {
            let question = format!(
                "heapprof: there is no Devel::HeapProf for {shown}, and without it {}; build it \
                 now (needed only once)? [y/N] ",
                used_for.text()
            );
            match is_agreed(&question) {
                true => offer(program, used_for, true),
                false => Ok(()),
            }
        }
        perl_module::ModuleState::Missing {
            can_be_built: false,
        } => Ok(()),
    }
}

/// Asks the user a yes-or-no question at the terminal. Returns false if there is no terminal.
fn is_agreed(question: &str) -> bool {
    ask_line(question).is_some_and(|answer| ["y", "Y", "yes"].contains(&&*answer))
}
