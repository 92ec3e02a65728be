//! What the process used, and what a series of pairs says about a ratio.

use mqb_benches::wall_ns;

/// A reading of the process's use of the machine.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    wall_ns: u64,
    user_us: u64,
    system_us: u64,
    switches: u64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        // SAFETY: an all-zero rusage is a valid one, and the call writes nothing else.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        Self {
            wall_ns: wall_ns(),
            user_us: micros(usage.ru_utime),
            system_us: micros(usage.ru_stime),
            switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        }
    }
}

/// Per completed request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) user_us: f64,
    pub(crate) system_us: f64,
    pub(crate) switches: f64,
}

impl Cost {
    pub(crate) fn between(before: Usage, after: Usage, requests: u64) -> Self {
        let per = |a: u64, b: u64| (b - a) as f64 / requests.max(1) as f64;
        Self {
            requests,
            seconds: (after.wall_ns - before.wall_ns) as f64 / 1e9,
            user_us: per(before.user_us, after.user_us),
            system_us: per(before.system_us, after.system_us),
            switches: per(before.switches, after.switches),
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(crate) fn cpu_us(&self) -> f64 {
        self.user_us + self.system_us
    }
}

/// All rounds as one.
pub(crate) fn total(rounds: &[Cost]) -> Cost {
    let requests: u64 = rounds.iter().map(|cost| cost.requests).sum();
    let mean = |of: fn(&Cost) -> f64| {
        let sum: f64 = rounds
            .iter()
            .map(|cost| of(cost) * cost.requests as f64)
            .sum();
        sum / requests.max(1) as f64
    };
    Cost {
        requests,
        seconds: rounds.iter().map(|cost| cost.seconds).sum(),
        user_us: mean(|cost| cost.user_us),
        system_us: mean(|cost| cost.system_us),
        switches: mean(|cost| cost.switches),
    }
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}]", self.mean, self.low, self.high)
    }
}

/// Geometric mean of the pairs' quotients; the interval is Student's, on the logarithms.
pub(crate) fn ratio(pairs: &[(f64, f64)]) -> Ratio {
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance =
        logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    // 97.5 % of Student's distribution, to three digits from 4 degrees of freedom on.
    let freedom = (count - 1.0).max(1.0);
    let t = 1.96 + 2.4 / freedom + 3.3 / (freedom * freedom);
    let half = t * (variance / count).sqrt();
    Ratio {
        mean: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
    }
}
