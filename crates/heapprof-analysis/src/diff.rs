//! `diff`: what grew, what shrank, what is new and what is gone between two profiles.

use crate::error::Error;
use crate::header::{Header, header};
use crate::place::{self, Place};
use crate::query::{Query, Sort};
use crate::session::Session;

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was not there before.
    New,
    /// It is not there any more.
    Gone,
    /// It is larger.
    Grown,
    /// It is smaller.
    Shrunk,
    /// It is as large as before.
    Same,
}

impl Status {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Status::New => "new",
            Status::Gone => "gone",
            Status::Grown => "grown",
            Status::Shrunk => "shrunk",
            Status::Same => "same",
        }
    }
}

/// A value before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub before: i64,
    /// After.
    pub after: i64,
}

impl Change {
    /// After minus before; it need not fit in 64 bits.
    pub fn delta(self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }

    /// The delta as a share of what was there before; `None` where that was 0.
    pub fn growth(self) -> Option<f64> {
        match self.before {
            0 => None,
            before => Some(self.delta() as f64 / (before as f64).abs()),
        }
    }
}

/// A row of `diff`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffRow {
    /// Which entity.
    pub place: Place,
    /// Of the samples whose leaf it is.
    pub flat: Change,
    /// Of the samples that hold it.
    pub cum: Change,
    /// Whether it was there before at all.
    pub was: bool,
    /// Whether it is there after at all.
    pub is: bool,
}

impl DiffRow {
    /// The change of what the report is ordered by.
    pub fn change(&self, sort: Sort) -> Change {
        match sort {
            Sort::Flat => self.flat,
            Sort::Cum => self.cum,
        }
    }

    /// What happened to it, seen by `sort`.
    pub fn status(&self, sort: Sort) -> Status {
        match self.change(sort).delta() {
            0 => Status::Same,
            _ if !self.was => Status::New,
            _ if !self.is => Status::Gone,
            1.. => Status::Grown,
            _ => Status::Shrunk,
        }
    }
}

/// The report.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Of the profile before.
    pub before: Header,
    /// Of the profile after.
    pub after: Header,
    /// What it is ordered by.
    pub sort: Sort,
    /// Signed sums.
    pub total: Change,
    /// What the values after were multiplied by to make both totals equal.
    pub normalized: Option<f64>,
    /// All rows, those that did not change too: by size of the change, then by name.
    pub rows: Vec<DiffRow>,
    /// Signed sums of every sample type that both sides have, by type.
    pub types: Vec<(crate::SampleType, Change)>,
}

impl Diff {
    /// Whether a row that is new or gone is named by its address: another run has the same place elsewhere.
    pub fn has_addresses(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| row.was != row.is && row.place.is_address())
    }
}

/// Compares the profiles number `before` and `after` of the session.
pub fn diff(
    session: &Session,
    [before, after]: [i64; 2],
    query: &Query,
    normalize: bool,
) -> Result<Diff, Error> {
    let (head_before, type_before) = header(session, before, query)?;
    let (head_after, type_after) = header(session, after, query)?;
    let (a, b) = (&head_before.sample_type, &head_after.sample_type);
    if a != b {
        return Err(Error::Unlike(format!(
            "before has {}/{}, after {}/{}; name one that both have with --sample-type",
            a.r#type, a.unit, b.r#type, b.unit
        )));
    }
    let mut diff = Diff {
        total: Change {
            before: head_before.net,
            after: head_after.net,
        },
        before: head_before,
        after: head_after,
        sort: query.sort,
        types: types(session, before, after)?,
        ..Diff::default()
    };
    let place = match session.question {
        Some(_) => "function, line, address",
        None => "function, 0 AS line, 0 AS address",
    };
    let (places, order) = (
        place::columns(query.granularity, "u"),
        place::order(query.granularity, "u"),
    );
    diff.rows = session.rows(
        &format!(
            "SELECT {places}, sum(fb), sum(fa), sum(cb), sum(ca), sum(was), sum(now) FROM \
             (SELECT {place}, flat AS fb, 0 AS fa, cum AS cb, 0 AS ca, 1 AS was, 0 AS now \
              FROM function_total WHERE profile = ?1 AND type = ?2 UNION ALL \
              SELECT {place}, 0, flat, 0, cum, 0, 1 \
              FROM function_total WHERE profile = ?3 AND type = ?4) u \
             JOIN function f ON f.id = u.function GROUP BY {order}"
        ),
        [before, type_before, after, type_after],
        |row| {
            let change = |at| {
                Ok::<_, rusqlite::Error>(Change {
                    before: row.get(at)?,
                    after: row.get(at + 1)?,
                })
            };
            Ok(DiffRow {
                place: Place::read(row, 0)?,
                flat: change(4)?,
                cum: change(6)?,
                was: row.get::<_, i64>(8)? > 0,
                is: row.get::<_, i64>(9)? > 0,
            })
        },
    )?;
    if normalize {
        diff.normalize()?;
    }
    let size = |row: &DiffRow| row.change(query.sort).delta().unsigned_abs();
    diff.rows
        .sort_by(|a, b| (size(b), &a.place).cmp(&(size(a), &b.place)));
    Ok(diff)
}

/// Sums of the sample types that both profiles have.
fn types(
    session: &Session,
    before: i64,
    after: i64,
) -> Result<Vec<(crate::SampleType, Change)>, Error> {
    let net = match session.question {
        Some(_) => "kept_net",
        None => "net",
    };
    session.rows(
        &format!(
            "SELECT s.type, s.unit, b.{net}, a.{net} FROM profile_total b \
             JOIN profile_total a ON a.type = b.type AND a.profile = ?2 \
             JOIN sample_type s ON s.id = b.type WHERE b.profile = ?1 ORDER BY b.position"
        ),
        [before, after],
        |row| {
            let sample_type = crate::SampleType {
                r#type: row.get(0)?,
                unit: row.get(1)?,
            };
            let change = Change {
                before: row.get(2)?,
                after: row.get(3)?,
            };
            Ok((sample_type, change))
        },
    )
}

impl Diff {
    /// What happened to the total.
    pub fn total_status(&self) -> Status {
        match self.total.delta() {
            0 => Status::Same,
            1.. => Status::Grown,
            _ => Status::Shrunk,
        }
    }

    /// Scales the values after by what makes both totals, filters aside, equal. Flat values are rounded
    /// as a running sum, so that they still add up exactly.
    fn normalize(&mut self) -> Result<(), Error> {
        let whole = |header: &Header| i128::from(header.net) + i128::from(header.left_out);
        let (mut base, mut total) = (whole(&self.before), whole(&self.after));
        if total == 0 {
            return Err(Error::Unlike(
                "the total after is 0, so it can't be scaled to the total before; leave --normalize out"
                    .to_string(),
            ));
        }
        if total < 0 {
            (base, total) = (-base, -total);
        }
        let beyond = || Error::Beyond("a normalized value".to_string());
        // To the nearest, halves up.
        let scaled = |value: i128| -> Result<i128, Error> {
            let twice = value
                .checked_mul(base)
                .and_then(|v| v.checked_mul(2))
                .ok_or_else(beyond)?;
            let rounded = twice.checked_add(total).ok_or_else(beyond)?;
            Ok(rounded.div_euclid(2 * total))
        };
        let narrow = |value: i128| i64::try_from(value).map_err(|_| beyond());
        self.rows.sort_by(|a, b| a.place.cmp(&b.place));
        let (mut sum, mut sum_scaled) = (0i128, 0i128);
        for row in &mut self.rows {
            sum += i128::from(row.flat.after);
            let next = scaled(sum)?;
            row.flat.after = narrow(next - sum_scaled)?;
            sum_scaled = next;
            row.cum.after = narrow(scaled(i128::from(row.cum.after))?)?;
        }
        self.normalized = Some(base as f64 / total as f64);
        self.total.after = narrow(scaled(i128::from(self.total.after))?)?;
        Ok(())
    }
}
