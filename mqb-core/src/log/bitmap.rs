//! Which records of a segment are settled: one bit per 32 bytes of the file, because no two PUT records start closer than 40.

use std::sync::Arc;

/// **Units**: 64-bit words of a chunk: 4 KiB of bits stand for 1 MiB of file.
pub(super) const CHUNK_WORDS: usize = 512;

/// **Units**: bytes of file per bit.
const GRAIN: u64 = 32;
const CHUNK_BITS: u64 = CHUNK_WORDS as u64 * 64;

/// 4 KiB of bits.
pub(super) type Chunk = [u64; CHUNK_WORDS];

/// A sparse set of offsets in a file.
///
/// Cloning shares the chunks, so that a checkpoint takes its picture in a pointer per MiB of log; a later `set` copies the chunk it touches once.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Bitmap {
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl Bitmap {
    fn split(offset: u64) -> (usize, usize, u64) {
        let bit = offset / GRAIN;
        let in_chunk = bit % CHUNK_BITS;
        (
            (bit / CHUNK_BITS) as usize,
            (in_chunk / 64) as usize,
            1 << (in_chunk % 64),
        )
    }

    /// Adds `offset`; tells whether it is new.
    pub fn set(&mut self, offset: u64) -> bool {
        let (chunk, word, mask) = Self::split(offset);
        if chunk >= self.chunks.len() {
            self.chunks.resize(chunk + 1, None);
        }
        let chunk = self.chunks[chunk].get_or_insert_with(|| Arc::new([0; CHUNK_WORDS]));
        if chunk[word] & mask != 0 {
            return false;
        }
        Arc::make_mut(chunk)[word] |= mask;
        true
    }

    /// Whether `offset` is in.
    #[inline]
    pub fn get(&self, offset: u64) -> bool {
        let (chunk, word, mask) = Self::split(offset);
        matches!(self.chunks.get(chunk), Some(Some(c)) if c[word] & mask != 0)
    }

    /// How many offsets in `from..to` are in.
    ///
    /// **Cost**: one step per 2 KiB of file.
    pub fn count(&self, from: u64, to: u64) -> u32 {
        let (first, last) = (from.div_ceil(GRAIN), to.div_ceil(GRAIN));
        let mut count = 0;
        let mut bit = first;
        while bit < last {
            let end = last.min((bit / 64 + 1) * 64);
            if let Some(Some(chunk)) = self.chunks.get((bit / CHUNK_BITS) as usize) {
                let word = chunk[(bit % CHUNK_BITS / 64) as usize] >> (bit % 64);
                let width = end - bit;
                let mask = if width == 64 {
                    u64::MAX
                } else {
                    (1 << width) - 1
                };
                count += (word & mask).count_ones();
            }
            bit = end;
        }
        count
    }

    /// Chunks that are not empty, with their number.
    pub fn chunks(&self) -> impl Iterator<Item = (u32, &Arc<Chunk>)> {
        self.chunks
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((i as u32, c.as_ref()?)))
    }

    /// Puts a chunk in its place.
    pub fn insert_chunk(&mut self, number: u32, chunk: Chunk) {
        let number = number as usize;
        if number >= self.chunks.len() {
            self.chunks.resize(number + 1, None);
        }
        self.chunks[number] = Some(Arc::new(chunk));
    }

    /// **Units**: bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.chunks.len() * 8 + self.chunks().count() * (CHUNK_WORDS * 8 + 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_was_set() {
        let mut map = Bitmap::default();
        let offsets: Vec<u64> = (0..5000u64).map(|i| 40 + i * 840).collect();
        assert!(offsets.iter().all(|o| map.set(*o)));
        assert!(!offsets.iter().any(|o| map.set(*o)));
        assert_eq!(map.count(0, u64::from(u32::MAX)), 5000);
        for (from, to) in [
            (0, 1),
            (40, 41),
            (41, 881),
            (900_000, 2_000_000),
            (1 << 20, 3 << 20),
        ] {
            // A bit stands for the 32 bytes its record starts in.
            let want = offsets
                .iter()
                .filter(|o| (*o / 32) * 32 >= from && (*o / 32) * 32 < to)
                .count();
            assert_eq!(map.count(from, to) as usize, want, "{from}..{to}");
        }
        let copy = map.clone();
        map.set(1 << 30);
        assert!(!copy.get(1 << 30) && map.get(1 << 30));
    }
}
