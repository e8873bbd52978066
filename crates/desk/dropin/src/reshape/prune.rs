//! Cuts stacks below a function, for the profile's own drop_frames and for prune_from.

use heapprof_profile::Profile;
use regex::Regex;

use heapprof_totals::filter::simple_name;
use heapprof_totals::pattern::go_regex;

/// Removes each frame that `drop_frames` matches and `keep_frames` does not match, with all frames
/// that it called. Matching frames at the root stay, up to the first frame that does not match. If
/// a regular expression is invalid, returns an error and leaves the profile unchanged.
pub fn drop_uninteresting(profile: &mut Profile) -> Result<(), String> {
    let whole = |id| match profile.text(id) {
        "" => Ok(None),
        text => go_regex(&format!("^({text})$")).map(Some),
    };
    let Some(drop) = whole(profile.drop_frames)? else {
        return Ok(());
    };
    let keep = whole(profile.keep_frames)?;
    let dropped = functions(profile, |name| {
        drop.is_match(name) && !keep.as_ref().is_some_and(|k| k.is_match(name))
    });
    let mut whole = vec![false; profile.location.len()];
    let mut beneath = vec![false; profile.location.len()];
    for (l, location) in profile.location.iter_mut().enumerate() {
        let lines = &profile.line[location.line.start as usize..location.line.end as usize];
        let Some(outermost) = lines
            .iter()
            .rposition(|line| dropped[line.function.index()])
        else {
            continue;
        };
        beneath[l] = true;
        match outermost == lines.len() - 1 {
            true => whole[l] = true,
            false => location.line.start += outermost as u32 + 1,
        }
    }
    if !beneath.contains(&true) {
        return Ok(());
    }
    profile.samples.rewrite(|stack, _, _, kept| {
        let mut found_user = false;
        let mut from = 0;
        for (at, location) in stack.iter().enumerate().rev() {
            let l = location.index();
            if !beneath[l] {
                found_user = true;
            } else if found_user {
                from = at + usize::from(whole[l]);
                break;
            }
        }
        kept.extend_from_slice(&stack[from..]);
        true
    });
    Ok(())
}

/// Finds the matching frame that is nearest to the leaf of each stack, and removes the frames that
/// it called. Names are matched without their parameters.
pub fn prune_from(profile: &mut Profile, regex: &Regex) {
    let matches = functions(profile, |name| regex.is_match(name));
    let mut from = vec![false; profile.location.len()];
    for (l, location) in profile.location.iter_mut().enumerate() {
        let lines = &profile.line[location.line.start as usize..location.line.end as usize];
        let innermost = lines.iter().position(|line| matches[line.function.index()]);
        if let Some(innermost) = innermost {
            from[l] = true;
            location.line.start += innermost as u32;
        }
    }
    profile.samples.rewrite(|stack, _, _, kept| {
        let at = stack.iter().position(|location| from[location.index()]);
        kept.extend_from_slice(&stack[at.unwrap_or(0)..]);
        true
    });
}

/// Returns for each function whether `is` returns true for its name without parameters.
fn functions(profile: &Profile, is: impl Fn(&str) -> bool) -> Vec<bool> {
    let functions = profile.function.iter();
    functions
        .map(|f| !f.name.is_empty() && is(simple_name(profile.text(f.name))))
        .collect()
}
