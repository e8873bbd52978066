//! The options of a question: which values, what a row is, and which samples count.

use clap::Args;
use heapprof_analysis::{Granularity, Query, QueryFilters};

use super::CodeArgs;

#[derive(Debug, Args)]
#[command(next_help_heading = "Question")]
pub(crate) struct QuestionArgs {
    /// Which values to show: inuse, peak, alloc, inuse_objects or another sample type of the
    /// profile; the default is inuse, or peak if most memory was freed before the end
    #[arg(short = 't', long, value_name = "TYPE")]
    pub(crate) sample_type: Option<String>,
    /// What a row is: functions, filefunctions, files, lines or addresses
    #[arg(short, long, value_name = "LEVEL", default_value_t = Granularity::Functions)]
    pub(crate) granularity: Granularity,
    /// Attribute the values of an inlined function to the function that it was inlined into
    #[arg(long, hide_short_help = true)]
    pub(crate) no_inlines: bool,
    #[command(flatten)]
    pub(crate) code: CodeArgs,
    /// Show percentages of what the filters keep instead of percentages of the whole profile
    #[arg(long, hide_short_help = true)]
    pub(crate) relative_percentages: bool,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Filters (regular expressions on function, file and mapping names)")]
pub(crate) struct FilterArgs {
    /// Keep only samples with a matching frame
    #[arg(long, value_name = "REGEX", hide_short_help = true)]
    focus: Option<String>,
    /// Leave out samples with a matching frame
    #[arg(long, value_name = "REGEX", hide_short_help = true)]
    ignore: Option<String>,
    /// Leave out matching frames; their values go to the nearest kept frame toward the root
    #[arg(long, value_name = "REGEX", hide_short_help = true)]
    hide: Option<String>,
    /// Keep only matching frames
    #[arg(long, value_name = "REGEX", hide_short_help = true)]
    show: Option<String>,
    /// Cut the callers of the matching frame that is nearest to the root
    #[arg(long, value_name = "REGEX", hide_short_help = true)]
    show_from: Option<String>,
    /// Cut the callees of the matching function that is nearest to the leaf
    #[arg(long, value_name = "REGEX", hide_short_help = true)]
    prune_from: Option<String>,
    /// Keep only samples with a matching label: [key=]REGEX or a range such as 32kb:1mb
    #[arg(long, value_name = "LABEL", hide_short_help = true)]
    tag_focus: Option<String>,
    /// Leave out samples with a matching label
    #[arg(long, value_name = "LABEL", hide_short_help = true)]
    tag_ignore: Option<String>,
    /// Label keys whose values become frames at the root
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        hide_short_help = true
    )]
    tag_root: Vec<String>,
    /// Label keys whose values become frames at the leaf
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        hide_short_help = true
    )]
    tag_leaf: Vec<String>,
}

impl QuestionArgs {
    /// The question of a report that shows the program's own code unless the user asks for all
    /// code, all frames, or addresses.
    pub(crate) fn query(&self) -> Query {
        let code = &self.code;
        let is_whole = code.all_code || code.all_frames;
        let has_names = self.granularity != Granularity::Addresses;
        Query {
            own_code: code.own_code || has_names && !is_whole,
            ..self.query_of_all_code()
        }
    }

    /// The question of a report that rules may judge. Rules mean the same for all profiles: they
    /// are about what is in use, and about all code, unless the user asks for something else.
    pub(crate) fn judged_query(&self, is_judged: bool) -> Query {
        let query = match is_judged {
            true => self.query_of_all_code(),
            false => return self.query(),
        };
        Query {
            keeps_in_use: true,
            ..query
        }
    }

    /// The question of a report that shows all code unless the user asks for own code.
    pub(crate) fn query_of_all_code(&self) -> Query {
        let f = &self.filters;
        Query {
            sample_type: self.sample_type.clone(),
            granularity: self.granularity,
            no_inlines: self.no_inlines,
            wrappers: self.code.wrappers.clone(),
            own_code: self.code.own_code,
            all_frames: self.code.all_frames,
            relative_percentages: self.relative_percentages,
            filters: QueryFilters {
                focus: f.focus.clone(),
                ignore: f.ignore.clone(),
                hide: f.hide.clone(),
                show: f.show.clone(),
                show_from: f.show_from.clone(),
                prune_from: f.prune_from.clone(),
                tag_focus: f.tag_focus.clone(),
                tag_ignore: f.tag_ignore.clone(),
                tag_root: f.tag_root.clone(),
                tag_leaf: f.tag_leaf.clone(),
                ..QueryFilters::default()
            },
            ..Query::default()
        }
    }
}

/// Which labels a report that shows labels shows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Labels")]
pub(crate) struct LabelArgs {
    /// Show only labels whose key matches
    #[arg(long, value_name = "REGEX")]
    tag_show: Option<String>,
    /// Leave out labels whose key matches
    #[arg(long, value_name = "REGEX")]
    tag_hide: Option<String>,
}

impl LabelArgs {
    /// The query with what is to be shown of labels.
    pub(crate) fn applied(&self, mut query: Query) -> Query {
        query.filters.tag_show = self.tag_show.clone();
        query.filters.tag_hide = self.tag_hide.clone();
        query
    }
}
