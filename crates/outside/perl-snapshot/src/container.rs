//! Reads arrays, hashes and objects of `class`.

use heapprof_perl_values::{PerlValueKind, ValueStep};

use crate::PerlAddress;
use crate::fill::ValueFiller;
use crate::sv::{self, ValueHead};

// Offsets in the body of an array: its last element, the last one for which it has room, and the
// address of its memory.
const ARRAY_FILL_OFFSET: u64 = 0x10;
const ARRAY_MAX_OFFSET: u64 = 0x18;
const ARRAY_MEMORY_OFFSET: u64 = 0x20;
// Offsets in the body of an object of `class`: the last of its fields, and the address of the
// fields.
const OBJECT_LAST_FIELD_OFFSET: u64 = 0x10;
const OBJECT_FIELDS_OFFSET: u64 = 0x20;
// Size of an entry of a hash: the next entry, the key, the value. Entries are in arenas.
const HASH_ENTRY_SIZE: u64 = 24;
/// Flag of a hash whose keys are in Perl's table of shared keys.
const SHARED_KEYS_FLAG: u32 = 0x2000_0000;
/// Maximum number of entries of a hash whose keys are recorded. Paths through larger hashes lack
/// the keys.
const MAX_NAMED_KEYS: u64 = 10_000;
// Offsets in the additional data of a hash: its names, the back references, the entry at which
// `each` is, the data for looking up methods, and the data of a class of `class`.
const AUX_NAME_OFFSET: u64 = 0;
const AUX_BACKWARD_OFFSET: u64 = 8;
const AUX_ITERATOR_OFFSET: u64 = 0x10;
const AUX_NAME_COUNT_OFFSET: u64 = 0x1c;
const AUX_METHODS_OFFSET: u64 = 0x20;
const AUX_CLASS_OFFSETS: [u64; 4] = [0x38, 0x40, 0x48, 0x60];
const AUX_CLASS_FIELDS_OFFSET: u64 = 0x50;
const AUX_SIZE_WITH_CLASS: u64 = 0x70;
/// Size of the data for looking up methods (`struct mro_meta`).
const MRO_META_SIZE: u64 = 72;
/// Offset of the orders of classes in `struct mro_meta`.
const MRO_ORDERS_OFFSET: u64 = 0;
/// Offset of the current order of classes in `struct mro_meta`.
const MRO_CURRENT_ORDER_OFFSET: u64 = 8;
/// Offsets of the tables in `struct mro_meta`.
const MRO_TABLE_OFFSETS: [u64; 3] = [0x10, 0x28, 0x30];
/// Maximum number of names of one hash that are read. No real hash has more names.
const MAX_HASH_NAMES: u32 = 1000;

impl ValueFiller<'_> {
    pub(crate) fn array(&mut self, head: &ValueHead) -> PerlValueKind {
        let allocated = self.body(head, ARRAY_MEMORY_OFFSET);
        let room = self.body(head, ARRAY_MAX_OFFSET).wrapping_add(1);
        let before = head.own.saturating_sub(allocated);
        self.claim(allocated, room.saturating_mul(8).saturating_add(before));
        if !self.stacks.contains(&head.at) {
            let count = self.body(head, ARRAY_FILL_OFFSET).wrapping_add(1);
            let is_counting = head.has_flags(sv::IS_COUNTING);
            let is_arguments = !is_counting && head.has_flags(sv::WILL_COUNT);
            let count = self.allow(count.min(room));
            let elements = self.reader.words(head.own, count);
            for (number, to) in (0..).zip(elements) {
                self.lead_to(to, ValueStep::Element(number), is_counting);
                if is_arguments {
                    // An argument may have no other reference, as in DESTROY.
                    self.lead_to(to, ValueStep::Mention, true);
                }
            }
            if !is_counting {
                // A module may keep other data on a stack of its own, such as the pads of a
                // coroutine that does not run. Only C code knows how much of it is used.
                let room = self.allow(room);
                self.link_words(head.own, room);
            }
        }
        PerlValueKind::Array
    }

    pub(crate) fn object(&mut self, head: &ValueHead) -> PerlValueKind {
        let fields = self.body(head, OBJECT_FIELDS_OFFSET);
        let count = self.body(head, OBJECT_LAST_FIELD_OFFSET).wrapping_add(1);
        self.claim(fields, count.saturating_mul(8));
        let count = self.allow(count);
        for (number, to) in (0..).zip(self.reader.words(fields, count)) {
            self.lead_to(to, ValueStep::Field(number), true);
        }
        PerlValueKind::Object
    }

    pub(crate) fn hash(&mut self, head: &ValueHead) -> PerlValueKind {
        let count = self.body(head, ARRAY_MAX_OFFSET).wrapping_add(1);
        let knows_more = head.has_flags(sv::HAS_MORE) && head.own != 0;
        let aux = match (knows_more || head.has_flags(sv::HAS_MORE), self.layout.aux) {
            (true, Some(at)) => Some(head.any.wrapping_add(at)),
            (true, None) if knows_more => Some(head.own.wrapping_add(count.saturating_mul(8))),
            _ => None,
        };
        let behind = match (aux, self.layout.aux) {
            (Some(_), None) => self.layout.aux_size,
            _ => 0,
        };
        if head.own != 0 {
            self.claim(head.own, count.saturating_mul(8).saturating_add(behind));
        }
        let kind = match aux {
            Some(aux) => self.hash_extras(aux),
            None => PerlValueKind::Hash,
        };
        if head.own != 0 && !self.key_tables.contains(&head.at) {
            self.entries(head, count);
        }
        kind
    }

    /// Adds the entries of a hash with `buckets` buckets.
    fn entries(&mut self, head: &ValueHead, buckets: u64) {
        let keys = self.body(head, ARRAY_FILL_OFFSET);
        let are_kept = keys <= MAX_NAMED_KEYS;
        let before = if head.has_flags(SHARED_KEYS_FLAG) {
            HASH_ENTRY_SIZE
        } else {
            0
        };
        let buckets = self.allow(buckets);
        let (mut entries, mut left) = (0u64, self.left);
        for bucket in self.reader.words(head.own, buckets) {
            let mut entry = bucket;
            while entry != 0 && left != 0 {
                left -= 1;
                entries += 1;
                let mut words = self.reader.words(entry, 3);
                let [next, key, to] = [(); 3].map(|()| words.next().unwrap_or(0));
                self.entry(key, to, before, are_kept);
                entry = next;
            }
        }
        self.left = left;
        self.used[0] += entries * HASH_ENTRY_SIZE;
        self.value.asked += entries * HASH_ENTRY_SIZE;
        self.value.size += entries * HASH_ENTRY_SIZE;
    }

    fn entry(&mut self, key: PerlAddress, to: PerlAddress, before: u64, is_kept: bool) {
        match self.reader.key_length(key) {
            Some(_) => self.claim_own_key(key, before),
            None => {
                // The key is a value.
                let value = self.reader.word(key.wrapping_add(8));
                let step = self.steps.key;
                self.lead_to(value, step, true);
                self.link(key);
            }
        }
        let step = match is_kept {
            true => ValueStep::Key(self.key(key)),
            false => ValueStep::Entry,
        };
        self.lead_to(to, step, true);
    }

    /// Reads a hash's auxiliary data. Returns the kind of the hash.
    fn hash_extras(&mut self, aux: PerlAddress) -> PerlValueKind {
        let word = |at: u64| self.reader.word(aux.wrapping_add(at));
        let [names, backward, iterator, methods] = [
            AUX_NAME_OFFSET,
            AUX_BACKWARD_OFFSET,
            AUX_ITERATOR_OFFSET,
            AUX_METHODS_OFFSET,
        ]
        .map(word);
        let count = self.reader.half(aux.wrapping_add(AUX_NAME_COUNT_OFFSET)) as i32;
        let mut kind = PerlValueKind::Hash;
        if names != 0 {
            kind = PerlValueKind::Stash;
            let first = match count {
                0 => names,
                _ => {
                    // The hash has several names. The first one is its own name, or is missing if
                    // that name was deleted.
                    let count = count.unsigned_abs().min(MAX_HASH_NAMES);
                    self.claim(names, 8 * u64::from(count));
                    for name in self.reader.words(names, count.into()).skip(1) {
                        self.claim_key(name);
                    }
                    self.reader.word(names)
                }
            };
            if first != 0 {
                self.claim_key(first);
                self.value.name = self.key(first);
            }
        }
        let list = ValueHead::read(&self.reader, backward);
        // No other value keeps a list of back references. A single back reference is no list.
        if list.kind() == sv::ARRAY && !list.has_flags(sv::IS_COUNTING) {
            let step = self.steps.backward;
            self.lead_to(backward, step, true);
        }
        if methods != 0 {
            self.methods(methods);
        }
        self.extra_entry(iterator);
        if self.layout.aux_size >= AUX_SIZE_WITH_CLASS {
            let step = self.steps.class;
            for at in AUX_CLASS_OFFSETS {
                let to = self.reader.word(aux.wrapping_add(at));
                self.lead_to(to, step, true);
            }
            let fields = self.reader.word(aux.wrapping_add(AUX_CLASS_FIELDS_OFFSET));
            self.link(fields);
        }
        kind
    }

    /// Adds a hash entry that may be in no bucket: the entry of a tied hash, whose key is a value,
    /// or the current entry of `each` after it was deleted.
    pub(crate) fn extra_entry(&mut self, entry: PerlAddress) {
        if entry == 0 {
            return;
        }
        let mut words = self.reader.words(entry, 3).skip(1);
        let [key, to] = [(); 2].map(|()| words.next().unwrap_or(0));
        if key != 0 && self.reader.key_length(key).is_none() {
            let value = self.reader.word(key.wrapping_add(8));
            let step = self.steps.key;
            self.lead_to(value, step, true);
            self.link(key);
        }
        self.lead_to(to, ValueStep::Mention, true);
    }

    /// Reads a class's data for looking up methods.
    fn methods(&mut self, at: PerlAddress) {
        self.claim(at, MRO_META_SIZE);
        let word = |offset: u64| self.reader.word(at.wrapping_add(offset));
        let step = self.steps.methods;
        let orders = word(MRO_ORDERS_OFFSET);
        // If there is a table of all orders, it has the current one.
        let current = word(MRO_CURRENT_ORDER_OFFSET);
        let tables = MRO_TABLE_OFFSETS.map(word);
        self.lead_to(orders, step, true);
        self.lead_to(current, step, orders == 0);
        for table in tables {
            self.lead_to(table, step, true);
        }
    }
}
