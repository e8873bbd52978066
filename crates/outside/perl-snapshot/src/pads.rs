//! Reads pads: the values of a sub's variables, once for each depth of recursion, and the names of
//! the variables.

use heapprof_perl_values::{TextId, ValueStep};

use crate::PerlAddress;
use crate::fill::ValueFiller;

// Offsets in a list of pads (`struct padlist`): the number of the last pad, and the address of the
// pads. The first one is the list of names.
const PAD_LIST_SIZE: u64 = 24;
const PAD_LIST_LAST_OFFSET: u64 = 0;
const PAD_LIST_PADS_OFFSET: u64 = 8;
/// Maximum number of pads of a sub. Perl warns at a recursion depth of 100, so more pads than this
/// mean damage.
const MAX_PADS: u64 = 1 << 24;
// Offsets in a list of names (`struct padnamelist`): the number of the last name, the address of
// the names, and the number of names for which there is room.
const NAME_LIST_SIZE: u64 = 40;
const NAME_LIST_LAST_OFFSET: u64 = 0;
const NAME_LIST_NAMES_OFFSET: u64 = 8;
const NAME_LIST_CAPACITY_OFFSET: u64 = 0x10;
/// Maximum number of variable names of a sub. No sub has more.
const MAX_PAD_NAMES: u64 = 1 << 16;
// Offsets in a name (`struct padname`): its text, and the class of the variable, or the sub that it
// names.
const NAME_TEXT_OFFSET: u64 = 0;
const NAME_CLASS_OFFSET: u64 = 8;
const NAME_TYPE_OFFSET: u64 = 0x10;
// The additional data of a field of a `class`, which has the name of the field's parameter.
const NAME_FIELD_OFFSET: u64 = 0x18;
const PAD_FIELD_SIZE: u64 = 48;
const FIELD_PARAMETER_OFFSET: u64 = 0x20;
/// Flag in the byte after the length of a name: the variable was declared by `our`.
const OUR_FLAG: u8 = 16;

impl ValueFiller<'_> {
    /// Adds the pads of the sub that is being made. `list` is the address of the list of pads.
    pub(crate) fn pads(&mut self, list: PerlAddress) {
        if list == 0 {
            return;
        }
        let last = self
            .reader
            .word(list.wrapping_add(PAD_LIST_LAST_OFFSET))
            .min(MAX_PADS);
        let pads = self.reader.word(list.wrapping_add(PAD_LIST_PADS_OFFSET));
        self.claim(list, PAD_LIST_SIZE);
        self.claim(pads, 8 * (last + 1));
        let count = self.allow(last + 1);
        let mut pads = self.reader.words(pads, count);
        let names = self.names_of(pads.next().unwrap_or(0));
        for (depth, pad) in (1..).zip(pads) {
            if pad != 0 {
                self.lead_to(pad, ValueStep::Pad(depth), true);
                self.pads.push((pad, names));
            }
        }
    }

    /// Returns the number of a list of variable names. The list's memory belongs to the first sub
    /// that has the list.
    fn names_of(&mut self, list: PerlAddress) -> u32 {
        if let Some(known) = self.names.number(list) {
            return known;
        }
        let number = self.names.begin(list);
        let word = |at: u64| self.reader.word(list.wrapping_add(at));
        let (last, at, room) = (
            word(NAME_LIST_LAST_OFFSET),
            word(NAME_LIST_NAMES_OFFSET),
            word(NAME_LIST_CAPACITY_OFFSET),
        );
        let mut names = Vec::new();
        if list != 0 {
            self.claim(list, NAME_LIST_SIZE);
            self.claim(at, room.saturating_add(1).saturating_mul(8));
            let count = self.allow(last.wrapping_add(1).min(MAX_PAD_NAMES));
            for name in self.reader.words(at, count) {
                let name = self.name(name);
                names.push(name);
            }
        }
        self.names.end(names);
        number
    }

    /// Reads the name of a variable, such as `$x`.
    fn name(&mut self, name: PerlAddress) -> TextId {
        let text = match name {
            0 => 0,
            name => self.reader.word(name.wrapping_add(NAME_TEXT_OFFSET)),
        };
        if text == 0 {
            return TextId::EMPTY;
        }
        let length = self.reader.byte(name.wrapping_add(self.layout.name_length));
        let flags = self
            .reader
            .byte(name.wrapping_add(self.layout.name_length + 1));
        self.claim(name, self.layout.name + u64::from(length) + 1);
        let shown = self.reader.text(text, length.into());
        let class = self.reader.word(name.wrapping_add(NAME_CLASS_OFFSET));
        self.lead_to(class, ValueStep::Class, true);
        let of_type = self.reader.word(name.wrapping_add(NAME_TYPE_OFFSET));
        match shown.starts_with('&') {
            // The prototype of which closures are made.
            true => self.lead_to(of_type, ValueStep::Constant, true),
            false => self.lead_to(of_type, ValueStep::Class, true),
        }
        if self.layout.has_fields {
            let field = self.reader.word(name.wrapping_add(NAME_FIELD_OFFSET));
            self.claim(field, PAD_FIELD_SIZE);
            let parameter = self.reader.word(field.wrapping_add(FIELD_PARAMETER_OFFSET));
            if field != 0 {
                self.lead_to(parameter, ValueStep::Constant, true);
            }
        }
        // A variable that is declared by `our` is in a symbol table.
        match flags & OUR_FLAG {
            0 => self.builder.text_id(&shown),
            _ => TextId::EMPTY,
        }
    }

    /// Replaces the element numbers in pads by the names of variables.
    pub(crate) fn name_pads(&mut self) {
        let (arguments, unnamed) = (self.steps.arguments, self.steps.anonymous);
        // The prototypes of closures have no other name.
        let anonymous = self.builder.text_id("&");
        for (pad, list) in std::mem::take(&mut self.pads) {
            let names = &self.names;
            self.builder
                .rename_elements(pad, |place| match names.variable_name(list, place) {
                    TextId::EMPTY if place == 0 => arguments,
                    TextId::EMPTY => ValueStep::Temporary,
                    name if name == anonymous => unnamed,
                    name => ValueStep::Variable(name),
                });
        }
    }
}
