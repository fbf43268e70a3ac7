//! Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, 2011, "Parallel random numbers: as easy as 1, 2, 3"), for references and the launches of its kernels.

use crate::operator::{Argument, Unsupported};
use crate::problem::Problem;

/// Numbers of a problem that say which random numbers it has: whole ones from 0 to [`MOST`].
pub(crate) const SEED: (&str, f64) = ("seed", 0.0);
pub(crate) const OFFSET: (&str, f64) = ("offset", 0.0);

/// The greatest seed and offset. A double has the number behind it, too, but also takes the next one for it.
const MOST: i64 = (1 << f64::MANTISSA_DIGITS) - 1;

/// Counters of a block.
pub(crate) const COUNTERS: usize = 512;

/// Which random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    seed: u64,
    offset: u64,
}

impl Stream {
    /// # Errors
    /// Where seed or offset is none: what a cast made of it would be another one's numbers.
    pub(crate) fn of(problem: &Problem) -> Result<Stream, Unsupported> {
        let word = |number| problem.whole(number, 0..=MOST).map(|whole| whole as u64);
        Ok(Stream { seed: word(SEED)?, offset: word(OFFSET)? })
    }

    /// What kernels call its words.
    pub(crate) fn arguments(self) -> [(&'static str, Argument); 4] {
        let word = |value: u64, at: u32| Argument::Int(i64::from((value >> at) as u32 as i32));
        [
            ("seed_low", word(self.seed, 0)),
            ("seed_high", word(self.seed, 32)),
            ("offset_low", word(self.offset, 0)),
            ("offset_high", word(self.offset, 32)),
        ]
    }

    /// The four words of the counter that serves an element, and which of its lanes the element takes: elements come in blocks of as many as all
    /// counters of a block serve, lane after lane.
    pub(crate) fn of_element(self, element: usize, lanes: usize) -> ([u32; 4], usize) {
        let (block, within) = (element / (COUNTERS * lanes), element % (COUNTERS * lanes));
        let counter = block * COUNTERS + within % COUNTERS;
        (self.words([counter as u32, 0, self.offset as u32, (self.offset >> 32) as u32]), within / COUNTERS)
    }

    fn words(self, counter: [u32; 4]) -> [u32; 4] {
        let product = |a: u32, factor: u32| {
            let wide = u64::from(a) * u64::from(factor);
            ((wide >> 32) as u32, wide as u32)
        };
        let mut key = [self.seed as u32, (self.seed >> 32) as u32];
        let mut x = counter;
        for _ in 0..10 {
            let ((high_0, low_0), (high_1, low_1)) = (product(x[0], 0xD251_1F53), product(x[2], 0xCD9E_8D57));
            x = [high_1 ^ x[1] ^ key[0], low_1, high_0 ^ x[3] ^ key[1], low_0];
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_authors() {
        // Known answers of Random123 1.09, `kat_vectors`.
        let words = |seed, counter| Stream { seed, offset: 0 }.words(counter);
        assert_eq!(words(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(words(u64::MAX, [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(words(0x299f_31d0_a409_3822, pi), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn elements_take_lanes_of_counters() {
        let stream = Stream { seed: 7, offset: 1 << 33 };
        let (first, lane) = stream.of_element(5, 8);
        assert_eq!((stream.of_element(5 + 3 * COUNTERS, 8), lane), ((first, 3), 0));
        assert_ne!(stream.of_element(5 + 8 * COUNTERS, 8).0, first);
        assert_ne!(Stream { seed: 7, offset: 1 }.of_element(5, 8).0, first);
    }
}
