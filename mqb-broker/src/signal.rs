//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit code of an end that nobody could wait for.
const AT_ONCE: i32 = 1;

/// Watches for signals on a thread of its own and tells `asked` the name of the first one. The next one ends the process.
///
/// **Errors**: the operating system's.
pub fn watch(asked: impl Fn(&'static str) + Send + 'static) -> io::Result<()> {
    let is_asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // Handlers run in this order, so the first signal arms what the second one finds, however close they come and
        // whether or not any thread of ours still runs.
        signal_hook::flag::register_conditional_shutdown(signal, AT_ONCE, Arc::clone(&is_asked))?;
        signal_hook::flag::register(signal, Arc::clone(&is_asked))?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let run = move || {
        for signal in signals.forever() {
            asked(if signal == SIGTERM {
                "SIGTERM"
            } else {
                "SIGINT"
            });
        }
    };
    std::thread::Builder::new()
        .name("mqb-signal".into())
        .spawn(run)?;
    Ok(())
}
