//! A path of names to each value: the shortest one, by phases.
//!
//! First come the symbol tables, then other roots, then what nothing leads to. Values with the same
//! path are one place. An array's elements have one path, and so have the values of a hash with
//! many keys, because names that differ for each value would say nothing of where memory is.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::kind::Kind;
use crate::leaked::firsts;
use crate::step::Step;
use crate::text::TextId;
use crate::values::{Edge, Phase, Root, Values};

/// A hash with more keys has one path for all of its values, if nothing else is asked for.
pub const MOST_KEYS: usize = 32;
/// A path of more names ends here: a list whose values lead to each other can be as long as memory
/// is.
const DEEPEST: u32 = 120;
/// What is deeper.
const DEEPER: &str = "(deeper)";
/// No place.
const NONE: u32 = u32::MAX;

/// The path of each value.
#[derive(Debug)]
pub(crate) struct Paths {
    /// Each place: the place before it, and its name.
    places: Vec<(u32, TextId)>,
    /// The place of each value.
    of: Vec<u32>,
    /// The value through which each was reached, itself if it is the first of its path.
    from: Vec<u32>,
    /// The step by which each was reached from there.
    steps: Vec<Step>,
    /// The first values of what nothing leads to.
    leaked: Vec<u32>,
    /// Whether each value is reached by roots, and how.
    reached: Vec<Reached>,
    /// Whether memory of C code may keep each value alive.
    may_be_held: Vec<bool>,
}

/// How a value is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// By Perl's own ways.
    Surely,
    /// Only by a pointer in memory of C code.
    ByMention,
    /// Not at all.
    Leaked,
}

impl Paths {
    /// Finds a path to each value. The values of a hash with more keys than `most_keys` have one
    /// path.
    #[must_use]
    pub(crate) fn new(values: &mut Values, most_keys: usize) -> Self {
        let count = values.all().len();
        let mut finder = Finder {
            places: Vec::new(),
            depths: Vec::new(),
            ids: HashMap::default(),
            of: vec![NONE; count],
            from: (0..count as u32).collect(),
            steps: vec![Step::Referent; count],
            symbols: VecDeque::new(),
            queue: VecDeque::new(),
            late: Vec::new(),
            may_be_held: Vec::new(),
            most_keys,
        };
        finder.begin(values, Phase::Symbols);
        finder.begin(values, Phase::Others);
        let surely: Vec<bool> = finder.of.iter().map(|&place| place != NONE).collect();
        finder.may_be_held = may_be_held(values, &surely);
        finder.begin(values, Phase::Mentions);
        finder.follow_late(values);
        let is_reached: Vec<bool> = finder.of.iter().map(|&place| place != NONE).collect();
        let mut leaked = Vec::new();
        let keeps = |edge: &Edge| keeps(edge, &finder.may_be_held);
        for (first, is_ring) in firsts(values, &is_reached, keeps) {
            leaked.push(first);
            let kind = values.get(first).kind.name();
            // A sub without a name is known by its place.
            let kind = match values.text(values.get(first).name) {
                "" => kind.to_string(),
                name => format!("{kind} {name}"),
            };
            let words = match is_ring {
                true => "(in a ring)",
                false => "(nothing refers to it)",
            };
            let (words, kind) = (values.text_id(words), values.text_id(&kind));
            let name = values.text_id("(leaked)");
            let mut place = finder.place(values, NONE, name);
            place = finder.place(values, place, words);
            // The class says more than the kind, if there is one.
            if values.class(values.get(first)) == TextId::NONE {
                place = finder.place(values, place, kind);
            }
            finder.reach(values, first, first, place);
            finder.follow(values);
            finder.follow_late(values);
        }
        let reached = surely.iter().zip(&is_reached);
        let reached = reached.map(|of| match of {
            (true, _) => Reached::Surely,
            (_, true) => Reached::ByMention,
            _ => Reached::Leaked,
        });
        Self {
            reached: reached.collect(),
            may_be_held: finder.may_be_held,
            places: finder.places,
            of: finder.of,
            from: finder.from,
            steps: finder.steps,
            leaked,
        }
    }

    /// The first values of what nothing leads to.
    #[must_use]
    pub(crate) fn leaked(&self) -> &[u32] {
        &self.leaked
    }

    /// How a value is reached.
    #[must_use]
    pub(crate) fn reached(&self, value: u32) -> Reached {
        self.reached[value as usize]
    }

    /// Whether an edge counts: it keeps a value alive, and is not only a pointer in memory of C
    /// code to a value that is reached by other ways, or that C code has no reference to.
    #[must_use]
    pub(crate) fn counts(&self, edge: &Edge) -> bool {
        let is_needless = edge.step.is_late() && self.reached(edge.to) == Reached::Surely;
        keeps(edge, &self.may_be_held) && !is_needless
    }

    /// Whether a root counts, as in [`counts`](Self::counts).
    pub(crate) fn is_root(&self, root: &Root) -> bool {
        let is_reached = self.reached(root.number) == Reached::Surely;
        root.phase != Phase::Mentions || !is_reached && self.may_be_held[root.number as usize]
    }

    /// The place of a value.
    #[must_use]
    pub(crate) fn place(&self, value: u32) -> u32 {
        self.of[value as usize]
    }

    /// The value through which another one was reached, and the step; `None` if it is the first of
    /// its path.
    #[must_use]
    pub(crate) fn before(&self, value: u32) -> Option<(u32, Step)> {
        let from = self.from[value as usize];
        (from != value).then(|| (from, self.steps[value as usize]))
    }

    /// The first place of the path of each place.
    pub(crate) fn firsts(&self) -> Vec<u32> {
        let mut firsts: Vec<u32> = Vec::with_capacity(self.places.len());
        for (place, &(before, _)) in (0..).zip(&self.places) {
            firsts.push(firsts.get(before as usize).copied().unwrap_or(place));
        }
        firsts
    }

    /// The name of a place.
    pub(crate) fn name(&self, place: u32) -> TextId {
        self.places[place as usize].1
    }

    /// A place and those before it, the last one first.
    pub(crate) fn places(&self, place: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = place;
        std::iter::from_fn(move || {
            let own = at;
            let &(before, _) = self.places.get(own as usize)?;
            at = before;
            Some(own)
        })
    }

    /// The path of a value in words, such as `main::;%CACHE;{*}`.
    #[must_use]
    pub(crate) fn shown(&self, values: &Values, value: u32) -> String {
        let places = self.places(self.place(value));
        let mut names: Vec<&str> = places.map(|at| values.text(self.name(at))).collect();
        names.reverse();
        names.join(";")
    }
}

/// Whether an edge keeps alive what it leads to: a pointer in memory of C code does so only for a
/// value that it may hold.
fn keeps(edge: &Edge, may_be_held: &[bool]) -> bool {
    edge.is_strong && (!edge.step.is_late() || may_be_held[edge.to as usize])
}

/// Whether memory of C code may keep each value alive: Perl counts more references to it than there
/// are in values that are not `reached`. If all of them are in such values, then C code has none,
/// and its pointer is old or only looks like one.
fn may_be_held(values: &Values, reached: &[bool]) -> Vec<bool> {
    let mut found = vec![0u32; reached.len()];
    for from in values.numbers() {
        if reached[from as usize] || !values.get(from).kind.is_value() {
            continue;
        }
        let is_counted =
            |edge: &&Edge| edge.is_strong && !edge.step.is_late() && edge.step != Step::Memory;
        for edge in values.edges(from).iter().filter(is_counted) {
            found[edge.to as usize] = found[edge.to as usize].saturating_add(1);
        }
    }
    let all = values.all().iter().zip(&found);
    let has_more = all.map(|(value, found)| !value.kind.is_value() || value.references != *found);
    has_more.collect()
}

/// Finds paths.
struct Finder {
    places: Vec<(u32, TextId)>,
    /// How many names each place has.
    depths: Vec<u32>,
    ids: HashMap<(u32, TextId), u32, RandomState>,
    of: Vec<u32>,
    from: Vec<u32>,
    steps: Vec<Step>,
    /// Symbols and symbol tables whose ways were not followed yet. They come before all others: the
    /// name of a symbol says more than a reference to what it has.
    symbols: VecDeque<u32>,
    /// Other values whose ways were not followed yet.
    queue: VecDeque<u32>,
    /// Ways that count only where no other one leads, which were not followed yet.
    late: Vec<(u32, Edge)>,
    /// Whether such ways count for each value.
    may_be_held: Vec<bool>,
    most_keys: usize,
}

impl Finder {
    /// The place with a name behind another place.
    fn place(&mut self, values: &mut Values, before: u32, mut name: TextId) -> u32 {
        let depth = self
            .depths
            .get(before as usize)
            .map_or(0, |depth| depth + 1);
        if depth > DEEPEST {
            return before;
        }
        if depth == DEEPEST {
            name = values.text_id(DEEPER);
        }
        *self.ids.entry((before, name)).or_insert_with(|| {
            self.places.push((before, name));
            self.depths.push(depth);
            self.places.len() as u32 - 1
        })
    }

    /// Notes that a value is reached at a place, below which its class is.
    fn reach(&mut self, values: &mut Values, from: u32, value: u32, mut place: u32) {
        if self.of[value as usize] != NONE {
            return;
        }
        let class = values.class(values.get(value));
        if class != TextId::NONE {
            place = self.place(values, place, class);
        }
        self.of[value as usize] = place;
        self.from[value as usize] = from;
        let kind = values.get(value).kind;
        match kind.is_stash() || kind == Kind::Glob {
            true => self.symbols.push_back(value),
            false => self.queue.push_back(value),
        }
    }

    /// Reaches what the roots of a phase lead to.
    fn begin(&mut self, values: &mut Values, phase: Phase) {
        let roots = values.roots().iter().filter(|root| root.phase == phase);
        for root in roots.copied().collect::<Vec<_>>() {
            if phase == Phase::Mentions && !self.may_be_held[root.number as usize] {
                continue;
            }
            let outer = match root.outer {
                TextId::NONE => NONE,
                outer => self.place(values, NONE, outer),
            };
            let place = self.place(values, outer, root.name);
            self.reach(values, root.number, root.number, place);
        }
        self.follow(values);
    }

    fn follow(&mut self, values: &mut Values) {
        while let Some(from) = self.symbols.pop_front().or_else(|| self.queue.pop_front()) {
            for i in 0..values.edges(from).len() {
                let edge = values.edges(from)[i];
                if !edge.is_strong || self.of[edge.to as usize] != NONE {
                    continue;
                }
                match edge.step.is_late() {
                    true => self.late.push((from, edge)),
                    false => self.go(values, from, edge),
                }
            }
        }
    }

    fn go(&mut self, values: &mut Values, from: u32, edge: Edge) {
        let before = self.of[from as usize];
        let place = self.step(values, from, before, &edge);
        self.steps[edge.to as usize] = edge.step;
        self.reach(values, from, edge.to, place);
    }

    /// Follows the ways that count only where no other one leads, and what they lead to.
    fn follow_late(&mut self, values: &mut Values) {
        while !self.late.is_empty() {
            for (from, edge) in std::mem::take(&mut self.late) {
                if self.of[edge.to as usize] == NONE && self.may_be_held[edge.to as usize] {
                    self.go(values, from, edge);
                }
            }
            self.follow(values);
        }
    }

    /// Whether a place is a sub's, which its name says.
    fn is_sub(&self, values: &Values, place: u32) -> bool {
        let (_, name) = self.places[place as usize];
        values.text(name).starts_with('&')
    }

    /// The place to which a step leads.
    fn step(&mut self, values: &mut Values, from: u32, before: u32, edge: &Edge) -> u32 {
        let own = *values.get(from);
        let name = match edge.step {
            // `main::` has `%CACHE`, and not the symbol `*CACHE` with a hash.
            Step::Slot(sigil) if own.kind == Kind::Glob => {
                let symbol = values.text(own.name);
                // A symbol table has a name of its own.
                let name = match (sigil, symbol.ends_with("::")) {
                    (b'%', true) => symbol.to_string(),
                    _ => format!("{}{}", char::from(sigil), written(symbol)),
                };
                let name = values.text_id(&name);
                let outer = self.places[before as usize].0;
                return self.place(values, outer, name);
            }
            Step::Slot(sigil) => values.text_id(&char::from(sigil).to_string()),
            Step::Referent if self.is_sub(values, before) => return before,
            Step::Referent => values.text_id("->"),
            Step::Element(_) => values.text_id("[*]"),
            Step::Field(number) => values.text_id(&format!("field {number}")),
            Step::Key(key) if own.kind.is_stash() => match values.text(key) {
                table if table.ends_with("::") => key,
                symbol => {
                    // A sub may stand there without a symbol, as a reference.
                    let is_symbol = values.get(edge.to).kind == Kind::Glob;
                    let symbol = format!("{}{symbol}", if is_symbol { '*' } else { '&' });
                    values.text_id(&symbol)
                }
            },
            Step::Entry => values.text_id("{*}"),
            Step::Key(_) if values.edges(from).len() > self.most_keys => values.text_id("{*}"),
            Step::Key(key) => {
                let key = format!("{{{}}}", values.text(key));
                values.text_id(&key)
            }
            Step::Pad(depth) => values.text_id(&format!("<pad depth {depth}>")),
            Step::Variable(name) => {
                let name = format!("my {}", values.text(name));
                values.text_id(&name)
            }
            Step::Temporary => values.text_id("<temporary>"),
            Step::Constant => values.text_id("<constant>"),
            Step::Outside => values.text_id("<outside>"),
            Step::Magic(letter) => {
                let letter = [letter].escape_ascii().to_string();
                values.text_id(&format!("<magic {letter}>"))
            }
            Step::Target => values.text_id("<target>"),
            Step::Named(name) => {
                let name = format!("<{}>", values.text(name));
                values.text_id(&name)
            }
            // What C code has in turn is not told apart: nobody knows its names.
            Step::Memory | Step::Ops if !own.kind.is_value() => return before,
            Step::Ops => values.text_id("<ops>"),
            Step::Memory => values.text_id("(C memory)"),
            Step::Mention => values.text_id("->"),
            Step::Class => values.text_id("<class>"),
        };
        self.place(values, before, name)
    }
}

/// A symbol as a program writes it: what begins with a control character is `{^NAME}`.
fn written(symbol: &str) -> String {
    match symbol.as_bytes() {
        [control @ 1..=26] => format!("^{}", char::from(control + 64)),
        [control @ 1..=26, ..] => format!("{{^{}{}}}", char::from(control + 64), &symbol[1..]),
        _ => symbol.to_string(),
    }
}
