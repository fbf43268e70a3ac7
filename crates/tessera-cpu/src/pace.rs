//! How long blocks take. Loops count their rounds; every so many, one looks at the clock: a round costs a subtraction.

use std::time::{Duration, Instant};

use tessera_ir::{Diagnostic, Span};
use tessera_types::{TimeLimit, Watch};

/// How often the clock is looked at.
const OFTEN: Duration = Duration::from_millis(1);

/// Most rounds between two looks: few enough that rounds which suddenly take long are noticed, enough that looking costs nothing.
const MOST: u32 = 1 << 8;

/// Blocks of a launch that may wait for each other, more than run at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) blocks: u64,
    pub(crate) at_once: u64,
}

/// One thread's view of a launch's time.
pub(crate) struct Pace {
    crowd: Option<Crowd>,
    watch: Option<Watch>,
    /// Rounds until the next look, and between looks.
    left: u32,
    every: u32,
    looked: Option<Instant>,
    /// A block has begun since.
    begun: bool,
}

impl Pace {
    pub(crate) fn new(limit: TimeLimit, crowd: Option<Crowd>) -> Pace {
        Pace { crowd, watch: Watch::start(limit), left: 1, every: 1, looked: None, begun: false }
    }

    /// The next block begins.
    pub(crate) fn block(&mut self) {
        self.begun = true;
    }

    /// Counts a round; the time that was given, where it has passed.
    #[inline(always)]
    pub(crate) fn round(&mut self) -> Option<Duration> {
        self.left -= 1;
        if self.left == 0 { self.look() } else { None }
    }

    #[cold]
    fn look(&mut self) -> Option<Duration> {
        let Some(watch) = &mut self.watch else {
            self.left = u32::MAX;
            return None;
        };
        let now = Instant::now();
        let often = self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < OFTEN);
        self.every = if often { (self.every * 2).min(MOST) } else { 1 };
        (self.left, self.looked) = (self.every, Some(now));
        if std::mem::take(&mut self.begun) {
            watch.block(now);
        }
        watch.is_up(now)
    }

    /// What a loop says whose block has taken too long.
    pub(crate) fn never_ends(&self, given: Duration, span: Span, round: u64) -> Box<Diagnostic> {
        let message = format!("the kernel has not ended after {} s", given.as_secs_f64());
        let stopped = Diagnostic::error(NEVER_ENDS, span, message).label(in_round(round));
        let more = "look at what ends the loop, or give the kernel more time with a longer `timeout`";
        Box::new(match self.crowd {
            None => stopped.help(more),
            Some(Crowd { blocks, at_once }) => {
                let note = format!(
                    "{at_once} of the launch's {blocks} blocks run at once here: one that waits for a later one never ends"
                );
                stopped.note(note).help("`--device emu` runs as many blocks at once as a GPU holds").help(more)
            }
        })
    }
}

/// A loop around the one that was stopped.
pub(crate) fn around(stopped: Box<Diagnostic>, span: Span, round: u64) -> Box<Diagnostic> {
    if stopped.id == NEVER_ENDS { Box::new(stopped.also(span, in_round(round))) } else { stopped }
}

const NEVER_ENDS: &str = "never-ends";

fn in_round(round: u64) -> String {
    format!("this loop is in round {round}")
}
