//! Finds the name of a mapping, and whether it belongs to heapprof. Both may follow from the
//! previous mapping.

use crate::smaps::SmapsMapping;

/// A mapping with its name, which may come from the previous mapping.
#[derive(Clone, Copy, Debug)]
pub struct NamedMapping<'a> {
    /// The mapping as the kernel reports it.
    pub area: &'a SmapsMapping<'a>,
    /// The name of the mapping. Unnamed memory directly after private pages of a file has the
    /// file's name: it contains the file's variables that begin as zeros.
    pub name: &'a str,
    /// Whether the mapping belongs to heapprof.
    pub is_own: bool,
}

/// Largest size in bytes of the variables that begin as zeros, behind other pages of a file than
/// variables, and of those of heapprof's library.
const MAX_VARIABLE_BYTES: u64 = 1 << 20;

/// Returns the mappings with their names, in order.
pub fn regions<'a>(areas: &'a [SmapsMapping<'a>]) -> impl Iterator<Item = NamedMapping<'a>> {
    let mut before: Option<&SmapsMapping<'_>> = None;
    areas.iter().map(move |area| {
        // Variables follow other variables of a file. Behind its other pages, only a small mapping
        // may have them: a larger one is another's, and lies there by chance.
        let is_small = area.end - area.start <= MAX_VARIABLE_BYTES;
        let of_file = before.filter(|file| {
            area.name.is_empty()
                && file.name.starts_with('/')
                && !file.name.starts_with("/dev/")
                && file.rights.ends_with('p')
                && (is_small || file.rights.starts_with("rw"))
                && file.end == area.start
        });
        before = of_file.or(Some(area));
        // The kernel may have joined memory of the program and heapprof's variables into one
        // mapping.
        NamedMapping {
            area,
            name: of_file.unwrap_or(area).name,
            is_own: is_ours(area) || is_small && of_file.is_some_and(is_ours),
        }
    })
}

/// Returns the name of a mapping, without the kernel's suffix for a deleted file.
#[must_use]
pub fn file_name<'a>(area: &SmapsMapping<'a>) -> &'a str {
    area.name.strip_suffix(" (deleted)").unwrap_or(area.name)
}

/// Whether a mapping belongs to heapprof: its own memory in the process, or its library.
#[must_use]
pub fn is_ours(area: &SmapsMapping<'_>) -> bool {
    const OWN_FILES: [&str; 3] = [
        "/libheapprof.so",
        // attach loads the library from memory.
        "/memfd:libheapprof.so",
        "/auto/Devel/HeapProf/HeapProf.so",
    ];
    let name = file_name(area);
    area.is_ours() || OWN_FILES.iter().any(|file| name.ends_with(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heapprofs_own_is_known() {
        let text = "\
10000-12000 r-xp 00000000 08:01 1 /opt/libheapprof.so
12000-13000 rw-p 00002000 08:01 1 /opt/libheapprof.so
13000-14000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac rr
14000-15000 rw-p 00000000 00:00 0
20000-22000 r-xp 00000000 08:01 2 /lib/libz.so (deleted)
22000-23000 rw-p 00000000 00:00 0
30000-40000 rw-p 00000000 00:00 0 [heap]
40000-41000 r-xp 00000000 08:01 3 /usr/lib/perl5/auto/Devel/HeapProf/HeapProf.so
41000-400000 rw-p 00000000 00:00 0
400000-401000 rw-s 00000000 00:01 4 /memfd:x (deleted)
401000-402000 rw-p 00000000 00:00 0
402000-403000 rw-p 00000000 00:01 5 /memfd:libheapprof.so (deleted)
";
        let areas = crate::areas(text);
        let found: Vec<_> = regions(&areas).map(|of| (of.name, of.is_own)).collect();
        let library = "/opt/libheapprof.so";
        let module = "/usr/lib/perl5/auto/Devel/HeapProf/HeapProf.so";
        assert_eq!(
            found,
            [
                (library, true),
                (library, true),
                // Variables that the file has no bytes for, which the library has marked.
                (library, true),
                // The program's memory behind them.
                ("", false),
                ("/lib/libz.so (deleted)", false),
                ("/lib/libz.so (deleted)", false),
                ("[heap]", false),
                (module, true),
                // The mapping is larger than variables behind code, so it is the program's.
                ("", false),
                ("/memfd:x (deleted)", false),
                ("", false),
                // The library of an attached program.
                ("/memfd:libheapprof.so (deleted)", true),
            ]
        );
        assert_eq!(file_name(&areas[4]), "/lib/libz.so");
    }
}
