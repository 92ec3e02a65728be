//! A client may hold what is not `Send`, so it cannot be moved to another thread once made.
use mqb_dispatcher::Client;

fn move_away(client: Box<dyn Client<u32>>) {
    std::thread::spawn(move || drop(client));
}

fn main() {}
