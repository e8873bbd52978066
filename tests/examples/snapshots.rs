//! Takes snapshots of a recorded process one after the other, checks each, and prints how long they
//! took: `cargo run --release -p heapprof-tests --example snapshots -- PID [COUNT [PAUSE_MS]]`.

use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

use heapprof_live::LiveProcess;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let pid = words
        .next()
        .ok_or("usage: snapshots PID [COUNT [PAUSE_MS]]")?
        .parse()?;
    let count: usize = words.next().map_or(Ok(100), |word| word.parse())?;
    let pause = Duration::from_millis(words.next().map_or(Ok(0), |word| word.parse())?);
    let began = Instant::now();
    let process = LiveProcess::open(pid)?;
    let found = began.elapsed();
    let mut times = Vec::with_capacity(count);
    let mut samples = 0;
    for _ in 0..count {
        let began = Instant::now();
        let profile = process.snapshot()?;
        times.push(began.elapsed());
        samples = profile.samples.len();
        for i in 0..samples {
            let values = profile.samples.values(i);
            let [made, made_bytes, used, used_bytes, ..] = values else {
                return Err(format!("sample {i} has {} values", values.len()).into());
            };
            if values.iter().any(|&value| value < 0) || used > made || used_bytes > made_bytes {
                return Err(format!("sample {i} is impossible: {values:?}").into());
            }
        }
        std::thread::sleep(pause);
    }
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    writeln!(
        std::io::stdout(),
        "{count} snapshots of {samples} samples: found in {:.2} ms, then median {:.2} ms, \
         99 in 100 below {:.2} ms, longest {:.2} ms",
        ms(found),
        ms(at(0.5)),
        ms(at(0.99)),
        ms(at(1.0))
    )?;
    Ok(())
}
