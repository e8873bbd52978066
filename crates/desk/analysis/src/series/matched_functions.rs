//! Matches functions over the steps of a series, although their files differ from step to step.

use heapprof_profile::Profile;
use heapprof_totals::same_name::{NameAndFile, match_files};

/// Gives functions with the same name the same file: the file in the first step that has the name.
/// A name that is in several files within one step keeps its files. `profile` has a column for each
/// step.
pub(super) fn match_steps(profile: &mut Profile) {
    let functions = profile.function.iter().map(|f| (f.name, f.filename));
    let functions: Vec<NameAndFile> = functions.collect();
    let has_others = have_several_files(&functions, profile.strings.len());
    if !has_others.contains(&true) {
        return;
    }
    let count = functions.len();
    let mut is_in_step = vec![false; profile.sample_type.len() * count];
    let samples = &profile.samples;
    for sample in 0..samples.len() {
        let values = samples.values(sample);
        for &location in samples.stack(sample) {
            let lines = profile.lines(&profile.location[location.index()]);
            let of_lines = lines.iter().map(|line| line.function.index());
            for function in of_lines.filter(|&function| has_others[function]) {
                for (step, _) in values.iter().enumerate().filter(|(_, value)| **value != 0) {
                    is_in_step[step * count + function] = true;
                }
            }
        }
    }
    let steps = is_in_step.chunks(count.max(1)).map(|step| -> Vec<u32> {
        let is_in = |function: &u32| step[*function as usize];
        (0..count as u32).filter(is_in).collect()
    });
    let steps: Vec<Vec<u32>> = steps.collect();
    let steps: Vec<&[u32]> = steps.iter().map(|step| &step[..]).collect();
    if let Some(files) = match_files(&functions, &steps, profile.strings.len()) {
        for (function, file) in profile.function.iter_mut().zip(files) {
            function.filename = file;
        }
    }
}

/// Returns, for each function, whether its name is in another file, too.
fn have_several_files(functions: &[NameAndFile], texts: usize) -> Vec<bool> {
    let mut first = vec![None; texts];
    let mut has_several = vec![false; texts];
    for &(name, file) in functions {
        has_several[name.index()] |= *first[name.index()].get_or_insert(file) != file;
    }
    let several = functions.iter().map(|(name, _)| has_several[name.index()]);
    several.collect()
}
