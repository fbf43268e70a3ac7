//! A kernel in SSA form: blocks with parameters, instructions that are rows of the table, values that are register-wide bits.
//!
//! A value has a [`Class`], which is a width and nothing more: PTX lets a `.b32` register stand wherever 32 bits are asked
//! for, so what the bits mean is said by the instruction, and reinterpreting costs nothing. What needs no instruction of its
//! own is a *leaf*: constants, special registers, parameters and addresses of shared variables. Leaves belong to no block,
//! exist once, and dominate everything; those that end up in registers are loaded at the kernel's entry.
//!
//! Invariants (the verifier checks them): every value is defined once, its definition dominates its uses, and each
//! instruction's arguments fit its row.

use rustc_hash::FxHashMap;

use super::code::Code;
use super::effects::Effects;
use super::inst::{Arg, InstData, Terminator};
use super::op::{OpData, OpTable};
use crate::model::Limit;
use crate::types::Type;
use crate::word::Special;

/// The width of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A predicate.
    Pred,
    /// 16 bits.
    B16,
    /// 32 bits.
    B32,
    /// 64 bits.
    B64,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 4] = [Class::Pred, Class::B16, Class::B32, Class::B64];

    /// The type that registers of this class are declared with.
    pub const fn ty(self) -> Type {
        match self {
            Class::Pred => Type::Pred,
            Class::B16 => Type::B16,
            Class::B32 => Type::B32,
            Class::B64 => Type::B64,
        }
    }

    /// The type of sums of this width, where addresses and indices have it.
    pub(crate) const fn index(self) -> Option<Type> {
        match self {
            Class::B32 => Some(Type::U32),
            Class::B64 => Some(Type::U64),
            Class::Pred | Class::B16 => None,
        }
    }

    /// Width in bits.
    pub const fn bits(self) -> u32 {
        self.ty().bits()
    }

    /// The class that holds a type. Bytes travel in 32 bits, as loads and conversions extend them.
    pub const fn of(ty: Type) -> Class {
        match ty.bits() {
            1 if matches!(ty, Type::Pred) => Class::Pred,
            16 => Class::B16,
            64 | 128 => Class::B64,
            _ => Class::B32,
        }
    }

    /// The bits of a value that count.
    pub const fn mask(self) -> u64 {
        match self {
            Class::Pred => 1,
            Class::B16 => 0xFFFF,
            Class::B32 => 0xFFFF_FFFF,
            Class::B64 => u64::MAX,
        }
    }
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub(crate) u32);

/// A basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub(crate) u32);

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inst(pub(crate) u32);

impl Value {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Block {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Inst {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from. The variants before `BlockParam` are leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// These bits, zero-extended.
    Const(u64),
    /// Whatever the register holds.
    Undef,
    /// A special register that does not change while a thread runs.
    Special(Special),
    /// What a kernel parameter holds.
    Param(u32),
    /// The generic address of a kernel parameter (a tensor map).
    ParamAddress(u32),
    /// The address of a shared variable, with an offset in bytes.
    Shared(u32, i64),
    /// The address in global memory of constant data.
    Data(u32),
    /// The address of the thread's frame in local memory.
    Frame,
    /// A block's parameter with its position.
    BlockParam(Block, u32),
    /// A result of an instruction.
    Result(Inst),
}

impl Origin {
    /// Whether the value belongs to no block.
    pub fn is_leaf(self) -> bool {
        !matches!(self, Origin::BlockParam(..) | Origin::Result(_))
    }
}

/// A block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockData {
    /// Its parameters.
    pub params: Vec<Value>,
    /// Its instructions, in order.
    pub insts: Vec<Inst>,
    /// Its end; `None` only while it is built.
    pub terminator: Option<Terminator>,
}

/// What a kernel parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A pointer to global memory, aligned to so many bytes.
    Pointer(u32),
    /// A scalar.
    Scalar(Type),
    /// A tensor map, passed by value.
    TensorMap,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ParamKind,
}

/// A variable in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its name.
    pub name: String,
    /// Bytes; `None` for the dynamic part, whose size the launch gives.
    pub bytes: Option<u64>,
    /// Alignment in bytes.
    pub align: u32,
}

/// Constant data of the module, in global memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub bytes: Vec<u8>,
    /// Alignment in bytes.
    pub align: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ValueData {
    pub(crate) class: Class,
    pub(crate) origin: Origin,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<Param>,
    /// Its shared variables.
    pub shared: Vec<Shared>,
    /// Its constant data.
    pub data: Vec<Data>,
    /// Bytes of local memory that a thread has; aligned to 8.
    pub frame_bytes: u64,
    /// Launch limits, as printed.
    pub limits: Vec<Limit>,
    /// The order in which blocks are printed; the first is the entry. Blocks that are not in it do not exist.
    pub layout: Vec<Block>,
    pub(crate) values: Vec<ValueData>,
    pub(crate) blocks: Vec<BlockData>,
    pub(crate) insts: Vec<InstData>,
    pub(crate) ops: OpTable,
    leaves: FxHashMap<(Class, Origin), Value>,
}

impl Kernel {
    /// A kernel with an empty entry block.
    pub fn new(name: &str) -> Kernel {
        let mut kernel = Kernel {
            name: name.to_owned(),
            params: Vec::new(),
            shared: Vec::new(),
            data: Vec::new(),
            frame_bytes: 0,
            limits: Vec::new(),
            layout: Vec::new(),
            values: Vec::new(),
            blocks: Vec::new(),
            insts: Vec::new(),
            ops: OpTable::default(),
            leaves: FxHashMap::default(),
        };
        let entry = kernel.new_block();
        kernel.layout.push(entry);
        kernel
    }

    /// The block where a thread starts.
    pub fn entry(&self) -> Block {
        self.layout[0]
    }

    /// A block's contents.
    pub fn block(&self, block: Block) -> &BlockData {
        &self.blocks[block.index()]
    }

    /// A block's contents, to be changed.
    pub fn block_mut(&mut self, block: Block) -> &mut BlockData {
        &mut self.blocks[block.index()]
    }

    /// An instruction.
    pub fn inst(&self, inst: Inst) -> &InstData {
        &self.insts[inst.index()]
    }

    /// An instruction, to be changed.
    pub fn inst_mut(&mut self, inst: Inst) -> &mut InstData {
        &mut self.insts[inst.index()]
    }

    /// A value's width.
    pub fn class(&self, value: Value) -> Class {
        self.values[value.index()].class
    }

    /// Where a value comes from.
    pub fn origin(&self, value: Value) -> Origin {
        self.values[value.index()].origin
    }

    /// The bits of a constant, zero-extended.
    pub fn constant(&self, value: Value) -> Option<u64> {
        match self.origin(value) {
            Origin::Const(bits) => Some(bits),
            _ => None,
        }
    }

    /// The instruction that defines a value.
    pub fn definition(&self, value: Value) -> Option<Inst> {
        match self.origin(value) {
            Origin::Result(inst) => Some(inst),
            _ => None,
        }
    }

    /// The leaf of this origin.
    pub fn leaf(&mut self, class: Class, origin: Origin) -> Value {
        let origin = match origin {
            Origin::Const(bits) => Origin::Const(bits & class.mask()),
            other => other,
        };
        if let Some(&found) = self.leaves.get(&(class, origin)) {
            return found;
        }
        let value = self.new_value(class, origin);
        self.leaves.insert((class, origin), value);
        value
    }

    /// A constant; bits beyond the class are dropped.
    pub fn const_bits(&mut self, class: Class, bits: u64) -> Value {
        self.leaf(class, Origin::Const(bits))
    }

    /// What an instruction's operation is.
    pub fn op(&self, inst: Inst) -> &OpData {
        self.ops.get(self.inst(inst).op)
    }

    /// What an instruction may do beside computing its results.
    pub fn effects(&self, inst: Inst) -> Effects {
        let data = self.inst(inst);
        // A register that changes by itself is read where it is read.
        let reads_register = data.args.iter().any(|arg| matches!(arg, Arg::Special(_)));
        if reads_register { Effects::Effect } else { self.ops.get(data.op).effects }
    }

    /// What an instruction computes, where it is scalar arithmetic.
    pub fn code(&self, inst: Inst) -> Option<Code> {
        self.ops.get(self.inst(inst).op).code
    }

    /// The text of an instruction's operation.
    pub fn text(&self, inst: Inst) -> &str {
        &self.ops.get(self.inst(inst).op).text
    }

    /// How many instructions the blocks hold.
    pub fn size(&self) -> usize {
        self.layout.iter().map(|&block| self.block(block).insts.len()).sum()
    }

    pub(crate) fn new_value(&mut self, class: Class, origin: Origin) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueData { class, origin });
        value
    }

    pub(crate) fn new_block(&mut self) -> Block {
        let block = Block(self.blocks.len() as u32);
        self.blocks.push(BlockData { params: Vec::new(), insts: Vec::new(), terminator: None });
        block
    }

    pub(crate) fn new_block_param(&mut self, block: Block, class: Class) -> Value {
        let position = self.block(block).params.len() as u32;
        let value = self.new_value(class, Origin::BlockParam(block, position));
        self.block_mut(block).params.push(value);
        value
    }

    /// Adds an instruction to the arena and makes it the origin of its results.
    pub(crate) fn new_inst(&mut self, data: InstData) -> Inst {
        let inst = Inst(self.insts.len() as u32);
        let values = &mut self.values;
        data.each_def(|value| values[value.index()].origin = Origin::Result(inst));
        self.insts.push(data);
        inst
    }
}
