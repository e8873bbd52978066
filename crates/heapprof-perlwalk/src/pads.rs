//! Pads: the values of a sub's variables, once for each depth of recursion, and their names.

use heapprof_perl_heap::{Step, TextId};

use crate::Address;
use crate::fill::Fill;

// A list of pads (`struct padlist`): the number of the last one, and where they are. The first one
// is the list of names.
const LIST: u64 = 24;
const LAST: u64 = 0;
const PADS: u64 = 8;
/// Perl warns at a depth of 100. More depths than these are damage.
const MOST_PADS: u64 = 1 << 24;
// A list of names (`struct padnamelist`): the number of the last one, where they are, and for how
// many there is room.
const NAMES: u64 = 40;
const LAST_NAME: u64 = 0;
const NAMES_AT: u64 = 8;
const ROOM: u64 = 0x10;
/// No sub has more variables.
const MOST_NAMES: u64 = 1 << 16;
// A name (`struct padname`): its text, and the class of the variable, or the sub that it names.
const TEXT: u64 = 0;
const CLASS: u64 = 8;
const OF_TYPE: u64 = 0x10;
// What the field of a `class` has besides, and in it the name of its parameter.
const FIELD: u64 = 0x18;
const FIELD_SIZE: u64 = 48;
const FIELD_PARAMETER: u64 = 0x20;
/// A flag of a name, behind its length.
const IS_OUR: u8 = 16;

impl Fill<'_> {
    /// The pads of the sub that is being made.
    pub(crate) fn pads(&mut self, list: Address) {
        if list == 0 {
            return;
        }
        let last = self.reader.word(list.wrapping_add(LAST)).min(MOST_PADS);
        let pads = self.reader.word(list.wrapping_add(PADS));
        self.claim(list, LIST);
        self.claim(pads, 8 * (last + 1));
        let count = self.allow(last + 1);
        let mut pads = self.reader.words(pads, count);
        let names = self.names_of(pads.next().unwrap_or(0));
        for (depth, pad) in (1..).zip(pads) {
            if pad != 0 {
                self.lead_to(pad, Step::Pad(depth), true);
                self.pads.push((pad, names));
            }
        }
    }

    /// The number of a list of names. The first sub that has it owns its memory.
    fn names_of(&mut self, list: Address) -> u32 {
        if let Some(known) = self.names.number(list) {
            return known;
        }
        let number = self.names.begin(list);
        let word = |at: u64| self.reader.word(list.wrapping_add(at));
        let (last, at, room) = (word(LAST_NAME), word(NAMES_AT), word(ROOM));
        let mut names = Vec::new();
        if list != 0 {
            self.claim(list, NAMES);
            self.claim(at, room.saturating_add(1).saturating_mul(8));
            let count = self.allow(last.wrapping_add(1).min(MOST_NAMES));
            for name in self.reader.words(at, count) {
                let name = self.name(name);
                names.push(name);
            }
        }
        self.names.end(names);
        number
    }

    /// The name of a variable, such as `$x`.
    fn name(&mut self, name: Address) -> TextId {
        let text = match name {
            0 => 0,
            name => self.reader.word(name.wrapping_add(TEXT)),
        };
        if text == 0 {
            return TextId::NONE;
        }
        let length = self.reader.byte(name.wrapping_add(self.layout.name_length));
        let flags = self
            .reader
            .byte(name.wrapping_add(self.layout.name_length + 1));
        self.claim(name, self.layout.name + u64::from(length) + 1);
        let shown = self.reader.text(text, length.into());
        let class = self.reader.word(name.wrapping_add(CLASS));
        self.lead_to(class, Step::Class, true);
        let of_type = self.reader.word(name.wrapping_add(OF_TYPE));
        match shown.starts_with('&') {
            // The sub that closures of it are made of.
            true => self.lead_to(of_type, Step::Constant, true),
            false => self.lead_to(of_type, Step::Class, true),
        }
        if self.layout.has_fields {
            let field = self.reader.word(name.wrapping_add(FIELD));
            self.claim(field, FIELD_SIZE);
            let parameter = self.reader.word(field.wrapping_add(FIELD_PARAMETER));
            if field != 0 {
                self.lead_to(parameter, Step::Constant, true);
            }
        }
        // A variable that is declared by `our` is elsewhere.
        match flags & IS_OUR {
            0 => self.builder.text_id(&shown),
            _ => TextId::NONE,
        }
    }

    /// Gives the elements of pads the names of the variables that they are.
    pub(crate) fn name_pads(&mut self) {
        let (arguments, unnamed) = (self.steps.arguments, self.steps.anonymous);
        // What closures are made of has no other name.
        let anonymous = self.builder.text_id("&");
        for (pad, list) in std::mem::take(&mut self.pads) {
            let names = &self.names;
            self.builder
                .rename_elements(pad, |place| match names.of(list, place) {
                    TextId::NONE if place == 0 => arguments,
                    TextId::NONE => Step::Temporary,
                    name if name == anonymous => unnamed,
                    name => Step::Variable(name),
                });
        }
    }
}
