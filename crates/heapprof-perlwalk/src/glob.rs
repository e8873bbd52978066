//! Symbols with their slots, and handles.

use heapprof_perl_heap::{Kind, Step};

use crate::fill::Fill;
use crate::sv::Sv;

/// Where a symbol's body has its name.
const NAME: u64 = 0x20;
/// The slots of a symbol (`struct gp`): how many bytes they have, and which they are.
const SLOTS: u64 = 80;
const SLOT: [(u64, u8); 6] = [
    (0x00, b'$'),
    (0x28, b'@'),
    (0x20, b'%'),
    (0x10, b'&'),
    (0x08, b'*'),
    (0x30, b'*'),
];
const FILE: u64 = 0x48;
// Of a handle: its layers for writing, its folder, names and symbols of formats.
const WRITER: u64 = 0x28;
const FOLDER: u64 = 0x30;
const NAMES: [u64; 3] = [0x50, 0x60, 0x70];
const FORMATS: [u64; 3] = [0x58, 0x68, 0x78];

impl Fill<'_> {
    pub(crate) fn symbol(&mut self, head: &Sv) -> Kind {
        let name = self.body(head, NAME);
        if name != 0 {
            self.claim_key(name);
            self.value.name = self.key(name);
        }
        let slots = head.own;
        if slots != 0 {
            self.claim(slots, SLOTS);
            for (at, sigil) in SLOT {
                let to = self.reader.word(slots.wrapping_add(at));
                self.lead_to(to, Step::Slot(sigil), true);
            }
            let file = self.reader.word(slots.wrapping_add(FILE));
            self.claim_key(file);
        }
        Kind::Glob
    }

    pub(crate) fn handle(&mut self, head: &Sv) -> Kind {
        // A handle leads to a place in Perl's table of handles, and that to its layers.
        for handle in [head.own, self.body(head, WRITER)] {
            let layers = self.reader.word(handle);
            self.link(layers);
        }
        let folder = self.body(head, FOLDER);
        self.link(folder);
        for at in NAMES {
            let name = self.body(head, at);
            self.link(name);
        }
        let step = self.steps.format;
        for at in FORMATS {
            let to = self.body(head, at);
            self.lead_to(to, step, true);
        }
        Kind::Io
    }
}
