//! Checks short names, also of texts that are not names.

use super::*;

#[test]
fn names_as_people_say_them() {
    let table = [
        ("malloc", 60, "malloc"),
        (
            "shop::Order::Order(shop::Order&&)",
            60,
            "shop::Order::Order",
        ),
        ("void f<int>(int)", 60, "f<int>"),
        ("main.(*T).Method", 60, "main.(*T).Method"),
        ("main::(eval)", 60, "main::(eval)"),
        ("a::→b<int>()", 60, "a::→b<int>"),
        ("m::e\u{301}t<int>()", 60, "m::e\u{301}t<int>"),
        ("shop::operator_t shop::f<int>()", 60, "shop::f<int>"),
        (
            "std::pair<int, std::hash<int> >::pair()",
            60,
            "std::pair<int, std::hash<int>>::pair",
        ),
        (
            "std::map<K, V, std::less<void> >::at(K)",
            60,
            "std::map<K, V, std::less<void>>::at",
        ),
        (
            "std::set<K, std::less<K>, std::allocator<K> >::at(K)",
            60,
            "std::set<K>::at",
        ),
        ("<module>", 60, "<module>"),
        ("import <frozen site>", 60, "import <frozen site>"),
        (
            "go/ast.walkList[go.shape.interface { End() go/token.Pos }]",
            60,
            "go/ast.walkList[go.shape.interface { End() go/token.Pos }]",
        ),
        ("<script>alert(1)</script>", 60, "<script>alert(1)</script>"),
        (
            "std::vector<int, std::allocator<int> >::push_back(int&&)",
            60,
            "std::vector<int>::push_back",
        ),
        (
            "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, \
             std::allocator<char> >, int, std::less<std::__cxx11::basic_string<char, \
             std::char_traits<char>, std::allocator<char> > >, std::allocator<std::pair<int \
             const, int> > >::operator[](int&&)",
            60,
            "std::map<std::string, int>::operator[]",
        ),
        (
            "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
            60,
            "std::operator<< <std::char_traits<char>>",
        ),
        (
            "std::function<void (int, char)>::operator()(int, char) const",
            60,
            "std::function<void (int, char)>::operator()",
        ),
        (
            "main::{lambda(int, std::vector<int> const&)#1}::operator()(int) const",
            60,
            "main::{lambda#1}",
        ),
        (
            "a::(anonymous namespace)::walk(int)",
            60,
            "a::(anonymous namespace)::walk",
        ),
        ("T::operator bool() const", 60, "T::operator bool"),
        (
            "A::f(int) const::{lambda()#1}::operator()() const",
            60,
            "A::f::{lambda#1}",
        ),
        (
            "non-virtual thunk to A::f(int)",
            60,
            "non-virtual thunk to A::f",
        ),
        ("f(int) [clone .constprop.0]", 60, "f"),
        (
            "<alloc::vec::Vec<Order, alloc::alloc::Global> as core::ops::drop::Drop>::drop",
            60,
            "<alloc::vec::Vec<Order> as core::ops::drop::Drop>::drop",
        ),
        (
            "core::iter::Iterator::collect::<alloc::vec::Vec<u8>>",
            60,
            "core::iter::Iterator::collect<alloc::vec::Vec<u8>>",
        ),
        ("a::b<c<d<e<f> > > >::g()", 60, "a::b<c<d<e<f>>>>::g"),
        ("a::b<c<d<e<f> > > >::g()", 17, "a::b<c<d<…>>>::g"),
        ("a::b<c<d<e<f> > > >::g()", 12, "a::b<c<…>>::g"),
        ("a_name_that_is_too_long", 12, "a_na…too_long"),
    ];
    for (name, width, short) in table {
        // For the narrow widths, only the width is checked.
        let found = shorten_one(name, width);
        if name.len() <= 40 && width < 20 {
            assert!(found.width() <= width, "{found}");
        } else {
            assert_eq!(found, short, "{name}");
        }
    }
}

#[test]
fn different_names_stay_different() {
    let names = [
        "f(int)",
        "f(long)",
        "g()",
        "std::vector<A>::at(int)",
        "std::vector<B>::at(int)",
    ];
    let short = shorten(&names, |_| 40);
    assert_eq!(
        short,
        [
            "f(int)",
            "f(long)",
            "g",
            "std::vector<A>::at",
            "std::vector<B>::at"
        ]
    );
    let long = ["A", "B"].map(|end| format!("{}{end}{}", "x".repeat(80), "y".repeat(80)));
    let short = shorten(&[&long[0], &long[1]], |_| 30);
    assert_ne!(short[0], short[1]);
}

#[test]
fn whatever_a_name_is_it_is_done_soon() {
    let special = format!("{}::(", "vtable for ".repeat(90_000));
    assert!(shorten_one(&special, 60).width() <= 60);
    for text in [
        "<", ">", "(", "{", ",", "operator", "::", "-", "é", " const::", "<>",
    ] {
        let name = text.repeat(2000);
        assert!(shorten_one(&name, 60).width() <= 60, "{text}");
        let _ = shorten_one(text, 1);
    }
}

/// Checks that whole arguments distinguish instances of one template. They are shortened, and
/// contain no defaults.
#[test]
fn instances_differ_by_whole_arguments() {
    let node = |key: &str, value: &str| {
        format!(
            "std::_Rb_tree_node<std::pair<{key} const, {value}> >* std::_Rb_tree<{key}, \
             std::pair<{key} const, {value}>, std::_Select1st<std::pair<{key} const, {value}> >, \
             std::less<{key}>, std::allocator<std::pair<{key} const, {value}> > \
             >::_M_create_node<{value}>({value}&&)"
        )
    };
    let string = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    let names = [
        node(string, "int"),
        node(string, "Edge*"),
        node("Node*", "int"),
    ];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let short = shorten(&names, |_| 70);
    assert_eq!(
        short,
        [
            "std::_Rb_tree<std::string, …>::_M_create_node<int>",
            "std::_Rb_tree<std::string, …>::_M_create_node<Edge*>",
            "std::_Rb_tree<Node*, …>::_M_create_node<int>",
        ]
    );
}

/// Checks each step of the rule that keeps names apart.
#[test]
fn equal_short_names_are_kept_apart_by_what_differs() {
    let table: &[(usize, &[(&str, &str)])] = &[
        // These are the first argument, and the first argument without room.
        (
            24,
            &[
                (
                    "map<Key, std::deque<int>, my::Order>::at()",
                    "map<Key, …>::at",
                ),
                (
                    "map<Other, std::deque<int>, my::Order>::at()",
                    "map<Other, …>::at",
                ),
            ],
        ),
        (
            40,
            &[
                (
                    "shop::warehouse::storage::Shelf<shop::goods::perishable::Apple>::put(int)",
                    "…storage::Shelf<shop…e::Apple>::put",
                ),
                (
                    "shop::warehouse::storage::Shelf<shop::goods::perishable::Pear>::put(int)",
                    "…storage::Shelf<shop…le::Pear>::put",
                ),
            ],
        ),
        // Some names need two steps, and some only one.
        (
            40,
            &[
                (
                    "std::vector<A>::put(A const&)",
                    "std::vector<A>::put(A const&)",
                ),
                ("std::vector<A>::put(A&&)", "std::vector<A>::put(A&&)"),
                ("std::vector<B>::put(B&&)", "std::vector<B>::put"),
            ],
        ),
        (
            40,
            &[
                ("T::size()", "T::size()"),
                ("T::size() const", "T::size() const"),
            ],
        ),
        (
            40,
            &[
                ("f(int)", "f(int)"),
                ("f(int) [clone .part.0]", "f(int) [clone .part.0]"),
            ],
        ),
        (40, &[("g", "g"), ("g [clone .cold]", "g [clone .cold]")]),
        // The outer function is kept.
        (
            40,
            &[
                (
                    "f(int)::{lambda()#1}::operator()() const",
                    "f(int)::{lambda#1}",
                ),
                (
                    "f(long)::{lambda()#1}::operator()() const",
                    "f(long)::{lambda#1}",
                ),
            ],
        ),
        (
            40,
            &[
                (
                    "shop::billing::handlers::invoice::render_page::{closure#0}::{closure#1}",
                    "…render_page::{closure#0}::{closure#1}",
                ),
                (
                    "shop::billing::handlers::invoice::render_list::{closure#0}::{closure#1}",
                    "…render_list::{closure#0}::{closure#1}",
                ),
            ],
        ),
        (
            34,
            &[
                (
                    "application.handlers.Renderer.first_page.<locals>.<listcomp>",
                    "…first_page.<locals>.<listcomp>",
                ),
                (
                    "application.handlers.Renderer.other_page.<locals>.<listcomp>",
                    "…other_page.<locals>.<listcomp>",
                ),
            ],
        ),
        // Only a later argument differs.
        (
            18,
            &[
                ("put<my::LongKey, float>()", "put<…> [float]"),
                ("put<my::LongKey, double>()", "put<…> [double]"),
            ],
        ),
    ];
    for (width, names) in table {
        let (whole, expected): (Vec<&str>, Vec<&str>) = names.iter().copied().unzip();
        assert_eq!(shorten(&whole, |_| *width), expected);
    }
}

/// Templates that nest deeply are only numbered, because to compare them takes long.
#[test]
fn very_long_names_are_numbered() {
    let mut nested = "int".to_string();
    while nested.len() < 20_000 {
        nested = format!("std::pair<{nested}, {nested}>");
    }
    let names: Vec<String> = (0..10).map(|at| format!("f({nested}){at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let short = shorten(&names, |_| 40);
    let distinct: std::collections::BTreeSet<&String> = short.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{short:?}");
}

/// Law: different names have different short names, equal names have equal ones, and a name whose
/// short name is its own is as short as it is alone.
#[test]
fn whatever_names_are_they_stay_apart() {
    let mut state = 7u64;
    let mut draw = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    const TYPES: [&str; 6] = [
        "int",
        "A",
        "shop::goods::Apple",
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
        "std::vector<A, std::allocator<A> >",
        "std::pair<int const, std::vector<shop::goods::perishable::Pear> >",
    ];
    const SCOPES: [&str; 5] = ["std::", "shop::warehouse::storage::", "a::", "", "f(int)::"];
    const ENDS: [&str; 6] = [
        "",
        " const",
        " [clone .cold]",
        "::{lambda()#1}",
        "::{closure#0}",
        "&&",
    ];
    for width in [24, 30, 44, 60, 120] {
        for _ in 0..60 {
            let mut one = || {
                let (scope, end) = (SCOPES[draw(5)], ENDS[draw(6)]);
                let [first, second, third] = [0; 3].map(|_| TYPES[draw(6)]);
                match draw(4) {
                    0 => format!("{scope}map<{first}, {second}>::at({third}){end}"),
                    1 => format!("{scope}map<{first}>::put<{second}>({third}){end}"),
                    2 => format!("{third} {scope}put<{first}, {second}>({first}){end}"),
                    _ => format!("{scope}handlers.render_page{}.<locals>.<listcomp>", draw(3)),
                }
            };
            let mut names: Vec<String> = (0..12).map(|_| one()).collect();
            names.push(names[0].clone());
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let short = shorten(&names, |_| width);
            let alone: Vec<String> = names.iter().map(|name| shorten_one(name, width)).collect();
            for at in 0..names.len() {
                assert!(short[at].width() <= width, "{width}: {}", short[at]);
                let differ = |other: &usize| names[*other] != names[at];
                let mut others = (0..names.len()).filter(differ);
                let clash = others.clone().find(|&other| short[other] == short[at]);
                assert_eq!(clash.map(|other| names[other]), None, "{}", names[at]);
                let mut equal = (0..names.len()).filter(|&other| names[other] == names[at]);
                assert!(
                    equal.all(|other| short[other] == short[at]),
                    "{}",
                    names[at]
                );
                if others.all(|other| alone[other] != alone[at]) {
                    assert_eq!(short[at], alone[at]);
                }
            }
        }
    }
}

/// Checks that names are found as similar if they may have equal short names. Names with different
/// last words are never similar.
#[test]
fn names_that_may_be_confused_are_found() {
    let all = [
        "store::Catalog::load(int)",
        "store::Catalog::load(char const*, int) const",
        "void store::load<int>()",
        "store::Catalog::unload()",
        "load",
        "main::{lambda(int)#1}::operator()(int) const",
        "main",
    ];
    let found = similar_names(all[..1].iter().copied(), all.iter().copied());
    assert_eq!(found, [all[0], all[1], all[2], all[4]]);
}

#[test]
fn an_address_keeps_its_digits() {
    let name = "0x7f9b08ca262f [libjemalloc.so.2]";
    for width in 17..40 {
        let found = cut(name, width);
        assert!(found.chars().count() <= width, "{found}");
        assert!(found.starts_with("0x7f9b08ca262f ["), "{found}");
    }
    assert_eq!(cut(name, 40), name);
    // Another name keeps more of its end.
    assert_eq!(cut("0x_is_no_address [of anything]", 10), "0x_…thing]");
}
