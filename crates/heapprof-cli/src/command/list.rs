//! `heapprof list REGEX`: annotated source.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Result, bail};
use heapprof_analysis::{Granularity, Query, Types, list};
use heapprof_text::shown_match;

use super::{Shared, regex, statements};
use crate::args::ListArgs;
use crate::output;

pub(super) fn run(shared: &Shared, args: &ListArgs) -> Result<()> {
    let wanted = regex(&args.regex, &args.profiles.profiles)?;
    let asked = args.question.query();
    if asked.granularity != Granularity::Functions {
        bail!("list shows lines of functions; --granularity has no effect here");
    }
    let query = |granularity| Query {
        granularity,
        limit: shared.limit(&args.limit, &args.report),
        ..asked.clone()
    };
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let source = shared.sources.read(&names)?;
    let by_function = query(Granularity::FileFunctions);
    let functions = shared.ask(source.clone(), &by_function, Types::One)?;
    // The notes on filters were printed already.
    let lines =
        heapprof_analysis::Question::new(vec![source], &query(Granularity::Lines), Types::One)?;
    let lines = heapprof_analysis::Session::new(lines)?;
    let report = list(&functions, &lines, &by_function, |name| {
        wanted.is_match(name)
    })?;
    if report.rows.is_empty() {
        let whole = Query {
            limit: None,
            ..by_function
        };
        let all = list(&functions, &lines, &whole, |_| true)?;
        let all = all.rows.iter().map(|row| &*row.function);
        bail!(
            "{}: no function that has {} (after filters) matches {:?}{}",
            names.join(" + "),
            report.header.sample_type.r#type,
            args.regex,
            shown_match(&wanted, all)
        );
    }
    // Each file is read once, however many of its functions match.
    let known = RefCell::<HashMap<String, Lines>>::default();
    let read = |file: &str| -> Lines {
        let mut known = known.borrow_mut();
        let lines = known.entry(file.to_string());
        let read = || source_text(file, &args.source_path, &args.trim_path);
        lines.or_insert_with(read).clone()
    };
    let text = heapprof_report::list(&report, &read, &shared.style(&args.report))?;
    let file = args.report.output.file();
    match args.report.show_sql {
        true => output::text(file, &(statements(&functions) + &statements(&lines))),
        false => output::text(file, &text),
    }
}

/// A source file's lines, or why there are none.
type Lines = Result<Rc<[String]>, String>;

/// The lines of a source file that a profile names.
///
/// If `file` begins with one of `trim`, that beginning is cut off, and the rest is looked for in
/// each of `folders` and nowhere else. Any other `file` is looked for as it is, and then in each of
/// `folders`. If that fails, the ends of its path are looked for in `folders`, the longest first:
/// each one has one part less than the one before. In this way a file that was built elsewhere is
/// found in a checkout. The bare file name is not tried in this step. If `folders`
/// is empty, the current folder and all folders above it are searched.
fn source_text(file: &str, folders: &[PathBuf], trim: &[String]) -> Lines {
    if file.is_empty() {
        return Err("the profile names no file".to_string());
    }
    let file = file.strip_prefix("/proc/self/cwd/").unwrap_or(file);
    let trimmed = trim.iter().find_map(|t| {
        let rest = file.strip_prefix(t.trim_end_matches('/'))?;
        rest.strip_prefix('/')
    });
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let folders: Vec<&Path> = match folders {
        [] => here.ancestors().collect(),
        given => given.iter().map(PathBuf::as_path).collect(),
    };
    let mut candidates = Vec::new();
    if trimmed.is_none() {
        candidates.push(PathBuf::from(file));
    }
    let mut relative = trimmed.unwrap_or(file).trim_start_matches('/');
    loop {
        candidates.extend(folders.iter().map(|folder| folder.join(relative)));
        match relative.split_once('/') {
            // A bare file name could be any file; at least one folder must agree.
            Some((_, rest)) if trimmed.is_none() && rest.contains('/') => relative = rest,
            _ => break,
        }
    }
    let found = candidates.iter().find(|path| path.is_file());
    let Some(found) = found else {
        return Err(format!("{file} is not found; say where with --source-path"));
    };
    let bytes = std::fs::read(found).map_err(|e| format!("{}: {e}", found.display()))?;
    Ok(String::from_utf8_lossy(&bytes)
        .lines()
        .map(str::to_string)
        .collect())
}
