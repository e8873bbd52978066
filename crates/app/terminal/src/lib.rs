//! The terminal view: shows the memory of a program or the content of a profile, and updates it.
//!
//! A [`feed::SnapshotFeed`] supplies snapshots, and knows nothing of the screen. `data.rs` computes
//! answers about them, `state.rs` turns keys into the state of the view, and `draw.rs` draws the
//! answers and the state on a buffer. None of these three needs a terminal, so tests check their
//! text. `run.rs` combines them, and `screen.rs` restores the terminal, however the view ends.

mod answer;
mod canvas;
mod chart;
mod data;
mod detail;
mod draw;
pub mod feed;
pub mod files;
mod growth;
mod head;
mod keys;
mod outline;
pub mod plain_view;
mod question;
pub mod run;
pub mod screen;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod tree;
mod view_data;

pub use answer::ViewFacts;
pub use canvas::ScreenStyle;
pub use question::ask_line;
