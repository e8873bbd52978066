//! Filters and aggregation that change a profile, in the order and with the results of pprof, for
//! `heapprof pprof`.
//!
//! Our other commands leave the profile as it is and apply filters while they walk its stacks
//! (`view.rs`). pprof changes the profile step by step and prints what is left of it, so its
//! drop-in has to do the same. One place decides for both which function, file or mapping a regular
//! expression matches (`filter.rs`). The results differ in these points:
//!
//! * `show_from`, `prune_from` and the profile's `drop_frames` take lines off a *location*, and so
//!   off every stack that holds it. Our other commands look at each stack.
//! * A location without lines is matched by its mapping alone. In our other commands it is also
//!   matched by the name that it is shown with.
//! * Samples without a stack are left out as soon as one of focus, ignore, hide or show is given.
//! * Frames of labels are the bare value, with the key as their file. A missing label is a frame
//!   without a name.
//! * The caller decides about label ranges, because pprof's units are not ours.
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
