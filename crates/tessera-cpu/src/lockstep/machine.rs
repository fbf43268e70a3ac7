//! The state of a launch, and the loop that takes one operation after another from each role.

use tessera_ir::{Diagnostic, EntityId, Func, Op, OpKind, Span, Type, Value};

use super::cluster::Meeting;
use super::control::Frame;
use super::copies::Copies;
use super::mask::Mask;
use super::memory::{Allocation, Registers};
use super::micro::{Feed, scalar_bytes};
use super::program::Program;
use super::races::Races;
use super::rings::{NamedBarrier, Ring, Wait};
use super::value::{Buffer, Data};
use crate::exec::{Memory, Ran, Range};
use crate::launch::{Arg, RunOptions};
use crate::pace::{Crowd, Pace};

/// What an operation did to the flow of its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is done.
    Done,
    /// It waits for another role, and is tried again later.
    Waits,
}

/// Threads that run a region of their own, the whole block among them.
#[derive(Debug)]
pub(super) struct Role {
    /// The operation that made it; `None` for the block.
    pub(super) op: Option<Op>,
    pub(super) frames: Vec<Frame>,
    /// Threads that have not returned.
    pub(super) alive: Mask,
    pub(super) copies: Copies,
    /// What it waits for, and where.
    pub(super) wait: Option<(Wait, Span)>,
}

/// Everything that a running block has.
pub(super) struct Machine<'p> {
    pub(super) program: &'p Program,
    pub(super) func: &'p Func,
    pub(super) grid: [u32; 3],
    /// How many blocks run, where these share the work of the grid's.
    pub(super) workers: u32,
    /// The launch's memory, by the operation that names it.
    pub(super) workspaces: Vec<(Op, Range)>,
    pub(super) block: [u32; 3],
    pub(super) meeting: Meeting,
    pub(super) checked: bool,
    pub(super) races: Option<Races>,
    pub(super) values: Vec<Option<Data>>,
    pub(super) roles: Vec<Role>,
    pub(super) allocations: Vec<Allocation>,
    pub(super) registers: Vec<Registers>,
    pub(super) rings: Vec<Ring>,
    pub(super) barriers: [NamedBarrier; 16],
    /// Memory of the launch; behind it, the block's own.
    pub(super) memory: Vec<Range>,
    launch_memory: usize,
    scratch: Memory,
    /// What the blocks have printed.
    pub(super) text: String,
    pub(super) pace: Pace,
}

impl<'p> Machine<'p> {
    pub(super) fn new(
        program: &'p Program,
        [grid, launched]: [[u32; 3]; 2],
        (memory, workspaces): (Vec<Range>, &[(Op, Range)]),
        options: &RunOptions<'_>,
        crowd: Option<Crowd>,
    ) -> Machine<'p> {
        Machine {
            program,
            func: &program.func,
            grid,
            workers: launched.iter().product(),
            workspaces: workspaces.to_vec(),
            block: [0; 3],
            meeting: Meeting::default(),
            checked: options.checked,
            races: Races::new(&program.func, program.per_thread, &memory, grid, options),
            values: Vec::new(),
            roles: Vec::new(),
            allocations: Vec::new(),
            registers: Vec::new(),
            rings: Vec::new(),
            barriers: [NamedBarrier::default(); 16],
            launch_memory: memory.len(),
            memory,
            scratch: Memory::default(),
            text: String::new(),
            pace: Pace::new(options.limit, crowd),
        }
    }

    /// Runs one block.
    ///
    /// # Safety
    /// The launch's memory is valid for reads and writes, and not used otherwise meanwhile.
    pub(super) unsafe fn run(&mut self, block: [u32; 3], args: &[Arg]) -> Ran<()> {
        self.block = block;
        self.pace.block();
        if let Some(races) = &mut self.races {
            races.start_block(block);
        }
        self.memory.truncate(self.launch_memory);
        self.values.clear();
        self.values.resize_with(self.func.values.len(), || None);
        self.allocations.clear();
        self.registers.clear();
        self.rings.clear();
        self.barriers = [NamedBarrier::default(); 16];
        for (&value, arg) in self.func.args().iter().zip(args) {
            let bits = match *arg {
                Arg::Pointer { base, .. } => base as u64,
                Arg::Scalar(bits) => bits,
            };
            let lanes = self.splat(bits, scalar_bytes(self.func.ty(value)));
            self.values[value.index()] = Some(Data::Lanes(lanes));
        }
        let all = Mask::range(0, self.program.threads);
        let body = Frame::body(self.func.body, all);
        self.roles.clear();
        self.roles.push(Role { op: None, frames: vec![body], alive: all, copies: Copies::default(), wait: None });
        // SAFETY: passed on.
        unsafe { self.drive(0..1) }
    }

    /// Runs roles in turn until all have ended.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn drive(&mut self, roles: std::ops::Range<usize>) -> Ran<()> {
        loop {
            let (mut moved, mut all) = (false, true);
            for role in roles.clone() {
                // SAFETY: passed on.
                moved |= unsafe { self.advance(role)? };
                all &= self.roles[role].frames.is_empty();
            }
            if all {
                return Ok(());
            }
            if !moved {
                return Err(self.deadlock(roles));
            }
        }
    }

    /// Runs a role until it ends or waits; true if it did anything.
    unsafe fn advance(&mut self, role: usize) -> Ran<bool> {
        let mut moved = false;
        loop {
            let Some(frame) = self.roles[role].frames.last_mut() else { return Ok(moved) };
            let ops = &self.func.blocks[frame.block].ops;
            if frame.active.is_empty() || frame.at >= ops.len() {
                self.leave(role)?;
                moved = true;
                continue;
            }
            let (op, active, depth) = (ops[frame.at], frame.active, self.roles[role].frames.len());
            self.roles[role].frames[depth - 1].at += 1;
            // SAFETY: passed on.
            if unsafe { self.step(role, op, &active)? } == Step::Waits {
                self.roles[role].frames[depth - 1].at -= 1;
                return Ok(moved);
            }
            self.roles[role].wait = None;
            moved = true;
        }
    }

    unsafe fn step(&mut self, role: usize, op: Op, active: &Mask) -> Ran<Step> {
        let data = &self.func.ops[op];
        // SAFETY: passed on.
        unsafe {
            match &data.kind {
                OpKind::Schedule(kind) => {
                    if !self.control(role, op, kind, active)? {
                        self.schedule(op, kind, active)?;
                    }
                    Ok(Step::Done)
                }
                OpKind::Tile(kind) => self.tile(role, op, kind, active),
                OpKind::Graph(_) => Err(fault("cpu-level", data.span, "a whole operand has no place here")),
            }
        }
    }

    // Values

    pub(super) fn splat(&self, bits: u64, size: usize) -> Buffer {
        Buffer::splat(bits, size, self.program.threads)
    }

    pub(super) fn data(&self, value: Value, span: Span) -> Ran<&Data> {
        self.values[value.index()].as_ref().ok_or_else(|| fault("cpu-value", span, "a value is used that no thread has computed"))
    }

    pub(super) fn set(&mut self, value: Value, data: Data) {
        self.values[value.index()] = Some(data);
    }

    /// Gives a value to some threads; others keep theirs.
    pub(super) fn assign(&mut self, value: Value, data: &Data, threads: &Mask) {
        let size = scalar_bytes(self.func.ty(value));
        match (&mut self.values[value.index()], data) {
            (Some(Data::Lanes(to)), Data::Lanes(from)) => to.merge(from, size, threads),
            (Some(Data::View(to)), Data::View(from)) if to.len() == from.len() => {
                let mut parts: Vec<Buffer> = to.to_vec();
                parts.iter_mut().zip(from.iter()).for_each(|(to, from)| to.merge(from, 8, threads));
                *to = parts.into();
            }
            (slot, data) => *slot = Some(data.clone()),
        }
    }

    /// One element a thread.
    pub(super) fn lanes(&self, value: Value, span: Span) -> Ran<&Buffer> {
        match self.data(value, span)? {
            Data::Lanes(lanes) => Ok(lanes),
            _ => Err(fault("cpu-type", span, "a number or pointer of each thread was expected")),
        }
    }

    pub(super) fn whole(&self, value: Value, span: Span) -> Ran<&Buffer> {
        match self.data(value, span)? {
            Data::Tile(tile) => Ok(tile),
            _ => Err(fault("cpu-type", span, "a tile was expected")),
        }
    }

    /// The one number that all these threads have.
    pub(super) fn uniform(&self, lanes: &Buffer, size: usize, active: &Mask, value: Value, span: Span) -> Ran<u64> {
        let mut threads = active.iter();
        let Some(first) = threads.next() else { return Ok(0) };
        let bits = lanes.get(first, size);
        match threads.find(|&thread| lanes.get(thread, size) != bits) {
            None => Ok(bits),
            Some(other) => {
                let name = self.func.values[value].name.as_deref().map_or("an operand".to_string(), |name| format!("`%{name}`"));
                let message = format!("threads {first} and {other} disagree about {name}, which they need to have in common");
                Err(fault("cpu-uniform", span, &message))
            }
        }
    }

    /// An operand of an operation that is done once for all these threads.
    pub(super) fn feed(&self, value: Value, active: &Mask, span: Span) -> Ran<Feed> {
        Ok(match self.data(value, span)? {
            Data::Lanes(lanes) => Feed::Bits(self.uniform(lanes, scalar_bytes(self.func.ty(value)), active, value, span)?),
            Data::Tile(tile) => Feed::Tile(tile.clone()),
            Data::View(parts) => {
                Feed::View(parts.iter().map(|part| self.uniform(part, 8, active, value, span)).collect::<Ran<_>>()?)
            }
            _ => return Err(fault("cpu-type", span, "a number, a tile or a view was expected")),
        })
    }

    /// Hands an operation to the Schedule executor.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn delegate(&mut self, op: Op, feeds: impl IntoIterator<Item = Feed>) -> Ran<Vec<Buffer>> {
        let data = &self.func.ops[op];
        let Some(micro) = self.program.micro(op) else {
            let message = format!("`{}` has no meaning on this device", data.row().mnemonic);
            return Err(fault("cpu-op", data.span, &message));
        };
        // SAFETY: passed on; the block's own memory lives as long as the block.
        unsafe { micro.run(feeds, &self.memory, &mut self.scratch, &mut self.text) }
    }

    /// Binds results, one element a thread or whole as their types say. `lanes`: the buffers have an element a thread.
    pub(super) fn bind(&mut self, op: Op, outputs: Vec<Buffer>, lanes: bool) {
        let mut outputs = outputs.into_iter();
        for &result in &self.func.ops[op].results {
            let ty = self.func.ty(result);
            let data = match ty {
                Type::Token => Some(Data::Token),
                ty if ty.is_scalar() && lanes => outputs.next().map(Data::Lanes),
                ty if ty.is_scalar() => {
                    let size = scalar_bytes(ty);
                    outputs.next().map(|output| Data::Lanes(self.splat(output.get(0, size), size)))
                }
                _ => outputs.next().map(Data::Tile),
            };
            self.values[result.index()] = data;
        }
    }
}

/// A mistake of the program.
pub(super) fn fault(id: &'static str, span: Span, message: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(id, span, message))
}
