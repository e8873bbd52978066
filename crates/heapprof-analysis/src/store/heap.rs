//! The four values that a row of `heap_sample` has. Values of other types have rows of their own.

/// The types and their units, in the order of the columns.
pub(crate) const HEAP_TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];
