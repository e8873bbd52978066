//! The pages at pprof's paths: `/top`, `/flamegraph` and others, also below `/ui`. They have
//! pprof's numbers, and pprof's parameters.
//!
//! `heapprof-dropin` makes the rows, and `heapprof-web` writes the page. This module decides what
//! is at a path, and makes the links.

mod listing;
mod settings_file;

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Error, Result};
use form_urlencoded::Serializer;
use heapprof_dropin::{
    ConfigLink, PPROF_VIEWS, PercentRow, PprofView, PprofViewBody, PprofViewReport, PprofViews,
    report::{FlameBox, FlameGraph},
};
use heapprof_text::printable;
use heapprof_web::{
    ApiAnswer, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE, UrlParameters, ViewBody, ViewBox,
    ViewField, ViewFlame, ViewLink, ViewPage,
};

use crate::host::{PageHost, refusal};

/// Largest text of a view, in bytes.
const MAX_VIEW_BYTES: usize = 64 << 20;
/// Media type of a profile, as pprof's server has it.
const PROFILE_MEDIA_TYPE: &str = "application/vnd.google.protobuf+gzip";
/// The heads of the columns of Top.
const TOP_COLUMNS: [&str; 7] = ["Flat", "Flat%", "Sum%", "Cum", "Cum%", "Name", "Inlined?"];

/// The parameters of filters that heapprof's own page has as well, with their names there.
const OWN_PARAMETERS: [(&str, &str); 2] = [("f", "focus"), ("i", "ignore")];

/// What is at one of pprof's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PprofTarget {
    /// A view.
    View(PprofView),
    /// The flame graph, under another path.
    Redirect(&'static str),
    /// The drawn graph, which only the command line has.
    Graph,
    /// The whole profile as a file.
    Download,
    /// The request to save a configuration.
    SaveConfig,
    /// The request to delete a saved configuration.
    DeleteConfig,
}

impl PprofTarget {
    /// Returns what is at a path; `None` if there is nothing of pprof's.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let (below, home) = match path.strip_prefix("/ui") {
            Some("" | "/") => return Some(Self::Redirect("/ui/flamegraph")),
            Some(below) => (below, "/ui/flamegraph"),
            None => (path, "/flamegraph"),
        };
        let name = below.strip_prefix('/')?;
        let view = PPROF_VIEWS.iter().find(|(_, known, _)| *known == name);
        if let Some((view, _, _)) = view {
            return Some(Self::View(*view));
        }
        Some(match name {
            "" | "flamegraph2" | "flamegraphold" => Self::Redirect(home),
            "graph" => Self::Graph,
            "download" => Self::Download,
            "saveconfig" => Self::SaveConfig,
            "deleteconfig" => Self::DeleteConfig,
            _ => return None,
        })
    }

    /// Whether a request to a path changes the settings.
    pub(crate) fn changes_settings(path: &str) -> bool {
        matches!(
            Self::parse(path),
            Some(Self::SaveConfig | Self::DeleteConfig)
        )
    }
}

/// The pages at pprof's paths.
pub(crate) struct PprofPages {
    views: Arc<dyn PprofViews>,
    /// The lock of a change of the settings file, so that no change is lost.
    changing: Mutex<()>,
}

impl PprofPages {
    pub(crate) fn new(views: Arc<dyn PprofViews>) -> Self {
        Self {
            views,
            changing: Mutex::default(),
        }
    }

    /// Answers a request.
    pub(crate) fn answer(
        &self,
        target: PprofTarget,
        asked: &ApiRequest,
        host: &dyn PageHost,
    ) -> Result<ApiAnswer, ApiRefusal> {
        let refused = |error: Error| refusal(host, &error);
        let parameters = &asked.parameters;
        match target {
            PprofTarget::View(view) => match self.views.show(view, parameters, MAX_VIEW_BYTES) {
                Ok(report) => Ok(ApiAnswer::page(self.page(view, asked, report).html())),
                Err(error) => {
                    let refused = refused(error);
                    let report = PprofViewReport {
                        labels: Vec::new(),
                        notes: vec![refused.what.clone()],
                        body: PprofViewBody::Text(Vec::new()),
                    };
                    Err(ApiRefusal {
                        page: Some(Box::new(self.page(view, asked, report).html())),
                        ..refused
                    })
                }
            },
            PprofTarget::Redirect(path) => {
                let mut query = Serializer::new(String::new());
                query.append_pair("token", &asked.token);
                query.extend_pairs(parameters);
                Ok(ApiAnswer::redirect(format!("{path}?{}", query.finish())))
            }
            PprofTarget::Graph => Err(ApiRefusal::new(
                404,
                "This server does not draw the graph",
                "heapprof pprof -svg writes it, if Graphviz is installed",
            )),
            PprofTarget::Download => {
                let mut body = Vec::new();
                self.views.write_profile(&mut body).map_err(refused)?;
                Ok(ApiAnswer {
                    media: PROFILE_MEDIA_TYPE,
                    body: Some(body),
                    file_name: Some("profile.pb.gz"),
                    ..ApiAnswer::default()
                })
            }
            PprofTarget::SaveConfig => {
                let change = |content: Option<&[u8]>| self.views.save_config(content, parameters);
                self.change_settings(change).map_err(refused)
            }
            PprofTarget::DeleteConfig => {
                let change = |content: Option<&[u8]>| self.views.delete_config(content, parameters);
                self.change_settings(change).map_err(refused)
            }
        }
    }

    fn change_settings(
        &self,
        change: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>>,
    ) -> Result<ApiAnswer> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = settings_file::path()?;
        let content = settings_file::read(&path)?;
        settings_file::write(&path, &change(content.as_deref())?)?;
        Ok(ApiAnswer {
            media: JSON_MEDIA_TYPE,
            body: Some(b"{}\n".to_vec()),
            ..ApiAnswer::default()
        })
    }

    /// Returns the page of a view with the content of `report`.
    fn page(&self, view: PprofView, asked: &ApiRequest, report: PprofViewReport) -> ViewPage {
        let parameters = &asked.parameters;
        // The form of a page about a wrong parameter has the values without parameters.
        let fields = self.fields(view, parameters);
        let fields = fields.or_else(|_| self.fields(view, &UrlParameters::new()));
        let mut notes = report.notes;
        let configs = match self.config_menu(parameters) {
            Ok(links) => links,
            Err(error) => {
                notes.push(format!("{error:#}"));
                Vec::new()
            }
        };
        let body = match report.body {
            PprofViewBody::Rows(rows) => {
                ViewBody::Table(&TOP_COLUMNS, rows.into_iter().map(top_cells).collect())
            }
            PprofViewBody::Text(text) => {
                ViewBody::Text(String::from_utf8_lossy(&text).into_owned())
            }
            PprofViewBody::Listing(rows) => ViewBody::Listing(listing::functions(rows)),
            PprofViewBody::Flame(graph) => {
                let shown = graph.shown.0 - graph.shown.1;
                notes.push(format!(
                    "{} is shown; boxes of less than 1/1200 of it are left out",
                    graph.percent_text(shown)
                ));
                ViewBody::Flame(flame(&graph, parameters))
            }
        };
        let is_shown = |(key, _): &&(String, String)| {
            let mut fields = FORM_FIELDS.iter().chain([&PIVOT_FIELD]);
            !fields.any(|(_, parameter, _)| parameter == key)
        };
        ViewPage {
            title: printable(&self.views.title(parameters)).into_owned(),
            token: asked.token.clone(),
            views: view_links(view, parameters),
            own_page: self.own_page(view, asked),
            types: self.type_links(parameters),
            configs,
            fields: fields.unwrap_or_default(),
            kept: parameters.iter().filter(is_shown).cloned().collect(),
            notes: notes
                .iter()
                .map(|note| printable(note).into_owned())
                .collect(),
            labels: report
                .labels
                .iter()
                .map(|label| printable_label(label))
                .collect(),
            body,
        }
    }

    /// Returns the address of heapprof's own page with the same filters, and the name of the link,
    /// which says what that page does not have.
    fn own_page(&self, view: PprofView, asked: &ApiRequest) -> (String, String) {
        let mut state = Serializer::new(String::new());
        state.append_pair(
            "view",
            if view == PprofView::Top {
                "table"
            } else {
                "flame"
            },
        );
        let mut lost = Vec::new();
        for (key, value) in asked
            .parameters
            .iter()
            .filter(|(_, value)| !value.is_empty())
        {
            let known = OWN_PARAMETERS.iter().find(|(known, _)| known == key);
            match known {
                Some((_, own)) => {
                    state.append_pair(own, value);
                }
                // The sample type is below.
                None if key == "si" => {}
                None => lost.push(key.as_str()),
            }
        }
        let sample_type = self.views.sample_type(&asked.parameters);
        let pair = sample_type.rsplit_once('_');
        let pair = pair.filter(|(_, kind)| matches!(*kind, "space" | "objects"));
        state.append_pair(
            "fam",
            pair.map_or(sample_type.as_str(), |(family, _)| family),
        );
        if let Some((_, kind)) = pair {
            state.append_pair("unit", kind);
        }
        let name = match lost.is_empty() {
            true => "heapprof's page".to_string(),
            false => format!("heapprof's page, which does not have {}", lost.join(", ")),
        };
        (format!("/?token={}#{}", asked.token, state.finish()), name)
    }

    fn type_links(&self, parameters: &UrlParameters) -> Vec<ViewLink> {
        let current = self.views.sample_type(parameters);
        let link = |name: &str| {
            let mut others = parameters.clone();
            others.retain(|(key, _)| key != "si");
            others.push(("si".to_string(), name.to_string()));
            ViewLink {
                is_current: name == current,
                ..link_to(&printable(name), "", others)
            }
        };
        self.views.sample_types().into_iter().map(link).collect()
    }

    fn config_menu(&self, parameters: &UrlParameters) -> Result<Vec<ViewLink>> {
        let content = settings_file::read(&settings_file::path()?)?;
        let links = self.views.config_menu(content.as_deref(), parameters)?;
        let link = |link: ConfigLink| ViewLink {
            is_current: link.is_current,
            deleted_config: link.is_saved.then(|| link.name.clone()),
            ..link_to(&printable(&link.name), "", link.parameters)
        };
        Ok(links.into_iter().map(link).collect())
    }

    /// Returns the fields of the form, with the values of a URL with `parameters`.
    fn fields(&self, view: PprofView, parameters: &UrlParameters) -> Result<Vec<ViewField>> {
        let mut values = self.views.values(parameters)?;
        let pivot = parameters.iter().find(|(key, _)| key == PIVOT_FIELD.1);
        values.extend(pivot.map(|(_, value)| (PIVOT_FIELD.1, value.clone())));
        let field = |&(label, parameter, choices): &FormField| {
            let value = values.iter().find(|(known, _)| *known == parameter);
            let value = value.map_or("", |(_, value)| value.as_str());
            ViewField {
                label,
                parameter,
                value: match (parameter, value) {
                    ("trim" | "noinlines" | "rel" | "dropneg" | "mean", value) => {
                        value.chars().take(1).collect()
                    }
                    (_, value) => value.to_string(),
                },
                choices,
            }
        };
        let pivot = (view == PprofView::Flame).then_some(&PIVOT_FIELD);
        Ok(FORM_FIELDS.iter().chain(pivot).map(field).collect())
    }
}

/// A field of the form: its label, its parameter, and the values to choose from.
type FormField = (&'static str, &'static str, &'static [&'static str]);

/// The fields of the form.
const FORM_FIELDS: [FormField; 19] = [
    ("Focus", "f", &[]),
    ("Ignore", "i", &[]),
    ("Hide", "h", &[]),
    ("Show", "s", &[]),
    ("Show from", "sf", &[]),
    ("Prune from", "prunefrom", &[]),
    ("Tag focus", "tf", &[]),
    ("Tag ignore", "ti", &[]),
    ("Tag show", "ts", &[]),
    ("Tag hide", "th", &[]),
    ("Order", "sort", &["flat", "cum"]),
    (
        "Rows are",
        "g",
        &[
            "",
            "functions",
            "filefunctions",
            "files",
            "lines",
            "addresses",
        ],
    ),
    ("Unit", "unit", &[]),
    ("Least share", "nf", &[]),
    ("Trim", "trim", &["t", "f"]),
    ("No inlines", "noinlines", &["f", "t"]),
    ("Relative percentages", "rel", &["f", "t"]),
    ("Drop negative", "dropneg", &["f", "t"]),
    ("Mean", "mean", &["f", "t"]),
];
/// The field that only the form of the flame graph has.
const PIVOT_FIELD: FormField = ("Pivot", "p", &[]);

fn link_to(text: &str, path: &str, parameters: UrlParameters) -> ViewLink {
    ViewLink {
        text: text.to_string(),
        path: path.to_string(),
        parameters,
        is_current: false,
        deleted_config: None,
    }
}

/// Returns the links to the views, with the same parameters.
fn view_links(current: PprofView, parameters: &UrlParameters) -> Vec<ViewLink> {
    let mut links: Vec<ViewLink> = PPROF_VIEWS
        .iter()
        .map(|(view, name, title)| {
            let mut kept = parameters.clone();
            // Only the flame graph has a pivot.
            kept.retain(|(key, _)| key != "p" || *view == PprofView::Flame);
            ViewLink {
                is_current: *view == current,
                ..link_to(title, &format!("./{name}"), kept)
            }
        })
        .collect();
    links.push(link_to("Download", "./download", UrlParameters::new()));
    links
}

fn top_cells(one: PercentRow) -> Vec<String> {
    let [flat, sum, cum] = one.percent;
    vec![
        one.row.flat_text,
        flat,
        sum,
        one.row.cum_text,
        cum,
        printable(&one.row.name).into_owned(),
        one.row.inline_label.to_string(),
    ]
}

/// Returns the boxes of a flame graph. A click on a box shows the box as the root.
fn flame(graph: &FlameGraph, parameters: &UrlParameters) -> ViewFlame {
    let one = |one: &FlameBox| {
        let frame = &graph.frames[one.frame];
        let mut target = parameters.clone();
        target.retain(|(key, _)| key != "p");
        if one.frame != 0 {
            let pattern = format!("^{}$", regex::escape(&frame.unique_name));
            target.push(("p".to_string(), pattern));
        }
        let inlined = if frame.is_inlined { " (inlined)" } else { "" };
        let sum = (one.positive + one.negative) as f64;
        ViewBox {
            name: printable(&frame.name).into_owned(),
            short_name: printable(&frame.short_name).into_owned(),
            details: format!("{}{inlined}", graph.details(one)),
            parameters: target,
            row: one.row,
            start: one.start,
            width: one.width,
            share: graph
                .is_diff
                .then(|| (one.positive - one.negative) as f64 / sum),
        }
    };
    ViewFlame {
        boxes: graph.boxes.iter().map(one).collect(),
    }
}

/// Returns a label with its line ends, in a form that is safe to show.
fn printable_label(label: &str) -> String {
    let lines: Vec<String> = label
        .lines()
        .map(|line| printable(line).into_owned())
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_pprof() {
        for (path, expected) in [
            ("/", Some(PprofTarget::Redirect("/flamegraph"))),
            ("/ui", Some(PprofTarget::Redirect("/ui/flamegraph"))),
            ("/ui/", Some(PprofTarget::Redirect("/ui/flamegraph"))),
            (
                "/ui/flamegraph2",
                Some(PprofTarget::Redirect("/ui/flamegraph")),
            ),
            ("/flamegraphold", Some(PprofTarget::Redirect("/flamegraph"))),
            ("/top", Some(PprofTarget::View(PprofView::Top))),
            ("/ui/peek", Some(PprofTarget::View(PprofView::Peek))),
            ("/download", Some(PprofTarget::Download)),
            ("/uitop", None),
            ("/ui/ui/top", None),
            ("//top", None),
            ("/top/", None),
            ("/Top", None),
            ("/%74op", None),
            ("top", None),
            ("", None),
        ] {
            assert_eq!(PprofTarget::parse(path), expected, "{path}");
        }
        for (path, changes) in [
            ("/saveconfig", true),
            ("/ui/deleteconfig", true),
            ("/top", false),
        ] {
            assert_eq!(PprofTarget::changes_settings(path), changes, "{path}");
        }
    }
}
