//! Writes the arguments of templates, with as much detail as is asked for.

use std::cell::RefCell;

use super::{ShortNamePart, cut, without_versions};

/// Classes that are default template arguments. The flag marks a class that is a default only if
/// its own argument equals the first argument of the template.
const DEFAULT_ARGUMENTS: &[(&str, bool)] = &[
    ("std::allocator<", false),
    ("std::less<", true),
    ("std::hash<", true),
    ("std::equal_to<", true),
    ("std::default_delete<", true),
    ("std::char_traits<", true),
    ("alloc::alloc::Global", false),
    ("std::hash::random::RandomState", false),
    ("std::collections::hash::map::RandomState", false),
];

/// Templates of which all arguments are kept, because none of them is a default.
const TEMPLATES_WITHOUT_DEFAULTS: &[&str] =
    &["pair", "tuple", "variant", "function", "integral_constant"];

/// Template instances that have a shorter name, each with the shorter name.
const TEMPLATE_ALIASES: &[(&str, &str)] = &[
    ("std::basic_string<char>", "std::string"),
    ("std::basic_string<wchar_t>", "std::wstring"),
    ("std::basic_string_view<char>", "std::string_view"),
    ("std::basic_ostream<char>", "std::ostream"),
    ("std::basic_istream<char>", "std::istream"),
    ("std::basic_iostream<char>", "std::iostream"),
    ("std::basic_ifstream<char>", "std::ifstream"),
    ("std::basic_ofstream<char>", "std::ofstream"),
    ("std::basic_stringstream<char>", "std::stringstream"),
    ("std::basic_ostringstream<char>", "std::ostringstream"),
    ("std::basic_filebuf<char>", "std::filebuf"),
    ("std::basic_stringbuf<char>", "std::stringbuf"),
];

/// How much of its arguments a name shows.
#[derive(Clone, Copy)]
pub(super) struct ArgumentDetail<'a> {
    /// The number of levels of template arguments.
    levels: usize,
    /// The rule by which the outermost templates show only their first arguments.
    first: Option<&'a FirstArgumentRule>,
    /// Whether a function that contains another one keeps its parameters.
    pub(super) has_outer_parameters: bool,
}

impl<'a> ArgumentDetail<'a> {
    /// All arguments.
    pub(super) const ALL: Self = Self::levels(usize::MAX);

    /// Returns the detail of so many levels of template arguments.
    pub(super) const fn levels(levels: usize) -> Self {
        Self {
            levels,
            first: None,
            has_outer_parameters: false,
        }
    }

    /// Returns this detail with the parameters of functions that contain another one.
    pub(super) fn with_outer_parameters(self) -> Self {
        Self {
            has_outer_parameters: true,
            ..self
        }
    }

    /// Returns the detail of first arguments, which have so many levels of arguments themselves.
    pub(super) fn first(levels: usize, rule: &'a FirstArgumentRule) -> Self {
        Self {
            first: Some(rule),
            ..Self::levels(levels)
        }
    }

    /// Returns the detail of the arguments of an argument.
    fn inner(self) -> Self {
        Self {
            levels: self.levels.saturating_sub(1),
            first: None,
            ..self
        }
    }

    /// Begins the name anew, because what was read so far was its return type.
    pub(super) fn restart(self) {
        if let Some(rule) = self.first {
            rule.found.borrow_mut().clear();
        }
    }

    /// Returns the text between the brackets of a template that shows only its first argument.
    fn first_argument(self, kept: &[Vec<ShortNamePart<'_>>]) -> String {
        let Some(rule) = self.first else {
            return String::new();
        };
        let at = rule.found.borrow().len();
        let Some(first) = kept.first() else {
            rule.found.borrow_mut().push(String::new());
            return String::new();
        };
        let whole = argument(first, ArgumentDetail::ALL);
        let text = match rule.template.is_none_or(|template| template == at) {
            false => "…".to_string(),
            true => {
                let first = match self.levels {
                    usize::MAX => whole.clone(),
                    _ => argument(first, self.inner()),
                };
                let rest = if kept.len() > 1 { ", …" } else { "" };
                cut(&first, rule.width) + rest
            }
        };
        rule.found.borrow_mut().push(whole);
        text
    }
}

/// The rule by which the outermost templates of a name show their first arguments.
pub(super) struct FirstArgumentRule {
    /// The only template that shows its first argument, counted from 0; `None` for all of them.
    template: Option<usize>,
    /// Maximum number of columns for a first argument.
    width: usize,
    /// The whole first arguments that were seen, one for each template.
    found: RefCell<Vec<String>>,
}

impl FirstArgumentRule {
    /// All templates show their first arguments.
    pub(super) fn all() -> Self {
        Self {
            template: None,
            width: usize::MAX,
            found: RefCell::default(),
        }
    }

    /// Only one template shows its first argument, in at most `width` columns.
    pub(super) fn only(template: usize, width: usize) -> Self {
        Self {
            template: Some(template),
            width,
            ..Self::all()
        }
    }

    /// Returns the whole first arguments of the templates in the name that was written last.
    pub(super) fn found(self) -> Vec<String> {
        self.found.into_inner()
    }
}

pub(super) fn is_anonymous(inner: &[Vec<ShortNamePart<'_>>]) -> bool {
    matches!(inner, [one] if matches!(one[..], [ShortNamePart::Text("anonymous namespace")]))
}

pub(super) fn push_group(
    name: &mut String,
    bracket: char,
    inner: &[Vec<ShortNamePart<'_>>],
    detail: ArgumentDetail<'_>,
) {
    match bracket {
        '{' => {
            name.push('{');
            for part in inner.first().into_iter().flatten() {
                match part {
                    ShortNamePart::Text(text) => name.push_str(text),
                    // A lambda is identified by its number and by what it is in.
                    ShortNamePart::Group('(', _) => {}
                    ShortNamePart::Group(bracket, inner) => {
                        push_group(name, *bracket, inner, detail)
                    }
                }
            }
            name.push('}');
        }
        // A bracket that begins a path holds a type and not arguments: `<Order as Drop>::drop`.
        '<' if !name.ends_with(|c: char| c.is_alphanumeric() || "_:<>=".contains(c)) => {
            let path: Vec<String> = inner.iter().map(|one| argument(one, detail)).collect();
            name.push_str(&format!("<{}>", path.join(", ")));
        }
        '<' => push_arguments(name, inner, detail),
        _ => {
            let inner: Vec<String> = inner.iter().map(|one| argument(one, detail)).collect();
            name.push_str(&format!("({})", inner.join(", ")));
        }
    }
}

fn push_arguments(name: &mut String, inner: &[Vec<ShortNamePart<'_>>], detail: ArgumentDetail<'_>) {
    // Rust writes two colons before the arguments.
    let plain = name.strip_suffix("::").map(str::len);
    if let Some(length) = plain {
        name.truncate(length);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut before = name.char_indices().rev();
    let start = before
        .find(|&(_, c)| !is_word(c))
        .map_or(0, |(at, c)| at + c.len_utf8());
    let kept = count_kept_arguments(&name[start..], inner);
    let plain = |arguments: &[String]| {
        without_versions(format!("{}<{}>", &name[start..], arguments.join(", ")))
    };
    let kept = &inner[..kept];
    let texts = |detail: ArgumentDetail<'_>| -> Vec<String> {
        kept.iter().map(|one| argument(one, detail)).collect()
    };
    let whole = plain(&texts(ArgumentDetail::ALL));
    let text = match TEMPLATE_ALIASES.iter().find(|(long, _)| *long == whole) {
        Some((_, alias)) => alias.to_string(),
        None if detail.first.is_some() => plain(&[detail.first_argument(kept)]),
        // This text exists already. Making it twice at each level would take forever.
        None if detail.levels == usize::MAX => whole,
        None if detail.levels == 0 => format!("{}<…>", &name[start..]),
        None => plain(&texts(detail.inner())),
    };
    name.truncate(start);
    name.push_str(&text);
}

/// Returns the number of a template's arguments without the defaults at the end. `before` is the
/// text before the arguments.
pub(super) fn count_kept_arguments(before: &str, inner: &[Vec<ShortNamePart<'_>>]) -> usize {
    let before = before.strip_suffix("::").unwrap_or(before);
    let template = before.rsplit("::").next().unwrap_or_default();
    let is_default = |text: &str, first: &str| {
        DEFAULT_ARGUMENTS.iter().any(|&(default, of_first)| {
            let rest = text.strip_prefix(default);
            rest.is_some_and(|rest| !of_first || rest.strip_suffix('>') == Some(first))
        })
    };
    let whole: Vec<String> = inner
        .iter()
        .map(|one| argument(one, ArgumentDetail::ALL))
        .collect();
    let mut kept = &whole[..];
    while !TEMPLATES_WITHOUT_DEFAULTS.contains(&template)
        && let [first, .., last] = kept
        && is_default(last, first)
    {
        kept = &kept[..kept.len() - 1];
    }
    kept.len()
}

/// Returns the text of one template argument, which is a type or a value.
pub(super) fn argument(parts: &[ShortNamePart<'_>], detail: ArgumentDetail<'_>) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            ShortNamePart::Text(plain) => text.push_str(plain),
            ShortNamePart::Group('(', inner) if is_anonymous(inner) => {
                text.push_str("(anonymous namespace)");
            }
            ShortNamePart::Group(bracket, inner) => push_group(&mut text, *bracket, inner, detail),
        }
    }
    text.trim().to_string()
}
