//! Asynchronous operations as actors: what happened before one is issued, and who comes after it.

use std::collections::BTreeMap;

use super::{Actor, Copies, Operation, Sanitizer, SyncObject, Ticket, Waited};
use crate::lanes::LANES;

impl Sanitizer {
    pub(crate) fn issue(&mut self, rank: usize, thread: usize, asynchronous: bool) -> Ticket {
        let actor = self.actor(rank, thread);
        let (before, turn) = (self.actors[actor].clock.clone(), self.actors[actor].turn);
        let index = match self.operations.iter().position(|operation| operation.free) {
            Some(index) => index,
            None => {
                self.operations.push(Operation::default());
                self.operations.len() - 1
            }
        };
        let clock = self.operations[index].clock + 1;
        self.operations[index] = Operation { before, clock, turn, asynchronous, rank, thread, free: false };
        self.tick(actor);
        Ticket(index as u32)
    }

    /// A warp issues a product of its warpgroup: one operation, which comes after what all four warps did before.
    pub(crate) fn product_issued(&mut self, rank: usize, thread: usize, number: u64) -> Ticket {
        let key = (rank, thread / LANES / 4, number);
        match self.products.get(&key) {
            Some(&(ticket, _)) => {
                let actor = self.actor(rank, thread);
                self.operations[ticket.0 as usize].before.join(&self.actors[actor].clock);
                self.tick(actor);
                ticket
            }
            None => {
                let ticket = self.issue(rank, thread, true);
                self.products.insert(key, (ticket, 0));
                ticket
            }
        }
    }

    /// A warp has waited for a product.
    pub(crate) fn product_waited(&mut self, rank: usize, thread: usize, number: u64) {
        let key = (rank, thread / LANES / 4, number);
        let Some((ticket, count)) = self.products.get_mut(&key) else { return };
        *count += 1;
        let (ticket, last) = (*ticket, *count == 4);
        self.waited(rank, thread, ticket);
        self.operations[ticket.0 as usize].free = last;
        if last {
            self.products.remove(&key);
        }
    }

    /// A thread has waited for an operation.
    pub(crate) fn waited(&mut self, rank: usize, thread: usize, ticket: Ticket) {
        let (actor, number) = (self.actor(rank, thread), self.number(ticket));
        let operation = &mut self.operations[ticket.0 as usize];
        let state = &mut self.actors[actor].clock;
        state.seen.set(number, operation.clock);
        if operation.asynchronous {
            state.fenced.set(number, operation.clock);
        }
        operation.free = true;
    }

    pub(crate) fn copy_issued(&mut self, (rank, warp): (usize, u32), copies: Copies) {
        let actor = self.actor(rank, warp as usize * LANES);
        self.copies.entry(actor).or_default().push(copies);
    }

    /// `cp.async.wait_group`: lanes have waited for those of their warp's copies that are due.
    pub(crate) fn copies_waited(&mut self, (rank, warp): (usize, u32), is_due: impl Fn(&Copies) -> bool) {
        let thread = warp as usize * LANES;
        let actor = self.actor(rank, thread);
        let (due, left): (Vec<_>, Vec<_>) = self.copies.remove(&actor).unwrap_or_default().into_iter().partition(is_due);
        for Copies { ticket, .. } in due {
            let (number, clock) = (self.number(ticket), self.operations[ticket.0 as usize].clock);
            let is_known = self.actors[actor].clock.seen.get(number) >= clock;
            self.waited(rank, thread, ticket);
            // What an mbarrier has handed to others is theirs already.
            if is_known {
                continue;
            }
            let Actor { turn, waited, .. } = &mut self.actors[actor];
            if waited.turn != *turn {
                *waited = Waited { turn: *turn, first: BTreeMap::new() };
            }
            waited.first.entry(number).or_insert(clock);
        }
        self.copies.insert(actor, left);
    }

    /// The arrival that follows a thread's copies carries them.
    pub(crate) fn copies_signal(&mut self, (rank, warp): (usize, u32), lane: usize, (owner, offset): (usize, u32)) {
        let actor = self.actor(rank, warp as usize * LANES);
        let own = |copies: &&Copies| copies.lanes >> lane & 1 == 1;
        let tickets: Vec<Ticket> =
            self.copies.get(&actor).into_iter().flatten().filter(own).map(|copies| copies.ticket).collect();
        for ticket in tickets {
            self.publish(ticket, owner, offset);
        }
    }

    fn publish(&mut self, ticket: Ticket, rank: usize, offset: u32) {
        let number = self.number(ticket);
        let operation = &self.operations[ticket.0 as usize];
        let object = self.objects.entry(SyncObject::Mbarrier { rank, offset }).or_default();
        object.coming.join(&operation.before);
        object.coming.seen.set(number, operation.clock);
        if operation.asynchronous {
            object.coming.fenced.set(number, operation.clock);
        }
    }

    /// An operation signals an mbarrier.
    pub(crate) fn signal(&mut self, ticket: Ticket, rank: usize, offset: u32) {
        self.publish(ticket, rank, offset);
    }

    /// An operation that signalled is over.
    pub(crate) fn retire(&mut self, ticket: Ticket) {
        self.operations[ticket.0 as usize].free = true;
    }

    pub(crate) fn bulk_issued(&mut self, rank: usize, thread: usize, ticket: Ticket, group: u32) {
        self.stores.entry((rank, thread)).or_default().push((ticket, group));
    }

    /// `cp.async.bulk.wait_group`: groups before `end` have read, or are complete.
    pub(crate) fn bulk_waited(&mut self, rank: usize, thread: usize, end: u32, read: bool) {
        let list = self.stores.remove(&(rank, thread)).unwrap_or_default();
        let mut left = Vec::new();
        for (ticket, group) in list {
            if group < end {
                // What was written is not visible after `.read`, but nobody else can have waited for it either.
                self.waited(rank, thread, ticket);
                self.operations[ticket.0 as usize].free = !read;
            }
            if group >= end || read {
                left.push((ticket, group));
            }
        }
        self.stores.insert((rank, thread), left);
    }
}
