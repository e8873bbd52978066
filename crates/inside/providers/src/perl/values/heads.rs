//! The heads of an interpreter's values: which are free, and which stack made each of the others.
//!
//! Perl keeps free heads in a list, and makes a value from its first one. The list is a stack, so
//! it is compared with a copy of it after each op: a head that is missing at the top was made into
//! a value, and a head that is new there was freed. A free head has its index in the copy written
//! where a value would have its content. So the first head of the list that has kept its index
//! shows where the rest of the copy is still right.

use heapprof_engine::StackNumber;
use heapprof_perl::HEAD_BYTES;

use super::mapped_list::{MappedVec, NumberMultimap};

/// The heads of an interpreter.
pub(in crate::perl) struct HeadTable {
    /// Pairs: the address of each arena, and its number of heads, not counting the first one.
    arenas: MappedVec<u64>,
    /// The arenas, by the page in which they begin.
    by_page: NumberMultimap,
    /// The newest arena that is known.
    newest: u64,
    /// The copy of the list of free heads: their numbers, the list's first head last.
    free: MappedVec<u32>,
    /// The heads that were made into values whose stack is not known yet.
    made: MappedVec<u32>,
    /// The stack that made the value of each head.
    stack: MappedVec<StackNumber>,
    /// The moment at which the value of each head was made, with [`INTRODUCED_BIT`].
    moment: MappedVec<u32>,
    /// The type and the body of each value that was not seen being made, to distinguish it from a
    /// later one.
    before: MappedVec<u64>,
    /// The number of values that each stack made.
    count: MappedVec<u64>,
    /// The number of values that were not seen being made.
    pub(in crate::perl) unseen: u64,
    /// The difference between Perl's count of values and the number of heads with a value.
    surplus: i64,
    last_arena: u64,
    /// The number of heads.
    heads: u64,
    /// The heads that came into the list since the copy was made, the first one first.
    new: MappedVec<u32>,
}

/// Maximum number of heads in an arena.
const MAX_ARENA_HEADS: u64 = 170;
/// The stack of a head whose value was not seen being made.
pub(in crate::perl) const UNSEEN_STACK: StackNumber = StackNumber::from_u32(u32::MAX);
/// The stack of a head whose value, if it has one by now, is newer than the last comparison.
pub(in crate::perl) const NEWER_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 1);
/// The stack of a variable that a pad keeps for the next run of its `my`, whatever stack made it.
pub(in crate::perl) const RESTING_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 2);
/// The stack of a head that had another value when the recording began. The compiler has freed that
/// and made this one before the program ran.
pub(in crate::perl) const COMPILED_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 3);
/// The stack of a head whose value was seen being made, but by a stack that could not be read.
pub(in crate::perl) const UNKNOWN_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 4);
/// The flag of a moment that says that the value is a variable whose `my` has run.
const INTRODUCED_BIT: u32 = 1 << 31;
/// Offset, in a head, of the pointer to the body. A free head has the next free head there, and an
/// arena's first head the next arena.
const ANY_OFFSET: u64 = 0;
/// Offset of the reference count. An arena's first head has the number of heads there.
const COUNT_OFFSET: u64 = 8;
/// Offset of the flags, whose first byte is the type.
const FLAGS_OFFSET: u64 = 12;
/// Offset of the content.
const CONTENT_OFFSET: u64 = 16;
/// The type of a free head.
const FREE_TYPE: u8 = 0xff;
/// Maximum number of further heads that are searched for one at which the copy is right and Perl's
/// count fits.
const MAX_EXTRA_HEADS: usize = 4096;
/// Maximum number of arenas. Further ones have no numbers.
const MAX_ARENAS: usize = (u32::MAX as u64 / MAX_ARENA_HEADS) as usize - 1;
/// The number of heads below a head that must be as the copy says, for the copy to be right there.
const MIN_MATCHING_HEADS: usize = 4;
/// The mark that is written into a free head, together with its index in the copy.
const FREE_HEAD_MARK: u64 = 0x7ea9_5f8e_0000_0000;

/// The ways in which the table of heads fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::perl) enum HeadTableError {
    /// There is no memory to keep the heads.
    NoMemory,
    /// The list of free heads is not as Perl keeps it.
    BrokenList,
}

/// The current values of the variables in which an interpreter keeps its heads.
#[derive(Clone, Copy)]
pub(in crate::perl) struct HeadTableRoots {
    /// Address of the first free head.
    pub(in crate::perl) first: u64,
    /// Address of the newest arena.
    pub(in crate::perl) arena: u64,
    /// Perl's count of values.
    pub(in crate::perl) count: i64,
}

/// Reads a word of a head.
///
/// # Safety
/// `at` lies in a head of an interpreter that this thread runs.
unsafe fn word(at: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (at as *const u64).read() }
}

impl HeadTable {
    pub(in crate::perl) const fn new() -> Self {
        Self {
            arenas: MappedVec::new(),
            by_page: NumberMultimap::new(),
            newest: 0,
            free: MappedVec::new(),
            made: MappedVec::new(),
            stack: MappedVec::new(),
            moment: MappedVec::new(),
            before: MappedVec::new(),
            count: MappedVec::new(),
            unseen: 0,
            surplus: 0,
            last_arena: 0,
            heads: 0,
            new: MappedVec::new(),
        }
    }

    /// Iterates over the arenas: the index, the address and the number of heads of each.
    pub(in crate::perl) fn arenas(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let arenas = self.arenas.all().as_chunks().0;
        arenas
            .iter()
            .enumerate()
            .map(|(i, &[at, heads])| (i, at, heads))
    }

    /// Returns the stack that made the value of a head, and when.
    pub(in crate::perl) fn maker(&self, arena: usize, head: usize) -> (StackNumber, u32) {
        let number = arena * MAX_ARENA_HEADS as usize + head;
        let stack = self.stack.all().get(number).copied();
        let moment = self.moment.all().get(number).copied();
        (
            stack.unwrap_or(UNSEEN_STACK),
            moment.unwrap_or(0) & !INTRODUCED_BIT,
        )
    }

    /// Returns the number of values that each stack made.
    pub(in crate::perl) fn counts(&self) -> &[u64] {
        self.count.all()
    }

    /// Forgets who made values, because the numbers of stacks mean nothing any more.
    pub(in crate::perl) fn forget(&mut self) {
        self.stack.all_mut().fill(UNSEEN_STACK);
        self.moment.all_mut().fill(0);
        self.unseen = self.count_alive(self.free.all().len(), 0).max(0) as u64;
        self.count.truncate(0);
    }

    fn address(&self, number: u32) -> u64 {
        let (arena, head) = (
            u64::from(number) / MAX_ARENA_HEADS,
            u64::from(number) % MAX_ARENA_HEADS,
        );
        let arenas = self.arenas.all();
        arenas
            .get(2 * arena as usize)
            .map_or(0, |at| at + (head + 1) * HEAD_BYTES as u64)
    }

    /// Returns the number of the head at `at`.
    fn number(&mut self, at: u64) -> Option<u32> {
        let arenas = self.arenas.all();
        let holds = |arena: u64| -> Option<u32> {
            let &[begin, heads] = arenas.get(2 * arena as usize..)?.first_chunk()?;
            let head = at.checked_sub(begin)? / HEAD_BYTES as u64;
            let is_head =
                (at - begin).is_multiple_of(HEAD_BYTES as u64) && (1..=heads).contains(&head);
            is_head.then(|| (arena * MAX_ARENA_HEADS + head - 1) as u32)
        };
        if let Some(number) = holds(self.last_arena) {
            return Some(number);
        }
        let page = at >> 12;
        let mut candidates = self
            .by_page
            .get_all(page)
            .chain(self.by_page.get_all(page.wrapping_sub(1)));
        let (arena, number) = candidates.find_map(|arena| Some((arena, holds(arena)?)))?;
        self.last_arena = arena;
        Some(number)
    }

    /// Follows the changes of the list of free heads. Returns how many values were made whose stack
    /// must be reported by [`note_made_by`](Self::note_made_by).
    ///
    /// # Safety
    /// The roots are of an interpreter that this thread runs, and that does not run now.
    pub(in crate::perl) unsafe fn follow(
        &mut self,
        roots: HeadTableRoots,
    ) -> Result<usize, HeadTableError> {
        let known = self.arenas.all().len() / 2;
        // SAFETY: the caller's promise.
        let kept = unsafe {
            if roots.arena != self.newest {
                self.add_arenas(roots.arena)?;
            }
            self.compare(roots)?
        };
        let alive = self.count_alive(kept, self.new.all().len());
        self.surplus = roots.count - alive;
        // Heads that were in the list and are not any more. The heads of a new arena never were in
        // it.
        for place in kept..self.free.all().len() {
            let number = self.free.all()[place];
            // SAFETY: the caller's promise.
            unsafe { self.note_if_made(number)? };
        }
        for arena in known..self.arenas.all().len() / 2 {
            let heads = self.arenas.all()[2 * arena + 1];
            for head in 0..heads {
                // SAFETY: the caller's promise.
                unsafe { self.note_if_made((arena as u64 * MAX_ARENA_HEADS + head) as u32)? };
            }
        }
        self.free.truncate(kept);
        for i in (0..self.new.all().len()).rev() {
            let number = self.new.all()[i];
            self.forget_one(number as usize);
            let place = self.free.all().len() as u64;
            if !self.free.push(number) {
                return Err(HeadTableError::NoMemory);
            }
            // SAFETY: the head is free, so no code uses its content.
            unsafe {
                ((self.address(number) + CONTENT_OFFSET) as *mut u64).write(FREE_HEAD_MARK | place)
            };
        }
        Ok(self.made.all().len())
    }

    /// Forgets who made the value of a head that is free now.
    fn forget_one(&mut self, number: usize) {
        self.moment.all_mut()[number] = 0;
        self.stack.all_mut()[number] = NEWER_STACK;
    }

    /// Notes the stack that made the values that [`follow`](Self::follow) found. Returns false if
    /// there is no memory.
    pub(in crate::perl) fn note_made_by(&mut self, stack: StackNumber, moment: u32) -> bool {
        let made = self.made.all().len();
        if !self.count_made(stack, made as u64) {
            return false;
        }
        for i in 0..made {
            let number = self.made.all()[i] as usize;
            self.stack.all_mut()[number] = stack;
            self.moment.all_mut()[number] = moment;
        }
        self.made.truncate(0);
        true
    }

    /// Remembers the current values, none of which was seen being made. Returns false if there is
    /// no memory.
    ///
    /// # Safety
    /// `self` has the heads of an interpreter that this thread runs, and that does not run now.
    pub(in crate::perl) unsafe fn remember(&mut self) -> bool {
        let all = self.stack.all().len();
        if !self.before.grow(all) {
            return false;
        }
        for number in 0..all {
            // SAFETY: the caller's promise.
            self.before.all_mut()[number] = unsafe { self.likeness(number as u32) };
        }
        true
    }

    /// Marks each head whose remembered value was freed since, and that has another value now, as
    /// compiled: the compiler runs no op after which such a change would be reported.
    ///
    /// # Safety
    /// `self` has the heads of an interpreter that this thread runs, and that does not run now.
    pub(in crate::perl) unsafe fn compare_with_before(&mut self) {
        for number in 0..self.before.all().len() {
            // SAFETY: the caller's promise.
            let is_other = unsafe { self.likeness(number as u32) } != self.before.all()[number];
            if is_other && self.stack.all()[number] == UNSEEN_STACK {
                self.stack.all_mut()[number] = COMPILED_STACK;
            }
        }
    }

    /// Returns the type of a head's value and the address of its body, in one number.
    unsafe fn likeness(&self, number: u32) -> u64 {
        let at = self.address(number);
        if at == 0 {
            return 0;
        }
        // SAFETY: the caller's promise: it is a head of an arena.
        unsafe {
            word(at + ANY_OFFSET) ^ u64::from(((at + FLAGS_OFFSET) as *const u8).read()) << 56
        }
    }

    /// Returns the number of the head of a variable whose `my` has run, if that makes it another
    /// value: its `my` had not run before, or the value is older than the last `mark`.
    pub(in crate::perl) fn renew_value(&mut self, at: u64, mark: Option<u32>) -> Option<u32> {
        let number = self.number(at)?;
        let made = *self.moment.all().get(number as usize)?;
        let is_older = mark.is_some_and(|mark| made & !INTRODUCED_BIT < mark);
        (made & INTRODUCED_BIT == 0 || is_older).then_some(number)
    }

    /// Notes the stack that has run the `my` of a variable. Returns false if there is no memory.
    pub(in crate::perl) fn note_remade_by(
        &mut self,
        number: u32,
        stack: StackNumber,
        moment: u32,
    ) -> bool {
        let before = self.stack.all()[number as usize];
        if !self.count_made(stack, 1) {
            return false;
        }
        match before {
            NEWER_STACK => {}
            before if before >= UNKNOWN_STACK => self.unseen = self.unseen.saturating_sub(1),
            before => self.count.all_mut()[before.to_index()] -= 1,
        }
        self.stack.all_mut()[number as usize] = stack;
        self.moment.all_mut()[number as usize] = moment | INTRODUCED_BIT;
        true
    }

    fn count_made(&mut self, stack: StackNumber, made: u64) -> bool {
        if stack >= UNKNOWN_STACK {
            self.unseen += made;
            return true;
        }
        let at = stack.to_index();
        if at >= self.count.all().len() && !self.count.grow(at + 1) {
            return false;
        }
        self.count.all_mut()[at] += made;
        true
    }

    /// Returns the number of values if the copy keeps `kept` heads and gets `new` ones.
    fn count_alive(&self, kept: usize, new: usize) -> i64 {
        self.heads as i64 - (kept + new) as i64
    }

    /// Adds a head to those whose stack is not known yet, if it has a value.
    unsafe fn note_if_made(&mut self, number: u32) -> Result<(), HeadTableError> {
        let at = self.address(number) + FLAGS_OFFSET;
        // SAFETY: the caller's promise.
        let is_free = unsafe { (at as *const u8).read() } == FREE_TYPE;
        match is_free || self.made.push(number) {
            true => Ok(()),
            false => Err(HeadTableError::NoMemory),
        }
    }

    /// Compares Perl's list with the copy. Returns how many heads of the copy are still right, and
    /// leaves in `new` the heads that come before these in Perl's list.
    unsafe fn compare(&mut self, roots: HeadTableRoots) -> Result<usize, HeadTableError> {
        self.new.truncate(0);
        let (mut at, mut likely) = (roots.first, None);
        while at != 0 {
            let new = self.new.all().len();
            if new as u64 > self.heads {
                return Err(HeadTableError::BrokenList);
            }
            let number = self.number(at).ok_or(HeadTableError::BrokenList)?;
            // SAFETY: it is a head of an arena.
            if let Some(place) = unsafe { self.place_of(at) } {
                if roots.count - self.count_alive(place + 1, new) == self.surplus {
                    return Ok(place + 1);
                }
                likely = likely.or(Some((place + 1, new)));
            }
            if let Some((kept, length)) = likely
                && new > length + MAX_EXTRA_HEADS
            {
                // Perl's count has changed for another reason: it has left a head out of its list.
                self.new.truncate(length);
                return Ok(kept);
            }
            // SAFETY: it is a head of an arena.
            let is_free = unsafe { ((at + FLAGS_OFFSET) as *const u8).read() } == FREE_TYPE;
            if !is_free {
                return Err(HeadTableError::BrokenList);
            }
            if !self.new.push(number) {
                return Err(HeadTableError::NoMemory);
            }
            // SAFETY: it is a head of an arena.
            at = unsafe { word(at + ANY_OFFSET) };
        }
        let is_whole = roots.count - self.count_alive(0, self.new.all().len()) == self.surplus;
        match likely {
            Some((kept, length)) if !is_whole => {
                self.new.truncate(length);
                Ok(kept)
            }
            _ => Ok(0),
        }
    }

    /// Returns the index of a free head in the copy, if it and those below it are as the copy says.
    unsafe fn place_of(&self, at: u64) -> Option<usize> {
        // SAFETY: the caller's promise.
        let content = unsafe { word(at + CONTENT_OFFSET) };
        let place = (content ^ FREE_HEAD_MARK) as usize;
        let free = self.free.all();
        if self.address(*free.get(place)?) != at {
            return None;
        }
        let (mut at, mut below) = (at, free[..place].iter().rev());
        for _ in 0..MIN_MATCHING_HEADS {
            let expected = below.next().map_or(0, |&number| self.address(number));
            // SAFETY: it is a head of an arena; what lies below in the copy is a head, too.
            at = unsafe { word(at + ANY_OFFSET) };
            if at != expected {
                return None;
            }
            if at == 0 {
                break;
            }
        }
        Some(place)
    }

    /// Adds the new arenas, from the newest one on.
    unsafe fn add_arenas(&mut self, newest: u64) -> Result<(), HeadTableError> {
        let mut at = newest;
        while at != 0 && at != self.newest {
            // SAFETY: the caller's promise: the first head of an arena says how many it has.
            let heads = unsafe { ((at + COUNT_OFFSET) as *const u32).read() };
            let heads = u64::from(heads).wrapping_sub(1);
            let arena = self.arenas.all().len() / 2;
            if heads >= MAX_ARENA_HEADS || arena > MAX_ARENAS {
                return Err(HeadTableError::BrokenList);
            }
            let heads_before = (arena + 1) * MAX_ARENA_HEADS as usize;
            let has_room = self.arenas.push(at)
                && self.arenas.push(heads)
                && self.by_page.add(at >> 12, arena as u64)
                && self.stack.grow(heads_before)
                && self.moment.grow(heads_before);
            if !has_room {
                return Err(HeadTableError::NoMemory);
            }
            self.stack.all_mut()[heads_before - MAX_ARENA_HEADS as usize..].fill(NEWER_STACK);
            self.heads += heads;
            // SAFETY: it is the first head of an arena.
            at = unsafe { word(at + ANY_OFFSET) };
        }
        self.newest = newest;
        Ok(())
    }
}
