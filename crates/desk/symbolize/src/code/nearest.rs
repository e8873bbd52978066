//! Finds the symbols around some addresses in one pass through a symbol table, without a copy of
//! the table.

use object::{Object, ObjectSymbol, SymbolIndex, SymbolKind};

use crate::elf::ElfBinary;
use crate::symbols::{is_name, rank};

/// A symbol that contains an address.
#[derive(Clone, Copy)]
pub(super) struct NearestSymbol {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) index: SymbolIndex,
}

/// Returns, for each of some addresses in ascending order, the nearest symbol before it that
/// contains it.
///
/// A symbol of the table needs as much time as a binary search, however many addresses it contains:
/// it is kept only at the first address behind its start, and later addresses take it over. With
/// `needs_code`, only symbols in sections with code count; those without a size end where the next
/// one begins.
pub(super) fn nearest_symbols(
    elf: &ElfBinary<'_>,
    is_dynamic: bool,
    addresses: &[u64],
    needs_code: bool,
    is_wanted: impl Fn(SymbolKind) -> bool,
) -> Vec<Option<NearestSymbol>> {
    let code_ends = elf.code_ends();
    let (mut sized, mut unsized_) = (vec![None; addresses.len()], vec![None; addresses.len()]);
    let mut next = vec![u64::MAX; addresses.len()];
    let symbols = match is_dynamic {
        false => elf.object.symbols(),
        true => elf.object.dynamic_symbols(),
    };
    for symbol in symbols {
        let section = symbol.section_index().and_then(|i| code_ends.get(i.0));
        let code_end = section.copied().unwrap_or(0);
        let (start, size) = (symbol.address(), symbol.size());
        let limit = match needs_code {
            true => code_end,
            false => u64::MAX,
        };
        if !is_wanted(symbol.kind())
            || symbol.is_undefined()
            || start >= limit
            || !is_name(symbol.name_bytes().unwrap_or_default())
        {
            continue;
        }
        let at = addresses.partition_point(|&address| address < start);
        if let Some(before) = at.checked_sub(1).and_then(|before| next.get_mut(before)) {
            *before = start.min(*before);
        }
        let found = NearestSymbol {
            start,
            end: match (size, needs_code) {
                (0, true) => limit,
                _ => start.saturating_add(size.max(1)).min(limit),
            },
            index: symbol.index(),
        };
        let kept = match size {
            0 => &mut unsized_,
            _ => &mut sized,
        };
        if let Some(kept) = kept.get_mut(at) {
            keep_better(elf, is_dynamic, kept, found);
        }
    }
    for at in (1..next.len()).rev() {
        next[at - 1] = next[at - 1].min(next[at]);
    }
    let (sized, unsized_) = (
        taken_over(&sized, addresses, &[]),
        taken_over(&unsized_, addresses, &next),
    );
    let pairs = sized.into_iter().zip(unsized_);
    pairs.map(|(sized, unsized_)| sized.or(unsized_)).collect()
}

/// Keeps the nearer of two symbols, and of two names for one place the one that says more.
fn keep_better(
    elf: &ElfBinary<'_>,
    is_dynamic: bool,
    kept: &mut Option<NearestSymbol>,
    found: NearestSymbol,
) {
    let is_better = match kept {
        None => true,
        Some(kept) if kept.start == found.start => {
            rank(elf, found.index, is_dynamic) > rank(elf, kept.index, is_dynamic)
        }
        Some(kept) => kept.start < found.start,
    };
    if is_better {
        *kept = Some(found);
    }
}

/// Returns the symbol of each address: its own or that of an address before it, if this symbol
/// contains the address. A symbol ends before `next`, if that is given.
fn taken_over(
    kept: &[Option<NearestSymbol>],
    addresses: &[u64],
    next: &[u64],
) -> Vec<Option<NearestSymbol>> {
    let mut last: Option<NearestSymbol> = None;
    let each = kept.iter().zip(addresses).enumerate();
    each.map(|(at, (own, &address))| {
        last = own.or(last);
        let mut found = last?;
        found.end = next.get(at).map_or(found.end, |&next| next.min(found.end));
        (address < found.end).then_some(found)
    })
    .collect()
}
