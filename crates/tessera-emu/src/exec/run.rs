//! The interpreter: one fragment of a warp, operation by operation.

use smallvec::SmallVec;
use tessera_ptx::Special;

use super::access::Kind;
use super::lanewise::connect;
use super::{Cluster, Fault, Fragment, Wait, Warp};
use crate::finding::FindingKind;
use crate::lanes::lanes;
use crate::program::{NOWHERE, Op, Order, Pred, RANK_SHIFT, Reg};

/// What becomes of a fragment behind an operation.
pub(super) enum Outcome {
    Next,
    /// The operation is executed again when the wait is over.
    Park(Wait),
    /// Go on, but let others run first.
    Yield,
    /// The fragment's lanes have parted.
    Parted,
}

/// Places in the code, each with the lanes that go there.
type Ways = SmallVec<[(u32, u32); 8]>;

/// A fault and the operation that caused it.
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    pub(crate) pc: u32,
}

impl Warp {
    pub(super) fn predicate(&self, pred: Pred) -> u32 {
        let lanes = self.predicates[pred.index as usize];
        if pred.negated { !lanes } else { lanes }
    }

    pub(super) fn set_predicate(&mut self, index: u32, mask: u32, value: u32) {
        let lanes = &mut self.predicates[index as usize];
        *lanes = (*lanes & !mask) | (value & mask);
    }

    pub(super) fn value(&self, reg: Reg, lane: usize) -> u64 {
        self.regs[reg.slot as usize].get(reg.wide, lane)
    }

    pub(super) fn narrow(&self, slot: u32, lane: usize) -> u32 {
        self.regs[slot as usize].n()[lane]
    }

    pub(super) fn set(&mut self, reg: Reg, lane: usize, value: u64) {
        self.regs[reg.slot as usize].set(reg.wide, lane, value);
    }

    /// Notes how a fragment goes on that does not go on at once.
    fn stop(&mut self, fragment: usize, pc: u32, outcome: Outcome) {
        match outcome {
            Outcome::Next | Outcome::Yield => self.fragments[fragment].pc = pc + 1,
            Outcome::Park(wait) => self.fragments[fragment].wait = wait,
            Outcome::Parted => {}
        }
    }

    /// Where a branch by a table sends lanes: each place with its lanes, those of a fragment that do not branch too.
    fn targets(&self, pc: u32, mask: u32, active: u32, index: u32, targets: &[u32]) -> Result<Ways, Fault> {
        let mut ways = Ways::new();
        let mut add = |to: u32, lanes: u32| match ways.iter_mut().find(|(pc, _)| *pc == to) {
            Some((_, mask)) => *mask |= lanes,
            None => ways.push((to, lanes)),
        };
        for lane in lanes(active) {
            let at = self.narrow(index, lane);
            let Some(&target) = targets.get(at as usize) else {
                let message = format!("branch {at} of {}", targets.len());
                return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
            };
            add(target, 1 << lane);
        }
        if mask & !active != 0 {
            add(pc + 1, mask & !active);
        }
        Ok(ways)
    }
}

impl Cluster<'_> {
    /// Runs a ready fragment for at most `quantum` operations; how many it ran.
    pub(super) fn run_fragment(&mut self, warp: &mut Warp, fragment: usize, quantum: u64) -> Result<u64, Failed> {
        let program = self.launch.program;
        let Fragment { mut pc, mask, join, call, .. } = warp.fragments[fragment];
        let meets = match warp.joins.get(join as usize) {
            Some(meeting) if meeting.call == call => meeting.pc,
            _ => NOWHERE,
        };
        let follows = warp.undefined.is_some();
        let in_flight = self.launch.options.sanitize.any();
        let mut steps = 0;
        let mut executed = 0u64;
        let stop = loop {
            if pc == meets {
                warp.fragments[fragment].pc = pc;
                warp.arrive(fragment);
                break Ok(());
            }
            if steps >= quantum {
                warp.fragments[fragment].pc = pc;
                break Ok(());
            }
            let inst = &program.code[pc as usize];
            let active = if inst.guard == Pred::TRUE { mask } else { mask & warp.predicate(inst.guard) };
            steps += 1;
            if active == 0 {
                if follows {
                    self.follow_bits(warp, pc, 0, mask);
                }
                pc += 1;
                continue;
            }
            if warp.asynchronous.products.back().is_some_and(|last| !last.done) {
                match self.end_touched(warp, pc) {
                    Ok(None) => {}
                    Ok(Some(wait)) => {
                        warp.fragments[fragment].pc = pc;
                        warp.fragments[fragment].wait = wait;
                        break Ok(());
                    }
                    Err(fault) => break Err(fault),
                }
            }
            executed += u64::from(active.count_ones());
            if follows {
                self.follow_bits(warp, pc, active, mask);
            }
            if in_flight {
                self.check_in_flight(warp, pc);
            }
            let at = pc;
            match &inst.op {
                Op::Map { run, to, from } => {
                    warp.map(active, run, *to, *from);
                    pc += 1;
                }
                Op::Test { run, from, to, other, combine } => {
                    warp.test(active, run, *from, [*to, *other], *combine);
                    pc += 1;
                }
                Op::Select { to, a, b, by } => {
                    warp.select(active, *to, [*a, *b], *by);
                    pc += 1;
                }
                Op::Branch { target, join: meets } => {
                    if active == mask {
                        pc = *target;
                        continue;
                    }
                    warp.part(fragment, &[(*target, active), (pc + 1, mask & !active)], *meets);
                    break Ok(());
                }
                Op::BranchTo { index, targets, join: meets } => {
                    let ways = match warp.targets(pc, mask, active, *index, targets) {
                        Ok(ways) => ways,
                        Err(fault) => break Err(fault),
                    };
                    if let [(target, _)] = ways[..] {
                        pc = target;
                        continue;
                    }
                    warp.part(fragment, &ways, *meets);
                    break Ok(());
                }
                Op::Call(call) => break self.call(warp, fragment, pc, call),
                Op::Return => {
                    self.give_back(warp, fragment);
                    break Ok(());
                }
                Op::Exit => {
                    self.exit(warp, fragment, pc, active);
                    break Ok(());
                }
                Op::Nop => pc += 1,
                op => {
                    warp.fragments[fragment].pc = pc;
                    match self.execute(warp, fragment, pc, active, op) {
                        Ok(Outcome::Next) => pc += 1,
                        Ok(outcome) => {
                            warp.stop(fragment, pc, outcome);
                            break Ok(());
                        }
                        Err(fault) => break Err(fault),
                    }
                }
            }
            if warp.traced {
                self.trace(warp, at, active);
            }
        };
        warp.executed += executed;
        self.executed += executed;
        self.clock += steps;
        stop.map(|()| steps).map_err(|fault| Failed { fault, pc })
    }

    fn execute(&mut self, warp: &mut Warp, fragment: usize, pc: u32, active: u32, op: &Op) -> Result<Outcome, Fault> {
        match op {
            Op::Nop | Op::Map { .. } | Op::Test { .. } | Op::Select { .. } | Op::Branch { .. } | Op::Exit => {}
            Op::BranchTo { .. } | Op::Call(_) | Op::Return => {}
            Op::TestPair { run, from, to, other, combine } => warp.test_pair(active, run, *from, [*to, *other], *combine),
            Op::Set(set) => warp.set_where(active, set),
            Op::Video { video, to, from } => warp.video(active, video, *to, *from),
            Op::Convert { conversion, to, from } => warp.convert(active, conversion, *to, *from),
            Op::ConvertPair { conversion, to, high, low } => warp.convert_pair(active, conversion, *to, [*high, *low]),
            Op::ConvertSplit { conversion, to, from } => warp.convert_halves(active, conversion, *to, *from),
            Op::Predicate { to, how, a, b } => {
                let value = connect(*how, warp.predicate(*a), warp.predicate(*b));
                warp.set_predicate(*to, active, value);
            }
            Op::LogicPredicate(logic) => warp.logic(active, logic),
            Op::Unpack { to, from, bits } => warp.unpack(active, to, *from, *bits),
            Op::Pack { to, from, bits } => warp.pack(active, *to, from, *bits),
            Op::Carry(carry) => warp.add_with_carry(active, carry),
            Op::Clock { to, which } => self.read_clock(warp, active, *to, *which),
            Op::Load { to, bytes, signed, addr, order, scope } => {
                warp.strong |= *order != Order::Weak;
                let kind = Kind::plain(false, *bytes, *order, *scope);
                self.load(warp, active, pc, to, (*bytes, *signed), *addr, kind)?;
            }
            Op::Store { from, bytes, addr, order, scope } => {
                let kind = Kind::plain(true, *bytes, *order, *scope);
                self.store(warp, active, pc, from, *bytes, *addr, kind)?;
            }
            Op::Atomic { to, how, ty, addr, value, second, order, scope } => {
                warp.strong = true;
                self.atomic(warp, active, pc, to, (*how, *ty), *addr, value, second, Kind::update(*ty, *order, *scope))?;
            }
            Op::Generic { to, from, space, back } => warp.convert_address(active, *to, *from, *space, *back),
            Op::IsSpace { to, from, space } => warp.is_in_space(active, *to, *from, *space),
            Op::MapRank { to, from, rank } => self.map_rank(warp, active, *to, *from, *rank)?,
            Op::RankOf { to, from } => warp.rank_of(active, *to, *from),
            Op::Sample(sample) => self.sample(warp, active, pc, sample)?,
            Op::Surface(surface) => self.surface(warp, active, pc, surface)?,
            Op::Query { to, image, what, texture } => self.query(warp, active, *to, *image, (*what, *texture))?,
            Op::IsHandle { to, from, kind } => self.is_handle(warp, active, *to, *from, *kind),
            Op::Trap => {
                return Err(Fault::new(FindingKind::Trap, active.trailing_zeros() as usize, "the kernel executed `trap`"));
            }
            Op::SetMaxRegisters { count, more } => return self.set_registers(warp, fragment, active, *count, *more),
            Op::GridWait | Op::GridLaunch => {}
            Op::Sleep => return Ok(Outcome::Yield),
            Op::Print { format, arguments } => self.print(warp, active, pc, *format, *arguments)?,
            Op::Shuffle { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::ActiveMask { .. }
            | Op::Elect { .. }
            | Op::WarpBarrier { .. }
            | Op::MoveMatrix { .. }
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. }
            | Op::WmmaLoad { .. }
            | Op::WmmaStore { .. }
            | Op::Wmma(_)
            | Op::Mma(_) => return self.collective(warp, fragment, pc, active, op),
            Op::Barrier { .. }
            | Op::ClusterArrive { .. }
            | Op::ClusterWait
            | Op::Fence { .. }
            | Op::FenceProxy
            | Op::FenceMbarrierInit
            | Op::FenceTensorMap
            | Op::Mbarrier { .. }
            | Op::PendingCount { .. } => return self.synchronize(warp, fragment, pc, active, op),
            Op::StoreAsync { .. }
            | Op::CpAsync { .. }
            | Op::CpCommit
            | Op::CpWait { .. }
            | Op::CpArrive { .. }
            | Op::Bulk(_)
            | Op::BulkCommit
            | Op::BulkWait { .. }
            | Op::TensorMapReplace { .. }
            | Op::TensorMapCopy { .. }
            | Op::Wgmma(_)
            | Op::WgmmaFence
            | Op::WgmmaCommit
            | Op::WgmmaWait { .. } => return self.start(warp, fragment, pc, active, op),
        }
        Ok(Outcome::Next)
    }

    fn exit(&mut self, warp: &mut Warp, fragment: usize, pc: u32, active: u32) {
        self.progress += 1;
        warp.fragments[fragment].pc = pc + 1;
        let live = warp.live;
        warp.end(fragment, active);
        self.leave_barriers(warp, live);
    }

    fn read_clock(&mut self, warp: &mut Warp, active: u32, to: Reg, which: Special) {
        let value = match which {
            Special::ClockHi | Special::GlobaltimerHi => self.clock >> 32,
            Special::Clock | Special::GlobaltimerLo => self.clock & 0xffff_ffff,
            _ => self.clock,
        };
        self.clock += 1;
        for lane in lanes(active) {
            warp.set(to, lane, value);
        }
    }

    /// The same place in the shared memory of another block of the cluster.
    fn map_rank(&self, warp: &mut Warp, active: u32, to: Reg, from: Reg, rank: Reg) -> Result<(), Fault> {
        for lane in lanes(active) {
            let rank = warp.value(rank, lane);
            if rank >= self.blocks.len() as u64 {
                let message = format!("`mapa` asks for block {rank} of a cluster of {}", self.blocks.len());
                return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
            }
            let address = warp.value(from, lane) & !(0xff << RANK_SHIFT);
            warp.set(to, lane, address | rank << RANK_SHIFT);
        }
        Ok(())
    }

    /// `setmaxnreg`: gives registers back to the block's pool, or takes some and waits until there are enough.
    fn set_registers(&mut self, warp: &mut Warp, fragment: usize, active: u32, count: u32, more: bool) -> Result<Outcome, Fault> {
        warp.fragments[fragment].woken = false;
        // Without known launch registers the assembler ignores the instruction.
        let Some(held) = warp.registers else { return Ok(Outcome::Next) };
        let lane = active.trailing_zeros() as usize;
        if active != warp.live || (more && count < held) || (!more && count > held) {
            let message =
                format!("`setmaxnreg` to {count} registers by {} of the warp's lanes, which hold {held}", active.count_ones());
            return Err(Fault::new(FindingKind::Barrier, lane, message));
        }
        let free = &mut self.blocks[warp.rank].free_registers;
        if more && *free < count - held {
            return Ok(Outcome::Park(Wait::Registers { count: count - held }));
        }
        *free = *free + held - count;
        warp.registers = Some(count);
        self.progress += 1;
        Ok(Outcome::Next)
    }

    /// Writes down an operation that the traced warp has executed. Where lanes differ, all values stand in order of the lanes.
    fn trace(&self, warp: &Warp, pc: u32, active: u32) {
        const MOST_LINES: usize = 1 << 20;
        let program = self.launch.program;
        let meta = &program.meta[pc as usize];
        let mut line = format!("{:>5}  {active:08x}  {}", meta.line, meta.mnemonic);
        for &slot in meta.writes.iter().filter(|_| !meta.prepares) {
            let wide = matches!(&program.code[pc as usize].op, Op::Map { to, .. } if to.slot == slot && to.wide);
            let values: Vec<u64> = lanes(active).map(|lane| warp.regs[slot as usize].get(wide, lane)).collect();
            let same = values.iter().all(|value| *value == values[0]);
            let shown: Vec<String> =
                values[..if same { 1 } else { values.len() }].iter().map(|value| format!("{value:x}")).collect();
            line.push_str(&format!("  {} = {}", program.names[slot as usize], shown.join(" ")));
        }
        for &index in &meta.writes_predicates {
            line.push_str(&format!(
                "  {} = {:08x}",
                program.predicate_names[index as usize],
                warp.predicates[index as usize] & active
            ));
        }
        if let Ok(mut lines) = self.launch.trace.lock()
            && lines.len() < MOST_LINES
        {
            lines.push(line);
        }
    }
}
