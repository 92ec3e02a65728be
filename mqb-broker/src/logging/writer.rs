//! The thread that writes lines to standard error.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that may wait. Beyond that they are dropped and counted.
const LINES_MAX: usize = 4096;
/// What the end of the process waits for a reader of standard error that does not read.
const FINISH: Duration = Duration::from_secs(1);

enum Message {
    Line(String),
    End,
}

/// Where lines go in. Cheap to clone; never blocks.
#[derive(Clone)]
pub(super) struct Lines {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Lines {
    pub(super) fn send(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Message::Line(line)) {
            // Told by the writer with its next line; a figure, nothing is published through it.
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(super) struct Writer {
    lines: Lines,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let lines = Lines {
            sender,
            dropped: Arc::clone(&dropped),
        };
        let run = move || run(&receiver, &dropped, &mut io::stderr());
        let thread = std::thread::Builder::new()
            .name("mqb-log".into())
            .spawn(run)?;
        Ok(Self {
            lines,
            thread: Some(thread),
        })
    }

    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }

    /// Waits until all lines so far are written, but not for ever.
    pub(super) fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = Instant::now() + FINISH;
        let mut end = Message::End;
        while let Err(TrySendError::Full(back)) = self.lines.sender.try_send(end) {
            if Instant::now() >= deadline {
                return;
            }
            end = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn run(receiver: &Receiver<Message>, dropped: &AtomicU64, out: &mut impl Write) {
    // A log that cannot be written has nobody to tell; the broker goes on without it.
    while let Ok(Message::Line(line)) = receiver.recv() {
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(out, "event=log.dropped lines={lost}");
        }
        let _ = out.write_all(line.as_bytes());
    }
}
