//! The yardstick for latency: a bare mqb-dispatcher that echoes fixed-size messages, and a load at a rate.
//!
//! `mqb-bench-echo serve SIZE` prints its address and runs until its standard input ends;
//! `mqb-bench-echo load ADDRESS SIZE PER_SECOND MESSAGES` prints one JSON object with latencies from the intended send time.

use std::io::{self, BufRead, Read, Write};
use std::num::NonZeroU64;
use std::time::Duration;

use hdrhistogram::Histogram;
use mqb_benches::wall_ns;
use mqb_dispatcher::mio::Interest;
use mqb_dispatcher::mio::net::{TcpListener, TcpStream};
use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Cx, Dispatcher, DispatcherConfig, Hooks, IoToken, Placement,
    Readiness,
};

const LISTENER: ClientKind = ClientKind::new(0, "listener");
const CONNECTION: ClientKind = ClientKind::new(1, "connection");

/// Nothing is posted: everything comes from sockets.
enum Event {}

struct Listener {
    core: ClientCore,
    socket: TcpListener,
}

impl Client<Event> for Listener {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, _: &mut Cx<'_, Event>, event: Event) {
        match event {}
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Event>, _: IoToken, _: Readiness) {
        while let Ok((mut socket, _)) = self.socket.accept() {
            socket
                .set_nodelay(true)
                .expect("a connected socket takes the option");
            let placed = cx
                .registrar()
                .register(Placement::LeastLoaded(CONNECTION), |core, cx| {
                    cx.register_io(&mut socket, Interest::READABLE | Interest::WRITABLE)
                        .expect("a connected socket can be watched");
                    Box::new(Connection {
                        core,
                        socket,
                        buffer: vec![0; 256 * 1024],
                        start: 0,
                        end: 0,
                    })
                });
            drop(placed);
        }
    }
}

struct Connection {
    core: ClientCore,
    socket: TcpStream,
    buffer: Vec<u8>,
    /// What is to be written back.
    start: usize,
    end: usize,
}

impl Connection {
    fn echo(&mut self) -> io::Result<()> {
        loop {
            while self.start < self.end {
                self.start += self.socket.write(&self.buffer[self.start..self.end])?;
            }
            (self.start, self.end) = (0, self.socket.read(&mut self.buffer)?);
            if self.end == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Client<Event> for Connection {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, _: &mut Cx<'_, Event>, event: Event) {
        match event {}
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Event>, _: IoToken, _: Readiness) {
        if self
            .echo()
            .is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
        {
            cx.unregister_self();
        }
    }
}

fn serve() -> anyhow::Result<()> {
    let mut socket = TcpListener::bind("127.0.0.1:0".parse()?)?;
    println!("{}", socket.local_addr()?);
    let dispatcher = Dispatcher::start(DispatcherConfig::default(), Hooks::default())?;
    let placed = dispatcher
        .registrar()
        .register(Placement::LeastLoaded(LISTENER), |core, cx| {
            cx.register_io(&mut socket, Interest::READABLE)
                .expect("a listening socket can be watched");
            Box::new(Listener { core, socket })
        });
    drop(placed);
    // Lives as long as the one who started it holds the other end.
    io::stdin().lock().lines().for_each(drop);
    dispatcher.stop(Duration::from_secs(5))?;
    Ok(())
}

fn load(address: &str, size: usize, rate: f64, messages: u64) -> anyhow::Result<()> {
    let mut writer = std::net::TcpStream::connect(address)?;
    writer.set_nodelay(true)?;
    let mut reader = writer.try_clone()?;
    let start = wall_ns() + 10_000_000;
    let skip = messages / 10;
    let received = std::thread::spawn(move || -> io::Result<Histogram<u64>> {
        let mut histogram =
            Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("the bounds are constants");
        let (mut buffer, mut have, mut count) = (vec![0; 256 * 1024], 0, 0);
        while count < messages {
            have += match reader.read(&mut buffer[have..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            let now = wall_ns();
            let whole = have / size * size;
            for message in buffer[..whole].chunks_exact(size) {
                let mut stamp = [0; 8];
                stamp.copy_from_slice(&message[..8]);
                if count >= skip {
                    histogram.saturating_record(now.saturating_sub(u64::from_le_bytes(stamp)));
                }
                count += 1;
            }
            buffer.copy_within(whole..have, 0);
            have -= whole;
        }
        Ok(histogram)
    });
    // As in `mqb bench`: sleeps that end on time.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let mut message = vec![7; size];
    for number in 0..messages {
        let at = start + (number as f64 * 1e9 / rate) as u64;
        let now = wall_ns();
        if now < at {
            std::thread::sleep(Duration::from_nanos(at - now));
        }
        message[..8].copy_from_slice(&at.to_le_bytes());
        writer.write_all(&message)?;
    }
    let histogram = received
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    println!(
        "{}",
        serde_json::json!({ "p50": at(0.5), "p99": at(0.99), "max": histogram.max() as f64 / 1000.0 })
    );
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["serve"] => serve(),
        ["load", address, size, rate, messages] => {
            load(address, size.parse()?, rate.parse()?, messages.parse()?)
        }
        _ => anyhow::bail!("usage: mqb-bench-echo serve | load ADDRESS SIZE PER_SECOND MESSAGES"),
    }
}
