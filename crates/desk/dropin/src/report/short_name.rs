//! Shortens function names as pprof's pictures do: without packages, namespaces, arguments and
//! versions.

use std::sync::LazyLock;

use regex::Regex;

fn compile(pattern: &'static str) -> Regex {
    Regex::new(pattern).expect("a pattern of ours")
}

/// Regular expression for the version of a Go module in a package's path, such as `/v2`.
static GO_MODULE_VERSION: LazyLock<Regex> =
    LazyLock::new(|| compile(r"^(.*?)/v(?:[2-9]|[1-9][0-9]+)([./].*)$"));

/// Regular expressions for the part of a name to keep: the text after the path for Go, class and
/// method for Java and for C++.
static KEPT_NAME_PARTS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        compile(r"^(?:[0-9A-Za-z_.\-]+/)+([^.]+\..+)"),
        compile(
            r"^(?:[a-z][0-9A-Za-z_]*\.)*([A-Z][0-9A-Za-z_$]*\.(?:<init>|[a-z][0-9A-Za-z_$]*(?:\$[0-9]+)?))(?:\(|$)",
        ),
        compile(
            r"^(?:[_a-zA-Z][0-9A-Za-z_]*::)+(_*[A-Z][0-9A-Za-z_]*::~?[_a-zA-Z][0-9A-Za-z_]*(?:<.*>)?)",
        ),
    ]
});

/// Returns a shorter name, or the name itself if nothing can be cut.
pub(super) fn shorten(name: &str) -> String {
    let name = name.strip_prefix("(anonymous namespace)::").unwrap_or(name);
    let name = GO_MODULE_VERSION.replace(name, "${1}${2}");
    let kept = KEPT_NAME_PARTS
        .iter()
        .find_map(|regex| regex.captures(&name));
    kept.and_then(|found| found.get(1))
        .map_or(name.as_ref(), |part| part.as_str())
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks names against pprof's own pictures of a profile with these names.
    #[test]
    fn names() {
        let table = [
            ("root", "root"),
            ("(anonymous namespace)::walk", "walk"),
            ("github.com/blah/blah.(*T).Go", "blah.(*T).Go"),
            ("github.com/blah/blah/v2.Go", "blah.Go"),
            ("github.com/blah/v12/x.Go", "x.Go"),
            ("github.com/blah/v1/x.Go", "x.Go"),
            ("java.util.concurrent.Pool.<init>(int)", "Pool.<init>"),
            ("java.bar.Foo.bar$1(I)", "Foo.bar$1"),
            ("java.bar.Foo.bar", "Foo.bar"),
            ("foo::bar::Baz::method<int>(int)", "Baz::method<int>"),
            ("foo::_Baz::~_Baz()", "_Baz::~_Baz"),
            ("foo::bar::baz()", "foo::bar::baz()"),
        ];
        for (name, expected) in table {
            assert_eq!(shorten(name), expected, "{name}");
        }
    }
}
