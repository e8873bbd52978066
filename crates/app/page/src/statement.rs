//! `POST /api/v1/sql`: runs a statement on the chosen profiles or on the database. The statement
//! may only read.

use std::time::Duration;

use anyhow::{Context, Result};
use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, TypeSelection, statement::UserStatement,
    store::ProfileStore,
};
use heapprof_report::{ReportFormat, ReportStyle, result_table};
use heapprof_web::{ApiAnswer, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE};

use crate::host::{PageHost, refusal};
use crate::library::ProfileLibrary;
use crate::parameters::{allow, parse_switch};

/// Longest time that a statement may run.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of rows in an answer.
const MAX_ROWS: usize = 10_000;
/// Largest size of the rows in an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Answers a statement: `{"sql": "…"}`.
pub(crate) fn answer(
    library: &ProfileLibrary,
    asked: &ApiRequest,
    host: &dyn PageHost,
) -> Result<ApiAnswer, ApiRefusal> {
    allow(asked, &["database", "all_code"])?;
    let sql = serde_json::from_slice::<serde_json::Value>(&asked.body).ok();
    let sql = sql.as_ref().and_then(|body| body.get("sql")?.as_str());
    let Some(sql) = sql else {
        let what = "The body is not {\"sql\": \"STATEMENT\"}";
        return Err(ApiRefusal::new(400, what, "Send JSON with the statement"));
    };
    let mut session = session(library, asked, host)?;
    let (text, is_cut) = run(&mut session, sql).map_err(|error| refusal(host, &error))?;
    let notes = match is_cut {
        true => vec!["only the first rows are shown; add LIMIT or a condition".to_string()],
        false => Vec::new(),
    };
    Ok(ApiAnswer {
        media: JSON_MEDIA_TYPE,
        body: Some(text),
        tag: None,
        notes,
        ..ApiAnswer::default()
    })
}

fn session(
    library: &ProfileLibrary,
    asked: &ApiRequest,
    host: &dyn PageHost,
) -> Result<AnalysisSession, ApiRefusal> {
    let of_database = match asked.parameter("database") {
        Some(value) => parse_switch("database", value)?,
        None => false,
    };
    let made = match of_database {
        true => {
            let none = || {
                ApiRefusal::new(
                    404,
                    "This server has no database",
                    "Start it with one: heapprof web DB",
                )
            };
            let db = library.database().ok_or_else(none)?;
            let store = ProfileStore::open(&db).and_then(ProfileStore::session_for_statements);
            store.with_context(|| db.display().to_string())
        }
        false => {
            let sources = library.read_all(&library.parse_choice(asked)?.names)?;
            let all_code = asked.parameter("all_code");
            let all_code = all_code
                .map(|value| parse_switch("all_code", value))
                .transpose()?;
            let query = Query {
                own_code: all_code != Some(true),
                ..Query::default()
            };
            let question = ProfileQuestion::new(sources, &query, TypeSelection::All);
            question.and_then(AnalysisSession::new).map_err(Into::into)
        }
    };
    made.map_err(|error| refusal(host, &error))
}

/// Runs the statement. Returns its rows, and whether there are more.
fn run(session: &mut AnalysisSession, sql: &str) -> Result<(Vec<u8>, bool)> {
    session
        .limit_statements(STATEMENT_TIMEOUT)
        .context("the statement")?;
    let mut statement = UserStatement::new(session, sql).context("the statement")?;
    statement.limit(MAX_ROWS, MAX_ANSWER_BYTES);
    let style = ReportStyle {
        format: ReportFormat::Json,
        ..ReportStyle::default()
    };
    let mut text = Vec::new();
    result_table(&mut statement, &style, &mut text).context("the statement")?;
    Ok((text, statement.is_cut()))
}
