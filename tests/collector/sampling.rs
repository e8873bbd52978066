//! Sampled profiles are right on average, and vary as theory predicts: 200 rounds of a known
//! workload, stack by stack.
//!
//! An allocation of s bytes is sampled with p = 1 - e^(-(s+1)/T), independently of all others, and
//! then counts as 1/p objects of s bytes. So a stack's bytes are right on average, with the
//! variance Σ s² (1-p)/p, and so are its objects, with Σ (1-p)/p. The seeds come from the clock.
//! These tests fail by chance less than once in a million runs.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_profile::Profile;

use crate::programs::build;
use crate::stacks::{preloaded, read};

const ROUNDS: usize = 200;
/// Number of standard errors by which a mean or a variance may be off. The chance of more is below
/// 1e-10 for each check, and below 1e-7 if the samples are too few to be normally distributed.
/// There are about 160 checks.
const ERRORS: f64 = 6.5;

/// Sites whose mean must be within 1 %, with kinds of values as indices into `KINDS`.
type Precise = [(&'static str, &'static [usize])];

const KINDS: [&str; 4] = [
    "alloc_objects",
    "alloc_space",
    "inuse_objects",
    "inuse_space",
];

/// A function's allocations in a round: the size, the number, and the number in use at the end.
struct Site {
    name: &'static str,
    blocks: Vec<(f64, f64, f64)>,
}

/// Returns the sites of programs/oracle_sampling.c.
fn sites(period: f64) -> Vec<Site> {
    let scale = if period < 8192.0 { 6.0 } else { 1.0 };
    let sizes = [24.0, 200.0, 1000.0, 3000.0, 10000.0, 40000.0, 160_000.0];
    let mixed = sizes.iter().enumerate().map(|(k, &size)| {
        let held = (0..7000).filter(|i| i % 7 == k && i % 3 == 0).count();
        (size, 1000.0, held as f64)
    });
    let large = f64::from(32 << 20);
    vec![
        Site {
            name: "site_small",
            blocks: vec![(16.0, 100_000.0 * scale, 50_000.0 * scale)],
        },
        Site {
            name: "site_middle",
            blocks: vec![(16384.0, 20_000.0, 10_000.0)],
        },
        Site {
            name: "site_mixed",
            blocks: mixed.collect(),
        },
        Site {
            name: "site_hard",
            blocks: vec![(large, 4.0, 4.0), (16.0, 19_996.0, 9996.0)],
        },
        Site {
            name: "site_realloc",
            blocks: vec![(3000.0, 4000.0, 0.0), (9000.0, 4000.0, 1000.0)],
        },
    ]
}

struct Theory {
    mean: f64,
    variance: f64,
    /// The fourth cumulant. A few samples of large weight vary more than normally distributed ones.
    fourth: f64,
}

impl Site {
    fn theory(&self, kind: usize, period: f64) -> Theory {
        let mut theory = Theory {
            mean: 0.0,
            variance: 0.0,
            fourth: 0.0,
        };
        for &(size, made, held) in &self.blocks {
            let p = -(-(size + 1.0) / period).exp_m1();
            let count = if kind < 2 { made } else { held };
            let value = if kind.is_multiple_of(2) { 1.0 } else { size };
            theory.mean += count * value;
            theory.variance += count * value * value * (1.0 - p) / p;
            let chance = p * (1.0 - p);
            theory.fourth += count * (value / p).powi(4) * chance * (1.0 - 6.0 * chance);
        }
        theory
    }
}

impl Theory {
    /// Returns the range of the variance of `ROUNDS` rounds, divided by the true variance. The
    /// bounds are Wilson and Hilferty's quantiles of a chi² whose degrees of freedom give the
    /// variance of the variance.
    fn band(&self) -> [f64; 2] {
        let n = ROUNDS as f64;
        let variance = 2.0 / (n - 1.0) + self.fourth / self.variance.powi(2) / n;
        let part = variance / 9.0;
        [-ERRORS, ERRORS].map(|z| (1.0 - part + z * part.sqrt()).max(0.0).powi(3))
    }
}

/// Compares the profiles of all rounds with theory.
fn judge(binary: &Path, profiles: &[PathBuf], period: f64, precise: &Precise) {
    assert_eq!(profiles.len(), ROUNDS);
    let functions = functions(binary);
    let rounds: Vec<_> = profiles
        .iter()
        .map(|path| sums(path, binary, &functions))
        .collect();
    let (n, mut failures) = (ROUNDS as f64, Vec::new());
    for site in sites(period) {
        for (kind, name) in KINDS.iter().enumerate() {
            let theory = site.theory(kind, period);
            let found: Vec<f64> = rounds
                .iter()
                .map(|sums| {
                    sums.get(site.name)
                        .map_or(0.0, |values| values[kind] as f64)
                })
                .collect();
            let mean = found.iter().sum::<f64>() / n;
            let spread = found.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let error = (theory.variance / n).sqrt();
            let what = format!("{} {name} at {period}", site.name);
            // Each value is rounded to a whole number.
            if (mean - theory.mean).abs() > ERRORS * error + 0.5 {
                failures.push(format!(
                    "{what}: on average {mean:.1} instead of {:.1} ± {error:.1}",
                    theory.mean
                ));
            }
            let is_precise =
                |(named, kinds): &(&str, &[usize])| *named == site.name && kinds.contains(&kind);
            if precise.iter().any(is_precise) {
                assert!(
                    ERRORS * error < 0.01 * theory.mean,
                    "{what}: the workload is too small to tell 1 %: {error} of {}",
                    theory.mean
                );
                if (mean / theory.mean - 1.0).abs() > 0.01 {
                    failures.push(format!("{what}: off by more than 1 %"));
                }
            }
            let [least, most] = theory.band();
            let ratio = spread / theory.variance.max(1.0);
            if theory.variance > 100.0 && !(least..most).contains(&ratio) {
                failures.push(format!(
                    "{what}: varies {ratio:.2} times as much as it should"
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

pub(crate) type Functions = Vec<(String, std::ops::Range<u64>)>;

/// Returns the places of the program's functions in its file. The linker maps them at the same
/// places in memory.
pub(crate) fn functions(binary: &Path) -> Functions {
    let output = Command::new("nm").arg("-S").arg(binary).output();
    let output = output.expect("nm comes with the compiler");
    let text = String::from_utf8(output.stdout).unwrap();
    let function = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [start, size, _, name] = words[..] else {
            return None;
        };
        let [start, size] = [start, size].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        Some((name.to_string(), start..start + size))
    };
    text.lines().filter_map(function).collect()
}

/// Returns a profile's sums by the function that allocated.
pub(crate) fn sums(
    path: &Path,
    binary: &Path,
    functions: &Functions,
) -> BTreeMap<String, Vec<i64>> {
    let profile = read(path);
    by_function(&profile, binary, functions, |i| {
        profile.samples.values(i).to_vec()
    })
}

/// Sums up the results of `values` for each sample, by the function that allocated.
fn by_function<V: Copy + Default + AddAssign>(
    profile: &Profile,
    binary: &Path,
    functions: &Functions,
    values: impl Fn(usize) -> Vec<V>,
) -> BTreeMap<String, Vec<V>> {
    let mut sums: BTreeMap<String, Vec<V>> = BTreeMap::new();
    for i in 0..profile.samples.len() {
        let Some(leaf) = profile.samples.stack(i).first() else {
            continue;
        };
        let leaf = &profile.location[leaf.index()];
        let Some(mapping) = leaf.mapping.map(|m| &profile.mapping[m.index()]) else {
            continue;
        };
        let place = leaf.address - mapping.memory_start + mapping.file_offset;
        let is_it = |(_, range): &&(String, std::ops::Range<u64>)| range.contains(&place);
        if Path::new(profile.text(mapping.filename)).file_name() != binary.file_name() {
            continue;
        }
        if let Some((name, _)) = functions.iter().find(is_it) {
            let values = values(i);
            let sum = sums.entry(name.clone());
            let sum = sum.or_insert_with(|| vec![V::default(); values.len()]);
            sum.iter_mut().zip(values).for_each(|(s, v)| *s += v);
        }
    }
    sums
}

/// Compares the profiles' own estimates of their variance with theory: the estimates are right on
/// average, and so is the number of samples.
fn judge_spread(binary: &Path, profiles: &[PathBuf], period: f64) {
    let functions = functions(binary);
    let (mut known, mut failures) = (BTreeMap::<String, Vec<f64>>::new(), Vec::new());
    for path in profiles {
        let profile = read(path);
        let spread = |i| {
            let spread = profile.samples.spread(i).expect("values are estimates");
            assert_eq!(spread.sampled[4..], [0; 2], "nothing is known of the peak");
            assert_eq!(spread.variance[4..], [0.0; 2]);
            let samples = spread.sampled[..4].iter().map(|&n| n as f64);
            samples
                .chain(spread.variance[..4].iter().copied())
                .collect()
        };
        for (name, sum) in by_function(&profile, binary, &functions, spread) {
            let all = known.entry(name).or_insert_with(|| vec![0.0; sum.len()]);
            all.iter_mut().zip(sum).for_each(|(all, one)| *all += one);
        }
    }
    let rounds = ROUNDS as f64;
    for site in sites(period) {
        for (kind, name) in KINDS.iter().enumerate() {
            // The expected samples and variance of a round, and the variances of these two values.
            let (mut mean, mut varies) = ([0.0; 2], [0.0; 2]);
            for &(size, made, held) in &site.blocks {
                let p = -(-(size + 1.0) / period).exp_m1();
                let count = if kind < 2 { made } else { held };
                let value = if kind.is_multiple_of(2) { 1.0 } else { size };
                let known = value * value * (1.0 - p) / (p * p);
                for (i, each) in [1.0, known].into_iter().enumerate() {
                    mean[i] += count * p * each;
                    varies[i] += count * p * (1.0 - p) * each * each;
                }
            }
            for (i, what) in ["samples", "variance"].iter().enumerate() {
                let found = known.get(site.name).map_or(0.0, |sums| sums[4 * i + kind]) / rounds;
                let error = (varies[i] / rounds).sqrt();
                if (found - mean[i]).abs() > ERRORS * error + 1e-6 * mean[i] {
                    failures.push(format!(
                        "{what} of {} {name} at {period}: {found} instead of {} ± {error}",
                        site.name, mean[i]
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn rounds_in_one_process(period: u64, precise: &Precise) {
    let Some(binaries) = build("oracle_sampling.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let status = preloaded(folder.path(), &binaries[0], &[])
        .args([&period.to_string(), &ROUNDS.to_string()])
        .arg(folder.path())
        .env("HEAPPROF_START", "no")
        .status();
    assert!(status.unwrap().success());
    let path = |round: usize| folder.path().join(format!("round.{round}.pb.gz"));
    let profiles: Vec<PathBuf> = (0..ROUNDS).map(path).collect();
    judge(&binaries[0], &profiles, period as f64, precise);
    judge_spread(&binaries[0], &profiles, period as f64);
}

/// Small blocks need many samples until their mean is certain.
#[test]
fn small_blocks_at_2_kib() {
    let precise: &Precise = &[
        ("site_small", &[0, 1, 2, 3]),
        ("site_middle", &[0, 1, 2, 3]),
        ("site_mixed", &[1, 3]),
        ("site_hard", &[1, 3]),
        ("site_realloc", &[0, 1, 2, 3]),
    ];
    rounds_in_one_process(2 << 10, precise);
}

const PRECISE_AT_64_KIB: &Precise = &[
    ("site_middle", &[0, 1, 2, 3]),
    ("site_mixed", &[1, 3]),
    ("site_hard", &[1, 3]),
];

#[test]
fn all_sites_at_64_kib() {
    rounds_in_one_process(64 << 10, PRECISE_AT_64_KIB);
}

/// Each round is a separate process, which tests the first countdown of a thread and the dump at
/// the end.
#[test]
fn processes_at_64_kib() {
    let Some(binaries) = build("oracle_sampling.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let round = |_| {
        let child = preloaded(folder.path(), &binaries[0], &[])
            .args([&(64 << 10).to_string(), "1"])
            .arg(folder.path())
            .env("HEAPPROF_MODE", "sampled")
            .env("HEAPPROF_PERIOD", "64KiB")
            .spawn();
        let mut child = child.unwrap();
        assert!(child.wait().unwrap().success());
        folder.path().join(format!("out.{}.pb.gz", child.id()))
    };
    let profiles: Vec<PathBuf> = (0..ROUNDS).map(round).collect();
    judge(
        &binaries[0],
        &profiles,
        f64::from(64 << 10),
        PRECISE_AT_64_KIB,
    );
}

/// The default period takes few samples, so the allowed range is wide.
#[test]
fn the_default_period() {
    rounds_in_one_process(512 << 10, &[("site_hard", &[1, 3])]);
}
