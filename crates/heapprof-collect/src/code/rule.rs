//! How to get from one frame to its caller, packed in 8 bytes: the part of a CFI row that compilers
//! use.

/// A rule of unwinding at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule(pub(crate) u64);

/// Where the canonical frame address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// There is no caller.
    End = 0,
    /// CFA = rsp + offset.
    Rsp = 1,
    /// CFA = rbp + offset.
    Rbp = 2,
    /// CFA = *(rbp + offset): functions that realign their stack.
    DerefRbp = 3,
    /// Anything else (signal frames, expressions): evaluated anew each time, never reused.
    Complex = 4,
    /// No unwind information (JIT, assembly): the frame pointer is tried.
    FramePointer = 5,
}

const SAVES_RBP: u64 = 8;

impl Rule {
    pub(crate) const END: Self = Self(Kind::End as u64);
    pub(crate) const COMPLEX: Self = Self(Kind::Complex as u64);
    /// `push rbp; mov rbp, rsp`.
    pub(crate) const FRAME_POINTER: Self = Self(Self::new_const(
        Kind::FramePointer as u64 | SAVES_RBP,
        16,
        -16,
    ));

    const fn new_const(low: u64, cfa: i32, rbp: i32) -> u64 {
        low | ((rbp as u32 & 0xff_ffff) as u64) << 8 | (cfa as u32 as u64) << 32
    }

    /// A rule; `rbp` is where the caller's rbp is kept, from the CFA (from rbp for `DerefRbp`).
    pub(crate) fn new(kind: Kind, cfa: i64, rbp: Option<i64>) -> Self {
        let fits = |v: i64, bits: u32| v >= -(1 << (bits - 1)) && v < 1 << (bits - 1);
        if !fits(cfa, 32) || !fits(rbp.unwrap_or(0), 24) {
            return Self::COMPLEX;
        }
        let saves = if rbp.is_some() { SAVES_RBP } else { 0 };
        Self(Self::new_const(
            kind as u64 | saves,
            cfa as i32,
            rbp.unwrap_or(0) as i32,
        ))
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 & 7 {
            0 => Kind::End,
            1 => Kind::Rsp,
            2 => Kind::Rbp,
            3 => Kind::DerefRbp,
            4 => Kind::Complex,
            _ => Kind::FramePointer,
        }
    }

    /// Offset of the CFA from its register.
    #[inline]
    pub(crate) fn cfa(self) -> usize {
        (self.0 as i64 >> 32) as usize
    }

    /// Offset of the saved rbp, if this frame saves it.
    #[inline]
    pub(crate) fn saved_rbp(self) -> Option<usize> {
        let offset = ((self.0 as u32 as i32) >> 8) as isize as usize;
        (self.0 & SAVES_RBP != 0).then_some(offset)
    }

    /// Whether the CFA depends on rbp.
    #[inline]
    pub(crate) fn uses_rbp(self) -> bool {
        matches!(self.kind(), Kind::Rbp | Kind::DerefRbp | Kind::FramePointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks() {
        for (kind, cfa, rbp) in [
            (Kind::Rsp, 8, None),
            (Kind::Rsp, 1 << 20, Some(-16)),
            (Kind::Rbp, 16, Some(-16)),
            (Kind::DerefRbp, -8, Some(0)),
        ] {
            let rule = Rule::new(kind, cfa, rbp);
            assert_eq!(rule.kind(), kind);
            assert_eq!(rule.cfa() as i64, cfa);
            assert_eq!(rule.saved_rbp().map(|o| o as i64), rbp);
        }
        assert_eq!(Rule::new(Kind::Rsp, 1 << 40, None), Rule::COMPLEX);
        assert_eq!(Rule::FRAME_POINTER.saved_rbp(), Some(-16isize as usize));
    }
}
