//! Random programs of threads that share memory: what barriers must be right for.
//!
//! A program has one block of [`THREADS`] threads, reads `x`, writes `y` (a number of each thread each), and takes the scalar `n`. Threads write and
//! read elements of three buffers, at indices that no two threads share; under conditions that some of them meet, in loops, with barriers here
//! and there. Who writes under a condition that divides threads reads nothing there.

use tessera_ir::attrs::{CacheHint, MemoryOrder, Overflow, Predicate, Rounding, Signedness};
use tessera_ir::{
    Abi, AbiParam, Block, Builder, Const, Extent, Func, IndexType, Level, Module, ParamKind, ScheduleOp, Shape, SharedType, Span,
    TileOp, Type, Value,
};
use tessera_types::DType;

/// Threads of the block.
pub(crate) const THREADS: u32 = 64;
const BUFFERS: usize = 3;

type Choose<'c> = dyn FnMut(u32) -> u32 + 'c;

/// A program of about `size` statements.
pub(crate) fn program(size: usize, choose: &mut Choose<'_>) -> Module {
    let mut module = Module::default();
    let source = module.sources.add("<generated>", "");
    let mut func = Func::new("generated", Level::Tile, Span { source, start: 0, end: 0 });
    func.hints.num_warps = Some(THREADS / 32);
    func.hints.num_threads = Some(THREADS);
    let array = |name: &str| AbiParam {
        name: name.to_string(),
        kind: ParamKind::Array {
            dtype: DType::I32,
            shape: [Extent::Dynamic].into_iter().collect(),
            strides: [Extent::Static(1)].into_iter().collect(),
            index: IndexType::I32,
            align: 16,
            lines: 16,
            disjoint: true,
        },
    };
    func.abi = Abi {
        stated: Vec::new(),
        params: vec![array("x"), array("y"), AbiParam { name: "n".into(), kind: ParamKind::Scalar { dtype: DType::I32 } }],
    };
    let body = func.body;
    let mut arrays = Vec::new();
    for name in ["x", "y"] {
        arrays.push(func.add_arg(body, Type::pointers(Shape::new(), DType::I32), Some(name)));
        func.add_arg(body, Type::scalar(DType::I32), None);
        func.add_arg(body, Type::scalar(DType::I32), None);
    }
    let n = func.add_arg(body, Type::scalar(DType::I32), Some("n"));
    let mut b = Builder::new(&mut func);
    let thread = b.value(TileOp::ThreadId {}, &[], int());
    let buffers = (0..BUFFERS)
        .map(|_| {
            let ty = Type::Shared(Box::new(SharedType::new(&[THREADS][..], DType::I32)));
            b.value(TileOp::AllocShared { align: 16, offset: None }, &[], ty)
        })
        .collect();
    let pointer = b.value(ScheduleOp::Offset {}, &[&[arrays[0]], &[thread]], Type::pointers(Shape::new(), DType::I32));
    let (order, cache) = (MemoryOrder::Weak, CacheHint::Normal);
    let load = ScheduleOp::LoadPtrTko { order, scope: None, latency: None, cache };
    let read = b.op(load, &[&[pointer], &[], &[], &[]], [int(), Type::Token]);
    let first = b.func.ops[read].results[0];
    let mut made = Made { thread, n, buffers, numbers: vec![first, thread], left: size, in_loop: 0 };
    for buffer in 0..BUFFERS {
        b.op(TileOp::StoreElement { relaxed: false }, &[&[first], &[made.buffers[buffer]], &[thread]], []);
    }
    while made.left > 0 {
        made.statement(&mut b, choose);
    }
    let mut sum = first;
    for value in made.numbers.clone() {
        sum = b.same(ScheduleOp::XorI {}, &[sum, value]);
    }
    for buffer in 0..BUFFERS {
        let index = made.index(&mut b, choose);
        let value = b.value(TileOp::LoadElement {}, &[&[made.buffers[buffer]], &[index]], int());
        sum = b.same(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[sum, value]);
    }
    let pointer = b.value(ScheduleOp::Offset {}, &[&[arrays[1]], &[thread]], Type::pointers(Shape::new(), DType::I32));
    let store = ScheduleOp::StorePtrTko { order, scope: None, latency: None, cache };
    b.op(store, &[&[pointer], &[sum], &[], &[]], [Type::Token]);
    b.op(ScheduleOp::Return {}, &[], []);
    module.funcs.push(func);
    module
}

fn int() -> Type {
    Type::scalar(DType::I32)
}

struct Made {
    thread: Value,
    n: Value,
    buffers: Vec<Value>,
    /// Numbers of each thread that are defined here.
    numbers: Vec<Value>,
    left: usize,
    in_loop: usize,
}

impl Made {
    fn number(b: &mut Builder<'_>, value: i64) -> Value {
        b.constant(Const::int(DType::I32, value), Shape::new())
    }

    /// An index that no two threads share.
    fn index(&self, b: &mut Builder<'_>, choose: &mut Choose<'_>) -> Value {
        let all = Self::number(b, i64::from(THREADS));
        match choose(6) {
            0 | 1 => self.thread,
            2 => {
                let ahead = Self::number(b, i64::from(choose(THREADS)));
                let sum = b.same(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[self.thread, ahead]);
                b.same(ScheduleOp::RemI { signedness: Signedness::Signed }, &[sum, all])
            }
            3 => {
                let bits = Self::number(b, i64::from(choose(THREADS)));
                b.same(ScheduleOp::XorI {}, &[self.thread, bits])
            }
            4 => {
                let last = Self::number(b, i64::from(THREADS) - 1);
                b.same(ScheduleOp::SubI { overflow: Overflow::Wraps }, &[last, self.thread])
            }
            _ => {
                // A square, transposed.
                let side = Self::number(b, 8);
                let (signedness, rounding) = (Signedness::Signed, Rounding::Zero);
                let row = b.same(ScheduleOp::DivI { signedness, rounding }, &[self.thread, side]);
                let column = b.same(ScheduleOp::RemI { signedness }, &[self.thread, side]);
                let start = b.same(ScheduleOp::MulI { overflow: Overflow::Wraps }, &[column, side]);
                b.same(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[start, row])
            }
        }
    }

    fn any(&self, choose: &mut Choose<'_>) -> Value {
        self.numbers[choose(self.numbers.len() as u32) as usize]
    }

    fn write(&self, b: &mut Builder<'_>, choose: &mut Choose<'_>) {
        let (index, value) = (self.index(b, choose), self.any(choose));
        let buffer = self.buffers[choose(BUFFERS as u32) as usize];
        b.op(TileOp::StoreElement { relaxed: false }, &[&[value], &[buffer], &[index]], []);
    }

    fn read(&self, b: &mut Builder<'_>, choose: &mut Choose<'_>) -> Value {
        let index = self.index(b, choose);
        let buffer = self.buffers[choose(BUFFERS as u32) as usize];
        b.value(TileOp::LoadElement {}, &[&[buffer], &[index]], int())
    }

    fn statement(&mut self, b: &mut Builder<'_>, choose: &mut Choose<'_>) {
        self.left = self.left.saturating_sub(1);
        match choose(10) {
            0..3 => self.write(b, choose),
            3..6 => {
                let value = self.read(b, choose);
                let other = self.any(choose);
                let sum = b.same(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[value, other]);
                self.numbers.push(sum);
            }
            6 => {
                b.op(TileOp::Barrier {}, &[], []);
            }
            7 => self.divided(b, choose),
            8 => self.chosen(b, choose),
            _ => self.repeated(b, choose),
        }
    }

    fn compare(b: &mut Builder<'_>, value: Value, with: i64) -> Value {
        let with = Self::number(b, with);
        let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: Signedness::Signed };
        b.value(kind, &[&[value], &[with]], Type::scalar(DType::B1))
    }

    /// Some threads write one element each, or read one.
    fn divided(&mut self, b: &mut Builder<'_>, choose: &mut Choose<'_>) {
        let condition = Self::compare(b, self.thread, i64::from(choose(THREADS)) + 1);
        let (then, otherwise) = (b.func.new_block(), b.func.new_block());
        let own = self.any(choose);
        let mut inner = Builder { func: b.func, block: then, span: b.span };
        let value = match choose(2) {
            0 => {
                self.write(&mut inner, choose);
                own
            }
            _ => self.read(&mut inner, choose),
        };
        inner.op(ScheduleOp::Yield {}, &[&[value]], []);
        b.within(otherwise, |b| b.op(ScheduleOp::Yield {}, &[&[own]], []));
        let branch = b.op_with_regions(ScheduleOp::If {}, &[&[condition]], [int()], [then, otherwise]);
        self.numbers.push(b.func.ops[branch].result());
    }

    fn region(&mut self, b: &mut Builder<'_>, block: Block, statements: u32, choose: &mut Choose<'_>) {
        let known = self.numbers.len();
        let mut inner = Builder { func: b.func, block, span: b.span };
        for _ in 0..statements {
            self.statement(&mut inner, choose);
        }
        self.numbers.truncate(known);
    }

    /// All threads go one of two ways.
    fn chosen(&mut self, b: &mut Builder<'_>, choose: &mut Choose<'_>) {
        let condition = Self::compare(b, self.n, i64::from(choose(6)));
        let blocks = [b.func.new_block(), b.func.new_block()];
        for block in blocks {
            let count = choose(3);
            self.region(b, block, count, choose);
            b.within(block, |b| b.op(ScheduleOp::Yield {}, &[&[]], []));
        }
        b.op_with_regions(ScheduleOp::If {}, &[&[condition]], [], blocks);
    }

    /// All threads go round a loop, which some leave a round early by nothing but its count.
    fn repeated(&mut self, b: &mut Builder<'_>, choose: &mut Choose<'_>) {
        if self.in_loop == 2 {
            return;
        }
        self.in_loop += 1;
        let (zero, one) = (Self::number(b, 0), Self::number(b, 1));
        let upper = if choose(2) == 0 { self.n } else { Self::number(b, i64::from(choose(4))) };
        let body = b.func.new_block();
        b.func.add_arg(body, int(), None);
        let carried = b.func.add_arg(body, int(), None);
        let start = self.any(choose);
        let known = self.numbers.len();
        self.numbers.push(carried);
        let mut inner = Builder { func: b.func, block: body, span: b.span };
        for _ in 0..1 + choose(4) {
            self.statement(&mut inner, choose);
        }
        let next = self.any(choose);
        inner.op(ScheduleOp::Continue {}, &[&[next]], []);
        self.numbers.truncate(known);
        let looped = b.op_with_regions(
            ScheduleOp::For { unsigned: false, unroll: None },
            &[&[zero], &[upper], &[one], &[start]],
            [int()],
            [body],
        );
        self.numbers.push(b.func.ops[looped].result());
        self.in_loop -= 1;
    }
}
