//! Sets of small numbers, such as the buffers of a function.

use smallvec::SmallVec;

/// A set of numbers below a bound that its maker knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(SmallVec<[u64; 2]>);

impl Set {
    /// The set of these.
    pub fn of(members: impl IntoIterator<Item = usize>) -> Set {
        let mut set = Set::default();
        members.into_iter().for_each(|member| {
            set.insert(member);
        });
        set
    }

    /// Adds one; true when it was not there.
    pub fn insert(&mut self, member: usize) -> bool {
        let (word, bit) = (member / 64, 1 << (member % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// Takes one out.
    pub fn remove(&mut self, member: usize) {
        if let Some(word) = self.0.get_mut(member / 64) {
            *word &= !(1 << (member % 64));
        }
    }

    /// True when it is there.
    pub fn contains(&self, member: usize) -> bool {
        self.0.get(member / 64).is_some_and(|word| word >> (member % 64) & 1 == 1)
    }

    /// Adds all of another set; true when that changed something.
    pub fn extend(&mut self, other: &Set) -> bool {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut changed = false;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            changed |= theirs & !*mine != 0;
            *mine |= theirs;
        }
        changed
    }

    /// Both together.
    pub fn with(mut self, other: &Set) -> Set {
        self.extend(other);
        self
    }

    /// Keeps what another set has too.
    pub fn intersect(&mut self, other: &Set) {
        for (position, mine) in self.0.iter_mut().enumerate() {
            *mine &= other.0.get(position).copied().unwrap_or(0);
        }
    }

    /// What both have.
    pub fn of_both(&self, other: &Set) -> Set {
        Set(self.0.iter().zip(&other.0).map(|(mine, theirs)| mine & theirs).collect())
    }

    /// What another set does not have.
    pub fn without(&self, other: &Set) -> Set {
        let theirs = other.0.iter().copied().chain(std::iter::repeat(0));
        Set(self.0.iter().zip(theirs).map(|(mine, theirs)| mine & !theirs).collect())
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let members = |(position, &word): (usize, &u64)| {
            let left = std::iter::successors(Some(word), |&left| Some(left & left.wrapping_sub(1)));
            left.take_while(|&left| left != 0).map(move |left| 64 * position + left.trailing_zeros() as usize)
        };
        self.0.iter().enumerate().flat_map(members)
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The only member, where there is one.
    pub fn only(&self) -> Option<usize> {
        let mut members = self.iter();
        members.next().filter(|_| members.next().is_none())
    }
}
