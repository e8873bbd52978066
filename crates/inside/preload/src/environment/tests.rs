//! Tests the options that result from an environment. A separate process reads each environment,
//! because the library reads the environment of its process, and marks variables for its children.

use std::collections::BTreeMap;
use std::process::Command;

use super::*;
use crate::messages::say;

/// Beginning of each line that the reading process writes for a test.
const LINE_START: &str = "request: ";

/// Reads the environment twice and writes the results. The second time, the variables are marked
/// already.
#[test]
#[ignore = "a process that other tests start"]
fn write_requests() {
    for round in 0..2 {
        let say = |name: &str, value: String| {
            let line = format!("{LINE_START}{round} {name} = {value}");
            say(&[line.as_bytes()]);
        };
        match read() {
            Err(error) => say("error", error.to_string()),
            Ok(None) => say("nothing", String::new()),
            Ok(Some(request)) => {
                let options = &request.options;
                let (output, triggers) = (&options.output, &options.triggers);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                say("start", request.start.to_string());
                say("signal", format!("{:?}", request.signal));
                say("mmap", request.mmap.to_string());
                say("evals", request.numbers_evals.to_string());
                say("values", request.values.to_string());
                say("is_program", request.is_program.to_string());
                say("recorded", request.recorded.to_string());
                say("mode", format!("{:?}", options.mode));
                say("period", options.period.to_string());
                say("format", format!("{:?}", options.format));
                say("file_mode", format!("{:o}", options.file_mode));
                say("follows", options.follow_children.to_string());
                say("logs", options.logs.to_string());
                say("pattern", text(&output.pattern));
                say("children", text(&output.children));
                say("folder", text(output.folder.as_deref().unwrap_or_default()));
                say("least", output.min_child_bytes.to_string());
                say("numbered", output.numbered_prefix.to_string());
                let parent = heapprof_platform::sys::parent_id();
                let relation = match output.parent {
                    None => "none",
                    Some(id) if id == parent => "ours",
                    Some(_) => "no process",
                };
                say("parent", relation.to_string());
                say("lines", format!("{:?}", triggers.line_growth));
                say("live", triggers.live.to_string());
                say("allocated", format!("{:?}", triggers.allocated));
                say("peak_growth", format!("{:?}", triggers.peak_growth));
                say("interval", format!("{:?}", triggers.interval));
            }
        }
        let shown = |value: Option<&[u8]>| format!("{:?}", value.map(String::from_utf8_lossy));
        say("watch", shown(watch()));
        let (address, key) = wiretap().map_or((None, None), |(at, key)| (Some(at), key));
        say("wiretap", format!("{} {}", shown(address), shown(key)));
        say("python", format!("{:?}", python_objects()));
        say("python_malloc", python_has_malloc().to_string());
        let record = get(variable::RECORD.name);
        let is_own = record.is_some_and(|value| {
            let own = format!(":{:010}", std::process::id());
            value.ends_with(own.as_bytes())
        });
        say("is_own", is_own.to_string());
    }
}

/// Results that a process found in an environment, by name.
struct FoundRequest(BTreeMap<String, String>);

impl FoundRequest {
    /// Returns a result of the first reading.
    fn get(&self, name: &str) -> &str {
        self.later(0, name)
    }

    /// Returns a result of the reading with this number; empty if there is none.
    fn later(&self, round: usize, name: &str) -> &str {
        let key = format!("{round} {name}");
        self.0.get(&key).map_or("", String::as_str)
    }

    /// Checks results of the first reading.
    fn expect(&self, facts: &[(&str, &str)]) {
        for (name, expected) in facts {
            assert_eq!(self.get(name), *expected, "{name}");
        }
    }
}

/// Returns the results of a process whose environment has only the given `variables`.
fn request(variables: &[(&str, &str)]) -> FoundRequest {
    let test = "environment::tests::write_requests";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env_clear().envs(variables.iter().copied());
    command.current_dir("/");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(LINE_START));
    let facts = lines.filter_map(|(_, fact)| fact.split_once(" = "));
    let facts: BTreeMap<_, _> = facts
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    assert!(!facts.is_empty(), "{text}");
    FoundRequest(facts)
}

#[test]
fn an_empty_environment_asks_for_nothing() {
    for variables in [
        &[][..],
        &[("HEAPPROF_OUTPUT", "")],
        &[("HEAPPROF_START", "yes")],
    ] {
        assert!(
            request(variables).0.contains_key("0 nothing"),
            "{variables:?}"
        );
    }
    // The program starts the recording itself.
    let later = request(&[("HEAPPROF_START", "no")]);
    later.expect(&[("start", "false"), ("pattern", ""), ("recorded", "false")]);
}

#[test]
fn an_output_is_recorded_with_the_defaults() {
    let found = request(&[("HEAPPROF_OUTPUT", "out.%p.pb.gz")]);
    found.expect(&[
        ("start", "true"),
        ("pattern", "out.%p.pb.gz"),
        ("folder", "/"),
        ("signal", "None"),
        ("mmap", "false"),
        ("mode", "Sampled"),
        ("period", "524288"),
        ("format", "Pprof"),
        ("file_mode", "600"),
        ("follows", "true"),
        ("recorded", "false"),
        ("is_program", "false"),
        ("parent", "none"),
        ("allocated", "None"),
    ]);
}

#[test]
fn each_setting_has_its_variable() {
    let found = request(&[
        ("HEAPPROF_OUTPUT", "out"),
        ("HEAPPROF_MODE", "exact"),
        ("HEAPPROF_PERIOD", "64KiB"),
        ("HEAPPROF_START", "no"),
        ("HEAPPROF_SIGNAL", "12"),
        ("HEAPPROF_MMAP", "yes"),
        ("HEAPPROF_FORMAT", "text"),
        ("HEAPPROF_FILE_MODE", "640"),
        ("HEAPPROF_INTERVAL", "2m"),
        ("HEAPPROF_PERL_EVALS", "numbered"),
        ("HEAPPROF_PERL_VALUES", "yes"),
    ]);
    found.expect(&[
        ("mode", "Exact"),
        ("period", "65536"),
        ("start", "false"),
        ("signal", "Some(12)"),
        ("mmap", "true"),
        ("format", "Text"),
        ("file_mode", "640"),
        ("interval", "Some(120s)"),
        ("evals", "true"),
        ("values", "true"),
    ]);
}

#[test]
fn a_value_that_is_not_understood_is_named() {
    for (name, value) in [
        ("HEAPPROF_MODE", "both"),
        ("HEAPPROF_PERIOD", "1"),
        ("HEAPPROF_PERIOD", "512 potatoes"),
        ("HEAPPROF_START", "maybe"),
        ("HEAPPROF_SIGNAL", "0"),
        ("HEAPPROF_SIGNAL", "65"),
        ("HEAPPROF_SIGNAL", "TERM"),
        ("HEAPPROF_FOLLOW", "2"),
        ("HEAPPROF_FILE_MODE", "777"),
        ("HEAPPROF_PERL_EVALS", "yes"),
        ("HEAPPROF_RECORD", "12"),
        ("HEAPPROF_LEAST", "-1"),
    ] {
        let found = request(&[("HEAPPROF_OUTPUT", "out"), (name, value)]);
        let error = found.get("error");
        assert!(
            error.starts_with(&format!("{name}: expected ")),
            "{name}={value}: {error}"
        );
    }
}

/// Checks the ids in HEAPPROF_RECORD: `record` stores its own id, and zeros in place of the
/// program's id.
#[test]
fn the_first_process_is_the_program_of_record() {
    let own = format!("{}:0000000000", std::process::id());
    let list = ("HEAPPROF_LIST", "/list");
    let of_record = |record: &str| {
        request(&[
            ("HEAPPROF_OUTPUT", "out"),
            ("HEAPPROF_RECORD", record),
            ("HEAPPROF_CHILDREN", "/c/%r.%p.%%r.%"),
            ("HEAPPROF_LEAST", "1MiB"),
            ("HEAPPROF_LINES", "4096"),
            ("HEAPPROF_LIVE", "yes"),
            ("HEAPPROF_LOG", "yes"),
            list,
        ])
    };
    let program = of_record(&own);
    program.expect(&[
        ("recorded", "true"),
        ("is_program", "true"),
        ("parent", "ours"),
        ("is_own", "true"),
        ("least", "1048576"),
        ("lines", "Some(4096)"),
        ("live", "true"),
        ("logs", "true"),
    ]);
    // An image that the program becomes by exec is the program, too.
    assert_eq!(program.later(1, "is_program"), "true");
    let child = of_record("1:0000000042");
    child.expect(&[
        ("recorded", "true"),
        ("is_program", "false"),
        ("parent", "no process"),
        ("children", "/c/42.%p.%%r.%"),
        ("logs", "false"),
    ]);
}

#[test]
fn reports_need_a_list() {
    let found = request(&[
        ("HEAPPROF_OUTPUT", "out"),
        ("HEAPPROF_LINES", "4096"),
        ("HEAPPROF_LIVE", "yes"),
    ]);
    found.expect(&[("lines", "None"), ("live", "false")]);
}

/// The first process marks the variable, and its children see that they are not the first.
#[test]
fn without_followed_children_only_the_first_process_is_recorded() {
    let found = request(&[("HEAPPROF_OUTPUT", "out"), ("HEAPPROF_FOLLOW", "no")]);
    found.expect(&[("follows", "false"), ("parent", "ours")]);
    assert_eq!(found.later(1, "follows"), "false");
    assert_eq!(found.later(1, "parent"), "none");
}

#[test]
fn a_gperftools_setup_records_as_gperftools_does() {
    let found = request(&[("HEAPPROFILE", "/tmp/prefix")]);
    found.expect(&[
        ("mode", "Exact"),
        ("format", "Text"),
        ("pattern", "/tmp/prefix"),
        ("numbered", "true"),
        ("parent", "ours"),
        ("allocated", "Some(1073741824)"),
        ("peak_growth", "Some(104857600)"),
        ("interval", "None"),
    ]);
    // A child knows by the mark that it is none of the first process.
    assert_eq!(found.later(1, "parent"), "none");
    assert_eq!(found.later(1, "pattern"), "/tmp/prefix");
    let set = request(&[
        ("HEAPPROFILE", "/tmp/prefix"),
        ("HEAP_PROFILE_ALLOCATION_INTERVAL", "0"),
        ("HEAP_PROFILE_INUSE_INTERVAL", "4096"),
        ("HEAP_PROFILE_TIME_INTERVAL", "5"),
        ("HEAP_PROFILE_MMAP", "true"),
        ("HEAPPROFILESIGNAL", "10"),
    ]);
    set.expect(&[
        ("allocated", "None"),
        ("peak_growth", "Some(4096)"),
        ("interval", "Some(5s)"),
        ("mmap", "true"),
        ("signal", "Some(10)"),
    ]);
    // Our own output comes first.
    let both = request(&[("HEAPPROFILE", "/tmp/prefix"), ("HEAPPROF_OUTPUT", "out")]);
    both.expect(&[("pattern", "out"), ("mode", "Sampled")]);
}

#[test]
fn what_is_not_about_a_recording_is_read_apart() {
    let nothing = request(&[]);
    nothing.expect(&[
        ("watch", "None"),
        ("wiretap", "None None"),
        ("python", "Ok(None)"),
        ("python_malloc", "false"),
    ]);
    let found = request(&[
        ("HEAPPROF_WATCH", "/watch"),
        ("HEAPPROF_WIRETAP", "127.0.0.1:9"),
        ("HEAPPROF_WIRETAP_KEY_FILE", "/key"),
        ("HEAPPROF_PYTHON_OBJECTS", "yes"),
        ("PYTHONMALLOC", "malloc_debug"),
    ]);
    found.expect(&[
        ("watch", "Some(\"/watch\")"),
        ("wiretap", "Some(\"127.0.0.1:9\") Some(\"/key\")"),
        ("python", "Ok(Some(true))"),
        ("python_malloc", "true"),
    ]);
    // Python counts its own objects then.
    let counted = request(&[
        ("PYTHONMALLOCSTATS", "1"),
        ("HEAPPROF_PYTHON_OBJECTS", "yes"),
    ]);
    counted.expect(&[("python", "Ok(Some(false))")]);
}
