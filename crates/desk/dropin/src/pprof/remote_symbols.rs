//! `-symbolize=remote`: names for addresses, from the server that a profile came from.
//!
//! gperftools' and Go's servers answer addresses with names at `/pprof/symbol`. Source:
//! google/pprof, internal/symbolz.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use heapprof_profile::{Function, FunctionIndex, Line, MappingIndex, Profile, StringId};
use regex::bytes::Regex;

use super::config::PprofConfig;
use super::remote::{self, RemoteAddress};

/// Ends of paths at which gperftools serves profiles.
const GPERFTOOLS_PATHS: [&str; 5] = [
    "/pprof/heap",
    "/pprof/growth",
    "/pprof/profile",
    "/pprof/pmuprofile",
    "/pprof/contention",
];

/// Regular expression for a line of an answer: an address and its name.
static NAMED_ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)0x([0-9A-Fa-f]+)[\t\x0C\r ]+(.*)").ok());

/// Servers of mappings: where the profile of a mapping was fetched, and where the mapping began
/// there. The key is a build id, or the name of a file without one.
#[derive(Default)]
pub(super) struct MappingServers(HashMap<String, Vec<(RemoteAddress, u64)>>);

impl MappingServers {
    /// Remembers that all mappings of a profile came from one server.
    pub(super) fn add(&mut self, profile: &Profile, address: &RemoteAddress) {
        for mapping in &profile.mapping {
            let key = match mapping.build_id {
                StringId::EMPTY => mapping.filename,
                build_id => build_id,
            };
            let servers = self.0.entry(profile.text(key).to_string()).or_default();
            servers.push((address.clone(), mapping.memory_start));
        }
    }

    /// Returns the first server of a mapping that can be asked, as the URL to ask, its address, and
    /// where the mapping began there.
    fn find(
        &self,
        profile: &Profile,
        mapping: MappingIndex,
    ) -> Option<(String, &RemoteAddress, u64)> {
        let mapping = &profile.mapping[mapping.index()];
        let of = |key| self.0.get(profile.text(key)).into_iter().flatten();
        let of_build_id = of(mapping.build_id).filter(|_| !mapping.build_id.is_empty());
        let mut servers = of(mapping.filename).chain(of_build_id);
        servers.find_map(|(address, start)| Some((symbol_url(&address.url)?, address, *start)))
    }
}

/// Asks the servers for the names of all addresses without symbols. A server that does not answer
/// is noted.
pub(super) fn symbolize(
    config: &PprofConfig<'_>,
    profile: &mut Profile,
    servers: &MappingServers,
    force: bool,
) {
    for m in 0..profile.mapping.len() {
        if profile.mapping[m].has_functions && !force {
            continue;
        }
        let mapping = MappingIndex(m as u32);
        let Some((url, address, start)) = servers.find(profile, mapping) else {
            continue;
        };
        let moved = start.wrapping_sub(profile.mapping[m].memory_start);
        match symbolize_mapping(config, profile, mapping, (&url, address), moved) {
            Ok(()) => profile.mapping[m].has_functions = true,
            Err(error) => config.host.note(&format!("{url}: {error:#}")),
        }
    }
}

/// Asks a server for the names of a mapping's addresses. `moved` is how much higher the mapping
/// began there.
fn symbolize_mapping(
    config: &PprofConfig<'_>,
    profile: &mut Profile,
    mapping: MappingIndex,
    (url, address): (&str, &RemoteAddress),
    moved: u64,
) -> Result<()> {
    let unnamed = |location: &&heapprof_profile::Location| {
        location.mapping == Some(mapping) && location.address != 0 && location.line.is_empty()
    };
    let asked = profile.location.iter().filter(unnamed);
    let asked: Vec<u64> = asked
        .map(|location| location.address.wrapping_add(moved))
        .collect();
    if asked.is_empty() {
        return Ok(());
    }
    let transfer = remote::fetch_options(address, &config.flags)?;
    let texts: Vec<String> = asked
        .iter()
        .map(|address| format!("{address:#x}"))
        .collect();
    let answer = config.host.post(url, texts.join("+"), &transfer)?;
    // A server that names other addresses as well must not make the profile large.
    let known: HashSet<u64> = asked.into_iter().collect();
    let names = parse_names(&answer, |address| known.contains(&address))?;
    let mut functions: HashMap<&[u8], FunctionIndex> = HashMap::new();
    let mut found: HashMap<u64, FunctionIndex> = HashMap::new();
    for (address, name) in &names {
        let function = *functions.entry(name).or_insert_with(|| {
            let text = profile.strings.intern(&String::from_utf8_lossy(name));
            profile.function.push(Function {
                id: profile.function.len() as u64 + 1,
                name: text,
                system_name: text,
                ..Function::default()
            });
            FunctionIndex(profile.function.len() as u32 - 1)
        });
        found.insert(address.wrapping_sub(moved), function);
    }
    for l in 0..profile.location.len() {
        let location = &profile.location[l];
        if location.mapping != Some(mapping) {
            continue;
        }
        if let Some(&function) = found.get(&location.address) {
            let line = Line {
                function,
                line: 0,
                column: 0,
            };
            let at = profile.line.len() as u32;
            profile.line.push(line);
            profile.location[l].line = at..at + 1;
        }
    }
    Ok(())
}

/// Reads the wanted addresses and their names from an answer. A last line without an end is not
/// complete, and is left out.
fn parse_names(answer: &[u8], is_wanted: impl Fn(u64) -> bool) -> Result<Vec<(u64, &[u8])>> {
    let pattern = NAMED_ADDRESS.as_ref().context("the answer can't be read")?;
    let mut names = Vec::new();
    for line in answer.split_inclusive(|&byte| byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else {
            break;
        };
        let Some(found) = pattern.captures(line) else {
            continue;
        };
        let (Some(digits), Some(name)) = (found.get(1), found.get(2)) else {
            continue;
        };
        let digits = std::str::from_utf8(digits.as_bytes())?;
        let Ok(address) = u64::from_str_radix(digits, 16) else {
            bail!("the answer has the address 0x{digits}, which has more than 64 bits");
        };
        if is_wanted(address) {
            names.push((address, name.as_bytes()));
        }
    }
    Ok(names)
}

/// Returns the URL at which the server of a profile names addresses.
fn symbol_url(source: &str) -> Option<String> {
    let (scheme, rest) = source.split_once("://")?;
    let rest = rest.split(['?', '#']).next()?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if host.is_empty() {
        return None;
    }
    let is_pprof =
        path.contains("/debug/pprof/") || GPERFTOOLS_PATHS.iter().any(|end| path.ends_with(end));
    let name = if is_pprof { "symbol" } else { "symbolz" };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').chain(["..", name]) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("{scheme}://{host}/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_name_addresses_beside_their_profiles() {
        for (source, expected) in [
            (
                "http://host:80/debug/pprof/heap?gc=1",
                "http://host:80/debug/pprof/symbol",
            ),
            ("http://host/pprof/growth", "http://host/pprof/symbol"),
            ("http://host/x/heapz", "http://host/x/symbolz"),
            ("http://host", "http://host/symbolz"),
            ("https://host/a//./b/", "https://host/a/symbolz"),
        ] {
            assert_eq!(symbol_url(source).as_deref(), Some(expected), "{source}");
        }
        assert_eq!(symbol_url("http:///x"), None);
        assert_eq!(symbol_url("profile.pb.gz"), None);
    }

    #[test]
    fn answers() {
        let answer = b"num_symbols: 1\n0x10\tmain put\n0x20 walk\n0x30 cut";
        let names = parse_names(answer, |_| true).unwrap();
        assert_eq!(names, [(0x10, &b"main put"[..]), (0x20, b"walk")]);
        let names = parse_names(answer, |address| address == 0x20).unwrap();
        assert_eq!(names, [(0x20, &b"walk"[..])]);
        let error = parse_names(b"0x11112222333344445\tx\n", |_| true).unwrap_err();
        assert!(error.to_string().contains("more than 64 bits"));
    }
}
