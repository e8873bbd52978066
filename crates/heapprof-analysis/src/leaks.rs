//! `leaks`: what is in use, by stack, the largest first; what rules suppress is counted, not listed.

use crate::comment::{self, Dumped};
use crate::error::Error;
use crate::estimate::{Estimate, Known, Spread};
use crate::header::{Header, SampleType, header};
use crate::place::{PlaceId, Places, Stacks};
use crate::query::{Granularity, Query, Sort};
use crate::question::Question;
use crate::session::{Session, read_estimate, read_spread};
use crate::suppression::{Suppression, Suppressions};

/// Blocks that were allocated and not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// How many.
    pub objects: i64,
    /// What they hold together.
    pub space: i64,
}

impl InUse {
    /// Whether there is nothing.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    // All of these sums are of values whose total fits in 64 bits.
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

/// A stack that still holds memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leak {
    /// What it holds.
    pub in_use: InUse,
    /// How sure objects and space are; `None` where they are exact.
    pub estimates: [Option<Estimate>; 2],
    /// Leaf first.
    pub stack: Vec<PlaceId>,
}

/// The report. Rows, `other`, `suppressed` and `filtered_out` add up to `total`.
#[derive(Clone, Debug, Default)]
pub struct Leaks {
    /// What it is about; its sample type is the one that rows are ordered by. What is suppressed counts
    /// as kept.
    pub header: Header,
    /// Sample types of objects and of space.
    pub types: [SampleType; 2],
    /// When the profile was dumped.
    pub dumped: Dumped,
    /// Signed sums, filters and suppressions aside.
    pub total: InUse,
    /// What the stacks' numbers are.
    pub places: Places,
    /// How sure objects and space of `total` are.
    pub estimates: [Option<Estimate>; 2],
    /// Stacks whose samples do not come to nothing, by size.
    pub rows: Vec<Leak>,
    /// What the limit left out, and how many stacks that is.
    pub other: (InUse, usize),
    /// What the filters left out.
    pub filtered_out: InUse,
    /// What rules suppressed.
    pub suppressed: InUse,
    /// Every rule with what it suppressed: the largest first, then as they were read.
    pub rules: Vec<(Suppression, InUse)>,
    /// What is known of objects and space that are neither suppressed nor filtered out.
    spread: [Option<Spread>; 2],
    /// The session's number of the type that rows are ordered by.
    by: i64,
}

/// What is in use in the session's only profile; its question must be about the types in use.
pub fn leaks(
    session: &Session,
    query: &Query,
    suppressions: &Suppressions,
) -> Result<Leaks, Error> {
    let (header, by) = header(session, 1, query)?;
    let question = session.question.as_deref();
    let question = question.ok_or_else(|| Error::Sql("leaks reads the profile".to_string()))?;
    let estimate = session.estimate_columns("t", "");
    let known = session.spread_columns("t", "kept_");
    let types: Vec<TypeSums> = session.rows(
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
            let known = (read_estimate(row, 5)?, read_spread(row, 8)?);
            Ok((row.get(0)?, sample_type, [row.get(3)?, row.get(4)?], known))
        },
    )?;
    let of = |name: &str| types.iter().find(|t| t.1.r#type.ends_with(name));
    let (Some(objects), Some(space)) = (of("objects"), of("space")) else {
        return Err(Error::Sql("leaks needs what is in use".to_string()));
    };
    let pick = |n: usize| InUse {
        objects: objects.2[n],
        space: space.2[n],
    };
    let (rules, total_suppressed) = suppressed(question, suppressions, by == space.0);
    let mut leaks = Leaks {
        types: [objects.1.clone(), space.1.clone()],
        dumped: comment::dumped(&comment::comments(session)?),
        total: pick(0),
        estimates: [objects.3.0, space.3.0],
        spread: [objects.3.1, space.3.1],
        by,
        header,
        ..Leaks::default()
    };
    for (_, in_use) in &rules {
        leaks.suppressed.add(*in_use);
    }
    leaks.filtered_out = pick(0).without(pick(1)).without(leaks.suppressed);
    leaks.rules = rules;
    // Tables know samples that count and samples that do not; a head tells why they do not.
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

/// A sample type's number and name, its net sums before and after filters, how sure the one is and what is known of the other.
type TypeSums = (
    i64,
    SampleType,
    [i64; 2],
    (Option<Estimate>, Option<Spread>),
);

fn rows(
    session: &Session,
    query: &Query,
    [objects, space]: [i64; 2],
    leaks: &mut Leaks,
) -> Result<(), Error> {
    let (first, second) = match leaks.by == space {
        true => ("space", "objects"),
        false => ("objects", "space"),
    };
    let mut stacks = session.rows(
        &format!(
            "SELECT stack, sum(CASE type WHEN ?1 THEN value ELSE 0 END) AS objects, \
             sum(CASE type WHEN ?2 THEN value ELSE 0 END) AS space, \
             sum(CASE type WHEN ?1 THEN sampled END), sum(CASE type WHEN ?1 THEN variance END), \
             sum(CASE type WHEN ?2 THEN sampled END), sum(CASE type WHEN ?2 THEN variance END) \
             FROM sample WHERE profile = 1 GROUP BY stack HAVING objects != 0 OR space != 0 \
             ORDER BY abs({first}) DESC, abs({second}) DESC, stack"
        ),
        [objects, space],
        |row| {
            let in_use = InUse {
                objects: row.get(1)?,
                space: row.get(2)?,
            };
            let estimate = |value, at| {
                let spread = read_spread(row, at)?;
                Ok::<_, rusqlite::Error>(Known { value, spread }.estimate())
            };
            let estimates = [estimate(in_use.objects, 3)?, estimate(in_use.space, 5)?];
            Ok((row.get::<_, i64>(0)?, in_use, estimates))
        },
    )?;
    let shown = query.limit.unwrap_or(usize::MAX).min(stacks.len());
    for (_, in_use, _) in stacks.split_off(shown) {
        leaks.other.0.add(in_use);
        leaks.other.1 += 1;
    }
    leaks.places = Places::new(session, query.granularity)?;
    let read = Stacks::new(session);
    leaks.rows = stacks
        .into_iter()
        .map(|(stack, in_use, estimates)| {
            let stack = read.read(stack)?;
            Ok(Leak {
                in_use,
                estimates,
                stack,
            })
        })
        .collect::<Result<_, Error>>()?;
    Ok(())
}

/// What each rule suppresses of the samples that the filters keep, and how much that is of the type rows
/// are ordered by, regardless of sign.
fn suppressed(
    question: &Question,
    suppressions: &Suppressions,
    by_space: bool,
) -> (Vec<(Suppression, InUse)>, i64) {
    let rules = suppressions.rules().iter();
    let mut rules: Vec<(Suppression, InUse)> =
        rules.map(|r| (r.clone(), InUse::default())).collect();
    let mut total = 0;
    let mut stack = Vec::new();
    for part in &question.parts {
        let samples = &part.profile.samples;
        for i in 0..samples.len() {
            let values = samples.values(i);
            let in_use = InUse {
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

impl Leaks {
    /// What is neither suppressed nor filtered out.
    pub fn in_use(&self) -> InUse {
        let counted = self.total.without(self.suppressed);
        counted.without(self.filtered_out)
    }

    /// Objects and space that are neither suppressed nor filtered out, with what is known of them.
    pub(crate) fn kept(&self) -> [Known; 2] {
        let InUse { objects, space } = self.in_use();
        let [of_objects, of_space] = self.spread;
        [(objects, of_objects), (space, of_space)].map(|(value, spread)| Known { value, spread })
    }

    /// Sums by function, each stack once, of the type that rows are ordered by.
    pub(crate) fn by_function(
        &self,
        session: &Session,
        sort: Sort,
    ) -> Result<Vec<(String, Known)>, Error> {
        let name = match self.header.granularity {
            Granularity::Files => "f.filename",
            _ => "f.name",
        };
        let counts = match sort {
            Sort::Flat => " * u.is_leaf",
            Sort::Cum => "",
        };
        // Where a row is a function its sums are there.
        if matches!(
            self.header.granularity,
            Granularity::Functions | Granularity::Files
        ) {
            let sum = match sort {
                Sort::Flat => "t.flat, t.samples, t.variance",
                Sort::Cum => "t.cum, t.cum_samples, t.cum_variance",
            };
            return session.rows(
                &format!(
                    "SELECT {name}, {sum} FROM function_total t JOIN function f ON f.id = t.function \
                     WHERE t.profile = 1 AND t.type = ?1 ORDER BY {name}"
                ),
                [self.by],
                |row| Ok((row.get(0)?, Known::read(row, 1)?)),
            );
        }
        // Lines and addresses of one function are one function here.
        session.rows(
            &format!(
                "SELECT u.name, sum(s.value{counts}), sum(s.sampled{counts}), \
                 sum(s.variance{counts}) FROM sample s JOIN \
                 (SELECT t.stack, {name} AS name, max(t.is_leaf) AS is_leaf FROM stack_func t \
                  JOIN function f ON f.id = t.function GROUP BY t.stack, {name}) u \
                 ON u.stack = s.stack \
                 WHERE s.profile = 1 AND s.type = ?1 GROUP BY u.name ORDER BY u.name"
            ),
            [self.by],
            |row| Ok((row.get(0)?, Known::read(row, 1)?)),
        )
    }
}
