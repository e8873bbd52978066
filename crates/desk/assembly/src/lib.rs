//! Disassembles the functions of a profile: their instructions, the source lines of these, and
//! which instruction each address of the profile belongs to.
//!
//! [`assemble`] opens each file of the profile that has code of a wanted function. The symbols
//! around the function's addresses show how far its code reaches, and only this code is decoded. A
//! function that was inlined everywhere has the instructions of other functions that debug
//! information attributes to it.
//!
//! Addresses of calls are in a profile as a place inside the call instruction, or as its first byte
//! (pprof's convention), so an address belongs to the instruction whose bytes contain it.
//! [`ProfileAssembly::mark`] writes the number of this instruction into the profile in place of the
//! address. So heapprof-totals adds up flat and cum of instructions as of all other rows: a sample
//! counts once for each instruction.
//!
//! heapprof-symbolize alone reads symbol files, and this crate alone knows the crates that
//! disassemble. heapprof-dropin, which prints pprof's bytes, runs objdump instead.
#![forbid(unsafe_code)]

mod aarch64;
mod decoded;
mod file;
mod listing;
mod reference;
mod targets;
mod wanted;
mod x86;

use std::rc::Rc;

use heapprof_symbolize::code::CodeError;

pub use crate::listing::{InstructionKey, ProfileAssembly, assemble};
pub use crate::wanted::WantedFunction;

/// Largest number of instructions of one function. Functions that people read are much shorter.
pub const MAX_FUNCTION_INSTRUCTIONS: usize = 50_000;

/// Largest number of instructions of all functions of a profile together.
pub const MAX_INSTRUCTIONS: usize = 500_000;

/// Largest number of reasons why instructions of one function are missing.
pub const MAX_REASONS: usize = 10;

/// A function in the source at an instruction, possibly an inlined one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// The source name of the function; empty if it is not known.
    pub function: Rc<str>,
    /// The source file; empty if it is not known.
    pub file: Rc<str>,
    /// The line in the file; 0 if it is not known.
    pub line: u32,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct CodeInstruction {
    /// The virtual address in the file.
    pub address: u64,
    /// Number of its bytes.
    pub length: u8,
    /// The instruction in the assembler's words, with names of what it refers to.
    pub text: Box<str>,
    /// The functions in the source that it belongs to, the innermost inlined one first.
    pub frames: Rc<[SourceFrame]>,
}

/// The code of one symbol of a file.
#[derive(Clone, Debug)]
pub struct CodePiece {
    /// The path of the file on this machine.
    pub binary: Rc<str>,
    /// Whether the file has the build id of the profile. Without one in either, the file may not be
    /// the one that ran.
    pub has_build_id: bool,
    /// The source name of the symbol; `None` if the code has none.
    pub symbol: Option<String>,
    /// The virtual address of its first byte.
    pub start: u64,
    /// The virtual address behind its last byte.
    pub end: u64,
    /// The instructions by address.
    pub instructions: Vec<CodeInstruction>,
    /// Whether there are more instructions than are listed.
    pub is_cut: bool,
}

/// An instruction in the listing of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedInstruction {
    /// The index of its piece in [`ProfileAssembly::pieces`].
    pub piece: u32,
    /// The index of the instruction in the piece.
    pub instruction: u32,
    /// The line of the listed function that the instruction belongs to; 0 if it is not known.
    pub line: i64,
    /// Its flat and cum; `None` without samples.
    pub values: Option<(i64, i64)>,
}

/// The instructions of a function.
#[derive(Clone, Debug, Default)]
pub struct FunctionAssembly {
    /// The instructions by piece and address.
    pub instructions: Vec<ListedInstruction>,
    /// Why the instructions of some addresses are not listed: up to [`MAX_REASONS`] that differ.
    pub missing: Vec<MissingCode>,
}

/// Reason why the instructions at an address are not listed. It displays as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MissingCode {
    /// The file can't be read.
    #[error(transparent)]
    File(#[from] CodeError),
    /// The profile does not say which file the address belongs to.
    #[error("the profile does not name the file that has the code of the function")]
    NoMapping,
    /// Nothing says where the function begins and ends.
    #[error(
        "{file}: neither a symbol nor an unwind table says where the function at {address:#x} \
         begins; install the debug package of the file"
    )]
    NoFunction {
        /// The path of the file.
        file: String,
        /// The virtual address, or the address in the profile if it is not in the file.
        address: u64,
    },
    /// The function is so long that the listing ends before some of its addresses.
    #[error("{file}: the code of {symbol:?} is cut before {addresses} addresses of the profile")]
    BehindCut {
        /// The path of the file.
        file: String,
        /// The source name of the symbol; empty if the code has none.
        symbol: String,
        /// Number of addresses.
        addresses: usize,
    },
    /// An address is behind the last byte that decodes, such as one in a part of a word.
    #[error("{file}: no instruction is at {address:#x}")]
    NoInstruction {
        /// The path of the file.
        file: String,
        /// The virtual address.
        address: u64,
    },
    /// The file has another function at an address, and no build id says that it is the right file.
    #[error(
        "{file}: has the function {found:?} at {address:#x}, so it is not the file that ran; no \
         build id was compared"
    )]
    OtherFunction {
        /// The path of the file.
        file: String,
        /// The virtual address.
        address: u64,
        /// The source name of the function there.
        found: String,
    },
    /// Too many instructions were listed before.
    #[error("more than {MAX_INSTRUCTIONS} instructions match; list fewer functions")]
    Limit,
}

impl MissingCode {
    /// Whether a reason is the same for other addresses of the same file.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NoFunction { file: a, .. }, Self::NoFunction { file: b, .. })
            | (Self::NoInstruction { file: a, .. }, Self::NoInstruction { file: b, .. })
            | (Self::OtherFunction { file: a, .. }, Self::OtherFunction { file: b, .. }) => a == b,
            _ => self == other,
        }
    }

    /// Whether a folder with the right file would help.
    #[must_use]
    pub fn wants_file(&self) -> bool {
        matches!(
            self,
            Self::OtherFunction { .. }
                | Self::File(
                    CodeError::Missing { .. }
                        | CodeError::OnlyDebugFile { .. }
                        | CodeError::Refused(_)
                )
        )
    }
}
