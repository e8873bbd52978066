//! The report `proc` without a process: all processes, by their share of the memory.

use heapprof_process::MemoryUsage;
use serde_json::json;

use crate::error::ReportError;
use crate::measure::{UnitFormatter, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// A process in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedProcess {
    /// The pid of the process.
    pub pid: u32,
    /// The name that the kernel has for the process.
    pub name: String,
    /// The command line of the process, if it has one.
    pub title: Option<String>,
    /// The resident memory, in bytes.
    pub rss: u64,
    /// The kernel's sums over all mappings, if this user may read them.
    pub usage: Option<MemoryUsage>,
}

/// Writes the list of processes, up to `limit` rows.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn processes(
    all: &[ListedProcess],
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let mut total = MemoryUsage::default();
    for usage in all.iter().filter_map(|one| one.usage.as_ref()) {
        total.add(usage);
    }
    let unread = all.iter().filter(|one| one.usage.is_none()).count();
    let shown = limit.unwrap_or(usize::MAX).min(all.len());
    if style.format == ReportFormat::Json {
        let usage = |usage: &MemoryUsage| {
            json!({"pss": usage.pss, "uss": usage.uss(), "swap": usage.swap,
                   "swap_pss": usage.swap_pss})
        };
        let rows = all[..shown].iter().map(|one| {
            json!({
                "pid": one.pid, "name": one.name, "command": one.title, "rss": one.rss,
                "usage": one.usage.as_ref().map(usage),
            })
        });
        return crate::json::text(json!({
            "processes": all.len(), "unread": unread, "total": usage(&total),
            "rows": rows.collect::<Vec<_>>(),
        }));
    }
    let raw = style.format == ReportFormat::Csv;
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("pid", ColumnAlign::Right),
        ("pss", ColumnAlign::Right),
        ("uss", ColumnAlign::Right),
        ("rss", ColumnAlign::Right),
        ("swap", ColumnAlign::Right),
        ("name", ColumnAlign::Left),
        ("command", ColumnAlign::Left),
    ]);
    let mut add =
        |pid: String, usage: Option<&MemoryUsage>, rss: String, name: &str, title: &str| {
            let of = |bytes: fn(&MemoryUsage) -> u64| {
                usage.map_or_else(String::new, |usage| measure.show(bytes(usage)))
            };
            let (pss, uss, swap) = (of(|u| u.pss), of(MemoryUsage::uss), of(|u| u.swap_pss));
            let (name, title) = (name.to_string(), title.to_string());
            table.row(vec![pid, pss, uss, rss, swap, name, title]);
        };
    for one in &all[..shown] {
        let title = one.title.as_deref().unwrap_or_default();
        let rss = measure.show(one.rss);
        add(
            one.pid.to_string(),
            one.usage.as_ref(),
            rss,
            &one.name,
            title,
        );
    }
    if shown < all.len() {
        let mut rest = MemoryUsage::default();
        let others = &all[shown..];
        for usage in others.iter().filter_map(|one| one.usage.as_ref()) {
            rest.add(usage);
        }
        let name = format!("(other: {} more)", others.len());
        add(String::new(), Some(&rest), String::new(), &name, "");
    }
    if raw {
        return table.render(style);
    }
    add(String::new(), Some(&total), String::new(), "total", "");
    if style.format == ReportFormat::Text {
        table.cut_last(60);
    }
    let mut text = format!(
        "{} use {} together (pss)",
        plural(&(all.len() - unread).to_string(), "process"),
        measure.show(total.pss),
    );
    if unread > 0 {
        text += &format!("; {unread} more can't be read");
    }
    Ok(text + "\n" + &table.render(style)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_to_the_total() {
        let one = |pid: u32, pss: u64| ListedProcess {
            pid,
            name: "a".to_string(),
            title: Some("a -b".to_string()),
            rss: 4 * pss,
            usage: (pss > 0).then(|| MemoryUsage {
                pss,
                private_dirty: pss / 2,
                ..MemoryUsage::default()
            }),
        };
        let all = [one(1, 4096), one(2, 2048), one(3, 1024), one(4, 0)];
        let text = processes(&all, Some(1), &ReportStyle::default()).unwrap();
        expect_test::expect![[r"
            3 processes use 7KiB together (pss); 1 more can't be read
            pid   pss      uss    rss  swap  name             command
              1  4KiB     2KiB  16KiB    0B  a                a -b
                 3KiB  1.50KiB           0B  (other: 3 more)
                 7KiB  3.50KiB           0B  total
        "]]
        .assert_eq(&text);
    }
}
