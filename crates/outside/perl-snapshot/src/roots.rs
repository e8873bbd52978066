//! Reads an interpreter's own data: variables, stacks, arenas.

use std::collections::HashSet;
use std::ops::Range;

use heapprof_heap::ProcessImage;
use heapprof_perl::{ArenaType, PerlRuntime};
use heapprof_perl_values::{PathPhase, PerlValue, PerlValueKind};

use crate::PerlAddress;
use crate::claims::{ChunkOwner, allocated_bytes, odd_address};
use crate::contexts;
use crate::fill::ValueFiller;
use crate::find::InterpreterVariable;
use crate::sv;

/// Variables whose content is old, not counted, or read elsewhere.
const SKIPPED_VARIABLES: [&str; 14] = [
    "Sv",
    "Xpv",
    "sv_root",
    "sv_arenaroot",
    "body_roots",
    "body_arenas",
    "last_in_gv",
    "statgv",
    "stack_sp",
    "stack_base",
    "stack_max",
    "curpad",
    "hv_fetch_ent_mh",
    "sv_count",
];
// A stack of values and contexts (`PERL_SI`): the array of values, the contexts, the stacks before
// and behind it, and the newest context.
const STACK_VALUES_OFFSET: u64 = 0;
const STACK_CONTEXTS_OFFSET: u64 = 8;
const STACK_PREVIOUS_OFFSET: u64 = 0x10;
const STACK_NEXT_OFFSET: u64 = 0x18;
const STACK_NEWEST_CONTEXT_OFFSET: u64 = 0x20;
/// First name in the paths of values that `local` has saved.
pub(crate) const SAVED_ROOT_NAME: &str = "(saved by local)";
/// First name in the paths of values that a running context uses.
const RUNNING_ROOT_NAME: &str = "(running)";
/// Maximum number of entries on the stack of `local`. No program has more.
const MAX_SAVED: u64 = 1 << 26;
/// Maximum number of nested contexts. No program has more.
const MAX_CONTEXTS: u64 = 1 << 24;
/// Maximum number of stacks. No program has more.
const MAX_STACKS: usize = 100_000;
/// Maximum number of tables of file handles. No program has more.
const MAX_HANDLE_TABLES: usize = 10_000;
/// Maximum number of entries in the list of spare hash entries (`PL_hv_fetch_ent_mh`). Perl uses
/// them for lookups of keys that are values.
const MAX_LOOKUP_ENTRIES: usize = 100_000;

/// An interpreter whose values are read.
pub(crate) struct InterpreterRoots {
    pub(crate) at: PerlAddress,
    /// First name in the paths from the interpreter's roots; empty for the first interpreter.
    pub(crate) outer: String,
    variables: Vec<InterpreterVariable>,
    /// The interpreter's stacks (`PERL_SI`).
    stacks: Vec<PerlAddress>,
}

impl InterpreterRoots {
    pub(crate) fn new(at: PerlAddress, outer: String, variables: Vec<InterpreterVariable>) -> Self {
        Self {
            at,
            outer,
            variables,
            stacks: Vec::new(),
        }
    }

    /// Returns the address of a variable, by its name.
    fn place(&self, name: &str) -> Option<PerlAddress> {
        let found = self.variables.iter().find(|one| one.name == name);
        found.map(|one| one.at)
    }

    /// Returns the address ranges of the interpreter's variables.
    pub(crate) fn places(&self) -> impl Iterator<Item = Range<PerlAddress>> + '_ {
        let all = self.variables.iter();
        all.map(|one| one.at..one.at.saturating_add(one.size))
    }

    fn word(&self, fill: &ValueFiller<'_>, name: &str) -> PerlAddress {
        self.place(name).map_or(0, |at| fill.reader.word(at))
    }

    /// Finds the interpreter's stacks and its table of keys. Called before any value is made.
    pub(crate) fn prepare(&mut self, fill: &mut ValueFiller<'_>) {
        let keys = self.word(fill, "strtab");
        fill.key_tables.insert(keys);
        let newest = self.word(fill, "curstackinfo");
        let mut seen = HashSet::new();
        for (first, link) in [
            (newest, STACK_PREVIOUS_OFFSET),
            (
                fill.reader.word(newest.wrapping_add(STACK_NEXT_OFFSET)),
                STACK_NEXT_OFFSET,
            ),
        ] {
            let mut stack = first;
            while stack != 0 && seen.len() < MAX_STACKS && seen.insert(stack) {
                self.stacks.push(stack);
                let values = fill.reader.word(stack.wrapping_add(STACK_VALUES_OFFSET));
                fill.stacks.insert(values);
                stack = fill.reader.word(stack.wrapping_add(link));
            }
        }
    }

    /// Adds the interpreter's roots. Called after all values were made.
    pub(crate) fn add(&self, fill: &mut ValueFiller<'_>) {
        let tables = self.word(fill, "defstash");
        let outer = &self.outer;
        fill.builder
            .add_root(PathPhase::Symbols, outer, "main::", tables);
        // Values of a file outside of its subs belong to the program, and not to the subs.
        let program = self.word(fill, "main_cv");
        fill.builder
            .add_root(PathPhase::Symbols, outer, "(main program)", program);
        for &stack in &self.stacks {
            let values = fill.reader.word(stack.wrapping_add(STACK_VALUES_OFFSET));
            fill.builder
                .add_root(PathPhase::Others, outer, "(stacks)", values);
        }
        self.structures(fill);
        for variable in &self.variables {
            if SKIPPED_VARIABLES.contains(&variable.name) {
                continue;
            }
            for word in fill.reader.words(variable.at, variable.size / 8) {
                if fill.builder.number(word).is_some() {
                    let name = format!("(root {})", variable.name);
                    fill.builder.add_root(PathPhase::Others, outer, &name, word);
                }
            }
        }
        let entries = self.word(fill, "tmps_ix").wrapping_add(1);
        self.add_words(fill, "tmps_stack", entries, "(until the statement ends)");
        let entries = self
            .place("savestack_ix")
            .map_or(0, |at| fill.reader.half(at));
        self.add_words(fill, "savestack", entries.into(), SAVED_ROOT_NAME);
        for word in self.running_words(fill) {
            if fill.builder.number(word).is_some() {
                fill.builder
                    .add_root(PathPhase::Others, &self.outer, RUNNING_ROOT_NAME, word);
            }
        }
    }

    /// Returns the words in running contexts that may be addresses of values.
    fn running_words(&self, fill: &ValueFiller<'_>) -> Vec<u64> {
        let layout = fill.perl.contexts();
        let mut words = Vec::new();
        let mut left = MAX_CONTEXTS;
        for &stack in &self.stacks {
            let contexts = fill.reader.word(stack.wrapping_add(STACK_CONTEXTS_OFFSET));
            let newest = fill
                .reader
                .half(stack.wrapping_add(STACK_NEWEST_CONTEXT_OFFSET));
            let count = u64::from(newest.wrapping_add(1)).min(left);
            left -= count;
            for number in 0..count {
                let at = contexts.wrapping_add(number * layout.size);
                for place in contexts::places(&fill.reader, &layout, fill.perl.version, at) {
                    words.push(fill.reader.word(at.wrapping_add(place)));
                }
            }
        }
        words
    }

    /// Makes each value in the first `words` words of a stack a root. `stack` is the name of the
    /// variable with the stack's address.
    fn add_words(&self, fill: &mut ValueFiller<'_>, stack: &str, words: u64, name: &str) {
        let at = self.word(fill, stack);
        self.add_root_words(fill, at, words, name);
    }

    fn add_root_words(&self, fill: &mut ValueFiller<'_>, at: PerlAddress, words: u64, name: &str) {
        let words = fill.allow(words);
        for word in fill.reader.words(at, words) {
            if fill.builder.number(word).is_some() {
                fill.builder
                    .add_root(PathPhase::Others, &self.outer, name, word);
            }
        }
    }

    /// Makes values of the interpreter's own memory, and gives them names.
    fn structures(&self, fill: &mut ValueFiller<'_>) {
        self.structure(fill, self.at, "interpreter");
        for name in ["tmps_stack", "savestack", "scopestack", "markstack"] {
            let at = self.word(fill, name);
            self.structure(fill, at, name);
        }
        for &stack in &self.stacks {
            let contexts = fill.reader.word(stack.wrapping_add(STACK_CONTEXTS_OFFSET));
            self.structure(fill, stack, "stacks");
            self.structure(fill, contexts, "contexts");
        }
        for table in self.tables(fill) {
            self.structure(fill, table, "table of handles");
        }
    }

    /// Returns the addresses of the tables of file handles. Each table begins with the address of
    /// the next one.
    fn tables(&self, fill: &ValueFiller<'_>) -> Vec<PerlAddress> {
        let mut tables = Vec::new();
        let mut table = self.word(fill, "perlio");
        while table != 0 && tables.len() < MAX_HANDLE_TABLES {
            tables.push(table);
            table = fill.reader.word(table);
        }
        tables
    }

    fn structure(&self, fill: &mut ValueFiller<'_>, at: PerlAddress, name: &str) {
        let chunk = fill.claims.find(at);
        let chunk = chunk.and_then(|chunk| fill.claims.take(chunk, ChunkOwner::Itself));
        if let Some(chunk) = chunk {
            // Modules point to the interpreter, but do not own it.
            let at = odd_address(chunk.at);
            let outer = self.inside("(interpreter)");
            fill.builder.add_root(PathPhase::Others, &outer, name, at);
            fill.builder.end(PerlValue {
                address: at,
                size: allocated_bytes(chunk),
                asked: chunk.size,
                kind: PerlValueKind::Memory,
                ..PerlValue::default()
            });
        }
    }

    /// Puts the interpreter's name before `name`.
    pub(crate) fn inside(&self, name: &str) -> String {
        match self.outer.as_str() {
            "" => name.to_string(),
            outer => format!("{outer} {name}"),
        }
    }

    /// Returns the chunks to which the interpreter's variables lead, each with the name of the
    /// variable. These chunks may be memory of C code.
    pub(crate) fn links(&self, fill: &ValueFiller<'_>) -> Vec<(&'static str, u32)> {
        let mut links = Vec::new();
        for variable in &self.variables {
            if SKIPPED_VARIABLES.contains(&variable.name) {
                continue;
            }
            let words = fill.reader.words(variable.at, variable.size / 8);
            let found = words.filter_map(|word| fill.claims.find(word));
            links.extend(found.map(|chunk| (variable.name, chunk)));
        }
        // Entries in no hash, which Perl keeps for the next lookups of keys that are values.
        let mut entry = self.word(fill, "hv_fetch_ent_mh");
        for _ in 0..MAX_LOOKUP_ENTRIES {
            if entry == 0 {
                break;
            }
            let key = fill.claims.find(fill.reader.word(entry.wrapping_add(8)));
            links.extend(key.map(|chunk| ("hv_fetch_ent_mh", chunk)));
            entry = fill.reader.word(entry);
        }
        // Handles that no value has, such as the handle of the file that perl is reading.
        for table in self.tables(fill) {
            let chunk = fill.claims.find(table);
            let chunk = chunk.and_then(|chunk| fill.claims.chunk(chunk));
            let words = chunk.map(|chunk| fill.reader.words(chunk.at, chunk.size / 8));
            let found = words.into_iter().flatten();
            let found = found.filter_map(|word| fill.claims.find(word));
            links.extend(found.map(|chunk| ("handles", chunk)));
        }
        links
    }

    /// Returns the chunks that `local` has saved, such as the slots of a symbol, and the chunks of
    /// running contexts. Each chunk comes with the first name of its path.
    pub(crate) fn saved_chunks(&self, fill: &ValueFiller<'_>) -> Vec<(&'static str, u32)> {
        let entries = self.place("savestack_ix");
        let entries = entries.map_or(0, |at| fill.reader.half(at));
        let entries = u64::from(entries).min(MAX_SAVED);
        let saved = fill.reader.words(self.word(fill, "savestack"), entries);
        let saved = saved.map(|word| (SAVED_ROOT_NAME, word));
        let running = self.running_words(fill).into_iter();
        let all = saved.chain(running.map(|word| (RUNNING_ROOT_NAME, word)));
        all.filter_map(|(name, word)| Some((name, fill.claims.find(word)?)))
            .collect()
    }

    /// Assigns the shared keys that no value has claimed to the table of keys.
    pub(crate) fn claim_keys(&self, fill: &mut ValueFiller<'_>, image: &ProcessImage) {
        let table = self.word(fill, "strtab");
        let Some(number) = fill.builder.number(table) else {
            return;
        };
        let mut left = fill.left;
        let claims = &mut fill.claims;
        // If the table is damaged, the sums show it.
        let _ = fill.perl.each_key(image, self.at, |key| {
            left = left.checked_sub(1)?;
            if let Some(chunk) = claims.find(key)
                && claims.owner(chunk) == ChunkOwner::Unclaimed
            {
                claims.claim(key, number, u64::MAX, false);
            }
            Some(())
        });
        fill.left = left;
    }
}

/// An arena of heads: the address of its first head, and its number of heads.
pub(crate) type HeadArena = (PerlAddress, usize);

/// Finds an interpreter's arenas of heads. Together they have at most `most` heads.
pub(crate) fn head_arenas(
    perl: &PerlRuntime,
    image: &ProcessImage,
    interpreter: PerlAddress,
    most: u64,
) -> Vec<HeadArena> {
    let mut arenas = Vec::new();
    let mut seen = HashSet::new();
    let mut left = most;
    // If an arena can't be read, the counts show it.
    let _ = perl.each_arena_of_heads(image, interpreter, |first, count| {
        left = left.checked_sub(count as u64)?;
        seen.insert(first).then(|| arenas.push((first, count)))
    });
    // In damaged memory, arenas may overlap. Then only the first one counts.
    arenas.sort_unstable();
    let mut end = 0;
    arenas.retain(|&(first, count)| {
        let is_disjoint = first >= end;
        if is_disjoint {
            end = first.saturating_add(count as u64 * sv::HEAD_SIZE);
        }
        is_disjoint
    });
    arenas
}

/// Finds an interpreter's arenas of bodies, and its lists of arenas. Returns an address in each of
/// them, and its type.
pub(crate) fn other_arenas(
    perl: &PerlRuntime,
    image: &ProcessImage,
    interpreter: PerlAddress,
) -> Vec<(PerlAddress, ArenaType)> {
    let mut arenas = Vec::new();
    let mut seen = HashSet::new();
    let _ = perl.each_arena(image, interpreter, |at, of| {
        seen.insert(at).then(|| arenas.push((at, of)))
    });
    arenas.retain(|(_, of)| *of != ArenaType::Heads);
    arenas
}
