//! What the views of pprof's page have, for the program that serves the page.

use std::fmt;
use std::io::Write;

use anyhow::Result;

use crate::report::{FlameGraph, ListingRow, TopRow};

/// A view of pprof's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PprofView {
    /// The flame graph.
    Flame,
    /// The rows of functions.
    Top,
    /// Functions with their callers and callees.
    Peek,
    /// Lines of source files.
    Source,
    /// Instructions.
    Disasm,
}

/// All views, with their names in the path of a URL and their titles.
pub const PPROF_VIEWS: [(PprofView, &str, &str); 5] = [
    (PprofView::Flame, "flamegraph", "Flame graph"),
    (PprofView::Top, "top", "Top"),
    (PprofView::Peek, "peek", "Peek"),
    (PprofView::Source, "source", "Source"),
    (PprofView::Disasm, "disasm", "Disassembly"),
];

/// The content of a view.
#[derive(Clone, Debug)]
pub struct PprofViewReport {
    /// The lines that describe the profile and the rows.
    pub labels: Vec<String>,
    /// What the user should know about the rows, or about parameters without an effect.
    pub notes: Vec<String>,
    /// The rows.
    pub body: PprofViewBody,
}

/// The rows of a view.
#[derive(Clone, Debug)]
pub enum PprofViewBody {
    /// The rows of Top.
    Rows(Vec<PercentRow>),
    /// The flame graph.
    Flame(Box<FlameGraph>),
    /// A text of lines.
    Text(Vec<u8>),
    /// Source lines of functions, with the instructions of each line.
    Listing(Vec<ListingRow>),
}

/// A row of Top, with its shares of the total in percent.
#[derive(Clone, Debug)]
pub struct PercentRow {
    /// The row.
    pub row: TopRow,
    /// The shares of flat, of the flats of all rows so far, and of cum.
    pub percent: [String; 3],
}

/// A saved configuration in the page's menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLink {
    /// The name of the configuration.
    pub name: String,
    /// The parameters of the URL that has this configuration.
    pub parameters: Vec<(String, String)>,
    /// Whether the page has this configuration already.
    pub is_current: bool,
    /// Whether the user saved the configuration.
    pub is_saved: bool,
}

/// The views of a profile. Several threads may make views at the same time.
pub trait PprofViews: fmt::Debug + Send + Sync {
    /// Makes the view at a URL with `parameters`. A text has at most `max_bytes`.
    ///
    /// # Errors
    /// A parameter is unknown or has a wrong value, or the view has no rows.
    fn show(
        &self,
        view: PprofView,
        parameters: &[(String, String)],
        max_bytes: usize,
    ) -> Result<PprofViewReport>;

    /// Returns a name of the profile for people: its binary, and the shown sample type.
    fn title(&self, parameters: &[(String, String)]) -> String;

    /// Returns the name of the sample type that `parameters` choose; empty if they choose none.
    fn sample_type(&self, parameters: &[(String, String)]) -> String;

    /// Returns the names of the sample types.
    fn sample_types(&self) -> Vec<&str>;

    /// Returns the value of each parameter that a URL can have, in the order of the settings.
    ///
    /// # Errors
    /// A parameter has a wrong value.
    fn values(&self, parameters: &[(String, String)]) -> Result<Vec<(&'static str, String)>>;

    /// Writes the whole profile, gzipped, without filters.
    ///
    /// # Errors
    /// Writing fails.
    fn write_profile(&self, out: &mut dyn Write) -> Result<()>;

    /// Returns the content of the settings file after the configuration of a URL was saved in it.
    /// The parameter `config` is the name of the configuration. `content` is the content before;
    /// `None` if there is no file.
    ///
    /// # Errors
    /// The file or a parameter is wrong, or there is no name.
    fn save_config(
        &self,
        content: Option<&[u8]>,
        parameters: &[(String, String)],
    ) -> Result<Vec<u8>>;

    /// Returns the content of the settings file without the configuration that the parameter
    /// `config` names.
    ///
    /// # Errors
    /// The file is wrong, or there is no such configuration.
    fn delete_config(
        &self,
        content: Option<&[u8]>,
        parameters: &[(String, String)],
    ) -> Result<Vec<u8>>;

    /// Returns the menu of configurations: pprof's defaults and those of the settings file, with
    /// the parameters of a URL that has the configuration.
    ///
    /// # Errors
    /// The file is wrong.
    fn config_menu(
        &self,
        content: Option<&[u8]>,
        parameters: &[(String, String)],
    ) -> Result<Vec<ConfigLink>>;
}
