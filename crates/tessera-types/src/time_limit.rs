//! How long a launch may take before it counts as one that never ends.
//!
//! Whether a kernel ends cannot be told in advance; that it takes longer than anybody would wait can. A [`TimeLimit`] says how long that
//! is, a [`Watch`] compares it with the clock.

use std::time::{Duration, Instant};

/// Time that a launch is given; without any it may take for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimit {
    /// From its start to its end.
    pub total: Option<Duration>,
    /// In which some block of it has to end.
    pub block: Option<Duration>,
}

impl TimeLimit {
    /// As long as it takes.
    pub const NONE: TimeLimit = TimeLimit { total: None, block: None };

    /// A minute for each block, however many there are: what is given where nobody says otherwise.
    pub const PATIENT: TimeLimit = TimeLimit { total: None, block: Some(Duration::from_secs(60)) };

    /// So much from start to end.
    pub const fn within(total: Duration) -> TimeLimit {
        TimeLimit { total: Some(total), block: None }
    }

    /// The time after which nothing more is waited for where blocks cannot be seen to end.
    pub fn longest(&self) -> Option<Duration> {
        self.total.or(self.block)
    }
}

/// A launch's time as it passes.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    limit: TimeLimit,
    start: Instant,
    block: Instant,
}

impl Watch {
    /// Begins now; `None` where there is no limit.
    pub fn start(limit: TimeLimit) -> Option<Watch> {
        let watch = || {
            let now = Instant::now();
            Watch { limit, start: now, block: now }
        };
        (limit != TimeLimit::NONE).then(watch)
    }

    /// A block has ended, or the next one begins.
    pub fn block(&mut self, now: Instant) {
        self.block = now;
    }

    /// Where several blocks take turns and none has ended for half of the time in which one has to: how long one of them should go on
    /// alone, so that it can.
    pub fn turn(&self, now: Instant) -> Option<Duration> {
        let is_late = |block: &Duration| now.saturating_duration_since(self.block) >= *block / 2;
        self.limit.block.filter(is_late).map(|block| block / 6)
    }

    /// The time that was given, where it has passed.
    pub fn is_up(&self, now: Instant) -> Option<Duration> {
        let total = self.limit.total.filter(|&total| now.saturating_duration_since(self.start) >= total);
        total.or(self.limit.block.filter(|&block| now.saturating_duration_since(self.block) >= block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_tells_when_the_whole_or_a_block_takes_too_long() {
        let second = Duration::from_secs(1);
        assert!(Watch::start(TimeLimit::NONE).is_none());
        let mut watch = Watch::start(TimeLimit { total: Some(10 * second), block: Some(3 * second) }).expect("a limit");
        let start = watch.start;
        assert_eq!(watch.is_up(start + 2 * second), None);
        assert_eq!(watch.is_up(start + 4 * second), Some(3 * second));
        watch.block(start + 4 * second);
        assert_eq!(watch.is_up(start + 6 * second), None);
        assert_eq!((watch.turn(start + 5 * second), watch.turn(start + 6 * second)), (None, Some(second / 2)));
        watch.block(start + 9 * second);
        assert_eq!(watch.is_up(start + 10 * second), Some(10 * second));
    }
}
