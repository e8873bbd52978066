//! The locations of a recording's frames.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher;

use heapprof_abi::{FrameNumber, FrameWord, MappingGeneration, word};

use super::code::RecordedCode;
use crate::{FrameText, LocationIndex, MappingIndex, ProfileBuilder, recording_texts};

/// A frame of an interpreter, as the ledger describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedFrame<'a> {
    /// Name of the function.
    pub name: Cow<'a, [u8]>,
    /// Source file.
    pub file: Cow<'a, [u8]>,
    /// Line at which the function begins.
    pub start_line: u32,
    /// Line at which the frame is.
    pub line: u32,
}

/// A ledger from which a profile gets the frames of its stacks.
pub trait LedgerSource {
    /// Reason why the ledger can't be read.
    type Error;

    /// Returns the mappings of code.
    fn code(&self) -> &RecordedCode<'_>;

    /// Is called before each search of the mappings for an address.
    ///
    /// # Errors
    /// The ledger may end a search that takes too long.
    fn begin_search(&self) -> Result<(), Self::Error>;

    /// Returns a frame of an interpreter; `None` if it does not exist.
    ///
    /// # Errors
    /// The ledger may be damaged.
    fn script_frame(&self, number: FrameNumber) -> Result<Option<RecordedFrame<'_>>, Self::Error>;
}

/// The locations of a profile, by the words of the ledger's stacks. An address has a location for
/// each generation of mappings.
pub struct RecordedLocations<H> {
    mappings: Vec<MappingIndex>,
    by_word: HashMap<(MappingGeneration, u64), LocationIndex, H>,
}

impl<H: BuildHasher + Default> RecordedLocations<H> {
    /// Makes the locations of a profile that has none yet. Adds the mappings of `code` to the
    /// profile.
    pub fn new(builder: &mut ProfileBuilder, code: &RecordedCode<'_>) -> Self {
        Self {
            mappings: code.add_to(builder),
            by_word: HashMap::default(),
        }
    }

    /// Returns the location for a word of a stack, and adds it if it is new. The word is an
    /// address, a frame of an interpreter or [`word::CUT`].
    ///
    /// # Errors
    /// Returns the errors of `source`.
    #[inline]
    pub fn find_or_add<S: LedgerSource>(
        &mut self,
        builder: &mut ProfileBuilder,
        source: &S,
        generation: MappingGeneration,
        word: u64,
    ) -> Result<LocationIndex, S::Error> {
        let is_address = word & word::KIND_MASK != word::FRAME && word != word::CUT;
        let generation = match is_address {
            true => generation,
            false => MappingGeneration::FIRST,
        };
        if let Some(&known) = self.by_word.get(&(generation, word)) {
            return Ok(known);
        }
        let location = self.add(builder, source, generation, word)?;
        self.by_word.insert((generation, word), location);
        Ok(location)
    }

    fn add<S: LedgerSource>(
        &self,
        builder: &mut ProfileBuilder,
        source: &S,
        generation: MappingGeneration,
        word: u64,
    ) -> Result<LocationIndex, S::Error> {
        if word == word::CUT {
            return Ok(add_named(builder, recording_texts::TRUNCATED_FRAME));
        }
        let frame = match FrameWord::from_word(word) {
            FrameWord::Address(frame) => {
                let address = frame.lookup_address();
                source.begin_search()?;
                let mapping = source.code().find(address, generation);
                let mapping = mapping.map(|i| self.mappings[i]);
                return Ok(builder.location(mapping, address, false, &[]));
            }
            FrameWord::Frame(Some(number)) => source.script_frame(number)?,
            FrameWord::Frame(None) | FrameWord::Label(..) | FrameWord::Thread(_) => None,
        };
        Ok(match frame {
            Some(frame) => builder.frame(&[FrameText {
                name: &String::from_utf8_lossy(&frame.name),
                filename: &String::from_utf8_lossy(&frame.file),
                line: frame.line.into(),
                start_line: frame.start_line.into(),
            }]),
            None => add_named(builder, recording_texts::NAMELESS_FRAME),
        })
    }
}

/// Returns the location of a frame that has only a name.
fn add_named(builder: &mut ProfileBuilder, name: &str) -> LocationIndex {
    builder.frame(&[FrameText {
        name,
        ..FrameText::default()
    }])
}
