//! Sanitizers.

use crate::exec::{Cluster, Launch};
use crate::program::{Order, Scope};

/// Who accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    Thread { rank: usize, thread: usize },
}

/// Through which proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    Generic,
    Async,
}

/// An access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) actor: Actor,
    pub(crate) pc: u32,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
    pub(crate) order: Order,
    pub(crate) scope: Scope,
    pub(crate) proxy: Proxy,
}

/// Something that threads synchronise through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncObject {
    Block { rank: usize, id: u32 },
    Cluster,
    Mbarrier { rank: usize, offset: u32 },
}

/// An asynchronous operation, for the sanitizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// The sanitizers' state of a cluster.
pub(crate) struct Sanitizer;

impl Sanitizer {
    pub(crate) fn new(_launch: &Launch<'_>, _blocks: usize, _warps: usize, _shared: usize) -> Sanitizer {
        Sanitizer
    }
    pub(crate) fn access(&mut self, _cluster: &mut Cluster<'_>, _target: crate::exec::Target, _bytes: u32, _access: &Access) {}
    pub(crate) fn release(&mut self, _rank: usize, _thread: usize, _object: SyncObject, _orders: bool) {}
    pub(crate) fn acquire(&mut self, _rank: usize, _thread: usize, _object: SyncObject) {}
    pub(crate) fn complete(&mut self, _object: SyncObject) {}
    pub(crate) fn join(&mut self, _rank: usize, _threads: &[usize]) {}
    pub(crate) fn fence(&mut self, _rank: usize, _thread: usize, _order: Order, _scope: Scope) {}
    pub(crate) fn fence_proxy(&mut self, _rank: usize, _thread: usize) {}
    pub(crate) fn fence_mbarrier_init(&mut self, _rank: usize, _thread: usize) {}
    pub(crate) fn mbarrier_made(&mut self, _rank: usize, _thread: usize, _owner: usize, _offset: u32) {}
    pub(crate) fn issue(&mut self, _rank: usize, _thread: usize, _asynchronous: bool) -> Ticket {
        Ticket(0)
    }
    pub(crate) fn copies_waited(&mut self, _rank: usize, _thread: usize, _left: Option<u32>) {}
    pub(crate) fn copy_done(&mut self, _rank: usize, _thread: usize, _ticket: Ticket, _group: u32) {}
    pub(crate) fn copies_signal(&mut self, _rank: usize, _thread: usize, _owner: usize, _offset: u32) {}
    pub(crate) fn bulk_issued(&mut self, _rank: usize, _thread: usize, _ticket: Ticket, _group: u32) {}
    pub(crate) fn bulk_waited(&mut self, _rank: usize, _thread: usize, _groups: u32, _read: bool) {}
    pub(crate) fn signal(&mut self, _ticket: Ticket, _rank: usize, _offset: u32) {}
    pub(crate) fn waited(&mut self, _rank: usize, _thread: usize, _ticket: Ticket) {}
    pub(crate) fn job_access(&mut self, _cluster: &mut Cluster<'_>, _ticket: Ticket, _pc: u32, _target: crate::exec::Target, _bytes: u32, _write: bool) {}
}
