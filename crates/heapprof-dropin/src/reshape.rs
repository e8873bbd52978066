//! Filters and aggregation as changes of a profile, in the order and with the results of pprof: for
//! `heapprof pprof`.
//!
//! Our own commands leave the profile as it is and apply filters while they walk its stacks
//! (`view.rs`). pprof changes the profile step by step, and prints what is left of it, so the
//! drop-in has to do the same. Which function, file or mapping a regular expression matches is
//! decided in one place for both (`filter.rs`). Where the results differ:
//!
//! * `show_from`, `prune_from` and the profile's `drop_frames` take lines off a *location*, and so
//!   off every stack that holds it; ours look at each stack.
//! * A location without lines is matched by its mapping alone; ours also by the name it is shown
//!   with.
//! * Samples without a stack go as soon as one of focus, ignore, hide or show is given.
//! * Frames of labels are the bare value, with the key as their file; a missing label is a frame
//!   without a name.
//! * Label ranges are the caller's to decide, since pprof's units are not ours.
//!
//! Source: google/pprof, profile/filter.go, profile/prune.go,
//! internal/driver/{driver,driver_focus,tagroot}.go.

mod aggregate;
mod labels;
mod names;
mod prune;

pub use aggregate::{Detail, aggregate};
pub use heapprof_totals::label_filter::{LabelFilter, NumberTest};
pub use heapprof_totals::pattern::go_regex;
pub use labels::{
    LabelUnits, add_label_frames, drop_empty_labels, keep_by_label, keep_label_keys, label_units,
    set_label,
};
pub use names::{Matched, NameFilters, keep_by_name, show_from};
pub use prune::{drop_uninteresting, prune_from};
