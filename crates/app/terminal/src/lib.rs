//! The terminal view: shows what a program or a profile holds, and follows it.
//!
//! A [`feed::SnapshotFeed`] brings snapshots, and knows nothing of the screen. `data.rs` asks the
//! libraries about them, `state.rs` turns keys into what is to be shown, and `draw.rs` draws both
//! on a buffer. None of these three needs a terminal, so tests check their text. `run.rs` joins
//! them, and `screen.rs` gives the terminal back as it was, however the view ends.

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
