//! The table of the heads of an interpreter's values. For each head, it stores which stack made the
//! value, or that the head is free.
//!
//! Perl has a list of free heads, which it uses as a stack: it makes a value from the first head,
//! and puts a freed head first. After each op, the list is compared with a copy. If a head is
//! missing at the list's beginning, a value was made from it. If a new head is there, its value was
//! freed. In each free head, the field for a value's content stores the head's index in the copy.
//! So the copy is still right from the first head with a correct index on.

use heapprof_engine::StackNumber;
use heapprof_perl::HEAD_BYTES;

use super::mapped_list::{MappedVec, NumberMultimap};

/// Table of an interpreter's value heads (SVs): which stack made the value in each head, and when.
pub(in crate::perl) struct HeadTable {
    /// For each arena, its address and its number of heads, not counting the first head.
    arenas: MappedVec<u64>,
    /// Indices of the arenas, by the page in which an arena begins.
    by_page: NumberMultimap,
    /// Address of the newest known arena.
    newest: u64,
    /// Copy of the list of free heads, as numbers of heads in reverse order.
    free: MappedVec<u32>,
    /// Heads that became values whose stack is not recorded yet.
    made: MappedVec<u32>,
    /// The stack that made the value of each head.
    stack: MappedVec<StackNumber>,
    /// The moment at which the value of each head was made. [`INTRODUCED_BIT`] may be added.
    moment: MappedVec<u32>,
    /// The type and the body of each value that existed before tracing, to distinguish it from a
    /// later value in the same head.
    before: MappedVec<u64>,
    /// Number of values that each stack made.
    count: MappedVec<u64>,
    /// Number of values that were made before tracing, or that tracing missed.
    pub(in crate::perl) unseen: u64,
    /// Difference between Perl's own count of values and the number of heads that have a value.
    surplus: i64,
    last_arena: u64,
    /// The number of heads.
    heads: u64,
    /// Heads that were added to the list after the copy was made, in the list's order.
    new: MappedVec<u32>,
}

/// Maximum number of heads in an arena.
const MAX_ARENA_HEADS: u64 = 170;
/// Number that stands for the stack of a value that was made before tracing, or that tracing
/// missed.
pub(in crate::perl) const UNSEEN_STACK: StackNumber = StackNumber::from_u32(u32::MAX);
/// Number that stands for the stack of a head that was free at the last comparison. If the head has
/// a value now, the value is newer.
pub(in crate::perl) const NEWER_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 1);
/// Number that stands for the stack of a variable that its pad keeps until its `my` runs again,
/// whichever stack made the variable.
pub(in crate::perl) const RESTING_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 2);
/// Number that stands for the stack of a value that the compiler made after the recording began,
/// but before the program ran. Such a value is recognised by its head, which had another value when
/// the recording began.
pub(in crate::perl) const COMPILED_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 3);
/// Number that stands for the stack of a value that was made during tracing, but whose stack could
/// not be read.
pub(in crate::perl) const UNKNOWN_STACK: StackNumber = StackNumber::from_u32(u32::MAX - 4);
/// Flag in a moment that marks the value as a variable whose `my` has run.
const INTRODUCED_BIT: u32 = 1 << 31;
/// Offset of the pointer to the body in a head. In a free head, it points to the next free head; in
/// an arena's first head, to the next arena.
const ANY_OFFSET: u64 = 0;
/// Offset of the reference count in a head. In an arena's first head, it is the number of heads.
const COUNT_OFFSET: u64 = 8;
/// Offset of the flags in a head. Their first byte is the type.
const FLAGS_OFFSET: u64 = 12;
/// Offset of the content in a head.
const CONTENT_OFFSET: u64 = 16;
/// The type of a free head.
const FREE_TYPE: u8 = 0xff;
/// Maximum number of further heads that are compared, if a head agrees with the copy but Perl's
/// count of values does not.
const MAX_EXTRA_HEADS: usize = 4096;
/// Maximum number of arenas. Heads of further arenas would have no numbers.
const MAX_ARENAS: usize = (u32::MAX as u64 / MAX_ARENA_HEADS) as usize - 1;
/// Number of consecutive heads that must agree with the copy before the copy is trusted from there
/// on.
const MIN_MATCHING_HEADS: usize = 4;
/// Mark that is written into a free head, combined with the index of the head in the copy.
const FREE_HEAD_MARK: u64 = 0x7ea9_5f8e_0000_0000;

/// Reason why the table of heads is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::perl) enum HeadTableError {
    /// There is no memory for the table.
    NoMemory,
    /// The list of free heads does not have the form that Perl gives it.
    BrokenList,
}

/// Current contents of the interpreter's variables that describe its heads.
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

    /// Iterates over the arenas, as index, address and number of heads.
    pub(in crate::perl) fn arenas(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let arenas = self.arenas.all().as_chunks().0;
        arenas
            .iter()
            .enumerate()
            .map(|(i, &[at, heads])| (i, at, heads))
    }

    /// Returns the stack that made the value of a head, and the moment.
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

    /// Removes the stacks of all values, because their numbers belong to an earlier recording.
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

    /// Tracks the changes of the list of free heads. Returns the number of new values. If it is not
    /// 0, the caller must pass their stack to [`note_made_by`](Self::note_made_by).
    ///
    /// # Safety
    /// The roots belong to an interpreter of this thread, and the interpreter runs no code
    /// meanwhile.
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

    /// Forgets the stack that made the value of a head, because the head is free now.
    fn forget_one(&mut self, number: usize) {
        self.moment.all_mut()[number] = 0;
        self.stack.all_mut()[number] = NEWER_STACK;
    }

    /// Records the stack that made the new values of the last [`follow`](Self::follow). Returns
    /// false if there is no memory.
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

    /// Stores the type and body of all current values, which were made before tracing. Returns
    /// false if there is no memory.
    ///
    /// # Safety
    /// `self` has the heads of an interpreter of this thread, and the interpreter runs no code
    /// meanwhile.
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

    /// Finds heads whose value differs from the value that [`remember`](Self::remember) stored, and
    /// sets their stack to [`COMPILED_STACK`]. The compiler runs no ops, so its changes were not
    /// reported.
    ///
    /// # Safety
    /// `self` has the heads of an interpreter of this thread, and the interpreter runs no code
    /// meanwhile.
    pub(in crate::perl) unsafe fn compare_with_before(&mut self) {
        for number in 0..self.before.all().len() {
            // SAFETY: the caller's promise.
            let is_other = unsafe { self.likeness(number as u32) } != self.before.all()[number];
            if is_other && self.stack.all()[number] == UNSEEN_STACK {
                self.stack.all_mut()[number] = COMPILED_STACK;
            }
        }
    }

    /// Returns the type of a head's value and the address of its body, combined into one number.
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

    /// Returns the number of the head of a variable, if the variable counts as a new value when its
    /// `my` runs. It does so at the first run, and if its value was made before the last `mark`.
    pub(in crate::perl) fn renew_value(&mut self, at: u64, mark: Option<u32>) -> Option<u32> {
        let number = self.number(at)?;
        let made = *self.moment.all().get(number as usize)?;
        let is_older = mark.is_some_and(|mark| made & !INTRODUCED_BIT < mark);
        (made & INTRODUCED_BIT == 0 || is_older).then_some(number)
    }

    /// Records the stack at which the `my` of a variable has run. Returns false if there is no
    /// memory.
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

    /// Returns the number of heads with a value, if `kept` heads of the copy and `new` other heads
    /// are free.
    fn count_alive(&self, kept: usize, new: usize) -> i64 {
        self.heads as i64 - (kept + new) as i64
    }

    /// Adds a head to `made` if it has a value.
    unsafe fn note_if_made(&mut self, number: u32) -> Result<(), HeadTableError> {
        let at = self.address(number) + FLAGS_OFFSET;
        // SAFETY: the caller's promise.
        let is_free = unsafe { (at as *const u8).read() } == FREE_TYPE;
        match is_free || self.made.push(number) {
            true => Ok(()),
            false => Err(HeadTableError::NoMemory),
        }
    }

    /// Compares Perl's list of free heads with the copy. Returns the number of heads of the copy
    /// that are still right. Stores in the field `new` the heads that come before them in Perl's
    /// list.
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

    /// Returns the index of a free head in the copy; `None` if this head, or one of the next heads
    /// in Perl's list, differs from the copy.
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

    /// Adds the new arenas, beginning with the newest one.
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
