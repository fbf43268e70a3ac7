//! Running a plan: one [`Machine`] a thread, one block after another.

mod atomic;
mod group;
mod marks;
mod memory;
mod mma;
pub(crate) use mma::operand_type;
mod sparse;
pub(crate) use sparse::misplaced;
mod print;
mod reduce;
mod region;
mod tape;
mod view;

use tessera_ir::attrs::Assumption;
use tessera_ir::{Diagnostic, Span};
use tessera_types::TimeLimit;

use crate::build::Plan;
use crate::check::Check;
use crate::lanes::{self, Float, FloatOp, Int, IntOp, Isa, LaneOp, Strips};
use crate::pace::{Crowd, Pace, around};
use crate::plan::{BoxCopy, Inst, Place, Reg, ScalarCheck};

pub(crate) use memory::Bytes;

/// A stretch of memory that may be touched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Range {
    /// Whether these bytes lie in it.
    pub(crate) fn holds(self, address: u64, bytes: usize) -> bool {
        self.start <= address && address.saturating_add(bytes as u64) <= self.end
    }
}

/// What all blocks of a launch share.
pub(crate) struct Launch<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) grid: [u32; 3],
    pub(crate) isa: Isa,
    /// Arguments by position (numbers are empty ranges), then other memory.
    pub(crate) ranges: &'a [Range],
    /// Registers at the start of a block.
    pub(crate) registers: &'a [u64],
    pub(crate) limit: TimeLimit,
    pub(crate) crowd: Option<Crowd>,
}

/// A mistake, boxed: the good path is the common one.
pub(crate) type Ran<T> = Result<T, Box<Diagnostic>>;

/// How a list of instructions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Continue,
    Break,
    Return,
}

/// Memory of a thread, kept between launches.
#[derive(Default)]
pub(crate) struct Memory {
    registers: Vec<u64>,
    arena: Bytes,
    scratch: Bytes,
    /// For products, transposes and regions.
    temporary: [Bytes; 6],
}

/// Runs blocks.
pub(crate) struct Machine<'a> {
    launch: &'a Launch<'a>,
    memory: &'a mut Memory,
    block: [u32; 3],
    /// What the block printed.
    pub(crate) text: String,
    /// Memory that the block allocated.
    local: Vec<Range>,
    check: Option<&'a mut Check>,
    pace: Pace,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(launch: &'a Launch<'a>, memory: &'a mut Memory, check: Option<&'a mut Check>) -> Self {
        memory.registers.clear();
        memory.registers.extend_from_slice(launch.registers);
        memory.arena.reserve(launch.plan.arena_bytes);
        memory.scratch.reserve(launch.plan.scratch_bytes);
        let pace = Pace::new(launch.limit, launch.crowd);
        Machine { launch, memory, block: [0; 3], text: String::new(), local: Vec::new(), check, pace }
    }

    /// Runs one block.
    ///
    /// # Safety
    /// The launch's ranges are valid memory for reads and writes, not used otherwise while it runs.
    pub(crate) unsafe fn run(&mut self, block: [u32; 3]) -> Ran<()> {
        self.block = block;
        self.pace.block();
        self.local.clear();
        self.text.clear();
        let launch = self.launch;
        if let Some(check) = self.check.as_mut() {
            check.start_block(block, launch.registers.len());
        }
        // SAFETY: passed on.
        unsafe { self.list(&launch.plan.body) }.map(|_| ())
    }

    fn get(&self, reg: Reg) -> u64 {
        self.memory.registers[reg.0 as usize]
    }

    fn set(&mut self, reg: Reg, bits: u64) {
        self.memory.registers[reg.0 as usize] = bits;
    }

    fn place(&self, place: Place) -> *mut u8 {
        match place {
            Place::Buffer(index) => self.memory.arena.at(self.launch.plan.buffers[index as usize].offset),
            // Pool entries are only read.
            Place::Pool(index) => self.launch.plan.pool[index as usize].as_ptr().cast::<u8>().cast_mut(),
        }
    }

    unsafe fn list(&mut self, list: &'a [Inst]) -> Ran<Flow> {
        for inst in list {
            // SAFETY: passed on.
            let flow = unsafe { self.step(inst)? };
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    unsafe fn step(&mut self, inst: &'a Inst) -> Ran<Flow> {
        match inst {
            Inst::Scalar { op, dst, src, span } => {
                let [a, b, c] = [self.get(src[0]), self.get(src[1]), self.get(src[2])];
                let bits = match scalar(*op, a, b) {
                    Some(bits) => bits,
                    None => {
                        let mut bits = 0_u64;
                        let strips = Strips {
                            dst: (&raw mut bits).cast(),
                            src: [(&raw const a).cast(), (&raw const b).cast(), (&raw const c).cast()],
                            len: 1,
                        };
                        // SAFETY: registers hold a lane in their low bytes.
                        unsafe { lanes::apply(self.launch.isa, *op, strips) };
                        bits
                    }
                };
                self.set(*dst, bits);
                if let Some(check) = self.check.as_mut() {
                    check.scalar(*op, *dst, src, [a, b, c], *span);
                }
            }
            Inst::BlockId { dst, axis } => self.set(*dst, u64::from(self.block[*axis as usize])),
            Inst::NumBlocks { dst, axis } => self.set(*dst, u64::from(self.launch.grid[*axis as usize])),
            Inst::SignExtend { dst, src, bytes } => {
                let bits = sign_extend(self.get(*src), *bytes);
                self.set(*dst, bits as u64);
                self.move_check(*dst, *src);
            }
            Inst::Move { dst, src } => {
                let bits = self.get(*src);
                self.set(*dst, bits);
                self.move_check(*dst, *src);
            }
            Inst::CeilDiv { dst, size, step, bytes } => {
                let size_value = self.get(*size) as i64;
                let count = size_value.div_euclid(*step) + i64::from(size_value.rem_euclid(*step) != 0);
                self.set(*dst, mask(count as u64, *bytes));
                self.move_check(*dst, *size);
            }
            Inst::Read { dst, place, bytes } => {
                let mut bits = [0; 8];
                // SAFETY: the place holds at least one element of so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(self.place(*place), bits.as_mut_ptr(), *bytes as usize) };
                self.set(*dst, u64::from_le_bytes(bits));
                if let Some(check) = self.check.as_mut() {
                    check.read(*dst, *place);
                }
            }
            // SAFETY: passed on.
            Inst::Group(group) => unsafe { self.group(group)? },
            Inst::Copy { dst, src, bytes } => {
                // SAFETY: both places hold so many bytes.
                unsafe { std::ptr::copy(self.place(*src), self.place(*dst), *bytes) };
                if let Some(check) = self.check.as_mut() {
                    check.copy(*dst, *src);
                }
            }
            Inst::Box(copy) => self.box_copy(copy),
            Inst::Pack { dst, src, elements, dtype, unpack } => self.pack(*dst, *src, *elements, *dtype, *unpack),
            Inst::Mma(mma) => self.mma(mma),
            Inst::SparseMma(sparse) => self.sparse_mma(sparse)?,
            // SAFETY: passed on.
            Inst::Product(product) => unsafe { self.product(product)? },
            Inst::ReduceTree { region, extents, src, dst } => self.reduce_tree(region, *extents, src, dst)?,
            Inst::Scan { region, extents, reverse, src, dst } => self.scan(region, *extents, *reverse, src, dst)?,
            // SAFETY: passed on.
            Inst::Atomic { .. } => unsafe { self.atomic(inst)? },
            Inst::AtomicView { access, value, mode, ordered } => {
                // SAFETY: passed on.
                unsafe { self.atomic_view(access, *value, *mode, *ordered)? };
            }
            Inst::Fence => {
                // Stores past the cache are ordered with nothing else.
                crate::kernels::copy::fence();
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                if let Some(check) = self.check.as_mut() {
                    check.synchronised();
                }
            }
            Inst::Alloca { dst, place, bytes } => {
                let start = self.place(*place) as u64;
                self.local.push(Range { start, end: start + *bytes as u64 });
                self.set(*dst, start);
            }
            Inst::Print { pieces } => self.print(pieces),
            Inst::CheckScalar(check, span) => self.scalar_check(check, *span)?,
            // SAFETY: passed on.
            Inst::For { .. } => return unsafe { self.for_loop(inst) },
            Inst::Loop { body, span, .. } => {
                let mut round = 0;
                loop {
                    // SAFETY: passed on.
                    match unsafe { self.round(body, *span, &mut round)? } {
                        Flow::Break => break,
                        Flow::Return => return Ok(Flow::Return),
                        Flow::Next | Flow::Continue => {}
                    }
                }
            }
            Inst::If { condition, then, other, span, .. } => {
                if let Some(check) = self.check.as_ref() {
                    check.branch(*condition, *span)?;
                }
                // SAFETY: passed on.
                return unsafe { if self.get(*condition) & 1 != 0 { self.list(then) } else { self.list(other) } };
            }
            Inst::Continue => return Ok(Flow::Continue),
            Inst::Break => return Ok(Flow::Break),
            Inst::Return => return Ok(Flow::Return),
        }
        Ok(Flow::Next)
    }

    fn move_check(&mut self, dst: Reg, src: Reg) {
        if let Some(check) = self.check.as_mut() {
            check.move_register(dst, src);
        }
    }

    /// One round of a loop; `round` counts them.
    #[inline(always)]
    unsafe fn round(&mut self, body: &'a [Inst], span: Span, round: &mut u64) -> Ran<Flow> {
        *round += 1;
        if let Some(given) = self.pace.round() {
            return Err(self.pace.never_ends(given, span, *round));
        }
        // SAFETY: passed on.
        unsafe { self.list(body) }.map_err(|stopped| around(stopped, span, *round))
    }

    unsafe fn for_loop(&mut self, inst: &'a Inst) -> Ran<Flow> {
        let Inst::For { counter, lower, upper, step, bytes, unsigned, body, span, .. } = inst else { return Ok(Flow::Next) };
        if let Some(check) = self.check.as_ref() {
            for reg in [lower, upper, step] {
                check.branch(*reg, *span)?;
            }
        }
        let wide = |bits: u64| if *unsigned { i128::from(mask(bits, *bytes)) } else { i128::from(sign_extend(bits, *bytes)) };
        let (mut value, upper, step) = (wide(self.get(*lower)), wide(self.get(*upper)), wide(self.get(*step)));
        if step <= 0 {
            return Err(Box::new(
                Diagnostic::error("cpu-step", *span, format!("the loop's step is {step}"))
                    .help("a step must be greater than zero"),
            ));
        }
        if let Some(check) = self.check.as_mut() {
            check.clean(*counter);
        }
        let mut round = 0;
        while value < upper {
            self.set(*counter, mask(value as u64, *bytes));
            // SAFETY: passed on.
            match unsafe { self.round(body, *span, &mut round)? } {
                Flow::Break => break,
                Flow::Return => return Ok(Flow::Return),
                Flow::Next | Flow::Continue => {}
            }
            value += step;
        }
        Ok(Flow::Next)
    }

    fn scalar_check(&mut self, check: &ScalarCheck, span: Span) -> Ran<()> {
        match check {
            ScalarCheck::Assert(reg, message) => {
                if let Some(check) = self.check.as_ref() {
                    check.branch(*reg, span)?;
                }
                if self.get(*reg) & 1 == 0 {
                    return Err(assertion(message, span));
                }
            }
            ScalarCheck::Assume(reg, predicate, bytes) => {
                if self.check.is_some() && !holds(predicate, self.get(*reg), *bytes) {
                    return Err(assumption(predicate, self.get(*reg), *bytes, span));
                }
            }
            ScalarCheck::ShiftCount(reg, bits, bytes) => {
                let count = mask(self.get(*reg), *bytes);
                if self.check.is_some() && count >= u64::from(*bits) {
                    return Err(shift(count, *bits, span));
                }
            }
            ScalarCheck::Part { index, axis, parts } => {
                let Some(check) = self.check.as_ref() else { return Ok(()) };
                check.address(*index, span)?;
                let number = self.get(*index) as i64;
                if !(0..*parts as i64).contains(&number) {
                    let message = format!("part {number} of axis {axis} lies outside the tile, which has {parts} there");
                    let help = "the index counts parts of the tile, not elements";
                    return Err(Box::new(Diagnostic::error("cpu-tile-part", span, message).help(help)));
                }
            }
        }
        Ok(())
    }

    fn box_copy(&mut self, copy: &BoxCopy) {
        let (known, register) = copy.dst_first;
        let first = known + register.map_or(0, |reg| self.get(reg) as usize);
        let (src, dst) = (self.place(copy.src), self.place(copy.dst));
        let shadows = self.check.as_mut().map(|check| check.shadows(copy.src, copy.dst));
        let limit = match copy.dst {
            Place::Buffer(index) => self.launch.plan.buffers[index as usize].elements,
            Place::Pool(_) => 0,
        };
        let bytes = copy.bytes as usize;
        let rank = copy.extents.len();
        let row = copy.extents.last().copied().unwrap_or(1);
        let rows: usize = copy.extents[..rank.saturating_sub(1)].iter().product();
        for index in 0..rows {
            let (mut from, mut to, mut rest) = (0_isize, first as isize, index);
            for axis in (0..rank.saturating_sub(1)).rev() {
                let at = (rest % copy.extents[axis]) as isize;
                rest /= copy.extents[axis];
                from += at * copy.src_strides[axis];
                to += at * copy.dst_strides[axis];
            }
            // An index outside the tile is undefined: it writes nothing here.
            if to < 0 || to as usize + row > limit {
                continue;
            }
            // SAFETY: the row lies inside both tiles; rows are contiguous in both.
            unsafe {
                std::ptr::copy_nonoverlapping(src.add(from as usize * bytes), dst.add(to as usize * bytes), row * bytes);
                if let Some((src, dst)) = shadows {
                    std::ptr::copy_nonoverlapping(src.add(from as usize), dst.add(to as usize), row);
                }
            }
        }
    }

    fn pack(&mut self, dst: Place, src: Place, elements: usize, dtype: tessera_types::DType, unpack: bool) {
        use tessera_types::{DType, element, packed::Packing};
        let (to, from) = (self.place(dst), self.place(src));
        // SAFETY: the places hold the elements and their bytes, whose numbers the types fix.
        unsafe {
            match Packing::of(dtype) {
                None => std::ptr::copy_nonoverlapping(from, to, elements * dtype.unpacked_bytes()),
                Some(packing) if unpack => {
                    let bytes = std::slice::from_raw_parts(from, packing.bytes(elements));
                    for i in 0..elements {
                        let code = packing.get(bytes, i);
                        *to.add(i) = if dtype == DType::I4 { element::i4_to_i8(code) as u8 } else { code };
                    }
                }
                Some(packing) => {
                    let codes: Vec<u8> = std::slice::from_raw_parts(from, elements)
                        .iter()
                        .map(|&code| if dtype == DType::I4 { code & 15 } else { code })
                        .collect();
                    packing.pack(&codes, std::slice::from_raw_parts_mut(to, packing.bytes(elements)));
                }
            }
        }
        if let Some(check) = self.check.as_mut() {
            check.spread(dst, &[src]);
        }
    }
}

/// The operations that index arithmetic is made of, without a call.
#[inline]
fn scalar(op: LaneOp, a: u64, b: u64) -> Option<u64> {
    Some(match op {
        LaneOp::Int(IntOp::Add, Int::B32, _) => u64::from((a as u32).wrapping_add(b as u32)),
        LaneOp::Int(IntOp::Sub, Int::B32, _) => u64::from((a as u32).wrapping_sub(b as u32)),
        LaneOp::Int(IntOp::Mul, Int::B32, _) => u64::from((a as u32).wrapping_mul(b as u32)),
        LaneOp::Int(IntOp::Add, Int::B64, _) => a.wrapping_add(b),
        LaneOp::Int(IntOp::Mul, Int::B64, _) => a.wrapping_mul(b),
        LaneOp::Float(FloatOp::Add, Float::F32) => u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()),
        LaneOp::Float(FloatOp::Mul, Float::F32) => u64::from((f32::from_bits(a as u32) * f32::from_bits(b as u32)).to_bits()),
        _ => return None,
    })
}

fn sign_extend(bits: u64, bytes: u8) -> i64 {
    let shift = 64 - 8 * u32::from(bytes);
    ((bits << shift) as i64) >> shift
}

fn mask(bits: u64, bytes: u8) -> u64 {
    bits & (u64::MAX >> (64 - 8 * u32::from(bytes)))
}

fn holds(predicate: &Assumption, bits: u64, bytes: u8) -> bool {
    match predicate {
        Assumption::DivisibleBy(divisor) => *divisor == 0 || mask(bits, bytes).is_multiple_of(*divisor),
        Assumption::Bounded { least, greatest } => {
            let value = sign_extend(bits, bytes);
            least.is_none_or(|least| value >= least) && greatest.is_none_or(|greatest| value <= greatest)
        }
    }
}

fn assumption(predicate: &Assumption, bits: u64, bytes: u8, span: Span) -> Box<Diagnostic> {
    let message = match predicate {
        Assumption::DivisibleBy(divisor) => {
            format!("{} is not divisible by {divisor}, as is assumed here", mask(bits, bytes))
        }
        Assumption::Bounded { least, greatest } => {
            let show = |bound: &Option<i64>| bound.map_or("any".to_string(), |bound| bound.to_string());
            format!("{} is not within {}..{}, as is assumed here", sign_extend(bits, bytes), show(least), show(greatest))
        }
    };
    Box::new(Diagnostic::error("cpu-assumption", span, message))
}

fn assertion(message: &str, span: Span) -> Box<Diagnostic> {
    let shown = if message.is_empty() { "assertion failed".to_string() } else { format!("assertion failed: {message}") };
    Box::new(Diagnostic::error("cpu-assert", span, shown))
}

fn shift(count: u64, bits: u8, span: Span) -> Box<Diagnostic> {
    let message = format!("a shift by {count} of a number of {bits} bits");
    Box::new(Diagnostic::error("cpu-shift", span, message).help("a shift count must be less than the width"))
}
