//! The page of a heap profile: plain rows go in, one HTML file comes out.
//!
//! [`WebReport`] holds the rows. [`ReportContainer::pack`] packs them. [`page()`] puts the
//! container into a file that needs nothing else, and [`served_page`] makes the page that asks a
//! server for containers. [`PageServer`] sends that page to a browser of this machine, and has an
//! [`ApiHandler`] answer it. The crate knows nothing of SQL, of profiles' files or of a command
//! line.
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
    container::ReportContainer,
    error::PackError,
    page::{PageServerInfo, ServedPage, page, served_page},
    report::{
        HistoryCurve, HistoryPeak, OmittedNodes, PageFrame, PageFunction, PageGrowth, PageModule,
        PageNode, PageSampleType, PageSeriesPeak, PageSizeHistograms, PageSnapshot, SizeRows,
        WebReport,
    },
    server::{
        API_PATH, AcceptedBody, ApiAnswer, ApiHandler, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE,
        PageServer, ServerStop,
    },
};
