//! A process's memory at a moment, in the form that `proc` shows, writes as JSON and reads again.

use heapprof_process::{
    Cgroup, CgroupPressure, MAPPING_KINDS, MemoryBreakdown, MemoryUsage, USAGE_FIELDS,
};
use serde_json::{Map, Value, json};

use super::{group_document, pressure_document};
use crate::measure::time_utc;

/// A process's memory at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSnapshot {
    /// The pid of the process.
    pub pid: u32,
    /// The name that the kernel has for the process.
    pub name: String,
    /// The command line of the process, if it has one.
    pub title: Option<String>,
    /// The time when the process began, in clock ticks since the machine's boot, and the id of that
    /// boot.
    pub began: (u64, String),
    /// The time of the moment, in nanoseconds since 1970.
    pub time_nanos: i64,
    /// The parts of the process's memory, if this user may read them.
    pub parts: Option<ProcessParts>,
    /// The counters of the kernel, by the kernel's own names for them.
    pub counters: Vec<(String, Option<u64>)>,
    /// The control group of the process, if its files are on this machine.
    pub cgroup: Option<Cgroup>,
    /// How long the processes of the machine wait for memory, if that is known.
    pub pressure: Option<CgroupPressure>,
    /// Notes about facts that are missing, with the reasons.
    pub notes: Vec<String>,
}

/// The parts of a process's memory. The parts and the rounding add up to the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessParts {
    /// The parts by kind, in the order of reports.
    pub kinds: Vec<ProcessRow>,
    /// The parts by mapping, the largest first.
    pub mappings: Vec<ProcessRow>,
    /// The amount by which the kernel's sums of proportional parts exceed the sums over the
    /// mappings.
    pub rounding: MemoryUsage,
    /// The whole memory of the process.
    pub total: MemoryUsage,
    /// Whether the total comes from the kernel's file `smaps_rollup`.
    pub is_as_kernel_sums: bool,
}

/// A part of a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRow {
    /// The kind of memory.
    pub kind: String,
    /// The name of the mapping. For a row about a kind, it is the name of the kind.
    pub name: String,
    /// The number of mappings that the part consists of.
    pub mappings: usize,
    /// The amounts of memory.
    pub usage: MemoryUsage,
}

impl ProcessRow {
    /// Returns the sum of these rows.
    pub(super) fn sum(rows: &[Self]) -> Self {
        let mut sum = Self::default();
        for row in rows {
            sum.mappings += row.mappings;
            sum.usage.add(&row.usage);
        }
        sum
    }
}

impl From<&MemoryBreakdown> for ProcessParts {
    fn from(explained: &MemoryBreakdown) -> Self {
        let rows = |parts: &[(heapprof_process::MappingKind, heapprof_process::MemoryPart)]| {
            let row =
                |(kind, part): &(heapprof_process::MappingKind, heapprof_process::MemoryPart)| {
                    ProcessRow {
                        kind: kind.name().to_string(),
                        name: part.name.clone(),
                        mappings: part.mappings,
                        usage: part.usage,
                    }
                };
            parts.iter().map(row).collect()
        };
        Self {
            kinds: rows(&explained.kinds),
            mappings: rows(&explained.mappings),
            rounding: explained.rounding,
            total: explained.total,
            is_as_kernel_sums: explained.is_as_kernel_sums,
        }
    }
}

impl ProcessSnapshot {
    /// Returns the process in a few words.
    pub(super) fn description(&self) -> String {
        match &self.title {
            Some(title) => format!("{} {}", self.pid, short_title(title)),
            None => format!("{} {}", self.pid, self.name),
        }
    }

    /// Returns the kernel's counter with this name.
    pub(super) fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(own, _)| own == name)?.1
    }

    /// Returns the snapshot as JSON.
    pub(super) fn document(&self) -> Value {
        let counters: Map<String, Value> = self
            .counters
            .iter()
            .map(|(name, bytes)| (name.clone(), json!(bytes)))
            .collect();
        let mut document = json!({
            "pid": self.pid, "name": self.name, "command": self.title,
            "began_ticks": self.began.0, "boot_id": self.began.1,
            "time_nanos": self.time_nanos, "time": time_utc(self.time_nanos),
            "counters": counters,
            "cgroup": self.cgroup.as_ref().map(group_document),
            "pressure": self.pressure.as_ref().map(pressure_document),
            "missing": self.notes,
        });
        if let Some(seen) = &self.parts {
            document["total"] = Value::Object(usage(&seen.total));
            document["as_smaps_rollup"] = json!(seen.is_as_kernel_sums);
            document["rounding"] = Value::Object(usage(&seen.rounding));
            document["kinds"] = seen.kinds.iter().map(row).collect();
            document["mappings"] = seen.mappings.iter().map(row).collect();
        }
        document
    }

    /// Parses the JSON that `document` makes. The control group and the pressure are not read.
    ///
    /// # Errors
    /// The text is no snapshot; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let number = |value: &Value, name: &str| {
            let found = value.get(name).and_then(Value::as_u64);
            found.ok_or_else(|| format!("it has no number {name:?}"))
        };
        let text = |value: &Value, name: &str| {
            let found = value.get(name).and_then(Value::as_str);
            found
                .map(str::to_string)
                .ok_or_else(|| format!("it has no string {name:?}"))
        };
        let usage = |value: &Value| {
            let mut usage = MemoryUsage::default();
            for field in USAGE_FIELDS {
                (field.set)(&mut usage, number(value, field.name)?);
            }
            Ok::<_, String>(usage)
        };
        let rows = |name: &str| {
            let rows = document.get(name).and_then(Value::as_array);
            let rows = rows.ok_or_else(|| format!("it has no list {name:?}"))?;
            let row = |value: &Value| {
                Ok(ProcessRow {
                    kind: text(value, "kind")?,
                    name: text(value, "name")?,
                    mappings: number(value, "mappings")? as usize,
                    usage: usage(value)?,
                })
            };
            rows.iter().map(row).collect::<Result<Vec<_>, String>>()
        };
        let seen = match document.get("total") {
            Some(total) => Some(ProcessParts {
                kinds: rows("kinds")?,
                mappings: rows("mappings")?,
                rounding: usage(document.get("rounding").ok_or("it has no \"rounding\"")?)?,
                total: usage(total)?,
                is_as_kernel_sums: document.get("as_smaps_rollup") == Some(&Value::Bool(true)),
            }),
            None => None,
        };
        let counters = document.get("counters").and_then(Value::as_object);
        let counters = counters.ok_or("it has no \"counters\"")?;
        Ok(Self {
            pid: u32::try_from(number(&document, "pid")?).map_err(|error| error.to_string())?,
            name: text(&document, "name")?,
            title: text(&document, "command").ok(),
            began: (
                number(&document, "began_ticks")?,
                text(&document, "boot_id")?,
            ),
            time_nanos: i64::try_from(number(&document, "time_nanos")?)
                .map_err(|error| error.to_string())?,
            parts: seen,
            counters: counters
                .iter()
                .map(|(name, bytes)| (name.clone(), bytes.as_u64()))
                .collect(),
            ..Self::default()
        })
    }
}

fn row(row: &ProcessRow) -> Value {
    let mut object = Map::new();
    object.insert("kind".into(), json!(row.kind));
    object.insert("name".into(), json!(row.name));
    object.insert("mappings".into(), json!(row.mappings));
    object.extend(usage(&row.usage));
    Value::Object(object)
}

fn usage(usage: &MemoryUsage) -> Map<String, Value> {
    let fields = USAGE_FIELDS.iter();
    fields
        .map(|field| (field.name.to_string(), json!((field.get)(usage))))
        .collect()
}

/// Returns the first characters of a command line.
fn short_title(title: &str) -> String {
    const MAX_TITLE_CHARS: usize = 60;
    match title.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => format!("{}…", &title[..end]),
        None => title.to_string(),
    }
}

/// Returns the position of a kind of memory in reports.
pub(super) fn kind_order(kind: &str) -> usize {
    let place = MAPPING_KINDS.iter().position(|(_, name, _)| *name == kind);
    place.unwrap_or(MAPPING_KINDS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let part = |name: &str, rss: u64| ProcessRow {
            kind: "heap".to_string(),
            name: name.to_string(),
            mappings: 2,
            usage: MemoryUsage {
                rss,
                private_dirty: rss,
                ..MemoryUsage::default()
            },
        };
        let snapshot = ProcessSnapshot {
            pid: 7,
            name: "a b".to_string(),
            title: Some("a b -c".to_string()),
            began: (5, "id".to_string()),
            time_nanos: 12,
            parts: Some(ProcessParts {
                kinds: vec![part("heap", 9)],
                mappings: vec![part("[heap]", 4), part("x", 5)],
                rounding: MemoryUsage {
                    pss: 1,
                    ..MemoryUsage::default()
                },
                total: part("", 9).usage,
                is_as_kernel_sums: true,
            }),
            counters: vec![("VmRSS".to_string(), Some(9)), ("VmPin".to_string(), None)],
            ..ProcessSnapshot::default()
        };
        let text = snapshot.document().to_string();
        assert_eq!(ProcessSnapshot::parse(&text).unwrap(), snapshot);
        for (wrong, why) in [
            ("", "EOF"),
            ("[]", "counters"),
            ("{\"counters\": {}}", "pid"),
            (&text.replace("\"rss\":4", "\"rss\":-4"), "rss"),
            (&text.replace("\"kinds\"", "\"kind\""), "kinds"),
        ] {
            let found = ProcessSnapshot::parse(wrong).unwrap_err();
            assert!(found.contains(why), "{wrong}: {found}");
        }
    }
}
