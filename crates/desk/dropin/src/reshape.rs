//! Filters and aggregation that change a profile, in pprof's order and with pprof's results, for
//! `heapprof pprof`.
//!
//! heapprof's other commands leave the profile unchanged and apply filters while they walk its
//! stacks (`view.rs` in the crate heapprof-totals). pprof changes the profile step by step and
//! prints the remaining profile, so its drop-in has to do the same. In both cases, `filter.rs` in
//! that crate matches regular expressions against functions, files and mappings. The results differ
//! in these points:
//!
//! * `show_from`, `prune_from` and the profile's `drop_frames` remove lines from a *location*, and
//!   so from every stack that contains it. The other commands decide for each stack.
//! * A location without lines is matched by its mapping alone. The other commands also match its
//!   displayed name.
//! * Samples without a stack are left out if any of focus, ignore, hide or show is used.
//! * Frames made from labels have the value as their name and the key as their file. A missing
//!   label gives a frame without a name.
//! * The caller tests label ranges, because pprof's units differ from heapprof's.
//!
//! Source: google/pprof, profile/filter.go, profile/prune.go,
//! internal/driver/{driver,driver_focus,tagroot}.go.

mod aggregate;
mod labels;
mod names;
mod prune;

pub use aggregate::{FrameDetail, aggregate};
pub use heapprof_totals::label_filter::{LabelFilter, NumberTest};
pub use heapprof_totals::pattern::go_regex;
pub use labels::{
    LabelUnits, add_label_frames, drop_empty_labels, keep_by_label, keep_label_keys, label_units,
    set_label,
};
pub use names::{FilterMatches, NameFilters, keep_by_name, show_from};
pub use prune::{drop_uninteresting, prune_from};
