//! Configuration texts that several tests share.

/// Segments so small that a second of load rolls, checkpoints and cleans many of them.
pub const SMALL_SEGMENTS: &str = "
[storage]
segment_size = \"1MiB\"
";
