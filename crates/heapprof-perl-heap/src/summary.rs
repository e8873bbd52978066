//! Values in sums: by type, by where they are reached from, and the variables that hold most.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::found::Found;
use crate::kind::Kind;
use crate::step::Step;

/// Of what has no name, only this many bytes and more are told.
const LARGE: u64 = 1024;

/// How many, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many values.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A variable, and what would go if it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its path.
    pub path: String,
    /// How many values have the path: one for each closure or depth of recursion.
    pub objects: u64,
    /// What they retain, in bytes.
    pub retained: u64,
}

/// Values in sums.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// By type, the one with most bytes first.
    pub kinds: Vec<(&'static str, Sum)>,
    /// By where they are reached from, the one with most bytes first.
    pub parts: Vec<(String, Sum)>,
    /// The variables, the one that retains most first.
    pub holders: Vec<Holder>,
    /// Perl's values, without what is of its own kind.
    pub values: Sum,
    /// All.
    pub all: Sum,
}

/// What a part is called, by the first name of its paths.
fn part(first: &str) -> &str {
    match first {
        "main::" => "symbol tables",
        "(main program)" => "the main program",
        "(running)" | "(stacks)" | "(until the statement ends)" | "(saved by local)" => {
            "stacks of Perl's"
        }
        root if root.starts_with("(root ") => "other variables of the interpreter",
        part if part.starts_with("(interpreter") => "(interpreter)",
        part => part,
    }
}

impl Found {
    /// All values in sums.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let mut kinds: HashMap<Kind, Sum, RandomState> = HashMap::default();
        let mut parts: HashMap<u32, Sum, RandomState> = HashMap::default();
        let mut holders: HashMap<u32, Holder, RandomState> = HashMap::default();
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
                let holder = holders.entry(place).or_insert_with(|| Holder {
                    path: self.paths.shown(&self.values, number),
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
        let mut named: HashMap<String, Sum, RandomState> = HashMap::default();
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

    /// Whether a value is a variable: of a symbol, or of a sub.
    fn is_variable(&self, number: u32) -> bool {
        let step = self.paths.before(number).map(|(_, step)| step);
        match step {
            Some(Step::Slot(b'$' | b'@') | Step::Variable(_)) => true,
            Some(Step::Slot(b'%')) => !self.is_table(number),
            // A constant, or what was computed last.
            Some(Step::Temporary) => {
                let kind = self.values.get(number).kind;
                let is_large = self.retained[number as usize] >= LARGE;
                is_large && !matches!(kind, Kind::Glob | Kind::Code)
            }
            _ => false,
        }
    }

    fn is_table(&self, number: u32) -> bool {
        self.values.get(number).kind.is_stash()
    }
}
