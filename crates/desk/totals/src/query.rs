//! Queries of a profile. All commands use one struct, whose filters are texts as the user wrote
//! them.

use std::fmt;
use std::str::FromStr;

/// The granularity of a report, which determines what each row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// A function, identified by name and file. A row shows the file only if another function has
    /// the same name.
    #[default]
    Functions,
    /// A function, identified by name and file. Rows always show the file.
    FileFunctions,
    /// A source file.
    Files,
    /// A line of a function.
    Lines,
    /// An instruction.
    Addresses,
}

impl Granularity {
    /// All granularities with the names that users type.
    pub const ALL: [(&'static str, Granularity); 5] = [
        ("functions", Granularity::Functions),
        ("filefunctions", Granularity::FileFunctions),
        ("files", Granularity::Files),
        ("lines", Granularity::Lines),
        ("addresses", Granularity::Addresses),
    ];

    /// Whether rows always show their file.
    pub fn has_file(self) -> bool {
        !matches!(self, Granularity::Functions)
    }

    /// Whether rows show their line.
    pub fn has_line(self) -> bool {
        matches!(self, Granularity::Lines | Granularity::Addresses)
    }

    /// Whether rows show their address.
    pub fn has_address(self) -> bool {
        matches!(self, Granularity::Addresses)
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL
            .iter()
            .find(|(_, g)| g == self)
            .map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl FromStr for Granularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, g)| *g).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("{text:?} is not one of {}", names.join(", "))
        })
    }
}

/// The value by which rows are sorted. The largest absolute value is first. Rows with equal values
/// are sorted by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// Flat: the sum over the samples whose leaf is the row.
    #[default]
    Flat,
    /// Cum: the sum over the samples that contain the row anywhere.
    Cum,
}

impl FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "flat" => Ok(SortKey::Flat),
            "cum" => Ok(SortKey::Cum),
            _ => Err(format!("{text:?} is not one of flat, cum")),
        }
    }
}

/// Description of a report: which values of which samples, in which detail, and how many rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// A sample type, by name or position; `None` means the profile's default.
    pub sample_type: Option<String>,
    /// The granularity of rows.
    pub granularity: Granularity,
    /// The order of rows.
    pub sort: SortKey,
    /// Maximum number of rows; `None` means all.
    pub limit: Option<usize>,
    /// The filters for samples and frames.
    pub filters: QueryFilters,
    /// Whether inlined functions are attributed to the function that they were inlined into.
    pub no_inlines: bool,
    /// A regular expression for functions whose frames are cut, like frames that the profile's
    /// `drop_frames` matches.
    pub wrappers: Option<String>,
    /// Whether allocations of libraries count for the nearest caller outside libraries.
    pub own_code: bool,
    /// Whether the frames that the profile's `drop_frames` or [`wrappers`](Self::wrappers) matches
    /// are kept.
    pub all_frames: bool,
    /// Whether percentages refer to the sum of the kept samples instead of the whole profile.
    pub relative_percentages: bool,
    /// Whether, without [`sample_type`](Self::sample_type), the bytes in use are shown if the
    /// profile has them, whatever its default is.
    pub keeps_in_use: bool,
}

impl Query {
    /// Whether rows are functions, and there are no filters and no options that change stacks.
    pub fn is_plain(&self) -> bool {
        self.granularity == Granularity::Functions
            && self.filters == QueryFilters::default()
            && !self.no_inlines
            && self.wrappers.is_none()
            && !self.own_code
            && !self.all_frames
    }
}

/// Filters as the user wrote them. Regular expressions match anywhere and are case-sensitive.
///
/// The filters match function names, file names and the names of mapped files. The tag filters
/// match labels. They are written `[key=]value`, where value is a range of numbers (`32kb`,
/// `:64kb`, `4mb:`, `1kb:2mb`) or regular expressions separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryFilters {
    /// Only samples with a matching frame are kept.
    pub focus: Option<String>,
    /// Samples with a matching frame are left out.
    pub ignore: Option<String>,
    /// Matching frames are left out. Their values go to the nearest frame that is kept.
    pub hide: Option<String>,
    /// Only matching frames are kept.
    pub show: Option<String>,
    /// Only the frames from the leaf up to the matching frame nearest to the root are kept. Samples
    /// without a matching frame are left out.
    pub show_from: Option<String>,
    /// The callees of the matching frame that is nearest to the leaf are left out. Only function
    /// names are matched.
    pub prune_from: Option<String>,
    /// Only samples with a matching label are kept.
    pub tag_focus: Option<String>,
    /// Samples with a matching label are left out.
    pub tag_ignore: Option<String>,
    /// Only labels whose key matches are shown.
    pub tag_show: Option<String>,
    /// Labels whose key matches are not shown.
    pub tag_hide: Option<String>,
    /// Label keys whose values become frames at the root, outermost first.
    pub tag_root: Vec<String>,
    /// Label keys whose values become frames at the leaf.
    pub tag_leaf: Vec<String>,
}

impl QueryFilters {
    /// Returns the filters that are set, each as `option=value`, for the header of a report.
    pub fn active_options(&self) -> Vec<String> {
        let one = [
            ("focus", &self.focus),
            ("ignore", &self.ignore),
            ("hide", &self.hide),
            ("show", &self.show),
            ("show-from", &self.show_from),
            ("prune-from", &self.prune_from),
            ("tag-focus", &self.tag_focus),
            ("tag-ignore", &self.tag_ignore),
            ("tag-show", &self.tag_show),
            ("tag-hide", &self.tag_hide),
        ];
        let many = [("tag-root", &self.tag_root), ("tag-leaf", &self.tag_leaf)];
        let one = one
            .into_iter()
            .filter_map(|(name, value)| value.as_ref().map(|v| format!("{name}={v}")));
        let many = many
            .into_iter()
            .filter(|(_, keys)| !keys.is_empty())
            .map(|(name, keys)| format!("{name}={}", keys.join(",")));
        one.chain(many).collect()
    }
}
