//! What the devices of one address space share: memory, who may reach whose, and what sanitizers know of launches that overlap.
//!
//! A launch comes after every launch that had ended when it began, whichever device ran it: the host saw to that. Launches that
//! overlap are ordered by what their kernels do alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::Heap;
use crate::sanitize::{GlobalShadow, RunId};

/// Devices of a node at most: who reaches whom is a word of bits.
pub(crate) const MOST_DEVICES: u32 = 64;

/// See the module's head.
pub(crate) struct Node {
    devices: u32,
    heap: Mutex<Heap>,
    /// Pairs of devices: the first one's kernels reach the second's memory.
    opened: Mutex<BTreeSet<(u32, u32)>>,
    shadow: Arc<Mutex<GlobalShadow>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub(crate) fn new(devices: u32) -> Node {
        Node { devices, heap: Mutex::default(), opened: Mutex::default(), shadow: Arc::default() }
    }

    pub(crate) fn heap(&self) -> MutexGuard<'_, Heap> {
        lock(&self.heap)
    }

    pub(crate) fn shadow(&self) -> Arc<Mutex<GlobalShadow>> {
        Arc::clone(&self.shadow)
    }

    /// Whether other devices may write what a kernel of one waits for.
    pub(crate) fn is_shared(&self) -> bool {
        self.devices > 1
    }

    pub(crate) fn let_in(&self, from: u32, to: u32) -> bool {
        from != to && to < self.devices && lock(&self.opened).insert((from, to))
    }

    /// The devices whose memory a device's kernels reach, a bit each.
    pub(crate) fn reach(&self, device: u32) -> u64 {
        lock(&self.opened).iter().filter(|(from, _)| *from == device).fold(1 << device, |bits, (_, to)| bits | 1 << to)
    }

    /// A launch has ended.
    pub(crate) fn end(&self, run: RunId) {
        lock(&self.shadow).end(run);
    }
}
