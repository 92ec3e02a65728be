//! Nor can another thread look at it.
use mqb_dispatcher::Cx;

fn share(cx: &Cx<'_, u32>) {
    std::thread::scope(|scope| {
        scope.spawn(|| cx.now());
    });
}

fn main() {}
