//! The interpreter: one fragment of a warp, operation by operation.

use smallvec::SmallVec;
use tessera_ptx::Special;

use super::access::Kind;
use super::{Cluster, Fault, Fragment, Wait, Warp};
use crate::finding::FindingKind;
use crate::lanes::lanes;
use crate::program::{Connective, LOCAL_WINDOW, NOWHERE, Op, Order, PARAM_WINDOW, Pred, RANK_SHIFT, Reg, SHARED_WINDOW, Space};

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

    /// A condition, joined with a predicate where the instruction says so.
    fn combined(&self, holds: u32, with: Option<(Connective, Pred)>) -> u32 {
        with.map_or(holds, |(how, with)| connect(how, holds, self.predicate(with)))
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
                    let regs = &warp.regs;
                    let operands =
                        [&regs[from[0] as usize], &regs[from[1] as usize], &regs[from[2] as usize], &regs[from[3] as usize]];
                    (run.call)(&mut warp.result, &operands);
                    warp.regs[to.slot as usize].take(&warp.result, to.wide, active);
                    pc += 1;
                }
                Op::Test { run, from, to, other, combine } => {
                    let regs = &warp.regs;
                    let operands =
                        [&regs[from[0] as usize], &regs[from[1] as usize], &regs[from[2] as usize], &regs[from[3] as usize]];
                    let holds = (run.call)(&operands);
                    let (yes, no) = match combine {
                        None => (holds, !holds),
                        Some((how, with)) => {
                            let with = warp.predicate(*with);
                            (connect(*how, holds, with), connect(*how, !holds, with))
                        }
                    };
                    if let Some(to) = to {
                        warp.set_predicate(*to, active, yes);
                    }
                    if let Some(other) = other {
                        warp.set_predicate(*other, active, no);
                    }
                    pc += 1;
                }
                Op::Select { to, a, b, by } => {
                    let by = warp.predicate(*by);
                    warp.result = warp.regs[*b as usize];
                    let chosen = warp.regs[*a as usize];
                    warp.result.take(&chosen, to.wide, by);
                    warp.regs[to.slot as usize].take(&warp.result, to.wide, active);
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
                    let mut groups: SmallVec<[(u32, u32); 8]> = SmallVec::new();
                    let mut add = |to: u32, lanes: u32| match groups.iter_mut().find(|(pc, _)| *pc == to) {
                        Some((_, mask)) => *mask |= lanes,
                        None => groups.push((to, lanes)),
                    };
                    let mut beyond = None;
                    for lane in lanes(active) {
                        match targets.get(warp.narrow(*index, lane) as usize) {
                            Some(&target) => add(target, 1 << lane),
                            None => drop(beyond.get_or_insert(lane)),
                        }
                    }
                    if let Some(lane) = beyond {
                        let message = format!("branch {} of {}", warp.narrow(*index, lane), targets.len());
                        break Err(Fault::new(FindingKind::OutOfBounds, lane, message));
                    }
                    if mask & !active != 0 {
                        add(pc + 1, mask & !active);
                    }
                    if let [(target, _)] = groups[..] {
                        pc = target;
                        continue;
                    }
                    warp.part(fragment, &groups, *meets);
                    break Ok(());
                }
                Op::Call(call) => {
                    if let Err(fault) = self.call(warp, fragment, pc, call) {
                        break Err(fault);
                    }
                    break Ok(());
                }
                Op::Return => {
                    self.give_back(warp, fragment);
                    break Ok(());
                }
                Op::Exit => {
                    self.progress += 1;
                    warp.fragments[fragment].pc = pc + 1;
                    let live = warp.live;
                    warp.end(fragment, active);
                    self.leave_barriers(warp, live);
                    break Ok(());
                }
                Op::Nop => pc += 1,
                op => {
                    warp.fragments[fragment].pc = pc;
                    match self.execute(warp, fragment, pc, active, op) {
                        Ok(Outcome::Next) => pc += 1,
                        Ok(Outcome::Yield) => {
                            warp.fragments[fragment].pc = pc + 1;
                            break Ok(());
                        }
                        Ok(Outcome::Park(wait)) => {
                            warp.fragments[fragment].wait = wait;
                            break Ok(());
                        }
                        Ok(Outcome::Parted) => break Ok(()),
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
            Op::TestPair { run, from, to, other, combine } => {
                let operands = from.map(|slot| &warp.regs[slot as usize]);
                let holds = run.map(|run| (run.call)(&operands)).map(|holds| warp.combined(holds, *combine));
                for (index, holds) in [to, other].into_iter().zip(holds) {
                    if let Some(index) = index {
                        warp.set_predicate(*index, active, holds);
                    }
                }
            }
            Op::Set { run, from, to, value, high, combine } => {
                let operands = from.map(|slot| &warp.regs[slot as usize]);
                let holds = warp.combined((run.call)(&operands), *combine);
                let high = high.map(|(run, value)| (warp.combined((run.call)(&operands), *combine), value));
                for lane in lanes(active) {
                    let mut result = if holds >> lane & 1 == 1 { *value } else { 0 };
                    if let Some((holds, value)) = high
                        && holds >> lane & 1 == 1
                    {
                        result |= value;
                    }
                    warp.set(*to, lane, u64::from(result));
                }
            }
            Op::Video { video, to, from } => {
                for lane in lanes(active) {
                    let [a, b, c] = from.map(|slot| warp.narrow(slot, lane));
                    warp.set(*to, lane, u64::from(video.apply(a, b, c)));
                }
            }
            Op::Convert { conversion, to, from } => {
                let source = warp.regs[from.slot as usize];
                conversion.run(&mut warp.regs[to.slot as usize], to.wide, &source, from.wide, active);
            }
            Op::ConvertPair { conversion, to, high, low } => {
                let bits = conversion.to.bits() / 2;
                for lane in lanes(active) {
                    let [high, low] = [high, low].map(|reg| conversion.apply(warp.value(*reg, lane)));
                    warp.set(*to, lane, high << bits | low);
                }
            }
            Op::ConvertSplit { conversion, to, from } => {
                let (from_bits, to_bits) = (conversion.from.bits() / 2, conversion.to.bits() / 2);
                for lane in lanes(active) {
                    let value = warp.value(*from, lane);
                    let [high, low] = [value >> from_bits, value].map(|code| conversion.apply(code & ((1 << from_bits) - 1)));
                    warp.set(*to, lane, high << to_bits | low);
                }
            }
            Op::Predicate { to, how, a, b } => {
                let value = connect(*how, warp.predicate(*a), warp.predicate(*b));
                warp.set_predicate(*to, active, value);
            }
            Op::LogicPredicate { to, flag, from, table, how, with } => {
                let with = warp.predicate(*with);
                for lane in lanes(active) {
                    let [a, b, c] = from.map(|slot| warp.narrow(slot, lane));
                    let value = (0..32).fold(0, |value, bit| {
                        let row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
                        value | (table >> row & 1) << bit
                    });
                    if let Some(to) = to {
                        warp.set(*to, lane, u64::from(value));
                    }
                    if let Some(flag) = flag {
                        let holds = if value != 0 { 1 << lane } else { 0 };
                        warp.set_predicate(*flag, 1 << lane, connect(*how, holds, with));
                    }
                }
            }
            Op::Unpack { to, from, bits } => {
                let source = warp.regs[from.slot as usize];
                let mask = if *bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
                for (index, to) in to.iter().enumerate() {
                    let Some(to) = to else { continue };
                    for lane in lanes(active) {
                        warp.set(*to, lane, source.get(from.wide, lane) >> (index as u32 * bits) & mask);
                    }
                }
            }
            Op::Pack { to, from, bits } => {
                let mask = if *bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
                for lane in lanes(active) {
                    let value = from
                        .iter()
                        .enumerate()
                        .fold(0, |value, (index, reg)| value | (warp.value(*reg, lane) & mask) << (index as u32 * bits));
                    warp.set(*to, lane, value);
                }
            }
            Op::Carry { to, a, b, c, subtract, high, signed, reads, writes } => {
                let bits = if to.wide { 64 } else { 32 };
                let mask = (1u128 << bits) - 1;
                for lane in lanes(active) {
                    let [x, y] = [a, b].map(|reg| u128::from(warp.value(*reg, lane)));
                    let carry = if *reads { u128::from(warp.carry >> lane & 1) } else { 0 };
                    let sum = match c {
                        Some(c) => product(x, y, bits, *signed, *high) + u128::from(warp.value(*c, lane)) + carry,
                        // A subtraction adds the complement: its flag says that nothing was borrowed. nvcc reads it by `addc`.
                        None if *subtract => x + (!y & mask) + if *reads { carry } else { 1 },
                        None => x + y + carry,
                    };
                    warp.set(*to, lane, (sum & mask) as u64);
                    if *writes {
                        warp.carry = (warp.carry & !(1 << lane)) | ((sum >> bits & 1) as u32) << lane;
                    }
                }
            }
            Op::Clock { to, which } => {
                let value = match which {
                    Special::ClockHi | Special::GlobaltimerHi => self.clock >> 32,
                    Special::Clock | Special::GlobaltimerLo => self.clock & 0xffff_ffff,
                    _ => self.clock,
                };
                self.clock += 1;
                for lane in lanes(active) {
                    warp.set(*to, lane, value);
                }
            }
            Op::Load { to, bytes, signed, addr, order, scope } => {
                warp.strong |= *order != Order::Weak;
                let kind = Kind {
                    write: false,
                    atomic: *order != Order::Weak,
                    updates: false,
                    same: false,
                    order: *order,
                    scope: *scope,
                };
                self.load(warp, active, pc, to, (*bytes, *signed), *addr, kind)?;
            }
            Op::Store { from, bytes, addr, order, scope } => {
                let kind = Kind {
                    write: true,
                    atomic: *order != Order::Weak,
                    updates: false,
                    same: false,
                    order: *order,
                    scope: *scope,
                };
                self.store(warp, active, pc, from, *bytes, *addr, kind)?;
            }
            Op::Atomic { to, how, ty, addr, value, second, order, scope } => {
                warp.strong = true;
                let kind = Kind { write: true, atomic: true, updates: true, same: false, order: *order, scope: *scope };
                self.atomic(warp, active, pc, to, (*how, *ty), *addr, value, second, kind)?;
            }
            Op::Generic { to, from, space, back } => {
                let window = match space {
                    Space::Shared | Space::Cluster => SHARED_WINDOW,
                    Space::Local => LOCAL_WINDOW,
                    Space::Param => PARAM_WINDOW,
                    Space::Generic | Space::Global => 0,
                };
                for lane in lanes(active) {
                    let value = warp.value(*from, lane);
                    let value = if *back { value.wrapping_sub(window) } else { value.wrapping_add(window) };
                    warp.set(*to, lane, value);
                }
            }
            Op::IsSpace { to, from, space } => {
                for lane in lanes(active) {
                    let address = warp.value(*from, lane);
                    let window = address >> 32;
                    let inside = match space {
                        Space::Shared => {
                            window == SHARED_WINDOW >> 32 && (address & 0xffff_ffff) >> RANK_SHIFT == warp.rank as u64
                        }
                        Space::Cluster => window == SHARED_WINDOW >> 32,
                        Space::Local => window == LOCAL_WINDOW >> 32,
                        Space::Param => window == PARAM_WINDOW >> 32,
                        Space::Generic | Space::Global => {
                            ![SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW].iter().any(|start| start >> 32 == window)
                        }
                    };
                    warp.set_predicate(*to, 1 << lane, if inside { 1 << lane } else { 0 });
                }
            }
            Op::MapRank { to, from, rank } => {
                for lane in lanes(active) {
                    let rank = warp.value(*rank, lane);
                    if rank >= self.blocks.len() as u64 {
                        let message = format!("`mapa` asks for block {rank} of a cluster of {}", self.blocks.len());
                        return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
                    }
                    let address = warp.value(*from, lane) & !(0xff << RANK_SHIFT);
                    warp.set(*to, lane, address | rank << RANK_SHIFT);
                }
            }
            Op::RankOf { to, from } => {
                for lane in lanes(active) {
                    warp.set(*to, lane, warp.value(*from, lane) >> RANK_SHIFT & 0xff);
                }
            }
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

fn product(x: u128, y: u128, bits: u32, signed: bool, high: bool) -> u128 {
    let mask = (1u128 << bits) - 1;
    let product = if signed {
        let extend = |value: u128| (value << (128 - bits)) as i128 >> (128 - bits);
        extend(x).wrapping_mul(extend(y)) as u128
    } else {
        x.wrapping_mul(y)
    };
    if high { product >> bits & mask } else { product & mask }
}

pub(super) fn connect(how: Connective, a: u32, b: u32) -> u32 {
    match how {
        Connective::And => a & b,
        Connective::Or => a | b,
        Connective::Xor => a ^ b,
    }
}
