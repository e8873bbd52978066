//! `heapprof db schema`: prints the tables that `sql` can query.

use anyhow::{Context, Result};
use heapprof_analysis::relation::documented_tables;
use heapprof_report::ReportStyle;
use heapprof_stores::open_database;
use heapprof_text::printable_lines;

use crate::args::SchemaArgs;
use crate::context::CommandContext;
use crate::output;

pub(super) fn run(context: &CommandContext, args: &SchemaArgs) -> Result<()> {
    let file = args.output.file();
    if args.database {
        let db = context.sources.db();
        let schema = open_database(db)?.schema();
        let schema = schema.with_context(|| db.display().to_string())?;
        let text: String = schema.iter().map(|sql| format!("{sql};\n")).collect();
        // The user's own tables are shown too.
        let text = printable_lines(&text);
        return output::text(file, &text);
    }
    let style = ReportStyle {
        format: args.format,
        ..ReportStyle::default()
    };
    output::text(file, &heapprof_report::schema(documented_tables(), &style)?)
}
