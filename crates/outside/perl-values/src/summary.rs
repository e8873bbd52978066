//! Sums up values by type and by the part of the program that reaches them, and lists the variables
//! that retain the most.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::analysis::PerlValueAnalysis;
use crate::kind::PerlValueKind;
use crate::step::ValueStep;

/// Minimum number of retained bytes for a value without a name to be listed.
const MIN_UNNAMED_BYTES: u64 = 1024;

/// A number of values, and the number of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueSum {
    /// Number of values.
    pub objects: u64,
    /// Bytes of the values.
    pub bytes: u64,
}

impl ValueSum {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A variable, and the bytes that would be freed with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainingVariable {
    /// The variable's path.
    pub path: String,
    /// Number of values with this path: one for each closure or depth of recursion.
    pub objects: u64,
    /// Bytes that the values with this path retain.
    pub retained: u64,
}

/// The sums of a program's values.
#[derive(Clone, Debug, Default)]
pub struct PerlHeapSummary {
    /// Sums of values by type, the type with the most bytes first.
    pub kinds: Vec<(&'static str, ValueSum)>,
    /// Sums of values by the part of the program that reaches them, the part with the most bytes
    /// first.
    pub parts: Vec<(String, ValueSum)>,
    /// The variables. The variable that retains the most comes first.
    pub holders: Vec<RetainingVariable>,
    /// Sum of Perl's own values, without heapprof's kinds such as memory of C code.
    pub values: ValueSum,
    /// Sum of all values.
    pub all: ValueSum,
}

/// Returns the name of a part of the program: the part to which paths with the first name `first`
/// belong.
fn part(first: &str) -> &str {
    match first {
        "main::" => "symbol tables",
        "(main program)" => "the main program",
        "(running)" | "(stacks)" | "(until the statement ends)" | "(saved by local)" => {
            "Perl's stacks"
        }
        root if root.starts_with("(root ") => "other variables of the interpreter",
        part if part.starts_with("(interpreter") => "(interpreter)",
        part => part,
    }
}

impl PerlValueAnalysis {
    /// Computes the sums of all values.
    #[must_use]
    pub fn summary(&self) -> PerlHeapSummary {
        let mut summary = PerlHeapSummary::default();
        let mut kinds: HashMap<PerlValueKind, ValueSum, RandomState> = HashMap::default();
        let mut parts: HashMap<u32, ValueSum, RandomState> = HashMap::default();
        let mut holders: HashMap<u32, RetainingVariable, RandomState> = HashMap::default();
        let firsts = self.paths.firsts();
        for (number, value) in (0..).zip(self.values.all()) {
            kinds.entry(value.kind).or_default().add(value.size);
            let place = self.paths.place(number);
            parts
                .entry(firsts[place as usize])
                .or_default()
                .add(value.size);
            summary.all.add(value.size);
            if value.kind.is_value() {
                summary.values.add(value.size);
            }
            if self.is_variable(number) {
                let holder = holders.entry(place).or_insert_with(|| RetainingVariable {
                    path: self.paths.path_text(&self.values, number),
                    objects: 0,
                    retained: 0,
                });
                holder.objects += 1;
                holder.retained += self.retained[number as usize];
            }
        }
        let mut kinds: Vec<_> = kinds
            .into_iter()
            .map(|(kind, sum)| (kind.name(), sum))
            .collect();
        kinds.sort_by_key(|&(name, sum)| (std::cmp::Reverse(sum.bytes), name));
        summary.kinds = kinds;
        let mut named: HashMap<String, ValueSum, RandomState> = HashMap::default();
        for (place, sum) in parts {
            let name = self.values.text(self.paths.name(place));
            let part = named.entry(part(name).to_string()).or_default();
            part.objects += sum.objects;
            part.bytes += sum.bytes;
        }
        summary.parts = named.into_iter().collect();
        summary
            .parts
            .sort_by(|one, other| (other.1.bytes, &one.0).cmp(&(one.1.bytes, &other.0)));
        summary.holders = holders.into_values().collect();
        summary
            .holders
            .sort_by(|one, other| (other.retained, &one.path).cmp(&(one.retained, &other.path)));
        summary
    }

    /// Whether a value is a variable of a symbol or of a sub.
    fn is_variable(&self, number: u32) -> bool {
        let step = self.paths.before(number).map(|(_, step)| step);
        match step {
            Some(ValueStep::Slot(b'$' | b'@') | ValueStep::Variable(_)) => true,
            Some(ValueStep::Slot(b'%')) => !self.is_table(number),
            // A constant, or the result of the last computation.
            Some(ValueStep::Temporary) => {
                let kind = self.values.get(number).kind;
                let is_large = self.retained[number as usize] >= MIN_UNNAMED_BYTES;
                is_large && !matches!(kind, PerlValueKind::Glob | PerlValueKind::Code)
            }
            _ => false,
        }
    }

    fn is_table(&self, number: u32) -> bool {
        self.values.get(number).kind.is_stash()
    }
}
