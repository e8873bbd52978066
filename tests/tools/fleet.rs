//! A small fleet for the docs: two hosts of a shop that write a profile each hour.

use heapprof_profile::{Profile, ProfileBuilder};

const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];
const KIB: i64 = 1024;
const HOUR: i64 = 3_600_000_000_000;
/// Time of the first profiles, 2026-11-20 08:00 UTC, in nanoseconds since 1970.
const BEGIN: i64 = 1_795_161_600_000_000_000;

/// Number of profiles that each host writes.
pub const MOMENTS: i64 = 8;
/// Names of the hosts.
pub const HOSTS: [&str; 2] = ["web1", "web2"];

/// Returns the heap of a host at a moment: sessions that are never freed, a cache that fills,
/// request buffers, and memory from the start.
pub fn moment(host: usize, at: i64) -> Profile {
    let mut builder = ProfileBuilder::new(&TYPES);
    let other = host as i64;
    // Returns a small number that looks random.
    let noise = |n: i64| (at * 37 + other * 11 + n * 53) % 17;
    let sessions = 40 + at * 96 + noise(1);
    let cached = [300, 520, 680, 740, 768, 768, 768, 768][at as usize];
    let requests = 60 + 8 * noise(2);
    let imported = if at == 3 { 4000 } else { 2 };
    for (stack, objects, size) in [
        (
            "main@shop.c:12;serve@serve.c:40;open_session@session.c:9",
            sessions,
            4 * KIB,
        ),
        (
            "main@shop.c:12;serve@serve.c:44;remember@cache.c:21",
            cached,
            2 * KIB,
        ),
        (
            "main@shop.c:12;serve@serve.c:38;read_request@serve.c:15",
            requests,
            8 * KIB,
        ),
        ("main@shop.c:9;load_catalogue@catalogue.c:31", 900, KIB),
        (
            "main@shop.c:14;import@import.c:7;parse@import.c:23",
            imported,
            KIB / 2,
        ),
    ] {
        let allocated = objects * (at + 2);
        builder.add_folded(
            stack,
            &[allocated, allocated * size, objects, objects * size],
        );
    }
    for comment in [
        "collector: heapprof 0.2.0".to_string(),
        "program: shop".to_string(),
        format!("pid: {}", 4711 + host),
        format!("host: {}", HOSTS[host]),
        "dump: interval".to_string(),
    ] {
        let comment = builder.text(&comment);
        builder.profile.comment.push(comment);
    }
    // The hosts write at slightly different times.
    builder.profile.duration_nanos = HOUR * (at + 1) + other * 7_000_000_000;
    builder.profile.time_nanos = BEGIN + builder.profile.duration_nanos;
    builder.profile.default_sample_type = builder.text("inuse_space");
    builder.finish()
}

/// Returns the name and the profile of each file.
pub fn files() -> Vec<(String, Profile)> {
    let each = (0..HOSTS.len()).flat_map(|host| (0..MOMENTS).map(move |at| (host, at)));
    each.map(|(host, at)| (format!("{}-{at:02}.pb.gz", HOSTS[host]), moment(host, at)))
        .collect()
}
