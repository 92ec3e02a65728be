//! A `Cx` cannot be given to another thread.
use mqb_dispatcher::Cx;

fn leave(cx: &mut Cx<'_, u32>) {
    std::thread::scope(|scope| {
        scope.spawn(move || cx.link_flush());
    });
}

fn main() {}
