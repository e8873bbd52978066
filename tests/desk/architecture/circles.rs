//! Modules of one crate must not use each other in a circle, at any depth.
//!
//! A module with everything in it is one node. The nodes with the same parent form a graph, and
//! that graph has no circle. So a newcomer can read the modules of any folder from the bottom up.
//! Uses between a module and its own children are not restricted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

use super::ARROWS;
use heapprof_tests::harness::{root, sources};

/// Returns the path of a file's module: `["report", "dot"]` for `src/report/dot.rs`.
pub(super) fn module(folder: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(folder).unwrap().with_extension("");
    path.iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect()
}

/// Returns the items of a list without its braces. Lists inside it stay whole.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    items
}

/// Adds the paths that `a::{b, c::d}` stands for.
fn paths(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    let mut rest = tree.trim();
    while let Some((part, more)) = rest.split_once("::") {
        if part.starts_with('{') {
            break;
        }
        path.push(part.trim().to_string());
        rest = more.trim();
    }
    match rest.strip_prefix('{').and_then(|r| r.strip_suffix('}')) {
        Some(list) => {
            for item in items(list).iter().filter(|item| !item.trim().is_empty()) {
                paths(item, &path, found);
            }
        }
        None => {
            path.push(rest.split(' ').next().unwrap_or_default().to_string());
            found.push(path);
        }
    }
}

/// Returns a path of a module's text as seen from the crate's root.
fn absolute(module: &[String], path: &[String]) -> Vec<String> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let base = match path[0].as_str() {
        "crate" => &[],
        _ => &module[..module.len().saturating_sub(ups)],
    };
    let is_marker = matches!(path[0].as_str(), "crate" | "self");
    [base, &path[ups.max(usize::from(is_marker))..]].concat()
}

/// Returns the paths within the crate that a module's text uses, from the crate's root.
pub(super) fn used(module: &[String], text: &str) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let lists = r"\{(?:[^{};]|\{(?:[^{};]|\{[^{};]*\})*\})*\}";
    let path = format!(r"\b(?:crate|super)(?:::\s*(?:[A-Za-z_]\w*|{lists}))+");
    let mut found = Vec::new();
    for tree in Regex::new(&path).unwrap().find_iter(&code) {
        paths(tree.as_str(), &[], &mut found);
    }
    found.iter().map(|path| absolute(module, path)).collect()
}

/// The names that modules export again: a module and a name in it, and the path of the item.
type Exports = BTreeMap<(Vec<String>, String), Vec<String>>;

/// Returns the module whose names a file has: the crate's root for `lib.rs` and `main.rs`.
fn exporting_module(folder: &Path, file: &Path) -> Vec<String> {
    let own = module(folder, file);
    match own.last().map(String::as_str) {
        Some("lib" | "main") if own.len() == 1 => Vec::new(),
        _ => own,
    }
}

/// Adds the names that `pub use` exports in the text of a module.
fn add_exports(module: &[String], text: &str, exports: &mut Exports) {
    let statement = Regex::new(r"(?m)^\s*pub(?:\([a-z :]+\))?\s+use\s+([^;]+);").unwrap();
    for found in statement.captures_iter(text) {
        let mut trees = Vec::new();
        paths(&found[1], &[], &mut trees);
        for path in trees {
            let target = absolute(module, &path);
            if let Some(name) = target.last().cloned() {
                exports.insert((module.to_vec(), name), target);
            }
        }
    }
}

/// Returns where an item really is: a name that a module only exports again leads on.
fn origin(mut path: Vec<String>, exports: &Exports) -> Vec<String> {
    // An export may lead to another one, and never around.
    for _ in 0..8 {
        let next = (0..path.len()).find_map(|at| {
            let target = exports.get(&(path[..at].to_vec(), path[at].clone()))?;
            (target[..] != path[..=at]).then(|| [target, &path[at + 1..]].concat())
        });
        match next {
            Some(next) => path = next,
            None => break,
        }
    }
    path
}

/// Returns a path from `start` back to itself, if there is one.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>, start: &str) -> Option<String> {
    let mut next = vec![(start.to_string(), start.to_string())];
    let mut seen = BTreeSet::new();
    while let Some((node, way)) = next.pop() {
        for used in uses.get(&node).into_iter().flatten() {
            let way = format!("{way} -> {used}");
            if used == start {
                return Some(way);
            }
            if seen.insert(used.clone()) {
                next.push((used.clone(), way));
            }
        }
    }
    None
}

#[test]
fn modules_have_no_circles() {
    let mut found = BTreeSet::new();
    for (package, _) in ARROWS {
        let folder = root().join("crates").join(package).join("src");
        // For each parent, the graph of its children.
        let mut graphs: BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        let files: Vec<_> = sources()
            .into_iter()
            .filter(|file| file.starts_with(&folder))
            .map(|file| (module(&folder, &file), file))
            .filter(|(module, _)| !matches!(module[0].as_str(), "lib" | "main"))
            .collect();
        // A crate may consist of one file, but its folder must exist.
        assert!(folder.is_dir(), "{package}");
        let is_module = |path: &[String]| files.iter().any(|(module, _)| module == path);
        let mut exports = Exports::new();
        for file in sources().iter().filter(|file| file.starts_with(&folder)) {
            let text = std::fs::read_to_string(file).unwrap();
            add_exports(&exporting_module(&folder, file), &text, &mut exports);
        }
        for (module, file) in &files {
            if module.last().is_some_and(|name| name == "tests") {
                continue;
            }
            let text = std::fs::read_to_string(file).unwrap();
            for path in used(module, &text) {
                let path = origin(path, &exports);
                let same = module.iter().zip(&path).take_while(|(a, b)| a == b);
                let shared = same.count();
                let is_below = module.len() > shared && path.len() > shared;
                if is_below && is_module(&path[..=shared]) {
                    let graph = graphs.entry(path[..shared].to_vec()).or_default();
                    let node = graph.entry(module[shared].clone()).or_default();
                    node.insert(path[shared].clone());
                }
            }
        }
        for (parent, uses) in &graphs {
            for way in uses.keys().filter_map(|start| circle(uses, start)) {
                found.insert(format!("{package} {}: {way}", parent.join("::")));
            }
        }
    }
    let found: Vec<String> = found.into_iter().collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn paths_are_understood() {
    let module = ["a".to_string(), "b".to_string()];
    let text = "use crate::{c::{d, e::F}, g};\nuse super::h::I;\nlet x = crate::k::l(1);\n";
    let found: Vec<String> = used(&module, text).iter().map(|p| p.join("::")).collect();
    assert_eq!(found, ["c::d", "c::e::F", "g", "a::h::I", "k::l"]);
    let mut exports = Exports::new();
    let text = "pub(crate) use self::c::{d, E};\npub use f::g::H;\nuse i::J;\n";
    add_exports(&module[..1], text, &mut exports);
    let origin = |path: &str| origin(path.split("::").map(str::to_string).collect(), &exports);
    assert_eq!(origin("a::d::k").join("::"), "a::c::d::k");
    assert_eq!(origin("a::H").join("::"), "a::f::g::H");
    assert_eq!(origin("a::J").join("::"), "a::J");
    let uses = [("a", "b"), ("b", "c"), ("c", "b")];
    let uses = uses.map(|(from, to)| (from.to_string(), BTreeSet::from([to.to_string()])));
    let uses = BTreeMap::from(uses);
    assert_eq!(circle(&uses, "b").unwrap(), "b -> c -> b");
    assert!(circle(&uses, "a").is_none());
}
