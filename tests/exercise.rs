//! What every input must survive: read, written again, asked. The mutation test and the fuzz target share it.

use heapprof_analysis::{
    Query, Question, Session, Source, Suppressions, TreeOptions, Types, leaks, tags, top, traces,
    tree,
};
use heapprof_formats::{Options, read};
use heapprof_profile::{ReadOptions, decode_with, encode_plain};

/// The most an input may inflate to.
pub(crate) const LIMIT: usize = 1 << 20;

/// Reads `bytes`, of whatever format, encodes what came out, and with `asked` asks for top and tree. Whether it could be read.
pub(crate) fn exercise(bytes: &[u8], asked: bool) -> bool {
    let options = Options::default().max_inflated(LIMIT as u64);
    let profile = match read(bytes, &options) {
        Ok(reading) => reading.commented(),
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.lines().count() == 1 && message.len() < 1000,
                "{message}"
            );
            return false;
        }
    };
    let mut plain = Vec::new();
    encode_plain(&profile, &mut plain).expect("a Vec takes everything");
    let again = decode_with(&plain[..], ReadOptions::default()).expect("what we write we read");
    assert!(again == profile, "encoding keeps everything");
    if !asked {
        return true;
    }
    let source = Source::new("input", profile);
    let in_use = source.clone();
    let Ok(question) = Question::new(vec![source], &Query::default(), Types::One) else {
        return true;
    };
    let question = question.with_tree(TreeOptions {
        reverse: false,
        least: 0.001,
    });
    let session = Session::new(question).expect("SQLite opens");
    let report = top(&session, 1, &Query::default(), false).expect("top answers");
    let flat: i64 = report.rows.iter().map(|r| r.flat).sum();
    assert_eq!(flat, report.header.net);
    tree(&session, &Query::default()).expect("tree answers");
    traces(&session, &Query::default()).expect("traces answers");
    tags(&session, &Query::default()).expect("tags answers");
    let Ok(question) = Question::new(vec![in_use], &Query::default(), Types::InUse) else {
        return true;
    };
    let mut rules = Suppressions::default();
    rules.read("rules", "leak:a*e").expect("a rule");
    let session = Session::new(question.with_suppressions(&rules)).expect("SQLite opens");
    leaks(&session, &Query::default(), &rules).expect("leaks answers");
    true
}
