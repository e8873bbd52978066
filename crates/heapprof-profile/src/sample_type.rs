//! Which of a profile's sample types is meant: by name, by position, or by default.

use crate::model::Profile;

/// A sample type that the profile does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has no sample type {asked:?}; it has {}", .present.join(", "))]
pub struct SampleTypeError {
    /// What was asked for.
    pub asked: String,
    /// What there is.
    pub present: Vec<String>,
}

impl Profile {
    /// Position of the sample type `asked`: a type's name or a number from 0.
    ///
    /// `inuse_space` also finds `space`, the name that profiles without allocation counts use (and so on).
    pub fn find_sample_type(&self, asked: &str) -> Result<usize, SampleTypeError> {
        let position = |name: &str| {
            self.sample_type
                .iter()
                .position(|t| self.text(t.r#type) == name)
        };
        position(asked)
            .or_else(|| position(asked.strip_prefix("inuse_")?))
            .or_else(|| asked.parse().ok().filter(|&n| n < self.sample_type.len()))
            .ok_or_else(|| SampleTypeError {
                asked: asked.to_string(),
                present: self
                    .sample_type
                    .iter()
                    .map(|t| self.text(t.r#type).to_string())
                    .collect(),
            })
    }

    /// Position of the sample type to show first: the file's own choice, else `inuse_space`, else the last.
    pub fn default_sample_type_index(&self) -> usize {
        let position = |name: &str| {
            self.sample_type
                .iter()
                .position(|t| self.text(t.r#type) == name)
        };
        let chosen = self.text(self.default_sample_type);
        Some(chosen)
            .filter(|name| !name.is_empty())
            .and_then(position)
            .or_else(|| position("inuse_space"))
            .unwrap_or(self.sample_type.len().saturating_sub(1))
    }
}
