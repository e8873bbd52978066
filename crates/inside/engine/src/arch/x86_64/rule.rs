//! Unwind rules: how to get from one frame to its caller, packed in 8 bytes. A rule contains the
//! part of a CFI row that compilers for x86-64 use.

/// The unwind rule at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnwindRule(pub(crate) u64);

/// How the canonical frame address (CFA) is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UnwindRuleKind {
    /// The frame has no caller.
    End = 0,
    /// CFA = rsp + offset.
    Rsp = 1,
    /// CFA = rbp + offset.
    Rbp = 2,
    /// CFA = *(rbp + offset), as in functions that realign their stack.
    DerefRbp = 3,
    /// Any other rule, for example the rule of a signal frame, or a rule with an expression. Such a
    /// rule is evaluated each time and never reused.
    Complex = 4,
    /// There is no unwind information (JIT, assembly), so the frame pointer is tried.
    FramePointer = 5,
}

const SAVES_RBP: u64 = 8;

impl UnwindRule {
    pub(crate) const END: Self = Self(UnwindRuleKind::End as u64);
    pub(crate) const COMPLEX: Self = Self(UnwindRuleKind::Complex as u64);
    /// The rule for frames that begin with `push rbp; mov rbp, rsp`.
    pub(crate) const FRAME_POINTER: Self = Self(Self::new_const(
        UnwindRuleKind::FramePointer as u64 | SAVES_RBP,
        16,
        -16,
    ));

    const fn new_const(low: u64, cfa: i32, rbp: i32) -> u64 {
        low | ((rbp as u32 & 0xff_ffff) as u64) << 8 | (cfa as u32 as u64) << 32
    }

    /// Makes a rule. `rbp` is the offset of the caller's saved rbp from the CFA (from rbp for
    /// `DerefRbp`).
    pub(crate) fn new(kind: UnwindRuleKind, cfa: i64, rbp: Option<i64>) -> Self {
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
    pub(crate) fn kind(self) -> UnwindRuleKind {
        match self.0 & 7 {
            0 => UnwindRuleKind::End,
            1 => UnwindRuleKind::Rsp,
            2 => UnwindRuleKind::Rbp,
            3 => UnwindRuleKind::DerefRbp,
            4 => UnwindRuleKind::Complex,
            _ => UnwindRuleKind::FramePointer,
        }
    }

    /// Returns the offset of the CFA from the register that the rule's kind names.
    #[inline]
    pub(crate) fn cfa(self) -> usize {
        (self.0 as i64 >> 32) as usize
    }

    /// Returns the offset of the caller's saved rbp; `None` if the frame does not save rbp.
    #[inline]
    pub(crate) fn saved_rbp(self) -> Option<usize> {
        let offset = ((self.0 as u32 as i32) >> 8) as isize as usize;
        (self.0 & SAVES_RBP != 0).then_some(offset)
    }

    /// Whether the CFA depends on rbp.
    #[inline]
    pub(crate) fn uses_rbp(self) -> bool {
        matches!(
            self.kind(),
            UnwindRuleKind::Rbp | UnwindRuleKind::DerefRbp | UnwindRuleKind::FramePointer
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks() {
        for (kind, cfa, rbp) in [
            (UnwindRuleKind::Rsp, 8, None),
            (UnwindRuleKind::Rsp, 1 << 20, Some(-16)),
            (UnwindRuleKind::Rbp, 16, Some(-16)),
            (UnwindRuleKind::DerefRbp, -8, Some(0)),
        ] {
            let rule = UnwindRule::new(kind, cfa, rbp);
            assert_eq!(rule.kind(), kind);
            assert_eq!(rule.cfa() as i64, cfa);
            assert_eq!(rule.saved_rbp().map(|o| o as i64), rbp);
        }
        assert_eq!(
            UnwindRule::new(UnwindRuleKind::Rsp, 1 << 40, None),
            UnwindRule::COMPLEX
        );
        assert_eq!(
            UnwindRule::FRAME_POINTER.saved_rbp(),
            Some(-16isize as usize)
        );
    }
}
