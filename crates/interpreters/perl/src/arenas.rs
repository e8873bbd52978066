//! Arenas: the memory from which Perl takes the heads and bodies of values. Perl never gives it
//! back.
//!
//! A value has a head of 24 bytes, and mostly a body, whose size depends on the type. Perl takes
//! both from arenas of some 4 KiB. Each arena has one kind of item, and unused items are in lists.
//! An arena is allocated by the line that happens to need an item when a list is empty. Values of
//! other lines are in the arena, too.
//!
//! The layout of arenas and lists is that of Perl's sv.c, `S_more_sv` and `Perl_more_bodies`.

use heapprof_memory::Memory;

use crate::interpreter::PerlRuntime;

/// Size of an arena of heads, in bytes.
pub(crate) const ARENA_SIZE: usize = 4080;
/// Possible sizes of arenas, in bytes.
pub const ARENA_SIZE_RANGE: core::ops::RangeInclusive<usize> = 2048..=4096;
/// Size of a head, in bytes. The first head of an arena has the address of the next arena.
const HEAD_SIZE: usize = crate::sv::HEAD_SIZE as usize;
/// Offset, in a head, of the number of references to the value.
const HEAD_COUNT_OFFSET: usize = 8;
/// Offset, in a head, of the flags.
const HEAD_FLAGS_OFFSET: usize = 12;
/// Size of a list of arenas, in bytes. An entry is an address, a length and a type.
const LIST_SIZE: usize = 4072;
/// Offset, in a list of arenas, of the number of used entries.
const LIST_TAKEN_OFFSET: usize = 0xc;
/// Offset, in a list of arenas, of the first entry.
const LIST_ENTRIES_OFFSET: usize = 0x10;
const LIST_ENTRY_SIZE: usize = 24;
const MAX_LIST_ENTRIES: usize = 169;
/// The number of types of bodies. Perl numbers the types from 0.
pub(crate) const TYPE_COUNT: usize = crate::sv::TYPE_COUNT;
/// The type number for the bodies of hashes with auxiliary data, from 5.36. Perl uses the type
/// number of integers for them, because integers need no body.
const HASH_AUX_TYPE: usize = 1;
/// The type number of floating-point numbers.
const NUMBER_TYPE: usize = 2;
/// Maximum number of words above a call that are searched for the caller of Perl's own malloc.
const MAX_CALLER_WORDS: usize = 24;
/// Maximum number of arenas. A longer list counts as an endless loop.
const MAX_ARENAS: u64 = 1 << 26;

/// Returns, for each range of `code`, whether one of the first [`MAX_CALLER_WORDS`] words of
/// `above` is a return address in this range.
fn are_callers<const N: usize>(
    above: impl Iterator<Item = u64>,
    code: [(u64, u64); N],
) -> [bool; N] {
    let mut are_callers = [false; N];
    for pc in above.take(MAX_CALLER_WORDS) {
        for (is_caller, (begin, end)) in are_callers.iter_mut().zip(code) {
            // A return address may be the one behind the last instruction.
            *is_caller |= begin < pc && pc <= end;
        }
    }
    are_callers
}

/// Whether a block of `size` bytes may be a slab, from which Perl takes ops. A slab is a header and
/// words for ops. The number of words is 64, or 64 times a power of two.
#[inline(always)]
pub fn may_be_slab(size: usize) -> bool {
    let without_header = size & !63;
    without_header.is_power_of_two() && (512..=16384).contains(&without_header)
}

/// The kind of items in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaType {
    /// Heads of values.
    Heads,
    /// Bodies of one type, by Perl's number for the type. Types without bodies have low numbers,
    /// which Perl uses for other items.
    Bodies(u8),
    /// Lists of arenas of bodies.
    Lists,
}

impl ArenaType {
    /// Returns the type's name, such as `HASH bodies`.
    pub fn name(self) -> &'static str {
        const BODY_NAMES: [&str; TYPE_COUNT] = [
            "hash entries",
            "HASH bodies with more",
            "NV bodies",
            "PV bodies",
            "INVLIST bodies",
            "PVIV bodies",
            "PVNV bodies",
            "PVMG bodies",
            "REGEXP bodies",
            "GLOB bodies",
            "LVALUE bodies",
            "ARRAY bodies",
            "HASH bodies",
            "CODE bodies",
            "FORMAT bodies",
            "IO bodies",
            "OBJECT bodies",
        ];
        match self {
            Self::Heads => "SV heads",
            Self::Lists => "lists of arenas",
            Self::Bodies(of) => BODY_NAMES.get(usize::from(of)).unwrap_or(&"bodies"),
        }
    }
}

/// The number, size and usage of all arenas of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaTypeUsage {
    /// The number of arenas.
    pub arenas: u64,
    /// The bytes of the arenas.
    pub bytes: u64,
    /// The number of heads or bodies in use.
    pub used: u64,
    /// The bytes of the heads or bodies in use.
    pub used_bytes: u64,
}

/// The number, size and usage of all arenas of an interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUsage {
    heads: ArenaTypeUsage,
    bodies: [ArenaTypeUsage; TYPE_COUNT],
    lists: ArenaTypeUsage,
}

impl ArenaTypeUsage {
    const NONE: Self = Self {
        arenas: 0,
        bytes: 0,
        used: 0,
        used_bytes: 0,
    };
}

impl ArenaUsage {
    /// The usage of an interpreter that has no arenas.
    pub const NONE: Self = Self {
        heads: ArenaTypeUsage::NONE,
        bodies: [ArenaTypeUsage::NONE; TYPE_COUNT],
        lists: ArenaTypeUsage::NONE,
    };

    /// Iterates over the types that have arenas.
    pub fn types(&self) -> impl Iterator<Item = (ArenaType, ArenaTypeUsage)> {
        let bodies = (0..).map(ArenaType::Bodies).zip(self.bodies);
        [(ArenaType::Heads, self.heads)]
            .into_iter()
            .chain(bodies)
            .chain([(ArenaType::Lists, self.lists)])
            .filter(|(_, of)| of.arenas != 0)
    }

    /// Adds the arenas of another interpreter.
    pub fn add(&mut self, other: &Self) {
        let all = self.bodies.iter_mut().zip(&other.bodies);
        let rest = [
            (&mut self.heads, &other.heads),
            (&mut self.lists, &other.lists),
        ];
        for (to, from) in all.chain(rest) {
            to.arenas += from.arenas;
            to.bytes += from.bytes;
            to.used += from.used;
            to.used_bytes += from.used_bytes;
        }
    }

    /// Returns the number of values that are alive, as Perl counts them in `PL_sv_count`.
    pub fn values(&self) -> u64 {
        self.heads.used
    }
}

/// Counts the free items in arenas of bodies, by following the lists of free items.
pub trait FreeLists {
    /// Reserves memory for `arenas` arenas with `things` items together. Returns false if there is
    /// no memory.
    fn begin(&mut self, arenas: u64, things: u64) -> bool;

    /// Records an arena with items of `size` bytes, for the next [`count`](Self::count).
    fn arena(&mut self, address: u64, length: u64, size: u64);

    /// Counts the items in the list of free items that begins at `first`, and forgets the recorded
    /// arenas. `None` if an item is outside of these arenas, or if the list is longer than `most`.
    fn count(&mut self, first: u64, most: u64) -> Option<u64>;
}

impl PerlRuntime {
    /// Whether an allocation of `size` bytes is an arena. `above` yields the words on the stack,
    /// beginning with the allocation's return address.
    #[cold]
    #[inline(never)]
    pub fn is_arena<M: Memory>(
        &self,
        above: impl Iterator<Item = u64>,
        memory: M,
        interpreter: u64,
        size: usize,
    ) -> bool {
        let Some(variables) = self.variable.arenas else {
            return false;
        };
        let [heads, _] = self.arena_code;
        let [of_heads, of_bodies] = are_callers(above, self.arena_code);
        let read = |at: u64| memory.u64(interpreter.wrapping_add(at));
        // Without the function's symbol, it is enough that no head is free.
        let may_be_heads = size == ARENA_SIZE && (of_heads || heads == (0, 0));
        if may_be_heads && read(variables.sv_root) == Some(0) {
            return true;
        }
        // The code for the bodies of hashes with more is in another function, which mostly has no
        // symbol. A taken entry without an address is proof enough.
        let list = read(variables.body_arenas).unwrap_or(0);
        if list == 0 {
            return size == LIST_SIZE && of_bodies;
        }
        let Some(taken) = memory.u32(list + LIST_TAKEN_OFFSET as u64) else {
            return false;
        };
        if taken as usize == MAX_LIST_ENTRIES && size == LIST_SIZE && of_bodies {
            return true;
        }
        let newest = u64::from(taken)
            .wrapping_sub(1)
            .wrapping_mul(LIST_ENTRY_SIZE as u64);
        let entry = list
            .wrapping_add(LIST_ENTRIES_OFFSET as u64)
            .wrapping_add(newest);
        (1..=MAX_LIST_ENTRIES).contains(&(taken as usize)) && memory.u64(entry) == Some(0)
    }

    /// Whether an allocation is a slab. The caller must have checked its size with [`may_be_slab`].
    /// `above` yields the words on the stack, beginning with the allocation's return address.
    #[cold]
    #[inline(never)]
    pub fn is_slab(&self, above: impl Iterator<Item = u64>) -> bool {
        let [is_caller] = are_callers(above, [self.slab_code]);
        is_caller
    }

    /// Calls `each` for every arena of heads. The arguments are the address of the arena's second
    /// head, and the number of heads from there on. (The first head never belongs to a value.)
    /// Returns `None` if the arenas can't be read, or as soon as `each` returns `None`.
    pub fn each_arena_of_heads<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        each: impl FnMut(u64, usize) -> Option<()>,
    ) -> Option<()> {
        let newest = interpreter.wrapping_add(self.variable.arenas?.sv_arenaroot);
        each_head_arena(memory, memory.u64(newest)?, each)
    }

    /// Calls `each` with the address of every arena of bodies, and with the address of every list
    /// of these arenas.
    pub(crate) fn each_other_arena<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        mut each: impl FnMut(u64, ArenaType) -> Option<()>,
    ) -> Option<()> {
        let newest = interpreter.wrapping_add(self.variable.arenas?.body_arenas);
        let newest = memory.u64(newest)?;
        each_body_arena(memory, newest, |_, of, address, _| {
            each(address, ArenaType::Bodies(u8::try_from(of).ok()?))
        })?;
        let mut list = newest;
        for _ in 0..MAX_ARENAS {
            if list == 0 {
                break;
            }
            each(list, ArenaType::Lists)?;
            list = memory.u64(list)?;
        }
        Some(())
    }

    /// Returns the number, size and usage of an interpreter's arenas; `None` if they can't be read.
    pub fn arenas<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        lists: &mut impl FreeLists,
    ) -> Option<ArenaUsage> {
        let variables = self.variable.arenas?;
        let at = |variable: u64| interpreter.wrapping_add(variable);
        let sizes = self.body_sizes()?;
        let mut all = ArenaUsage::NONE;
        all.heads = head_usage(memory, memory.u64(at(variables.sv_arenaroot))?)?;
        let newest = memory.u64(at(variables.body_arenas))?;
        each_body_arena(memory, newest, |is_first, of, _, length| {
            let size = *sizes.get(of)?;
            if size == 0 || !ARENA_SIZE_RANGE.contains(&(length as usize)) {
                return None;
            }
            if is_first {
                all.lists.arenas += 1;
            }
            let of = &mut all.bodies[of];
            of.arenas += 1;
            of.bytes += length;
            // Until the free things are counted, all that there is room for count as used.
            of.used += length / size;
            Some(())
        })?;
        for (of, size) in sizes.into_iter().enumerate() {
            if all.bodies[of].arenas == 0 {
                continue;
            }
            // Only as many arenas as were counted, because another thread may make more meanwhile.
            let (arenas, room) = (all.bodies[of].arenas, all.bodies[of].used);
            let mut left = lists.begin(arenas, room).then_some(arenas)?;
            each_body_arena(memory, newest, |_, found, address, length| {
                if found == of && left != 0 {
                    lists.arena(address, length, size);
                    left -= 1;
                }
                Some(())
            })?;
            let first = variables.body_roots.wrapping_add(8 * of as u64);
            let free = lists.count(memory.u64(at(first))?, room)?;
            let of = &mut all.bodies[of];
            of.used = room.checked_sub(free)?;
            of.used_bytes = of.used * size;
        }
        all.lists.bytes = all.lists.arenas * LIST_SIZE as u64;
        (all.lists.used, all.lists.used_bytes) = (all.lists.arenas, all.lists.bytes);
        Some(all)
    }

    /// Returns the number of values by Perl's own count.
    pub fn value_count<M: Memory>(&self, memory: M, interpreter: u64) -> Option<u64> {
        let at = self.variable.arenas?.sv_count;
        memory.u64(interpreter.wrapping_add(at))
    }

    /// Returns the sizes of bodies, by type; 0 for types without arenas.
    pub(crate) fn body_sizes(&self) -> Option<[u64; TYPE_COUNT]> {
        let layout = &self.layout;
        let or_none = |size: Option<u32>| u64::from(size.unwrap_or(0));
        let mut sizes = [
            24, 0, 0, 16, 40, 24, 32, 48, 0, 48, 80, 40, 32, 104, 104, 136, 0,
        ];
        sizes[HASH_AUX_TYPE] = or_none(layout.body_hash);
        sizes[NUMBER_TYPE] = u64::from(layout.body_number?);
        sizes[8] = or_none(layout.body_regexp);
        sizes[16] = or_none(layout.body_object);
        Some(sizes)
    }
}

/// Calls `each` for every arena of bodies, from the newest list of arenas on. The arguments
/// describe the arena: whether it is the first arena of a list, its type, its address and its
/// length. Stops if `each` returns `None`.
fn each_body_arena<M: Memory>(
    memory: M,
    newest: u64,
    mut each: impl FnMut(bool, usize, u64, u64) -> Option<()>,
) -> Option<()> {
    let (mut list, mut read, mut lists) = (newest, [0; LIST_SIZE], 0);
    while list != 0 {
        lists += 1;
        if lists > MAX_ARENAS || !memory.read(list, &mut read) {
            return None;
        }
        let number = |at: usize| {
            let bytes = read.get(at..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        let taken = u32::from_ne_bytes(*read[LIST_TAKEN_OFFSET..].first_chunk()?) as usize;
        if taken > MAX_LIST_ENTRIES {
            return None;
        }
        for i in 0..taken {
            let entry = LIST_ENTRIES_OFFSET + i * LIST_ENTRY_SIZE;
            let of = u32::from_ne_bytes(*read[entry + 16..].first_chunk()?) as usize;
            each(i == 0, of, number(entry)?, number(entry + 8)?)?;
        }
        list = number(0)?;
    }
    Some(())
}

/// Calls `each` for every arena of heads, the newest first. The arguments are the address of the
/// arena's second head, and the number of heads from there on. (The first head never belongs to a
/// value.) Returns `None` if the arenas can't be read, or as soon as `each` returns `None`.
pub(crate) fn each_head_arena<M: Memory>(
    memory: M,
    newest: u64,
    mut each: impl FnMut(u64, usize) -> Option<()>,
) -> Option<()> {
    let (mut arena, mut arenas) = (newest, 0);
    while arena != 0 {
        // The first head has the address of the next arena, and the number of heads in this one.
        let mut first = [0; HEAD_COUNT_OFFSET + 4];
        if !memory.read(arena, &mut first) {
            return None;
        }
        let count = u32::from_ne_bytes(*first.last_chunk()?) as usize;
        arenas += 1;
        if arenas > MAX_ARENAS || !(1..=ARENA_SIZE / HEAD_SIZE).contains(&count) {
            return None;
        }
        each(arena + HEAD_SIZE as u64, count - 1)?;
        arena = u64::from_ne_bytes(*first.first_chunk()?);
    }
    Some(())
}

/// Returns the number, size and usage of the arenas of heads. `newest` is the address of the newest
/// arena.
fn head_usage<M: Memory>(memory: M, newest: u64) -> Option<ArenaTypeUsage> {
    let (mut all, mut read) = (ArenaTypeUsage::NONE, [0; ARENA_SIZE]);
    each_head_arena(memory, newest, |first, count| {
        let heads = read.get_mut(..count * HEAD_SIZE)?;
        if !memory.read(first, heads) {
            return None;
        }
        all.arenas += 1;
        all.bytes += ARENA_SIZE as u64;
        // All bits of the type are set in a free head.
        let is_used = |head: &&[u8]| head[HEAD_FLAGS_OFFSET] != 0xff;
        all.used += heads.chunks_exact(HEAD_SIZE).filter(is_used).count() as u64;
        Some(())
    })?;
    all.used_bytes = all.used * HEAD_SIZE as u64;
    Some(all)
}
