//! The ledger keeper's work when a recording and its processes begin.

use heapprof_live::{LogSource, SharedLedger};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::log::EventLogWriter;
use crate::rights::RightsLedger;

/// Begins to log the events of a process.
pub(super) fn begin(
    log: &mut EventLogWriter,
    kept: &SharedLedger,
    main: u32,
    rights: &RightsLedger,
) -> anyhow::Result<()> {
    log.begin(
        LogSource::SharedLedger(kept.try_clone()?),
        main,
        rights.clone(),
    )
}

/// Raises the limit of open files to the highest value that this process may set, because the
/// keeper has two open files for each process. The program already runs, so its limit does not
/// change.
pub(super) fn allow_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
