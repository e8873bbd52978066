//! `-symbolize`: names for addresses, from the binaries and debug files of this machine.

use heapprof_profile::Profile;
use heapprof_symbolize::{
    NameStyle, SymbolizeOptions, SymbolizeWarning, simplify_names, symbolize as look_up,
};

use super::binaries::search_path;
use super::config::PprofConfig;
use super::remote_symbols::{self, MappingServers};
use crate::host::DropinHost;

/// The parsed value of `-symbolize`.
struct SymbolizeMode {
    local: bool,
    remote: bool,
    force: bool,
    style: NameStyle,
}

/// Symbolizes the profile according to the flag `-symbolize`, a list of options separated by
/// colons: from the files of this machine, then by the servers that the profile came from.
pub(super) fn symbolize(config: &PprofConfig<'_>, profile: &mut Profile, servers: &MappingServers) {
    let host = config.host;
    let Some(mode) = parse_mode(host, config.flags.text("symbolize")) else {
        return;
    };
    let known = profile.function.len();
    if mode.local {
        symbolize_files(host, profile, mode.force, false);
    }
    if mode.remote {
        remote_symbols::symbolize(config, profile, servers, mode.force);
    }
    simplify_names(profile, mode.style, if mode.force { 0 } else { known });
}

/// Symbolizes addresses from the files of this machine, regardless of flags. An address outside all
/// symbols gets the nearest symbol, as with `nm`. `name_the_rest` then names the addresses that
/// still have no name.
pub(super) fn symbolize_locally(
    host: &dyn DropinHost,
    profile: &mut Profile,
    name_the_rest: fn(&mut Profile, &[bool]),
) {
    let is_here = symbolize_files(host, profile, false, true);
    name_the_rest(profile, &is_here);
    simplify_names(profile, NameStyle::Full, 0);
}

/// Parses the value of `-symbolize`. Returns `None` if it turns symbolizing off.
fn parse_mode(host: &dyn DropinHost, text: &str) -> Option<SymbolizeMode> {
    let mut mode = SymbolizeMode {
        local: true,
        remote: true,
        force: false,
        style: NameStyle::Short,
    };
    for option in text.to_lowercase().split(':') {
        match option {
            "" | "demangle=default" | "default" => {}
            "none" | "no" => return None,
            "local" | "fastlocal" => (mode.local, mode.remote) = (true, false),
            "remote" => (mode.local, mode.remote) = (false, true),
            "force" => mode.force = true,
            other => {
                let style = match other.strip_prefix("demangle=").unwrap_or(other) {
                    "full" => NameStyle::Full,
                    "none" => NameStyle::Linker,
                    "templates" => NameStyle::Templates,
                    _ => {
                        host.note(&format!(
                            "ignoring unrecognized symbolization option: {text}; \
expecting -symbolize=[local|fastlocal|remote|none][:force][:demangle=[none|full|templates|default]]"
                        ));
                        continue;
                    }
                };
                mode.style = style;
                mode.force = true;
            }
        }
    }
    Some(mode)
}

/// Symbolizes from the files of this machine. Returns for each mapping whether its file was found;
/// false if the file was not needed.
fn symbolize_files(
    host: &dyn DropinHost,
    profile: &mut Profile,
    force: bool,
    nearest: bool,
) -> Vec<bool> {
    let options = SymbolizeOptions {
        number_functions: false,
        force,
        unnamed_mappings: true,
        nearest,
        debug_dirs: search_path(),
        ..SymbolizeOptions::default()
    };
    let main = profile.mapping.first();
    let has_no_file = main.is_some_and(|m| m.filename.is_empty() && !m.has_functions);
    let in_main = |l: &heapprof_profile::Location| l.mapping.is_some_and(|m| m.index() == 0);
    if has_no_file && profile.location.iter().any(in_main) {
        host.note("Main binary filename not available.");
    }
    let mut is_here = vec![false; profile.mapping.len()];
    for file in look_up(profile, &options).files {
        if file.binary.is_some() || file.debug_file.is_some() {
            file.mappings.iter().for_each(|m| is_here[m.index()] = true);
        }
        for warning in file.warnings {
            host.note(&match warning {
                SymbolizeWarning::Missing { file } => format!(
                    "Local symbolization failed for {file}: there is no such file, nor a debug \
                     file with its build id; PPROF_BINARY_PATH names folders to look in"
                ),
                SymbolizeWarning::NoSymbols { file, .. } => format!(
                    "Local symbolization failed for {file}: it has no symbols for these addresses"
                ),
                other => format!("Local symbolization: {other}"),
            });
        }
    }
    is_here
}
