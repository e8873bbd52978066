//! Serves `/debug/pprof/heap` as Go programs do, with nothing but the standard library.
//!
//! `cargo run --release -p heapprof-alloc --example pprof_endpoint`, then `heapprof top
//! http://localhost:6060/debug/pprof/heap`. An argument sets another address.

#![allow(clippy::print_stderr, reason = "the example says where it serves")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use heapprof_alloc::{HeapProf, RecordingOptions};

#[global_allocator]
static ALLOCATOR: HeapProf = HeapProf::system();

fn main() -> std::io::Result<()> {
    heapprof_alloc::start(RecordingOptions::default());
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("localhost:6060"))?;
    let address = listener.local_addr()?;
    eprintln!("profiles at http://{address}/debug/pprof/heap");
    std::thread::spawn(move || serve_profiles(&listener));
    let mut cache = VecDeque::new();
    loop {
        remember(&mut cache);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Simulates the program's own work: a cache of the last 1,000 answers, about 64 MB of them.
#[inline(never)]
fn remember(cache: &mut VecDeque<Vec<u8>>) {
    cache.push_back(vec![1; 64 << 10]);
    if cache.len() > 1000 {
        cache.pop_front();
    }
}

fn serve_profiles(listener: &TcpListener) {
    for connection in listener.incoming().flatten() {
        // One connection at a time is enough, as long as none can hold up the others.
        let _ = answer(connection);
    }
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    connection.set_write_timeout(Some(Duration::from_secs(30)))?;
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The headers end with an empty line; none of them matters here.
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match path.split('?').next() {
        Some("/debug/pprof/heap") => ("200 OK", heapprof_alloc::profile()),
        // pprof asks for names that it does not find itself: there are none.
        Some("/debug/pprof/symbol") => ("200 OK", b"num_symbols: 0\n".to_vec()),
        _ => ("404 Not Found", Vec::new()),
    };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    connection.write_all(&body)
}
