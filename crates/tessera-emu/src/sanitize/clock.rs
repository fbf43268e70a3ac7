//! Vector clocks, in pairs.
//!
//! An actor is a warp or an asynchronous operation under way. The first clock of a pair says what happened before for the
//! generic proxy, the second what of it the asynchronous proxy may see: generic writes enter it at `fence.proxy.async`
//! (PTX ISA, "Memory Consistency Model: Proxies" and "membar, fence"). Synchronisation joins both. Relaxed synchronisation joins a third one
//! alone: what mbarriers a `fence.mbarrier_init` has let others use.

/// What happened before: for each actor, how far.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Vec<u32>);

impl Clock {
    pub(super) fn get(&self, actor: usize) -> u32 {
        self.0.get(actor).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, actor: usize, value: u32) {
        if self.0.len() <= actor {
            self.0.resize(actor + 1, 0);
        }
        self.0[actor] = value;
    }

    pub(super) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }
}

/// The clocks of an actor or of something that synchronises.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair {
    /// Generic proxy.
    pub(super) seen: Clock,
    /// What of it the asynchronous proxy may see.
    pub(super) fenced: Clock,
    /// Whose mbarriers may be used, of those made until then.
    pub(super) made: Clock,
}

impl Pair {
    pub(super) fn join(&mut self, other: &Pair) {
        self.seen.join(&other.seen);
        self.fenced.join(&other.fenced);
        self.made.join(&other.made);
    }
}
