//! Reports which allocators of a program were not recorded: in its profile, and in record's last
//! lines.

use std::io;
use std::path::Path;

use heapprof_analysis::{RssBreakdown, UNSEEN_ALLOCATOR_PREFIX};
use heapprof_profile::Profile;
use heapprof_symbolize::allocators::{AllocatorRole, UnhookedAllocator};
use heapprof_symbolize::program::{PreloadObstacle, inspect};
use heapprof_text::printable;

use super::words::bytes;
use super::written::WrittenProfile;
use heapprof_recorder::rights::{ProcessNamer, ProcessRights};

/// Searches the files of a profile's program for allocators, with the rights of the process that
/// names the files. Names those that were not recorded in the profile's comments.
///
/// # Errors
/// heapprof can't act with these rights.
pub(super) fn note_in(
    profile: &mut Profile,
    namer: &mut ProcessNamer,
    rights: ProcessRights,
) -> io::Result<Vec<UnhookedAllocator>> {
    let files = profile.mapping.iter().map(|m| profile.text(m.filename));
    let files: Vec<String> = files.map(str::to_string).collect();
    let found = namer.survey(files.iter().map(Path::new), rights)?;
    for one in &found {
        let comment = format!("{UNSEEN_ALLOCATOR_PREFIX}{}", describe_unhooked(one));
        let comment = profile.strings.intern(&comment);
        profile.comment.push(comment);
    }
    Ok(found)
}

/// Describes an allocator that is not recorded.
fn describe_unhooked(unhooked: &UnhookedAllocator) -> String {
    let shown = |path: &Path| printable(&path.display().to_string()).into_owned();
    match unhooked {
        UnhookedAllocator::Inside {
            name,
            file,
            function,
            ..
        } => format!(
            "the blocks of {name} inside {} ({function}) are not recorded",
            shown(file)
        ),
        UnhookedAllocator::Called {
            name,
            file,
            functions,
            role,
        } => {
            let missing = match role {
                AllocatorRole::Allocates => "such blocks are not recorded",
                AllocatorRole::Frees => {
                    "such frees are not recorded, so what is in use is too much"
                }
            };
            format!(
                "{} calls {functions} of {name} past malloc, and {missing}",
                shown(file)
            )
        }
        UnhookedAllocator::SecondLibc { file } => format!(
            "dlmopen has loaded a second C library ({}), whose blocks are not recorded",
            shown(file)
        ),
    }
}

/// Returns record's lines about all allocators: what is not in the profile, how much memory that
/// may be, and what would show it.
pub(super) fn lines(all: &[UnhookedAllocator], peak: Option<RssBreakdown>) -> Vec<String> {
    let rest = peak.and_then(|peak| Some((peak.bytes_beside_heap()?, peak.program_bytes())));
    let rest = rest.map_or_else(String::new, |(rest, whole)| {
        format!(
            "; {} of the peak RSS {} is not in the profile",
            bytes(rest),
            bytes(whole)
        )
    });
    let each = all.iter().enumerate().map(|(i, one)| {
        let rest = if i == 0 { rest.as_str() } else { "" };
        let remedy = match one {
            UnhookedAllocator::Inside { remedy, .. } => remedy,
            UnhookedAllocator::Called { .. } => {
                "a program that calls malloc and free is seen whole"
            }
            UnhookedAllocator::SecondLibc { .. } => "what dlopen loads is seen whole",
        };
        let mappings = match one {
            UnhookedAllocator::Inside {
                has_countable_mappings: true,
                ..
            } => "; --mmap counts what it maps",
            _ => "",
        };
        format!("{}{rest}; {remedy}{mappings}", describe_unhooked(one))
    });
    each.collect()
}

/// Explains why a profile is empty, if the program (perhaps one that a script started) has malloc
/// inside itself.
pub(super) fn own_allocator(of: &WrittenProfile, program: &str) -> Option<String> {
    // A name that another user wrote may lead anywhere.
    let is_ours = of.owner.is_us() && of.rights.are_ours();
    if !is_ours || !Path::new(program).is_file() {
        return None;
    }
    let own = inspect(Path::new(program)).obstacles;
    let function = own.iter().find_map(|obstacle| match obstacle {
        PreloadObstacle::OwnAllocator(function) => Some(function),
        _ => None,
    })?;
    Some(format!(
        "nothing was recorded because {program} has an allocator of its own linked in \
         ({function}), which comes before that of every library"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_memory() {
        let file = || Path::new("/tmp/p\n").to_path_buf();
        let inside = UnhookedAllocator::Inside {
            name: "mimalloc",
            remedy: "link it otherwise",
            has_countable_mappings: false,
            file: file(),
            function: "mi_malloc_aligned".to_string(),
        };
        let called = UnhookedAllocator::Called {
            name: "jemalloc",
            file: file(),
            functions: "sdallocx".to_string(),
            role: AllocatorRole::Frees,
        };
        let peak = RssBreakdown {
            bytes: 4 << 20,
            own: 1 << 20,
            heap: Some(1 << 20),
        };
        assert_eq!(
            lines(&[inside, called], Some(peak)),
            [
                "the blocks of mimalloc inside /tmp/p\\n (mi_malloc_aligned) are not recorded; 2MiB \
                 of the peak RSS 3MiB is not in the profile; link it otherwise",
                "/tmp/p\\n calls sdallocx of jemalloc past malloc, and such frees are not recorded, \
                 so what is in use is too much; a program that calls malloc and free is seen whole",
            ]
        );
    }
}
