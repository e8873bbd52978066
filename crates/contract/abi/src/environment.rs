//! The environment variables of heapprof's collectors, in one table.
//!
//! The collectors read the variables, `heapprof record` sets them, and docs/environment.md lists
//! them. The name of a variable occurs in no other code.

/// Who sets a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableSetter {
    /// The user sets the variable. `record` removes it, so that it does not interfere with options.
    User,
    /// The user or an option of `record` sets the variable.
    UserOrRecord,
    /// The user sets the variable. `record` does not change it, because it has no option for it.
    UserPassthrough,
    /// Only `record` sets the variable.
    Record,
    /// Only `watch` sets the variable. `record` does not change it.
    Watch,
    /// The user of an existing gperftools setup sets the variable.
    Gperftools,
}

/// An environment variable, with its documentation.
#[derive(Clone, Copy, Debug)]
pub struct EnvironmentVariable {
    /// Name of the variable.
    pub name: &'static str,
    /// Allowed values, in Markdown.
    pub form: &'static str,
    /// Who sets the variable.
    pub setter: VariableSetter,
    /// Value that is used if the variable is not set, in Markdown.
    pub default: &'static str,
    /// Effect of the variable, in Markdown.
    pub meaning: &'static str,
}

/// Defines a constant for the name in each row, and a table of all rows.
macro_rules! variables {
    ($(
        $constant:ident $name:literal, $setter:ident, $form:literal, $default:literal,
            $meaning:literal;
    )*) => {
        $(
            #[doc = $meaning]
            pub const $constant: EnvironmentVariable = EnvironmentVariable {
                name: $name,
                form: $form,
                setter: VariableSetter::$setter,
                default: $default,
                meaning: $meaning,
            };
        )*

        /// All variables: first heapprof's variables, then gperftools' variables, which an existing
        /// gperftools setup may contain.
        pub const ALL: &[EnvironmentVariable] = &[$($constant),*];
    };
}

variables! {
    OUTPUT "HEAPPROF_OUTPUT", UserOrRecord, "path", "nothing is recorded",
        "Records, and writes there. `%p` is the process id, `%e` the name by which the program \
         was started (for a script, the name of its interpreter), `%n` the number of the dump. \
         Without any of these, the process id is inserted into the name, and each dump but the \
         last also gets its number. Under `heapprof record`, and with HEAPPROF_FOLLOW=no, the \
         first process gets no id. A folder stands for `heapprof.%e.%p.pb.gz` in it. A relative \
         path begins at the folder in which the program starts. If no file appears, \
         HEAPPROF_VERBOSE says why.";
    MODE "HEAPPROF_MODE", UserOrRecord, "`sampled` or `exact`", "`sampled`",
        "What is recorded: a sample of the allocations, or all of them.";
    PERIOD "HEAPPROF_PERIOD", UserOrRecord, "bytes, or with KiB, MiB", "512KiB",
        "The average number of bytes between samples.";
    START "HEAPPROF_START", User, "`yes` or `no`", "`yes`",
        "`no` waits for the program to call `heapprof_start`.";
    INTERVAL "HEAPPROF_INTERVAL", UserOrRecord, "seconds, or with ms, s, m, h", "never",
        "Dumps each time this long has passed.";
    GROWTH "HEAPPROF_GROWTH", UserOrRecord, "bytes, or with KiB, MiB, GiB", "never",
        "Dumps each time the heap is this much larger than at the last dump.";
    PEAK "HEAPPROF_PEAK", UserOrRecord, "`yes` or `no`", "`no`",
        "Dumps at new peaks. Each is a tenth (and at least 64 KiB) above the last one dumped.";
    SIGNAL "HEAPPROF_SIGNAL", UserOrRecord, "signal number", "none",
        "Dumps when this signal comes, if the program left it at its default.";
    FOLLOW "HEAPPROF_FOLLOW", UserOrRecord, "`yes` or `no`", "`yes`",
        "Whether children record, too.";
    MMAP "HEAPPROF_MMAP", UserOrRecord, "`yes` or `no`", "`no`",
        "Counts what the program maps itself (mmap, mremap, munmap) as allocations. The whole \
         address range counts, whether it was touched or not.";
    ALLOCATORS "HEAPPROF_ALLOCATORS", UserOrRecord, "`auto`, `none` or names", "`auto`",
        "Which allocators are recorded that are linked into the program or its libraries, such as \
         jemalloc in a Rust program: all whose functions have names, none, or some of `malloc`, \
         `jemalloc`, `mimalloc`, `tcmalloc`, `rpmalloc` and `snmalloc`, with commas between them.";
    FORMAT "HEAPPROF_FORMAT", User, "`pprof` or `text`", "`pprof`",
        "Gzipped pprof, or gperftools' text form. If HEAPPROFILE starts the recording, the default \
         is `text`.";
    FILE_MODE "HEAPPROF_FILE_MODE", UserOrRecord, "octal rights, `600` to `666`", "`600`",
        "The rights of the files that are written, whatever the umask is. A profile shows what a \
         program did, so by default only its user reads it.";
    WRAPPERS "HEAPPROF_WRAPPERS", UserOrRecord, "regular expression", "none",
        "Allocation wrappers that heapprof does not know. Reports leave them out, like malloc, \
         and name their callers instead. The expression is compared with names without \
         parameters, and becomes part of the profile's `drop_frames`.";
    FRAMES "HEAPPROF_FRAMES", UserOrRecord, "`script`, `native` or `both`", "`script`",
        "Which frames are kept of a stack that leads through an interpreter that heapprof can read \
         (Perl, Python, or one that registers itself): the interpreter's functions and lines \
         alone, the native ones alone, or both. gperftools' text form always has the native ones.";
    THREADS "HEAPPROF_THREADS", UserOrRecord, "`yes` or `no`", "`no`",
        "Keeps each thread's share, as labels of what it allocates: `thread`, the thread's name, \
         and `tid`, its number. gperftools' text form has no labels.";
    COMMAND_LINE "HEAPPROF_COMMAND_LINE", UserOrRecord, "`yes` or `no`", "`no`",
        "Puts the program's whole command line into its profiles. It may hold passwords, so by \
         default profiles name the program and its script only.";
    PERL_EVALS "HEAPPROF_PERL_EVALS", UserOrRecord, "`merged` or `numbered`", "`merged`",
        "Which file Perl code from `eval \"...\"` is said to be in. Perl numbers each evaluation, \
         as in `(eval 12)`. `merged` leaves the number out, so that equal code is one place.";
    PERL_VALUES "HEAPPROF_PERL_VALUES", UserOrRecord, "`yes` or `no`", "`no`",
        "Traces each value of Perl: which stack made it, as long as it is alive. The perl needs \
         Devel::HeapProf, which `heapprof setup perl-install` builds.";
    PYTHON_OBJECTS "HEAPPROF_PYTHON_OBJECTS", UserOrRecord, "`yes` or `no`", "`yes` for a sample",
        "Records Python's small objects, which never reach malloc. By default this is done if a \
         sample is recorded, because recording all of them takes time.";
    VERBOSE "HEAPPROF_VERBOSE", User, "`yes` or `no`", "`no`",
        "Says on stderr what became of each dump: where it was written, or why not.";
    WIRETAP "HEAPPROF_WIRETAP", UserPassthrough, "IP:PORT", "nothing is sent",
        "The address to which `heapprof_alive` sends its datagrams, and at which `heapprof alive \
         listen` listens. It is not a host name. Other than on loopback, \
         HEAPPROF_WIRETAP_KEY_FILE is needed, too. This variable has nothing to do with recording.";
    WIRETAP_KEY_FILE "HEAPPROF_WIRETAP_KEY_FILE", UserPassthrough, "path", "datagrams are not signed",
        "A file with a key of 1 to 4096 bytes, which nobody else may write to. It signs the \
         datagrams. If it gives no key, nothing is sent.";
    RECORD "HEAPPROF_RECORD", Record, "two process ids", "none",
        "The process id of `record`, then zeros, which the program replaces with its own id. The \
         program with that id writes its profile to the output path without an id in the name. \
         SIGTERM, SIGINT and SIGABRT end it with a dump.";
    CHILDREN "HEAPPROF_CHILDREN", Record, "path", "HEAPPROF_OUTPUT's",
        "The pattern for the program's children, in which `%r` is the program's process id.";
    LIST "HEAPPROF_LIST", Record, "path", "none",
        "A folder in which each user has a file, with an entry for each dump. An entry ends with \
         a NUL and has: process, when (0 during the run, 1 at the end, 2 before an exec, 3 before \
         a filter of system calls), whether it is exact, bytes in use, peak bytes, the most bytes \
         of its own, stacks, events lost, path. The entry of a dump that was not written has `!`, \
         its errno, its process and its path, and that of a child that was left out has `-`, \
         process, when.";
    LEAST "HEAPPROF_LEAST", Record, "bytes", "all children are kept",
        "A child that never held this many bytes of its own writes no profile at its end.";
    LINES "HEAPPROF_LINES", Record, "bytes", "never",
        "Each time a line may have grown by this much, the process writes the growth of its \
         stacks into a file in HEAPPROF_LIST.";
    LIVE "HEAPPROF_LIVE", Record, "`yes` or `no`", "`no`",
        "Each time `record` writes the file `asked` in HEAPPROF_LIST, the process writes its \
         profile of that moment into a file there.";
    LOG "HEAPPROF_LOG", Record, "`yes` or `no`", "`no`",
        "The program that `record` started puts each allocation and each free into a log in the \
         file that `record` takes, if every allocation is recorded.";
    KEEP "HEAPPROF_KEEP", Record, "path", "none",
        "A socket at which `record` takes files in memory. A process hands over such a file and \
         keeps its recorded data in it, so that it has a profile even if it is killed; a child \
         does so once it has allocated 32 KiB.";
    LAST_READING "HEAPPROF_LAST_READING", Record, "`yes` or `no`", "`no`",
        "Before its last profile, each process waits until `record`, at the socket in \
         HEAPPROF_KEEP, has read how its memory is divided.";
    FORK_AUDIT "HEAPPROF_FORK_AUDIT", Record, "path", "none",
        "A socket at which forked children report to `record`, which reads their pages: a child \
         waits for this when it begins, and before its last profile.";
    WATCH "HEAPPROF_WATCH", Watch, "path", "none",
        "The socket of the `watch` that runs the program, to which `heapprof_mark` sends its \
         marks. It has nothing to do with recording.";
    PREFIX "HEAPPROFILE", Gperftools, "path prefix", "nothing is recorded",
        "Records every allocation into `PREFIX.NNNN.heap`.";
    PREFIX_ALLOCATED "HEAP_PROFILE_ALLOCATION_INTERVAL", Gperftools, "bytes", "1 GiB",
        "Dumps each time this much was allocated; 0 is never.";
    PREFIX_FREED "HEAP_PROFILE_DEALLOCATION_INTERVAL", Gperftools, "bytes", "0 (never)",
        "Dumps each time this much was freed.";
    PREFIX_PEAK "HEAP_PROFILE_INUSE_INTERVAL", Gperftools, "bytes", "100 MiB",
        "Dumps each time the peak has grown by this much; 0 is never.";
    PREFIX_TIME "HEAP_PROFILE_TIME_INTERVAL", Gperftools, "seconds", "0 (never)",
        "Dumps each time this long has passed.";
    PREFIX_SIGNAL "HEAPPROFILESIGNAL", Gperftools, "signal number", "none",
        "As HEAPPROF_SIGNAL.";
    PREFIX_USES_PID "HEAPPROFILE_USE_PID", Gperftools, "`1` or `0`", "`0`",
        "`1` puts the process id into the names of the first process's files, too.";
    PREFIX_CLEANUP "HEAP_PROFILE_CLEANUP", Gperftools, "`1` or `0`", "`1`",
        "Unless it is `0`, the first process removes what an earlier run left: `PREFIX.0001.heap` \
         and the following numbers, up to the first one that is not there.";
    PREFIX_MMAP "HEAP_PROFILE_MMAP", Gperftools, "`1` or `0`", "`0`",
        "As HEAPPROF_MMAP.";
}
