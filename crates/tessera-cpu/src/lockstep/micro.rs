//! One operation of the Schedule dialect as a program of its own.
//!
//! Lock-step execution gives no meaning to arithmetic, shapes, memory or products: it hands each operation to the Schedule
//! executor. The program reads the operands from buffers, does the operation, and writes the results to buffers. A scalar
//! operation is done for all threads at once, on tiles with one element a thread.
//!
//! ```text
//! %c = addf %a, %b : tile<f32>, 64 threads  =>  schedule @addf(%0: tile<ptr<f32>>, %1: tile<ptr<f32>>, %2: tile<ptr<f32>>) {
//!                                                 %a = load %0 ... ; %b = load %1 ...
//!                                                 %c = addf %a, %b : tile<64xf32>
//!                                                 store %c, %2 ...
//! ```

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::{
    Block, Builder, Const, Diagnostic, Elem, Extent, Func, Level, Module, OpKind, Padding, ScheduleOp, Shape, Span,
    TensorViewType, TileType, TileViewType, Type, Value, ViewKind,
};
use tessera_types::{DType, TimeLimit};

use super::value::{Buffer, element_bytes, tile_bytes};
use crate::build::{BuildOptions, Plan, build};
use crate::exec::{Launch, Machine, Memory, Ran, Range};
use crate::lanes::Isa;

/// What an operand is for the program.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    /// One number for the whole block.
    Bits(Elem),
    /// A tile in a buffer.
    Tile(TileType),
    /// An array in memory, as tiles or whole.
    View(Type),
}

/// What the program is given for an operand.
#[derive(Clone, Debug)]
pub(super) enum Feed {
    Bits(u64),
    Tile(Buffer),
    /// The address, then open sizes and strides.
    View(SmallVec<[u64; 9]>),
}

/// The region of a reduction or scan, and the function it stands in.
#[derive(Clone, Copy)]
pub(super) struct Combine<'f> {
    pub(super) func: &'f Func,
    pub(super) block: Block,
}

/// An operation as a program.
#[derive(Debug)]
pub(super) struct Micro {
    plan: Plan,
    /// Bytes of the results that are values.
    outputs: Vec<usize>,
    /// Values from outside that the region uses: further operands, numbers all.
    pub(super) captured: Vec<Value>,
}

/// An operation to be made a program: operands in groups as the row has them, and results as Schedule types.
pub(super) struct Single<'f> {
    pub(super) kind: ScheduleOp,
    pub(super) groups: Vec<Vec<Operand>>,
    pub(super) results: Vec<Type>,
    pub(super) region: Option<Combine<'f>>,
    pub(super) span: Span,
}

impl Micro {
    pub(super) fn build(module: &Module, single: &Single<'_>) -> Result<Micro, Box<Diagnostic>> {
        let mut func = Func::new(single.kind.row().mnemonic, Level::Schedule, single.span);
        let mut builder = Builder::new(&mut func);
        builder.span = single.span;
        let groups: Vec<Vec<Value>> =
            single.groups.iter().map(|group| group.iter().map(|operand| receive(&mut builder, operand)).collect()).collect();
        let mut captured = Vec::new();
        let regions: SmallVec<[Block; 1]> =
            single.region.iter().map(|region| copy_region(&mut builder, *region, &mut captured)).collect();
        let slices: SmallVec<[&[Value]; 6]> = groups.iter().map(Vec::as_slice).collect();
        let op = builder.op_with_regions(single.kind.clone(), &slices, single.results.clone(), regions);
        let results: Vec<Value> = builder.func.ops[op].results.to_vec();
        let mut outputs = Vec::new();
        for result in results {
            if let Some(tile) = builder.func.ty(result).as_tile().cloned() {
                outputs.push(deliver(&mut builder, result, &tile));
            }
        }
        builder.op(ScheduleOp::Return {}, &[], []);
        let plan = build(module, &func, BuildOptions { fuse: true, distinct: true })?;
        Ok(Micro { plan, outputs, captured })
    }

    /// Constants of the module that the operation refers to.
    pub(super) fn globals(&self) -> impl Iterator<Item = Range> {
        self.plan.globals.iter().map(|&(_, entry, bytes)| {
            let start = self.plan.pool[entry as usize].as_ptr() as u64;
            Range { start, end: start + bytes as u64 }
        })
    }

    /// Does the operation; yields its results and appends what it prints.
    ///
    /// # Safety
    /// `memory` is valid for reads and writes and not used otherwise meanwhile.
    pub(super) unsafe fn run(
        &self,
        feeds: impl IntoIterator<Item = Feed>,
        memory: &[Range],
        scratch: &mut Memory,
        text: &mut String,
    ) -> Ran<Vec<Buffer>> {
        let plan = &self.plan;
        let mut registers = plan.registers.clone();
        let mut ranges: SmallVec<[Range; 24]> = SmallVec::new();
        let mut arguments = plan.arguments.iter();
        let mut pass = |bits: u64, bytes: usize| {
            if let Some(Some(reg)) = arguments.next() {
                registers[reg.0 as usize] = bits;
            }
            ranges.push(Range { start: bits, end: bits + bytes as u64 });
        };
        // Buffers stay alive until the run is over.
        let feeds: SmallVec<[Feed; 6]> = feeds.into_iter().collect();
        for feed in &feeds {
            match feed {
                Feed::Bits(bits) => pass(*bits, 0),
                Feed::Tile(buffer) => pass(buffer.bytes().as_ptr() as u64, buffer.bytes().len()),
                Feed::View(parts) => parts.iter().for_each(|&bits| pass(bits, 0)),
            }
        }
        let mut outputs: Vec<Buffer> = self.outputs.iter().map(|&bytes| Buffer::new(bytes)).collect();
        for output in &mut outputs {
            let bytes = output.bytes_mut();
            pass(bytes.as_mut_ptr() as u64, bytes.len());
        }
        for &(reg, entry, _) in &plan.globals {
            registers[reg.0 as usize] = plan.pool[entry as usize].as_ptr() as u64;
        }
        ranges.extend(memory.iter().copied());
        let launch = Launch {
            plan,
            grid: [1; 3],
            isa: Isa::detect(),
            ranges: &ranges,
            registers: &registers,
            limit: TimeLimit::NONE,
            crowd: None,
        };
        let mut machine = Machine::new(&launch, scratch, None);
        // SAFETY: operands and results are buffers that live here; the rest is the caller's promise.
        unsafe { machine.run([0; 3])? };
        text.push_str(&machine.text);
        Ok(outputs)
    }
}

/// An argument, and what the operand becomes of it.
fn receive(builder: &mut Builder<'_>, operand: &Operand) -> Value {
    match operand {
        Operand::Bits(Elem::Num(dtype)) => argument(builder, Type::scalar(*dtype)),
        Operand::Bits(Elem::Ptr(to)) => pointer(builder, *to),
        Operand::Tile(tile) => {
            let view = static_view(builder, tile);
            let index = indices(builder, tile);
            let loaded = Type::Tile(stored(tile));
            let kind = ScheduleOp::LoadViewTko {
                order: MemoryOrder::Weak,
                scope: None,
                latency: None,
                allow_tma: None,
                inbounds: false,
                cache: CacheHint::Normal,
            };
            let op = builder.op(kind, &[&[view], &index, &[]], [loaded, Type::Token]);
            let value = builder.func.ops[op].results[0];
            match tile.elem {
                Elem::Num(_) => value,
                Elem::Ptr(_) => builder.value(ScheduleOp::IntToPtr {}, &[&[value]], Type::Tile(tile.clone())),
            }
        }
        Operand::View(ty) => {
            let tensor = match ty {
                Type::TileView(view) => &view.tensor,
                Type::TensorView(view) => view,
                _ => return argument(builder, Type::scalar(DType::I64)),
            };
            let base = pointer(builder, tensor.elem);
            let mut open = |extents: &[Extent]| -> SmallVec<[Value; 4]> {
                let dynamic = extents.iter().filter(|extent| **extent == Extent::Dynamic);
                dynamic.map(|_| argument(builder, Type::scalar(DType::I64))).collect()
            };
            let (shape, strides) = (open(&tensor.shape), open(&tensor.strides));
            let whole = Type::TensorView(Box::new(tensor.clone()));
            let array = builder.value(ScheduleOp::MakeTensorView {}, &[&[base], &shape, &strides], whole);
            let Type::TileView(view) = ty else { return array };
            let make = match view.kind {
                ViewKind::Partition => ScheduleOp::MakePartitionView {},
                ViewKind::Strided(_) => ScheduleOp::MakeStridedView {},
                ViewKind::GatherScatter { .. } => ScheduleOp::MakeGatherScatterView {},
            };
            builder.value(make, &[&[array]], ty.clone())
        }
    }
}

/// Stores a result where one more argument points; yields its bytes.
fn deliver(builder: &mut Builder<'_>, result: Value, tile: &TileType) -> usize {
    let mut value = result;
    if matches!(tile.elem, Elem::Ptr(_)) {
        value = builder.value(ScheduleOp::PtrToInt {}, &[&[value]], Type::Tile(stored(tile)));
    }
    let mut tile = stored(tile);
    if tile.shape.is_empty() {
        tile.shape = Shape::from_slice(&[1]);
        value = builder.value(ScheduleOp::Reshape {}, &[&[value]], Type::Tile(tile.clone()));
    }
    let view = static_view(builder, &tile);
    let index = indices(builder, &tile);
    let kind = ScheduleOp::StoreViewTko {
        order: MemoryOrder::Weak,
        scope: None,
        latency: None,
        allow_tma: None,
        inbounds: false,
        cache: CacheHint::Normal,
    };
    builder.op(kind, &[&[value], &[view], &index, &[]], [Type::Token]);
    tile_bytes(&tile)
}

fn argument(builder: &mut Builder<'_>, ty: Type) -> Value {
    let body = builder.func.body;
    builder.func.add_arg(body, ty, None)
}

/// A pointer passed as a number, so that it may point anywhere in the launch's memory.
fn pointer(builder: &mut Builder<'_>, to: DType) -> Value {
    let address = argument(builder, Type::scalar(DType::I64));
    builder.value(ScheduleOp::IntToPtr {}, &[&[address]], Type::pointers(Shape::new(), to))
}

/// The tile that stands in memory: addresses for pointers.
fn stored(tile: &TileType) -> TileType {
    match tile.elem {
        Elem::Num(_) => tile.clone(),
        Elem::Ptr(_) => tile.with_elem(Elem::Num(DType::I64)),
    }
}

/// One more argument, a buffer that holds exactly the tile.
fn static_view(builder: &mut Builder<'_>, tile: &TileType) -> Value {
    let tile = stored(tile);
    let elem = tile.elem.num().unwrap_or(DType::I64);
    let base = argument(builder, Type::pointers(Shape::new(), elem));
    let mut strides: SmallVec<[Extent; 4]> = SmallVec::new();
    let mut stride = 1;
    for &extent in tile.shape.iter().rev() {
        strides.insert(0, Extent::Static(stride));
        stride *= i64::from(extent);
    }
    let shape = tile.shape.iter().map(|&extent| Extent::Static(i64::from(extent))).collect();
    let tensor = TensorViewType { elem, shape, strides };
    let whole = Type::TensorView(Box::new(tensor.clone()));
    let array = builder.value(ScheduleOp::MakeTensorView {}, &[&[base], &[], &[]], whole);
    let view = TileViewType {
        kind: ViewKind::Partition,
        dim_map: (0..tile.shape.len() as u32).collect(),
        tile: tile.shape,
        padding: Padding::Undetermined,
        tensor,
    };
    builder.value(ScheduleOp::MakePartitionView {}, &[&[array]], Type::TileView(Box::new(view)))
}

fn indices(builder: &mut Builder<'_>, tile: &TileType) -> SmallVec<[Value; 4]> {
    tile.shape.iter().map(|_| builder.constant(Const::int(DType::I32, 0), Shape::new())).collect()
}

/// Copies the region of a reduction; what it uses from outside becomes an argument.
fn copy_region(builder: &mut Builder<'_>, combine: Combine<'_>, captured: &mut Vec<Value>) -> Block {
    let Combine { func, block } = combine;
    let copy = builder.func.new_block();
    let mut map: BTreeMap<Value, Value> = BTreeMap::new();
    for &arg in &func.blocks[block].args {
        map.insert(arg, builder.func.add_arg(copy, func.ty(arg).clone(), None));
    }
    for &op in &func.blocks[block].ops {
        let data = &func.ops[op];
        for &operand in &data.operands {
            map.entry(operand).or_insert_with(|| {
                captured.push(operand);
                let elem = func.ty(operand).as_tile().map_or(Elem::Num(DType::I64), |tile| tile.elem);
                receive(builder, &Operand::Bits(elem))
            });
        }
        let OpKind::Schedule(kind) = &data.kind else { continue };
        let operands: Vec<Value> = data.operands.iter().map(|operand| map[operand]).collect();
        let mut rest = operands.as_slice();
        let mut groups: SmallVec<[&[Value]; 6]> = SmallVec::new();
        for &count in &data.segments {
            let (group, others) = rest.split_at(usize::from(count));
            groups.push(group);
            rest = others;
        }
        let types: Vec<Type> = data.results.iter().map(|&result| func.ty(result).clone()).collect();
        let made = builder.within(copy, |inner| {
            inner.span = data.span;
            inner.op(kind.clone(), &groups, types)
        });
        for (&from, &to) in data.results.iter().zip(&builder.func.ops[made].results) {
            map.insert(from, to);
        }
    }
    copy
}

/// The element of a scalar type.
pub(super) fn scalar_elem(ty: &Type) -> Option<Elem> {
    ty.as_tile().filter(|tile| tile.shape.is_empty()).map(|tile| tile.elem)
}

/// Bytes of a scalar's element; 8 for what has none.
pub(super) fn scalar_bytes(ty: &Type) -> usize {
    scalar_elem(ty).map_or(8, element_bytes)
}
