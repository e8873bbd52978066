//! Reads subs and formats: their code, their constants, and the values of their variables.

use heapprof_perl_values::{PerlValueKind, ValueStep};

use crate::fill::ValueFiller;
use crate::sv::{self, ValueHead};

// Offsets in the body of a sub.
const SUB_START_OFFSET: u64 = 0x28;
const SUB_ROOT_OFFSET: u64 = 0x30;
const SUB_SYMBOL_OFFSET: u64 = 0x38;
const SUB_FILE_OFFSET: u64 = 0x40;
const SUB_PADS_OFFSET: u64 = 0x48;
const SUB_OUTSIDE_OFFSET: u64 = 0x50;
const SUB_FLAGS_OFFSET: u64 = 0x5c;
/// Maximum length of a file name in bytes. A longer name is cut.
const MAX_FILE_NAME_LENGTH: u64 = 4096;
/// Offset of the name in a symbol's body.
const SYMBOL_NAME_OFFSET: u64 = 0x20;

const CONSTANT_SUB_FLAG: u32 = 0x4;
const C_SUB_FLAG: u32 = 0x8;
const WEAK_OUTSIDE_FLAG: u32 = 0x10;
const ANONYMOUS_SUB_FLAG: u32 = 0x80;
const COUNTED_SYMBOL_FLAG: u32 = 0x400;
const OWN_FILE_FLAG: u32 = 0x1000;
const NAMED_SUB_FLAG: u32 = 0x8000;
const COUNTED_VALUE_FLAG: u32 = 0x8_0000;

impl ValueFiller<'_> {
    pub(crate) fn code(&mut self, head: &ValueHead, kind: PerlValueKind) -> PerlValueKind {
        let flags = self.reader.half(head.any.wrapping_add(SUB_FLAGS_OFFSET));
        let has = |flag: u32| flags & flag != 0;
        let [start, root] = [SUB_START_OFFSET, SUB_ROOT_OFFSET].map(|at| self.body(head, at));
        if has(C_SUB_FLAG) {
            match has(CONSTANT_SUB_FLAG) || has(COUNTED_VALUE_FLAG) {
                true => self.lead_to(start, ValueStep::Constant, true),
                false => self.mention(start),
            }
        } else {
            self.link_as(root, PerlValueKind::Ops);
            self.link_as(start, PerlValueKind::Ops);
            let pads = self.body(head, SUB_PADS_OFFSET);
            self.pads(pads);
        }
        let symbol = self.body(head, SUB_SYMBOL_OFFSET);
        if symbol != 0 && has(NAMED_SUB_FLAG) {
            self.claim_key(symbol);
            self.value.name = self.key(symbol);
        } else if symbol != 0 {
            let step = self.steps.symbol;
            self.lead_to(symbol, step, has(COUNTED_SYMBOL_FLAG));
            let of_symbol = ValueHead::read(&self.reader, symbol);
            let name = self.body(&of_symbol, SYMBOL_NAME_OFFSET);
            if of_symbol.is_symbol() && name != 0 {
                self.value.name = self.key(name);
            }
        }
        if has(ANONYMOUS_SUB_FLAG)
            && let Some(line) = self.perl.start_line(self.reader.image(), head.at)
        {
            // An anonymous sub has no name. It is named by its file and line.
            let file = self
                .reader
                .text(self.body(head, SUB_FILE_OFFSET), MAX_FILE_NAME_LENGTH);
            self.value.name = self.builder.text_id(&format!("{file}:{line}"));
        }
        let outside = self.body(head, SUB_OUTSIDE_OFFSET);
        self.lead_to(outside, ValueStep::Outside, !has(WEAK_OUTSIDE_FLAG));
        if has(OWN_FILE_FLAG) {
            let file = self.body(head, SUB_FILE_OFFSET);
            let length = self.reader.text(file, MAX_FILE_NAME_LENGTH).len();
            self.claim(file, length as u64 + 1);
        }
        // The text of the sub is a prototype.
        let length = self.body(head, sv::TEXT_CAPACITY_OFFSET);
        if length != 0 {
            self.claim(head.own, length);
        }
        kind
    }
}
