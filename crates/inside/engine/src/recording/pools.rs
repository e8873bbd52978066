//! Divides the memory of pools at a dump. A pool's memory in use is divided among the parts that
//! its provider reports.
//!
//! The reported parts describe the moment of the dump, and may include memory that was allocated
//! before the recording. So they only serve as proportions, and the results always add up to the
//! memory in use.

use heapprof_abi::StackNumber;

use crate::engine::Engine;
use crate::options::FrameChoice;
use crate::recording::sums::StackSums;
use crate::stack::provider::ProviderReport;
use crate::tables::script_frames::ScriptFrame;
use crate::tables::spread::SpreadEstimate;

/// The sums of a part of a pool.
pub(super) struct PoolPartSums {
    /// The number of the pool's stack.
    pub(super) pool: StackNumber,
    /// The stack word of the part's frame.
    pub(super) word: u64,
    pub(super) sums: StackSums,
}

/// Returns the current report of each provider, with the provider's number.
pub(super) fn reports(engine: &Engine) -> Vec<(usize, ProviderReport)> {
    let providers = &engine.scripts.providers;
    match providers.frame_choice() {
        FrameChoice::Native => Vec::new(),
        _ => providers
            .all()
            .filter(|&(i, _)| !providers.is_broken(i))
            .map(|(i, of)| (i, of.report()))
            .collect(),
    }
}

/// Moves the memory in use from the sums of pools to the sums of their reported parts. Returns the
/// sums of the parts.
pub(super) fn split(
    engine: &Engine,
    sums: &mut [StackSums],
    reports: &[(usize, ProviderReport)],
) -> Vec<PoolPartSums> {
    let scripts = &engine.scripts;
    let mut all = Vec::new();
    for &(i, ProviderReport { ref parts, .. }) in reports {
        let has_some = |&stack: &StackNumber| {
            let sum = sums.get(stack.to_index());
            sum.is_some_and(|sum| sum.in_use()[1] > 0)
        };
        let pools: Vec<StackNumber> = scripts.pools.provider_pools(i).filter(has_some).collect();
        let of_all =
            |of: fn(&(String, u64, u64)) -> u64| -> Vec<u64> { parts.iter().map(of).collect() };
        let (objects, bytes) = (of_all(|part| part.1), of_all(|part| part.2));
        if bytes.iter().all(|&bytes| bytes == 0) {
            continue;
        }
        // The pools of all threads are divided alike, because no provider reports whose the parts
        // are.
        let together = match scripts.providers.is_by_thread() {
            true => 1,
            false => pools.len().max(1),
        };
        let whole = bytes.iter().map(|&bytes| bytes as f64).sum::<f64>();
        for pools in pools.chunks(together) {
            let mut in_use = StackSums::default();
            for &pool in pools {
                take_in_use(&mut sums[pool.to_index()], &mut in_use);
            }
            let divided = [
                divide(in_use.allocated[0], &objects),
                divide(in_use.allocated[1], &bytes),
            ];
            for (at, (name, ..)) in parts.iter().enumerate() {
                let allocated = [divided[0][at], divided[1][at]];
                if allocated == [0, 0] {
                    continue;
                }
                let frame = ScriptFrame {
                    name: name.as_bytes(),
                    file: b"",
                    start_line: 0,
                    line: 0,
                };
                let share = bytes[at] as f64 / whole;
                all.push(PoolPartSums {
                    pool: pools[0],
                    word: scripts.names.word(&engine.process, frame),
                    sums: StackSums {
                        allocated,
                        spread: in_use.spread.map(|known| SpreadEstimate {
                            samples: (known.samples as f64 * share).round() as u64,
                            variance: known.variance.map(|variance| variance * share),
                        }),
                        ..StackSums::default()
                    },
                });
            }
        }
    }
    all
}

/// Moves the memory in use from `sum` to `to`, as if it had been allocated there.
fn take_in_use(sum: &mut StackSums, to: &mut StackSums) {
    let in_use = sum.in_use();
    for (i, in_use) in in_use.into_iter().enumerate() {
        sum.allocated[i] -= in_use;
        to.allocated[i] += in_use;
    }
    for (from, to) in sum.spread.iter_mut().zip(&mut to.spread) {
        let SpreadEstimate { samples, variance } = std::mem::take(from);
        to.samples += samples;
        to.variance = [to.variance[0] + variance[0], to.variance[1] + variance[1]];
    }
}

/// Divides a sum in proportion to `weights`. The remainder goes to the largest weight.
fn divide(sum: i64, weights: &[u64]) -> Vec<i64> {
    let whole: i128 = weights.iter().map(|&weight| i128::from(weight)).sum();
    if whole == 0 {
        // Without weights all of it goes to the first part.
        let first = weights.iter().take(1).map(|_| sum);
        return first.chain(weights.iter().skip(1).map(|_| 0)).collect();
    }
    let part = |&weight: &u64| (i128::from(sum) * i128::from(weight) / whole) as i64;
    let mut parts: Vec<i64> = weights.iter().map(part).collect();
    let left = sum - parts.iter().sum::<i64>();
    let largest = (0..weights.len()).max_by_key(|&i| weights[i]);
    if let Some(largest) = largest {
        parts[largest] += left;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up() {
        for (sum, weights, expected) in [
            (100, &[1, 1][..], &[50, 50][..]),
            (100, &[1, 2, 0], &[33, 67, 0]),
            (-7, &[1, 1], &[-3, -4]),
            (5, &[0, 0], &[5, 0]),
            (i64::MAX, &[u64::MAX, 1], &[i64::MAX, 0]),
            (0, &[3], &[0]),
        ] {
            let parts = divide(sum, weights);
            assert_eq!(parts, expected, "{sum}, {weights:?}");
            assert_eq!(parts.iter().sum::<i64>(), sum);
        }
    }
}
