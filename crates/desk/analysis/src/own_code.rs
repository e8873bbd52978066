//! Whether the rows of a report are mostly code of libraries, and which function of the program
//! itself would come first with `own_code`.

use std::borrow::Cow;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Function, Profile, is_place_of_code};

use crate::error::AnalysisError;
use crate::place::CodePlace;
use crate::session::AnalysisSession;
use heapprof_totals::frames::ProfileFrame;
use heapprof_totals::query::Query;
use heapprof_totals::view::{ProfileView, libraries};

/// The function that would come first in a report with [`Query::own_code`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCode {
    /// The name of the function.
    pub function: String,
    /// The flat value of the function, regardless of sign.
    pub value: i128,
    /// The number of rows whose function belongs to a library, and the number of all rows.
    pub rows: [usize; 2],
}

/// Returns the function that `own_code` would put first, if more than half of `rows` are code of
/// libraries.
///
/// `profile` is the number of a profile of the session, from 1. `rows` are places in that profile.
/// A place is code of a library if its function is. Returns `None` if at most half of `rows` are
/// code of libraries, if the query already has `own_code`, if the session has no samples of the
/// profile, or if the function that would come first has no name.
///
/// # Errors
/// The errors are the same as for any question about the profile.
pub(crate) fn own_code(
    session: &AnalysisSession,
    profile: i64,
    query: &Query,
    rows: &[&CodePlace],
) -> Result<Option<OwnCode>, AnalysisError> {
    let Some(question) = session.question.as_ref().filter(|_| !query.own_code) else {
        return Ok(None);
    };
    let part = &question.parts[profile as usize - 1];
    let frames = &part.view.frames;
    // A function is a library's only if all code with its name and its file is.
    let rows = rows.iter().map(|place| {
        let file = place.file.as_deref().unwrap_or_default();
        (Cow::from(&*place.function), file)
    });
    let mut by_function: HashMap<(Cow<'_, str>, &str), Option<bool>> =
        rows.map(|function| (function, None)).collect();
    let text = |id| part.profile.text(id);
    let is_row =
        |f: &Function| by_function.contains_key(&(Cow::from(text(f.name)), text(f.filename)));
    let shown: Vec<bool> = part.profile.function.iter().map(is_row).collect();
    let has_address = by_function.keys().any(|(name, _)| name.starts_with("0x"));
    let is_shown = |frame: &ProfileFrame| match frame.function(&part.profile) {
        Some(function) => shown[function.index()],
        None => has_address && frame.location().is_some(),
    };
    let library = libraries(&part.profile, frames, is_shown);
    let counted = frames
        .iter()
        .zip(&library)
        .filter(|(frame, _)| is_shown(frame));
    for (frame, &is_library) in counted {
        if let Some(of_all) = by_function.get_mut(&function(&part.profile, frame)) {
            *of_all = Some(of_all.unwrap_or(true) && is_library);
        }
    }
    let of_library = by_function.values().filter(|of_all| **of_all == Some(true));
    let rows = [of_library.count(), by_function.len()];
    if rows[0] * 2 <= rows[1] {
        return Ok(None);
    }
    let folding = Query {
        own_code: true,
        ..query.clone()
    };
    let view = ProfileView::new(&part.profile, &folding)?;
    let samples = &part.profile.samples;
    let (mut by_frame, mut stack) = (HashMap::<u32, i128>::new(), Vec::new());
    for i in 0..samples.len() {
        let value = i128::from(samples.values(i)[part.column]);
        if value == 0 || !view.stack(samples, i, &mut stack) {
            continue;
        }
        if let Some(&leaf) = stack.first().filter(|&&leaf| !view.is_library(leaf)) {
            *by_frame.entry(leaf).or_default() += value;
        }
    }
    let mut flat = HashMap::<(Cow<'_, str>, &str), i128>::new();
    for (frame, value) in by_frame {
        let function = function(&part.profile, view.frames.get(frame));
        *flat.entry(function).or_default() += value;
    }
    let first = flat
        .into_iter()
        .max_by(|a, b| (a.1.abs(), &b.0).cmp(&(b.1.abs(), &a.0)));
    // An address in place of a library's name would not help the user.
    let first = first.filter(|((name, _), _)| !name.starts_with("0x") && !is_place_of_code(name));
    Ok(first.map(|((name, _), value)| OwnCode {
        function: name.into_owned(),
        value: value.abs(),
        rows,
    }))
}

/// Returns the name and the file of a frame's function.
fn function<'p>(profile: &'p Profile, frame: &'p ProfileFrame) -> (Cow<'p, str>, &'p str) {
    if let Some(function) = frame.function(profile) {
        let function = &profile.function[function.index()];
        return (
            profile.text(function.name).into(),
            profile.text(function.filename),
        );
    }
    match frame {
        ProfileFrame::Label { key, value } => (value.into(), key),
        ProfileFrame::Line { location, .. } | ProfileFrame::Address { location } => {
            let location = &profile.location[location.index()];
            (profile.address_name(location).into(), "")
        }
    }
}
