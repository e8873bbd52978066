//! The page of a heap profile: plain rows go in, one HTML file comes out.
//!
//! [`Report`] holds the rows. [`Container::of`] packs them. [`page()`] puts the container into a
//! file that needs nothing else, and [`served`] makes the page that asks a server for containers.
//! [`Server`] sends that page to a browser of this machine, and has an [`Answers`] answer it. The
//! crate knows nothing of SQL, of profiles' files or of a command line.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod columns;
mod container;
mod error;
mod head;
mod page;
mod report;
mod server;

pub use crate::{
    container::Container,
    error::Error,
    page::{Served, ServedPage, page, served},
    report::{
        Curve, Frame, Function, Growth, LeftOut, Module, Node, Peak, Report, SampleType,
        SeriesPeak, SizeRows, Sizes, Snapshot,
    },
    server::{API, Answer, Answers, Asked, JSON, Refusal, Server, Stop, Takes},
};
