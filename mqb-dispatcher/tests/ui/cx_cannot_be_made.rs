//! Nobody but the loop makes a `Cx`.
use mqb_dispatcher::Cx;

fn main() {
    let _: Cx<'_, u32> = Cx { turn: todo!(), me: todo!(), _thread: std::marker::PhantomData };
}
