//! Statements that answer a question from stored profiles in any SQL engine.

use heapprof_analysis::{Query, SampleType, SortKey, portable::PortableQuery, series::is_counter};

/// Returns an SQL statement that answers a question from stored profiles in any SQL engine. Returns
/// `None` for a question with filters, and for a question about anything other than functions and
/// values in use.
pub fn portable_statement(
    query: &Query,
    sample_type: &SampleType,
    sql: impl FnOnce(&PortableQuery<'_>) -> Option<String>,
) -> Option<String> {
    let is_plain = query.is_plain() && query.sort == SortKey::Flat;
    if !is_plain || is_counter(&sample_type.r#type) {
        return None;
    }
    let asked = PortableQuery {
        sample_type: (&sample_type.r#type, &sample_type.unit),
        limit: query.limit,
    };
    // Engines differ in how they read a backslash in a text.
    sql(&asked).filter(|sql| !sql.contains('\\'))
}
