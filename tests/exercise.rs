//! What every input must survive: read, written again, asked. The mutation test and the fuzz target share it.

use heapprof_analysis::{
    Query, Question, Session, Source, Suppressions, TreeOptions, Types, leaks, tags, top, traces,
    tree,
};
use heapprof_profile::{ReadOptions, decode_with, encode_plain};

/// The most an input may inflate to.
pub(crate) const LIMIT: usize = 1 << 20;

/// Decodes `bytes`, encodes what came out, and with `asked` asks for top and tree.
pub(crate) fn exercise(bytes: &[u8], asked: bool) {
    let options = ReadOptions::default().max_inflated(LIMIT as u64);
    let Ok(profile) = decode_with(bytes, options) else {
        return;
    };
    let mut plain = Vec::new();
    encode_plain(&profile, &mut plain).expect("a Vec takes everything");
    let again = decode_with(&plain[..], ReadOptions::default()).expect("what we write we read");
    assert!(again == profile, "encoding keeps everything");
    if !asked {
        return;
    }
    let source = Source::new("input", profile);
    let in_use = source.clone();
    let Ok(question) = Question::new(vec![source], &Query::default(), Types::One) else {
        return;
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
        return;
    };
    let mut rules = Suppressions::default();
    rules.read("rules", "leak:a*e").expect("a rule");
    let session = Session::new(question.with_suppressions(&rules)).expect("SQLite opens");
    leaks(&session, &Query::default(), &rules).expect("leaks answers");
}
