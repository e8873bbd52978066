//! Equality of profiles: same header, same samples and tables in the same order, and names compared
//! as text.

use crate::model::{Function, Label, Mapping, Profile, ValueType};
use crate::strings::StringId;

impl PartialEq for Profile {
    /// Compares everything that a file holds. The position of a text in the string table does not
    /// matter.
    fn eq(&self, other: &Self) -> bool {
        let both = ProfilePair(self, other);
        both.texts(&[
            (self.drop_frames, other.drop_frames),
            (self.keep_frames, other.keep_frames),
            (self.default_sample_type, other.default_sample_type),
            (self.doc_url, other.doc_url),
        ]) && self.time_nanos == other.time_nanos
            && self.duration_nanos == other.duration_nanos
            && self.period == other.period
            && both.all(&self.comment, &other.comment, |&a, &b| both.text(a, b))
            && both.all(
                self.period_type.as_slice(),
                other.period_type.as_slice(),
                |a, b| both.value_type(a, b),
            )
            && both.all(&self.sample_type, &other.sample_type, |a, b| {
                both.value_type(a, b)
            })
            && both.all(&self.mapping, &other.mapping, |a, b| both.mapping(a, b))
            && both.all(&self.function, &other.function, |a, b| both.function(a, b))
            && self.location == other.location
            && self.line == other.line
            && both.samples()
    }
}

struct ProfilePair<'a>(&'a Profile, &'a Profile);

impl ProfilePair<'_> {
    fn all<T>(&self, a: &[T], b: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
    }

    fn text(&self, a: StringId, b: StringId) -> bool {
        self.0.text(a) == self.1.text(b)
    }

    fn texts(&self, pairs: &[(StringId, StringId)]) -> bool {
        pairs.iter().all(|&(a, b)| self.text(a, b))
    }

    fn value_type(&self, a: &ValueType, b: &ValueType) -> bool {
        self.texts(&[(a.r#type, b.r#type), (a.unit, b.unit)])
    }

    fn mapping(&self, a: &Mapping, b: &Mapping) -> bool {
        self.texts(&[(a.filename, b.filename), (a.build_id, b.build_id)])
            && *a
                == Mapping {
                    filename: a.filename,
                    build_id: a.build_id,
                    ..*b
                }
    }

    fn function(&self, a: &Function, b: &Function) -> bool {
        self.texts(&[
            (a.name, b.name),
            (a.system_name, b.system_name),
            (a.filename, b.filename),
        ]) && a.id == b.id
            && a.start_line == b.start_line
    }

    fn label(&self, a: &Label, b: &Label) -> bool {
        self.texts(&[(a.key, b.key), (a.str, b.str), (a.num_unit, b.num_unit)]) && a.num == b.num
    }

    fn samples(&self) -> bool {
        let (a, b) = (&self.0.samples, &self.1.samples);
        let labels = |i: usize| {
            self.all(
                self.0.label_sets.get(a.label_set[i]),
                self.1.label_sets.get(b.label_set[i]),
                |a, b| self.label(a, b),
            )
        };
        a.stacks == b.stacks && a.value == b.value && (0..a.len()).all(labels) && a.same_spread(b)
    }
}
