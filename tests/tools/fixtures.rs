//! Makes small profiles from folded text, in memory and in files, and reads reports of them.

use std::path::Path;

use heapprof_profile::{Profile, ProfileBuilder, encode};

use crate::harness::run;

/// Makes a profile with these sample types. Each stack is folded, root first.
pub fn profile(types: &[(&str, &str)], stacks: &[(&str, &[i64])]) -> Profile {
    let mut builder = ProfileBuilder::new(types);
    for (stack, values) in stacks {
        builder.add_folded(stack, values);
    }
    builder.finish()
}

/// Writes a profile to a folder.
pub fn write(folder: &Path, name: &str, profile: &Profile) {
    encode(profile, std::fs::File::create(folder.join(name)).unwrap()).unwrap();
}

/// Writes a profile of bytes in use.
pub fn in_use(folder: &Path, name: &str, stacks: &[(&str, &[i64])]) {
    let types = [("inuse_space", "bytes")];
    write(folder, name, &profile(&types, stacks));
}

/// Returns the output of a command as JSON.
pub fn json(folder: &Path, args: &[&str]) -> serde_json::Value {
    let run = run(folder, args);
    assert_eq!(run.code, 0, "{args:?}: {}", run.err);
    serde_json::from_str(&run.out).unwrap()
}

/// Returns the rows of all functions with a name, from a report in JSON.
pub fn rows_of<'r>(report: &'r serde_json::Value, function: &str) -> Vec<&'r serde_json::Value> {
    let rows = report["rows"].as_array().into_iter().flatten();
    rows.filter(|row| row["function"] == function).collect()
}

/// Returns the flat and the cum value of a function, from the output of `top --format json`; `None`
/// unless the function has exactly one row.
pub fn row_of(top: &str, function: &str) -> Option<[i64; 2]> {
    let top: serde_json::Value = serde_json::from_str(top).ok()?;
    let [row] = rows_of(&top, function)[..] else {
        return None;
    };
    Some([row["flat"].as_i64()?, row["cum"].as_i64()?])
}

/// Makes a profile of bytes in use from lines `stack value`.
pub fn bytes_in_use(stacks: &str) -> Profile {
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    for line in stacks.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        builder.add_folded(stack, &[value.parse().unwrap()]);
    }
    builder.finish()
}
