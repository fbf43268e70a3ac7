//! From a function to its plan.
//!
//! Operations are visited once, in order. Scalars become instructions at once; tiles become expressions ([`expr`]) that are
//! evaluated when something needs their elements: a store, a reduction, a product, a loop's carried value. What is then reached
//! becomes one group. Two rules keep the meaning:
//!
//! - a load is evaluated no later than the first write that may touch the same memory ([`order`] checks the finished plan for that);
//! - an expression that a region uses is evaluated before the region, unless it is free to repeat (constants, counters, repeated
//!   elements).

mod control;
mod elementwise;
mod expr;
mod memory;
mod order;
mod product;
mod region;
mod tape;
mod tiles;
mod visit;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{ConstData, Diagnostic, Elem, EntityId, Func, Level, Module, Op, Span, TileType, Type, Value};
use tessera_types::DType;

use crate::lanes::LaneOp;
use crate::plan::{Buffer, Inst, Place, Reg};
use control::LoopFrame;
use expr::{Expr, ExprId};
pub(crate) use order::{Ordered, may_wait};
pub(crate) use tape::GATHERED;

/// A mistake in the function, boxed as the good path is the common one.
pub(crate) type Built<T> = Result<T, Box<Diagnostic>>;

/// What a plan was built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildOptions {
    /// Fuse chains and recognise products.
    pub(crate) fuse: bool,
    /// Pointers from different arguments never touch the same bytes.
    pub(crate) distinct: bool,
}

/// A finished plan.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) body: Vec<Inst>,
    /// Registers as they are when a block starts.
    pub(crate) registers: Vec<u64>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) arena_bytes: usize,
    pub(crate) scratch_bytes: usize,
    /// Compile-time tiles, as bytes in 64-bit words.
    pub(crate) pool: Vec<Box<[u64]>>,
    /// Registers of the function's arguments.
    pub(crate) arguments: Vec<Option<Reg>>,
    /// Module-level constants: the register that takes the address, the pool entry and its bytes.
    pub(crate) globals: Vec<(Reg, u32, usize)>,
    pub(crate) notes: Vec<String>,
    /// Arguments written through, and whether something else may be.
    pub(crate) written: Vec<u16>,
    pub(crate) written_elsewhere: bool,
}

/// What a value of the function is in the plan.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Reg(Reg),
    /// A tile; `wide` when its lanes are `f32` numbers of a narrower format.
    Tile {
        expr: ExprId,
        wide: bool,
    },
    /// Base, sizes, strides.
    View(SmallVec<[Reg; 9]>),
    Token,
}

/// A lane operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Reg(Reg),
    Expr(ExprId),
}

pub(crate) struct Builder<'m> {
    module: &'m Module,
    func: &'m Func,
    options: BuildOptions,
    registers: Vec<u64>,
    constants: FxHashMap<u64, Reg>,
    buffers: Vec<Buffer>,
    pool: Vec<Box<[u64]>>,
    exprs: Vec<Expr>,
    values: Vec<Option<Val>>,
    origins: Vec<Option<u16>>,
    next_origin: u16,
    /// How many operands of linked operations each value is.
    counts: Vec<u32>,
    code: Vec<Vec<Inst>>,
    /// Numbers the instructions emitted so far: lifetimes are measured in it.
    position: u32,
    loops: Vec<(u32, u32)>,
    frames: Vec<LoopFrame>,
    /// Identifies the region being visited.
    region: u32,
    regions: u32,
    /// Loads not evaluated yet.
    loads: Vec<ExprId>,
    scratch_bytes: usize,
    notes: Vec<String>,
    globals: Vec<(Reg, u32, usize)>,
    written: Vec<u16>,
    written_elsewhere: bool,
    /// Visiting a region that runs over strips.
    strips: bool,
    /// The operation being visited, and where it comes from.
    op: Op,
    span: Span,
}

/// Builds the plan of a function.
pub(crate) fn build(module: &Module, func: &Func, options: BuildOptions) -> Built<Plan> {
    if func.level != Level::Schedule {
        let message = format!("`@{}` is not a block program: it has to be tiled before it can run", func.name);
        return Err(Box::new(Diagnostic::error("cpu-level", func.span, message)));
    }
    let mut counts = vec![0; func.values.len()];
    for op in func.linked_ops() {
        for &operand in &func.ops[op].operands {
            counts[operand.index()] += 1;
        }
    }
    let mut builder = Builder {
        module,
        func,
        options,
        registers: Vec::new(),
        constants: FxHashMap::default(),
        buffers: Vec::new(),
        pool: Vec::new(),
        exprs: Vec::new(),
        values: vec![None; func.values.len()],
        origins: vec![None; func.values.len()],
        next_origin: func.args().len() as u16,
        counts,
        code: vec![Vec::new()],
        position: 0,
        loops: Vec::new(),
        frames: Vec::new(),
        region: 0,
        regions: 0,
        loads: Vec::new(),
        scratch_bytes: 0,
        notes: Vec::new(),
        globals: Vec::new(),
        written: Vec::new(),
        written_elsewhere: false,
        strips: false,
        op: Op::new(0),
        span: func.span,
    };
    // Operands that an operation lacks name register 0.
    builder.constant(0);
    let arguments = builder.arguments()?;
    builder.block(func.body)?;
    let plan = builder.finish(arguments);
    order::verify(func, &plan.body, options.distinct)?;
    Ok(plan)
}

impl Builder<'_> {
    fn arguments(&mut self) -> Built<Vec<Option<Reg>>> {
        let mut registers = Vec::new();
        for (position, &value) in self.func.args().iter().enumerate() {
            let Type::Tile(TileType { shape, elem }) = self.func.ty(value) else {
                return Err(self.refuse("cpu-argument", "an argument of a block program must be a number or a pointer"));
            };
            if !shape.is_empty() {
                return Err(self.refuse("cpu-argument", "an argument of a block program must be a number or a pointer"));
            }
            if matches!(elem, Elem::Ptr(_)) {
                self.origins[value.index()] = Some(position as u16);
            }
            let reg = self.register();
            self.values[value.index()] = Some(Val::Reg(reg));
            registers.push(Some(reg));
        }
        Ok(registers)
    }

    fn finish(mut self, arguments: Vec<Option<Reg>>) -> Plan {
        let arena_bytes = self.place_buffers();
        let body = self.code.pop().unwrap_or_default();
        Plan {
            body,
            registers: self.registers,
            buffers: self.buffers,
            arena_bytes,
            scratch_bytes: self.scratch_bytes,
            pool: self.pool,
            arguments,
            globals: self.globals,
            notes: self.notes,
            written: self.written,
            written_elsewhere: self.written_elsewhere,
        }
    }

    /// Chooses where each buffer stands: the lowest place free during its whole lifetime.
    fn place_buffers(&mut self) -> usize {
        let mut loops = self.loops.clone();
        loops.sort_by_key(|&(start, end)| end - start);
        for &(start, end) in &loops {
            for buffer in &mut self.buffers {
                if buffer.first < start && buffer.last >= start && buffer.last < end {
                    buffer.last = end;
                }
            }
        }
        let mut order: Vec<usize> = (0..self.buffers.len()).collect();
        order.sort_by_key(|&i| (self.buffers[i].first, i));
        let mut live: Vec<usize> = Vec::new();
        let mut total = 0;
        for i in order {
            let first = self.buffers[i].first;
            live.retain(|&other| self.buffers[other].last >= first);
            let mut taken: Vec<(usize, usize)> =
                live.iter().map(|&other| (self.buffers[other].offset, padded(self.buffers[other].bytes))).collect();
            taken.sort_unstable();
            let size = padded(self.buffers[i].bytes);
            let mut offset = 0;
            for (start, bytes) in taken {
                if offset + size <= start {
                    break;
                }
                offset = offset.max(start + bytes);
            }
            self.buffers[i].offset = offset;
            total = total.max(offset + size);
            live.push(i);
        }
        total
    }

    // Small parts

    fn refuse(&self, id: &'static str, message: impl Into<String>) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(id, self.span, message))
    }

    fn register(&mut self) -> Reg {
        self.registers.push(0);
        Reg(self.registers.len() as u32 - 1)
    }

    /// A register that always holds these bits.
    fn constant(&mut self, bits: u64) -> Reg {
        if let Some(&reg) = self.constants.get(&bits) {
            return reg;
        }
        let reg = self.register();
        self.registers[reg.0 as usize] = bits;
        self.constants.insert(bits, reg);
        reg
    }

    /// The bits of a register that never changes.
    fn constant_bits(&self, reg: Reg) -> Option<u64> {
        let bits = self.registers[reg.0 as usize];
        (self.constants.get(&bits) == Some(&reg)).then_some(bits)
    }

    fn emit(&mut self, inst: Inst) {
        self.position += 1;
        if let Some(code) = self.code.last_mut() {
            code.push(inst);
        }
    }

    fn buffer(&mut self, elements: usize, bytes: usize) -> Place {
        let first = self.position;
        self.buffers.push(Buffer { elements, bytes: elements * bytes, offset: 0, first, last: first });
        Place::Buffer(self.buffers.len() as u32 - 1)
    }

    /// Notes that the next instruction touches the place.
    fn touch(&mut self, place: Place) {
        if let Place::Buffer(index) = place {
            let buffer = &mut self.buffers[index as usize];
            buffer.last = buffer.last.max(self.position);
            buffer.first = buffer.first.min(self.position);
        }
    }

    fn val(&self, value: Value) -> Built<Val> {
        self.values[value.index()].clone().ok_or_else(|| self.refuse("cpu-value", "a value is used before it is defined"))
    }

    fn bind(&mut self, value: Value, val: Val) {
        if let Val::Tile { expr, .. } = val {
            self.exprs[expr.index()].uses += self.counts[value.index()];
        }
        self.values[value.index()] = Some(val);
    }

    fn reg(&self, value: Value) -> Built<Reg> {
        match self.val(value)? {
            Val::Reg(reg) => Ok(reg),
            _ => Err(self.refuse("cpu-type", "a scalar was expected")),
        }
    }

    fn view(&self, value: Value) -> Built<SmallVec<[Reg; 9]>> {
        match self.val(value)? {
            Val::View(registers) => Ok(registers),
            _ => Err(self.refuse("cpu-type", "a view was expected")),
        }
    }

    fn tile_type(&self, value: Value) -> Built<TileType> {
        self.func.ty(value).as_tile().cloned().ok_or_else(|| self.refuse("cpu-type", "a tile was expected"))
    }

    fn origin(&self, value: Value) -> Option<u16> {
        self.origins[value.index()]
    }

    /// A sign-extended copy of an integer scalar.
    fn extended(&mut self, value: Value) -> Built<Reg> {
        let src = self.reg(value)?;
        let bytes = element_bytes(self.tile_type(value)?.elem);
        Ok(self.extend(src, bytes))
    }

    fn extend(&mut self, src: Reg, bytes: u8) -> Reg {
        if bytes == 8 {
            return src;
        }
        if let Some(bits) = self.constant_bits(src) {
            let shift = 64 - 8 * u32::from(bytes);
            return self.constant((((bits << shift) as i64) >> shift) as u64);
        }
        let dst = self.register();
        self.emit(Inst::SignExtend { dst, src, bytes });
        dst
    }

    /// The result of an operation on lanes: at once where all are scalars, else an expression.
    fn lane(&mut self, op: LaneOp, src: &[Lane], bytes: u8) -> Lane {
        let mut exprs: SmallVec<[ExprId; 3]> = SmallVec::new();
        if src.iter().all(|lane| matches!(lane, Lane::Reg(_))) {
            let mut registers = [Reg(0); 3];
            for (to, lane) in registers.iter_mut().zip(src) {
                if let Lane::Reg(reg) = lane {
                    *to = *reg;
                }
            }
            let dst = self.register();
            let span = self.span;
            self.emit(Inst::Scalar { op, dst, src: registers, span });
            return Lane::Reg(dst);
        }
        let len = src
            .iter()
            .find_map(|lane| match lane {
                Lane::Expr(expr) => Some(self.exprs[expr.index()].len),
                Lane::Reg(_) => None,
            })
            .unwrap_or(1);
        let sizes = source_bytes(op);
        for (position, &lane) in src.iter().enumerate() {
            exprs.push(match lane {
                Lane::Expr(expr) => expr,
                Lane::Reg(reg) => self.uniform(reg, len, sizes[position]),
            });
        }
        Lane::Expr(self.operation(op, exprs, len, bytes))
    }

    /// A compile-time tile.
    fn visit_constant(&mut self, result: Value, value: &tessera_ir::Const) -> Built<()> {
        let ty = self.tile_type(result)?;
        let (elem, bytes) = (ty.elem, element_bytes(ty.elem));
        let canonical = |bits: u64| match elem {
            Elem::Num(DType::I4) => u64::from(tessera_types::element::i4_to_i8(bits as u8) as u8),
            _ => bits,
        };
        match &value.data {
            ConstData::Splat(bits) => {
                let reg = self.constant(canonical(*bits));
                if ty.shape.is_empty() {
                    self.bind(result, Val::Reg(reg));
                } else {
                    let expr = self.uniform(reg, ty.len(), bytes);
                    self.bind(result, Val::Tile { expr, wide: false });
                }
            }
            ConstData::Dense(items) => {
                if items.len() != ty.len() {
                    return Err(self.refuse("cpu-constant", "a constant has another number of elements than its type"));
                }
                if ty.shape.is_empty() {
                    let reg = self.constant(canonical(items[0]));
                    self.bind(result, Val::Reg(reg));
                    return Ok(());
                }
                let place = self.pool_entry(items.iter().map(|&bits| canonical(bits)), bytes, items.len());
                let expr = self.place_expr(place, ty.len(), bytes);
                self.bind(result, Val::Tile { expr, wide: false });
            }
        }
        Ok(())
    }

    fn pool_entry(&mut self, items: impl Iterator<Item = u64>, bytes: u8, len: usize) -> Place {
        // 64 bytes of slack: an aligned start is found inside.
        let mut data = Vec::with_capacity(len * bytes as usize + 64);
        for bits in items {
            data.extend_from_slice(&bits.to_le_bytes()[..bytes as usize]);
        }
        data.resize(data.len().next_multiple_of(8), 0);
        let words: Box<[u64]> =
            data.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default())).collect();
        self.pool.push(words);
        Place::Pool(self.pool.len() as u32 - 1)
    }
}

fn padded(bytes: usize) -> usize {
    // A line between buffers of a power-of-two size keeps their rows out of the same cache sets.
    bytes.next_multiple_of(64) + 64
}

/// Bytes of an element in a buffer.
pub(crate) fn element_bytes(elem: Elem) -> u8 {
    elem.bytes() as u8
}

/// Bytes of the lanes that an operation reads.
fn source_bytes(op: LaneOp) -> [u8; 3] {
    use crate::lanes::{Float, Int};
    let float = |width: Float| if width == Float::F32 { 4 } else { 8 };
    let int = |width: Int| width.bytes() as u8;
    match op {
        LaneOp::Float(_, width) | LaneOp::FloatCmp(_, _, width) | LaneOp::FloatToInt(width, ..) => [float(width); 3],
        LaneOp::Directed(_, dtype, _) => [if dtype == DType::F64 { 8 } else { 4 }; 3],
        LaneOp::NarrowFma(_) | LaneOp::Narrow(_) | LaneOp::Round(_) | LaneOp::F32ToF64 => [4; 3],
        LaneOp::PowInt(width, exponent) => [float(width), int(exponent), 0],
        LaneOp::Int(_, width, _) | LaneOp::IntCmp(_, width, _) => [int(width); 3],
        LaneOp::Select(bytes) => [1, bytes, bytes],
        LaneOp::Resize(from, ..) | LaneOp::IntToFloat(from, ..) => [int(from); 3],
        LaneOp::Wrap4 | LaneOp::MaskByte(_) => [1; 3],
        LaneOp::Widen(dtype) | LaneOp::Recode(dtype, ..) | LaneOp::Encode(dtype, ..) => [dtype.unpacked_bytes() as u8; 3],
        LaneOp::F64ToF32 => [8; 3],
        LaneOp::Offset(width, _) => [8, int(width), 0],
    }
}
