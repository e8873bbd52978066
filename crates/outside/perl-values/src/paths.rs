//! Finds a path of names to each value: the shortest one, first from the symbol tables, then from
//! other roots, then from leaked values.
//!
//! The paths form a tree of names. A *place* is a node of this tree: it stands for a path, so
//! values with the same path have the same place. The elements of an array share one path, and so
//! do the values of a hash with many keys. Names that differ for each value would not help to find
//! the memory.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::kind::PerlValueKind;
use crate::leak_roots::firsts;
use crate::step::ValueStep;
use crate::text::TextId;
use crate::values::{PathPhase, ValueEdge, ValueGraph, ValueRoot};

/// Default for the maximum number of keys of a hash in which each value has its own path. The
/// values of a larger hash share the path `{*}`.
pub const MAX_NAMED_KEYS: usize = 32;
/// Maximum number of names in a path. A linked list can lead through all of memory.
const MAX_PATH_DEPTH: u32 = 120;
/// Name that replaces all further names of a path that is too long.
const DEEPER_NAME: &str = "(deeper)";
/// Number that stands for "no place": a value has no path yet, or a path is empty.
const NO_PLACE: u32 = u32::MAX;

/// The path of each value, as a node (a place) in a tree of names.
#[derive(Debug)]
pub(crate) struct ValuePaths {
    /// The tree of names: all places, each with the number of its parent and its own name.
    places: Vec<(u32, TextId)>,
    /// Number of the place that stands for the path of each value.
    place_of_value: Vec<u32>,
    /// The value from which each value was reached; for the first value of a path, the value
    /// itself.
    from: Vec<u32>,
    /// The step by which each value was reached from the value in `from`.
    steps: Vec<ValueStep>,
    /// The first value of each leak.
    leaked: Vec<u32>,
    /// How each value is reached from roots.
    reached: Vec<Reachability>,
    /// Whether memory of C code may keep each value alive.
    may_be_retained: Vec<bool>,
}

/// Whether and how a value is reached from roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// Reached by references that Perl counts.
    Surely,
    /// Reached only through a pointer in the memory of C code.
    ByMention,
    /// Not reached: the value has leaked.
    Leaked,
}

impl ValuePaths {
    /// Finds a path to each value. All values of a hash with more than `most_keys` keys share one
    /// path.
    #[must_use]
    pub(crate) fn new(values: &mut ValueGraph, most_keys: usize) -> Self {
        let count = values.all().len();
        let mut finder = PathFinder {
            places: Vec::new(),
            depths: Vec::new(),
            ids: HashMap::default(),
            place_of_value: vec![NO_PLACE; count],
            from: (0..count as u32).collect(),
            steps: vec![ValueStep::Referent; count],
            symbols: VecDeque::new(),
            queue: VecDeque::new(),
            late: Vec::new(),
            may_be_retained: Vec::new(),
            most_keys,
        };
        finder.begin(values, PathPhase::Symbols);
        finder.begin(values, PathPhase::Others);
        let surely: Vec<bool> = finder
            .place_of_value
            .iter()
            .map(|&place| place != NO_PLACE)
            .collect();
        finder.may_be_retained = may_be_retained(values, &surely);
        finder.begin(values, PathPhase::Mentions);
        finder.follow_late(values);
        let is_reached: Vec<bool> = finder
            .place_of_value
            .iter()
            .map(|&place| place != NO_PLACE)
            .collect();
        let mut leaked = Vec::new();
        let keeps = |edge: &ValueEdge| keeps(edge, &finder.may_be_retained);
        for (first, is_ring) in firsts(values, &is_reached, keeps) {
            leaked.push(first);
            let kind = values.get(first).kind.name();
            // An anonymous sub may have its file and line as its name.
            let kind = match values.text(values.get(first).name) {
                "" => kind.to_string(),
                name => format!("{kind} {name}"),
            };
            let words = match is_ring {
                true => "(in a cycle)",
                false => "(nothing refers to it)",
            };
            let (words, kind) = (values.text_id(words), values.text_id(&kind));
            let name = values.text_id("(leaked)");
            let mut place = finder.place(values, NO_PLACE, name);
            place = finder.place(values, place, words);
            // The class says more than the kind, if there is one.
            if values.class(values.get(first)) == TextId::EMPTY {
                place = finder.place(values, place, kind);
            }
            finder.reach(values, first, first, place);
            finder.follow(values);
            finder.follow_late(values);
        }
        let reached = surely.iter().zip(&is_reached);
        let reached = reached.map(|of| match of {
            (true, _) => Reachability::Surely,
            (_, true) => Reachability::ByMention,
            _ => Reachability::Leaked,
        });
        Self {
            reached: reached.collect(),
            may_be_retained: finder.may_be_retained,
            places: finder.places,
            place_of_value: finder.place_of_value,
            from: finder.from,
            steps: finder.steps,
            leaked,
        }
    }

    /// Returns the first value of each leak.
    #[must_use]
    pub(crate) fn leaked_values(&self) -> &[u32] {
        &self.leaked
    }

    /// Whether and how a value is reached from roots.
    #[must_use]
    pub(crate) fn reachability(&self, value: u32) -> Reachability {
        self.reached[value as usize]
    }

    /// Whether an edge keeps its target alive. A pointer in the memory of C code does so only under
    /// two conditions: Perl's references do not surely reach the target, and C code may have a
    /// reference to it.
    #[must_use]
    pub(crate) fn counts(&self, edge: &ValueEdge) -> bool {
        let is_needless = edge.step.is_late() && self.reachability(edge.to) == Reachability::Surely;
        keeps(edge, &self.may_be_retained) && !is_needless
    }

    /// Whether a root keeps its value alive. For pointers of C code, the rule of
    /// [`counts`](Self::counts) holds.
    pub(crate) fn is_root(&self, root: &ValueRoot) -> bool {
        let is_reached = self.reachability(root.number) == Reachability::Surely;
        root.phase != PathPhase::Mentions
            || !is_reached && self.may_be_retained[root.number as usize]
    }

    /// Returns the number of a value's path. Values with the same path have the same number.
    #[must_use]
    pub(crate) fn place(&self, value: u32) -> u32 {
        self.place_of_value[value as usize]
    }

    /// Returns the previous value in the path of a value, and the step between the two; `None` for
    /// the first value of a path.
    #[must_use]
    pub(crate) fn before(&self, value: u32) -> Option<(u32, ValueStep)> {
        let from = self.from[value as usize];
        (from != value).then(|| (from, self.steps[value as usize]))
    }

    /// Returns, for each place in the tree of names, the number of the place at which its path
    /// begins.
    pub(crate) fn firsts(&self) -> Vec<u32> {
        let mut firsts: Vec<u32> = Vec::with_capacity(self.places.len());
        for (place, &(before, _)) in (0..).zip(&self.places) {
            firsts.push(firsts.get(before as usize).copied().unwrap_or(place));
        }
        firsts
    }

    /// Returns the last name of the path that a place stands for.
    pub(crate) fn name(&self, place: u32) -> TextId {
        self.places[place as usize].1
    }

    /// Returns a place in the tree of names and all of its ancestors, beginning with the place
    /// itself.
    pub(crate) fn places(&self, place: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = place;
        std::iter::from_fn(move || {
            let own = at;
            let &(before, _) = self.places.get(own as usize)?;
            at = before;
            Some(own)
        })
    }

    /// Returns the path of a value as text, such as `main::;%CACHE;{*}`.
    #[must_use]
    pub(crate) fn path_text(&self, values: &ValueGraph, value: u32) -> String {
        let places = self.places(self.place(value));
        let mut names: Vec<&str> = places.map(|at| values.text(self.name(at))).collect();
        names.reverse();
        names.join(";")
    }
}

/// Whether an edge keeps its target alive. A pointer in the memory of C code does so only if C code
/// may have a reference to the target.
fn keeps(edge: &ValueEdge, may_be_held: &[bool]) -> bool {
    edge.is_strong && (!edge.step.is_late() || may_be_held[edge.to as usize])
}

/// Computes, for each value, whether memory of C code may keep it alive. It may if the value's
/// reference count differs from the number of references that were found in unreached values. If
/// both are equal, C code has no reference to the value: a pointer in its memory is old, or only
/// looks like a pointer.
fn may_be_retained(values: &ValueGraph, reached: &[bool]) -> Vec<bool> {
    let mut found = vec![0u32; reached.len()];
    for from in values.numbers() {
        if reached[from as usize] || !values.get(from).kind.is_value() {
            continue;
        }
        let is_counted = |edge: &&ValueEdge| {
            edge.is_strong && !edge.step.is_late() && edge.step != ValueStep::Memory
        };
        for edge in values.edges(from).iter().filter(is_counted) {
            found[edge.to as usize] = found[edge.to as usize].saturating_add(1);
        }
    }
    let all = values.all().iter().zip(&found);
    let has_more = all.map(|(value, found)| !value.kind.is_value() || value.references != *found);
    has_more.collect()
}

/// Finds the paths of all values.
struct PathFinder {
    places: Vec<(u32, TextId)>,
    /// Number of ancestors of each place in the tree of names.
    depths: Vec<u32>,
    ids: HashMap<(u32, TextId), u32, RandomState>,
    place_of_value: Vec<u32>,
    from: Vec<u32>,
    steps: Vec<ValueStep>,
    /// Symbols and symbol tables whose edges were not followed yet. They are followed before other
    /// values, because the name of a symbol says more than a reference.
    symbols: VecDeque<u32>,
    /// Other values whose edges were not followed yet.
    queue: VecDeque<u32>,
    /// Edges that were not followed yet, and that count only if no other edge leads to their
    /// target.
    late: Vec<(u32, ValueEdge)>,
    /// Whether memory of C code may keep each value alive.
    may_be_retained: Vec<bool>,
    most_keys: usize,
}

impl PathFinder {
    /// Returns the child `name` of the place `before` in the tree of names; adds the child if it is
    /// new.
    fn place(&mut self, values: &mut ValueGraph, before: u32, mut name: TextId) -> u32 {
        let depth = self
            .depths
            .get(before as usize)
            .map_or(0, |depth| depth + 1);
        if depth > MAX_PATH_DEPTH {
            return before;
        }
        if depth == MAX_PATH_DEPTH {
            name = values.text_id(DEEPER_NAME);
        }
        *self.ids.entry((before, name)).or_insert_with(|| {
            self.places.push((before, name));
            self.depths.push(depth);
            self.places.len() as u32 - 1
        })
    }

    /// Records that the path of a value is the path of `place`, followed by the name of the value's
    /// class. Does nothing if the value has a path already.
    fn reach(&mut self, values: &mut ValueGraph, from: u32, value: u32, mut place: u32) {
        if self.place_of_value[value as usize] != NO_PLACE {
            return;
        }
        let class = values.class(values.get(value));
        if class != TextId::EMPTY {
            place = self.place(values, place, class);
        }
        self.place_of_value[value as usize] = place;
        self.from[value as usize] = from;
        let kind = values.get(value).kind;
        match kind.is_stash() || kind == PerlValueKind::Glob {
            true => self.symbols.push_back(value),
            false => self.queue.push_back(value),
        }
    }

    /// Follows all edges from the roots of a phase.
    fn begin(&mut self, values: &mut ValueGraph, phase: PathPhase) {
        let roots = values.roots().iter().filter(|root| root.phase == phase);
        for root in roots.copied().collect::<Vec<_>>() {
            if phase == PathPhase::Mentions && !self.may_be_retained[root.number as usize] {
                continue;
            }
            let outer = match root.outer {
                TextId::EMPTY => NO_PLACE,
                outer => self.place(values, NO_PLACE, outer),
            };
            let place = self.place(values, outer, root.name);
            self.reach(values, root.number, root.number, place);
        }
        self.follow(values);
    }

    fn follow(&mut self, values: &mut ValueGraph) {
        while let Some(from) = self.symbols.pop_front().or_else(|| self.queue.pop_front()) {
            for i in 0..values.edges(from).len() {
                let edge = values.edges(from)[i];
                if !edge.is_strong || self.place_of_value[edge.to as usize] != NO_PLACE {
                    continue;
                }
                match edge.step.is_late() {
                    true => self.late.push((from, edge)),
                    false => self.go(values, from, edge),
                }
            }
        }
    }

    fn go(&mut self, values: &mut ValueGraph, from: u32, edge: ValueEdge) {
        let before = self.place_of_value[from as usize];
        let place = self.step(values, from, before, &edge);
        self.steps[edge.to as usize] = edge.step;
        self.reach(values, from, edge.to, place);
    }

    /// Follows the pointers in memory of C code to values that were not reached yet, and the edges
    /// of these values.
    fn follow_late(&mut self, values: &mut ValueGraph) {
        while !self.late.is_empty() {
            for (from, edge) in std::mem::take(&mut self.late) {
                if self.place_of_value[edge.to as usize] == NO_PLACE
                    && self.may_be_retained[edge.to as usize]
                {
                    self.go(values, from, edge);
                }
            }
            self.follow(values);
        }
    }

    /// Whether the last name of the path that a place stands for is the name of a sub.
    fn is_sub(&self, values: &ValueGraph, place: u32) -> bool {
        let (_, name) = self.places[place as usize];
        values.text(name).starts_with('&')
    }

    /// Returns the place of the path that leads over an edge: the place `before`, followed by the
    /// name of the edge. Some edges have no name. The name of a symbol's slot replaces the name of
    /// the symbol.
    fn step(&mut self, values: &mut ValueGraph, from: u32, before: u32, edge: &ValueEdge) -> u32 {
        let own = *values.get(from);
        let name = match edge.step {
            // `main::` has `%CACHE`, and not the symbol `*CACHE` with a hash.
            ValueStep::Slot(sigil) if own.kind == PerlValueKind::Glob => {
                let symbol = values.text(own.name);
                // A symbol table has a name of its own.
                let name = match (sigil, symbol.ends_with("::")) {
                    (b'%', true) => symbol.to_string(),
                    _ => format!("{}{}", char::from(sigil), symbol_as_written(symbol)),
                };
                let name = values.text_id(&name);
                let outer = self.places[before as usize].0;
                return self.place(values, outer, name);
            }
            ValueStep::Slot(sigil) => values.text_id(&char::from(sigil).to_string()),
            ValueStep::Referent if self.is_sub(values, before) => return before,
            ValueStep::Referent => values.text_id("->"),
            ValueStep::Element(_) => values.text_id("[*]"),
            ValueStep::Field(number) => values.text_id(&format!("field {number}")),
            ValueStep::Key(key) if own.kind.is_stash() => match values.text(key) {
                table if table.ends_with("::") => key,
                symbol => {
                    // A symbol table may have a sub without a symbol, as a reference.
                    let is_symbol = values.get(edge.to).kind == PerlValueKind::Glob;
                    let symbol = format!("{}{symbol}", if is_symbol { '*' } else { '&' });
                    values.text_id(&symbol)
                }
            },
            ValueStep::Entry => values.text_id("{*}"),
            ValueStep::Key(_) if values.edges(from).len() > self.most_keys => values.text_id("{*}"),
            ValueStep::Key(key) => {
                let key = format!("{{{}}}", values.text(key));
                values.text_id(&key)
            }
            ValueStep::Pad(depth) => values.text_id(&format!("<pad depth {depth}>")),
            ValueStep::Variable(name) => {
                let name = format!("my {}", values.text(name));
                values.text_id(&name)
            }
            ValueStep::Temporary => values.text_id("<temporary>"),
            ValueStep::Constant => values.text_id("<constant>"),
            ValueStep::Outside => values.text_id("<outside>"),
            ValueStep::Magic(letter) => {
                let letter = [letter].escape_ascii().to_string();
                values.text_id(&format!("<magic {letter}>"))
            }
            ValueStep::Target => values.text_id("<target>"),
            ValueStep::Named(name) => {
                let name = format!("<{}>", values.text(name));
                values.text_id(&name)
            }
            // Blocks of C code that lead to each other have one place, because they have no names.
            ValueStep::Memory | ValueStep::Ops if !own.kind.is_value() => return before,
            ValueStep::Ops => values.text_id("<ops>"),
            ValueStep::Memory => values.text_id("(C memory)"),
            ValueStep::Mention => values.text_id("->"),
            ValueStep::Class => values.text_id("<class>"),
        };
        self.place(values, before, name)
    }
}

/// Writes a symbol as programs do: a symbol that begins with a control character is written as
/// `{^NAME}`.
fn symbol_as_written(symbol: &str) -> String {
    match symbol.as_bytes() {
        [control @ 1..=26] => format!("^{}", char::from(control + 64)),
        [control @ 1..=26, ..] => format!("{{^{}{}}}", char::from(control + 64), &symbol[1..]),
        _ => symbol.to_string(),
    }
}
