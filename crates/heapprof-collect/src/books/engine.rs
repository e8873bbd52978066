//! The tables that all threads share.

use crate::books::live::LiveTable;
use crate::tables::stacks::Stacks;

pub(crate) static STACKS: Stacks = Stacks::new();
pub(crate) static LIVE: LiveTable = LiveTable::new();
