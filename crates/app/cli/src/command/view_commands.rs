//! The commands that show the same rows as the views of a page.

use std::collections::BTreeMap;

use heapprof_page::PathRule;

use crate::name;

/// Returns a command for each view of a page, by the view's name. The command shows the same rows
/// as the view.
pub(super) fn view_commands(
    names: &[String],
    base: &[String],
    paths: &PathRule,
) -> BTreeMap<String, String> {
    let quoted = |names: &[String]| {
        let shown = names
            .iter()
            .map(|name| name::quoted(paths.name(name).as_ref()));
        shown.collect::<Vec<_>>().join(" ")
    };
    let all = quoted(names);
    let last = quoted(&names[names.len().saturating_sub(1)..]);
    let mut commands = BTreeMap::new();
    for (view, command) in [
        ("flame", format!("heapprof flame {last} > flame.svg")),
        ("table", format!("heapprof top {last}")),
        ("map", format!("heapprof top -n 0 {last}")),
        ("sizes", format!("heapprof info stats {last}")),
        ("timeline", format!("heapprof growth timeline {all}")),
        ("growth", format!("heapprof report {all} -o report.html")),
        ("pivot", format!("heapprof tree peek '{{pattern}}' {last}")),
    ] {
        commands.insert(view.to_string(), command);
    }
    let before = match base {
        [] => quoted(&names[..1]),
        base => quoted(base),
    };
    commands.insert(
        "table.diff".to_string(),
        format!("heapprof diff {before} {last}"),
    );
    let flame = format!("heapprof flame --base {before} {last} > diff.svg");
    commands.insert("flame.diff".to_string(), flame);
    commands
}
