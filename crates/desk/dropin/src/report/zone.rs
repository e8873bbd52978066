//! The time zone for printed times: from TZ, otherwise from the machine's settings, otherwise UTC.
//!
//! The rules are Go's (package time, zoneinfo_unix): TZ names a file, and POSIX rules in TZ are not
//! supported. So scripts get the same text from pprof and heapprof.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time zone with its rules.
#[derive(Clone, Debug)]
pub struct ReportTimeZone(TimeZone);

/// Folders in which zones are searched by name, as in Go.
const ZONE_FOLDERS: [&str; 4] = [
    "/usr/share/zoneinfo/",
    "/usr/share/lib/zoneinfo/",
    "/usr/lib/locale/TZ/",
    "/etc/zoneinfo/",
];

impl ReportTimeZone {
    /// Returns coordinated universal time.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Returns the zone for a value of the environment variable TZ.
    pub fn from_tz(tz: Option<&str>) -> Self {
        let read = |path: &str| {
            let bytes = std::fs::read(path).ok()?;
            TimeZone::tzif("", &bytes).ok()
        };
        let named = |name: &str| {
            ZONE_FOLDERS
                .iter()
                .find_map(|f| read(&format!("{f}{name}")))
        };
        let zone = match tz.map(|tz| tz.strip_prefix(':').unwrap_or(tz)) {
            None => read("/etc/localtime"),
            Some("" | "UTC") => None,
            Some(path) if path.starts_with('/') => read(path),
            Some(name) => named(name),
        };
        Self(zone.unwrap_or(TimeZone::UTC))
    }

    /// Formats nanoseconds since 1970, to the second, with the zone's short name:
    /// `2006-01-02 15:04:05 MST`.
    pub fn show(&self, nanos: i64) -> String {
        self.format(nanos, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// Formats nanoseconds since 1970 in full: `2006-01-02 15:04:05.999999999 -0700 MST`, without
    /// trailing zeros.
    pub fn show_precisely(&self, nanos: i64) -> String {
        self.format(nanos, "%Y-%m-%d %H:%M:%S%.f %z %Z")
    }

    fn format(&self, nanos: i64, form: &str) -> String {
        match Timestamp::from_nanosecond(i128::from(nanos)) {
            Ok(time) => time.to_zoned(self.0.clone()).strftime(form).to_string(),
            // Not reached: 64 bits of nanoseconds span only some 292 years before and after 1970.
            Err(_) => format!("{nanos} ns since 1970"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let utc = ReportTimeZone::from_tz(Some("UTC"));
        assert_eq!(
            utc.show(1_760_000_000_000_000_000),
            "2025-10-09 08:53:20 UTC"
        );
        assert_eq!(
            utc.show_precisely(-1),
            "1969-12-31 23:59:59.999999999 +0000 UTC"
        );
        assert_eq!(
            utc.show_precisely(1_500_000_000),
            "1970-01-01 00:00:01.5 +0000 UTC"
        );
        assert_eq!(utc.show_precisely(0), "1970-01-01 00:00:00 +0000 UTC");
        assert_eq!(utc.show(i64::MIN), "1677-09-21 00:12:43 UTC");
    }

    /// Checks that a POSIX rule or a folder in TZ gives UTC.
    #[test]
    fn what_names_no_zone_is_utc() {
        for tz in ["", ":", "XYZ3", "/", "../..", "/etc/hostname"] {
            assert_eq!(
                ReportTimeZone::from_tz(Some(tz)).show(0),
                "1970-01-01 00:00:00 UTC",
                "{tz}"
            );
        }
    }

    #[test]
    fn named_zones() {
        let zone = ReportTimeZone::from_tz(Some("Europe/Berlin"));
        if std::path::Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
            assert_eq!(
                zone.show(1_760_000_000_000_000_000),
                "2025-10-09 10:53:20 CEST"
            );
            assert_eq!(zone.show_precisely(0), "1970-01-01 01:00:00 +0100 CET");
        }
    }
}
