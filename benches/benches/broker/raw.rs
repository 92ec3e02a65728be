//! What the machine can do without a broker: the yardsticks.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use mqb_benches::quantile;

/// Bytes per write, as large as a block of the log.
const WRITE_BYTES: usize = 256 * 1024;

/// Appends `bytes` to a new file, without syncing. **Units**: bytes per second.
pub(crate) fn append(dir: &Path, bytes: u64) -> anyhow::Result<f64> {
    let path = dir.join("raw-append");
    let mut file = File::create(&path)?;
    let block = vec![0x5A; WRITE_BYTES];
    let start = Instant::now();
    let mut left = bytes;
    while left > 0 {
        let count = left.min(WRITE_BYTES as u64);
        file.write_all(&block[..count as usize])?;
        left -= count;
    }
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    // What is still to be written back must not disturb the next measurement.
    file.sync_all()?;
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// Appends batches and makes each durable. Returns the quantiles 0.5 and 0.99 of an fdatasync. **Units**: microseconds.
pub(crate) fn fdatasync(
    dir: &Path,
    batch_bytes: usize,
    batches: usize,
) -> anyhow::Result<(f64, f64)> {
    let path = dir.join("raw-sync");
    let mut file = File::create(&path)?;
    // As the log does: the space is there before, so that a sync does not have to write the file's size.
    file.write_all(&vec![0; batch_bytes * batches])?;
    file.sync_all()?;
    std::io::Seek::rewind(&mut file)?;
    let batch = vec![0xA5; batch_bytes];
    let mut times = Vec::with_capacity(batches);
    for _ in 0..batches {
        file.write_all(&batch)?;
        let start = Instant::now();
        rustix::fs::fdatasync(&file)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    Ok((quantile(&mut times, 0.5), quantile(&mut times, 0.99)))
}

/// Copies bytes over loopback as often as a broker does: from a sender through a relay to a receiver.
/// **Units**: bytes per second that arrive.
pub(crate) fn loopback(bytes: u64) -> anyhow::Result<f64> {
    let (mut to_relay, mut from_sender) = pair()?;
    let (mut to_receiver, mut from_relay) = pair()?;
    let start = Instant::now();
    let sender = std::thread::spawn(move || -> std::io::Result<()> {
        let block = vec![1; WRITE_BYTES];
        let mut left = bytes;
        while left > 0 {
            let count = left.min(WRITE_BYTES as u64);
            to_relay.write_all(&block[..count as usize])?;
            left -= count;
        }
        Ok(())
    });
    let relay = std::thread::spawn(move || -> std::io::Result<()> {
        let mut block = vec![0; WRITE_BYTES];
        loop {
            match from_sender.read(&mut block)? {
                0 => return Ok(()),
                count => to_receiver.write_all(&block[..count])?,
            }
        }
    });
    let (mut block, mut received) = (vec![0; WRITE_BYTES], 0);
    loop {
        match from_relay.read(&mut block)? {
            0 => break,
            count => received += count as u64,
        }
    }
    let rate = received as f64 / start.elapsed().as_secs_f64();
    for thread in [sender, relay] {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a thread of the copy panicked"))??;
    }
    anyhow::ensure!(received == bytes, "loopback lost bytes");
    Ok(rate)
}

fn pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    Ok((near, listener.accept()?.0))
}

/// Reads all files below a directory. Returns their bytes and the time it took in seconds.
pub(crate) fn read_files(dir: &Path) -> anyhow::Result<(u64, f64)> {
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let bytes = read_below(dir, &mut buffer)?;
    Ok((bytes, start.elapsed().as_secs_f64()))
}

fn read_below(dir: &Path, buffer: &mut [u8]) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            bytes += read_below(&entry.path(), buffer)?;
            continue;
        }
        let mut file = File::open(entry.path())?;
        while let count @ 1.. = file.read(buffer)? {
            bytes += count as u64;
        }
    }
    Ok(bytes)
}

/// Name of the file system that holds `dir`, from the mount table.
pub(crate) fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let best = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            dir.starts_with(point)
                .then(|| (point.len(), kind.to_owned()))
        })
        // Later mounts cover earlier ones at the same point.
        .max_by_key(|(length, _)| *length);
    best.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}
