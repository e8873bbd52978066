//! Sizes, offsets and numbers of Perl's structures, by version.
//!
//! `layouts.tsv` has a column for each build that was measured: perls 5.20 to 5.42, each with
//! threads (`-thr`) and without (`-nothr`), and Debian's perls. The values come from the headers of
//! each perl. In a cell, `-` means that the version lacks the field, and `sym:PL_x` means that the
//! variable is a separate symbol. `0x20:0:9` is a bit field.

const LAYOUT_TABLE: &str = include_str!("layouts.tsv");

/// The version of a perl, such as 5, 36, 0, as the perl exports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerlVersion {
    /// The first number, 5.
    pub revision: u8,
    /// The number of the series. Odd numbers are series in development.
    pub version: u8,
    /// The number of the release in its series.
    pub subversion: u8,
}

impl core::fmt::Display for PerlVersion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            revision,
            version,
            subversion,
        } = self;
        write!(f, "{revision}.{version}.{subversion}")
    }
}

/// Defines [`PerlLayout`], and the row of the table for each of its fields.
macro_rules! layout {
    (
        needed { $($(#[$doc:meta])* $field:ident $row:literal,)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident $optional_row:literal,)* }
    ) => {
        /// Sizes, offsets (both in bytes) and numbers in one version of Perl. A field is `None` if
        /// the version does not have it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PerlLayout {
            $($(#[$doc])* pub(crate) $field: u32,)*
            $($(#[$optional_doc])* pub(crate) $optional: Option<u32>,)*
        }

        impl PerlLayout {
            const EMPTY: Self = Self {
                $($field: 0,)*
                $($optional: None,)*
            };

            /// Makes a layout. `value` returns the value in a row of the table. Returns `None` if a
            /// needed field is missing.
            pub fn from_rows(value: impl Fn(&str) -> Option<u32>) -> Option<Self> {
                Some(Self {
                    $($field: value($row)?,)*
                    $($optional: value($optional_row),)*
                })
            }

            /// Returns the layout in a column of the table; `None` if a needed field is missing.
            fn in_column(column: usize) -> Option<Self> {
                let mut layout = Self::default();
                let mut found = 0;
                for line in LAYOUT_TABLE.lines().skip(1) {
                    let mut cells = line.split('\t');
                    let (row, cell) = (cells.next()?, cells.nth(column)?);
                    match row {
                        $($row => {
                            layout.$field = parse_number(cell)?;
                            found += 1;
                        })*
                        $($optional_row => layout.$optional = parse_number(cell),)*
                        _ => return None,
                    }
                }
                (found == [$($row),*].len()).then_some(layout)
            }
        }
    };
}

layout! {
    needed {
        si_cxstack "PERL_SI.si_cxstack",
        si_prev "PERL_SI.si_prev",
        si_cxix "PERL_SI.si_cxix",
        si_cxmax "PERL_SI.si_cxmax",
        si_type "PERL_SI.si_type",
        cx_size "sizeof.CX",
        cx_type "CX.cx_u.cx_blk.blku_type",
        /// Offset of the upper half of a context's flags. For an eval, it contains the number of
        /// the op.
        cx_u16 "CX.cx_u.cx_blk.blku_u16",
        cx_oldcop "CX.cx_u.cx_blk.blku_oldcop",
        cx_sub_retop "CX.cx_u.cx_blk.blk_u.blku_sub.retop",
        cx_sub_cv "CX.cx_u.cx_blk.blk_u.blku_sub.cv",
        cx_format_retop "CX.cx_u.cx_blk.blk_u.blku_format.retop",
        cx_format_cv "CX.cx_u.cx_blk.blk_u.blku_format.cv",
        cx_eval_retop "CX.cx_u.cx_blk.blk_u.blku_eval.retop",
        cx_eval_namesv "CX.cx_u.cx_blk.blk_u.blku_eval.old_namesv",
        cx_type_mask "CXTYPEMASK",
        cx_is_sub "CXt_SUB",
        cx_is_format "CXt_FORMAT",
        cx_is_eval "CXt_EVAL",
        /// The flag of a context that belongs to code in a regular expression. The context's kind
        /// is sub or format.
        cx_is_fake "CXp_SUB_RE_FAKE",
        si_is_main "PERLSI_MAIN",
        cop_line "COP.cop_line",
        cop_seq "COP.cop_seq",
        op_next "OP.op_next",
        op_type "OP.op_type",
        op_require "OP_REQUIRE",
        op_dofile "OP_DOFILE",
        op_entereval "OP_ENTEREVAL",
        op_nextstate "OP_NEXTSTATE",
        op_dbstate "OP_DBSTATE",
        op_max "OP_max",
        sv_any "SV.sv_any",
        sv_flags "SV.sv_flags",
        sv_u "SV.sv_u",
        sv_type_mask "SVTYPEMASK",
        sv_is_gv "SVt_PVGV",
        sv_is_cv "SVt_PVCV",
        sv_is_format "SVt_PVFM",
        sv_is_hv "SVt_PVHV",
        /// The flag of a hash with auxiliary data.
        sv_has_aux "SVf_OOK",
        cv_stash "XPVCV.xcv_stash",
        cv_start "XPVCV.xcv_start_u",
        cv_gv "XPVCV.xcv_gv_u",
        cv_flags "XPVCV.xcv_flags",
        cv_is_named "CVf_NAMED",
        cv_is_xsub "CVf_ISXSUB",
        gv_name "XPVGV.xiv_u.xivu_namehek",
        gv_stash "XPVGV.xnv_u.xgv_stash",
        gp_cv "GP.gp_cv",
        gp_egv "GP.gp_egv",
        hek_len "HEK.hek_len",
        hek_key "HEK.hek_key",
        hv_max "XPVHV.xhv_max",
        aux_name "XPVHV_AUX.xhv_name_u",
        aux_name_count "XPVHV_AUX.xhv_name_count",
    }
    optional {
        /// The size of the whole interpreter. Perls with threads export it.
        interpreter_size "sizeof.interp",
        stack_sp "interp.Istack_sp",
        op "interp.Iop",
        stack_base "interp.Istack_base",
        stack_max "interp.Istack_max",
        curcop "interp.Icurcop",
        curstackinfo "interp.Icurstackinfo",
        /// The jump target for code that dies. It is on the stack of the thread that runs the code.
        top_env "interp.Itop_env",
        /// The jump target for code that dies outside of any `eval`. It is in the interpreter.
        start_env "interp.Istart_env",
        db_sub "interp.IDBsub",
        compiling "interp.Icompiling",
        /// A counter that grows with each compilation.
        cop_seqmax "interp.Icop_seqmax",
        phase "interp.Iphase",
        /// The hash with the texts of all shared keys.
        strtab "interp.Istrtab",
        /// The number of values by Perl's own count.
        sv_count "interp.Isv_count",
        /// The first free head.
        sv_root "interp.Isv_root",
        /// The newest arena of heads.
        sv_arenaroot "interp.Isv_arenaroot",
        /// The first free body of each type.
        body_roots "interp.Ibody_roots",
        /// The newest list of arenas of bodies.
        body_arenas "interp.Ibody_arenas",
        /// The newest sub, format or eval whose context is complete, from 5.32.
        si_cxsubix "PERL_SI.si_cxsubix",
        cx_sub_older "CX.cx_u.cx_blk.blk_u.blku_sub.old_cxsubix",
        cx_format_older "CX.cx_u.cx_blk.blk_u.blku_format.old_cxsubix",
        cx_eval_older "CX.cx_u.cx_blk.blk_u.blku_eval.old_cxsubix",
        /// The flag of an eval that is a `try` block, from 5.34.
        cx_is_try "CXp_TRY",
        /// The file of a statement: its name in perls with threads, a glob in others.
        cop_file "COP.cop_file",
        cop_filegv "COP.cop_filegv",
        cv_is_lexical "CVf_LEXICAL",
        /// The sizes of bodies that differ between versions: numbers, regular expressions, objects,
        /// and hashes with auxiliary data.
        body_number "body[2].body_size",
        body_regexp "body[8].body_size",
        body_object "body[16].body_size",
        body_hash "sizeof.XPVHV_WITH_AUX",
        /// Offset, in a hash's body, of the auxiliary data, from 5.36. In older versions the data
        /// is after the array of buckets.
        hv_aux "XPVHV_WITH_AUX.xhv_aux",
    }
}

impl PerlLayout {
    /// The offsets and numbers that releases since 5.32 have in common, and that a walk needs for a
    /// sub's context and statement. The other fields are empty.
    pub(crate) const USUAL: Self = Self {
        cx_size: 104,
        cx_type: 0,
        cx_oldcop: 0x10,
        cx_sub_retop: 0x30,
        cx_sub_older: Some(0x38),
        cx_sub_cv: 0x48,
        cx_type_mask: 15,
        cx_is_sub: 9,
        cx_is_fake: 0x80,
        cop_line: 0x24,
        cop_seq: 0x3c,
        ..Self::EMPTY
    };

    /// Whether the layout has the values of `USUAL`.
    pub(crate) fn is_usual(&self) -> bool {
        let of = |layout: &Self| {
            let Self {
                cx_size,
                cx_type,
                cx_oldcop,
                cx_sub_retop,
                cx_sub_older,
                cx_sub_cv,
                cx_type_mask,
                cx_is_sub,
                cx_is_fake,
                cop_line,
                cop_seq,
                ..
            } = *layout;
            let context = [cx_size, cx_type, cx_oldcop, cx_sub_retop, cx_sub_cv];
            let kind = [cx_type_mask, cx_is_sub, cx_is_fake];
            (context, kind, cx_sub_older, [cop_line, cop_seq])
        };
        of(self) == of(&Self::USUAL)
    }
}

/// Parses the number in a cell of a table of layouts; `None` if the version lacks the field, or if
/// the variable is a separate symbol.
pub fn parse_number(cell: &str) -> Option<u32> {
    let offset = cell.split(':').next()?;
    match offset.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => offset.parse().ok(),
    }
}

/// Splits the name of a column, without Debian's mark, into the version and the kind of build.
fn split_build(column: &str) -> (&str, &str) {
    let column = column.strip_prefix("deb-").unwrap_or(column);
    column.split_once('-').unwrap_or((column, ""))
}

impl PerlLayout {
    /// Returns the layout of a version with or without threads; `None` if it is not known. All
    /// releases of a stable series have one layout. Each release in development has a separate
    /// layout.
    pub fn for_version(version: PerlVersion, has_threads: bool) -> Option<Self> {
        let head = LAYOUT_TABLE.lines().next()?;
        Self::in_column(column_of(head, version, has_threads)?)
    }

    /// Returns the layout in the table's column with a name, such as `deb-5.36.0-thr`.
    pub fn by_column(name: &str) -> Option<Self> {
        let mut columns = LAYOUT_TABLE.lines().next()?.split('\t').skip(1);
        Self::in_column(columns.position(|column| column == name)?)
    }
}

/// Returns the number of the column for a version with or without threads, in a table of layouts.
/// `head` is the table's first line. The column with the rows' names is not counted.
pub fn column_of(head: &str, version: PerlVersion, has_threads: bool) -> Option<usize> {
    let wanted_build = if has_threads { "thr" } else { "nothr" };
    let find = |fits: &dyn Fn(PerlVersion) -> bool| {
        head.split('\t').skip(1).position(|column| {
            let (found, build) = split_build(column);
            build == wanted_build && parse_version(found).is_some_and(fits)
        })
    };
    let is_released = version.version.is_multiple_of(2);
    let same_series =
        |found: PerlVersion| (found.revision, found.version) == (version.revision, version.version);
    let exact = find(&|found| found == version);
    exact.or_else(|| find(&same_series).filter(|_| is_released))
}

fn parse_version(text: &str) -> Option<PerlVersion> {
    let mut parts = text.split('.').map(str::parse);
    let mut part = || parts.next()?.ok();
    Some(PerlVersion {
        revision: part()?,
        version: part()?,
        subversion: part()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn version(text: &str) -> PerlVersion {
        parse_version(text).unwrap()
    }

    #[test]
    fn every_column_is_a_layout() {
        let columns: Vec<&str> = LAYOUT_TABLE
            .lines()
            .next()
            .unwrap()
            .split('\t')
            .skip(1)
            .collect();
        assert!(columns.len() > 30);
        for column in columns {
            let layout = PerlLayout::by_column(column).unwrap_or_else(|| panic!("{column}"));
            // One offset serves subs, formats and evals in the walk.
            let older = [layout.cx_sub_older, layout.cx_format_older];
            assert_eq!(older, [layout.cx_eval_older; 2], "{column}");
            assert_eq!(layout.cx_sub_retop, layout.cx_format_retop, "{column}");
            assert_eq!(layout.cx_sub_retop, layout.cx_eval_retop, "{column}");
            assert_eq!(layout.cx_sub_cv, layout.cx_format_cv, "{column}");
            assert_eq!(layout.cx_type + 2, layout.cx_u16, "{column}");
            assert_eq!(layout.si_cxsubix.is_some(), older[0].is_some(), "{column}");
            assert!(layout.cop_file.is_some() != layout.cop_filegv.is_some());
            let from_5_32 = parse_version(split_build(column).0) >= parse_version("5.32.0")
                && !column.contains("5.41");
            assert_eq!(layout.is_usual(), from_5_32, "{column}");
            assert_eq!(layout.curcop.is_some(), column.contains("-thr"), "{column}");
        }
    }

    #[test]
    fn a_version_has_its_own_layout() {
        let of = |text, threads| PerlLayout::for_version(version(text), threads);
        let column = |name| PerlLayout::by_column(name);
        assert_eq!(of("5.36.0", true), column("deb-5.36.0-thr"));
        assert_eq!(of("5.36.9", true), column("5.36.3-thr"));
        assert_eq!(of("5.36.9", false), column("5.36.3-nothr"));
        assert_eq!(of("5.41.5", true), column("5.41.5-thr"));
        assert_eq!(of("5.41.6", true), None);
        assert_eq!(of("5.18.2", true), None);
        assert_eq!(of("5.44.0", true), None);
        assert_eq!(of("6.36.0", true), None);
        assert_ne!(of("5.36.0", true), of("5.36.0", false));
        assert_ne!(of("5.36.0", true), of("5.32.0", true));
    }

    /// Tests that columns with different layouts belong to different versions or builds, so that a
    /// choice by version accepts only the right column.
    #[test]
    fn the_version_tells_columns_apart() {
        let columns: Vec<&str> = LAYOUT_TABLE
            .lines()
            .next()
            .unwrap()
            .split('\t')
            .skip(1)
            .collect();
        let of = |column: &str| {
            let (text, build) = split_build(column);
            (
                version(text),
                build.starts_with("thr"),
                PerlLayout::by_column(column),
            )
        };
        let mut differ = 0;
        for &column in &columns {
            let (known, has_threads, layout) = of(column);
            assert_eq!(
                PerlLayout::for_version(known, has_threads),
                layout,
                "{column}"
            );
            for &other in &columns {
                let (version, threads, wrong) = of(other);
                if threads != has_threads || wrong == layout {
                    continue;
                }
                differ += 1;
                assert_ne!(
                    PerlLayout::for_version(version, threads),
                    layout,
                    "{column}, {other}"
                );
                let series = |version: PerlVersion| (version.revision, version.version);
                let is_released = known.version.is_multiple_of(2);
                assert!(
                    !is_released || series(version) != series(known),
                    "{column}, {other}"
                );
            }
        }
        assert!(differ > 100, "{differ}");
    }

    #[test]
    fn a_cell_is_a_number_or_nothing() {
        assert_eq!(parse_number("0x20:0:9"), Some(0x20));
        assert_eq!(parse_number("104"), Some(104));
        assert_eq!((parse_number("-"), parse_number("sym:PL_op")), (None, None));
    }
}
