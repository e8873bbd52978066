//! Finds the allocators of a program that were not recorded, and names them in its profile.

use std::io;
use std::path::Path;

use heapprof_allocators::AllocatorFamily;
use heapprof_analysis::coverage::UNSEEN_ALLOCATOR_PREFIX;
use heapprof_profile::{HookedAllocator, Profile};
use heapprof_symbolize::allocators::{AllocatorRole, UnhookedAllocator};
use heapprof_symbolize::program::{PreloadObstacle, inspect};
use heapprof_text::printable;

use crate::WrittenProfile;
use crate::rights::{ProcessNamer, ProcessRights};

/// Searches the files of a profile's program for allocators that were not recorded, and adds
/// comments about them to the profile. The files are read with the rights of the process that names
/// them.
///
/// # Errors
/// heapprof can't act with these rights.
pub(crate) fn note_in(
    profile: &mut Profile,
    namer: &mut ProcessNamer,
    rights: ProcessRights,
) -> io::Result<Vec<UnhookedAllocator>> {
    let files = profile.mapping.iter().map(|m| profile.text(m.filename));
    let files: Vec<String> = files.map(str::to_string).collect();
    let mut found = namer.survey(files.iter().map(Path::new), rights)?;
    let comments = profile.comment.iter().map(|id| profile.text(*id));
    let comments: Vec<&str> = comments.collect();
    let parsed = comments.iter().copied();
    let hooked: Vec<_> = parsed.filter_map(HookedAllocator::parse_hooked).collect();
    found.retain(|one| match one {
        // An allocator in malloc's place may be any.
        UnhookedAllocator::Inside { name, file, .. } => !hooked.iter().any(|(known, hooked)| {
            Path::new(hooked) == file && (known == name || *known == AllocatorFamily::Malloc.name())
        }),
        UnhookedAllocator::Nameless { file, .. } => {
            !hooked.iter().any(|(_, hooked)| Path::new(hooked) == file)
        }
        UnhookedAllocator::Called { name, .. } => !hooked.iter().any(|(hooked, _)| hooked == name),
        UnhookedAllocator::SecondLibc { .. } => true,
    });
    for one in &mut found {
        let UnhookedAllocator::Inside {
            name, file, why, ..
        } = one
        else {
            continue;
        };
        let mut unhooked = comments
            .iter()
            .filter_map(|comment| HookedAllocator::parse_unhooked(comment));
        let is_it = |(_, of, at): &(&str, &str, &str)| of == name && Path::new(at) == file;
        *why = unhooked.find(is_it).map(|(why, ..)| why.to_string());
    }
    for one in &found {
        let comment = format!("{UNSEEN_ALLOCATOR_PREFIX}{}", describe_unhooked(one));
        let comment = profile.strings.intern(&comment);
        profile.comment.push(comment);
    }
    Ok(found)
}

/// Describes an allocator that is not recorded.
pub fn describe_unhooked(unhooked: &UnhookedAllocator) -> String {
    let shown = |path: &Path| printable(&path.display().to_string()).into_owned();
    match unhooked {
        UnhookedAllocator::Inside {
            name,
            file,
            function,
            why,
            ..
        } => {
            let why = why.as_deref().map(|why| format!(": {}", printable(why)));
            format!(
                "the blocks of {name} inside {} ({function}) are not recorded{}",
                shown(file),
                why.unwrap_or_default()
            )
        }
        UnhookedAllocator::Nameless { name, file } => format!(
            "{} has {name} inside, but no names of its functions; its blocks are not recorded",
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
                    "such frees are not recorded, so the memory in use is overstated"
                }
            };
            format!(
                "{} calls {functions} of {name}, bypassing malloc; {missing}",
                shown(file)
            )
        }
        UnhookedAllocator::SecondLibc { file } => format!(
            "dlmopen has loaded a second C library ({}), whose blocks are not recorded",
            shown(file)
        ),
    }
}

/// Explains that a profile is empty because the program has its own malloc linked in. Returns
/// `None` if the program has no such malloc. `program` may have been started by a script.
pub fn own_allocator(of: &WrittenProfile, program: &str) -> Option<String> {
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
        "nothing was recorded because {program} has its own allocator linked in ({function}), \
         which takes precedence over that of any library"
    ))
}
