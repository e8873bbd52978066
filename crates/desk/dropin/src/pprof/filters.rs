//! Applies the filters in pprof's order, and prints pprof's notes about filters without a match.

use crate::report::scaled_label;
use crate::reshape::{self, FrameDetail, LabelFilter, LabelUnits, NameFilters, go_regex};
use anyhow::{Result, anyhow};
use heapprof_profile::Profile;
use regex::Regex;

use super::config::PprofConfig;
use super::ranges::parse_range;

/// Adds the frames for `-tagroot` and `-tagleaf`.
pub(super) fn label_frames(profile: &mut Profile, config: &PprofConfig<'_>) {
    let keys = |name| -> Vec<&str> {
        let keys = config.flags.text(name).split(',');
        keys.filter(|key| !key.is_empty()).collect()
    };
    let unit = config.flags.text("unit");
    let show = |number: i64, from: &str| match from {
        "" => scaled_label(number, "", ""),
        from => scaled_label(number, from, unit),
    };
    let (root, leaf) = (keys("tagroot"), keys("tagleaf"));
    let (any_root, any_leaf) = reshape::add_label_frames(profile, &root, &leaf, &show);
    note_unmatched(config, "tagroot", any_root, "TagRoot");
    note_unmatched(config, "tagleaf", any_leaf, "TagLeaf");
}

/// Applies all filters.
pub(super) fn apply(
    profile: &mut Profile,
    units: &LabelUnits,
    config: &PprofConfig<'_>,
) -> Result<()> {
    let [focus, ignore, hide, show, show_from] =
        ["focus", "ignore", "hide", "show", "show_from"].map(|name| regex(config, name));
    let (focus, ignore, hide, show) = (focus?, ignore?, hide?, show?);
    let show_from = show_from?;
    let tag_focus = label_filter(config, "tagfocus", units)?;
    let tag_ignore = label_filter(config, "tagignore", units)?;
    let prune_from = regex(config, "prune_from")?;
    let (tag_show, tag_hide) = (regex(config, "tagshow")?, regex(config, "taghide")?);

    let names = NameFilters {
        focus: focus.as_ref(),
        ignore: ignore.as_ref(),
        hide: hide.as_ref(),
        show: show.as_ref(),
    };
    let matched = reshape::keep_by_name(profile, names);
    note_unmatched(config, "focus", matched.focus, "Focus");
    note_unmatched(config, "ignore", matched.ignore, "Ignore");
    note_unmatched(config, "hide", matched.hide, "Hide");
    note_unmatched(config, "show", matched.show, "Show");
    if let Some(regex) = &show_from {
        let matched = reshape::show_from(profile, regex);
        note_unmatched(config, "show_from", matched, "ShowFrom");
    }
    let (focused, ignored) =
        reshape::keep_by_label(profile, tag_focus.as_ref(), tag_ignore.as_ref());
    note_unmatched(config, "tagfocus", focused, "TagFocus");
    note_unmatched(config, "tagignore", ignored, "TagIgnore");
    if tag_show.is_some() || tag_hide.is_some() {
        let (shown, hidden) =
            reshape::keep_label_keys(profile, tag_show.as_ref(), tag_hide.as_ref());
        note_unmatched(config, "tagshow", shown, "TagShow");
        note_unmatched(config, "taghide", hidden, "TagHide");
    }
    if let Some(regex) = &prune_from {
        reshape::prune_from(profile, regex);
    }
    Ok(())
}

/// Removes from frames all details that the granularity does not distinguish.
pub(super) fn aggregate(profile: &mut Profile, granularity: &str, config: &PprofConfig<'_>) {
    let inlines = match config.format {
        // A sample counts once for each instruction.
        "disasm" => false,
        "weblist" => true,
        _ => !config.flags.is_on("noinlines"),
    };
    let detail = |function, filename, line, address| FrameDetail {
        inlines,
        function,
        filename,
        line,
        column: config.flags.is_on("showcolumns"),
        address,
    };
    let detail = match granularity {
        // Everything stays, including columns.
        "addresses" if inlines => return,
        "addresses" => detail(true, true, true, true),
        "lines" => detail(true, true, true, false),
        "files" => detail(false, true, false, false),
        "filefunctions" => detail(true, true, false, false),
        _ => detail(true, false, false, false),
    };
    reshape::aggregate(profile, detail);
}

/// Compiles a regular expression. As in Go, bytes that are not UTF-8 are an error.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    check_bytes(text)?;
    go_regex(text)
}

/// Fails if an expression had bytes that are not UTF-8. U+FFFD replaced them when it was read.
fn check_bytes(text: &str) -> Result<(), String> {
    match text.contains(char::REPLACEMENT_CHARACTER) {
        true => Err("not a regular expression: it has bytes that are not UTF-8".to_string()),
        false => Ok(()),
    }
}

fn regex(config: &PprofConfig<'_>, name: &str) -> Result<Option<Regex>> {
    match config.flags.text(name) {
        "" => Ok(None),
        text => with_flag_name(name, text, compile(text)).map(Some),
    }
}

fn label_filter(
    config: &PprofConfig<'_>,
    name: &str,
    units: &LabelUnits,
) -> Result<Option<LabelFilter>> {
    let text = config.flags.text(name);
    if text.is_empty() {
        return Ok(None);
    }
    with_flag_name(name, text, check_bytes(text))?;
    let read = |value: &str| {
        let test = parse_range(value, units)?;
        if test.is_some() {
            config.note(&format!(
                "{name}: Interpreted '{value}' as range, not regexp"
            ));
        }
        Ok(test)
    };
    with_flag_name(name, text, LabelFilter::as_pprof(text, read)).map(Some)
}

fn with_flag_name<T>(name: &str, text: &str, result: Result<T, String>) -> Result<T> {
    result.map_err(|why| anyhow!("-{name} {text:?}: {why}"))
}

fn note_unmatched(config: &PprofConfig<'_>, flag: &str, matched: bool, name: &str) {
    if !matched && !config.flags.text(flag).is_empty() {
        config.note(&format!("{name} expression matched no samples"));
    }
}
