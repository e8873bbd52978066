//! The comment about an allocator that is linked into a program or a library.

/// An allocator inside a file, and whether a recording has its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookedAllocator {
    /// The allocator's name.
    pub name: String,
    /// The file that contains it.
    pub file: String,
    /// The number of its hooked functions, or the reason why none is hooked.
    pub functions: Result<usize, String>,
}

const HOOKED_PREFIX: &str = "allocator hooked: ";
const UNHOOKED_PREFIX: &str = "allocator not hooked: ";
/// Text between the allocator's name and its file.
const INSIDE: &str = " inside ";

impl HookedAllocator {
    /// Returns the comment of a profile:
    /// `allocator hooked: 6 functions of jemalloc inside /usr/bin/server`.
    #[must_use]
    pub fn to_comment(&self) -> String {
        let (name, file) = (&self.name, &self.file);
        match &self.functions {
            Ok(count) => format!("{HOOKED_PREFIX}{count} functions of {name}{INSIDE}{file}"),
            Err(why) => format!("{UNHOOKED_PREFIX}{why}: {name}{INSIDE}{file}"),
        }
    }

    /// Returns the name and the file of the allocator whose functions are hooked by a comment;
    /// `None` for other comments.
    #[must_use]
    pub fn parse_hooked(comment: &str) -> Option<(&str, &str)> {
        let (_, rest) = comment
            .strip_prefix(HOOKED_PREFIX)?
            .split_once(" functions of ")?;
        rest.split_once(INSIDE)
    }

    /// Returns the reason, the name and the file of the allocator that is not hooked by a comment;
    /// `None` for other comments.
    #[must_use]
    pub fn parse_unhooked(comment: &str) -> Option<(&str, &str, &str)> {
        let (rest, file) = comment.strip_prefix(UNHOOKED_PREFIX)?.split_once(INSIDE)?;
        let (why, name) = rest.rsplit_once(": ")?;
        Some((why, name, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooked_allocators_are_found_in_comments() {
        let mut allocator = HookedAllocator {
            name: "jemalloc".to_string(),
            file: "/opt/a b/server".to_string(),
            functions: Ok(6),
        };
        let comment = allocator.to_comment();
        assert_eq!(
            comment,
            "allocator hooked: 6 functions of jemalloc inside /opt/a b/server"
        );
        let found = HookedAllocator::parse_hooked(&comment);
        assert_eq!(found, Some(("jemalloc", "/opt/a b/server")));
        allocator.functions = Err("mallocx has only 2 bytes".to_string());
        let comment = allocator.to_comment();
        assert_eq!(HookedAllocator::parse_hooked(&comment), None);
        let found = HookedAllocator::parse_unhooked(&comment);
        let why = "mallocx has only 2 bytes";
        assert_eq!(found, Some((why, "jemalloc", "/opt/a b/server")));
        assert_eq!(HookedAllocator::parse_hooked("allocator hooked: "), None);
    }
}
