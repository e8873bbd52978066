//! Checks the Firefox Profiler's JSON against the types of format version 60: tables, references
//! between them, sums per stack.

use std::collections::BTreeMap;

use heapprof_formats::write_firefox;
use serde_json::Value;

use crate::writers::{factor, profiles, sums, type_names};
use heapprof_tests::harness::name;

/// Checks a table of the format: its columns have the declared length, and each number is below the
/// length of the table to which it refers.
fn table<'j>(
    json: &'j Value,
    columns: &[(&str, Option<u64>)],
) -> &'j serde_json::Map<String, Value> {
    let table = json.as_object().unwrap();
    let length = table["length"].as_u64().unwrap();
    assert_eq!(table.len(), columns.len() + 1, "{:?}", table.keys());
    for (column, below) in columns {
        let cells = table[*column].as_array().unwrap();
        assert_eq!(cells.len() as u64, length, "{column}");
        for cell in cells {
            match (cell, below) {
                (Value::Null | Value::Bool(_), _) => {}
                (Value::Number(_), None) => {}
                (Value::Number(n), Some(_)) if n.as_i64() == Some(-1) => {}
                (Value::Number(n), Some(below)) => {
                    assert!(n.as_u64().unwrap() < *below, "{column}: {n}")
                }
                other => panic!("{column}: {other:?}"),
            }
        }
    }
    table
}

fn numbers(column: &Value) -> Vec<Option<usize>> {
    column
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| cell.as_u64().map(|n| n as usize))
        .collect()
}

#[test]
fn firefox_profiles_are_what_its_types_say() {
    for (file, profile) in profiles() {
        let mut bytes = Vec::new();
        write_firefox(&profile, "a profile", &mut bytes).unwrap();
        let json: Value = serde_json::from_slice(&bytes).unwrap();
        let keys: Vec<&str> = json
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys,
            ["meta", "libs", "pages", "counters", "shared", "threads"]
        );
        let meta = &json["meta"];
        assert_eq!(
            (
                meta["preprocessedProfileVersion"].as_u64(),
                meta["version"].as_u64()
            ),
            (Some(60), Some(32))
        );
        for key in [
            "interval",
            "startTime",
            "processType",
            "product",
            "stackwalk",
            "markerSchema",
            "categories",
            "symbolicated",
        ] {
            assert!(!meta[key].is_null(), "{key}");
        }
        assert_eq!(meta["categories"][0]["color"], "grey");
        let shared = &json["shared"];
        let length = |name: &str| shared[name]["length"].as_u64().unwrap();
        let texts = shared["stringArray"].as_array().unwrap();
        assert!(texts.iter().all(Value::is_string));
        let strings = Some(texts.len() as u64);
        let libs = json["libs"].as_array().unwrap().len() as u64;
        let stacks = table(
            &shared["stackTable"],
            &[
                ("frame", Some(length("frameTable"))),
                ("prefix", Some(length("stackTable"))),
            ],
        );
        let frames = table(
            &shared["frameTable"],
            &[
                ("address", Some(0)),
                ("inlineDepth", None),
                ("category", Some(1)),
                ("subcategory", Some(1)),
                ("func", Some(length("funcTable"))),
                ("nativeSymbol", Some(0)),
                ("innerWindowID", Some(0)),
                ("line", None),
                ("column", None),
            ],
        );
        let functions = table(
            &shared["funcTable"],
            &[
                ("name", strings),
                ("isJS", None),
                ("relevantForJS", None),
                ("resource", Some(length("resourceTable"))),
                ("source", Some(length("sources"))),
                ("lineNumber", None),
                ("columnNumber", None),
            ],
        );
        table(
            &shared["resourceTable"],
            &[
                ("lib", Some(libs)),
                ("name", strings),
                ("host", strings),
                ("type", Some(6)),
            ],
        );
        table(
            &shared["nativeSymbols"],
            &[
                ("libIndex", Some(0)),
                ("address", None),
                ("name", strings),
                ("functionSize", None),
            ],
        );
        table(&shared["sources"], &[("uuid", None), ("filename", strings)]);
        // The prefix of a stack comes before the stack.
        let (frame_of, prefix) = (numbers(&stacks["frame"]), numbers(&stacks["prefix"]));
        assert!(
            prefix
                .iter()
                .enumerate()
                .all(|(i, prefix)| prefix.is_none_or(|p| p < i))
        );
        let (function_of, name_of) = (numbers(&frames["func"]), numbers(&functions["name"]));
        let threads = json["threads"].as_array().unwrap();
        assert_eq!(threads.len(), profile.sample_type.len());
        for (at, thread) in threads.iter().enumerate() {
            let (kind, unit) = &type_names(&profile)[at];
            assert_eq!(thread["name"], format!("{kind} ({unit})"));
            assert_eq!(
                (thread["pid"].as_str(), thread["tid"].as_u64()),
                (Some("0"), Some(at as u64))
            );
            let markers = ["data", "name", "startTime", "endTime", "phase", "category"]
                .map(|column| (column, Some(0)));
            table(&thread["markers"], &markers);
            let mut samples = thread["samples"].clone();
            let weight_type = samples
                .as_object_mut()
                .unwrap()
                .remove("weightType")
                .unwrap();
            let samples = table(
                &samples,
                &[
                    ("stack", Some(length("stackTable"))),
                    ("time", None),
                    ("weight", None),
                ],
            )
            .clone();
            let mut found: BTreeMap<Vec<String>, i64> = BTreeMap::new();
            for (stack, weight) in numbers(&samples["stack"])
                .into_iter()
                .zip(samples["weight"].as_array().unwrap())
            {
                let mut names = Vec::new();
                let mut next = stack;
                while let Some(stack) = next {
                    let function = function_of[frame_of[stack].unwrap()].unwrap();
                    names.push(
                        texts[name_of[function].unwrap()]
                            .as_str()
                            .unwrap()
                            .to_string(),
                    );
                    next = prefix[stack];
                }
                names.reverse();
                let weight = match weight_type.as_str().unwrap() {
                    // These are milliseconds, exact to the nanosecond.
                    "tracing-ms" => (weight.as_f64().unwrap() * 1e6).round() as i64,
                    "bytes" | "samples" => weight.as_i64().unwrap(),
                    other => panic!("{other}"),
                };
                *found.entry(names).or_insert(0) += weight;
            }
            found.retain(|_, sum| *sum != 0);
            let expected: BTreeMap<_, _> = sums(&profile, at)
                .into_iter()
                .map(|(s, v)| (s, v * factor(unit)))
                .collect();
            assert_eq!(found, expected, "{}: {kind}", name(&file));
        }
    }
}
