//! Makes a value from each head: its kind, its size, and its edges to other values.

use std::collections::{HashMap, HashSet};

use heapprof_perl::PerlRuntime;
use heapprof_perl_values::{PerlValue, PerlValueKind, TextId, ValueGraphBuilder, ValueStep};

use crate::PerlAddress;
use crate::claims::ChunkClaims;
use crate::layout::ValueLayout;
use crate::names::PadNameLists;
use crate::reader::PerlMemoryReader;
use crate::sv::{self, ValueHead};

/// Makes the values of a program from their heads.
pub(crate) struct ValueFiller<'a> {
    pub(crate) reader: PerlMemoryReader<'a>,
    pub(crate) perl: &'a PerlRuntime,
    pub(crate) layout: ValueLayout,
    pub(crate) builder: ValueGraphBuilder,
    pub(crate) claims: ChunkClaims<'a>,
    /// Chunks to which a value leads, each with the kind that the chunk gets if no value owns it:
    /// memory of C code, or the code of a sub.
    pub(crate) seeds: Vec<(u32, PerlValueKind)>,
    /// Pointers of C code to the beginning of a chunk: for each, the address of the value that has
    /// the pointer, and the number of the chunk.
    mentions: Vec<(PerlAddress, u32)>,
    /// Used bytes of bodies in arenas, by type.
    pub(crate) used: [u64; sv::TYPE_COUNT],
    /// Number of used heads.
    pub(crate) heads: u64,
    /// Perl's tables of shared keys. Their entries are not in arenas.
    pub(crate) key_tables: HashSet<PerlAddress>,
    /// Arrays that are stacks of an interpreter. References in stacks are not counted, and may be
    /// old.
    pub(crate) stacks: HashSet<PerlAddress>,
    pub(crate) names: PadNameLists,
    /// Addresses of pads, each with the number of its list of variable names.
    pub(crate) pads: Vec<(PerlAddress, u32)>,
    pub(crate) steps: NamedSteps,
    /// Number of elements that may still be read. The limit is needed for damaged memory, in which
    /// many arrays may have the same elements.
    pub(crate) left: u64,
    /// The address whose owner is to be found.
    pub(crate) wanted: Option<WantedAddress>,
    /// Texts of keys that were read, by their addresses.
    keys: HashMap<PerlAddress, TextId>,
    /// The value that is being made now.
    pub(crate) value: PerlValue,
    /// The number of the value that is being made ([`value`](Self::value)).
    pub(crate) number: u32,
}

/// An address whose owner is to be found.
#[derive(Clone, Copy)]
pub(crate) struct WantedAddress {
    at: PerlAddress,
    /// The chunk that the address lies in.
    chunk: Option<u32>,
    /// Address of the value that owns the wanted address.
    owner: Option<PerlAddress>,
}

impl WantedAddress {
    pub(crate) fn new(at: Option<PerlAddress>, claims: &ChunkClaims<'_>) -> Option<Self> {
        at.map(|at| Self {
            at,
            chunk: claims.find(at),
            owner: None,
        })
    }

    /// Returns the address of the owning value, or the address of the chunk if no value owns it.
    pub(crate) fn owner(&self, claims: &ChunkClaims<'_>) -> Option<PerlAddress> {
        let chunk = self.chunk.and_then(|chunk| claims.chunk(chunk));
        self.owner.or(chunk.map(|chunk| chunk.at))
    }
}

/// The steps for parts of Perl that always have the same names.
#[derive(Clone, Copy)]
pub(crate) struct NamedSteps {
    pub(crate) backward: ValueStep,
    pub(crate) methods: ValueStep,
    pub(crate) class: ValueStep,
    pub(crate) format: ValueStep,
    pub(crate) key: ValueStep,
    pub(crate) symbol: ValueStep,
    pub(crate) pattern: ValueStep,
    pub(crate) groups: ValueStep,
    pub(crate) matched: ValueStep,
    pub(crate) arguments: ValueStep,
    pub(crate) shared: ValueStep,
    pub(crate) anonymous: ValueStep,
}

impl NamedSteps {
    fn new(builder: &mut ValueGraphBuilder) -> Self {
        Self {
            backward: builder.named_step("back references"),
            methods: builder.named_step("method cache"),
            class: builder.named_step("class"),
            format: builder.named_step("format"),
            key: builder.named_step("key"),
            symbol: builder.named_step("symbol"),
            pattern: builder.named_step("pattern"),
            groups: builder.named_step("named groups"),
            matched: builder.named_step("matched text"),
            arguments: builder.named_step("@_"),
            shared: builder.named_step("shared text"),
            anonymous: builder.named_step("anonymous sub"),
        }
    }
}

impl<'a> ValueFiller<'a> {
    /// Creates a filler without values. `words` is the maximum number of elements of all arrays and
    /// hashes together.
    pub(crate) fn new(
        reader: PerlMemoryReader<'a>,
        perl: &'a PerlRuntime,
        layout: ValueLayout,
        claims: ChunkClaims<'a>,
        words: u64,
    ) -> Self {
        let mut builder = ValueGraphBuilder::default();
        let steps = NamedSteps::new(&mut builder);
        Self {
            reader,
            perl,
            layout,
            builder,
            claims,
            seeds: Vec::new(),
            mentions: Vec::new(),
            used: [0; sv::TYPE_COUNT],
            heads: 0,
            key_tables: HashSet::new(),
            stacks: HashSet::new(),
            names: PadNameLists::default(),
            pads: Vec::new(),
            steps,
            left: words,
            wanted: None,
            keys: HashMap::new(),
            value: PerlValue::default(),
            number: 0,
        }
    }

    /// Makes the value of a head.
    pub(crate) fn fill(&mut self, head: &ValueHead) {
        // Bodies of formats are not in arenas, because there are few.
        let body = match head.kind() {
            sv::FORMAT => 0,
            kind => self.perl.body_size(kind, head.flags),
        };
        self.number = self.builder.len() as u32;
        self.value = PerlValue {
            address: head.at,
            size: sv::HEAD_SIZE + body,
            asked: sv::HEAD_SIZE + body,
            references: head.references,
            ..PerlValue::default()
        };
        self.note_body(head, body);
        if head.kind() == sv::FORMAT {
            self.claim(head.any, self.perl.body_size(sv::FORMAT, head.flags));
        }
        if head.kind() >= sv::MAGICAL {
            self.magic(head);
        }
        if head.kind() >= sv::TEXT && head.has_flags(sv::IS_BLESSED) {
            let class = self.reader.word(head.any.wrapping_add(sv::CLASS_OFFSET));
            self.value.class = class;
            self.lead_to(class, ValueStep::Class, true);
        }
        self.value.kind = match head.kind() {
            _ if head.is_symbol() => self.symbol(head),
            sv::REGEXP => self.regexp(head),
            sv::LVALUE => self.lvalue(head),
            sv::ARRAY => self.array(head),
            sv::HASH => self.hash(head),
            sv::CODE => self.code(head, PerlValueKind::Code),
            sv::FORMAT => self.code(head, PerlValueKind::Format),
            sv::IO => self.handle(head),
            sv::OBJECT => self.object(head),
            _ => self.scalar(head),
        };
        self.builder.end(self.value);
    }

    /// Counts the body of a value as used bytes of the arena, and checks whether the wanted address
    /// is in the value's head or body.
    fn note_body(&mut self, head: &ValueHead, body: u64) {
        // Hashes with additional data have arenas of their own from 5.36 on.
        let is_more = head.kind() == sv::HASH && head.has_flags(sv::HAS_MORE);
        let of = match is_more && self.layout.aux.is_some() {
            true => 1,
            false => head.kind() as usize,
        };
        if let Some(used) = self.used.get_mut(of) {
            *used += body;
        }
        if let Some(wanted) = &mut self.wanted {
            // Bodies of texts are shorter than their structures, whose address is before the body.
            let start = match head.kind() {
                sv::TEXT..sv::MAGICAL => head.any.wrapping_add(sv::TEXT_LEN_OFFSET),
                _ => head.any,
            };
            let head_and_body = [(head.at, sv::HEAD_SIZE), (start, body)];
            if head_and_body
                .iter()
                .any(|&(at, size)| wanted.at.wrapping_sub(at) < size)
            {
                wanted.owner = Some(head.at);
            }
        }
    }

    /// Reads the word at an offset in a value's body.
    pub(crate) fn body(&self, head: &ValueHead, at: u64) -> u64 {
        self.reader.word(head.any.wrapping_add(at))
    }

    /// Adds an edge from the present value to the value at the address `to`.
    pub(crate) fn lead_to(&mut self, to: PerlAddress, step: ValueStep, is_strong: bool) {
        self.builder.lead_to(to, step, is_strong);
    }

    /// Claims the chunk that contains the address `at` for the present value. Perl requested
    /// `asked` bytes of the chunk.
    pub(crate) fn claim(&mut self, at: PerlAddress, asked: u64) {
        self.claim_text(at, asked, false);
    }

    /// Claims the chunk of a text for the present value. `is_shared` is true if several values may
    /// share the text until one of them is changed.
    pub(crate) fn claim_text(&mut self, at: PerlAddress, asked: u64, is_shared: bool) {
        if at == 0 {
            return;
        }
        self.claims.claim(at, self.number, asked, is_shared);
        if let Some(wanted) = &mut self.wanted
            && wanted.chunk.is_some()
            && wanted.chunk == self.claims.find(at)
        {
            wanted.owner.get_or_insert(self.value.address);
        }
        // Without chunks, only the requested size is known.
        if !self.claims.has_heap() {
            self.value.asked = self.value.asked.saturating_add(asked);
            self.value.size = self.value.size.saturating_add(asked);
        }
    }

    /// Claims a shared key (`HEK`) for the present value. Other values may claim it, too.
    pub(crate) fn claim_key(&mut self, key: PerlAddress) {
        // An entry of the table of all keys is in front of the key.
        self.claim_own_key(key, 24);
    }

    /// Claims a key for the present value. `before` is the number of bytes in front of the key in
    /// the same block.
    pub(crate) fn claim_own_key(&mut self, key: PerlAddress, before: u64) {
        // The key is a hash, a length, the text, a zero and a byte of flags.
        if let Some(length) = self.reader.key_length(key).filter(|_| key != 0) {
            self.claim(key, before + 8 + length + 2);
        }
    }

    /// Adds an edge from the present value to the chunk at an address. The chunk may be memory of C
    /// code.
    pub(crate) fn link(&mut self, at: PerlAddress) {
        self.link_as(at, PerlValueKind::Memory);
    }

    /// Adds an edge from the present value to the chunk at an address. `kind` is the kind of the
    /// chunk if no value owns it: memory of C code, or the code of a sub.
    pub(crate) fn link_as(&mut self, at: PerlAddress, kind: PerlValueKind) {
        let Some(found) = self.claims.find(at) else {
            return;
        };
        let step = match kind {
            PerlValueKind::Ops => ValueStep::Ops,
            _ => ValueStep::Memory,
        };
        if let Some(chunk) = self.claims.chunk(found) {
            self.seeds.push((found, kind));
            self.builder.lead_to(chunk.at, step, true);
        }
    }

    /// Calls [`link`](Self::link) with each of `count` words at `at`, because the memory may be a C
    /// structure.
    pub(crate) fn link_words(&mut self, at: PerlAddress, count: u64) {
        for word in self.reader.words(at, count) {
            self.link(word);
        }
    }

    /// Calls [`mention`](Self::mention) with each of `count` words at `at`, because the words may
    /// also lead to values.
    pub(crate) fn mention_words(&mut self, at: PerlAddress, count: u64) {
        let chunk = self.claims.find(at);
        let Some(chunk) = chunk.and_then(|chunk| self.claims.chunk(chunk)) else {
            return;
        };
        // In damaged memory, lengths may be wrong, and many values may have the same memory.
        let rest = (chunk.at + chunk.size).saturating_sub(at) / 8;
        let count = self.allow(count.min(rest));
        for word in self.reader.words(at, count) {
            self.mention(word);
        }
    }

    /// Follows a pointer of C code from the present value. The pointer may lead to memory of C
    /// code, to a value, or to a value's buffer.
    pub(crate) fn mention(&mut self, at: PerlAddress) {
        let Some(found) = self.claims.find(at) else {
            return;
        };
        self.link(at);
        self.lead_to(at, ValueStep::Mention, true);
        if self.claims.chunk(found).is_some_and(|chunk| chunk.at == at) {
            self.mentions.push((self.value.address, found));
        }
    }

    /// Adds edges to the scalars whose buffers C code points to. Called after all values were made.
    pub(crate) fn lead_to_buffers(&mut self) {
        for (from, chunk) in std::mem::take(&mut self.mentions) {
            if let Some(to) = self.scalar_with(chunk) {
                self.builder.lead_later(from, to, ValueStep::Mention, true);
            }
        }
    }

    /// Returns the address of the scalar whose buffer is the chunk. Modules store a structure in a
    /// scalar's buffer, and point to the structure instead of the scalar. Returns `None` if several
    /// values or another kind of value own the chunk.
    pub(crate) fn scalar_with(&self, chunk: u32) -> Option<PerlAddress> {
        let value = self.builder.value(self.claims.only_value(chunk)?);
        let is_scalar = matches!(value.kind, PerlValueKind::Scalar | PerlValueKind::Undefined);
        is_scalar.then_some(value.address)
    }

    /// Reads the text of a key.
    pub(crate) fn key(&mut self, key: PerlAddress) -> TextId {
        if let Some(&known) = self.keys.get(&key) {
            return known;
        }
        let text = self.reader.key(key);
        let id = self.builder.text_id(&text);
        self.keys.insert(key, id);
        id
    }

    /// Takes `count` elements from the limit [`left`](Self::left). Returns how many of them may be
    /// read.
    pub(crate) fn allow(&mut self, count: u64) -> u64 {
        let count = count.min(self.left);
        self.left -= count;
        count
    }
}
