//! Writes a view of pprof's page as HTML. Its links and its form work without a script.

mod flame;
mod listing;

use std::fmt::Write;

use form_urlencoded::Serializer;

use self::listing::push_listing;
use crate::page::{ServedPage, escape_html, hash_of};

pub use self::{
    flame::{ViewBox, ViewFlame},
    listing::{ViewFunction, ViewInstruction, ViewLine},
};

const VIEW_STYLE: &str = include_str!("../page/views/style.css");
const VIEW_SCRIPT: &str = include_str!("../page/views/script.js");

/// Name and value of each parameter of a URL.
pub type UrlParameters = Vec<(String, String)>;

/// A page with one view.
#[derive(Clone, Debug)]
pub struct ViewPage {
    /// The title.
    pub title: String,
    /// The token, which each link has.
    pub token: String,
    /// The links to all views.
    pub views: Vec<ViewLink>,
    /// The address of the server's own page that shows the same, and the name of the link.
    pub own_page: (String, String),
    /// The links to the sample types.
    pub types: Vec<ViewLink>,
    /// The links to saved configurations.
    pub configs: Vec<ViewLink>,
    /// The fields of the form.
    pub fields: Vec<ViewField>,
    /// The parameters that the form keeps.
    pub kept: UrlParameters,
    /// What the user should know about the rows.
    pub notes: Vec<String>,
    /// The lines that describe the rows.
    pub labels: Vec<String>,
    /// The rows.
    pub body: ViewBody,
}

/// A link of a page.
#[derive(Clone, Debug)]
pub struct ViewLink {
    /// The text of the link.
    pub text: String,
    /// The path, such as `./top`; empty for this page.
    pub path: String,
    /// The parameters, without the token.
    pub parameters: UrlParameters,
    /// Whether the link leads to what the page shows.
    pub is_current: bool,
    /// The name of the saved configuration that a button beside the link deletes.
    pub deleted_config: Option<String>,
}

/// A field of the form.
#[derive(Clone, Debug)]
pub struct ViewField {
    /// The text beside the field.
    pub label: &'static str,
    /// The parameter of the URL.
    pub parameter: &'static str,
    /// The value.
    pub value: String,
    /// The values to choose from; if there are none, the field is a text.
    pub choices: &'static [&'static str],
}

/// The rows of a view.
#[derive(Clone, Debug)]
pub enum ViewBody {
    /// A table: the heads of its columns, and its rows.
    Table(&'static [&'static str], Vec<Vec<String>>),
    /// A text of lines.
    Text(String),
    /// Source lines of functions, with their instructions.
    Listing(Vec<ViewFunction>),
    /// A flame graph.
    Flame(ViewFlame),
}

impl ViewPage {
    /// Returns the page with its policy: only its own script and style, forms and requests only to
    /// its own server.
    #[must_use]
    pub fn html(&self) -> ServedPage {
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; \
             form-action 'self'; require-trusted-types-for 'script'; frame-ancestors 'none'",
            hash_of(VIEW_SCRIPT),
            hash_of(VIEW_STYLE),
        );
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
             name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<meta \
             name=\"referrer\" content=\"no-referrer\">\n<title>{}</title>\n\
             <style>{VIEW_STYLE}</style>\n</head>\n<body>\n",
            escape_html(&self.title)
        );
        self.push_header(&mut html);
        self.push_form(&mut html);
        if !self.notes.is_empty() {
            html += "<ul id=\"notes\">";
            for note in &self.notes {
                html += &format!("<li>{}</li>", escape_html(note));
            }
            html += "</ul>\n";
        }
        if !self.labels.is_empty() {
            let labels = escape_lines(&self.labels.join("\n"));
            html += &format!("<p id=\"labels\">{labels}</p>\n");
        }
        html += "<main>\n";
        match &self.body {
            ViewBody::Table(heads, rows) => push_table(&mut html, heads, rows),
            ViewBody::Text(text) => {
                html += "<pre id=\"text\">";
                html += &escape_lines(text);
                html += "</pre>\n";
            }
            ViewBody::Listing(functions) => push_listing(&mut html, functions),
            ViewBody::Flame(flame) => flame.push_svg(&mut html, self),
        }
        html += &format!("</main>\n<script>{VIEW_SCRIPT}</script>\n</body>\n</html>\n");
        ServedPage { html, policy }
    }

    /// Returns the address of a link, escaped for an attribute.
    fn address(&self, path: &str, parameters: &[(String, String)]) -> String {
        let path = format!("{path}?");
        let start = path.len();
        let mut query = Serializer::for_suffix(path, start);
        query.append_pair("token", &self.token);
        query.extend_pairs(parameters);
        escape_html(&query.finish())
    }

    fn push_header(&self, html: &mut String) {
        *html += &format!("<header>\n<h1>{}</h1>\n", escape_html(&self.title));
        let (address, text) = &self.own_page;
        let own = format!(
            "<a href=\"{}\">{}</a>",
            escape_html(address),
            escape_html(text)
        );
        self.push_links(html, "Views", &self.views, &own);
        self.push_links(html, "Sample types", &self.types, "");
        let save = "<input id=\"config\" size=\"12\" aria-label=\"Name of the configuration\"> \
                    <button id=\"save\" type=\"button\">Save configuration</button> <span \
                    id=\"answer\" role=\"status\"></span>";
        self.push_links(html, "Configurations", &self.configs, save);
        *html += "</header>\n";
    }

    fn push_links(&self, html: &mut String, name: &str, links: &[ViewLink], last: &str) {
        *html += &format!("<nav aria-label=\"{name}\"><span>{name}</span>");
        for link in links {
            let current = if link.is_current {
                " aria-current=\"page\""
            } else {
                ""
            };
            let text = escape_html(&link.text);
            let address = self.address(&link.path, &link.parameters);
            *html += &format!(" <a href=\"{address}\"{current}>{text}</a>");
            if let Some(name) = &link.deleted_config {
                let name = escape_html(name);
                *html += &format!(
                    "<button type=\"button\" data-config=\"{name}\" aria-label=\"Delete {text}\">×\
                     </button>"
                );
            }
        }
        *html += &format!(" {last}</nav>\n");
    }

    fn push_form(&self, html: &mut String) {
        *html += "<form method=\"get\">\n";
        let hidden = |html: &mut String, name: &str, value: &str| {
            let (name, value) = (escape_html(name), escape_html(value));
            *html += &format!("<input type=\"hidden\" name=\"{name}\" value=\"{value}\">\n");
        };
        hidden(html, "token", &self.token);
        for (name, value) in &self.kept {
            hidden(html, name, value);
        }
        for field in &self.fields {
            let (label, name) = (field.label, field.parameter);
            *html += &format!("<label>{label} ");
            if field.choices.is_empty() {
                let value = escape_html(&field.value);
                *html += &format!("<input name=\"{name}\" value=\"{value}\" size=\"16\">");
            } else {
                *html += &format!("<select name=\"{name}\">");
                for choice in field.choices {
                    let chosen = if *choice == field.value {
                        " selected"
                    } else {
                        ""
                    };
                    *html += &format!("<option value=\"{choice}\"{chosen}>{choice}</option>");
                }
                *html += "</select>";
            }
            *html += "</label>\n";
        }
        *html += "<button>Show</button>\n</form>\n";
    }
}

fn push_table(html: &mut String, heads: &[&str], rows: &[Vec<String>]) {
    *html += "<table id=\"rows\">\n<thead><tr>";
    for head in heads {
        *html += &format!("<th scope=\"col\">{}</th>", escape_html(head));
    }
    *html += "</tr></thead>\n<tbody>\n";
    for row in rows {
        *html += "<tr>";
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape_html(cell));
        }
        *html += "</tr>\n";
    }
    *html += "</tbody>\n</table>\n";
}

/// Escapes a text of several lines for an HTML element. Tabs stay.
fn escape_lines(text: &str) -> String {
    let pieces = text.split_inclusive(['\n', '\t']);
    let escape = |piece: &str| match piece.char_indices().next_back() {
        Some((at, end @ ('\n' | '\t'))) => format!("{}{end}", escape_html(&piece[..at])),
        _ => escape_html(piece),
    };
    pieces.map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: ViewBody) -> ViewPage {
        let evil = "\"'><script>alert(1)</script>\u{1}".to_string();
        let link = ViewLink {
            text: evil.clone(),
            path: "./top".to_string(),
            parameters: vec![("f".to_string(), evil.clone())],
            is_current: true,
            deleted_config: Some(evil.clone()),
        };
        ViewPage {
            title: evil.clone(),
            token: "TOKEN".to_string(),
            views: vec![link.clone()],
            own_page: (format!("/?token=TOKEN#{evil}"), evil.clone()),
            types: vec![link.clone()],
            configs: vec![link],
            fields: vec![ViewField {
                label: "Focus",
                parameter: "f",
                value: evil.clone(),
                choices: &[],
            }],
            kept: vec![(evil.clone(), evil.clone())],
            notes: vec![evil.clone()],
            labels: vec![evil],
            body,
        }
    }

    /// Tests that no text of a profile or of a request becomes markup.
    #[test]
    fn texts_are_texts() {
        let evil = "<img src=x onerror=alert(1)>\u{7f}".to_string();
        let flame = ViewFlame {
            boxes: vec![ViewBox {
                name: evil.clone(),
                short_name: evil.clone(),
                details: evil.clone(),
                parameters: vec![("p".to_string(), evil.clone())],
                row: 0,
                start: 0.0,
                width: 1.0,
                share: None,
            }],
        };
        let row = ViewInstruction {
            text: evil.clone(),
            place: evil.clone(),
            is_call: false,
        };
        let function = ViewFunction {
            name: evil.clone(),
            file: evil.clone(),
            sums: evil.clone(),
            lines: [vec![], vec![row]]
                .map(|instructions| ViewLine {
                    text: evil.clone(),
                    has_code: true,
                    instructions,
                })
                .to_vec(),
        };
        for body in [
            ViewBody::Table(&["Name"], vec![vec![evil.clone()]]),
            ViewBody::Text(format!("a\n{evil}")),
            ViewBody::Listing(vec![function]),
            ViewBody::Flame(flame),
        ] {
            let served = page(body).html();
            assert_eq!(served.html.matches("<script>").count(), 1);
            assert!(!served.html.contains("<img"), "{}", served.html);
            assert!(
                served
                    .html
                    .contains("&lt;img src=x onerror=alert(1)&gt;\u{fffd}")
            );
            assert!(!served.html.contains('\u{1}'));
            assert!(!served.policy.contains("unsafe"), "{}", served.policy);
        }
    }

    #[test]
    fn the_policy_allows_the_own_script_and_style_only() {
        let served = page(ViewBody::Text(String::new())).html();
        for (source, element, text) in [
            ("script-src", "script", VIEW_SCRIPT),
            ("style-src", "style", VIEW_STYLE),
        ] {
            let hash = hash_of(text);
            assert!(
                served.policy.contains(&format!("{source} {hash}")),
                "{source}"
            );
            let whole = format!("<{element}>{text}</{element}>");
            assert_eq!(served.html.matches(&whole).count(), 1, "{element}");
        }
    }
}
