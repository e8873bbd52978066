//! A chart in braille: an area and a line over time.

use heapprof_text::printable;

use crate::glyphs::DotGrid;

/// A step function: pairs of time and value, in order of time. A value holds until the next time.
pub(crate) type StepFunction = Vec<(i64, i64)>;

/// A chart of values over time.
pub(crate) struct TimeChart<'a> {
    /// The values that are drawn as an area from zero up.
    pub(crate) area: &'a StepFunction,
    /// The values that are drawn as a line of dots, with gaps between the dots.
    pub(crate) line: &'a StepFunction,
    /// The times of the left and the right edge.
    pub(crate) span: [i64; 2],
    /// The times that are marked beneath the chart.
    pub(crate) marks: Vec<i64>,
    /// The number of columns of characters.
    pub(crate) columns: usize,
    /// The number of rows of characters.
    pub(crate) rows: usize,
}

impl TimeChart<'_> {
    /// Returns the largest value.
    pub(crate) fn max_value(&self) -> i64 {
        let all = self.area.iter().chain(self.line);
        all.map(|(_, value)| *value).max().unwrap_or(0).max(1)
    }

    /// Returns the lines of the chart. `label` writes a value of the axis, and `time` writes the
    /// time of an edge.
    pub(crate) fn lines(
        &self,
        label: impl Fn(i64) -> String,
        time: impl Fn(i64) -> String,
    ) -> Vec<String> {
        let most = self.max_value();
        let mut dots = DotGrid::new(self.columns, self.rows);
        let (wide, high) = (2 * self.columns, 4 * self.rows);
        let area = self.bin_values(self.area, wide);
        let line = self.bin_values(self.line, wide);
        for x in 0..wide {
            if let Some(value) = area[x] {
                (0..height(value, most, high)).for_each(|y| dots.set(x, y));
            }
            if let Some(value) = line[x].filter(|_| x % 2 == 0) {
                dots.set(x, height(value, most, high).max(1) - 1);
            }
        }
        let labels: Vec<String> = (0..self.rows)
            .map(|row| match row {
                0 => label(most),
                _ if row == self.rows / 2 && self.rows > 4 => {
                    let left = (self.rows - row) as i128;
                    label((i128::from(most) * left / self.rows as i128) as i64)
                }
                _ => String::new(),
            })
            .collect();
        let zero = label(0);
        let margin = labels
            .iter()
            .chain([&zero])
            .map(|text| text.chars().count());
        let margin = margin.max().unwrap_or(0);
        let mut lines = Vec::with_capacity(self.rows + 2);
        for (label, drawn) in labels.iter().zip(dots.lines()) {
            let bar = if label.is_empty() { '│' } else { '┤' };
            lines.push(format!("{label:>margin$} {bar}{drawn}"));
        }
        lines.push(format!("{zero:>margin$} ┼{}", self.axis()));
        let [begin, end] = self.span.map(time);
        let gap = self.columns.saturating_sub(begin.chars().count());
        lines.push(format!("{:margin$}  {begin}{end:>gap$}", ""));
        lines
            .into_iter()
            .map(|line| printable(&line).into_owned())
            .collect()
    }

    /// Returns the line beneath the chart, with the marks.
    fn axis(&self) -> String {
        let marks = self.marks.iter();
        let marked: Vec<usize> = marks.map(|&time| self.bin(time, self.columns)).collect();
        let each = (0..self.columns).map(|x| if marked.contains(&x) { '▲' } else { '─' });
        each.collect()
    }

    /// Returns the bin that a time belongs to, if there are `bins` bins.
    fn bin(&self, time: i64, bins: usize) -> usize {
        let [begin, end] = self.span.map(i128::from);
        let span = (end - begin).max(1);
        let at = (i128::from(time) - begin) * bins as i128 / span;
        at.clamp(0, bins as i128 - 1) as usize
    }

    /// Returns the largest value in each of `bins` bins. A bin without a step has the last value
    /// before the bin.
    fn bin_values(&self, steps: &StepFunction, bins: usize) -> Vec<Option<i64>> {
        let mut largest = vec![None; bins];
        let mut last = vec![None; bins];
        for &(time, value) in steps {
            let at = self.bin(time, bins);
            largest[at] = largest[at].max(Some(value));
            last[at] = Some(value);
        }
        let mut before = None;
        for at in 0..bins {
            if largest[at].is_none() {
                largest[at] = before;
            }
            before = last[at].or(before);
        }
        largest
    }
}

/// Returns the height of a value in dots. A value above 0 has at least one dot.
fn height(value: i64, most: i64, dots: usize) -> usize {
    if value <= 0 {
        return 0;
    }
    let dots = dots as i128;
    let high = (i128::from(value) * dots + i128::from(most) / 2) / i128::from(most);
    high.clamp(1, dots) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(area: &[(i64, i64)], line: &[(i64, i64)]) -> String {
        let chart = TimeChart {
            area: &area.to_vec(),
            line: &line.to_vec(),
            span: [0, 80],
            marks: vec![40],
            columns: 8,
            rows: 2,
        };
        chart
            .lines(|value| value.to_string(), |time| format!("{time}s"))
            .join("\n")
    }

    #[test]
    fn a_ramp_and_a_line() {
        let ramp: Vec<(i64, i64)> = (0..16).map(|x| (5 * x, x + 1)).collect();
        expect_test::expect![[r#"
            16 ┤⠁⠁⠁⠁⣁⣥⣷⣿
               │⣀⣤⣶⣿⣿⣿⣿⣿
             0 ┼────▲───
                0s   80s"#]]
        .assert_eq(&drawn(&ramp, &[(0, 16)]));
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        expect_test::expect![[r"
            9 ┤⠀⠀⠀⠀⣿⠀⠀⠀
              │⠀⠀⠀⠀⣿⠀⠀⠀
            0 ┼────▲───
               0s   80s"]]
        .assert_eq(&drawn(&[(40, 9), (50, 0)], &[]));
        assert_eq!(height(1, i64::MAX, 8), 1);
        assert_eq!(height(i64::MAX, i64::MAX, 8), 8);
        assert_eq!(height(-5, 8, 8), 0);
    }
}
