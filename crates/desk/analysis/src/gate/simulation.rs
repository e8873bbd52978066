//! Simulated programs that are sampled many times, by a generator with a fixed seed. They show how
//! often a range contains the true value, how often a rule fails although the program did not grow,
//! and how much growth makes a rule fail.
//!
//! `cargo test -p heapprof-analysis simulation -- --nocapture` prints the figures in
//! docs/guide/compare-two-profiles.md.

// The figures are for people who run the tests with --nocapture.
#![allow(clippy::print_stdout)]

use super::*;

const SAMPLING_PERIOD: f64 = 256.0;
const SAMPLE_STEP: SampleStep = SampleStep {
    each: SAMPLING_PERIOD,
    is_upper_bound: true,
};

/// A small random generator with a fixed seed: xorshift64*.
struct XorshiftGenerator(u64);

impl XorshiftGenerator {
    /// Returns a number from 0 to 1.
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the size of a block in a program of this kind.
    fn size(&mut self, kind: &str) -> f64 {
        match kind {
            "small" => 16.0,
            "mixed" => 2f64.powf(2.0 + 8.0 * self.share()).floor(),
            "large" => 2f64.powf(7.0 + 4.0 * self.share()).floor(),
            // Nearly all blocks are small, and a few hold half of the memory.
            _ if self.share() < 0.98 => 8.0,
            _ => 2f64.powf(8.0 + 4.0 * self.share()).floor(),
        }
    }

    /// Returns the sizes of a program's blocks. About `samples` of the blocks are sampled.
    fn program(&mut self, kind: &str, samples: f64) -> Vec<f64> {
        let (mut blocks, mut expected) = (Vec::new(), 0.0);
        while expected < samples {
            let size = self.size(kind);
            blocks.push(size);
            expected += probability(size);
        }
        blocks
    }

    /// Simulates a sampled recording of these blocks. Returns the estimate of their bytes, and the
    /// spread of this estimate.
    fn record(&mut self, blocks: &[f64]) -> (i64, SumSpread) {
        let (mut bytes, mut spread) = (0.0, SumSpread::default());
        for &size in blocks {
            let p = probability(size);
            if self.share() < p {
                bytes += size / p;
                spread = spread.combine(SumSpread {
                    samples: 1,
                    variance: size * size * (1.0 - p) / (p * p),
                });
            }
        }
        (bytes.round() as i64, spread)
    }

    /// Makes recordings of two programs, and returns whether their difference breaks a rule.
    fn fails(&mut self, rule: &GateRule, before: &[Vec<f64>], after: &[Vec<f64>]) -> bool {
        let functions = before.iter().zip(after).enumerate().map(|(i, (b, a))| {
            let ((before, of_before), (after, of_after)) = (self.record(b), self.record(a));
            let sides = ChangeSpread {
                spread: [Some(of_before), Some(of_after)],
                step: [SAMPLE_STEP; 2],
            };
            (i.to_string(), ValueChange { before, after }, sides)
        });
        let functions = functions.collect();
        let mut verdict = RuleVerdict::default();
        rule.judge("bytes", functions, &mut verdict).unwrap();
        !verdict.violations.is_empty()
    }

    /// Makes `pairs` pairs of recordings, and returns the percentage of pairs that break a rule.
    fn share_of_failures(
        &mut self,
        (rule, pairs): (&str, usize),
        before: &[Vec<f64>],
        after: &[Vec<f64>],
    ) -> f64 {
        let rule = GateRule::parse(rule).unwrap();
        let failed = (0..pairs).filter(|_| self.fails(&rule, before, after));
        100.0 * failed.count() as f64 / pairs as f64
    }
}

fn probability(size: f64) -> f64 {
    1.0 - (-(size + 1.0) / SAMPLING_PERIOD).exp()
}

const PROGRAM_KINDS: [&str; 4] = ["small", "mixed", "large", "few hold half"];

#[test]
fn ranges_hold_the_truth_as_often_as_they_say() {
    let mut random = XorshiftGenerator(7);
    let (mut few, mut many) = ((0, 0), (0, 0));
    for kind in PROGRAM_KINDS {
        for samples in [3, 6, 10, 15, 20, 25, 30, 50, 100, 300] {
            let blocks = random.program(kind, f64::from(samples));
            let truth: f64 = blocks.iter().sum();
            let runs = if samples < 100 { 600 } else { 300 };
            let held = (0..runs).filter(|_| {
                let (bytes, spread) = random.record(&blocks);
                let (low, high) =
                    spread.range(bytes as f64, SAMPLE_STEP, ConfidenceLevel::DEFAULT_LEVEL);
                low <= truth && truth <= high
            });
            let held = held.count();
            let share = 100.0 * held as f64 / f64::from(runs);
            println!("{kind}: {samples} samples expected, {share:.1} % held");
            // With this number of runs, the share is off by two or three percentage points.
            assert!(share >= 88.0, "{kind} {samples}: {share}");
            let sum = if samples < 30 { &mut few } else { &mut many };
            *sum = (sum.0 + held, sum.1 + runs);
        }
    }
    let share = |(held, runs): (usize, i32)| 100.0 * held as f64 / f64::from(runs);
    println!("few {:.1} %, many {:.1} %", share(few), share(many));
    assert!(share(few) >= 92.0 && share(few) <= 98.0, "{few:?}");
    assert!(share(many) >= 93.0 && share(many) <= 97.0, "{many:?}");
}

#[test]
fn equal_programs_hardly_ever_fail() {
    let mut random = XorshiftGenerator(17);
    for kind in PROGRAM_KINDS {
        for samples in [20.0, 30.0, 100.0, 300.0] {
            let blocks = vec![random.program(kind, samples)];
            let rule = ("inuse_space > +10%", 1000);
            let failed = random.share_of_failures(rule, &blocks, &blocks);
            println!("{kind}: {samples} samples, {failed:.1} % of equal pairs fail");
            assert!(failed <= 3.0, "{kind} {samples}: {failed}");
        }
    }
    // These rules are about forty functions with some samples each.
    for kind in PROGRAM_KINDS {
        let samples = (0..40).map(|i| f64::from(1 + i % 20));
        let functions: Vec<Vec<f64>> = samples.map(|n| random.program(kind, n)).collect();
        for rule in ["flat(.) > +0", "flat(.) > +10%"] {
            let failed = random.share_of_failures((rule, 300), &functions, &functions);
            println!("{kind}: {failed:.1} % of equal pairs fail {rule}");
            assert!(failed <= 5.0, "{kind} {rule}: {failed}");
        }
    }
}

#[test]
fn growth_is_seen() {
    let mut random = XorshiftGenerator(27);
    let mut power = |samples: f64, growth: f64| {
        let mut of_kinds = Vec::new();
        for kind in PROGRAM_KINDS {
            let before = vec![random.program(kind, samples)];
            let after = vec![random.program(kind, samples * growth)];
            // The programs are made of random blocks, so their growth is measured in bytes.
            let sum = |blocks: &[Vec<f64>]| blocks[0].iter().sum::<f64>();
            let wanted = growth * sum(&before);
            let mut after = after;
            while sum(&after) < wanted {
                let size = random.size(kind);
                after[0].push(size);
            }
            while sum(&after) > wanted {
                after[0].pop();
            }
            let rule = ("inuse_space > +10%", 200);
            of_kinds.push(random.share_of_failures(rule, &before, &after));
        }
        of_kinds.iter().sum::<f64>() / of_kinds.len() as f64
    };
    let growths = [1.3, 1.5, 2.0, 3.0, 5.0];
    let mut table = Vec::new();
    for samples in [20.0, 100.0, 300.0, 1000.0] {
        let row: Vec<i64> = growths.map(|g| power(samples, g).round() as i64).to_vec();
        println!("{samples} samples: {row:?} % of growth by {growths:?} caught");
        table.push(row);
    }
    assert!(table[3][0] >= 95, "{table:?}");
    assert!(table[0][4] >= 90 && table[1][2] >= 95, "{table:?}");
}
