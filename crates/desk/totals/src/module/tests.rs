//! Names of functions with their files, and the modules that they are in.

use heapprof_profile::{FrameText, ProfileBuilder};

use super::*;

/// Functions and their modules. Each line has a name, a linker name, a file, a mapped file and
/// the module, then `library` if the module is a library.
const MODULE_TABLE: &str = "\
    main | | | /home/me/app => app
    read | | | /usr/lib/x86_64-linux-gnu/libz.so.1 => libz.so.1 library
    app+0x12 | | | /home/me/app => app
    libz.so.1+0x12 | | | /lib/libz.so.1 => libz.so.1 library
    shop::Order::Order(shop::Order&&) | _ZN4shop | /src/a.cc | /home/me/app => shop
    std::vector<int>::push_back(int&&) | _ZNSt6 | /usr/include/c++/12/vector | /home/me/app => \
                     std library
    void std::sort<int*>(int*, int*) | _ZSt4 | | /home/me/app => std library
    main::{lambda(int)#1}::operator()(int) const | _ZZ4main | a.cc | /home/me/app => main
    parse(int) | _Z5parsei | a.cc | /home/me/app => app
    QString::append(QChar) | _ZN7QString | | /usr/lib/libQt5Core.so.5 => QString library
    shop::run | _ZN4shop3run17h0123456789abcdefE | src/main.rs | /home/me/app => shop
    <shop::Order as core::clone::Clone>::clone | _RNv | src/main.rs | /home/me/app => shop
    <T as core::convert::Into<U>>::into | _RNv | /rustc/1/library/core/src/convert.rs | \
                     /home/me/app => core library
    alloc::vec::Vec<T,A>::push | _RNv | | /home/me/app => alloc library
    serde_json::from_str | _RNv | /home/me/.cargo/registry/src/x/serde_json/src/de.rs | \
                     /home/me/app => serde_json library
    hashbrown::raw::RawTableInner::new | _RNv | /rust/deps/hashbrown-0.16.1/src/raw/mod.rs | \
                     /home/me/app => hashbrown library
    main.load | | /home/me/load.go | /home/me/app => main
    encoding/json.(*Decoder).Decode | | /usr/local/go/src/encoding/json/stream.go | \
                     /home/me/app => encoding/json library
    github.com/me/app/store.Put | | /home/me/store/put.go | /home/me/app => \
                     github.com/me/app/store
    github.com/other/lib.F[github.com/me/app.T] | | \
                     /home/me/go/pkg/mod/github.com/other/lib/f.go | /home/me/app => \
                     github.com/other/lib library
    app/store.Put | | /home/me/src/app/store/put.go | /home/me/app => app/store
    app/store.Put | | app/store/put.go | /home/me/app => app/store
    github.com/x/y.F | | github.com/x/y@v1.2.3/f.go | /home/me/app => github.com/x/y library
    runtime.systemstack | | /opt/go/src/runtime/asm_amd64.s | /home/me/app => runtime library
    void shop::handle_everything<int>(int) | _ZN4shop17handle_everythingIiEEvT_ | a.cc | \
                     /home/me/app => shop
    _find_and_load | | <frozen importlib._bootstrap> | /usr/bin/python3 => <frozen \
                     importlib._bootstrap> library
    dot | | <__array_function__ internals> | none => <__array_function__ internals> library
    load | | /home/me/tool/load.py | /usr/bin/python3 => load
    decode | | /opt/py/lib/python3.11/json/decoder.py | /usr/bin/python3 => decoder library
    get | | /home/me/venv/lib/python3.11/site-packages/requests/api.py | /usr/bin/python3 => \
                     api library
    My::Order::new | | lib/My/Order.pm | /usr/bin/perl => My::Order
    JSON::PP::decode | | /usr/share/perl/5.36.0/JSON/PP.pm | /usr/bin/perl => JSON::PP library
";

#[test]
fn each_language_s_modules() {
    for line in MODULE_TABLE
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (asked, expected) = line.split_once(" => ").unwrap();
        let [name, linker, file, mapped]: [&str; 4] = asked
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        let mut b = ProfileBuilder::new(&[("space", "bytes")]);
        b.frame(&[FrameText {
            name,
            ..FrameText::default()
        }]);
        let program = if mapped.contains("/lib") {
            "/home/me/app"
        } else {
            mapped
        };
        for path in [program, mapped] {
            let filename = b.text(path);
            b.profile.mapping.push(Mapping {
                filename,
                ..MAPPING
            });
        }
        let (system_name, filename) = (b.text(linker), b.text(file));
        let function = Function {
            system_name,
            filename,
            ..b.profile.function[0]
        };
        let mapping = (mapped != "none").then_some(&b.profile.mapping[1]);
        let found = ModuleResolver::new(&b.profile).module_of(Some(&function), mapping);
        let text = match found.is_library {
            true => format!("{} library", found.name),
            false => found.name,
        };
        assert_eq!(text, expected, "{asked}");
    }
}

/// Checks that a function that is both in the program and in a library belongs to the program,
/// whichever comes first.
#[test]
fn what_is_in_several_places_is_a_library_s_if_all_are() {
    for [first, second] in [
        ["/usr/lib/liba.so", "/home/me/app"],
        ["/home/me/app", "/usr/lib/liba.so"],
    ] {
        let mut b = ProfileBuilder::new(&[("space", "bytes")]);
        b.add_folded("main;both", &[1]);
        b.add_folded("other;both", &[1]);
        b.add_folded("main;library", &[1]);
        let mut profile = b.finish();
        for path in [first, second] {
            let filename = profile.strings.intern(path);
            profile.mapping.push(Mapping {
                filename,
                ..MAPPING
            });
        }
        let named = |profile: &Profile, name: &str| {
            let mut all = profile.function.iter();
            all.position(|f| profile.text(f.name) == name).unwrap()
        };
        // Before this step, `main` and `both` are each at one place.
        let (main, both, library) = (
            named(&profile, "main"),
            named(&profile, "both"),
            named(&profile, "library"),
        );
        let of_library = usize::from(first.starts_with("/home"));
        for location in 0..profile.location.len() {
            let lines = profile.location[location].line.clone();
            let function = profile.line[lines.start as usize].function.index();
            let at = if function == library {
                of_library
            } else {
                1 - of_library
            };
            profile.location[location].mapping = Some(MappingIndex(at as u32));
        }
        let mut again = profile.location[profile.location.len() - 1].clone();
        let lines = profile.location.iter().map(|l| l.line.clone());
        let of_both = lines
            .clone()
            .find(|l| profile.line[l.start as usize].function.index() == both);
        again.line = of_both.unwrap();
        again.mapping = Some(MappingIndex(of_library as u32));
        profile.location.push(again);
        let frames = FrameTable::new(&profile, false);
        let strings = profile.strings.clone();
        let mut table = EntityTable::new(crate::query::Granularity::Functions, strings);
        let mapped = table.add(&profile, &frames);
        let modules = modules_of_functions([(&profile, &frames, &mapped)].into_iter(), &table);
        let of = |function: usize| modules[mapped.function[function] as usize].clone();
        let module = |name: &str, is_library| FunctionModule {
            name: name.to_string(),
            is_library,
        };
        assert_eq!(of(main), module("app", false));
        assert_eq!(of(both), module("app", false));
        assert_eq!(of(library), module("liba.so", true));
    }
}

/// Checks that two functions with one name each have the module of their own mapping.
#[test]
fn functions_of_one_name_are_of_modules_of_their_own() {
    let mut b = ProfileBuilder::new(&[("space", "bytes")]);
    for file in ["/src/app.c", "/src/zlib.c"] {
        b.frame(&[FrameText {
            name: "init",
            filename: file,
            ..FrameText::default()
        }]);
    }
    let mut profile = b.finish();
    for (at, path) in ["/home/me/app", "/usr/lib/libz.so.1"]
        .into_iter()
        .enumerate()
    {
        let filename = profile.strings.intern(path);
        profile.mapping.push(Mapping {
            filename,
            ..MAPPING
        });
        profile.location[at].mapping = Some(MappingIndex(at as u32));
    }
    let frames = FrameTable::new(&profile, false);
    let mut table = EntityTable::new(
        crate::query::Granularity::Functions,
        profile.strings.clone(),
    );
    let mapped = table.add(&profile, &frames);
    let modules = modules_of_functions([(&profile, &frames, &mapped)].into_iter(), &table);
    let of: Vec<bool> = (0..2)
        .map(|f| modules[mapped.function[f] as usize].is_library)
        .collect();
    assert_eq!(of, [false, true]);
}

const MAPPING: Mapping = Mapping {
    id: 0,
    memory_start: 0,
    memory_limit: 0,
    file_offset: 0,
    filename: heapprof_profile::StringId::EMPTY,
    build_id: heapprof_profile::StringId::EMPTY,
    has_functions: false,
    has_filenames: false,
    has_line_numbers: false,
    has_inline_frames: false,
};
