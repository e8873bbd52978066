//! Label sets as text. Each text is built at most once.

use heapprof_profile::{Label, LabelSetIndex, Profile};

use super::text::TextPieces;

/// The text of each label set, built when it is first needed.
pub(super) struct LabelTexts<F> {
    make: F,
    pieces: TextPieces,
    piece: Vec<Option<usize>>,
}

impl<F: FnMut(LabelSetIndex, &mut String)> LabelTexts<F> {
    pub(super) fn new(profile: &Profile, make: F) -> Self {
        Self {
            make,
            pieces: TextPieces::default(),
            piece: vec![None; profile.label_sets.len()],
        }
    }

    pub(super) fn get(&mut self, set: LabelSetIndex) -> &str {
        let piece = *self.piece[set.index()].get_or_insert_with(|| {
            (self.make)(set, self.pieces.text());
            self.pieces.end()
        });
        self.pieces.get(piece)
    }
}

/// Groups labels by key. A set holds its labels ordered by key.
pub(super) fn by_key(labels: &[Label]) -> impl Iterator<Item = &[Label]> {
    labels.chunk_by(|a, b| a.key == b.key)
}
