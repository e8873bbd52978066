//! The reasons why a function gets no jump.

/// Why a function's first instructions can't be replaced by a jump. Addresses are those of the
/// loaded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryRefusal {
    /// The function is not in an executable segment.
    #[error("it is not in code")]
    NotCode,
    /// A byte sequence is no instruction.
    #[error("its first instructions are not known")]
    Undecodable,
    /// The function is too short for a jump.
    #[error("it has only {0} bytes, and other code follows")]
    Short(u64),
    /// An instruction among the first ones must stay where it is.
    #[error("one of its first instructions stops the program or calls the kernel")]
    Trap,
    /// A call among the first instructions would return below the jump.
    #[error("a call returns into its first bytes")]
    ReturnInside,
    /// A call through a pointer among the first instructions would return into their copy, of which
    /// no unwinder knows, so that no exception could pass.
    #[error("one of its first instructions is a call through a pointer")]
    MovedCall,
    /// A branch leads below the jump.
    #[error("a branch at {from:#x} leads into its first bytes")]
    BranchInside {
        /// Address of the branch.
        from: u64,
    },
    /// A loop leads back to the first instruction.
    #[error("a loop leads back to its first instruction")]
    Loop,
    /// There is too much code to look at.
    #[error("it leads to too much code")]
    TooLarge,
    /// The moved instructions can't be encoded at their new place.
    #[error("its first instructions can't be moved")]
    Immovable,
}
