//! Random well-formed Schedule programs: what passes must keep meaning, and executors must agree on.
//!
//! A program has one block, reads `x` (`f32`), `v` (`i32`) and the scalars `s` and `k`, and writes `y` (`f32`) and `w` (`i32`); every
//! array is a row of any length. It computes only what is exact everywhere: integers, IEEE arithmetic to nearest, comparisons, choices,
//! shapes, reductions with `order=tree` or over integers; divisors are constants other than zero. Loops end: their bounds are
//! clamped. NaN payloads and the sign of `maxf(0.0, -0.0)` are nobody's promise: compare NaNs as equal.
//!
//! ```
//! let mut state = 7u32;
//! let module = tessera_compile::generate::program(30, &mut |below| {
//!     state = state.wrapping_mul(1664525).wrapping_add(1013904223);
//!     (state >> 8) % below
//! });
//! assert!(tessera_ir::verify(&module).is_empty());
//! ```

use smallvec::SmallVec;
use tessera_ir::attrs::{CacheHint, GridAxis, MemoryOrder, NanOrder, Overflow, Predicate, ReduceOrder, Rounding, Signedness};
use tessera_ir::{
    Abi, AbiParam, Builder, Const, Elem, Extent, Func, IndexType, Level, Module, Padding, ParamKind, ScheduleOp, Shape, Span,
    TensorViewType, TileType, TileViewType, Type, Value, ViewKind,
};
use tessera_types::DType;

/// Elements of the tiles that are loaded and stored.
pub const TILE: u32 = 8;
/// Loops run at most so often.
pub const MAX_ROUNDS: i64 = 5;

/// Yields a number below its argument.
pub type Choose<'c> = dyn FnMut(u32) -> u32 + 'c;

/// A program of about `size` operations.
pub fn program(size: usize, choose: &mut Choose<'_>) -> Module {
    let mut module = Module::default();
    let source = module.sources.add("<generated>", "");
    let mut func = Func::new("generated", Level::Schedule, Span { source, start: 0, end: 0 });
    let mut views = Vec::new();
    let mut scalars = Vec::new();
    for (name, dtype) in [("x", DType::F32), ("v", DType::I32), ("y", DType::F32), ("w", DType::I32)] {
        views.push((array(&mut func, name, dtype), dtype));
    }
    for (name, dtype) in [("s", DType::F32), ("k", DType::I32)] {
        scalars.push(func.add_arg(func.body, Type::scalar(dtype), Some(name)));
        func.abi.params.push(AbiParam { name: name.to_string(), kind: ParamKind::Scalar { dtype } });
    }
    let mut builder = Builder::new(&mut func);
    let views = views.into_iter().map(|(args, dtype)| view(&mut builder, args, dtype)).collect();
    let id = builder.value(ScheduleOp::GetTileBlockId { axis: GridAxis::X }, &[], Type::scalar(DType::I32));
    let zero = builder.constant(Const::int(DType::I32, 0), Shape::new());
    let one = builder.constant(Const::int(DType::I32, 1), Shape::new());
    let mut pool = vec![id, zero, one];
    pool.extend(scalars);
    let mut program = Program { choose, views, budget: size, depth: 0 };
    program.block(&mut builder, &mut pool);
    for (target, dtype) in [(2, DType::F32), (3, DType::I32)] {
        let value = program.pick(&mut builder, &pool, &[TILE], dtype);
        program.store(&mut builder, &pool, target, value);
    }
    builder.op(ScheduleOp::Return {}, &[], []);
    module.funcs.push(func);
    module
}

fn array(func: &mut Func, name: &str, dtype: DType) -> [Value; 3] {
    let index = Type::scalar(DType::I32);
    let pointer = func.add_arg(func.body, Type::pointers(Shape::new(), dtype), Some(name));
    let size = func.add_arg(func.body, index.clone(), None);
    let stride = func.add_arg(func.body, index, None);
    let kind = ParamKind::Array {
        dtype,
        shape: SmallVec::from_slice(&[Extent::Dynamic]),
        strides: SmallVec::from_slice(&[Extent::Static(1)]),
        index: IndexType::I32,
        align: 4,
        lines: 4,
        disjoint: true,
    };
    let Abi { params, .. } = &mut func.abi;
    params.push(AbiParam { name: name.to_string(), kind });
    [pointer, size, stride]
}

fn view(builder: &mut Builder<'_>, [pointer, size, _]: [Value; 3], dtype: DType) -> Value {
    let tensor = TensorViewType {
        elem: dtype,
        shape: SmallVec::from_slice(&[Extent::Dynamic]),
        strides: SmallVec::from_slice(&[Extent::Static(1)]),
    };
    let groups: [&[Value]; 3] = [&[pointer], &[size], &[]];
    let array = builder.value(ScheduleOp::MakeTensorView {}, &groups, Type::TensorView(Box::new(tensor.clone())));
    let ty = TileViewType {
        kind: ViewKind::Partition,
        tile: Shape::from_slice(&[TILE]),
        dim_map: SmallVec::from_slice(&[0]),
        padding: Padding::Zero,
        tensor,
    };
    builder.value(ScheduleOp::MakePartitionView {}, &[&[array]], Type::TileView(Box::new(ty)))
}

struct Program<'p, 'c> {
    choose: &'p mut Choose<'c>,
    /// Views of `x`, `v`, `y`, `w`.
    views: Vec<Value>,
    budget: usize,
    depth: usize,
}

const SHAPES: [&[u32]; 5] = [&[], &[TILE], &[TILE, 1], &[TILE, 4], &[4, TILE]];
const WRAPS: Overflow = Overflow::Wraps;
const SIGNED: Signedness = Signedness::Signed;
const NEAREST: Rounding = Rounding::NearestEven;

impl Program<'_, '_> {
    fn below(&mut self, limit: usize) -> usize {
        (self.choose)(limit.max(1) as u32) as usize % limit.max(1)
    }

    fn block(&mut self, builder: &mut Builder<'_>, pool: &mut Vec<Value>) {
        let mut left = 4 + self.below(12);
        while self.budget > 0 && left > 0 {
            self.budget -= 1;
            left -= 1;
            self.op(builder, pool);
        }
    }

    /// A value of the pool with this type, or a constant.
    fn pick(&mut self, builder: &mut Builder<'_>, pool: &[Value], shape: &[u32], dtype: DType) -> Value {
        let wanted = Type::tile(Shape::from_slice(shape), dtype);
        let fitting: Vec<Value> = pool.iter().copied().filter(|&value| *builder.func.ty(value) == wanted).collect();
        if !fitting.is_empty() && self.below(8) > 0 {
            return fitting[self.below(fitting.len())];
        }
        let value = match dtype {
            DType::B1 => Const::bool(self.below(2) == 1),
            DType::F32 => {
                const VALUES: [f32; 8] = [0.0, -0.0, 1.0, -1.0, 0.1, 3.5, 1e-40, 3e38];
                Const::splat(dtype, u64::from(VALUES[self.below(VALUES.len())].to_bits()))
            }
            DType::F16 => Const::splat(dtype, [0x0000, 0x3c00, 0xbc00, 0x0001, 0x7bff][self.below(5)]),
            _ => Const::int(dtype, [0, 1, -1, 2, 7, -8, i64::from(i32::MAX), i64::from(i32::MIN)][self.below(8)]),
        };
        builder.constant(value, Shape::from_slice(shape))
    }

    fn op(&mut self, builder: &mut Builder<'_>, pool: &mut Vec<Value>) {
        let shape = SHAPES[self.below(SHAPES.len())];
        let value = match self.below(15) {
            0..=2 => self.float(builder, pool, shape),
            3..=5 => self.integer(builder, pool, shape),
            6 => self.comparison(builder, pool, shape),
            7 => self.conversion(builder, pool, shape),
            8 => self.reshaping(builder, pool),
            9 => self.reduction(builder, pool),
            10 => {
                let dtype = [DType::F32, DType::I32][self.below(2)];
                let condition = self.pick(builder, pool, shape, DType::B1);
                let (a, b) = (self.pick(builder, pool, shape, dtype), self.pick(builder, pool, shape, dtype));
                let ty = builder.func.ty(a).clone();
                builder.value(ScheduleOp::Select {}, &[&[condition], &[a], &[b]], ty)
            }
            11 => self.load(builder, pool),
            12 => {
                let target = 2 + self.below(2);
                let value = self.pick(builder, pool, &[TILE], [DType::F32, DType::I32][target - 2]);
                self.store(builder, pool, target, value);
                return;
            }
            _ if self.depth >= 3 => return,
            13 => self.condition(builder, pool),
            _ => self.counted(builder, pool),
        };
        pool.push(value);
    }

    fn float(&mut self, builder: &mut Builder<'_>, pool: &[Value], shape: &[u32]) -> Value {
        let dtype = [DType::F32, DType::F32, DType::F16][self.below(3)];
        let (rounding, flush_to_zero) = (NEAREST, false);
        let kind = match self.below(9) {
            0 | 1 => ScheduleOp::AddF { rounding, flush_to_zero },
            2 => ScheduleOp::SubF { rounding, flush_to_zero },
            3 | 4 => ScheduleOp::MulF { rounding, flush_to_zero },
            5 => ScheduleOp::NegF {},
            6 => ScheduleOp::AbsF {},
            7 => ScheduleOp::Floor {},
            _ => ScheduleOp::DivF { rounding, flush_to_zero },
        };
        self.elementwise(builder, pool, kind, shape, dtype)
    }

    fn integer(&mut self, builder: &mut Builder<'_>, pool: &[Value], shape: &[u32]) -> Value {
        let (overflow, signedness) = (WRAPS, SIGNED);
        let divisor = Const::int(DType::I32, [1, 2, 3, -4, 64][self.below(5)]);
        let kind = match self.below(13) {
            0 | 1 => ScheduleOp::AddI { overflow },
            2 => ScheduleOp::SubI { overflow },
            3 | 4 => ScheduleOp::MulI { overflow },
            5 => ScheduleOp::AndI {},
            6 => ScheduleOp::XorI {},
            7 => ScheduleOp::MaxI { signedness },
            8 => ScheduleOp::MinI { signedness },
            9 => ScheduleOp::NegI { overflow },
            10 => ScheduleOp::RemI { signedness },
            11 => ScheduleOp::ShlI { overflow },
            _ => {
                let rounding = [Rounding::Zero, Rounding::NegativeInf, Rounding::PositiveInf][self.below(3)];
                ScheduleOp::DivI { signedness, rounding }
            }
        };
        let safe = match kind {
            ScheduleOp::DivI { .. } | ScheduleOp::RemI { .. } => Some(divisor),
            ScheduleOp::ShlI { .. } => Some(Const::int(DType::I32, self.below(32) as i64)),
            _ => None,
        };
        match safe {
            None => self.elementwise(builder, pool, kind, shape, DType::I32),
            Some(right) => {
                let left = self.pick(builder, pool, shape, DType::I32);
                let right = builder.constant(right, Shape::from_slice(shape));
                builder.same(kind, &[left, right])
            }
        }
    }

    fn elementwise(&mut self, builder: &mut Builder<'_>, pool: &[Value], kind: ScheduleOp, shape: &[u32], dtype: DType) -> Value {
        let operands: SmallVec<[Value; 3]> = kind.row().operands.iter().map(|_| self.pick(builder, pool, shape, dtype)).collect();
        builder.same(kind, &operands)
    }

    fn comparison(&mut self, builder: &mut Builder<'_>, pool: &[Value], shape: &[u32]) -> Value {
        let predicate = Predicate::ALL[self.below(Predicate::ALL.len())];
        let ty = Type::tile(Shape::from_slice(shape), DType::B1);
        let (dtype, kind) = match self.below(2) {
            0 => (DType::F32, ScheduleOp::CmpF { predicate, nan: NanOrder::ALL[self.below(2)] }),
            _ => (DType::I32, ScheduleOp::CmpI { predicate, signedness: Signedness::ALL[self.below(2)] }),
        };
        let (a, b) = (self.pick(builder, pool, shape, dtype), self.pick(builder, pool, shape, dtype));
        builder.value(kind, &[&[a], &[b]], ty)
    }

    fn conversion(&mut self, builder: &mut Builder<'_>, pool: &[Value], shape: &[u32]) -> Value {
        let signedness = SIGNED;
        let (from, to, kind) = match self.below(4) {
            0 => (DType::I32, DType::F32, ScheduleOp::IToF { signedness, rounding: NEAREST }),
            1 => (DType::F32, DType::F16, ScheduleOp::FToF { rounding: NEAREST }),
            2 => (DType::F16, DType::F32, ScheduleOp::FToF { rounding: NEAREST }),
            _ => (DType::F32, DType::I32, ScheduleOp::FToI { signedness, rounding: Rounding::NearestIntToZero }),
        };
        let source = self.pick(builder, pool, shape, from);
        builder.value(kind, &[&[source]], Type::tile(Shape::from_slice(shape), to))
    }

    fn reshaping(&mut self, builder: &mut Builder<'_>, pool: &[Value]) -> Value {
        let dtype = [DType::F32, DType::I32][self.below(2)];
        let (from, to, kind): (&[u32], &[u32], _) = match self.below(5) {
            0 => (&[TILE], &[TILE, 1], ScheduleOp::Reshape {}),
            1 => (&[TILE, 1], &[TILE, 4], ScheduleOp::Broadcast {}),
            2 => (&[TILE, 4], &[4, TILE], ScheduleOp::Permute { permutation: Shape::from_slice(&[1, 0]) }),
            3 => (&[4, TILE], &[TILE, 4], ScheduleOp::Reshape {}),
            _ => (&[TILE, 1], &[TILE], ScheduleOp::Reshape {}),
        };
        let source = self.pick(builder, pool, from, dtype);
        builder.value(kind, &[&[source]], Type::tile(Shape::from_slice(to), dtype))
    }

    fn reduction(&mut self, builder: &mut Builder<'_>, pool: &[Value]) -> Value {
        let dtype = [DType::F32, DType::I32][self.below(2)];
        let shape: &[u32] = [&[TILE][..], &[TILE, 4], &[4, TILE]][self.below(3)];
        let dim = self.below(shape.len());
        let source = self.pick(builder, pool, shape, dtype);
        let (kind, order) = match dtype {
            DType::F32 => (ScheduleOp::AddF { rounding: NEAREST, flush_to_zero: false }, ReduceOrder::Tree),
            _ => (ScheduleOp::AddI { overflow: WRAPS }, ReduceOrder::Free),
        };
        let region = builder.func.new_block();
        let args = [0, 1].map(|_| builder.func.add_arg(region, Type::scalar(dtype), None));
        builder.within(region, |inner| {
            let next = inner.same(kind, &args);
            inner.op(ScheduleOp::Yield {}, &[&[next]], []);
        });
        let mut reduced = Shape::from_slice(shape);
        reduced.remove(dim);
        let kind = ScheduleOp::Reduce { dim: dim as u32, identities: vec![Const::splat(dtype, 0)], order };
        let ty = Type::Tile(TileType { shape: reduced, elem: Elem::Num(dtype) });
        let op = builder.op_with_regions(kind, &[&[source]], [ty], [region]);
        builder.func.ops[op].result()
    }

    /// An index of a tile, near the start.
    fn index(&mut self, builder: &mut Builder<'_>, pool: &[Value]) -> Value {
        let index = self.pick(builder, pool, &[], DType::I32);
        let mask = builder.constant(Const::int(DType::I32, 3), Shape::new());
        builder.same(ScheduleOp::AndI {}, &[index, mask])
    }

    fn load(&mut self, builder: &mut Builder<'_>, pool: &[Value]) -> Value {
        let which = self.below(self.views.len());
        let index = self.index(builder, pool);
        let dtype = [DType::F32, DType::I32][which % 2];
        let kind = ScheduleOp::LoadViewTko {
            order: MemoryOrder::Weak,
            scope: None,
            latency: None,
            allow_tma: None,
            inbounds: false,
            cache: CacheHint::Normal,
        };
        let types = [Type::tile(Shape::from_slice(&[TILE]), dtype), Type::Token];
        let op = builder.op(kind, &[&[self.views[which]], &[index], &[]], types);
        builder.func.ops[op].results[0]
    }

    fn store(&mut self, builder: &mut Builder<'_>, pool: &[Value], target: usize, value: Value) {
        let index = self.index(builder, pool);
        let kind = ScheduleOp::StoreViewTko {
            order: MemoryOrder::Weak,
            scope: None,
            latency: None,
            allow_tma: None,
            inbounds: false,
            cache: CacheHint::Normal,
        };
        builder.op(kind, &[&[value], &[self.views[target]], &[index], &[]], [Type::Token]);
    }

    fn condition(&mut self, builder: &mut Builder<'_>, pool: &[Value]) -> Value {
        let condition = self.pick(builder, pool, &[], DType::B1);
        let dtype = [DType::F32, DType::I32][self.below(2)];
        let ty = Type::tile(Shape::from_slice(&[TILE]), dtype);
        self.depth += 1;
        let regions = [0, 1].map(|_| {
            let region = builder.func.new_block();
            builder.within(region, |inner| {
                let mut pool = pool.to_vec();
                self.block(inner, &mut pool);
                let result = self.pick(inner, &pool, &[TILE], dtype);
                inner.op(ScheduleOp::Yield {}, &[&[result]], []);
            });
            region
        });
        self.depth -= 1;
        let op = builder.op_with_regions(ScheduleOp::If {}, &[&[condition]], [ty], regions);
        builder.func.ops[op].result()
    }

    /// A loop with constant bounds, or up to a clamped value; some rounds may end early.
    fn counted(&mut self, builder: &mut Builder<'_>, pool: &[Value]) -> Value {
        let constant = |builder: &mut Builder<'_>, value: i64| builder.constant(Const::int(DType::I32, value), Shape::new());
        let lower = constant(builder, self.below(2) as i64);
        let upper = if self.below(2) == 0 {
            constant(builder, self.below(4) as i64)
        } else {
            let wild = self.pick(builder, pool, &[], DType::I32);
            let limit = constant(builder, MAX_ROUNDS);
            builder.same(ScheduleOp::MinI { signedness: SIGNED }, &[wild, limit])
        };
        let step = constant(builder, 1 + self.below(2) as i64);
        let types = [Type::tile(Shape::from_slice(&[TILE]), DType::F32), Type::scalar(DType::I32)];
        let init = [self.pick(builder, pool, &[TILE], DType::F32), self.pick(builder, pool, &[], DType::I32)];
        let region = builder.func.new_block();
        let counter = builder.func.add_arg(region, Type::scalar(DType::I32), None);
        let carried = types.clone().map(|ty| builder.func.add_arg(region, ty, None));
        self.depth += 1;
        builder.within(region, |inner| {
            let mut pool = pool.to_vec();
            pool.push(counter);
            pool.extend(carried);
            self.block(inner, &mut pool);
            if self.below(3) == 0 {
                let skip = self.pick(inner, &pool, &[], DType::B1);
                let regions = [inner.func.new_block(), inner.func.new_block()];
                inner.within(regions[0], |early| early.op(ScheduleOp::Continue {}, &[&carried], []));
                inner.within(regions[1], |on| on.op(ScheduleOp::Yield {}, &[&[]], []));
                inner.op_with_regions(ScheduleOp::If {}, &[&[skip]], [], regions);
            }
            let next = [self.pick(inner, &pool, &[TILE], DType::F32), self.pick(inner, &pool, &[], DType::I32)];
            inner.op(ScheduleOp::Continue {}, &[&next], []);
        });
        self.depth -= 1;
        let groups: [&[Value]; 4] = [&[lower], &[upper], &[step], &init];
        let op = builder.op_with_regions(ScheduleOp::For { unsigned: false, unroll: None }, &groups, types, [region]);
        builder.func.ops[op].results[0]
    }
}
