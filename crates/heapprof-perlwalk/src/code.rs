//! Subs and formats: their code, their constants, and what their variables keep.

use heapprof_perl_heap::{Kind, Step};

use crate::fill::Fill;
use crate::sv::{self, Sv};

// Where the body of a sub has its parts.
const START: u64 = 0x28;
const ROOT: u64 = 0x30;
const SYMBOL: u64 = 0x38;
const FILE: u64 = 0x40;
const PADS: u64 = 0x48;
const OUTSIDE: u64 = 0x50;
const FLAGS: u64 = 0x5c;
/// A longer name of a file is cut.
const LONGEST_FILE: u64 = 4096;
/// Where a symbol's body has its name.
const NAME: u64 = 0x20;

const IS_CONSTANT: u32 = 0x4;
const IS_C: u32 = 0x8;
const IS_OUTSIDE_WEAK: u32 = 0x10;
const IS_ANONYMOUS: u32 = 0x80;
const COUNTS_SYMBOL: u32 = 0x400;
const HAS_FILE: u32 = 0x1000;
const IS_NAMED: u32 = 0x8000;
const COUNTS_VALUE: u32 = 0x8_0000;

impl Fill<'_> {
    pub(crate) fn code(&mut self, head: &Sv, kind: Kind) -> Kind {
        let flags = self.reader.half(head.any.wrapping_add(FLAGS));
        let has = |flag: u32| flags & flag != 0;
        let [start, root] = [START, ROOT].map(|at| self.body(head, at));
        if has(IS_C) {
            match has(IS_CONSTANT) || has(COUNTS_VALUE) {
                true => self.lead_to(start, Step::Constant, true),
                false => self.mention(start),
            }
        } else {
            self.link_as(root, Kind::Ops);
            self.link_as(start, Kind::Ops);
            let pads = self.body(head, PADS);
            self.pads(pads);
        }
        let symbol = self.body(head, SYMBOL);
        if symbol != 0 && has(IS_NAMED) {
            self.claim_key(symbol);
            self.value.name = self.key(symbol);
        } else if symbol != 0 {
            let step = self.steps.symbol;
            self.lead_to(symbol, step, has(COUNTS_SYMBOL));
            let of_symbol = Sv::read(&self.reader, symbol);
            let name = self.body(&of_symbol, NAME);
            if of_symbol.is_symbol() && name != 0 {
                self.value.name = self.key(name);
            }
        }
        if has(IS_ANONYMOUS)
            && let Some(line) = self.perl.start_line(self.reader.image(), head.at)
        {
            // It has no name. The file and the line say which one it is.
            let file = self.reader.text(self.body(head, FILE), LONGEST_FILE);
            self.value.name = self.builder.text_id(&format!("{file}:{line}"));
        }
        let outside = self.body(head, OUTSIDE);
        self.lead_to(outside, Step::Outside, !has(IS_OUTSIDE_WEAK));
        if has(HAS_FILE) {
            let file = self.body(head, FILE);
            let length = self.reader.text(file, LONGEST_FILE).len();
            self.claim(file, length as u64 + 1);
        }
        // A prototype.
        let length = self.body(head, sv::LENGTH);
        if length != 0 {
            self.claim(head.own, length);
        }
        kind
    }
}
