//! `report`: everything that a page shows, as plain rows: the call tree by line with what each node
//! holds itself, in every sample type of every profile, and how functions grew.

use std::collections::BTreeMap;

use crate::comment;
use crate::coverage::{self, Resident};
use crate::error::Error;
use crate::growth::{self, Growth};
use crate::header::SampleType;
use crate::question::is_heap;
use crate::session::{Session, read_estimate};

/// One of the profiles, as a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// The profile's path or name.
    pub name: String,
    /// When its values were taken, in nanoseconds since 1970; 0 if unknown.
    pub time_nanos: i64,
    /// RSS then, and the highest one before, without the collector's own tables.
    pub rss: [Option<i64>; 2],
    /// The signed sum of each sample type; 0 if the profile lacks it.
    pub totals: Vec<i64>,
    /// How far the sum of each type may be off, as a part of it, if it is an estimate.
    pub errors: Vec<Option<f64>>,
    /// What nodes hold themselves: the node, the sample type, and the value. Other values are 0.
    pub values: Vec<(u32, u32, i64)>,
}

/// A function of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportFunction {
    /// Its name.
    pub name: String,
    /// Its source file; empty if unknown.
    pub file: String,
    /// The line that it begins at; 0 if unknown.
    pub start_line: i64,
    /// What it belongs to, and whether that is a library.
    pub module: String,
    /// See [`module`](Self::module).
    pub is_library: bool,
}

/// A node of the tree: a line of a function, called from its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportNode {
    /// The node that called it; `None` at the root. It comes before.
    pub parent: Option<u32>,
    /// The place, as a position in [`Report::places`].
    pub place: u32,
}

/// The report.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The program that the profiles are of; empty if they do not say.
    pub program: String,
    /// Mean bytes between samples; 1 if every allocation is counted, 0 if unknown.
    pub period: i64,
    /// The sample types of all profiles.
    pub types: Vec<SampleType>,
    /// The position of the type that is shown first.
    pub default: usize,
    /// The functions.
    pub functions: Vec<ReportFunction>,
    /// Lines of functions: the function's position, and the line; 0 if unknown. The first one
    /// stands for what the cut left out.
    pub places: Vec<(u32, i64)>,
    /// The tree in pre-order.
    pub nodes: Vec<ReportNode>,
    /// How many nodes stand for what was too small to be seen, and what they hold of each type in
    /// the last profile.
    pub left_out: (usize, Vec<i64>),
    /// The profiles, in the order in which they were given.
    pub moments: Vec<Moment>,
    /// How functions grew, by the position of the sample type; empty for fewer than three profiles.
    pub growth: BTreeMap<usize, Vec<Growth>>,
}

/// Reports what a page shows of all profiles of the session's question, which must have all types
/// and lines.
pub fn report(session: &Session) -> Result<Report, Error> {
    let mut report = Report::default();
    let mut types = Vec::new();
    session.each(
        "SELECT id, type, unit FROM sample_type ORDER BY id",
        [],
        |row| {
            types.push(row.get::<_, i64>(0)?);
            report.types.push(SampleType {
                r#type: row.get(1)?,
                unit: row.get(2)?,
            });
            Ok::<_, Error>(())
        },
    )?;
    let type_at = |id: i64| types.binary_search(&id).unwrap_or_default();
    read_moments(session, &mut report, &type_at)?;
    read_places(session, &mut report)?;
    read_nodes(session, &mut report, &type_at)?;
    if report.moments.len() >= 3 {
        read_growth(session, &mut report, &type_at)?;
    }
    Ok(report)
}

fn read_moments(
    session: &Session,
    report: &mut Report,
    type_at: &impl Fn(i64) -> usize,
) -> Result<(), Error> {
    let width = report.types.len();
    let mut default = String::new();
    session.each(
        "SELECT name, time_nanos, period, default_sample_type FROM profile ORDER BY id",
        [],
        |row| {
            report.moments.push(Moment {
                name: row.get(0)?,
                time_nanos: row.get(1)?,
                totals: vec![0; width],
                errors: vec![None; width],
                ..Moment::default()
            });
            report.period = row.get(2)?;
            default = row.get(3)?;
            Ok::<_, Error>(())
        },
    )?;
    let estimate = session.estimate_columns("t", "");
    let sql = format!("SELECT t.profile, t.type, t.net, {estimate} FROM profile_total t");
    let moments = &mut report.moments;
    session.each(&sql, [], |row| {
        let (profile, at) = (row.get::<_, u32>(0)? as usize - 1, type_at(row.get(1)?));
        let net: i64 = row.get(2)?;
        moments[profile].totals[at] = net;
        let range = read_estimate(row, 3)?.map(|e| (e.high - e.low) as f64 / 2.0);
        moments[profile].errors[at] = range.filter(|_| net != 0).map(|r| r / net.abs() as f64);
        Ok::<_, Error>(())
    })?;
    let named = |name: &str| report.types.iter().position(|t| t.r#type == name);
    let last = report.types.len().saturating_sub(1);
    report.default = named(&default)
        .or_else(|| named("inuse_space"))
        .unwrap_or(last);
    for (i, moment) in (1..).zip(&mut report.moments) {
        let comments = comment::comments_of(session, i)?;
        let of_program = |resident: Option<Resident>| resident.map(|r| r.of_program());
        moment.rss = coverage::resident(&comments, [None, None]).map(of_program);
        if let Some(program) = comment::program(&comments) {
            report.program = program;
        }
    }
    Ok(())
}

fn read_places(session: &Session, report: &mut Report) -> Result<(), Error> {
    // What was cut off stands for no function.
    report.functions.push(ReportFunction {
        name: crate::OTHER.to_string(),
        ..ReportFunction::default()
    });
    report.places.push((0, 0));
    session.each(
        "SELECT name, filename, start_line, module, is_library FROM function ORDER BY id",
        [],
        |row| {
            report.functions.push(ReportFunction {
                name: row.get(0)?,
                file: row.get(1)?,
                start_line: row.get(2)?,
                module: row.get(3)?,
                is_library: row.get(4)?,
            });
            Ok::<_, Error>(())
        },
    )?;
    session.each("SELECT function, line FROM entity ORDER BY id", [], |row| {
        report
            .places
            .push((row.get(0)?, row.get::<_, Option<i64>>(1)?.unwrap_or(0)));
        Ok::<_, Error>(())
    })
}

fn read_nodes(
    session: &Session,
    report: &mut Report,
    type_at: &impl Fn(i64) -> usize,
) -> Result<(), Error> {
    // The nodes are the same for all profiles and types.
    let first: Option<i64> = session
        .rows(
            "SELECT type FROM profile_total WHERE profile = 1 LIMIT 1",
            [],
            |row| row.get(0),
        )?
        .into_iter()
        .next();
    session.each(
        "SELECT n.parent, n.entity FROM node n WHERE n.profile = 1 AND n.type = ?1 ORDER BY n.id",
        [first],
        |row| {
            report.nodes.push(ReportNode {
                parent: row.get::<_, Option<u32>>(0)?.map(|id| id - 1),
                place: row.get(1)?,
            });
            Ok::<_, Error>(())
        },
    )?;
    let blocks = session.rows("SELECT profile, type FROM profile_total", [], |row| {
        Ok((row.get::<_, u32>(0)? as usize, row.get::<_, i64>(1)?))
    })?;
    let is_left_out = |node: &ReportNode| node.place == 0;
    report.left_out.0 = report.nodes.iter().filter(|node| is_left_out(node)).count();
    report.left_out.1 = vec![0; report.types.len()];
    for (profile, r#type) in blocks {
        let at = type_at(r#type);
        let is_last = profile == report.moments.len();
        let (moment, left_out) = (&mut report.moments[profile - 1], &mut report.left_out.1[at]);
        let nodes = &report.nodes;
        session.each(
            "SELECT n.id, n.self FROM node n WHERE n.profile = ?1 AND n.type = ?2 AND n.self != 0",
            (profile as i64, r#type),
            |row| {
                let (id, value): (u32, i64) = (row.get(0)?, row.get(1)?);
                moment.values.push((id - 1, at as u32, value));
                if is_last && is_left_out(&nodes[id as usize - 1]) {
                    *left_out += value;
                }
                Ok::<_, Error>(())
            },
        )?;
    }
    for moment in &mut report.moments {
        moment.values.sort_unstable();
    }
    Ok(())
}

/// Reads what each function holds itself at each moment, and judges how it grew.
fn read_growth(
    session: &Session,
    report: &mut Report,
    type_at: &impl Fn(i64) -> usize,
) -> Result<(), Error> {
    let moments = report.moments.len();
    let mut series = BTreeMap::<(usize, u32), Vec<i64>>::new();
    session.each(
        "SELECT t.type, t.function, t.profile, t.flat FROM function_total t WHERE t.flat != 0",
        [],
        |row| {
            let key = (type_at(row.get(0)?), row.get(1)?);
            let (profile, flat): (u32, i64) = (row.get(2)?, row.get(3)?);
            series.entry(key).or_insert_with(|| vec![0; moments])[profile as usize - 1] += flat;
            Ok::<_, Error>(())
        },
    )?;
    let times: Vec<i64> = report.moments.iter().map(|m| m.time_nanos).collect();
    for ((at, function), values) in series {
        if is_heap(&report.types[at].r#type) {
            let grown = growth::judge(function, &times, &values);
            report.growth.entry(at).or_default().push(grown);
        }
    }
    for grown in report.growth.values_mut() {
        growth::rank(grown);
    }
    Ok(())
}
