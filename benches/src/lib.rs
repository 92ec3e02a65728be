//! What the benchmarks share: the clocks, order statistics, and the line of JSON at the end.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread. Other load on the machine does not enter it. **Units**: nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Monotonic time. **Units**: nanoseconds.
pub fn wall_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The value below which a share of `quantile` of the samples lies. **Panics** without samples.
pub fn quantile(samples: &mut [f64], quantile: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let rank = (samples.len() as f64 * quantile).ceil() as usize;
    samples[rank.clamp(1, samples.len()) - 1]
}

/// The middle value.
pub fn median(samples: &mut [f64]) -> f64 {
    quantile(samples, 0.5)
}

/// One line about the machine, as far as it says what it is.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{} x {}, load average {}",
        std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        model.map_or("unknown processor", |(_, name)| name),
        load.split(' ').next().unwrap_or("unknown"),
    )
}
