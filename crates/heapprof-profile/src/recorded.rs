//! What a recording's profile has, whether the collector writes it or somebody reads its books.

/// The sample types of a recording, each with its unit. A sampled one has the first six.
pub const RECORDED_TYPES: [(&str, &str); 8] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("temporary_objects", "count"),
    ("temporary_space", "bytes"),
];

/// The label of whoever allocated: the thread's name.
pub const THREAD: &str = "thread";
/// The kernel's number of that thread.
pub const TID: &str = "tid";

/// What a recording may lack, in the order in which the collector counts it.
pub const DROPPED: [&str; 6] = [
    "events inside the collector or the allocator (signal handlers, fork handlers)",
    "events for lack of memory for the tables",
    "events while another one was held up by a signal handler",
    "frees of blocks allocated before the recording",
    "frees that were not seen before the address came again",
    "children, forked while an event was held up by a signal handler: they record nothing",
];
