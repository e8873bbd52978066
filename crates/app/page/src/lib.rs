//! What a page shows of heap profiles, and the answers to what it asks of a server.
//!
//! `heapprof-web` knows HTTP and no profile, and this crate knows profiles and no HTTP. The trait
//! [`ApiHandler`](heapprof_web::ApiHandler) is between them: a question goes in, and an answer or a
//! refusal comes out.
//!
//! * `question/`: the questions about profiles, one struct for each report. A command line asks the
//!   same ones.
//! * `commands.rs`: the commands that can be asked of a server, from a table of what each may be
//!   asked. The parameters (`parameters.rs`) become a question (`web_question.rs`), and the answer
//!   is what the command prints as JSON.
//! * `library.rs`: the profiles that are offered. A question reads nothing else: every other name
//!   is an error, so that no parameter can name a file, a URL or stdin.
//! * `views.rs`: the sessions of the last views. A view is a choice of profiles under filters; the
//!   page asks each again, for its report and for parts of the report's tree.
//! * `statement.rs`: statements of the user, which only read, and which end.
//! * `rows.rs`: the rows of a page, as a file and as an answer.
//!
//! The [`PageHost`] is the program that serves. It words errors and notes, because only a program
//! has options, and knows which arguments are processes.
//!
//! `tests/desk/web/` compares each answer with the command's output, and sends hostile requests.
#![forbid(unsafe_code)]

mod anonymous;
mod commands;
mod desk;
mod host;
mod library;
mod parameters;
mod paths;
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
    desk::PageDesk,
    host::{PageHost, PageWords},
    parameters::ParameterValues,
    paths::{PathNames, PathRule},
    question::{
        DiffQuestion, InfoQuestion, LeaksQuestion, ListQuestion, ListSessions, NoteSink,
        PeekQuestion, QuestionError, QuestionNote, StatsQuestion, TagsQuestion, TimelineQuestion,
        TopQuestion, TracesQuestion, TreeQuestion, check_wrappers, compile_regex, open_session,
        parse_percent,
    },
    rows::{ReportPage, ViewCommands, page_rows},
    settings::PageSettings,
    source_file::{SourceFiles, SourceFolders, SourceLines},
};
