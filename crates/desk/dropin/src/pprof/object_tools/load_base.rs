//! Computes how far an object file was moved when it was loaded: the address in the profile minus
//! the address in the file.
//!
//! The rules are those of google/pprof (internal/elfexec and internal/binutils), including those
//! for kernels.

use heapprof_symbolize::layout::{LoadSegment, ObjectKind, ObjectLayout};

use crate::report::ObjectMapping;

const PAGE_SIZE: u64 = 4096;
/// The first address of the half of the address space that belongs to the kernel.
const KERNEL_START: u64 = 1 << 63;
/// The offset that a kernel of 64-bit PowerPC has in profiles.
const POWERPC_OFFSET: u64 = 0xc000_0000_0000_0000;

/// Whether the kernel's symbol `_stext` is needed for the base of a file.
pub(super) fn needs_kernel_symbol(file: &str, mapping: ObjectMapping) -> bool {
    let ends = [mapping.start, mapping.limit, mapping.offset];
    file.contains("vmlinux") || ends.iter().any(|end| !end.is_multiple_of(PAGE_SIZE))
}

/// Checks that a base exists for a mapping. The base itself depends on the segment that an address
/// is in, so [`base_at`] computes it.
pub(super) fn check_base(layout: &ObjectLayout, mapping: ObjectMapping) -> Result<(), String> {
    base(layout, text_segment(layout), mapping).map(|_| ())
}

/// Returns the base for the segment that holds an address of the mapping.
pub(super) fn base_at(
    layout: &ObjectLayout,
    mapping: ObjectMapping,
    address: u64,
    file: &str,
) -> Result<u64, String> {
    let ObjectMapping { start, limit, .. } = mapping;
    if !(start..limit).contains(&address) {
        return Err(format!(
            "specified address {address:x} is outside the mapping range [{start:x}, {limit:x}] for \
             file {file:?}"
        ));
    }
    let segment = segment_at(layout, mapping, address).map_err(|why| {
        format!(
            "failed to find program header for file {file:?}, mapping {start:#x} to {limit:#x} at \
             offset {:#x}, address {address:x}: {why}",
            mapping.offset
        )
    })?;
    base(layout, segment, mapping)
}

/// Returns the segment with the section `.text`.
fn text_segment(layout: &ObjectLayout) -> Option<&LoadSegment> {
    let text = layout.text?;
    layout.segments.iter().find(|segment| {
        segment.executable && text.wrapping_sub(segment.address) < segment.memory_size
    })
}

/// Returns the segment that holds an address; `None` if the file has no segments.
fn segment_at(
    layout: &ObjectLayout,
    mapping: ObjectMapping,
    address: u64,
) -> Result<Option<&LoadSegment>, String> {
    let ObjectMapping {
        start,
        limit,
        offset,
    } = mapping;
    if layout.symbol.is_some() || start >= limit || limit >= KERNEL_START {
        return Ok(text_segment(layout));
    }
    if layout.segments.is_empty() {
        return Ok(None);
    }
    let mapped: Vec<&LoadSegment> = layout
        .segments
        .iter()
        .filter(|segment| is_mapped(segment, offset, limit - start))
        .collect();
    match mapped[..] {
        [] => Err("no program header matches mapping info".to_string()),
        [one] => Ok(Some(one)),
        _ => {
            let offset = address.wrapping_sub(start).wrapping_add(offset);
            let holds = |segment: &&&LoadSegment| {
                let end = segment.offset.wrapping_add(segment.memory_size);
                offset >= segment.offset && offset < end
            };
            let mut found = mapped.iter().filter(holds);
            match (found.next(), found.next()) {
                (Some(one), None) => Ok(Some(one)),
                (None, _) => Err(format!("no program header matches file offset {offset:x}")),
                (Some(_), Some(_)) => Err(format!(
                    "several program headers match file offset {offset:x}; the file may be stripped \
                     of some sections"
                )),
            }
        }
    }
}

/// Whether a segment belongs to a mapping of `size` bytes from the offset `start`. Segments without
/// bytes in the file have meaningless offsets. A mapping can overlap a segment without belonging to
/// it, because neighbouring segments may share a page of the file.
fn is_mapped(segment: &LoadSegment, start: u64, size: u64) -> bool {
    let limit = start.wrapping_add(size);
    let end = segment.offset.wrapping_add(segment.memory_size);
    if segment.file_size == 0 || start >= end || segment.offset >= limit {
        return false;
    }
    let before = segment.address & segment.alignment.wrapping_sub(1);
    let is_before = start < segment.offset.saturating_sub(before);
    let is_after = start > segment.offset
        && end < start.wrapping_add(PAGE_SIZE)
        && limit >= end.wrapping_add(PAGE_SIZE);
    !is_before && !is_after
}

fn base(
    layout: &ObjectLayout,
    segment: Option<&LoadSegment>,
    mapping: ObjectMapping,
) -> Result<u64, String> {
    let ObjectMapping {
        start,
        limit,
        offset,
    } = mapping;
    if start == 0 && offset == 0 && matches!(limit, 0 | u64::MAX) {
        // The mapping is not real, so the addresses are the file's own.
        return Ok(0);
    }
    let moved = |segment: &LoadSegment| {
        let mapped = start.wrapping_sub(offset);
        mapped
            .wrapping_add(segment.offset)
            .wrapping_sub(segment.address)
    };
    match (layout.kind, segment) {
        (ObjectKind::Fixed, None) => Ok(0),
        (ObjectKind::Fixed, Some(segment)) => {
            if layout.symbol.is_none() && (1..KERNEL_START).contains(&start) {
                return Ok(moved(segment));
            }
            if let Some(base) = kernel_base(layout, segment, mapping) {
                return Ok(base);
            }
            match start == 0 && limit != 0 && layout.symbol.is_none() {
                true => Ok(start.wrapping_sub(segment.address)),
                false => Err(format!(
                    "don't know how to handle EXEC segment: start={start:#x} limit={limit:#x} \
                     offset={offset:#x}"
                )),
            }
        }
        (ObjectKind::Relocatable, _) if offset != 0 => {
            Err("don't know how to handle mapping.Offset".to_string())
        }
        (ObjectKind::Relocatable, _) => Ok(start),
        (ObjectKind::Shared, None) => Ok(start.wrapping_sub(offset)),
        (ObjectKind::Shared, Some(segment)) => {
            Ok(kernel_base(layout, segment, mapping).unwrap_or_else(|| moved(segment)))
        }
        (ObjectKind::Other(kind), _) => {
            Err(format!("don't know how to handle FileHeader.Type {kind}"))
        }
    }
}

/// Returns the base of a kernel; `None` if the mapping is not one of the forms that profilers write
/// for kernels.
fn kernel_base(
    layout: &ObjectLayout,
    segment: &LoadSegment,
    mapping: ObjectMapping,
) -> Option<u64> {
    let ObjectMapping {
        start,
        limit,
        offset,
    } = mapping;
    if segment.address == start.wrapping_sub(offset) {
        return Some(offset);
    }
    let same_place = |symbol: &u64| start % PAGE_SIZE == symbol % PAGE_SIZE;
    let symbol = layout.symbol;
    if start == 0 && limit != 0 && symbol.is_some() {
        return symbol.map(|symbol| start.wrapping_sub(symbol));
    }
    let is_kernel = start >= KERNEL_START && limit > start;
    if is_kernel && (offset == 0 || offset == POWERPC_OFFSET || offset == start) {
        let from = symbol.filter(same_place).unwrap_or(segment.address);
        return Some(start.wrapping_sub(from));
    }
    if !start.is_multiple_of(PAGE_SIZE) {
        return symbol
            .filter(same_place)
            .map(|symbol| start.wrapping_sub(symbol));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, address: u64, size: u64) -> LoadSegment {
        LoadSegment {
            offset,
            address,
            file_size: size,
            memory_size: size,
            alignment: PAGE_SIZE,
            executable: true,
        }
    }

    fn layout(kind: ObjectKind, segments: &[LoadSegment], symbol: Option<u64>) -> ObjectLayout {
        ObjectLayout {
            kind,
            segments: segments.to_vec(),
            text: segments.first().map(|segment| segment.address),
            symbol,
        }
    }

    fn mapping(start: u64, limit: u64, offset: u64) -> ObjectMapping {
        ObjectMapping {
            start,
            limit,
            offset,
        }
    }

    /// The cases and their results are those of the tests of google/pprof
    /// (internal/elfexec/elfexec_test.go).
    #[test]
    fn bases() {
        use ObjectKind::{Fixed, Other, Relocatable, Shared};
        const KERNEL: u64 = 0xffff_ffff_8020_0000;
        let kernel = [segment(0, KERNEL, 0x1000)];
        let table = [
            (Fixed, &[][..], None, mapping(0x400000, 0, 0), Ok(0)),
            (
                Fixed,
                &[segment(0, 0x400000, 0x1000)],
                None,
                mapping(0x400000, 0, 0),
                Ok(0),
            ),
            (
                Fixed,
                &[segment(0, 0x400000, 0x1000)],
                None,
                mapping(0x5400000, 0, 0),
                Ok(0x5000000),
            ),
            (Fixed, &kernel, None, mapping(0, 0, 0), Ok(0)),
            (
                Fixed,
                &kernel,
                Some(KERNEL + 0x198),
                mapping(KERNEL + 0x198 + 0x3000000, u64::MAX - 1, 0),
                Ok(0x3000000),
            ),
            (
                Fixed,
                &kernel,
                None,
                mapping(KERNEL + 0x3000000, u64::MAX - 1, 0),
                Ok(0x3000000),
            ),
            (
                Fixed,
                &kernel,
                Some(KERNEL + 0x198),
                mapping(0, 0x100000, 0),
                Ok(0u64.wrapping_sub(KERNEL + 0x198)),
            ),
            (
                Fixed,
                &kernel,
                None,
                mapping(0, 0x100000, 0),
                Ok(0u64.wrapping_sub(KERNEL)),
            ),
            (
                Shared,
                &[],
                None,
                mapping(0x200000, 0, 0x1000),
                Ok(0x1ff000),
            ),
            (
                Shared,
                &[segment(0xa00000, 0x10a00000, 0x1000)],
                None,
                mapping(0x20100000, 0x20200000, 0xa00000),
                Ok(0xf700000),
            ),
            (
                Relocatable,
                &[],
                None,
                mapping(0x2000000, 0, 0),
                Ok(0x2000000),
            ),
            (Relocatable, &[], None, mapping(0x2000000, 0, 1), Err(())),
            (Other(4), &[], None, mapping(1, 0, 0), Err(())),
        ];
        for (at, (kind, segments, symbol, mapping, expected)) in table.into_iter().enumerate() {
            let layout = layout(kind, segments, symbol);
            let found = base(&layout, segments.first(), mapping).map_err(|_| ());
            assert_eq!(found, expected, "{at}");
        }
    }

    #[test]
    fn the_segment_of_an_address() {
        let layout = layout(
            ObjectKind::Shared,
            &[segment(0, 0, 0x1500), segment(0x1800, 0x2800, 0x1000)],
            None,
        );
        let base = |mapping, address| base_at(&layout, mapping, address, "f");
        // The second segment is mapped from the page in which it begins.
        let first = mapping(0x7000, 0xa000, 0);
        assert_eq!(base(first, 0x7010), Ok(0x7000));
        assert_eq!(base(first, 0x9fff), Ok(0x7000));
        let shared = mapping(0x7000, 0x8000, 0x1000);
        assert_eq!(base(shared, 0x7100), Ok(0x6000));
        assert_eq!(base(shared, 0x7900), Ok(0x5000));
        let says = |mapping, address, text: &str| {
            let error = base(mapping, address).unwrap_err();
            assert!(error.ends_with(text), "{error}");
        };
        says(
            first,
            0xa000,
            "specified address a000 is outside the mapping range [7000, a000] for file \"f\"",
        );
        says(shared, 0x7600, "no program header matches file offset 1600");
        let beyond = mapping(0x7000, 0x8000, 0x9000);
        says(beyond, 0x7000, "no program header matches mapping info");
    }
}
