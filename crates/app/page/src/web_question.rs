//! The question of a request, and its answer in JSON.

use std::io::Write;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    Granularity, QuestionSource, TreeOptions, relation::documented_tables, stats::stats,
    suppression::SuppressionSet,
};
use heapprof_report::{ListAssembly, ReportFormat, ReportStyle, TraceOrder};

use crate::parameters::ParameterValues;
use crate::question::{
    BinaryFolders, DiffQuestion, InfoQuestion, LeaksQuestion, ListQuestion, NoteSink, PeekQuestion,
    StatsQuestion, TagsQuestion, TimelineQuestion, TopQuestion, TracesQuestion, TreeQuestion,
    compile_regex,
};
use crate::source_file::SourceFiles;

/// A question that a server answers.
pub(crate) enum WebQuestion {
    Top(TopQuestion),
    Tree(TreeQuestion),
    Peek(PeekQuestion),
    List(ListQuestion),
    Assembly(ListQuestion),
    Traces(TracesQuestion),
    Tags(TagsQuestion),
    Stats(StatsQuestion),
    Leaks(LeaksQuestion),
    Info(InfoQuestion),
    Timeline(TimelineQuestion),
    Diff(DiffQuestion),
    Schema,
}

/// Makes questions: each constructor takes the values of a command's parameters.
impl WebQuestion {
    pub(crate) fn top(values: ParameterValues) -> Result<Self> {
        Ok(Self::Top(TopQuestion {
            query: values.query_by(Granularity::Functions),
            is_wide: values.is_wide,
        }))
    }

    pub(crate) fn tree(values: ParameterValues) -> Result<Self> {
        Ok(Self::Tree(TreeQuestion {
            query: values.query_by(Granularity::Functions),
            options: TreeOptions {
                reverse: values.is_reverse,
                least: values.min_percent / 100.0,
                most: None,
            },
            is_full: values.is_full,
        }))
    }

    pub(crate) fn peek(values: ParameterValues) -> Result<Self> {
        Ok(Self::Peek(PeekQuestion {
            query: values.query_of_all_code(Granularity::Functions),
            wanted: compile_regex(&values.regex)?,
        }))
    }

    pub(crate) fn list(values: ParameterValues) -> Result<Self> {
        let wanted = compile_regex(&values.regex)?;
        let query = values.query_of_all_code(Granularity::Functions);
        let question = ListQuestion::new(query, wanted)?;
        Ok(match values.has_assembly {
            true => Self::Assembly(question),
            false => Self::List(question),
        })
    }

    pub(crate) fn traces(values: ParameterValues) -> Result<Self> {
        Ok(Self::Traces(TracesQuestion {
            query: values.query_of_all_code(Granularity::Functions),
        }))
    }

    pub(crate) fn tags(values: ParameterValues) -> Result<Self> {
        Ok(Self::Tags(TagsQuestion {
            query: values.query_of_all_code(Granularity::Functions),
        }))
    }

    pub(crate) fn stats(values: ParameterValues) -> Result<Self> {
        Ok(Self::Stats(StatsQuestion {
            query: values.query_of_all_code(Granularity::Functions),
        }))
    }

    pub(crate) fn leaks(values: ParameterValues) -> Result<Self> {
        let query = values.query_by(Granularity::Lines);
        Ok(Self::Leaks(LeaksQuestion::new(
            query,
            SuppressionSet::default(),
        )?))
    }

    pub(crate) fn info(_: ParameterValues) -> Result<Self> {
        Ok(Self::Info(InfoQuestion::default()))
    }

    pub(crate) fn timeline(_: ParameterValues) -> Result<Self> {
        Ok(Self::Timeline(TimelineQuestion))
    }

    pub(crate) fn diff(values: ParameterValues) -> Result<Self> {
        let query = values.query_by(Granularity::Functions);
        Ok(Self::Diff(DiffQuestion::new(query, values.is_normalized)?))
    }

    pub(crate) fn schema(_: ParameterValues) -> Result<Self> {
        Ok(Self::Schema)
    }

    /// Whether the answer is read from the binaries that a profile names.
    pub(crate) fn reads_binaries(&self) -> bool {
        matches!(self, Self::Assembly(_))
    }

    /// Writes the answer about the profiles `names`. The answer is JSON, except for `schema`, whose
    /// answer is text.
    pub(crate) fn answer(
        &self,
        names: &[String],
        sources: Vec<QuestionSource>,
        files: &SourceFiles<'_>,
        binaries: &BinaryFolders,
        note: NoteSink<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let style = &ReportStyle {
            format: ReportFormat::Json,
            ..ReportStyle::default()
        };
        let name = names.join(" + ");
        let text = match self {
            Self::Top(question) => {
                let session = question.open(one(sources)?, false, note)?;
                let report = question.rows(&session)?;
                heapprof_report::top(&report, style, &|file, line| files.line(file, line))?
            }
            Self::Tree(question) => {
                let session = question.open(one(sources)?, note)?;
                let report = question.rows(&session)?;
                return Ok(heapprof_report::tree(
                    &report,
                    question.is_full,
                    style,
                    out,
                )?);
            }
            Self::Peek(question) => {
                let session = question.open(one(sources)?, note)?;
                let report = question.rows(&session, &name)?;
                return Ok(heapprof_report::peek(&report, style, out)?);
            }
            Self::List(question) => {
                let sessions = question.open(one(sources)?, note)?;
                let report = question.rows(&sessions, &name)?;
                heapprof_report::list(&report, &|file| files.lines(file), style)?
            }
            Self::Assembly(question) => {
                let source = one(sources)?;
                let sessions = question.open(source.clone(), note)?;
                let report = question.rows(&sessions, &name)?;
                let assembly = question.assembly(source, &report, binaries)?;
                let code = ListAssembly::new(&assembly, binaries.advice);
                let source = |file: &str| files.lines(file);
                return Ok(heapprof_report::write_list_assembly(
                    &report, &code, &source, out,
                )?);
            }
            Self::Traces(question) => {
                let session = question.open(one(sources)?, note)?;
                let report = question.rows(&session)?;
                let order = TraceOrder::Descending;
                return Ok(heapprof_report::traces(&report, order, style, out)?);
            }
            Self::Tags(question) => {
                let session = question.open(one(sources)?, note)?;
                heapprof_report::tags(&question.rows(&session)?, style)?
            }
            Self::Stats(question) => {
                let session = question.open(one(sources)?, note)?;
                heapprof_report::stats(&question.rows(&session)?, style)?
            }
            Self::Leaks(question) => {
                let source = one(sources)?;
                let question = question.about(&source);
                let session = question.open(source, note)?;
                let report = question.rows(&session)?;
                return Ok(heapprof_report::leaks(&report, &[], style, out)?);
            }
            Self::Info(question) => {
                let session = question.open(one(sources)?, note)?;
                let report = question.rows(&session)?;
                heapprof_report::info(&report, Some(&stats(&session)?), style)?
            }
            Self::Timeline(question) => {
                let session = question.open(sources, note)?;
                heapprof_report::timeline(&question.rows(&session)?, style)?
            }
            Self::Diff(question) => {
                let Ok(pair) = <[QuestionSource; 2]>::try_from(sources) else {
                    bail!("diff compares two profiles");
                };
                let session = question.open(pair, false, note)?;
                let report = question.rows(&session)?;
                question.explain_rows(&session, &report, note);
                heapprof_report::diff(&report, question.query().limit, &[], style)?
            }
            Self::Schema => heapprof_report::schema(documented_tables(), &ReportStyle::default())?,
        };
        Ok(out.write_all(text.as_bytes())?)
    }
}

/// Returns the only profile of a question.
fn one(mut sources: Vec<QuestionSource>) -> Result<QuestionSource> {
    sources.pop().context("no profile is given")
}
