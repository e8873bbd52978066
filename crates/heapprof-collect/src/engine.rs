//! The tables that all threads share.

use crate::live::LiveTable;
use crate::stacks::Stacks;

pub(crate) static STACKS: Stacks = Stacks::new();
pub(crate) static LIVE: LiveTable = LiveTable::new();
