//! Finds wrappers of malloc: functions that pass requests for memory on to malloc. Wrappers that
//! the profile or the query names already are left out.

use std::collections::BTreeMap;

use heapprof_profile::{FunctionIndex, Profile, is_place_of_code};

use crate::error::AnalysisError;
use crate::session::AnalysisSession;
use heapprof_totals::filter::simple_name;
use heapprof_totals::query::Query;
use heapprof_totals::view::ProfileView;

/// A function that looks like a wrapper of malloc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationWrapper {
    /// The name of the function without parameters. An expression for `drop_frames` is matched
    /// against it.
    pub function: String,
    /// The number of functions that call the wrapper.
    pub callers: usize,
    /// The sum that the wrapper allocated for its callers, regardless of sign, in the requested
    /// sample type.
    pub value: i128,
    /// The sum of all values of the requested sample type, regardless of sign.
    pub total: i128,
}

impl AllocationWrapper {
    /// Returns the regular expression that drops this function and no other.
    pub fn pattern(&self) -> String {
        format!("^{}$", regex::escape(&self.function))
    }
}

/// Least share of the bytes below a wrapper that the wrapper requests from malloc itself, without
/// another function in between.
const MIN_DIRECT_SHARE: f64 = 0.97;
/// Least number of callers of a wrapper. The first number is for functions with names, and the
/// second for code without names. The second is larger, because no word in a name confirms the
/// guess.
const MIN_CALLERS: [usize; 2] = [5, 8];
/// Least number of different sizes that callers request from a wrapper. The first number is for
/// functions with names, and the second for code without names. A function that makes objects of
/// one type is no wrapper.
const MIN_SIZES: [usize; 2] = [3, 5];
/// Largest share by which two sizes may differ and still count as one.
const MAX_EQUAL_SIZE_DIFFERENCE: f64 = 0.02;
/// Least share of all bytes that a wrapper needs to be proposed. The first number is for functions
/// with names, and the second for code without names.
const MIN_TOTAL_SHARE: [f64; 2] = [0.01, 0.05];
/// Words for allocation. A function with a name is a wrapper only if its name contains one of these
/// words.
const ALLOCATION_WORDS: &[&str] = &[
    "alloc", "getmem", "get_mem", "newmem", "new_mem", "mem_new", "memdup", "mem_dup", "strdup",
];

#[derive(Default)]
struct WrapperCandidate {
    /// The sum that the function allocated itself, of the requested sample type.
    value: i128,
    flat: i128,
    cum: i128,
    /// The bytes and objects that the function allocated, by caller.
    callers: BTreeMap<Option<FunctionIndex>, [i128; 2]>,
}

/// Returns the wrappers in the session's profile with the number `profile` (from 1), except those
/// that the query drops already. The wrapper that allocated most comes first. There are none if the
/// query wants all frames, or if the session has no samples of the profile.
///
/// # Errors
/// The errors are the same as for any question about the profile.
pub(crate) fn wrappers(
    session: &AnalysisSession,
    profile: i64,
    query: &Query,
) -> Result<Vec<AllocationWrapper>, AnalysisError> {
    match &session.question {
        Some(question) if !query.all_frames => {
            let part = &question.parts[profile as usize - 1];
            wrappers_in_profile(&part.profile, part.column, query)
        }
        _ => Ok(Vec::new()),
    }
}

fn wrappers_in_profile(
    profile: &Profile,
    asked: usize,
    query: &Query,
) -> Result<Vec<AllocationWrapper>, AnalysisError> {
    let pairs = [
        ["alloc_space", "alloc_objects"],
        ["inuse_space", "inuse_objects"],
    ];
    let columns = pairs.iter().find_map(|[space, objects]| {
        let (space, objects) = (
            profile.find_sample_type(space),
            profile.find_sample_type(objects),
        );
        Some([space.ok()?, objects.ok()?])
    });
    // For each function that may be a wrapper, this is whether it has no name; `None` if it can't
    // be a wrapper.
    let may_be: Vec<Option<bool>> = profile
        .function
        .iter()
        .map(|f| match simple_name(profile.text(f.name)) {
            name if is_place_of_code(name) => Some(true),
            name => has_allocation_word(name).then_some(false),
        })
        .collect();
    let (Some(columns), true) = (columns, may_be.iter().any(Option::is_some)) else {
        return Ok(Vec::new());
    };
    let unfiltered = Query {
        wrappers: query.wrappers.clone(),
        ..Query::default()
    };
    let view = ProfileView::new(profile, &unfiltered)?;
    let function = |frame: u32| view.frames.get(frame).function(profile);
    let mut seen: BTreeMap<FunctionIndex, WrapperCandidate> = BTreeMap::new();
    let (mut stack, mut once) = (Vec::new(), Vec::new());
    let (mut total, mut total_asked) = (0, 0);
    for i in 0..profile.samples.len() {
        let values = profile.samples.values(i);
        let [bytes, objects] = columns.map(|column| i128::from(values[column]));
        let value = i128::from(values[asked].unsigned_abs());
        total += bytes;
        total_asked += value;
        if bytes == 0 || !view.stack(&profile.samples, i, &mut stack) {
            continue;
        }
        once.clear();
        once.extend(
            stack
                .iter()
                .filter_map(|&f| function(f))
                .filter(|f| may_be[f.index()].is_some()),
        );
        once.sort_unstable();
        once.dedup();
        for &f in &once {
            seen.entry(f).or_default().cum += bytes;
        }
        let Some(leaf) = stack.first().and_then(|&f| function(f)) else {
            continue;
        };
        if may_be[leaf.index()].is_some() {
            let caller = stack
                .iter()
                .map(|&f| function(f))
                .find(|f| *f != Some(leaf));
            let entry = seen.entry(leaf).or_default();
            entry.flat += bytes;
            entry.value += value;
            let of_caller = entry.callers.entry(caller.flatten()).or_default();
            of_caller[0] += bytes;
            of_caller[1] += objects;
        }
    }
    let mut found: Vec<AllocationWrapper> = seen
        .into_iter()
        .filter(|(f, seen)| seen.is_wrapper(total, may_be[f.index()] == Some(true)))
        .map(|(f, seen)| AllocationWrapper {
            function: simple_name(profile.text(profile.function[f.index()].name)).to_string(),
            callers: seen.callers.len(),
            value: seen.value,
            total: total_asked,
        })
        .collect();
    found.sort_by(|a, b| (-a.value, &a.function).cmp(&(-b.value, &b.function)));
    Ok(found)
}

impl WrapperCandidate {
    fn is_wrapper(&self, total: i128, is_nameless: bool) -> bool {
        let by_name = usize::from(is_nameless);
        let mut sizes: Vec<f64> = self
            .callers
            .values()
            .filter(|[_, objects]| *objects > 0)
            .map(|[bytes, objects]| *bytes as f64 / *objects as f64)
            .collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup_by(|next, size| *next <= *size * (1.0 + MAX_EQUAL_SIZE_DIFFERENCE));
        self.callers.len() >= MIN_CALLERS[by_name]
            && sizes.len() >= MIN_SIZES[by_name]
            && self.flat as f64 >= MIN_DIRECT_SHARE * self.cum as f64
            && self.flat as f64 >= MIN_TOTAL_SHARE[by_name] * total as f64
    }
}

/// Whether the name of a function, without its class, contains a word for allocation.
fn has_allocation_word(name: &str) -> bool {
    let own = name
        .rsplit("::")
        .next()
        .unwrap_or(name)
        .to_ascii_lowercase();
    ALLOCATION_WORDS.iter().any(|word| own.contains(word))
}
