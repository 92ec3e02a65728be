//! What an embedder decides: classes, workers, bounds.

use std::time::Duration;

/// What happens to a class's calls when there is too much to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnOverload {
    /// They are refused, evicted and shed: for callers that retry.
    #[default]
    Refuse,
    /// They wait, and are refused only when their deadline has passed: for callers to whom a refusal is final. Whoever lets them in must
    /// bound them.
    Wait,
    /// They are always run, even late and during a shutdown: for what releases resources.
    Run,
}

/// One class of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassConfig {
    /// Label of its metrics.
    pub name: &'static str,
    /// What happens when there is too much to do.
    pub on_overload: OnOverload,
    /// True if its handlers may sleep: a worker that runs one does not count as about to take the next call.
    pub may_block: bool,
    /// Its share of the queue relative to other classes.
    pub weight: u32,
    /// Waiting calls for which room is reserved, at least. More may wait if the queue's bound allows; they allocate the first time.
    pub reserve: usize,
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self {
            name: "default",
            on_overload: OnOverload::Refuse,
            may_block: true,
            weight: 1,
            reserve: 0,
        }
    }
}

/// How many calls may wait, not counting classes that are never refused for overload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// As many as the workers serve in `target`, by the measured service time, within `min..=max`.
    Time {
        /// The delay that is aimed at.
        target: Duration,
        /// At least so many.
        min: usize,
        /// At most so many; room for them is reserved.
        max: usize,
    },
    /// So many.
    Count(usize),
}

/// Who is served first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ServeOrder {
    /// The earliest deadline, with a share for every class.
    #[default]
    Deadline,
    /// The earliest deadline, whatever starves.
    StrictDeadline,
    /// The first come.
    Arrival,
}

/// Shape and policies of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// Threads. More than there are cores cost switches and gain nothing, unless handlers sleep.
    pub workers: u16,
    /// Name of the threads; the worker's number is appended.
    pub thread_name: String,
    /// Classes, by [`Class`](crate::calls::Class). 1 to 8.
    pub classes: Vec<ClassConfig>,
    /// How many calls may wait.
    pub bound: Bound,
    /// Who is served first.
    pub order: ServeOrder,
    /// Refuses, on arrival and before the start, a call that cannot be done before its deadline by what was measured.
    pub refuse_infeasible: bool,
    /// A queue whose shortest delay stays above the bound's target for so long is standing: calls that waited twice the target are shed.
    /// Zero never sheds.
    pub shed_after: Duration,
    /// What it takes to wake a worker: an idle one is left asleep while a running one will take the call sooner.
    pub wake_latency: Duration,
    /// Looks at the slot before a worker sleeps. More than 0 only pays with cores to spare.
    pub spins: u32,
    /// Calls that a worker takes at once at most, and only short ones.
    pub batch_max: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            workers: 2,
            thread_name: "worker".into(),
            classes: vec![ClassConfig::default()],
            bound: Bound::Time {
                target: Duration::from_millis(5),
                min: 16,
                max: 1024,
            },
            order: ServeOrder::Deadline,
            refuse_infeasible: true,
            shed_after: Duration::from_millis(100),
            wake_latency: Duration::from_micros(50),
            spins: 0,
            batch_max: 8,
        }
    }
}

/// Why a configuration makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Without a worker nothing is ever answered.
    #[error("a pool has at least one worker")]
    NoWorkers,
    /// Classes are scanned for each call.
    #[error("there are {count} classes, which must be 1 to {max}")]
    Classes {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A queue without room refuses everything.
    #[error("the queue's bound is 0, or its minimum is above its maximum")]
    Bound,
    /// A worker takes one call at least.
    #[error("a batch has at least one call")]
    Batch,
}

impl PoolConfig {
    /// Most classes there can be.
    pub const CLASSES_MAX: usize = 8;

    /// **Errors**: see [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let count = self.classes.len();
        let is_bounded = match self.bound {
            Bound::Time { min, max, .. } => min > 0 && min <= max,
            Bound::Count(count) => count > 0,
        };
        if self.workers == 0 {
            return Err(ConfigError::NoWorkers);
        }
        if count == 0 || count > Self::CLASSES_MAX {
            return Err(ConfigError::Classes {
                count,
                max: Self::CLASSES_MAX,
            });
        }
        if !is_bounded {
            return Err(ConfigError::Bound);
        }
        if self.batch_max == 0 {
            return Err(ConfigError::Batch);
        }
        Ok(())
    }

    pub(crate) fn hard_cap(&self) -> usize {
        match self.bound {
            Bound::Time { max, .. } => max,
            Bound::Count(count) => count,
        }
    }
}
