//! Fills the page template, for one file with script, style and data, or for a page from a server.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

use crate::ReportContainer;

const PAGE_TEMPLATE: &str = include_str!("../page/page.html");
const PAGE_SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/page.js"));
const PAGE_STYLE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.css"));

/// The facts about a server that are written into its page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageServerInfo {
    /// The path of the server's API, such as `/api/v1`.
    pub api: String,
    /// Whether the server answers questions about instructions.
    pub reads_binaries: bool,
    /// Path of the first of pprof's views, such as `./flamegraph`; `None` if the server has none.
    pub pprof_views: Option<&'static str>,
    /// Interval in milliseconds at which the page requests new data; `None` if it never does.
    pub refresh_ms: Option<u32>,
}

/// The page that a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPage {
    /// The body of the response.
    pub html: String,
    /// The value of the response header `Content-Security-Policy`.
    pub policy: String,
}

/// Makes a self-contained page. The data come last, so that even a truncated file has the script,
/// which reports the truncation.
#[must_use]
pub fn page(title: &str, container: &ReportContainer) -> String {
    fill_template(&policy(""), "", title, container.as_bytes())
}

/// Makes a page that requests its data from a server.
#[must_use]
pub fn served_page(title: &str, server: &PageServerInfo) -> ServedPage {
    let mut meta = format!(
        r#"<meta name="heapprof-api" content="{}">"#,
        escape_html(&server.api)
    );
    if let Some(refresh_ms) = server.refresh_ms {
        meta += &format!(r#"<meta name="heapprof-refresh" content="{refresh_ms}">"#);
    }
    if server.reads_binaries {
        meta += r#"<meta name="heapprof-assembly" content="1">"#;
    }
    if let Some(path) = server.pprof_views {
        meta += &format!(r#"<meta name="heapprof-views" content="{path}">"#);
    }
    let policy = policy("connect-src 'self'; ");
    ServedPage {
        html: fill_template(&policy, &meta, title, &[]),
        // A meta element cannot set frame-ancestors, so only the header does.
        policy: policy + "; frame-ancestors 'none'",
    }
}

/// Returns the content security policy: only the page's own script and style run, and nothing is
/// loaded.
fn policy(connect: &str) -> String {
    format!(
        "default-src 'none'; script-src {}; style-src {}; {connect}base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'",
        hash_of(PAGE_SCRIPT),
        hash_of(PAGE_STYLE),
    )
}

pub(crate) fn hash_of(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Fills the placeholders of the template in one pass. So inserted text can't be taken for a
/// placeholder.
fn fill_template(policy: &str, meta: &str, title: &str, data: &[u8]) -> String {
    let characters = data.len().div_ceil(3) * 4;
    let shell = PAGE_TEMPLATE.len() + PAGE_SCRIPT.len() + PAGE_STYLE.len() + 1024;
    let mut out = String::with_capacity(shell + characters);
    let mut parts = PAGE_TEMPLATE.split('%');
    // The template has no other percent signs, so every second part is a name.
    while let Some(text) = parts.next() {
        out.push_str(text);
        match parts.next() {
            Some("CSP") => out.push_str(policy),
            Some("META") => out.push_str(meta),
            Some("TITLE") => out.push_str(&escape_html(title)),
            Some("CSS") => out.push_str(PAGE_STYLE),
            Some("JS") => out.push_str(PAGE_SCRIPT),
            Some("CHARS") => out.push_str(&characters.to_string()),
            Some("DATA") => STANDARD.encode_string(data, &mut out),
            Some(_) | None => {}
        }
    }
    out
}

/// Escapes a text for an HTML element or attribute.
pub(crate) fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#x27;"),
            _ if c.is_control() => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::small_report;

    #[test]
    fn the_template_has_each_place_once() {
        let mut places: Vec<&str> = PAGE_TEMPLATE.split('%').skip(1).step_by(2).collect();
        places.sort_unstable();
        let wanted = ["CHARS", "CSP", "CSS", "DATA", "JS", "META", "TITLE"];
        assert_eq!(places, wanted);
        assert_eq!(PAGE_TEMPLATE.matches('%').count(), 2 * wanted.len());
    }

    /// Returns the text between `before` and `after`.
    fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
        let (_, rest) = page.split_once(before).unwrap();
        rest.split_once(after).unwrap().0
    }

    #[test]
    fn a_page_runs_our_script_and_style_only() {
        let served = served_page("a page", &PageServerInfo::default());
        let policy = between(
            &served.html,
            "http-equiv=\"Content-Security-Policy\" content=\"",
            "\"",
        );
        // The header adds frame-ancestors, which a meta element cannot set.
        assert_eq!(format!("{policy}; frame-ancestors 'none'"), served.policy);
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        for (source, element) in [("script-src", PAGE_SCRIPT), ("style-src", PAGE_STYLE)] {
            let found = between(policy, &format!("{source} '"), "'");
            let hash = STANDARD.encode(Sha256::digest(element));
            assert_eq!(found, format!("sha256-{hash}"), "{source}");
            assert_eq!(served.html.matches(element).count(), 1, "{source}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn only_a_served_page_connects_to_its_server() {
        let server = PageServerInfo {
            api: "/api/<v1>".to_string(),
            reads_binaries: true,
            pprof_views: Some("./flamegraph"),
            refresh_ms: Some(1500),
        };
        let served = served_page("a page", &server);
        assert!(served.policy.contains("; connect-src 'self'; "));
        let api = between(&served.html, "name=\"heapprof-api\" content=\"", "\"");
        assert_eq!(api, "/api/&lt;v1&gt;");
        let refresh = "name=\"heapprof-refresh\" content=\"";
        assert_eq!(between(&served.html, refresh, "\""), "1500");
        let assembly = "name=\"heapprof-assembly\"";
        assert!(served.html.contains(assembly));
        let views = "name=\"heapprof-views\" content=\"";
        assert_eq!(between(&served.html, views, "\""), "./flamegraph");
        let still = served_page("a page", &PageServerInfo::default());
        assert!(!still.html.contains(refresh) && !still.html.contains(assembly));
        assert!(!still.html.contains(views));
        let file = page("a page", &ReportContainer::pack(&small_report()).unwrap());
        assert!(!file.contains("connect-src") && !file.contains("name=\"heapprof-api\""));
    }

    #[test]
    fn a_title_is_text() {
        assert_eq!(escape_html("<&>\"'a"), "&lt;&amp;&gt;&quot;&#x27;a");
        let served = served_page("%DATA%</title><script>", &PageServerInfo::default());
        let title = between(&served.html, "<title>", "</title>");
        assert_eq!(title, "%DATA%&lt;/title&gt;&lt;script&gt;");
    }

    /// Tests that the page contains the bytes of the container, and their number of characters.
    #[test]
    fn a_page_has_its_data() {
        let container = ReportContainer::pack(&small_report()).unwrap();
        let text = page("a page", &container);
        let encoded = STANDARD.encode(container.as_bytes());
        assert_eq!(text.matches(&encoded).count(), 1);
        assert!(text.contains(&format!("\"{}\"", encoded.len())));
    }
}
