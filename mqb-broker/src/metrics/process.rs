//! What the operating system says about this process.

use rustix::process::Resource;

/// Figures of the process; zero where the system does not tell.
#[derive(Debug, Default)]
pub(super) struct ProcessStats {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
}

impl ProcessStats {
    pub(super) fn read() -> Self {
        Self {
            cpu_seconds: cpu_seconds(),
            resident_bytes: resident_bytes(),
            // Less the descriptor that lists them.
            open_fds: std::fs::read_dir("/proc/self/fd")
                .map_or(0, |dir| dir.count().saturating_sub(1) as u64),
            max_fds: rustix::process::getrlimit(Resource::Nofile)
                .current
                .unwrap_or(u64::MAX),
        }
    }
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = kib.and_then(|rest| {
        rest.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or(0) * 1024
}
