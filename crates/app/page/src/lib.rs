//! Makes the content of a page about heap profiles, and the answers to the page's requests to a
//! server.
//!
//! `heapprof-web` handles HTTP and knows nothing of profiles; this crate handles profiles and knows
//! nothing of HTTP. The trait [`ApiHandler`](heapprof_web::ApiHandler) connects them: it takes a
//! request, and returns an answer or a refusal.
//!
//! * `question/`: the questions about profiles, one struct for each report. The command line uses
//!   the same structs.
//! * `commands.rs`: the commands that a server answers, and a table of their parameters. The
//!   parameters (`parameters.rs`) become a question (`web_question.rs`), and the answer is the JSON
//!   that the command prints.
//! * `library.rs`: the profiles that the server offers. A question can read only these profiles:
//!   any other name is an error, so that no parameter can name a file, a URL or stdin.
//! * `views.rs`: the sessions of the last views. A view is a choice of profiles with filters. The
//!   page requests its report, and later parts of the report's tree.
//! * `statement.rs`: statements of the user, which may only read, within a time limit.
//! * `pprof_pages.rs`: the pages at pprof's paths, with pprof's parameters and saved
//!   configurations.
//! * `rows.rs`: the rows of a page, both for a file and for an answer.
//! * `browser.rs`: opens the page in the user's browser.
//!
//! The [`PageHost`] is the program that serves the page. It puts errors and notes into words,
//! because only a program has options, and it knows which arguments are processes.
//!
//! `tests/desk/web/` compares each answer with the command's output, and sends hostile requests.
#![forbid(unsafe_code)]

mod anonymous;
mod browser;
mod commands;
mod desk;
mod host;
mod library;
mod parameters;
mod paths;
mod pprof_pages;
mod process;
mod question;
mod rows;
mod settings;
mod source_file;
mod statement;
mod views;
mod web_question;

pub use crate::{
    anonymous::hash_names,
    browser::open_in_browser,
    desk::PageDesk,
    host::{PageHost, PageWords},
    parameters::ParameterValues,
    paths::{PathNames, PathRule},
    question::{
        BinaryFolders, DiffQuestion, InfoQuestion, LeaksQuestion, ListQuestion, ListSessions,
        NoteSink, PeekQuestion, QuestionError, QuestionNote, StatsQuestion, TagsQuestion,
        TimelineQuestion, TopQuestion, TracesQuestion, TreeQuestion, check_wrappers, compile_regex,
        open_session, parse_percent, portable_statement,
    },
    rows::{ReportPage, ViewCommands, page_rows},
    settings::PageSettings,
    source_file::{SourceFiles, SourceFolders, SourceLines},
};
