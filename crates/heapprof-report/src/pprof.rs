//! What pprof prints, byte for byte: for those who type `pprof` and for scripts that read it.
//!
//! Everything here follows google/pprof's internal/report, internal/measurement and internal/graph, its
//! mistakes included; our own reports are the modules beside this one. The callers filter and
//! aggregate the profile, as pprof does, before a printer gets it.

mod header;
mod measurement;
mod options;
mod zone;

pub use header::{Shown, profile_labels, report_labels};
pub use measurement::{Scale, label, percentage, scale, scaled_label, truncated};
pub use options::{Options, Values};
pub use zone::Zone;
