//! Warpgroup products in flight: issue, fences, groups and waits; and what may touch their registers meanwhile.
//!
//! A product is the whole warpgroup's: each of the four warps issues it and computes its own rows, and it ends after all of
//! them have issued it.

use crate::exec::run::Outcome;
use crate::exec::wgmma::Operands;
use crate::exec::{Cluster, Fault, Wait, Warp, wgmma};
use crate::finding::{Class, Finding, FindingKind};
use crate::lanes::LANES;
use crate::options::Schedule;
use crate::program::{NOWHERE, Op, Reg, Wgmma};
use crate::sanitize::Ticket;

/// What products in flight do with a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exec) enum Busy {
    Free,
    /// Read since the last `wgmma.fence`: no product may write it.
    Read,
    /// Written since the last `wgmma.fence`, or before the first.
    #[default]
    Dirty,
    /// An operand: it may be read.
    Operand,
    /// Metadata: it may be read, and nothing waits where it is written.
    Metadata,
    /// An accumulator.
    Accumulator,
}

/// A product in flight.
#[derive(Clone, Debug)]
pub(in crate::exec) struct Product {
    pub(in crate::exec) pc: u32,
    /// Which of the warp's products it is: the warps of a warpgroup issue the same ones.
    pub(in crate::exec) number: u64,
    pub(super) group: u64,
    pub(in crate::exec) a: u64,
    pub(in crate::exec) b: u64,
    pub(in crate::exec) accumulate: bool,
    pub(in crate::exec) done: bool,
    pub(in crate::exec) ticket: Ticket,
}

impl Cluster<'_> {
    pub(super) fn warpgroup(&mut self, warp: &mut Warp, fragment: usize, pc: u32, op: &Op) -> Result<Outcome, Fault> {
        match op {
            Op::Wgmma(wgmma) => {
                if self.blocks[warp.rank].warps.len() < (warp.index as usize / 4 + 1) * 4 {
                    let message = "a warpgroup product needs a warpgroup: four warps, of which the first has a number that is a multiple of 4";
                    return Err(Fault::new(FindingKind::Matrix, 0, message));
                }
                let (a, b) = wgmma::descriptors(warp, wgmma)?;
                self.check_registers(warp, wgmma).or_else(|fault| self.pass(warp, pc, fault))?;
                let accumulate = warp.predicate(wgmma.accumulate) & 1 == 1;
                let (group, number) = (warp.asynchronous.product_groups, warp.asynchronous.issued);
                let thread = warp.index as usize * LANES;
                let ticket = self.sanitizer.as_mut().map(|sanitizer| sanitizer.product_issued(warp.rank, thread, number));
                let ticket = ticket.unwrap_or_default();
                warp.asynchronous.products.push_back(Product { pc, number, group, a, b, accumulate, done: false, ticket });
                warp.asynchronous.issued += 1;
                self.progress += 1;
                self.watch_registers(warp);
                wgmma::mark(warp, wgmma);
                if self.schedule() == Schedule::Eager {
                    let number = self.issued_by_all(warp);
                    self.run_products(warp, number).map_err(|(fault, _)| fault)?;
                }
            }
            Op::WgmmaFence => {
                for busy in &mut warp.asynchronous.busy {
                    if matches!(busy, Busy::Dirty | Busy::Read) {
                        *busy = Busy::Free;
                    }
                }
            }
            Op::WgmmaCommit => warp.asynchronous.product_groups += 1,
            Op::WgmmaWait { left } => {
                warp.fragments[fragment].woken = false;
                let closed = warp.asynchronous.product_groups;
                let due = |product: &&Product| product.group + u64::from(*left) < closed;
                let Some(last) = warp.asynchronous.products.iter().rev().find(due).map(|product| product.number) else {
                    return Ok(Outcome::Next);
                };
                // A product is the whole warpgroup's: it ends after all four warps have issued it.
                if self.issued_by_all(warp) <= last {
                    return Ok(Outcome::Park(Wait::Products { issued: last + 1 }));
                }
                self.run_products(warp, last + 1).map_err(|(fault, _)| fault)?;
                while let Some(product) = warp.asynchronous.products.pop_front_if(|product| product.number <= last) {
                    if let Some(sanitizer) = &mut self.sanitizer {
                        sanitizer.product_waited(warp.rank, warp.index as usize * LANES, product.number);
                    }
                }
                wgmma::remark(warp, self.launch.program);
            }
            _ => {}
        }
        Ok(Outcome::Next)
    }

    /// The other warps of a warp's warpgroup.
    fn siblings(warp: &Warp) -> impl Iterator<Item = usize> + use<> {
        let own = warp.index as usize;
        (own / 4 * 4..own / 4 * 4 + 4).filter(move |&index| index != own)
    }

    /// Products that every warp of the warpgroup has issued.
    pub(in crate::exec) fn issued_by_all(&self, warp: &Warp) -> u64 {
        let others = Self::siblings(warp).filter_map(|index| self.warp(warp.rank, index)).map(|other| other.asynchronous.issued);
        others.fold(warp.asynchronous.issued, u64::min)
    }

    /// The oldest product that has not run and that every warp of the warpgroup has issued.
    pub(in crate::exec) fn next_product(&self, warp: &Warp) -> Option<u64> {
        let next = warp.asynchronous.products.iter().find(|product| !product.done)?.number;
        (next < self.issued_by_all(warp)).then_some(next)
    }

    /// Runs a warpgroup's products before number `end` that have not run yet.
    pub(super) fn run_products(&mut self, warp: &mut Warp, end: u64) -> Result<(), (Fault, u32)> {
        let mut shared = Operands::default();
        self.run_own_products(warp, end, &mut shared)?;
        for index in Self::siblings(warp) {
            let Some(mut other) = self.blocks[warp.rank].warps.get_mut(index).and_then(Option::take) else { continue };
            let result = self.run_own_products(&mut other, end, &mut shared);
            self.blocks[warp.rank].warps[index] = Some(other);
            result?;
        }
        Ok(())
    }

    fn run_own_products(&mut self, warp: &mut Warp, end: u64, shared: &mut Operands) -> Result<(), (Fault, u32)> {
        for index in 0..warp.asynchronous.products.len() {
            let product = &warp.asynchronous.products[index];
            if product.done || product.number >= end {
                continue;
            }
            let product = product.clone();
            let Op::Wgmma(wgmma) = &self.launch.program.code[product.pc as usize].op else { continue };
            self.multiply(warp, wgmma, &product, shared).map_err(|fault| (fault, product.pc))?;
            warp.asynchronous.products[index].done = true;
        }
        Ok(())
    }

    /// Accumulators and register operands must not have been written since the last fence.
    fn check_registers(&mut self, warp: &Warp, wgmma: &Wgmma) -> Result<(), Fault> {
        if !self.launch.options.sanitize.in_flight || warp.asynchronous.busy.is_empty() {
            return Ok(());
        }
        let operands: Vec<&Reg> = wgmma.operands().collect();
        let touched = |reg: &&Reg| match warp.asynchronous.busy[reg.slot as usize] {
            Busy::Dirty => true,
            Busy::Read => !operands.contains(reg),
            Busy::Free | Busy::Operand | Busy::Metadata | Busy::Accumulator => false,
        };
        if let Some(reg) = wgmma.d.iter().chain(operands.iter().copied()).find(touched) {
            let name = &self.launch.program.names[reg.slot as usize];
            let message = format!("no `wgmma.fence` stands between the last use of `{name}` and the product");
            let last = warp.asynchronous.used.get(reg.slot as usize).copied().filter(|&pc| pc != NOWHERE);
            return Err(Fault::new(FindingKind::InFlight, 0, message).after(last));
        }
        Ok(())
    }

    /// The oldest product under way that uses a register.
    fn product_of(&self, warp: &Warp, slot: u32) -> Option<u32> {
        let uses = |pc: u32| match &self.launch.program.code[pc as usize].op {
            Op::Wgmma(wgmma) => wgmma.d.iter().chain(wgmma.operands()).chain(wgmma.metadata()).any(|reg| reg.slot == slot),
            _ => false,
        };
        warp.asynchronous.products.iter().map(|product| product.pc).find(|&pc| uses(pc))
    }

    /// Room to remember what uses each register.
    fn watch_registers(&self, warp: &mut Warp) {
        if warp.asynchronous.busy.is_empty() {
            let slots = self.launch.program.slots.len();
            warp.asynchronous.busy = vec![Busy::default(); slots];
            warp.asynchronous.used = vec![NOWHERE; slots];
        }
    }

    /// Ends the products whose registers an ordinary instruction touches, as ptxas has it: it puts a wait there. Gives what the warp has
    /// to wait for where a product is not the whole warpgroup's yet.
    pub(in crate::exec) fn end_touched(&mut self, warp: &mut Warp, pc: u32) -> Result<Option<Wait>, Fault> {
        let program = self.launch.program;
        let meta = &program.meta[pc as usize];
        if matches!(program.code[pc as usize].op, Op::Wgmma(_)) || meta.prepares {
            return Ok(None);
        }
        let busy = |slot: &u32| warp.asynchronous.busy[*slot as usize];
        let touched = meta.reads.iter().any(|slot| busy(slot) == Busy::Accumulator)
            || meta.writes.iter().any(|slot| matches!(busy(slot), Busy::Accumulator | Busy::Operand));
        let Some(last) = warp.asynchronous.products.back().map(|product| product.number).filter(|_| touched) else {
            return Ok(None);
        };
        if self.issued_by_all(warp) <= last {
            return Ok(Some(Wait::Products { issued: last + 1 }));
        }
        self.run_products(warp, last + 1).map_err(|(fault, _)| fault)?;
        Ok(None)
    }

    /// A register of a product under way is touched: against the rules, and slow; the values are right ([`Self::end_touched`]), but for metadata.
    fn note_touch(&mut self, warp: &Warp, pc: u32, slot: u32, what: &str) {
        let earlier = self.product_of(warp, slot);
        let (class, so) = match warp.asynchronous.busy[slot as usize] {
            Busy::Metadata => (Class::Wrong, "it is metadata, for which nothing waits"),
            _ => (Class::Formal, "ptxas puts a wait there, and products run one by one"),
        };
        let message = format!("`{}` {what}: {so}", self.launch.program.names[slot as usize]);
        self.note((FindingKind::InFlight, pc, earlier), class, |cluster| {
            let thread = Some(warp.index as usize * LANES);
            let place = |pc| cluster.place(warp.rank, thread, pc);
            Finding::new(FindingKind::InFlight, message, place(pc), earlier.map(place))
        });
    }

    /// Ordinary instructions must leave alone what products in flight use.
    pub(in crate::exec) fn check_in_flight(&mut self, warp: &mut Warp, pc: u32) {
        let program = self.launch.program;
        let meta = &program.meta[pc as usize];
        let looked_at = matches!(program.code[pc as usize].op, Op::Wgmma(_)) || meta.prepares;
        if !self.launch.options.sanitize.in_flight || looked_at {
            return;
        }
        self.watch_registers(warp);
        for &slot in &meta.reads {
            let busy = &mut warp.asynchronous.busy[slot as usize];
            if *busy == Busy::Free {
                *busy = Busy::Read;
            }
            if *busy == Busy::Accumulator {
                self.note_touch(warp, pc, slot, "is read while a product that writes it is under way");
            }
            warp.asynchronous.used[slot as usize] = pc;
        }
        for &slot in &meta.writes {
            let busy = &mut warp.asynchronous.busy[slot as usize];
            match busy {
                Busy::Accumulator | Busy::Operand | Busy::Metadata => {
                    self.note_touch(warp, pc, slot, "is written while a product that uses it is under way");
                }
                Busy::Free | Busy::Read | Busy::Dirty => *busy = Busy::Dirty,
            }
            warp.asynchronous.used[slot as usize] = pc;
        }
    }
}
