//! zlib, with a cap on what comes out.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::error::InflateError;

/// Below this many bytes the official SDKs do not compress.
pub const COMPRESS_BYTES_MIN: usize = 1024;

const STEP: usize = 16 << 10;

/// Appends `data` as one zlib stream.
///
/// **Cost**: allocates the compressor's state.
pub fn deflate(data: &[u8], out: &mut Vec<u8>) {
    let mut state = Compress::new(Compression::default(), true);
    let mut buffer = [0; STEP];
    loop {
        let (before_in, before_out) = (state.total_in(), state.total_out());
        let rest = &data[before_in as usize..];
        let status = state
            .compress(rest, &mut buffer, FlushCompress::Finish)
            .expect("a fresh stream, finished once");
        out.extend_from_slice(&buffer[..(state.total_out() - before_out) as usize]);
        if status == Status::StreamEnd {
            return;
        }
    }
}

/// Decompressor, reusable to save its allocation (about 50 KiB).
#[derive(Debug)]
pub struct Inflater {
    state: Decompress,
    buffer: Box<[u8; STEP]>,
}

impl Default for Inflater {
    fn default() -> Self {
        Self::new()
    }
}

impl Inflater {
    /// A fresh one.
    pub fn new() -> Self {
        Inflater {
            state: Decompress::new(true),
            buffer: Box::new([0; STEP]),
        }
    }

    /// Appends what the zlib stream `data` holds, at most `cap` bytes. `out` grows with what comes out.
    ///
    /// **Errors**: not exactly one complete stream, or more than `cap`; `out` then holds a part.
    pub fn inflate(
        &mut self,
        data: &[u8],
        cap: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), InflateError> {
        self.run(data, cap, |piece| out.extend_from_slice(piece))
            .map(|_| ())
    }

    /// What the zlib stream `data` would inflate to. **Units**: bytes. Keeps nothing.
    ///
    /// **Errors**: as [`Inflater::inflate`].
    pub fn check(&mut self, data: &[u8], cap: usize) -> Result<usize, InflateError> {
        self.run(data, cap, |_| {})
    }

    /// As [`Inflater::check`], and appends at most the first `keep` bytes to `out`.
    pub(crate) fn check_keeping(
        &mut self,
        data: &[u8],
        cap: usize,
        mut keep: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, InflateError> {
        self.run(data, cap, |piece| {
            let kept = piece.len().min(keep);
            out.extend_from_slice(&piece[..kept]);
            keep -= kept;
        })
    }

    /// The first bytes of the stream, as many as `out` takes. **Errors**: there are fewer.
    pub(crate) fn prefix(&mut self, data: &[u8], out: &mut [u8]) -> Result<(), InflateError> {
        self.state.reset(true);
        loop {
            let (taken, made) = (
                self.state.total_in() as usize,
                self.state.total_out() as usize,
            );
            if made == out.len() {
                return Ok(());
            }
            self.state
                .decompress(&data[taken..], &mut out[made..], FlushDecompress::None)
                .map_err(|_| InflateError::Corrupt)?;
            if self.state.total_out() as usize == made && self.state.total_in() as usize == taken {
                return Err(InflateError::Corrupt);
            }
        }
    }

    fn run(
        &mut self,
        data: &[u8],
        cap: usize,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<usize, InflateError> {
        self.state.reset(true);
        loop {
            let (taken, made) = (
                self.state.total_in() as usize,
                self.state.total_out() as usize,
            );
            let status = self
                .state
                .decompress(&data[taken..], &mut self.buffer[..], FlushDecompress::None)
                .map_err(|_| InflateError::Corrupt)?;
            let total = self.state.total_out() as usize;
            if total > cap {
                return Err(InflateError::TooBig(cap));
            }
            sink(&self.buffer[..total - made]);
            let progress = total > made || self.state.total_in() as usize > taken;
            match status {
                Status::StreamEnd if self.state.total_in() as usize == data.len() => {
                    return Ok(total);
                }
                Status::StreamEnd => return Err(InflateError::Corrupt),
                _ if !progress => return Err(InflateError::Corrupt),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deflated(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        deflate(data, &mut out);
        out
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut inflater = Inflater::new();
        for length in [0, 1, 100, STEP - 1, STEP, STEP + 1, 100_000] {
            let data: Vec<u8> = (0..length).map(|n| ((n * n) >> 7) as u8).collect();
            let mut out = Vec::new();
            inflater
                .inflate(&deflated(&data), length, &mut out)
                .unwrap();
            assert_eq!(out, data);
        }
    }

    #[test]
    fn a_bomb_stops_at_the_cap() {
        let bomb = deflated(&vec![0; 8 << 20]);
        assert!(bomb.len() < 10_000);
        let mut out = Vec::new();
        assert_eq!(
            Inflater::new().inflate(&bomb, 1 << 20, &mut out),
            Err(InflateError::TooBig(1 << 20))
        );
        assert!(out.len() <= 1 << 20);
        assert_eq!(Inflater::new().check(&bomb, 8 << 20), Ok(8 << 20));
        assert_eq!(
            Inflater::new().check(&bomb, (8 << 20) - 1),
            Err(InflateError::TooBig((8 << 20) - 1))
        );
    }

    #[test]
    fn only_one_whole_stream_is_taken() {
        let mut inflater = Inflater::new();
        let mut data = deflated(b"some text, some text");
        for length in 0..data.len() {
            assert_eq!(
                inflater.check(&data[..length], 1000),
                Err(InflateError::Corrupt),
                "cut at {length}"
            );
        }
        assert_eq!(inflater.check(&data, 1000), Ok(20));
        data.push(0);
        assert_eq!(inflater.check(&data, 1000), Err(InflateError::Corrupt));
        assert_eq!(
            inflater.check(b"not zlib", 1000),
            Err(InflateError::Corrupt)
        );
    }
}
