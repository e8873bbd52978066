//! Reads symbols with their slots, and file handles.

use heapprof_perl_values::{PerlValueKind, ValueStep};

use crate::fill::ValueFiller;
use crate::sv::ValueHead;

/// Offset of the name in a symbol's body.
const SYMBOL_NAME_OFFSET: u64 = 0x20;
/// Size of a symbol's slots (`struct gp`), in bytes.
const SLOTS_SIZE: u64 = 80;
/// The offset and the sigil of each slot of a symbol.
const SLOT_OFFSETS: [(u64, u8); 6] = [
    (0x00, b'$'),
    (0x28, b'@'),
    (0x20, b'%'),
    (0x10, b'&'),
    (0x08, b'*'),
    (0x30, b'*'),
];
const SLOTS_FILE_OFFSET: u64 = 0x48;
// Offsets in the body of a handle: its layers for writing, its folder, names and symbols of
// formats.
const HANDLE_WRITER_OFFSET: u64 = 0x28;
const HANDLE_FOLDER_OFFSET: u64 = 0x30;
// A layer of a handle (`PerlIOBuf`) begins with the address of the layer below. A layer with a
// buffer has this size, and the address and size of the buffer at these offsets.
const BUFFERED_LAYER_SIZE: u64 = 72;
const LAYER_BUFFER_OFFSET: u64 = 0x20;
const LAYER_BUFFER_SIZE_OFFSET: u64 = 0x40;
/// Maximum number of layers of a file handle. No handle has more.
const MAX_LAYERS: usize = 100;
const FORMAT_NAME_OFFSETS: [u64; 3] = [0x50, 0x60, 0x70];
const FORMAT_SYMBOL_OFFSETS: [u64; 3] = [0x58, 0x68, 0x78];

impl ValueFiller<'_> {
    pub(crate) fn symbol(&mut self, head: &ValueHead) -> PerlValueKind {
        let name = self.body(head, SYMBOL_NAME_OFFSET);
        if name != 0 {
            self.claim_key(name);
            self.value.name = self.key(name);
        }
        let slots = head.own;
        if slots != 0 {
            self.claim(slots, SLOTS_SIZE);
            for (at, sigil) in SLOT_OFFSETS {
                let to = self.reader.word(slots.wrapping_add(at));
                self.lead_to(to, ValueStep::Slot(sigil), true);
            }
            let file = self.reader.word(slots.wrapping_add(SLOTS_FILE_OFFSET));
            self.claim_key(file);
        }
        PerlValueKind::Glob
    }

    /// Reads the layers of a file handle, and their buffers.
    fn layers(&mut self, handle: u64) {
        let mut layer = self.reader.word(handle);
        for _ in 0..MAX_LAYERS {
            let chunk = self.claims.find(layer);
            let Some(chunk) = chunk.and_then(|chunk| self.claims.chunk(chunk)) else {
                return;
            };
            self.link(layer);
            if chunk.size >= BUFFERED_LAYER_SIZE {
                let word = |at: u64| self.reader.word(layer.wrapping_add(at));
                let (buffer, size) = (word(LAYER_BUFFER_OFFSET), word(LAYER_BUFFER_SIZE_OFFSET));
                let found = self.claims.find(buffer);
                let found = found.and_then(|found| self.claims.chunk(found));
                // The content of a buffer is not searched for pointers.
                if found.is_some_and(|found| found.at == buffer && size > 0 && size <= found.size) {
                    self.claim(buffer, size);
                }
            }
            layer = self.reader.word(layer);
        }
    }

    pub(crate) fn handle(&mut self, head: &ValueHead) -> PerlValueKind {
        // A handle leads to an entry of Perl's table of handles, and that leads to its layers.
        let [reader, writer] = [head.own, self.body(head, HANDLE_WRITER_OFFSET)];
        self.layers(reader);
        if writer != reader {
            self.layers(writer);
        }
        let folder = self.body(head, HANDLE_FOLDER_OFFSET);
        self.link(folder);
        for at in FORMAT_NAME_OFFSETS {
            let name = self.body(head, at);
            self.link(name);
        }
        let step = self.steps.format;
        for at in FORMAT_SYMBOL_OFFSETS {
            let to = self.body(head, at);
            self.lead_to(to, step, false);
        }
        PerlValueKind::Io
    }
}
