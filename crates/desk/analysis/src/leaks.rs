//! The report `leaks`: memory in use, by stack, the largest first. Rules can suppress stacks, which
//! are then counted but not listed.

use std::collections::HashMap;

use crate::comment::{self, DumpTime};
use crate::coverage::{PythonSmallObjects, has_python, small_objects};
use crate::error::AnalysisError;
use crate::header::{ReportHeader, SampleType, header};
use crate::place::{self, CodePlace, PlaceId, PlaceTable, ShownFile, StackReader};
use crate::question::ProfileQuestion;
use crate::session::{
    AnalysisSession, ESTIMATE_COLUMN_COUNT, read_estimate, read_spread, read_value_with_spread,
};
use crate::suppression::{SuppressionRule, SuppressionSet};
use heapprof_totals::estimate::{SampleStep, SumSpread, ValueEstimate, ValueWithSpread};
use heapprof_totals::query::{Granularity, Query, SortKey};

/// The number and size of blocks that were allocated and not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUseAmount {
    /// The number of blocks.
    pub objects: i64,
    /// The bytes of all blocks.
    pub space: i64,
}

impl InUseAmount {
    /// Whether there are no blocks.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    // The total of all these values fits in 64 bits, so these sums do, too.
    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.space += other.space;
    }

    fn without(self, other: Self) -> Self {
        Self {
            objects: self.objects - other.objects,
            space: self.space - other.space,
        }
    }
}

/// A row of `leaks`: a stack with memory in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeakRow {
    /// The blocks in use that the stack allocated.
    pub in_use: InUseAmount,
    /// The ranges of objects and space; `None` if they are exact.
    pub estimates: [Option<ValueEstimate>; 2],
    /// The frames, leaf first.
    pub stack: Vec<PlaceId>,
    /// The ages of the stack's oldest and youngest block, in nanoseconds, if the profile has ages.
    pub age: Option<[i64; 2]>,
}

/// The report `leaks`. Rows, `other`, `suppressed` and `filtered_out` add up to `total`.
#[derive(Clone, Debug, Default)]
pub struct LeaksReport {
    /// The header of the report, with the sample type that rows are ordered by. Its sums include
    /// suppressed memory.
    pub header: ReportHeader,
    /// The sample types of objects and of space.
    pub types: [SampleType; 2],
    /// The moment when the profile was dumped.
    pub dump_time: DumpTime,
    /// Whether the profile has Python stacks.
    pub has_python: bool,
    /// The state of Python's small objects in the profile.
    pub small_objects: PythonSmallObjects,
    /// The signed sums over all samples, including those that were filtered out or suppressed.
    pub total: InUseAmount,
    /// The places that the ids in [`LeakRow::stack`] refer to.
    pub places: PlaceTable,
    /// The ranges of the two values in `total`: objects, then bytes.
    pub estimates: [Option<ValueEstimate>; 2],
    /// The stacks with memory in use, the largest first.
    pub rows: Vec<LeakRow>,
    /// The sum of the rows that the limit left out, and their number.
    pub other: (InUseAmount, usize),
    /// The sum of the samples that the filters left out.
    pub filtered_out: InUseAmount,
    /// The sum of the samples that rules suppressed.
    pub suppressed: InUseAmount,
    /// Every rule with the sum that it suppressed: the largest first, then in the order in which
    /// the rules were read.
    pub rules: Vec<(SuppressionRule, InUseAmount)>,
    /// The spreads of the objects and the space, without suppressed and filtered-out samples.
    spread: [Option<SumSpread>; 2],
    /// The session's number of the sample type that rows are ordered by.
    by: i64,
}

/// Reports the memory in use in the session's only profile. The session's question must have been
/// made with `TypeSelection::InUse`.
pub fn leaks(
    session: &AnalysisSession,
    query: &Query,
    suppressions: &SuppressionSet,
) -> Result<LeaksReport, AnalysisError> {
    let (header, by) = header(session, 1, query)?;
    let question = session.question.as_deref();
    let question =
        question.ok_or_else(|| AnalysisError::Sql("leaks reads the profile".to_string()))?;
    let estimate = AnalysisSession::estimate_columns("t", "");
    let known = AnalysisSession::spread_columns("t", "kept_");
    let types: Vec<LeakTypeSums> = session.rows(
        &format!(
            "SELECT s.id, s.type, s.unit, t.net, t.kept_net, {estimate}, {known} \
             FROM profile_total t JOIN sample_type s ON s.id = t.type \
             WHERE t.profile = 1 ORDER BY t.position"
        ),
        [],
        |row| {
            let sample_type = SampleType {
                r#type: row.get(1)?,
                unit: row.get(2)?,
            };
            let (of_estimate, of_spread) = (5, 5 + ESTIMATE_COLUMN_COUNT);
            let known = (
                read_estimate(row, of_estimate)?,
                read_spread(row, of_spread)?,
            );
            Ok((row.get(0)?, sample_type, [row.get(3)?, row.get(4)?], known))
        },
    )?;
    let of = |name: &str| types.iter().find(|t| t.1.r#type.ends_with(name));
    let (Some(objects), Some(space)) = (of("objects"), of("space")) else {
        return Err(AnalysisError::Sql("leaks needs what is in use".to_string()));
    };
    let pick = |n: usize| InUseAmount {
        objects: objects.2[n],
        space: space.2[n],
    };
    let (rules, total_suppressed) = suppressed_by_rule(question, suppressions, by == space.0);
    let comments = comment::comments(session)?;
    let mut leaks = LeaksReport {
        types: [objects.1.clone(), space.1.clone()],
        dump_time: comment::dump_time(&comments),
        has_python: has_python(&comments),
        small_objects: small_objects(&comments),
        total: pick(0),
        estimates: [objects.3.0, space.3.0],
        spread: [objects.3.1, space.3.1],
        by,
        header,
        ..LeaksReport::default()
    };
    for (_, in_use) in &rules {
        leaks.suppressed.add(*in_use);
    }
    leaks.filtered_out = pick(0).without(pick(1)).without(leaks.suppressed);
    leaks.rules = rules;
    // The tables count suppressed memory as left out. The header counts it as kept.
    let net = match by == space.0 {
        true => leaks.suppressed.space,
        false => leaks.suppressed.objects,
    };
    leaks.header.net += net;
    leaks.header.left_out -= net;
    if query.relative_percentages {
        leaks.header.total += total_suppressed;
    }
    rows(session, query, [objects.0, space.0], &mut leaks)?;
    Ok(leaks)
}

/// A sample type's number and name, its net sums before and after filters, the range of the sum
/// before filters, and the spread of the sum after filters.
type LeakTypeSums = (
    i64,
    SampleType,
    [i64; 2],
    (Option<ValueEstimate>, Option<SumSpread>),
);

fn rows(
    session: &AnalysisSession,
    query: &Query,
    [objects, space]: [i64; 2],
    leaks: &mut LeaksReport,
) -> Result<(), AnalysisError> {
    let step = SampleStep::for_bytes(leaks.header.sampled, &leaks.types[1].unit);
    let mut stacks = in_use_by_stack(session, [objects, space], step)?;
    let by_space = leaks.by == space;
    stacks.sort_by_key(|&(stack, in_use, _)| {
        let (objects, space) = (in_use.objects.unsigned_abs(), in_use.space.unsigned_abs());
        let size = match by_space {
            true => (space, objects),
            false => (objects, space),
        };
        (std::cmp::Reverse(size), stack)
    });
    let shown = query.limit.unwrap_or(usize::MAX).min(stacks.len());
    for (_, in_use, _) in stacks.split_off(shown) {
        leaks.other.0.add(in_use);
        leaks.other.1 += 1;
    }
    leaks.places = PlaceTable::for_stacks(session, query.granularity)?;
    let read = StackReader::new(session);
    let ages = ages(session, objects)?;
    leaks.rows = stacks
        .into_iter()
        .map(|(stack, in_use, estimates)| {
            let age = ages.get(&stack).copied();
            let stack = read.read(stack)?;
            Ok(LeakRow {
                in_use,
                estimates,
                stack,
                age,
            })
        })
        .collect::<Result<_, AnalysisError>>()?;
    Ok(())
}

/// A stack's number, its memory in use, and the ranges of objects and space.
type StackInUse = (i64, InUseAmount, [Option<ValueEstimate>; 2]);

/// Returns the memory in use of each stack, in the order of the stacks' numbers. Stacks without
/// memory in use are left out.
fn in_use_by_stack(
    session: &AnalysisSession,
    [objects, space]: [i64; 2],
    step: SampleStep,
) -> Result<Vec<StackInUse>, AnalysisError> {
    let objects = sums_by_stack(session, objects)?;
    let mut objects = objects.into_iter().peekable();
    let spaces = sums_by_stack(session, space)?;
    let mut spaces = spaces.into_iter().peekable();
    let mut held = Vec::new();
    // Both lists are in ascending order of stacks. A sum of 0 may be missing from either.
    while let Some(stack) = [objects.peek(), spaces.peek()]
        .into_iter()
        .flatten()
        .map(|s| s.0)
        .min()
    {
        let objects = objects.next_if(|s| s.0 == stack).unwrap_or_default().1;
        let space = spaces.next_if(|s| s.0 == stack).unwrap_or_default().1;
        let in_use = InUseAmount {
            objects: objects.value,
            space: space.value,
        };
        if !in_use.is_none() {
            let of_objects = objects.estimate(SampleStep::default());
            held.push((stack, in_use, [of_objects, space.estimate(step)]));
        }
    }
    Ok(held)
}

/// Returns the ages of the oldest and the youngest block of each stack, from the label `age`.
fn ages(session: &AnalysisSession, objects: i64) -> Result<HashMap<i64, [i64; 2]>, AnalysisError> {
    let ages = session.rows(
        "SELECT s.stack, max(l.num), min(l.num) FROM sample s JOIN label l USING (label_set) \
         WHERE s.profile = 1 AND s.type = ?1 AND s.value <> 0 AND l.key = 'age' \
         AND l.num_unit = 'nanoseconds' GROUP BY s.stack",
        [objects],
        |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?])),
    )?;
    Ok(ages.into_iter().collect())
}

/// Returns the sums of a type by stack, in the order of the stacks' numbers.
fn sums_by_stack(
    session: &AnalysisSession,
    r#type: i64,
) -> Result<Vec<(i64, ValueWithSpread)>, AnalysisError> {
    session.rows(
        "SELECT stack, sum(value), sum(sampled), sum(variance) FROM sample \
         WHERE profile = 1 AND type = ?1 GROUP BY stack ORDER BY stack",
        [r#type],
        |row| Ok((row.get(0)?, read_value_with_spread(row, 1)?)),
    )
}

/// Returns each rule with the sum that it suppresses among the samples that the filters keep. Also
/// returns the sum of all suppressed absolute values, in the sample type that rows are ordered by.
fn suppressed_by_rule(
    question: &ProfileQuestion,
    suppressions: &SuppressionSet,
    by_space: bool,
) -> (Vec<(SuppressionRule, InUseAmount)>, i64) {
    let rules = suppressions.rules().iter();
    let mut rules: Vec<(SuppressionRule, InUseAmount)> =
        rules.map(|r| (r.clone(), InUseAmount::default())).collect();
    let mut total = 0;
    let mut stack = Vec::new();
    for part in &question.parts {
        let samples = &part.profile.samples;
        for i in 0..samples.len() {
            let values = samples.values(i);
            let in_use = InUseAmount {
                objects: values[part.columns[0]],
                space: values[part.columns[1]],
            };
            if let Some(rule) = part.view.rule(samples, i)
                && !in_use.is_none()
                && part.view.visible(samples, i, &mut stack)
            {
                rules[rule].1.add(in_use);
                total += if by_space {
                    in_use.space
                } else {
                    in_use.objects
                }
                .abs();
            }
        }
    }
    rules.sort_by_key(|(_, in_use)| {
        let size = (in_use.space.unsigned_abs(), in_use.objects.unsigned_abs());
        std::cmp::Reverse(size)
    });
    (rules, total)
}

impl LeaksReport {
    /// Returns the memory in use that is neither suppressed nor filtered out.
    pub fn in_use(&self) -> InUseAmount {
        let counted = self.total.without(self.suppressed);
        counted.without(self.filtered_out)
    }

    /// Returns the objects and the space that are neither suppressed nor filtered out, with their
    /// spreads.
    pub(crate) fn kept_values(&self) -> [ValueWithSpread; 2] {
        let InUseAmount { objects, space } = self.in_use();
        let [of_objects, of_space] = self.spread;
        [(objects, of_objects), (space, of_space)]
            .map(|(value, spread)| ValueWithSpread { value, spread })
    }

    /// Returns the sum of each function, in the sample type that rows are ordered by. Each stack
    /// counts once for a function.
    pub(crate) fn by_function(
        &self,
        session: &AnalysisSession,
        sort: SortKey,
    ) -> Result<Vec<(CodePlace, ValueWithSpread)>, AnalysisError> {
        // If a row is a function or a file, the table has its sums already.
        let granularity = self.header.granularity;
        if matches!(granularity, Granularity::Functions | Granularity::Files) {
            let sum = match sort {
                SortKey::Flat => "t.flat, t.samples, t.variance",
                SortKey::Cum => "t.cum, t.cum_samples, t.cum_variance",
            };
            let (places, order) = (
                place::columns(granularity, "t"),
                place::order(granularity, "t"),
            );
            return session.rows(
                &format!(
                    "SELECT {places}, {sum} FROM function_total t JOIN function f ON f.id = \
                     t.function WHERE t.profile = 1 AND t.type = ?1 ORDER BY {order}"
                ),
                [self.by],
                |row| {
                    Ok((
                        CodePlace::read(row, 0)?,
                        read_value_with_spread(row, place::PLACE_COLUMN_COUNT)?,
                    ))
                },
            );
        }
        // Lines and addresses of one function count as one function here.
        let mut functions = FunctionSums::new(&self.places);
        let mut sums = sums_by_stack(session, self.by)?.into_iter().peekable();
        session.each(
            "SELECT stack, entity, is_leaf FROM stack_function ORDER BY stack",
            [],
            |row| {
                let stack: i64 = row.get(0)?;
                while sums.next_if(|s| s.0 < stack).is_some() {}
                if let Some((_, known)) = sums.peek().filter(|s| s.0 == stack) {
                    let counts = sort == SortKey::Cum || row.get(2)?;
                    let nothing = ValueWithSpread {
                        value: 0,
                        spread: known.spread.map(|_| SumSpread::default()),
                    };
                    // The leaf comes first, so a further frame of the same function changes
                    // nothing.
                    let known = if counts { *known } else { nothing };
                    functions.add(PlaceId::read(row, 1)?, stack, known);
                }
                Ok::<_, AnalysisError>(())
            },
        )?;
        Ok(functions.sums())
    }
}

/// Sums by function, identified by its name and its file. Several places may belong to one
/// function.
struct FunctionSums<'a> {
    /// For each place, the number of the place's function.
    function_of: Vec<u32>,
    /// Each function with its sum, and with the stack that was last added to it.
    rows: Vec<(&'a CodePlace, Option<ValueWithSpread>, i64)>,
}

impl<'a> FunctionSums<'a> {
    fn new(places: &'a PlaceTable) -> Self {
        let mut numbers = HashMap::new();
        let mut rows = Vec::new();
        let of = places.iter().map(|place| {
            let key = (&*place.function, place.file.as_deref());
            *numbers.entry(key).or_insert_with(|| {
                rows.push((place, None, 0));
                rows.len() as u32 - 1
            })
        });
        Self {
            function_of: of.collect(),
            rows,
        }
    }

    /// Adds the value of a stack to the function of `place`, which is one of the stack's frames. A
    /// stack counts only once for each function.
    fn add(&mut self, place: PlaceId, stack: i64, known: ValueWithSpread) {
        let (_, sum, last) = &mut self.rows[self.function_of[place.index()] as usize];
        if std::mem::replace(last, stack) != stack {
            *sum = Some(sum.map_or(known, |sum| sum.plus(known)));
        }
    }

    /// Returns the functions of all stacks that were added, in the order of their names, with their
    /// sums. A function shows its file only if another function has the same name.
    fn sums(self) -> Vec<(CodePlace, ValueWithSpread)> {
        let rows = self.rows.into_iter();
        let rows = rows.filter_map(|(place, sum, _)| Some((place, sum?)));
        let mut rows: Vec<(&CodePlace, ValueWithSpread)> = rows.collect();
        rows.sort_by(|(a, _), (b, _)| (&a.function, &a.file).cmp(&(&b.function, &b.file)));
        let of_one_name = rows.chunk_by(|(a, _), (b, _)| a.function == b.function);
        let sums = of_one_name.flat_map(|rows| {
            let shown_file = match rows {
                [_] => ShownFile::End(0),
                _ => ShownFile::Whole,
            };
            rows.iter().map(move |(place, sum)| {
                let function = CodePlace {
                    function: place.function.clone(),
                    file: place.file.clone(),
                    shown_file,
                    ..CodePlace::default()
                };
                (function, *sum)
            })
        });
        sums.collect()
    }
}
