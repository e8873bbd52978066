//! The environment variables of libheapprof.so: read by the library, printed by the documentation.

/// A variable, the form of its value, and what it does.
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it may be set to.
    pub value: &'static str,
    /// What setting it does.
    pub meaning: &'static str,
}

const fn variable(name: &'static str, value: &'static str, meaning: &'static str) -> Variable {
    Variable {
        name,
        value,
        meaning,
    }
}

/// All of them: ours, then those of gperftools that an existing setup may have.
pub const VARIABLES: &[Variable] = &[
    variable(
        "HEAPPROF_OUTPUT",
        "path",
        "Records, and writes there. `%p` is the process id, `%e` the name by which the program \
         was started (a script's is its interpreter's), `%n` the number of the dump; with none of \
         them each process inserts its id (under `heapprof record` and with HEAPPROF_FOLLOW=no \
         all but the first), and dumps before the last their number. A folder stands for \
         `heapprof.%e.%p.pb.gz` in it. A relative path is taken from the folder the program \
         starts in. Where no file appears, HEAPPROF_VERBOSE says why.",
    ),
    variable(
        "HEAPPROF_MODE",
        "`sampled` or `exact`",
        "What is recorded; `sampled` unless set.",
    ),
    variable(
        "HEAPPROF_PERIOD",
        "bytes, or with KiB, MiB",
        "Average bytes between samples; 512KiB unless set.",
    ),
    variable(
        "HEAPPROF_START",
        "`yes` or `no`",
        "`no` waits for the program to call `heapprof_start`.",
    ),
    variable(
        "HEAPPROF_INTERVAL",
        "seconds, or with ms, s, m, h",
        "Dumps each time this long has passed.",
    ),
    variable(
        "HEAPPROF_GROWTH",
        "bytes, or with KiB, MiB, GiB",
        "Dumps each time the heap is this much larger than at the last dump.",
    ),
    variable(
        "HEAPPROF_PEAK",
        "`yes` or `no`",
        "Dumps at new peaks, each a tenth (and 64 KiB) above the last one dumped.",
    ),
    variable(
        "HEAPPROF_SIGNAL",
        "signal number",
        "Dumps when this signal comes, if the program left it at its default.",
    ),
    variable(
        "HEAPPROF_FOLLOW",
        "`yes` or `no`",
        "Whether children record as well; they do unless `no`.",
    ),
    variable(
        "HEAPPROF_MMAP",
        "`yes` or `no`",
        "Counts what the program maps itself (mmap, mremap, munmap) as allocations: address \
         space, touched or not.",
    ),
    variable(
        "HEAPPROF_FORMAT",
        "`pprof` or `text`",
        "Gzipped pprof, or gperftools' text form; `pprof` unless HEAPPROFILE is set.",
    ),
    variable(
        "HEAPPROF_FILE_MODE",
        "octal rights, `600` to `666`",
        "The rights of the files that are written, whatever the umask is; 600 unless set, for a \
         profile shows what a program did.",
    ),
    variable(
        "HEAPPROF_WRAPPERS",
        "regular expression",
        "Functions that reports leave out as they do malloc, by their names without parameters, \
         so that their callers are named: wrappers that heapprof does not know. It becomes part \
         of the profile's `drop_frames`.",
    ),
    variable(
        "HEAPPROF_VERBOSE",
        "`yes` or `no`",
        "Says on stderr what became of each dump: where it was written, or why not; nothing is \
         said unless `yes`.",
    ),
    variable(
        "HEAPPROF_RECORD",
        "two process ids",
        "Set by `heapprof record`: its own process, and zeros in which the program leaves its \
         own. That one writes the plain output name. SIGTERM, SIGINT and SIGABRT end with a dump.",
    ),
    variable(
        "HEAPPROF_CHILDREN",
        "path",
        "Set by `heapprof record`: the pattern of its program's children, in which `%r` is the \
         program's process id.",
    ),
    variable(
        "HEAPPROF_LIST",
        "path",
        "Set by `heapprof record`: a folder where each user's file gets an entry for each dump, \
         ended by a NUL: process, when (0 on the way, 1 at the end, 2 before an exec), whether it \
         is exact, bytes in use, peak bytes, stacks, events lost, path; or for one that was not \
         written `!`, its errno and its path.",
    ),
    variable(
        "HEAPPROFILE",
        "path prefix",
        "gperftools: records every allocation into `PREFIX.NNNN.heap`.",
    ),
    variable(
        "HEAP_PROFILE_ALLOCATION_INTERVAL",
        "bytes",
        "gperftools: dumps each time this much was allocated; 1 GiB unless set, 0 is never.",
    ),
    variable(
        "HEAP_PROFILE_DEALLOCATION_INTERVAL",
        "bytes",
        "gperftools: dumps each time this much was freed; 0 (never) unless set.",
    ),
    variable(
        "HEAP_PROFILE_INUSE_INTERVAL",
        "bytes",
        "gperftools: dumps each time the peak has grown by this much; 100 MiB unless set, 0 is \
         never.",
    ),
    variable(
        "HEAP_PROFILE_TIME_INTERVAL",
        "seconds",
        "gperftools: dumps each time this long has passed; 0 (never) unless set.",
    ),
    variable(
        "HEAPPROFILESIGNAL",
        "signal number",
        "gperftools: as HEAPPROF_SIGNAL.",
    ),
    variable(
        "HEAPPROFILE_USE_PID",
        "`1` or `0`",
        "gperftools: `1` puts the process id into the name of the first process's files too.",
    ),
    variable(
        "HEAP_PROFILE_CLEANUP",
        "`1` or `0`",
        "gperftools: unless `0`, the first process takes away what an earlier run left: \
         `PREFIX.0001.heap` and on, up to the first number that is not there.",
    ),
    variable(
        "HEAP_PROFILE_MMAP",
        "`1` or `0`",
        "gperftools: as HEAPPROF_MMAP.",
    ),
];
