//! A decoded instruction of any processor.

use heapprof_symbolize::code::CodeProcessor;

use crate::reference::{CodeReference, TargetNames};
use crate::{aarch64, x86};

/// The decoded instructions of one piece of code.
pub(crate) enum DecodedCode {
    X86(Vec<iced_x86::Instruction>),
    Aarch64(Vec<aarch64::DecodedWord>),
}

impl DecodedCode {
    /// Decodes code that begins at a virtual address, up to `most` instructions.
    pub(crate) fn new(processor: CodeProcessor, code: &[u8], start: u64, most: usize) -> Self {
        match processor {
            CodeProcessor::X86 => Self::X86(x86::decode(code, start, 32, most)),
            CodeProcessor::X86_64 => Self::X86(x86::decode(code, start, 64, most)),
            CodeProcessor::Aarch64 => Self::Aarch64(aarch64::decode(code, start, most)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::X86(all) => all.len(),
            Self::Aarch64(all) => all.len(),
        }
    }

    /// Returns the virtual address behind the last instruction; `None` without instructions.
    pub(crate) fn end(&self) -> Option<u64> {
        match self {
            Self::X86(all) => all.last().map(iced_x86::Instruction::next_ip),
            Self::Aarch64(all) => all.last().map(aarch64::DecodedWord::end),
        }
    }

    /// Returns what the instructions refer to.
    pub(crate) fn references(&self) -> Vec<CodeReference> {
        match self {
            Self::X86(all) => all.iter().filter_map(x86::reference).collect(),
            Self::Aarch64(all) => all.iter().filter_map(|word| word.reference).collect(),
        }
    }

    /// Calls `each` with the address, the length and the text of each instruction.
    pub(crate) fn format(&self, names: &TargetNames, each: impl FnMut(u64, u8, String)) {
        match self {
            Self::X86(all) => x86::format(all, names, each),
            Self::Aarch64(all) => aarch64::format(all, names, each),
        }
    }
}
