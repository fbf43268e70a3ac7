//! Building a kernel, instruction by instruction.
//!
//! Every method names an instruction by the text of its row and modifiers and resolves it against the table; the first
//! misfit is kept and [`Builder::finish`] returns it, so that code that builds reads like code that computes. Constants are
//! values like any other. Pure instructions are folded while they are built (see `fold`).
//!
//! Methods stand by subject: arithmetic in `build_arithmetic`, memory in `build_memory`, threads and barriers in
//! `build_threads`, asynchronous copies in `build_copies`, matrices in `build_matrices`, control flow in `build_control`.

use std::sync::Arc;

use super::effects::{Effects, is_steady};
use super::fold::{Folded, fold};
use super::inst::{Address, Arg, Guard, InstData, Terminator};
use super::kernel::{Block, BlockData, Class, Data, Inst, Kernel, Origin, Param, ParamKind, Shared, Value};
use super::op::Op;
use crate::form::form;
use crate::model::{self, Limit, Loc, RegId};
use crate::operand_rule::matches;
use crate::types::Type;
use crate::word::Special;

/// An instruction that does not fit the table: a mistake of the code that builds, not of a user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("building `{kernel}`: {message}")]
pub struct BuildError {
    /// The kernel.
    pub kernel: String,
    /// What does not fit.
    pub message: String,
}

/// What an instruction defines.
#[derive(Clone, Copy, Debug)]
pub enum Results<'a> {
    /// Nothing, or what stands among the operands.
    None,
    /// One value, of the class that the row states.
    One,
    /// `value|predicate`
    Pair,
    /// `_`: a result that is not wanted.
    Sink,
    /// So many values of a class, in braces.
    Vector(Class, usize),
    /// One value that starts as another one.
    Tied(Value),
    /// Values in braces that start as others: accumulators.
    TiedVector(&'a [Value]),
}

/// Builds a [`Kernel`].
#[derive(Debug)]
pub struct Builder {
    pub(crate) kernel: Kernel,
    block: Block,
    loc: Option<Loc>,
    guard: Option<Guard>,
    error: Option<BuildError>,
}

impl Builder {
    /// A kernel with nothing in it; instructions go to its entry block.
    pub fn new(name: &str) -> Builder {
        let kernel = Kernel::new(name);
        let block = kernel.entry();
        Builder { kernel, block, loc: None, guard: None, error: None }
    }

    /// The kernel, when everything that was built fits the table and every block has an end.
    pub fn finish(mut self) -> Result<Kernel, BuildError> {
        if self.error.is_none()
            && let Some(open) = self.kernel.layout.iter().find(|&&block| self.kernel.block(block).terminator.is_none())
        {
            let message = format!("block {} has no end", open.0);
            self.fail(message);
        }
        match self.error {
            None => Ok(self.kernel),
            Some(error) => Err(error),
        }
    }

    /// What was built so far.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Keeps the first mistake.
    pub(crate) fn fail(&mut self, message: String) {
        let kernel = self.kernel.name.clone();
        self.error.get_or_insert(BuildError { kernel, message });
    }

    // --- the kernel's frame

    /// A pointer to global memory, aligned to `align` bytes: its value.
    pub fn pointer_param(&mut self, name: &str, align: u32) -> Value {
        let index = self.add_param(name, ParamKind::Pointer(align));
        self.kernel.leaf(Class::B64, Origin::Param(index))
    }

    /// A scalar parameter: its value. Bytes and half words arrive in 32 bits.
    pub fn scalar_param(&mut self, name: &str, ty: Type) -> Value {
        let index = self.add_param(name, ParamKind::Scalar(ty));
        self.kernel.leaf(Class::of(ty), Origin::Param(index))
    }

    /// A tensor map passed by value: its generic address.
    pub fn tensor_map_param(&mut self, name: &str) -> Value {
        let index = self.add_param(name, ParamKind::TensorMap);
        self.kernel.leaf(Class::B64, Origin::ParamAddress(index))
    }

    fn add_param(&mut self, name: &str, kind: ParamKind) -> u32 {
        self.kernel.params.push(Param { name: name.to_owned(), kind });
        self.kernel.params.len() as u32 - 1
    }

    /// A variable in shared memory: its 32-bit address.
    pub fn shared_variable(&mut self, name: &str, bytes: u64, align: u32) -> Value {
        self.add_shared(Shared { name: name.to_owned(), bytes: Some(bytes), align })
    }

    /// Constant data: its address in global memory. Equal data is kept once.
    pub fn data(&mut self, name: &str, bytes: &[u8], align: u32) -> Value {
        let known = self.kernel.data.iter().position(|data| data.bytes == bytes && data.align >= align);
        let index = known.unwrap_or_else(|| {
            let count = self.kernel.data.len();
            let name = format!("{}_{name}{count}", self.kernel.name);
            self.kernel.data.push(Data { name, bytes: bytes.to_vec(), align });
            count
        });
        self.kernel.leaf(Class::B64, Origin::Data(index as u32))
    }

    /// The thread's frame of so many bytes of local memory at least: its address there.
    pub fn frame(&mut self, bytes: u64) -> Value {
        self.kernel.frame_bytes = self.kernel.frame_bytes.max(bytes);
        self.kernel.leaf(Class::B64, Origin::Frame)
    }

    /// The dynamic part of shared memory, whose size the launch gives: its 32-bit address.
    pub fn dynamic_shared(&mut self, name: &str, align: u32) -> Value {
        self.add_shared(Shared { name: name.to_owned(), bytes: None, align })
    }

    fn add_shared(&mut self, shared: Shared) -> Value {
        self.kernel.shared.push(shared);
        let index = self.kernel.shared.len() as u32 - 1;
        self.kernel.leaf(Class::B32, Origin::Shared(index, 0))
    }

    /// A launch limit.
    pub fn limit(&mut self, limit: Limit) {
        self.kernel.limits.push(limit);
    }

    /// Where the instructions that follow come from.
    pub fn set_loc(&mut self, loc: Option<Loc>) {
        self.loc = loc;
    }

    // --- leaves

    /// A constant; bits beyond the class are dropped.
    pub fn constant(&mut self, class: Class, bits: u64) -> Value {
        self.kernel.const_bits(class, bits)
    }

    /// A 32-bit constant.
    pub fn u32(&mut self, value: u32) -> Value {
        self.constant(Class::B32, value.into())
    }

    /// A 32-bit constant.
    pub fn s32(&mut self, value: i32) -> Value {
        self.constant(Class::B32, value as u32 as u64)
    }

    /// A 64-bit constant.
    pub fn u64(&mut self, value: u64) -> Value {
        self.constant(Class::B64, value)
    }

    /// A 64-bit constant.
    pub fn s64(&mut self, value: i64) -> Value {
        self.constant(Class::B64, value as u64)
    }

    /// The bits of an f32.
    pub fn f32(&mut self, value: f32) -> Value {
        self.constant(Class::B32, value.to_bits().into())
    }

    /// The bits of an f64.
    pub fn f64(&mut self, value: f64) -> Value {
        self.constant(Class::B64, value.to_bits())
    }

    /// A 16-bit constant.
    pub fn b16(&mut self, bits: u16) -> Value {
        self.constant(Class::B16, bits.into())
    }

    /// A predicate.
    pub fn bool(&mut self, value: bool) -> Value {
        self.constant(Class::Pred, value.into())
    }

    /// A value that nobody will look at.
    pub fn undef(&mut self, class: Class) -> Value {
        self.kernel.leaf(class, Origin::Undef)
    }

    /// A special register; those that change while a thread runs are read here and now.
    pub fn special(&mut self, special: Special) -> Value {
        let class = Class::of(special.ty());
        if is_steady(special) {
            return self.kernel.leaf(class, Origin::Special(special));
        }
        self.read_special(special, class)
    }

    fn read_special(&mut self, special: Special, class: Class) -> Value {
        let text = if class == Class::B64 { "mov.u64" } else { "mov.u32" };
        self.value(text, &[Arg::Special(special)])
    }

    // --- instructions by their text

    /// An instruction with one result.
    pub fn value(&mut self, text: &str, args: &[Arg]) -> Value {
        let results = self.instruction(text, Results::One, args);
        results.first().copied().unwrap_or_else(|| self.undef(Class::B32))
    }

    /// An instruction without results.
    pub fn effect(&mut self, text: &str, args: &[Arg]) {
        self.instruction(text, Results::None, args);
    }

    /// An instruction: the text of its row and modifiers (`add.rn.f32`), what it defines, and its other operands in order.
    ///
    /// When the text or the operands fit no row, the error is kept for [`Builder::finish`] and the results are undefined
    /// values.
    pub fn instruction(&mut self, text: &str, results: Results<'_>, args: &[Arg]) -> Vec<Value> {
        self.instruction_with(text, results, args, Vec::new())
    }

    /// [`Builder::instruction`] with operands that the text does not show (see [`InstData::hidden`]).
    pub(crate) fn instruction_with(&mut self, text: &str, results: Results<'_>, args: &[Arg], hidden: Vec<Arg>) -> Vec<Value> {
        let ops: Arc<[Op]> = match self.kernel.ops.find(text) {
            Ok(ops) => ops,
            Err(message) => {
                self.fail(message);
                return self.stand_ins(results);
            }
        };
        let mut problem = String::new();
        for &op in ops.iter() {
            match self.fit(op, results, args) {
                Ok(args) => return self.place(op, args, hidden),
                Err(found) => problem = found,
            }
        }
        self.fail(format!("`{text}`: {problem}"));
        self.stand_ins(results)
    }

    fn stand_ins(&mut self, results: Results<'_>) -> Vec<Value> {
        match results {
            Results::None | Results::Sink => Vec::new(),
            Results::One | Results::Pair => vec![self.undef(Class::B32), self.undef(Class::Pred)],
            Results::Vector(class, count) => vec![self.undef(class); count],
            Results::Tied(value) => vec![value],
            Results::TiedVector(values) => values.to_vec(),
        }
    }

    /// The instruction's arguments with its results in front, if they fit the row. The results are numbered but not yet made.
    fn fit(&mut self, op: Op, results: Results<'_>, args: &[Arg]) -> Result<Vec<Arg>, String> {
        let data = self.kernel.ops.get(op);
        let form = form(data.row);
        let mut classes: Vec<Class> = Vec::new();
        let first = self.kernel.values.len() as u32;
        let mut next = |class: Class| {
            classes.push(class);
            Value(first + classes.len() as u32 - 1)
        };
        let stated = || {
            let rule = form.operands.first().filter(|rule| rule.defines()).ok_or("the row has no result")?;
            rule.wanted(&data.modifiers).map(Class::of).ok_or("the row does not state its result's type")
        };
        let result = match results {
            Results::None => None,
            Results::One => Some(Arg::Def(next(stated()?))),
            Results::Pair => {
                let value = next(stated()?);
                Some(Arg::Pair(value, next(Class::Pred)))
            }
            Results::Sink => Some(Arg::Sink),
            Results::Vector(class, count) => Some(Arg::Vector((0..count).map(|_| Arg::Def(next(class))).collect())),
            Results::Tied(input) => Some(Arg::Tied { input, output: next(self.kernel.class(input)) }),
            Results::TiedVector(inputs) => Some(Arg::Vector(
                inputs.iter().map(|&input| Arg::Tied { input, output: next(self.kernel.class(input)) }).collect(),
            )),
        };
        let all: Vec<Arg> = result.into_iter().chain(args.iter().cloned()).collect();
        let operands: Vec<model::Operand> = all.iter().map(as_operand).collect();
        let class_of = |id: RegId| match (id.0 as usize).checked_sub(first as usize) {
            Some(new) => classes[new].ty(),
            None => self.kernel.values[id.0 as usize].class.ty(),
        };
        matches(&form.operands, &data.modifiers, &operands, &class_of)
            .map_err(|(index, problem)| format!("operand {} {problem}", index + 1))?;
        for class in classes {
            self.kernel.new_value(class, Origin::Undef);
        }
        Ok(all)
    }

    /// Puts a fitting instruction into the current block, or its value where it folds.
    fn place(&mut self, op: Op, args: Vec<Arg>, mut hidden: Vec<Arg>) -> Vec<Value> {
        let mut defined = Vec::new();
        let effects = self.kernel.ops.get(op).effects;
        let changes_by_itself = args.iter().any(|arg| matches!(arg, Arg::Special(_)));
        for arg in &mut hidden {
            if let Arg::Tied { input, output } = arg {
                *output = self.kernel.new_value(self.kernel.class(*input), Origin::Undef);
            }
        }
        let pure = effects == Effects::Pure && !changes_by_itself;
        let tied = args.iter().any(|arg| matches!(arg, Arg::Tied { .. }))
            || matches!(&args[..], [Arg::Vector(parts), ..] if parts.iter().any(|part| matches!(part, Arg::Tied { .. })));
        let guard = if pure { None } else { self.guard };
        let data = InstData { op, guard, args, hidden, loc: self.loc, exact: false };
        data.each_def(|value| defined.push(value));
        if guard.is_some() && !defined.is_empty() && !tied {
            let text = self.kernel.ops.get(op).text.clone();
            self.fail(format!("`{text}` defines a value under a guard: it needs a value for the other case"));
        }
        if pure && defined.len() == 1 {
            // A result that folds away leaves its number unused.
            match fold(&mut self.kernel, op, &data.args) {
                Some(Folded::Value(value)) => return vec![value],
                Some(Folded::Instruction(code, args)) => return self.instruction(&code.text(), Results::One, &args),
                None => {}
            }
        }
        self.append(data);
        defined
    }

    pub(crate) fn append(&mut self, data: InstData) -> Inst {
        let inst = self.kernel.new_inst(data);
        if self.kernel.block(self.block).terminator.is_some() {
            self.fail("an instruction behind its block's end".to_owned());
        }
        self.kernel.block_mut(self.block).insts.push(inst);
        inst
    }

    // --- blocks

    /// A new block with parameters of these classes. It is placed when it is switched to.
    pub fn new_block(&mut self, classes: &[Class]) -> Block {
        let block = self.kernel.new_block();
        for &class in classes {
            self.kernel.new_block_param(block, class);
        }
        block
    }

    /// A block's parameters.
    pub fn block_params(&self, block: Block) -> Vec<Value> {
        self.kernel.block(block).params.clone()
    }

    /// The block that instructions go to.
    pub fn current_block(&self) -> Block {
        self.block
    }

    /// Whether the current block has its end already.
    pub fn is_ended(&self) -> bool {
        self.kernel.block(self.block).terminator.is_some()
    }

    /// Sends the instructions that follow to a block, which is placed behind all others the first time.
    pub fn switch_to(&mut self, block: Block) {
        if !self.kernel.layout.contains(&block) {
            self.kernel.layout.push(block);
        }
        self.block = block;
    }

    pub(crate) fn end(&mut self, terminator: Terminator) {
        for target in terminator.targets() {
            let params = &self.kernel.block(target.block).params;
            let fits = params.len() == target.args.len()
                && params.iter().zip(&target.args).all(|(&param, &arg)| self.kernel.class(param) == self.kernel.class(arg));
            if !fits {
                let message = format!("a jump's values do not fit the parameters of block {}", target.block.0);
                return self.fail(message);
            }
        }
        if self.is_ended() {
            return self.fail("a block ends twice".to_owned());
        }
        self.kernel.block_mut(self.block).terminator = Some(terminator);
    }

    /// Builds instructions that run only where the predicate is true. Pure ones run anyway; one with a result needs a value
    /// for the other case (`ld_if`). What is always true guards nothing.
    pub fn guarded(&mut self, predicate: Value, build: impl FnOnce(&mut Builder)) {
        if self.kernel.constant(predicate) == Some(1) {
            return build(self);
        }
        self.under(Guard { value: predicate, negated: false }, build);
    }

    /// [`Builder::guarded`] for a given guard.
    pub fn under<R>(&mut self, guard: Guard, build: impl FnOnce(&mut Builder) -> R) -> R {
        if self.guard.is_some() {
            self.fail("a guard inside a guard".to_owned());
        }
        self.guard = Some(guard);
        let result = build(self);
        self.guard = None;
        result
    }

    /// Builds instructions that a thread executes before all others. They jump nowhere.
    pub fn at_first(&mut self, build: impl FnOnce(&mut Builder)) {
        let entry = self.kernel.entry();
        let block = std::mem::replace(&mut self.block, entry);
        let BlockData { insts, terminator, .. } = self.kernel.block_mut(entry);
        let (rest, terminator) = (std::mem::take(insts), terminator.take());
        build(self);
        if self.block != entry || self.is_ended() {
            self.fail("what is executed first jumps".to_owned());
        }
        let data = self.kernel.block_mut(entry);
        data.insts.extend(rest);
        data.terminator = terminator;
        self.block = block;
    }

    /// An address: `base + offset`.
    pub fn at(&self, base: Value, offset: i64) -> Address {
        Address::from((base, offset))
    }
}

/// An argument in the shape of the PTX model, each value as the register of its number.
pub(crate) fn as_operand(arg: &Arg) -> model::Operand {
    let register = |value: &Value| model::Operand::Register(RegId(value.0));
    match arg {
        Arg::Def(value) | Arg::Use(value) | Arg::Tied { output: value, .. } => register(value),
        Arg::Pair(first, second) => model::Operand::Pair(Box::new((register(first), register(second)))),
        Arg::Sink => model::Operand::Sink,
        Arg::Not(value) => model::Operand::Not(RegId(value.0)),
        Arg::Int(value) => model::Operand::Int(*value),
        Arg::Special(special) => model::Operand::Special(*special),
        Arg::Address(address) => model::Operand::Address(model::Address {
            base: model::Base::Register(RegId(address.base.0)),
            offset: address.offset,
            coordinates: address.coordinates.as_ref().map(|list| list.iter().map(register).collect()),
            sampler: None,
        }),
        Arg::Vector(parts) => model::Operand::Vector(parts.iter().map(as_operand).collect()),
        Arg::List(parts) => model::Operand::List(parts.iter().map(as_operand).collect()),
        Arg::Function(name) => model::Operand::Symbol(model::Name::from(*name), 0),
    }
}
