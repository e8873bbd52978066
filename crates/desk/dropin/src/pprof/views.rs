//! The views of pprof's page, with the numbers that pprof shows at the same URL.
//!
//! Source of the rules: google/pprof, internal/driver/webui.go and stacks.go there. This module
//! makes the content of a view. Another crate writes it as HTML, and knows who may request it.

mod configs;
mod fields;
mod limits;
mod notes;
mod rows;
mod settings;

use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use heapprof_profile::{EncodeOptions, Gzip, Profile, encode_with};

use self::fields::{CONFIG_FIELDS, ViewConfig};
use self::limits::{LimitedRows, LimitedText};
use self::notes::ReportNotes;
use self::rows::{in_page_order, with_percent};
use super::config::PprofConfig;
use super::flag_table::{FlagGroup, flags_in_group};
use super::flags::PprofArguments;
use super::{listings, print};
use crate::report::{self, FlameGraph, ListingOrder};
use crate::reshape::go_regex;
use crate::views::{ConfigLink, PprofView, PprofViewBody, PprofViewReport, PprofViews};

/// The number of rows of the view Top, whatever the parameter `n` says.
const TOP_ROWS: &str = "500";
/// The number of source files of the view Source, and of functions of the view Disassembly.
const LISTING_ROWS: usize = 500;
/// Time that outside tools get for a view. The server closes a request soon after it.
const MAX_TOOL_TIME: Duration = Duration::from_secs(100);
/// The parameter of the flame graph that chooses frames.
const PIVOT_PARAMETER: &str = "p";

/// The views of a loaded profile.
pub(super) struct LoadedViews {
    profile: Profile,
    flags: PprofArguments,
    /// The configuration of the command line.
    config: ViewConfig,
}

impl fmt::Debug for LoadedViews {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LoadedViews").finish_non_exhaustive()
    }
}

impl LoadedViews {
    /// Makes the views of a loaded profile, with the flags of the command line as the values of
    /// parameters that a URL does not have.
    pub(super) fn new(profile: Profile, config: &PprofConfig<'_>) -> Result<Self> {
        let flags = &config.flags;
        let mut own = ViewConfig::defaults();
        let node_count = flags.int("nodecount").to_string();
        for field in &CONFIG_FIELDS {
            let value = match field.name {
                "nodecount" => &node_count,
                "sort" if config.cum_sort => "cum",
                "sort" => "flat",
                "granularity" => config.granularity,
                "sample_index" => &config.sample_index,
                "mean" if config.mean => "true",
                name => flags.text(name),
            };
            if !value.is_empty() {
                own.set(field.name, value).map_err(|why| anyhow!(why))?;
            }
        }
        print::column(&profile, &config.sample_index)?;
        Ok(Self {
            profile,
            flags: flags.clone(),
            config: own,
        })
    }

    /// Returns the flags of the command line with the values of `settings`.
    fn flags_of(&self, settings: &ViewConfig) -> PprofArguments {
        let mut flags = self.flags.clone();
        for (field, value) in settings.fields() {
            if !matches!(field.name, "sort" | "granularity" | "sample_index") {
                flags.set(field.name, value.to_string());
            }
        }
        flags
    }

    /// Returns the labels and the rows of a view. `pivot` chooses frames of the flame graph.
    fn content(
        &self,
        view: PprofView,
        config: &PprofConfig<'_>,
        pivot: &str,
        max_bytes: usize,
    ) -> Result<(Vec<String>, PprofViewBody)> {
        let mut profile = self.profile.clone();
        let options = print::prepare(&mut profile, config)?;
        Ok(match view {
            PprofView::Top => {
                let (labels, rows) = report::top_rows(&profile, &options)?;
                let rows = in_page_order(rows, config.cum_sort);
                (
                    labels,
                    PprofViewBody::Rows(with_percent(rows, options.total)),
                )
            }
            PprofView::Flame => {
                let pivot = match pivot {
                    "" => None,
                    text => Some(go_regex(text).map_err(|why| anyhow!("p {text:?}: {why}"))?),
                };
                let graph = FlameGraph::new(&profile, &options, pivot.as_ref());
                (graph.labels.clone(), PprofViewBody::Flame(Box::new(graph)))
            }
            PprofView::Peek => {
                let mut text = LimitedText::new(max_bytes);
                print::print(profile, config.format, &options, config, &mut text)?;
                (Vec::new(), PprofViewBody::Text(text.text))
            }
            PprofView::Source => {
                let order = ListingOrder::Largest(LISTING_ROWS);
                let mut rows = LimitedRows::new(max_bytes);
                let mut show = |row| rows.push(row);
                listings::source_rows(&profile, &options, order, config, &mut show)?;
                let mut labels = report::profile_labels(&profile, &options, &options.values());
                labels.push(format!("Total: {}", options.values().show(options.total)));
                (labels, PprofViewBody::Listing(rows.rows))
            }
            PprofView::Disasm => {
                let order = ListingOrder::Largest(LISTING_ROWS);
                let mut text = LimitedText::new(max_bytes);
                listings::disasm(&profile, &options, order, config, &mut text)?;
                let labels = report::profile_labels(&profile, &options, &options.values());
                (labels, PprofViewBody::Text(text.text))
            }
        })
    }

    /// Returns a note about the parameters that a view does not use, if any of them changes a
    /// setting.
    fn ineffective_parameters(&self, view: PprofView, settings: &ViewConfig) -> Option<String> {
        let unused: &[&str] = match view {
            PprofView::Top => &["n", "ef", "calltree", "intel"],
            PprofView::Flame => &[
                "n", "nf", "ef", "trim", "sort", "calltree", "dropneg", "intel",
            ],
            PprofView::Peek => &["g", "n", "nf", "ef", "trim", "calltree", "intel"],
            PprofView::Source | PprofView::Disasm => &[
                "g",
                "n",
                "nf",
                "ef",
                "trim",
                "sort",
                "calltree",
                "noinlines",
                "compact",
            ],
        };
        // The base was subtracted when the profile was read.
        let is_unused = |key: &str| unused.contains(&key) || key == "norm";
        let changed = settings.fields().zip(self.config.fields());
        let changed = changed.filter(|((_, value), (_, before))| value != before);
        let keys: Vec<&str> = changed
            .map(|((field, _), _)| field.parameter)
            .filter(|key| is_unused(key))
            .collect();
        match keys[..] {
            [] => None,
            ref keys => Some(format!(
                "{}: no effect on this view, as in pprof",
                keys.join(", ")
            )),
        }
    }
}

impl PprofViews for LoadedViews {
    fn show(
        &self,
        view: PprofView,
        parameters: &[(String, String)],
        max_bytes: usize,
    ) -> Result<PprofViewReport> {
        let mut settings = self.config.clone();
        check_parameters(parameters, |key| {
            view == PprofView::Flame && key == PIVOT_PARAMETER
        })?;
        settings.apply(parameters).map_err(|why| anyhow!(why))?;
        let given = |name: &str| {
            let found = parameters.iter().find(|(key, _)| key == name);
            found.map_or("", |(_, value)| value.as_str())
        };
        let (format, overrides): (&'static str, &[(&str, &str)]) = match view {
            PprofView::Top => ("top", &[("nodecount", TOP_ROWS)]),
            PprofView::Flame => ("svg", &[("call_tree", "t"), ("trim", "f")]),
            PprofView::Peek => ("peek", &[("granularity", "lines")]),
            PprofView::Source => ("weblist", &[("noinlines", "f")]),
            PprofView::Disasm => ("disasm", &[("noinlines", "t")]),
        };
        let ineffective = self.ineffective_parameters(view, &settings);
        for (name, value) in overrides {
            settings.set(name, value).map_err(|why| anyhow!(why))?;
        }
        if view == PprofView::Flame && settings.get("granularity").is_empty() {
            let set = settings.set("granularity", "filefunctions");
            set.map_err(|why| anyhow!(why))?;
        }
        // The same parameter also filters, so these views show only stacks with a match.
        let has_functions = !matches!(view, PprofView::Top | PprofView::Flame);
        let about = has_functions.then(|| given("f"));
        let host = ReportNotes::default();
        let config = PprofConfig {
            host: &host,
            format,
            about: about.map(str::to_string),
            granularity: granularity(settings.get("granularity")),
            cum_sort: settings.get("sort") == "cum",
            sample_index: settings.get("sample_index").to_string(),
            mean: settings.get("mean") == "true",
            binary: None,
            sources: Vec::new(),
            base: None,
            diff: false,
            is_shell: false,
            tool_deadline: Some(Instant::now() + MAX_TOOL_TIME),
            flags: self.flags_of(&settings),
        };
        let shown = self.content(view, &config, given(PIVOT_PARAMETER), max_bytes);
        drop(config);
        let mut notes = host.into_notes();
        let (labels, body) = match shown {
            Ok(shown) => shown,
            // The notes may have the cause, such as a binary that is not there.
            Err(error) if notes.is_empty() => return Err(error),
            Err(error) => bail!("{error:#}; {}", notes.join("; ")),
        };
        notes.extend(ineffective);
        Ok(PprofViewReport {
            labels,
            notes,
            body,
        })
    }

    fn title(&self, parameters: &[(String, String)]) -> String {
        let main = self.profile.mapping.first();
        let binary = main.map_or("", |main| self.profile.text(main.filename));
        let sample_type = self.sample_type(parameters);
        match binary {
            "" => sample_type,
            binary => format!("{} {sample_type}", crate::graph::base(binary)),
        }
    }

    fn sample_type(&self, parameters: &[(String, String)]) -> String {
        let mut settings = self.config.clone();
        let column = match settings.apply(parameters) {
            Ok(()) => print::column(&self.profile, settings.get("sample_index")),
            Err(_) => return String::new(),
        };
        let name = |column: usize| self.profile.type_names()[column].to_string();
        column.map_or_else(|_| String::new(), name)
    }

    fn sample_types(&self) -> Vec<&str> {
        self.profile.type_names()
    }

    fn values(&self, parameters: &[(String, String)]) -> Result<Vec<(&'static str, String)>> {
        let mut settings = self.config.clone();
        settings.apply(parameters).map_err(|why| anyhow!(why))?;
        let fields = settings
            .fields()
            .filter(|(field, _)| !field.parameter.is_empty());
        Ok(fields
            .map(|(field, value)| (field.parameter, value.to_string()))
            .collect())
    }

    fn write_profile(&self, out: &mut dyn Write) -> Result<()> {
        let options = EncodeOptions::default().gzip(Gzip::Loose);
        Ok(encode_with(&self.profile, out, options)?)
    }

    fn save_config(
        &self,
        content: Option<&[u8]>,
        parameters: &[(String, String)],
    ) -> Result<Vec<u8>> {
        configs::save(&self.config, content, parameters)
    }

    fn delete_config(
        &self,
        content: Option<&[u8]>,
        parameters: &[(String, String)],
    ) -> Result<Vec<u8>> {
        configs::delete(content, parameters)
    }

    fn config_menu(
        &self,
        content: Option<&[u8]>,
        parameters: &[(String, String)],
    ) -> Result<Vec<ConfigLink>> {
        configs::menu(content, parameters)
    }
}

/// Refuses a parameter that is neither a setting nor in `is_known`.
fn check_parameters(
    parameters: &[(String, String)],
    is_known: impl Fn(&str) -> bool,
) -> Result<()> {
    let is_setting = |key: &str| {
        let mut fields = CONFIG_FIELDS.iter();
        fields.any(|field| !field.parameter.is_empty() && field.parameter == key)
    };
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let mut keys = given.map(|(key, _)| key.as_str());
    match keys.find(|key| !is_setting(key) && !is_known(key)) {
        Some(key) => bail!("this view has no parameter {key:?}"),
        None => Ok(()),
    }
}

/// Returns a granularity as the name of its flag; empty if there is no such flag.
fn granularity(name: &str) -> &'static str {
    let mut flags = flags_in_group(FlagGroup::Granularity);
    let found = flags.find(|flag| flag.name == name);
    found.map_or("", |flag| flag.name)
}
