//! A small counter-based generator: the stream is a pure function of its key, so that any schedule can be made again.
//!
//! It drives the order of cases and of blocks, never a kernel's input (those come from the operator, by seed).
//! ```
//! use tessera_bench::Random;
//! let mut a = Random::new(7);
//! let mut b = Random::new(7);
//! assert_eq!(a.next_u64(), b.next_u64());
//! ```

/// A stream of random numbers determined by its key.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The stream of `key`.
    pub fn new(key: u64) -> Random {
        Random { state: key }
    }

    /// The next 64 bits (SplitMix64).
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number in `0..limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next_u64()) * limit as u128) >> 64) as usize
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A 64-bit finaliser: every input bit reaches every output bit.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A running 64-bit digest of words and bytes; not for adversaries, only to tell different data apart.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(GOLDEN)
    }
}

impl Digest {
    /// Takes one word in.
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }

    /// Takes bytes in; `bytes(a)` then `bytes(b)` differs from `bytes(ab)`.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.word(u64::from_le_bytes(last));
    }

    /// The digest of what was taken in so far.
    pub fn finish(self) -> u64 {
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_values_are_those_of_splitmix64() {
        let mut random = Random::new(1234567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(first, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn shuffle_is_a_permutation_and_reaches_every_place() {
        let mut seen = [[0u32; 5]; 5];
        let mut random = Random::new(3);
        for _ in 0..2000 {
            let mut items = [0, 1, 2, 3, 4];
            random.shuffle(&mut items);
            items.iter().enumerate().for_each(|(place, &item)| seen[item][place] += 1);
        }
        assert!(seen.iter().flatten().all(|&n| (300..500).contains(&n)), "{seen:?}");
    }

    #[test]
    fn digest_sees_order_and_position() {
        let of = |parts: &[&[u8]]| {
            let mut digest = Digest::default();
            parts.iter().for_each(|p| digest.bytes(p));
            digest.finish()
        };
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"12345678", b"abcdefgh"]), of(&[b"abcdefgh", b"12345678"]));
    }
}
