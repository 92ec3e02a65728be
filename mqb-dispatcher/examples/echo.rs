//! A TCP echo service: one client per connection, placed where the fewest are. Prints its address; `quit` stops it.
//! Try: `cargo run -p mqb-dispatcher --example echo -- 127.0.0.1:7000`

use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

use mqb_dispatcher::mio::{Interest, net::TcpListener, net::TcpStream};
use mqb_dispatcher::*;

const LISTENER: ClientKind = ClientKind::new(0, "listener");
const CONNECTION: ClientKind = ClientKind::new(1, "connection");
/// A connection that is silent for so long is closed.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Connections need no events: everything comes from sockets and timers.
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
        // Edge-triggered: until it would block.
        while let Ok((mut socket, _)) = self.socket.accept() {
            let place = Placement::LeastLoaded(CONNECTION);
            cx.registrar().register(place, |core, cx| {
                let both = Interest::READABLE | Interest::WRITABLE;
                if cx.register_io(&mut socket, both).is_err() {
                    cx.unregister_self();
                }
                cx.schedule(SILENCE_MAX);
                Box::new(Connection {
                    core,
                    socket,
                    pending: vec![],
                    heard: true,
                })
            });
        }
    }
}

struct Connection {
    core: ClientCore,
    socket: TcpStream,
    pending: Vec<u8>,
    heard: bool,
}

impl Connection {
    /// True once the peer has gone.
    fn echo(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 4096];
        loop {
            while !self.pending.is_empty() {
                let written = self.socket.write(&self.pending)?;
                self.pending.drain(..written);
            }
            // Only once the peer has taken everything: a peer that does not read is not read from.
            match self.socket.read(&mut chunk)? {
                0 => return Ok(true),
                read => self.pending.extend_from_slice(&chunk[..read]),
            }
            self.heard = true;
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
        match self.echo() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The socket closes when the client is dropped.
            Ok(_) | Err(_) => cx.unregister_self(),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Event>, _: TimerId) {
        if std::mem::take(&mut self.heard) {
            cx.schedule(SILENCE_MAX);
        } else {
            cx.unregister_self();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    let mut socket = TcpListener::bind(address.parse()?)?;
    println!("listening on {}", socket.local_addr()?);
    let dispatcher = Dispatcher::start(DispatcherConfig::default(), Hooks::default())?;
    let place = Placement::LeastLoaded(LISTENER);
    dispatcher.registrar().register(place, |core, cx| {
        let watched = cx.register_io(&mut socket, Interest::READABLE);
        watched.expect("a listening socket can be watched");
        Box::new(Listener { core, socket })
    });
    let mut lines = io::stdin().lock().lines().map_while(Result::ok);
    lines.find(|line| line == "quit");
    Ok(dispatcher.stop(Duration::from_secs(5))?)
}
