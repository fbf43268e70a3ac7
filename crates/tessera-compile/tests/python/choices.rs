//! Choices that can be taken again, changed: what makes a random program small.

/// A stream of numbers, recorded as it is taken.
pub(crate) struct Choices {
    given: Option<Vec<u32>>,
    taken: Vec<u32>,
    state: u64,
}

impl Choices {
    /// Random ones.
    pub(crate) fn random(seed: u64) -> Choices {
        Choices { given: None, taken: Vec::new(), state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1 }
    }

    /// The given ones, then zeros.
    pub(crate) fn again(given: Vec<u32>) -> Choices {
        Choices { given: Some(given), taken: Vec::new(), state: 0 }
    }

    /// What was taken.
    pub(crate) fn taken(self) -> Vec<u32> {
        self.taken
    }

    /// A number below a bound; 0 is the simplest choice.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let raw = match &self.given {
            Some(given) => given.get(self.taken.len()).copied().unwrap_or(0),
            None => {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                (self.state >> 24) as u32
            }
        };
        let value = raw % bound.max(1);
        self.taken.push(value);
        value
    }

    /// True in so many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) >= 100 - percent
    }
}

/// The shortest sequence that still fails, found by leaving out choices and by replacing them by zero.
pub(crate) fn shrink(mut choices: Vec<u32>, mut fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    let mut size = choices.len().next_power_of_two();
    let mut tries = 0;
    while size > 0 {
        let mut at = 0;
        while at < choices.len() && tries < 3000 {
            tries += 1;
            let end = (at + size).min(choices.len());
            let mut without = choices.clone();
            without.drain(at..end);
            let mut zeroed = choices.clone();
            zeroed[at..end].fill(0);
            if fails(&without) {
                choices = without;
            } else if zeroed != choices && fails(&zeroed) {
                choices = zeroed;
                at += size;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    choices
}
