//! Sums up leaked values by the first value of each leak: a value to which nothing leads, or one
//! value of a ring.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::analysis::PerlValueAnalysis;

/// A group of leaks whose first values have the same path and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerlLeak {
    /// The path of the first values. It begins with `(leaked)`.
    pub path: String,
    /// Name of the first values' kind.
    pub kind: &'static str,
    /// Number of leaks in the group.
    pub count: u64,
    /// Bytes that the first values retain.
    pub retained: u64,
    /// Lowest address of the first values.
    pub example: u64,
}

impl PerlValueAnalysis {
    /// Returns the groups of leaks. The group that retains the most comes first.
    #[must_use]
    pub fn leaks(&self) -> Vec<PerlLeak> {
        let mut leaks: HashMap<(u32, &str), PerlLeak, RandomState> = HashMap::default();
        for &number in self.paths.leaked_values() {
            let value = self.values.get(number);
            let key = (self.paths.place(number), value.kind.name());
            let leak = leaks.entry(key).or_insert_with(|| PerlLeak {
                path: self.paths.path_text(&self.values, number),
                kind: value.kind.name(),
                count: 0,
                retained: 0,
                example: value.address,
            });
            leak.count += 1;
            leak.retained += self.retained[number as usize];
            leak.example = leak.example.min(value.address);
        }
        let mut leaks: Vec<PerlLeak> = leaks.into_values().collect();
        leaks.sort_by(|one, other| {
            let key = |leak: &PerlLeak| {
                (
                    std::cmp::Reverse(leak.retained),
                    leak.path.clone(),
                    leak.kind,
                )
            };
            key(one).cmp(&key(other))
        });
        leaks
    }
}
