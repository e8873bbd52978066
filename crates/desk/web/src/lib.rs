//! Writes the rows of a heap profile as one HTML file, or serves them as a web page.
//!
//! [`WebReport`] has the rows. [`ReportContainer::pack`] packs them. [`page()`] puts the container
//! into a self-contained file, and [`served_page`] makes a page that requests containers from a
//! server. [`PageServer`] sends this page to a browser on this machine, and an [`ApiHandler`]
//! answers its requests. [`ViewPage`] is a page with one of pprof's views. The crate must not
//! depend on SQL, profile files or a command line.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod columns;
mod container;
mod error;
#[cfg(test)]
mod fixture;
mod head;
mod page;
mod report;
mod server;
mod view_page;

pub use crate::{
    columns::MAX_VALUE,
    container::ReportContainer,
    error::PackError,
    page::{PageServerInfo, ServedPage, page, served_page},
    report::{
        HistoryCurve, HistoryPeak, OmittedNodes, PageFrame, PageFunction, PageGrowth, PageImports,
        PageModule, PageNode, PagePeakPart, PageSampleType, PageSeriesPeak, PageSizeHistograms,
        PageSnapshot, SizeRows, WebReport,
    },
    server::{
        API_PATH, AcceptedBody, ApiAnswer, ApiHandler, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE,
        PageServer, ServerStop,
    },
    view_page::{
        UrlParameters, ViewBody, ViewBox, ViewField, ViewFlame, ViewFunction, ViewInstruction,
        ViewLine, ViewLink, ViewPage,
    },
};
