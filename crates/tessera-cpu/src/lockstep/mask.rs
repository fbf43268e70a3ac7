//! Sets of a block's threads.

/// The most threads that a block has.
pub(super) const MOST: usize = 1024;

/// A set of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask([u64; MOST / 64]);

impl Mask {
    pub(super) const NONE: Mask = Mask([0; MOST / 64]);

    /// Threads from `first` to before `end`.
    pub(super) fn range(first: usize, end: usize) -> Mask {
        Mask::of(first..end)
    }

    /// These threads.
    pub(super) fn of(threads: impl IntoIterator<Item = usize>) -> Mask {
        let mut mask = Mask::NONE;
        for thread in threads {
            mask.0[thread / 64] |= 1 << (thread % 64);
        }
        mask
    }

    pub(super) fn contains(&self, thread: usize) -> bool {
        self.0[thread / 64] >> (thread % 64) & 1 != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == Mask::NONE.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn and(&self, other: &Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    pub(super) fn or(&self, other: &Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(super) fn without(&self, other: &Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The members, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let words = self.0;
        (0..words.len()).flat_map(move |i| {
            let mut word = words[i];
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as usize;
                (word != 0).then(|| {
                    word &= word - 1;
                    64 * i + bit
                })
            })
        })
    }
}
