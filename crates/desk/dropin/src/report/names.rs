//! Printable names of frames: address, function and place, or the binary if nothing else is known.

use crate::graph::{base, clean};
use heapprof_profile::{Line, Location, Profile};

/// Appends the printable name of a location's line, or of a location without lines.
pub(super) fn printable(
    profile: &Profile,
    location: &Location,
    line: Option<&Line>,
    out: &mut String,
) {
    if location.address != 0 {
        *out += &format!("{:016x} ", location.address);
    }
    let function = line.map(|line| &profile.function[line.function.index()]);
    let name = function.map_or("", |f| profile.text(f.name));
    let file = function.map_or("", |f| profile.text(f.filename));
    let (number, column) = line.map_or((0, 0), |line| (line.line, line.column));
    out.push_str(name);
    let has_place = number != 0 || !file.is_empty();
    if has_place {
        if !name.is_empty() {
            out.push(' ');
        }
        if !file.is_empty() {
            out.push_str(&clean(file));
        }
        if number != 0 {
            *out += &format!(":{number}");
            if column != 0 {
                *out += &format!(":{column}");
            }
        }
    } else if name.is_empty() {
        let mapping = location.mapping.map(|m| &profile.mapping[m.index()]);
        match mapping.map_or("", |m| profile.text(m.filename)) {
            "" => out.push_str("<unknown>"),
            object => *out += &format!("[{}]", base(object)),
        }
    }
}
