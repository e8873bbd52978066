//! Filters that are compiled for one profile. Each regular expression is matched once against each
//! function, and the results are stored as bits.

use heapprof_profile::{ALLOCATOR_REGEX, LocationIndex, Profile, after_allocators};
use regex::Regex;

use crate::error::TotalsError;
use crate::frames::{FrameTable, ProfileFrame};
use crate::label_filter::LabelFilter;
use crate::note::FilterNote;
use crate::pattern::{compile, regex_error};
use crate::query::{Query, QueryFilters};
use heapprof_text::explain_shown_match;

/// Bits of a frame: the filters that match it.
pub mod bit {
    /// `focus` matches.
    pub const FOCUS: u8 = 1;
    /// `ignore` matches.
    pub const IGNORE: u8 = 2;
    /// `hide` matches, or `show` is set and does not match.
    pub const HIDDEN: u8 = 4;
    /// `show_from` matches.
    pub const SHOW_FROM: u8 = 8;
    /// `prune_from` matches.
    pub const PRUNE_FROM: u8 = 16;
    /// The profile's `drop_frames` cuts this line.
    pub const DROP_LINE: u8 = 32;
}

/// Bits of a location: which frames `drop_frames` cuts because it matches lines of the location.
pub mod drop {
    /// The outermost line of the location matched, so the whole location is cut.
    pub const ALL: u8 = 1;
    /// A line of the location matched, so all callees of the location are cut.
    pub const BENEATH: u8 = 2;
}

/// Filters that can be applied to the stacks of one profile.
#[derive(Default)]
pub struct CompiledFilters {
    /// The bits of each frame; empty if no filter depends on frames.
    pub frame: Vec<u8>,
    /// For each location, the bits [`drop::ALL`] and [`drop::BENEATH`]; empty if `drop_frames`
    /// matches no location.
    pub drop: Vec<u8>,
    /// For each label set, whether samples with it are kept; empty if all samples are kept.
    pub label_set: Vec<bool>,
    /// The frames that labels add to samples, by label set: first the frames at the root (outermost
    /// last), then the frames at the leaf (innermost first).
    pub label_frames: Vec<(Vec<u32>, Vec<u32>)>,
    /// Whether any frame has [`bit::DROP_LINE`].
    pub drops_lines: bool,
    /// Whether samples need a frame that `focus` matches.
    pub focus: bool,
    /// Whether samples with a frame that `ignore` matches are left out.
    pub ignore: bool,
    /// Whether some frames are hidden.
    pub hide: bool,
    /// Whether the callers of a frame that `show_from` matches are left out.
    pub show_from: bool,
    /// Whether the callees of a frame that `prune_from` matches are left out.
    pub prune_from: bool,
    /// Notes that the user should see.
    pub notes: Vec<FilterNote>,
}

/// The filters `tag_show` and `tag_hide`, which select the label keys to show.
pub struct LabelKeys {
    show: Option<Regex>,
    hide: Option<Regex>,
}

impl LabelKeys {
    /// Compiles both filters. Fails if one is not a regular expression.
    pub fn new(filters: &QueryFilters) -> Result<Self, TotalsError> {
        Ok(Self {
            show: compile("tag-show", &filters.tag_show)?,
            hide: compile("tag-hide", &filters.tag_hide)?,
        })
    }

    /// Whether labels with this key are shown.
    pub fn shows(&self, key: &str) -> bool {
        self.show.as_ref().is_none_or(|r| r.is_match(key))
            && !self.hide.as_ref().is_some_and(|r| r.is_match(key))
    }
}

impl CompiledFilters {
    /// Compiles the filters of a query for a profile. Fails if a filter is not valid.
    pub fn new(
        profile: &Profile,
        frames: &mut FrameTable,
        query: &Query,
    ) -> Result<Self, TotalsError> {
        let filters = &query.filters;
        let mut compiled = Self::default();
        if !query.all_frames {
            compiled.compile_drop(profile, frames, &query.wrappers)?;
        }
        compiled.label_frames(profile, frames, filters);
        let focus = compile("focus", &filters.focus)?;
        let ignore = compile("ignore", &filters.ignore)?;
        let hide = compile("hide", &filters.hide)?;
        let show = compile("show", &filters.show)?;
        let show_from = compile("show-from", &filters.show_from)?;
        let prune_from = compile("prune-from", &filters.prune_from)?;

        compiled.mark(profile, frames, focus.as_ref(), bit::FOCUS, true);
        compiled.mark(profile, frames, ignore.as_ref(), bit::IGNORE, true);
        compiled.mark(profile, frames, hide.as_ref(), bit::HIDDEN, false);
        compiled.mark(profile, frames, show_from.as_ref(), bit::SHOW_FROM, false);
        if let Some(show) = &show {
            let matches = RegexMatches::new(profile, show);
            compiled.bits(frames);
            for f in 0..frames.len() {
                if !matches.frame(profile, frames.get(f as u32)) {
                    compiled.bits(frames)[f] |= bit::HIDDEN;
                }
            }
        }
        if let Some(regex) = &prune_from {
            for f in 0..frames.len() {
                let name = function_name(profile, frames.get(f as u32));
                if !name.is_empty() && regex.is_match(simple_name(name)) {
                    compiled.bits(frames)[f] |= bit::PRUNE_FROM;
                }
            }
        }
        compiled.focus = focus.is_some();
        compiled.ignore = ignore.is_some();
        compiled.hide = hide.is_some() || show.is_some();
        compiled.show_from = show_from.is_some();
        compiled.prune_from = prune_from.is_some();
        compiled.label_sets(profile, filters)?;
        compiled.note_unmatched(profile, frames, filters);
        Ok(compiled)
    }

    /// Whether the filters leave every stack unchanged.
    pub fn is_identity(&self) -> bool {
        self.frame.is_empty()
            && self.drop.is_empty()
            && self.label_set.is_empty()
            && self.label_frames.is_empty()
            && !(self.focus || self.ignore || self.show_from || self.prune_from)
    }

    fn bits(&mut self, frames: &FrameTable) -> &mut [u8] {
        self.frame.resize(frames.len(), 0);
        &mut self.frame
    }

    /// Sets `bit` on frames that match. With `whole`, sets it on all frames of a location if any of
    /// them matches.
    fn mark(
        &mut self,
        profile: &Profile,
        frames: &FrameTable,
        regex: Option<&Regex>,
        bit: u8,
        whole: bool,
    ) {
        let Some(regex) = regex else { return };
        let matches = RegexMatches::new(profile, regex);
        let bits = self.bits(frames);
        for (f, bits) in bits.iter_mut().enumerate() {
            if matches.frame(profile, frames.get(f as u32)) {
                *bits |= bit;
            }
        }
        if !whole {
            return;
        }
        for l in 0..profile.location.len() {
            let range = frames.frames_of(LocationIndex(l as u32));
            let range = range.start as usize..range.end as usize;
            if bits[range.clone()].iter().any(|b| b & bit != 0) {
                bits[range].iter_mut().for_each(|b| *b |= bit);
            }
        }
    }

    /// Compiles `drop_frames` and `keep_frames`, and applies them exactly as pprof does
    /// (profile/prune.go). Functions whose names contain a match of `names` are dropped as well.
    fn compile_drop(
        &mut self,
        profile: &Profile,
        frames: &FrameTable,
        names: &Option<String>,
    ) -> Result<(), TotalsError> {
        let whole = |id, what: &'static str, notes: &mut Vec<FilterNote>| {
            let text = profile.text(id);
            if text.is_empty() {
                return None;
            }
            Regex::new(&format!("^(?:{text})$"))
                .map_err(|e| {
                    notes.push(FilterNote::WrongExpression {
                        what,
                        text: text.to_string(),
                        why: regex_error(&e),
                    });
                })
                .ok()
        };
        let wrappers = compile("wrappers", names)?;
        let mut drop = whole(profile.drop_frames, "drop_frames", &mut self.notes);
        // The text that was added to heapprof's own table is no valid expression, so the table is
        // used without that text.
        if drop.is_none() && after_allocators(profile.text(profile.drop_frames)).is_some() {
            drop = Regex::new(&format!("^(?:{ALLOCATOR_REGEX})$")).ok();
        }
        if drop.is_none() && wrappers.is_none() {
            return Ok(());
        }
        let keep = whole(profile.keep_frames, "keep_frames", &mut self.notes);
        let matches =
            |regex: &Option<Regex>, name| regex.as_ref().is_some_and(|r| r.is_match(name));
        let mut is_wrapped = false;
        let dropped: Vec<bool> = profile
            .function
            .iter()
            .map(|f| {
                let name = simple_name(profile.text(f.name));
                let is_wrapper = !f.name.is_empty() && matches(&wrappers, name);
                is_wrapped |= is_wrapper;
                is_wrapper || !f.name.is_empty() && matches(&drop, name) && !matches(&keep, name)
            })
            .collect();
        if let (Some(names), false) = (names, is_wrapped) {
            self.notes.push(FilterNote::NoWrapper(names.clone()));
        }
        for (l, location) in profile.location.iter().enumerate() {
            let lines = profile.lines(location);
            let Some(outermost) = lines
                .iter()
                .rposition(|line| dropped[line.function.index()])
            else {
                continue;
            };
            self.drop.resize(profile.location.len(), 0);
            self.drop[l] = drop::BENEATH;
            if outermost == lines.len() - 1 {
                self.drop[l] |= drop::ALL;
                continue;
            }
            let range = frames.frames_of(LocationIndex(l as u32));
            let cut = range.start + outermost as u32;
            let bits = self.bits(frames);
            for f in range {
                if f <= cut && frames.frames_of(LocationIndex(l as u32)).len() == lines.len() {
                    bits[f as usize] |= bit::DROP_LINE;
                }
            }
            self.drops_lines = true;
        }
        Ok(())
    }

    fn label_frames(&mut self, profile: &Profile, frames: &mut FrameTable, filters: &QueryFilters) {
        if filters.tag_root.is_empty() && filters.tag_leaf.is_empty() {
            return;
        }
        let mut known = std::collections::HashMap::new();
        let mut frame = |frames: &mut FrameTable, key: &str, set: u32| {
            let labels = profile.label_sets.get(heapprof_profile::LabelSetIndex(set));
            let texts: Vec<String> = labels
                .iter()
                .filter(|l| profile.text(l.key) == key)
                .map(|l| crate::frames::label_text(profile, l))
                .collect();
            let value = match texts.is_empty() {
                true => format!("(no {key})"),
                // The text includes the key, so that it is not mistaken for a function of that
                // name.
                false => format!("{key}={}", texts.join(",")),
            };
            *known
                .entry((key.to_string(), value.clone()))
                .or_insert_with(|| frames.push_label(key, &value))
        };
        for set in 0..profile.label_sets.len() as u32 {
            // Stacks are leaf first, so the frame of the outermost key comes last.
            let root = filters
                .tag_root
                .iter()
                .rev()
                .map(|k| frame(frames, k, set))
                .collect();
            let leaf = filters
                .tag_leaf
                .iter()
                .rev()
                .map(|k| frame(frames, k, set))
                .collect();
            self.label_frames.push((root, leaf));
        }
    }

    fn label_sets(&mut self, profile: &Profile, filters: &QueryFilters) -> Result<(), TotalsError> {
        let parse = |filter, text: &Option<String>| {
            text.as_ref()
                .map(|t| LabelFilter::parse(filter, t))
                .transpose()
        };
        let focus = parse("tag-focus", &filters.tag_focus)?;
        let ignore = parse("tag-ignore", &filters.tag_ignore)?;
        if focus.is_none() && ignore.is_none() {
            return Ok(());
        }
        let counts = |set| {
            let labels = profile.label_sets.get(heapprof_profile::LabelSetIndex(set));
            focus.as_ref().is_none_or(|f| f.matches(profile, labels))
                && !ignore.as_ref().is_some_and(|f| f.matches(profile, labels))
        };
        self.label_set = (0..profile.label_sets.len() as u32).map(counts).collect();
        Ok(())
    }

    /// Adds notes about filters that match nothing, because this is usually a mistake.
    fn note_unmatched(&mut self, profile: &Profile, frames: &FrameTable, filters: &QueryFilters) {
        let names = || profile.function.iter().map(|f| profile.text(f.name));
        let note = |option, text: &str| {
            let reason = Regex::new(text).map(|regex| explain_shown_match(&regex, names()));
            FilterNote::NoFrame {
                filter: option,
                text: text.to_string(),
                reason: reason.ok().flatten(),
            }
        };
        let table = [
            ("focus", &filters.focus, bit::FOCUS),
            ("ignore", &filters.ignore, bit::IGNORE),
            ("show-from", &filters.show_from, bit::SHOW_FROM),
            ("prune-from", &filters.prune_from, bit::PRUNE_FROM),
            ("hide", &filters.hide, bit::HIDDEN),
        ];
        for (option, text, bit) in table {
            if let Some(text) = text
                && !self.frame.iter().any(|b| b & bit != 0)
            {
                self.notes.push(note(option, text));
            }
        }
        if let Some(show) = &filters.show
            && self.frame.iter().all(|b| b & bit::HIDDEN != 0)
            && frames.len() > 0
        {
            self.notes.push(note("show", show));
        }
        if !self.label_set.is_empty() && !self.label_set.contains(&true) {
            self.notes.push(FilterNote::NoSample);
        }
    }
}

/// The functions and mapped files of a profile that a regular expression matches.
pub struct RegexMatches<'a> {
    regex: &'a Regex,
    /// For each function, whether its name or file matches.
    pub function: Vec<bool>,
    /// For each mapped file, whether its name matches.
    pub mapping: Vec<bool>,
}

impl<'a> RegexMatches<'a> {
    /// Matches the expression against all functions and mapped files of the profile.
    pub fn new(profile: &Profile, regex: &'a Regex) -> Self {
        let is = |id| regex.is_match(profile.text(id));
        Self {
            function: profile
                .function
                .iter()
                .map(|f| is(f.name) || is(f.filename))
                .collect(),
            mapping: profile.mapping.iter().map(|m| is(m.filename)).collect(),
            regex,
        }
    }

    fn frame(&self, profile: &Profile, frame: &ProfileFrame) -> bool {
        let in_mapping = |location: LocationIndex| {
            let mapping = profile.location[location.index()].mapping;
            mapping.is_some_and(|m| self.mapping[m.index()])
        };
        match frame {
            ProfileFrame::Line { location, line } => {
                self.function[profile.line[*line as usize].function.index()]
                    || in_mapping(*location)
            }
            ProfileFrame::Address { location } => {
                in_mapping(*location)
                    || self
                        .regex
                        .is_match(&profile.address_name(&profile.location[location.index()]))
            }
            ProfileFrame::Label { key, value } => {
                self.regex.is_match(key) || self.regex.is_match(value)
            }
        }
    }
}

fn function_name<'a>(profile: &'a Profile, frame: &'a ProfileFrame) -> &'a str {
    match (frame, frame.function(profile)) {
        (_, Some(function)) => profile.text(profile.function[function.index()].name),
        (ProfileFrame::Label { value, .. }, None) => value,
        _ => "",
    }
}

/// Returns a name without a leading dot and without its parameters. `drop_frames` is matched
/// against this form.
pub fn simple_name(name: &str) -> &str {
    let name = name.strip_prefix('.').unwrap_or(name);
    let mut from = 0;
    while let Some(found) = name[from..].find('(') {
        let at = from + found;
        let kept = ["(anonymous namespace)", "()"];
        let operator = name[..at].ends_with("operator");
        match kept.iter().position(|k| name[at..].starts_with(k)) {
            Some(0) => from = at + kept[0].len(),
            Some(1) if operator => from = at + kept[1].len(),
            _ => return &name[..at],
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use heapprof_profile::{ALLOCATION_WRAPPERS, ALLOCATOR_REGEX};
    use regex::Regex;

    #[test]
    fn simple_names() {
        let table = [
            ("malloc", "malloc"),
            (".malloc", "malloc"),
            ("ns::f(int)", "ns::f"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("T::operator()(int)", "T::operator()"),
        ];
        for (name, expected) in table {
            assert_eq!(super::simple_name(name), expected);
        }
    }

    /// Checks that the table of wrappers matches no other function. Cutting a frame also cuts all
    /// its callees, so the table must not match a function that may run the program's own code.
    #[test]
    fn wrappers_are_these_and_no_others() {
        let table = Regex::new(&format!("^(?:{ALLOCATOR_REGEX})$")).unwrap();
        let is_one = |name: &str| table.is_match(super::simple_name(name));
        for name in [
            "malloc",
            "operator new(unsigned long)",
            "xmalloc",
            "xcalloc",
            "xnmalloc",
            "x2nrealloc",
            "zmalloc_usable",
            "ztrymalloc_usable_internal",
            "g_malloc0_n",
            "Perl_safesysrealloc",
            "_PyObject_Malloc",
            "PyMem_RawMalloc",
            "libheapprof.so+0x11eed0",
            "ngx_pcalloc",
            "sqlite3DbMallocRawNN",
            "sqlite3_malloc64",
            "CRYPTO_zalloc",
            "uv__calloc",
            "ruby_xmalloc2",
            "_emalloc_56",
            "moz_xmalloc",
            "palloc0",
            "QArrayData::allocate(QArrayData**, long, long)",
            "luaM_malloc_",
            "os::malloc(unsigned long, MEMFLAGS)",
            "CHeapObj<(MEMFLAGS)7>::operator new(unsigned long)",
            "llvm::SmallVectorBase<unsigned int>::grow_pod(void*, unsigned long, unsigned long)",
            "char* node::UncheckedMalloc<char>(unsigned long)",
            "void va_heap::reserve<int>(vec<int>*&, unsigned int, bool)",
            "std::__new_allocator<int>::allocate(unsigned long, void const*)",
            "std::allocator_traits<std::allocator<int> >::allocate(std::allocator<int>&, unsigned \
             long)",
            "std::_Vector_base<std::function<void (int)>, std::allocator<std::function<void \
             (int)> > >::_M_allocate(unsigned long)",
            "std::__new_allocator<std::_Sp_counted_ptr_inplace<Order, std::allocator<void>, \
             (__gnu_cxx::_Lock_policy)2> >::allocate(unsigned long, void const*)",
            "alloc::raw_vec::finish_grow",
            "alloc::boxed::Box<T>::new",
            "<alloc::boxed::Box<shop::Order>>::new",
        ] {
            assert!(is_one(name), "{name}");
        }
        for name in [
            "main",
            "xmalloc_table",
            "my_malloc",
            "dictAddRaw",
            "_sdsnewlen",
            "Arena::grow",
            "alloc_page",
            "PyList_New",
            "_PyObject_GC_New",
            "PyType_GenericAlloc",
            "qsort",
            "g_hash_table_insert",
            "allocate",
            "sqlite3VdbeExec",
            "std::vector<Order, std::allocator<Order> >::emplace_back<>()",
            "std::allocator_traits<my::Arena<int> >::allocate(my::Arena<int>&, unsigned long)",
            "std::allocator_traits<std::allocator<Order> \
             >::construct<Order>(std::allocator<Order>&, Order*)",
            "std::__new_allocator<Order>::construct<Order>(Order*)",
            "std::shared_ptr<Order> std::make_shared<Order>()",
            "shop::Pool<int, std::__1::allocator<int> >::allocate_order()",
            "<alloc::boxed::Box<dyn shop::Plugin> as shop::Factory>::new",
            "alloc::vec::Vec<T,A>::push",
            "<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend",
        ] {
            assert!(!is_one(name), "{name}");
        }
        for (source, names) in ALLOCATION_WRAPPERS {
            for name in *names {
                assert!(Regex::new(name).is_ok(), "{source}: {name}");
            }
        }
    }
}
