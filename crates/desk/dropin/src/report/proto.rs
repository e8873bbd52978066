//! `-proto`: the filtered and aggregated profile, in pprof's format.

use std::io::Write;

use crate::graph::truncate_as_go;
use heapprof_profile::{EncodeOptions, Error, Gzip, Profile, encode_with};

use super::options::PprofReportOptions;

/// Writes the profile gzipped. Its values are divided as in other reports. The uncompressed bytes
/// equal pprof's; the compressed file is larger than pprof's, but compressing takes a fraction of
/// the time.
pub fn proto(
    mut profile: Profile,
    options: &PprofReportOptions,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let ratio = options.ratio;
    if ratio > 0.0 && ratio != 1.0 {
        let samples = &mut profile.samples;
        samples.change_values(|_, value| truncate_as_go(value as f64 * ratio));
    }
    encode_with(&profile, out, EncodeOptions::default().gzip(Gzip::Loose))
}
