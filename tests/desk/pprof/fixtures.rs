//! Small profiles like those with which pprof's own reports are tested: recursion and inlined
//! frames, labels with and without units, dropped frames, delays, frames without symbols, long
//! names.
//!
//! Functions are numbered by their place in the program: `step2001` is inlined into `step2000`.

use heapprof_profile::{
    Function, FunctionIndex, Label, Line, LocationIndex, Mapping, MappingIndex, Profile,
    ProfileBuilder,
};

/// A fixture that is being built.
struct Maker {
    b: ProfileBuilder,
    mapping: MappingIndex,
    /// The prefix of linker names. With `step`, linker names equal names.
    linker: &'static str,
    /// Whether functions have first lines. Without first lines, functions of one file are the same
    /// when their names are dropped.
    first_lines: bool,
}

impl Maker {
    fn new(types: &[(&str, &str)], binary: &str) -> Self {
        let mut b = ProfileBuilder::new(types);
        let filename = b.text(binary);
        let build_id = b.text("");
        let mapping = b.mapping(Mapping {
            id: 0,
            memory_start: 0x1000,
            memory_limit: 0x4000,
            file_offset: 0,
            filename,
            build_id,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        Self {
            b,
            mapping,
            linker: "step",
            first_lines: true,
        }
    }

    fn function(&mut self, number: u32) -> FunctionIndex {
        let system_name = self.b.text(&format!("{}{number}", self.linker));
        let name = self.b.text(&format!("step{number}"));
        let filename = self.b.text(&format!("src/part{}.cc", number / 1000 * 1000));
        self.b.function(Function {
            id: 0,
            name,
            system_name,
            filename,
            start_line: i64::from(self.first_lines) * i64::from(number % 1000),
        })
    }

    /// Adds a location at an address: functions and lines, the innermost inlined one first.
    fn place(&mut self, address: u64, lines: &[(u32, i64)]) -> LocationIndex {
        let lines: Vec<Line> = lines
            .iter()
            .map(|&(number, line)| Line {
                function: self.function(number),
                line,
                column: 0,
            })
            .collect();
        self.b.location(Some(self.mapping), address, false, &lines)
    }

    /// Adds five locations: `step1000`; `step2001` in `step2000`; three of `step3000`, with two,
    /// one and another one inlined.
    fn places(&mut self) -> [LocationIndex; 5] {
        [
            self.place(0x1000, &[(1000, 1)]),
            self.place(0x2000, &[(2001, 9), (2000, 4)]),
            self.place(0x3000, &[(3002, 2), (3001, 5), (3000, 6)]),
            self.place(0x3001, &[(3001, 8), (3000, 9)]),
            self.place(0x3002, &[(3002, 5), (3000, 9)]),
        ]
    }

    fn sample(&mut self, stack: &[LocationIndex], values: &[i64], labels: Vec<Label>) {
        let mut labels = labels;
        let set = self.b.label_set(&mut labels);
        self.b
            .profile
            .samples
            .push(stack.iter().copied(), values, set);
    }

    fn text(&mut self, key: &str, text: &str) -> Label {
        self.b.text_label(key, text)
    }

    fn number(&mut self, key: &str, number: i64, unit: &str) -> Label {
        self.b.number_label(key, number, unit)
    }

    fn finish(self) -> Profile {
        self.b.finish()
    }
}

/// Returns CPU time with text labels. Linker names differ from names if `linker` is `mangled`.
fn cpu_named(linker: &'static str) -> Profile {
    let mut m = Maker::new(
        &[("samples", "count"), ("cpu", "milliseconds")],
        "/usr/bin/shop",
    );
    m.linker = linker;
    let [l1, l2, l3, l4, l5] = m.places();
    let labels = |m: &mut Maker, pairs: &[(&str, &str)]| -> Vec<Label> {
        pairs.iter().map(|(k, v)| m.text(k, v)).collect()
    };
    let set = labels(&mut m, &[("stage", "load"), ("user", "ann")]);
    m.sample(&[l1, l2, l3], &[1200, 1200], set);
    let set = labels(&mut m, &[("stage", "load"), ("host", "a1")]);
    m.sample(&[l4, l1, l2, l3], &[150, 150], set);
    let set = labels(&mut m, &[("stage", "save"), ("host", "a2")]);
    m.sample(&[l5, l2, l3], &[30, 30], set);
    let set = labels(&mut m, &[("stage", "save"), ("user", "bob")]);
    m.sample(&[l5, l1], &[20, 20], set);
    m.sample(&[l2, l1, l4], &[7, 7], Vec::new());
    m.b.profile.period_type = Some(m.b.value_type("cpu", "milliseconds"));
    m.b.profile.period = 1;
    m.b.profile.duration_nanos = 10_000_000_000;
    m.finish()
}

/// Returns CPU time as in a profile that pprof has demangled.
fn cpu() -> Profile {
    cpu_named("step")
}

/// Returns CPU time with linker names that are not demangled.
fn cpu_mangled() -> Profile {
    let mut profile = cpu_named("mangled");
    for f in 0..profile.function.len() {
        profile.function[f].name = profile.function[f].system_name;
    }
    profile
}

/// Returns few samples with recursion and a location without symbols.
fn cpu_small() -> Profile {
    let mut m = Maker::new(
        &[("samples", "count"), ("cpu", "milliseconds")],
        "/usr/bin/shop",
    );
    let [l1, l2, l3, l4, l5] = m.places();
    let bare = m.place(0x3800, &[]);
    m.sample(&[l1, l2, l3], &[9, 9], Vec::new());
    m.sample(&[l4, l5, bare], &[3, 3], Vec::new());
    m.sample(&[l2, l1, l2, l3, l1], &[2, 2], Vec::new());
    m.finish()
}

/// Returns frames without symbols, in a mapping and in none.
fn unknown() -> Profile {
    let mut m = Maker::new(&[("samples", "count"), ("cpu", "milliseconds")], "");
    let [l1, l2, ..] = m.places();
    let bare = m.place(0x1800, &[]);
    let nowhere = m.b.location(None, 0x7f00, false, &[]);
    m.sample(&[l1, l2, bare], &[40, 40], Vec::new());
    m.sample(&[bare, nowhere], &[8, 8], Vec::new());
    m.sample(&[nowhere, l2], &[5, 5], Vec::new());
    m.finish()
}

const INUSE: [(&str, &str); 2] = [("inuse_objects", "count"), ("inuse_space", "bytes")];

/// Returns a heap whose allocator frames are dropped, with a comment.
fn heap_of(types: &[(&str, &str)]) -> Profile {
    let mut m = Maker::new(types, "/usr/bin/shop");
    let [l1, l2, l3, l4, l5] = m.places();
    let sizes = [400 << 10, 1 << 20, 2 << 20, 30 << 10];
    let stacks: [&[LocationIndex]; 4] = [&[l1, l2, l3], &[l4, l5, l2], &[l5, l1], &[l3, l2, l1]];
    for (i, (stack, size)) in stacks.into_iter().zip(sizes).enumerate() {
        let label = m.number("bytes", size, "bytes");
        let count = [10, 20, 40, 3][i];
        m.sample(stack, &[count, count * size], vec![label]);
    }
    m.b.profile.period_type = Some(m.b.value_type("space", "bytes"));
    m.b.profile.period = 524_288;
    m.b.profile.drop_frames = m.b.text("step(2001|3001)");
    let comment = m.b.text("comment of the heap");
    m.b.profile.comment.push(comment);
    m.finish()
}

fn heap() -> Profile {
    heap_of(&INUSE)
}

fn heap_alloc() -> Profile {
    heap_of(&[("alloc_objects", "count"), ("alloc_space", "bytes")])
}

/// Returns a heap with labels of few sizes, so that they are tags of a graph's nodes.
fn heap_sizetags() -> Profile {
    let mut m = Maker::new(&INUSE, "/usr/bin/shop");
    let [l1, l2, l3, l4, l5] = m.places();
    let stacks: [&[LocationIndex]; 4] = [&[l1, l2, l3], &[l1, l5], &[l4, l2], &[l5, l3]];
    for (i, size) in [16, 1 << 10, 64 << 10, 1 << 20, 3 << 20, 16, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let labels = vec![m.number("bytes", size, "bytes")];
        m.sample(stacks[i % stacks.len()], &[2, 2 * size], labels);
    }
    m.finish()
}

/// Returns a heap with labels of several kinds on one sample.
fn heap_tags() -> Profile {
    let mut m = Maker::new(&INUSE, "/usr/bin/shop");
    let [l1, l2, l3, l4, l5] = m.places();
    let stacks: [&[LocationIndex]; 4] = [&[l1, l2, l3], &[l4, l2], &[l5, l1], &[l3, l3]];
    for (i, stack) in stacks.into_iter().enumerate() {
        let size = [512, 1024, 3 << 20, 100][i];
        let mut labels = vec![m.number("bytes", size, "bytes"), m.text("kind", "node")];
        if i % 2 == 0 {
            labels.push(m.text("kind", "edge"));
            labels.push(m.number("depth", i as i64 + 1, ""));
        }
        m.sample(stack, &[1, size], labels);
    }
    m.finish()
}

/// Returns a heap with a second size: the requested one.
fn heap_request() -> Profile {
    let mut m = Maker::new(&INUSE, "/usr/bin/shop");
    let [l1, l2, l3, l4, l5] = m.places();
    let stacks: [&[LocationIndex]; 4] = [&[l1, l2, l3], &[l4, l5, l2], &[l5, l1], &[l3, l2]];
    for (i, stack) in stacks.into_iter().enumerate() {
        let size = [400 << 10, 1 << 20, 2 << 20, 30 << 10][i];
        let labels = vec![
            m.number("bytes", size, "bytes"),
            m.number("request", size / 2, ""),
        ];
        m.sample(stack, &[1 + i as i64, size], labels);
    }
    m.finish()
}

/// Returns delays, and how often they occurred.
fn contention() -> Profile {
    let mut m = Maker::new(
        &[("contentions", "count"), ("delay", "nanoseconds")],
        "/usr/bin/shop",
    );
    m.first_lines = false;
    let [l1, l2, l3, l4, l5] = m.places();
    m.sample(&[l1, l2, l3], &[1, 10_240_000], Vec::new());
    m.sample(&[l4, l2, l3], &[4, 40_960_000], Vec::new());
    m.sample(&[l5, l1], &[2, 1_536_000], Vec::new());
    m.sample(&[l3, l1], &[9, 500], Vec::new());
    // Only these two stacks lack `step3002`, so they stay when it is ignored.
    m.sample(&[l4, l2, l1], &[3, 7_680_000], Vec::new());
    m.sample(&[l1, l4], &[1, 2_560_000], Vec::new());
    m.finish()
}

/// Returns names that graphs shorten.
fn long_names() -> Profile {
    let mut b = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    let root = "path/to/module/v2/pkg/deep.(*Tree).insertWithRebalancing";
    let leaf = "ns::inner::(anonymous namespace)::Container<std::pair<int, \
                char>>::allocate(unsigned long)";
    b.add_folded(&format!("{root}@a.go:1;{leaf}@b.cc:2"), &[4096]);
    b.add_folded(
        &format!("{root}@a.go:1;java.bar.foo.FooBar.run(Runnable)@f.java:3"),
        &[1024],
    );
    b.finish()
}

/// Returns all fixtures with their names.
pub(super) fn all() -> Vec<(&'static str, Profile)> {
    vec![
        ("contention", contention()),
        ("cpu", cpu()),
        ("cpu-mangled", cpu_mangled()),
        ("cpu-small", cpu_small()),
        ("heap", heap()),
        ("heap-alloc", heap_alloc()),
        ("heap-request", heap_request()),
        ("heap-sizetags", heap_sizetags()),
        ("heap-tags", heap_tags()),
        ("long-names", long_names()),
        ("unknown", unknown()),
    ]
}
