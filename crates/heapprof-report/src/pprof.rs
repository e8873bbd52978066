//! What pprof prints, byte for byte: for those who type `pprof` and for scripts that read it.
//!
//! Everything here follows google/pprof's internal/report, internal/measurement and internal/graph, its
//! mistakes included; our own reports are the modules beside this one. The callers filter and
//! aggregate the profile, as pprof does, before a printer gets it.

mod columns;
mod comments;
mod header;
mod labels;
mod measurement;
mod names;
mod options;
mod proto;
mod raw;
mod tags;
mod text;
mod traces;
mod zone;

pub use comments::comments;
pub use header::{Shown, profile_labels, report_labels};
pub use measurement::{Scale, convertible, label, percentage, scale, scaled_label, truncated};
pub use options::{Options, Values};
pub use proto::proto;
pub use raw::raw;
pub use tags::tags;
pub use traces::traces;
pub use zone::Zone;
