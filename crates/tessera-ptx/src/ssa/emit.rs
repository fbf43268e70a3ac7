//! From SSA to the PTX model.
//!
//! Every class of values that share a register becomes one virtual register; what could not be shared becomes copies: on the
//! jump for block arguments, in front of the instruction for tied operands. Constants go where the row takes immediates, the
//! addresses of shared variables into address operands; other leaves are loaded once, at the kernel's entry.

use std::collections::BTreeMap;

use super::builder::as_operand;
use super::cfg::Cfg;
use super::copies::sequence;
use super::inst::{Arg, Terminator};
use super::kernel::{Block, Class, Data, Inst, Kernel, Origin, ParamKind, Value};
use super::liveness::Liveness;
use super::names::{declarations, renumber};
use super::op::OpTable;
use super::registers::Registers;
use crate::check::needs;
use crate::form::{form, types_of};
use crate::mnemonic::Mnemonic;
use crate::model::{
    Address, Base, Function, FunctionKind, Guard, Initial, Instruction, Item, Line, Linkage, Loc, Module, Name, Operand, RegId,
    Space, Statement, Variable,
};
use crate::operand_rule::{Immediate, assign};
use crate::target::{PtxVersion, Target};
use crate::types::{Kind, Type};

/// The name of a thread's frame.
const FRAME: &str = "frame";

/// What the way out of SSA did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmitReport {
    /// Instructions, copies included.
    pub instructions: usize,
    /// Copies inside loops.
    pub moves_in_loops: usize,
    /// Copies of accumulators (operands tied to a `wgmma`) inside loops: each stalls the tensor cores.
    pub accumulator_moves_in_loops: usize,
}

/// A kernel as a function of the PTX model. The kernel is legal (see [`verify`](super::verify)).
pub fn emit(kernel: &Kernel) -> (Function, EmitReport) {
    let cfg = Cfg::new(kernel);
    let liveness = Liveness::new(kernel, &cfg);
    let registers = Registers::new(kernel, &cfg, &liveness);
    let count = kernel.values.len();
    let emitter = Emitter {
        kernel,
        accumulators: accumulators(kernel, &cfg, &registers),
        cfg,
        registers,
        register_of: vec![None; count],
        declared: Vec::new(),
        frame: OpTable::default(),
        entry: Vec::new(),
        body: Vec::new(),
        labels: BTreeMap::new(),
        heads: BTreeMap::new(),
        loc: None,
        report: EmitReport::default(),
    };
    emitter.run()
}

/// A module of kernels for a target. The version is the usual one of the target, or a later one that an instruction needs; `files` are the
/// sources that places refer to, from number 1 on.
pub fn module(kernels: &[Kernel], target: Target, files: &[String]) -> (Module, Vec<EmitReport>) {
    let mut version = PtxVersion::usual_for(target);
    let mut items: Vec<Item> = files.iter().zip(1..).map(|(path, index)| Item::File { index, path: path.clone() }).collect();
    let mut reports = Vec::new();
    let mut dynamic: Vec<Variable> = Vec::new();
    let mut prints = false;
    for kernel in kernels {
        prints |= kernel
            .layout
            .iter()
            .flat_map(|&block| &kernel.block(block).insts)
            .any(|&inst| kernel.op(inst).mnemonic() == Mnemonic::Call);
        let used = kernel.layout.iter().flat_map(|&block| &kernel.block(block).insts);
        let needed = used.map(|&inst| {
            let op = kernel.ops.get(kernel.inst(inst).op);
            needs(op.row, &op.modifiers, &[]).0
        });
        version = needed.fold(version, Ord::max);
        for shared in kernel.shared.iter().filter(|shared| shared.bytes.is_none()) {
            match dynamic.iter_mut().find(|known| *known.name.0 == shared.name) {
                Some(known) => known.align = known.align.max(Some(shared.align)),
                None => dynamic.push(Variable {
                    linkage: Linkage::Extern,
                    extents: vec![None],
                    ..bytes(&shared.name, Space::Shared, shared.align)
                }),
            }
        }
    }
    items.extend(dynamic.into_iter().map(Item::Variable));
    items.extend(prints.then(vprintf).map(Item::Function));
    items.extend(kernels.iter().flat_map(|kernel| &kernel.data).map(|data| Item::Variable(constant(data))));
    for kernel in kernels {
        let (function, report) = emit(kernel);
        items.push(Item::Function(function));
        reports.push(report);
    }
    (Module { version, target, independent_samplers: false, address_size: 64, items }, reports)
}

fn bytes(name: &str, space: Space, align: u32) -> Variable {
    Variable {
        linkage: Linkage::Internal,
        space,
        align: Some(align),
        ty: Type::B8,
        lanes: 1,
        pointee: None,
        name: Name::from(name),
        extents: Vec::new(),
        initial: Vec::new(),
    }
}

/// Constant data as a variable.
fn constant(data: &Data) -> Variable {
    Variable {
        extents: vec![Some(data.bytes.len() as u64)],
        initial: data.bytes.iter().map(|&byte| Initial::Int(byte.into())).collect(),
        ..bytes(&data.name, Space::Global, data.align)
    }
}

/// The driver's function that prints: a format and the address of what it formats.
fn vprintf() -> Function {
    let param = |name, ty| Variable { ty, align: None, ..bytes(name, Space::Param, 1) };
    Function {
        kind: FunctionKind::Device,
        linkage: Linkage::Extern,
        name: Name::from("vprintf"),
        results: vec![param("printed", Type::B32)],
        params: vec![param("format", Type::B64), param("arguments", Type::B64)],
        limits: Vec::new(),
        registers: Vec::new(),
        body: None,
    }
}

/// The register classes that a `wgmma` adds to.
fn accumulators(kernel: &Kernel, cfg: &Cfg, registers: &Registers) -> Vec<bool> {
    let mut found = vec![false; kernel.values.len()];
    for inst in cfg.order.iter().flat_map(|&block| &kernel.block(block).insts) {
        let inst = kernel.inst(*inst);
        if kernel.ops.get(inst.op).mnemonic() == Mnemonic::Wgmma {
            inst.each_tied(|_, output| found[registers.of(output)] = true);
        }
    }
    found
}

struct Emitter<'a> {
    kernel: &'a Kernel,
    cfg: Cfg,
    registers: Registers,
    accumulators: Vec<bool>,
    /// The register of each class of values, and of each leaf by its own number.
    register_of: Vec<Option<RegId>>,
    declared: Vec<Class>,
    /// Rows of the instructions that the way out adds itself.
    frame: OpTable,
    entry: Vec<Statement>,
    body: Vec<Statement>,
    /// Blocks that are jumped to, and places inside a branch, by number.
    labels: BTreeMap<Block, Name>,
    /// Copies at the head of blocks with one predecessor.
    heads: BTreeMap<Block, Vec<(Value, Value)>>,
    loc: Option<Loc>,
    report: EmitReport,
}

impl Emitter<'_> {
    fn run(mut self) -> (Function, EmitReport) {
        let kernel = self.kernel;
        let layout: Vec<Block> = kernel.layout.iter().copied().filter(|&block| self.cfg.is_reachable(block)).collect();
        for (index, &block) in layout.iter().enumerate() {
            self.block(block, layout.get(index + 1).copied());
        }
        let mut shared = Vec::new();
        for variable in &kernel.shared {
            if let Some(size) = variable.bytes {
                let declared = bytes(&variable.name, Space::Shared, variable.align);
                shared.push(Statement::Variable(Variable { extents: vec![Some(size)], ..declared }));
            }
        }
        if kernel.frame_bytes > 0 {
            let frame = Variable { extents: vec![Some(kernel.frame_bytes)], ..bytes(FRAME, Space::Local, 8) };
            shared.push(Statement::Variable(frame));
        }
        let mut body = self.entry;
        body.append(&mut self.body);
        let used: Vec<Name> = jumped_to(&body);
        body.retain(|statement| !matches!(statement, Statement::Label(name) if used.binary_search(name).is_err()));
        self.report.instructions = body.iter().filter(|statement| matches!(statement, Statement::Instruction(_))).count();
        let registers = renumber(&mut body, &self.declared);
        let mut statements = declarations(&registers);
        statements.extend(shared);
        statements.extend(body);
        let function = Function {
            kind: FunctionKind::Entry,
            linkage: Linkage::Visible,
            name: Name::from(kernel.name.as_str()),
            results: Vec::new(),
            params: kernel.params.iter().map(param).collect(),
            limits: kernel.limits.clone(),
            registers,
            body: Some(statements),
        };
        (function, self.report)
    }

    fn block(&mut self, block: Block, next: Option<Block>) {
        let kernel = self.kernel;
        let label = self.label(block);
        self.body.push(Statement::Label(label));
        if let Some(copies) = self.heads.remove(&block) {
            self.copies(&copies, self.cfg.depth[block.index()]);
        }
        for &inst in &kernel.block(block).insts {
            self.instruction(block, inst);
        }
        match &kernel.block(block).terminator {
            Some(Terminator::Jump(target)) => {
                self.arguments(block, target.block, &target.args);
                self.jump(target.block, next);
            }
            Some(Terminator::Branch { condition, then, otherwise }) => {
                let (mut first, mut second) = (self.moves(then), self.moves(otherwise));
                let both = self.take_common(&mut first, &mut second);
                self.copies(&both, self.cfg.depth[block.index()]);
                for (target, moves) in [(then.block, &mut first), (otherwise.block, &mut second)] {
                    // A block that is entered from here only takes its copies along.
                    let placed = self.cfg.order.iter().position(|&found| found == target);
                    if self.cfg.preds[target.index()].len() == 1 && placed.is_some() && !moves.is_empty() {
                        self.heads.insert(target, std::mem::take(moves));
                    }
                }
                let depth = |target: Block| self.cfg.depth[block.index()].min(self.cfg.depth[target.index()]);
                let (depth_first, depth_second) = (depth(then.block), depth(otherwise.block));
                match (first.is_empty(), second.is_empty()) {
                    (true, true) if next == Some(then.block) => self.branch(*condition, true, otherwise.block),
                    (true, _) => {
                        self.branch(*condition, false, then.block);
                        self.copies(&second, depth_second);
                        self.jump(otherwise.block, next);
                    }
                    (false, true) => {
                        self.branch(*condition, true, otherwise.block);
                        self.copies(&first, depth_first);
                        self.jump(then.block, next);
                    }
                    (false, false) => {
                        let other = Name::from(format!("L{}_else", block.0).as_str());
                        self.branch_to(*condition, true, other.clone());
                        self.copies(&first, depth_first);
                        self.jump(then.block, None);
                        self.body.push(Statement::Label(other));
                        self.copies(&second, depth_second);
                        self.jump(otherwise.block, next);
                    }
                }
            }
            Some(Terminator::Return) | None => self.frame("ret", Vec::new()),
            Some(Terminator::Exit) => self.frame("exit", Vec::new()),
            Some(Terminator::Trap) => {
                // The assembler wants every path to end.
                self.frame("trap", Vec::new());
                self.frame("ret", Vec::new());
            }
        }
    }

    fn label(&mut self, block: Block) -> Name {
        self.labels.entry(block).or_insert_with(|| Name::from(format!("L{}", block.0).as_str())).clone()
    }

    fn jump(&mut self, target: Block, next: Option<Block>) {
        if next != Some(target) {
            let label = self.label(target);
            self.frame("bra", vec![Operand::Symbol(label, 0)]);
        }
    }

    fn branch(&mut self, condition: Value, negated: bool, target: Block) {
        let label = self.label(target);
        self.branch_to(condition, negated, label);
    }

    fn branch_to(&mut self, condition: Value, negated: bool, label: Name) {
        let guard = Guard { register: self.register(condition), negated };
        self.frame_under(Some(guard), "bra", vec![Operand::Symbol(label, 0)]);
    }

    // --- copies

    /// The block arguments of a jump that are not where the parameters are.
    fn moves(&self, target: &super::inst::Target) -> Vec<(Value, Value)> {
        let params = &self.kernel.block(target.block).params;
        let pairs = params.iter().copied().zip(target.args.iter().copied());
        pairs.filter(|&(to, from)| self.moves_bits(to, from)).collect()
    }

    /// Takes out the constants that both ways put into the same registers: they can be put there in front of the branch, as
    /// long as no other copy reads what the register holds before.
    fn take_common(&self, first: &mut Vec<(Value, Value)>, second: &mut Vec<(Value, Value)>) -> Vec<(Value, Value)> {
        let place = |(to, from): &(Value, Value)| (self.registers.of(*to), *from);
        let reads = |copies: &[(Value, Value)], register: usize| {
            let others = copies.iter().filter(|(_, from)| !self.kernel.origin(*from).is_leaf());
            others.into_iter().any(|(_, from)| self.registers.of(*from) == register)
        };
        let constant = |copy: &&(Value, Value)| {
            let (to, from) = **copy;
            let register = self.registers.of(to);
            self.kernel.origin(from).is_leaf()
                && self.kernel.class(to) != Class::Pred
                && second.iter().any(|other| place(other) == place(copy))
                && !reads(first, register)
                && !reads(second, register)
        };
        let common: Vec<(Value, Value)> = first.iter().filter(constant).copied().collect();
        let known: Vec<(usize, Value)> = common.iter().map(place).collect();
        for copies in [first, second] {
            copies.retain(|copy| !known.contains(&place(copy)));
        }
        common
    }

    fn moves_bits(&self, to: Value, from: Value) -> bool {
        let origin = self.kernel.origin(from);
        origin != Origin::Undef && (origin.is_leaf() || self.registers.of(to) != self.registers.of(from))
    }

    fn arguments(&mut self, from: Block, to: Block, args: &[Value]) {
        let pairs: Vec<(Value, Value)> = self.kernel.block(to).params.iter().copied().zip(args.iter().copied()).collect();
        let depth = self.cfg.depth[from.index()].min(self.cfg.depth[to.index()]);
        self.copies(&pairs, depth);
    }

    /// Parallel copies between values; leaves are loaded behind the others, as nothing overwrites them.
    fn copies(&mut self, pairs: &[(Value, Value)], depth: u32) {
        let moved: Vec<(Value, Value)> = pairs.iter().copied().filter(|&(to, from)| self.moves_bits(to, from)).collect();
        if moved.is_empty() {
            return;
        }
        if depth > 0 {
            self.report.moves_in_loops += moved.len();
            let accumulators = moved.iter().filter(|(to, _)| self.accumulators[self.registers.of(*to)]).count();
            self.report.accumulator_moves_in_loops += accumulators;
        }
        let (leaves, others): (Vec<_>, Vec<_>) = moved.into_iter().partition(|(_, from)| self.kernel.origin(*from).is_leaf());
        // Registers that stay where they are take part: they must not be overwritten before they are read elsewhere.
        let pairs: Vec<(RegId, RegId)> = others.iter().map(|&(to, from)| (self.register(to), self.register(from))).collect();
        let declared = &mut self.declared;
        let order = sequence(&pairs, |like| {
            declared.push(declared[like.0 as usize]);
            RegId(declared.len() as u32 - 1)
        });
        for (to, from) in order {
            let class = self.declared[to.0 as usize];
            self.mov(class, to, Operand::Register(from));
        }
        for (to, from) in leaves {
            let class = self.kernel.class(to);
            let to = self.register(to);
            match self.kernel.origin(from) {
                Origin::Const(bits) => self.mov(class, to, Operand::Int(bits as i64)),
                _ => {
                    let from = Operand::Register(self.register(from));
                    self.mov(class, to, from);
                }
            }
        }
    }

    fn mov(&mut self, class: Class, to: RegId, from: Operand) {
        self.frame(&format!("mov.{}", class.ty()), vec![Operand::Register(to), from]);
    }

    // --- registers

    fn new_register(&mut self, class: Class) -> RegId {
        self.declared.push(class);
        RegId(self.declared.len() as u32 - 1)
    }

    /// The register that holds a value; a leaf is loaded into one at the entry.
    fn register(&mut self, value: Value) -> RegId {
        let origin = self.kernel.origin(value);
        let class = self.kernel.class(value);
        if !origin.is_leaf() {
            let index = self.registers.of(value);
            if let Some(found) = self.register_of[index] {
                return found;
            }
            let new = self.new_register(class);
            self.register_of[index] = Some(new);
            return new;
        }
        if let Some(found) = self.register_of[value.index()] {
            return found;
        }
        let register = self.new_register(class);
        self.register_of[value.index()] = Some(register);
        let (text, from) = self.leaf(class, origin);
        let instruction = self.make(None, &text, vec![Operand::Register(register), from]);
        self.entry.push(instruction);
        register
    }

    /// The instruction that loads a leaf.
    fn leaf(&self, class: Class, origin: Origin) -> (String, Operand) {
        let mov = format!("mov.{}", class.ty());
        let symbol = |index: u32| Name::from(self.kernel.params[index as usize].name.as_str());
        match origin {
            Origin::Const(bits) => (mov, Operand::Int(bits as i64)),
            Origin::Special(special) => (format!("mov.{}", special.ty()), Operand::Special(special)),
            Origin::Param(index) => {
                let ty = match self.kernel.params[index as usize].kind {
                    ParamKind::Scalar(ty) if ty.bits() == 8 => ty,
                    _ => class.ty(),
                };
                let address = Address { base: Base::Symbol(symbol(index)), offset: 0, coordinates: None, sampler: None };
                (format!("ld.param.{ty}"), Operand::Address(address))
            }
            Origin::ParamAddress(index) => ("cvta.param.u64".to_owned(), Operand::Symbol(symbol(index), 0)),
            Origin::Shared(index, offset) => {
                (mov, Operand::Symbol(Name::from(self.kernel.shared[index as usize].name.as_str()), offset))
            }
            Origin::Data(index) => (mov, Operand::Symbol(Name::from(self.kernel.data[index as usize].name.as_str()), 0)),
            Origin::Frame => (mov, Operand::Symbol(Name::from(FRAME), 0)),
            Origin::Undef | Origin::BlockParam(..) | Origin::Result(_) => (mov, Operand::Int(0)),
        }
    }

    // --- instructions

    fn instruction(&mut self, block: Block, inst: Inst) {
        let kernel = self.kernel;
        let data = kernel.inst(inst);
        let mut tied = Vec::new();
        data.each_tied(|input, output| tied.push((output, input)));
        self.copies(&tied, self.cfg.depth[block.index()]);
        if data.loc.is_some() && data.loc != self.loc {
            self.loc = data.loc;
            self.body.extend(data.loc.map(|loc| Statement::Loc(loc, None)));
        }
        let op = kernel.ops.get(data.op);
        // Which operands may be immediates matters only where there are constants.
        let mut constants = false;
        data.each_use(|value| constants |= matches!(kernel.origin(value), Origin::Const(_) | Origin::Undef));
        let types = |id: RegId| kernel.values[id.0 as usize].class.ty();
        let mut rules = Vec::new();
        if constants {
            let plain: Vec<Operand> = data.args.iter().map(as_operand).collect();
            rules = assign(&form(op.row).operands, &op.modifiers, &plain, &types).unwrap_or_default();
        }
        let operands = data
            .args
            .iter()
            .enumerate()
            .map(|(index, arg)| {
                let rule = rules.get(index).copied();
                let immediate = rule.map_or(Immediate::None, |rule| rule.immediate(&op.modifiers));
                self.operand(arg, immediate)
            })
            .collect();
        let guard = data.guard.map(|guard| Guard { register: self.register(guard.value), negated: guard.negated });
        self.body.push(Statement::Instruction(Instruction {
            line: Line::default(),
            guard,
            row: op.row,
            modifiers: op.modifiers.clone(),
            operands,
        }));
    }

    fn operand(&mut self, arg: &Arg, immediate: Immediate) -> Operand {
        match arg {
            Arg::Def(value) | Arg::Tied { output: value, .. } => Operand::Register(self.register(*value)),
            Arg::Pair(first, second) => {
                Operand::Pair(Box::new((Operand::Register(self.register(*first)), Operand::Register(self.register(*second)))))
            }
            Arg::Sink => Operand::Sink,
            Arg::Use(value) => self.source(*value, immediate),
            Arg::Not(value) => Operand::Not(self.register(*value)),
            Arg::Int(value) => Operand::Int(*value),
            Arg::Special(special) => Operand::Special(*special),
            Arg::Address(address) => Operand::Address(self.address(address)),
            Arg::Vector(parts) => Operand::Vector(parts.iter().map(|part| self.operand(part, immediate)).collect()),
            Arg::List(parts) => Operand::List(parts.iter().map(|part| self.operand(part, immediate)).collect()),
            Arg::Function(name) => Operand::Symbol(Name::from(*name), 0),
        }
    }

    fn source(&mut self, value: Value, immediate: Immediate) -> Operand {
        let bits = match self.kernel.origin(value) {
            Origin::Const(bits) => bits,
            Origin::Undef => 0,
            _ => return Operand::Register(self.register(value)),
        };
        match immediate {
            Immediate::None => Operand::Register(self.register(value)),
            Immediate::Bits => Operand::Int(bits as i64),
            Immediate::Of(ty) => match (ty, ty.kind()) {
                (Type::F32, _) => Operand::F32(bits as u32),
                (Type::F64, _) => Operand::F64(bits),
                (_, Kind::Float | Kind::Predicate | Kind::Handle) => Operand::Register(self.register(value)),
                (_, Kind::Int | Kind::Untyped) => Operand::Int(integer(ty, bits)),
            },
        }
    }

    fn address(&mut self, address: &super::inst::Address) -> Address {
        let (base, more) = match self.kernel.origin(address.base) {
            Origin::Shared(index, offset) => (Base::Symbol(Name::from(self.kernel.shared[index as usize].name.as_str())), offset),
            Origin::Const(bits) => (Base::Zero, bits as i64),
            _ => (Base::Register(self.register(address.base)), 0),
        };
        let coordinates = address
            .coordinates
            .as_ref()
            .map(|list| list.iter().map(|&value| self.source(value, Immediate::Of(Type::S32))).collect());
        Address { base, offset: address.offset.wrapping_add(more), coordinates, sampler: None }
    }

    fn frame(&mut self, text: &str, operands: Vec<Operand>) {
        self.frame_under(None, text, operands);
    }

    fn frame_under(&mut self, guard: Option<Guard>, text: &str, operands: Vec<Operand>) {
        let statement = self.make(guard, text, operands);
        self.body.push(statement);
    }

    /// An instruction of the way out: the first row that takes the operands.
    fn make(&mut self, guard: Option<Guard>, text: &str, operands: Vec<Operand>) -> Statement {
        let ops = self.frame.find(text).unwrap_or_else(|problem| panic!("{problem}"));
        let types = |id: RegId| self.declared[id.0 as usize].ty();
        let fits = |op: &&super::op::Op| {
            let data = self.frame.get(**op);
            assign(&form(data.row).operands, &data.modifiers, &operands, &types).is_ok()
        };
        let op = ops.iter().find(fits).unwrap_or_else(|| panic!("`{text}` takes no such operands"));
        let data = self.frame.get(*op);
        debug_assert!(types_of(&data.modifiers).count() <= 1);
        Statement::Instruction(Instruction {
            line: Line::default(),
            guard,
            row: data.row,
            modifiers: data.modifiers.clone(),
            operands,
        })
    }
}

/// A constant as the integer that is printed for a type.
fn integer(ty: Type, bits: u64) -> i64 {
    let unused = 64 - ty.bits().min(64);
    let signed = matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64);
    if signed { ((bits << unused) as i64) >> unused } else { ((bits << unused) >> unused) as i64 }
}

fn jumped_to(body: &[Statement]) -> Vec<Name> {
    let mut names: Vec<Name> = body
        .iter()
        .filter_map(|statement| match statement {
            Statement::Instruction(instruction) if instruction.row.mnemonic() == Mnemonic::Bra => match &instruction.operands[..]
            {
                [Operand::Symbol(name, _)] => Some(name.clone()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn param(param: &super::kernel::Param) -> Variable {
    let plain = |ty: Type| Variable { ty, align: None, ..bytes(&param.name, Space::Param, 1) };
    match param.kind {
        ParamKind::Pointer(align) => Variable { pointee: Some((Some(Space::Global), align)), ..plain(Type::U64) },
        ParamKind::Scalar(ty) => plain(ty),
        ParamKind::TensorMap => Variable { extents: vec![Some(128)], ..bytes(&param.name, Space::Param, 64) },
    }
}
