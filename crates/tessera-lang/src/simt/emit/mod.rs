//! Checked per-thread kernels as Tile functions.
//!
//! A rank-0 tile of a Tile function is one value a thread, so a variable is an SSA value, a branch an `if` that yields the
//! variables which it assigns, and a loop carries those that it changes. Arithmetic means what it means in block programs and is
//! emitted by the same code. An element of an array is a pointer moved by its index; shared arrays are `tile.alloc_shared`.
//! An array of registers that is only ever indexed by constants is as many variables, any other one `tile.alloc_register`.
//!
//! ```text
//! i = tile.linear_id()          %b = get_tile_block_id {axis=x} ; %t = tile.thread_id ; %i = addi (muli %b, 128), %t
//! if i < x.shape[0]:            %c = cmpi %i, %x_n0 ; if %c () {
//!     x[i] += s[0]                %p = offset %x, %i ; %v = load_ptr_tko %p ; %w = tile.load_element %s, [0] ; ...
//! ```

mod flow;
mod fragment;
mod memory;
mod values;

use smallvec::SmallVec;
use tessera_ir::attrs::Assumption;
use tessera_ir::{
    Builder, Const, Diagnostic, Elem, Extent, Func, Level, Op, OpKind, ParamKind, ScheduleOp, Shape, SharedType, Span, TileOp,
    TileType, Type, Value,
};
use tessera_types::{Arch, DType};

use super::program::{Memory, Place, SimtKernel, Space, Statement};
use crate::args::LowerOptions;
use crate::file::ParsedFile;
use crate::lower::{Lowerer, Res, tile_type};
use crate::style::Style;

/// The most elements of an array of registers that become variables.
const MOST_APART: u64 = 256;

/// Where an allocation's elements are.
#[derive(Clone, Debug)]
enum Home {
    /// In memory.
    Memory(Value),
    /// In variables from a position on, row-major.
    Apart(usize),
}

/// A loop that statements stand in.
struct Open {
    /// Variables that go from round to round.
    carried: Vec<usize>,
    /// What a round ends with: nothing, or one more value and its distance.
    counter: Option<(Value, Value)>,
}

/// The state of the walk.
struct Emit<'k> {
    kernel: &'k SimtKernel,
    /// What emits arithmetic.
    walk: Lowerer<'k>,
    /// What each variable holds here; `None` where nothing that leads here has set it.
    locals: Vec<Option<Value>>,
    types: Vec<DType>,
    /// The pointer of each array parameter.
    bases: Vec<Option<Value>>,
    /// The pointer that each address was made of, from where it is known on.
    addresses: Vec<Option<Value>>,
    homes: Vec<Home>,
    loops: Vec<Open>,
}

/// The kernel as a Tile function.
pub(super) fn emit(file: &ParsedFile, kernel: &SimtKernel, options: &LowerOptions) -> Res<Func> {
    let mut func = Func::new(kernel.name.clone(), Level::Tile, kernel.span);
    func.abi = kernel.abi.clone();
    func.config = kernel.config.clone();
    func.hints.num_warps = Some(kernel.threads.div_ceil(Arch::WARP));
    func.hints.num_threads = Some(kernel.threads);
    func.hints.occupancy = kernel.occupancy;
    arguments(&mut func, kernel);
    let mut emit = Emit {
        kernel,
        walk: Lowerer::new(file, options, func, Style::Simt),
        locals: vec![None; kernel.locals.len()],
        types: kernel.locals.iter().map(|local| local.dtype).collect(),
        bases: vec![None; kernel.abi.params.len()],
        addresses: vec![None; kernel.addressed.len()],
        homes: Vec::new(),
        loops: Vec::new(),
    };
    emit.aligned();
    emit.allocate()?;
    if emit.statements(&kernel.body)? == flow::Flow::Falls {
        emit.walk.span = kernel.span;
        emit.walk.emit(ScheduleOp::Return {}, &[], []);
    }
    Ok(emit.walk.func)
}

/// The function's arguments: for an array a pointer, its sizes and its strides.
fn arguments(func: &mut Func, kernel: &SimtKernel) {
    let body = func.body;
    for param in &kernel.abi.params {
        let name = &param.name;
        match &param.kind {
            ParamKind::Array { dtype, shape, strides, index, .. } => {
                func.add_arg(body, Type::pointers(Shape::new(), dtype.signless()), Some(name));
                for (letter, extents) in [('n', shape), ('s', strides)] {
                    for axis in 0..extents.len() {
                        func.add_arg(body, tile_type(index.dtype(), &[]), Some(&format!("{name}_{letter}{axis}")));
                    }
                }
            }
            ParamKind::Scalar { dtype } => {
                func.add_arg(body, tile_type(*dtype, &[]), Some(name));
            }
            ParamKind::List { .. } | ParamKind::Operand { .. } => {}
        }
    }
}

impl Emit<'_> {
    /// Tells of every array what its address is divided by.
    fn aligned(&mut self) {
        let kernel = self.kernel;
        for (position, param) in kernel.abi.params.iter().enumerate() {
            let ParamKind::Array { align, .. } = &param.kind else { continue };
            let mut base = self.argument(position, 0);
            if *align > 1 {
                let ty = self.walk.func.ty(base).clone();
                let predicate = Assumption::DivisibleBy(u64::from(*align));
                base = self.walk.emit_value(ScheduleOp::Assume { predicate }, &[&[base]], ty);
            }
            self.bases[position] = Some(base);
        }
    }

    /// The function argument at an offset from the first of a parameter.
    fn argument(&self, param: usize, offset: usize) -> Value {
        self.walk.func.args()[self.kernel.abi.first_argument(param) + offset]
    }

    /// Appends an operation of the Tile dialect.
    fn tile_op(&mut self, kind: TileOp, groups: &[&[Value]], results: impl IntoIterator<Item = Type>) -> Op {
        let mut builder = Builder { func: &mut self.walk.func, block: self.walk.block, span: self.walk.span };
        builder.op(OpKind::Tile(kind), groups, results)
    }

    fn tile_value(&mut self, kind: TileOp, groups: &[&[Value]], ty: Type) -> Value {
        let op = self.tile_op(kind, groups, [ty]);
        self.walk.func.ops[op].result()
    }

    /// Zero in an element type.
    fn zero(&mut self, dtype: DType) -> Value {
        self.walk.emit_constant(Const::splat(dtype.signless(), 0), dtype, Shape::new())
    }

    /// Gives every allocation its home.
    fn allocate(&mut self) -> Res<()> {
        let kernel = self.kernel;
        let apart = indexed_by_constants(kernel);
        for (position, own) in kernel.allocations.iter().enumerate() {
            self.walk.span = own.span;
            let elem = own.dtype.signless();
            let shape = Shape::from_slice(&own.shape);
            let home = match own.space {
                Space::Shared => {
                    let ty = Type::Shared(Box::new(SharedType::new(shape, elem)));
                    // An asynchronous copy of 16 bytes may begin where the array does.
                    Home::Memory(self.tile_value(TileOp::AllocShared { align: 16, offset: None }, &[], ty))
                }
                Space::Register if apart[position] => self.variables(own.shape.iter().product::<u32>() as usize, own.dtype),
                Space::Register => {
                    let ty = Type::Registers(Box::new(TileType { shape, elem: Elem::Num(elem) }));
                    Home::Memory(self.tile_value(TileOp::AllocRegister {}, &[], ty))
                }
                Space::Fragment(role) => self.variables(role.fragment().per_lane(), own.dtype),
            };
            if let Home::Memory(value) = home
                && !own.name.is_empty()
            {
                self.walk.name_value(value, &own.name);
            }
            self.homes.push(home);
        }
        Ok(())
    }

    /// New variables that hold zero: what an element is before it is written is undetermined.
    fn variables(&mut self, count: usize, dtype: DType) -> Home {
        let first = self.locals.len();
        let zero = self.zero(dtype);
        self.locals.resize(first + count, Some(zero));
        self.types.resize(first + count, dtype);
        Home::Apart(first)
    }

    /// The variable that an element of an allocation is, where it is one.
    fn variable_at(&self, place: &Place) -> Option<usize> {
        let Memory::Allocation(position) = place.memory else { return None };
        let Home::Apart(first) = self.homes.get(position)? else { return None };
        let shape = &self.kernel.allocations[position].shape;
        let index: Option<SmallVec<[u32; 4]>> = place.index.iter().map(values::known).collect();
        let flat = index?.iter().zip(shape).fold(0, |flat, (&index, &extent)| flat * extent + index);
        Some(first + flat as usize)
    }

    /// Something that the checks exclude; a mistake of ours, told as such.
    fn broken(&self, what: &str, span: Span) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(crate::diagnostics::id::UNSUPPORTED, span, format!("lowering met {what}")).ours())
    }

    /// True when neighbours along an axis of an array are neighbours in memory.
    fn unit_stride(&self, param: usize, axis: usize) -> bool {
        matches!(&self.kernel.abi.params[param].kind,
            ParamKind::Array { strides, .. } if strides.get(axis) == Some(&Extent::Static(1)))
    }
}

/// For each allocation, whether every index into it is known.
fn indexed_by_constants(kernel: &SimtKernel) -> Vec<bool> {
    let mut apart: Vec<bool> =
        kernel.allocations.iter().map(|own| own.shape.iter().map(|&n| u64::from(n)).product::<u64>() <= MOST_APART).collect();
    memory::each_place(&kernel.body, &mut |place| {
        if let Memory::Allocation(position) = place.memory
            && !place.index.iter().all(|index| values::known(index).is_some())
        {
            apart[position] = false;
        }
    });
    apart
}

/// Variables that statements set, without duplicates and in order.
fn assigned(emit: &Emit<'_>, lists: &[&[Statement]]) -> Vec<usize> {
    let mut found = Vec::new();
    lists.iter().for_each(|list| flow::collect(emit, list, &mut found));
    found.sort_unstable();
    found.dedup();
    found
}
