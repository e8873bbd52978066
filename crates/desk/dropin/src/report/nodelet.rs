//! The boxes for labels that a picture shows beside a node.

use std::fmt::Write;

use crate::graph::{NodeTag, NodeTags, mean, sort_as_go, truncate_as_go};

use super::measurement::{UnitScale, label};
use super::options::{PprofReportOptions, PprofValueFormatter};

/// Maximum number of boxes of one kind beside a node.
const MAX_BOXES: usize = 4;

/// Writes the boxes beside nodes.
pub(super) struct NodeletWriter<'a> {
    values: &'a PprofValueFormatter,
    /// The unit of the sizes.
    unit: &'a str,
    /// The conversion that pprof applies to a size although the unit stays the same. It rounds the
    /// size.
    same: UnitScale,
}

impl<'a> NodeletWriter<'a> {
    pub(super) fn new(values: &'a PprofValueFormatter, options: &'a PprofReportOptions) -> Self {
        let unit = options.bytes_unit();
        Self {
            values,
            unit,
            same: UnitScale::new(unit, unit),
        }
    }

    /// Returns the boxes of the node with number `n`. Boxes show flats if `flat` is set, and cums
    /// otherwise. Cums are for a node without callees, because they include the values of removed
    /// callees.
    pub(super) fn boxes(&self, tags: &NodeTags, n: usize, flat: bool) -> String {
        let mut text = String::new();
        let mut texts = tags.texts.clone();
        sort(&mut texts, flat);
        let sizes = |under: &str| tags.sizes.iter().find(|(name, _)| name == under);
        for (at, tag) in texts.iter().take(MAX_BOXES).enumerate() {
            let value = if flat {
                tag.flat_value()
            } else {
                tag.cum_value()
            };
            if value == 0 {
                continue;
            }
            let id = format!("N{n}_{at}");
            self.push_box(&mut text, &format!("N{n}"), &id, &tag.name, value, "");
            if let Some((_, sizes)) = sizes(&tag.name) {
                self.sizes(&mut text, sizes, flat, &id);
            }
        }
        if let Some((_, sizes)) = sizes("") {
            self.sizes(&mut text, sizes, flat, &format!("N{n}"));
        }
        text
    }

    fn push_box(
        &self,
        text: &mut String,
        from: &str,
        id: &str,
        name: &str,
        value: i64,
        style: &str,
    ) {
        let worth = self.values.show(value);
        // Writing to a String can't fail.
        let _ = writeln!(
            text,
            "{id} [label = \"{name}\" id=\"{id}\" fontsize=8 shape=box3d tooltip=\"{worth}\"]"
        );
        let _ = writeln!(
            text,
            "{from} -> {id} [label=\" {worth}\" weight=100 tooltip=\"{worth}\" \
             labeltooltip=\"{worth}\"{style}]"
        );
    }

    fn sizes(&self, text: &mut String, sizes: &[NodeTag], flat: bool, from: &str) {
        for (at, tag) in self.collapse(sizes, flat).iter().enumerate() {
            let only_flat = flat || tag.flat_value() == tag.cum_value();
            let (value, style) = match only_flat {
                true => (tag.flat_value(), ""),
                false => (tag.cum_value(), " style=\"dotted\""),
            };
            if value != 0 {
                self.push_box(
                    text,
                    from,
                    &format!("N{from}_{at}"),
                    &tag.name,
                    value,
                    style,
                );
            }
        }
    }

    /// Reduces tags to at most [`MAX_BOXES`]: the heaviest tags stay. Every other tag is joined to
    /// the nearest of the heaviest tags, which becomes a range.
    fn collapse(&self, sizes: &[NodeTag], flat: bool) -> Vec<NodeTag> {
        let mut sizes = sizes.to_vec();
        sort(&mut sizes, flat);
        if sizes.len() <= MAX_BOXES {
            return sizes;
        }
        let others = sizes.split_off(MAX_BOXES);
        let mut groups: Vec<Vec<NodeTag>> = sizes.into_iter().map(|tag| vec![tag]).collect();
        for tag in others {
            let mut nearest = (f64::INFINITY, 0);
            for (at, group) in groups.iter().enumerate() {
                let distance = (self.same.apply(group[0].value).0 - tag.value as f64).abs();
                if distance < nearest.0 {
                    nearest = (distance, at);
                }
            }
            groups[nearest.1].push(tag);
        }
        let mut joined: Vec<NodeTag> = groups.iter().map(|group| self.join(group)).collect();
        sort(&mut joined, flat);
        joined
    }

    /// Joins a non-empty group of sizes to one tag.
    fn join(&self, group: &[NodeTag]) -> NodeTag {
        let (mut least, mut most) = (group[0].value, group[0].value);
        let (mut flat, mut cum) = ((0, 0), (0, 0));
        for tag in group {
            let value = truncate_as_go(self.same.apply(tag.value).0);
            if value < least {
                least = tag.value;
            }
            if value > most {
                most = tag.value;
            }
            // The sums do not overflow, because all tags of a node together are bounded.
            flat = (flat.0 + tag.flat.0, flat.1 + tag.flat.1);
            cum = (cum.0 + tag.cum.0, cum.1 + tag.cum.1);
        }
        let name = match group.len() {
            1 => label(least, self.unit),
            _ => format!("{}..{}", label(least, self.unit), label(most, self.unit)),
        };
        NodeTag {
            name,
            value: 0,
            flat: (mean(flat.0, flat.1), 0),
            cum: (mean(cum.0, cum.1), 0),
        }
    }
}

/// Sorts by the absolute value of the flat or cum, then by name.
fn sort(tags: &mut [NodeTag], flat: bool) {
    let cum = |tag: &NodeTag| if flat { 0 } else { tag.cum.0 };
    sort_as_go(tags, |a, b| {
        if cum(a) != cum(b) {
            return cum(a).wrapping_abs() > cum(b).wrapping_abs();
        }
        if a.flat.0 != b.flat.0 {
            return a.flat.0.wrapping_abs() > b.flat.0.wrapping_abs();
        }
        a.name < b.name
    });
}
