//! The state of a lowering: the function, the kernel under construction, and what each value is bound to.

use tessera_ir::{
    Block, Const, Diagnostic, DistributedType, Elem, EntityId, Func, Module, Op, OpData, OpKind, ScheduleOp, Span, Type, Value,
};
use tessera_ptx::ssa::{Builder, Class, Value as Reg};
use tessera_ptx::{Special, Type as Ty};
use tessera_types::{Arch, DType};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::bound::{Bound, Buffer, Regs, Tensor, class_of, extent_class};
use super::control::Frame;
use super::frame::{Files, identifier};
use super::rings::Ring;
use super::scratch::Scratch;
use super::send;
use tessera_analysis::barriers::NamedBarriers;
use tessera_analysis::facts::Facts;
use tessera_analysis::masks::{Masked, masked_loads};
use tessera_analysis::neighbours::{self, Vector};

/// A user's mistake or a limit of the target.
pub(super) type Lowered<T> = Result<T, Box<Diagnostic>>;

/// The warps that run what is being lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Team {
    /// The first warp of the block that belongs to it.
    pub(super) first_warp: u32,
    /// How many there are.
    pub(super) warps: u32,
    /// This warp's number among them, the same in all of its lanes, where it has been found out.
    pub(super) warp: Option<Reg>,
    /// The barrier of its threads: 0 is the block's.
    pub(super) barrier: u32,
    /// Only its first thread is here.
    pub(super) alone: bool,
}

/// Lowers one function.
pub(super) struct Lowering<'m> {
    pub(super) module: &'m Module,
    pub(super) func: &'m Func,
    /// The operation that is being lowered.
    pub(super) op: Op,
    pub(super) arch: Arch,
    pub(super) facts: Facts,
    /// Accesses by pointers that are known to touch neighbours.
    pub(super) vectors: FxHashMap<Op, Vector>,
    pub(super) b: Builder,
    pub(super) bound: Vec<Option<Bound>>,
    pub(super) frames: Vec<Frame>,
    pub(super) team: Team,
    pub(super) scratch: Scratch,
    pub(super) rings: Vec<Ring>,
    pub(super) hidden: Vec<tessera_ir::HiddenParam>,
    /// The addresses that the hidden parameters are or hold.
    pub(super) maps: Vec<Reg>,
    /// Registers that products under way still read.
    pub(super) in_flight: Vec<Reg>,
    pub(super) files: Files,
    /// The source text of the operation that is being lowered.
    pub(super) span: Span,
    /// Loads of which a selection throws elements away.
    pub(super) masked: FxHashMap<Op, Masked>,
    /// The block has memory of its own, to which pointers may lead.
    pub(super) has_memory: bool,
    /// Words by the elements that they were taken apart into: putting those together again is the word.
    pub(super) words: FxHashMap<SmallVec<[Reg; 4]>, Reg>,
    /// Scalars are each thread's own: the function says so, or asks for the number of its thread. Elsewhere the block runs one
    /// program, and what it does once, one thread does for all.
    pub(super) per_thread: bool,
    /// The blocks that were asked for along each axis, where fewer are launched.
    pub(super) asked: Vec<Reg>,
    /// Named barriers that are left for roles.
    pub(super) barriers: NamedBarriers,
    /// Warpgroups send tiles.
    pub(super) sends: bool,
    pub(super) waits_for_predecessor: bool,
}

impl<'m> Lowering<'m> {
    /// Before the first operation.
    pub(super) fn new(module: &'m Module, func: &'m Func, arch: Arch) -> Lowering<'m> {
        let warps = func.hints.warps();
        let facts = Facts::of(func);
        Lowering {
            module,
            func,
            op: Op::new(0),
            arch,
            vectors: neighbours::vectors(func, &facts),
            facts,
            b: Builder::new(&identifier(&func.name)),
            bound: vec![None; func.values.len()],
            frames: Vec::new(),
            team: Team { first_warp: 0, warps, warp: None, barrier: 0, alone: false },
            scratch: Scratch::default(),
            rings: Vec::new(),
            hidden: Vec::new(),
            maps: Vec::new(),
            asked: Vec::new(),
            in_flight: Vec::new(),
            files: Files::default(),
            span: func.span,
            per_thread: tessera_ir::uniformity::is_per_thread(func),
            masked: masked_loads(func),
            has_memory: has_memory(func),
            words: FxHashMap::default(),
            barriers: NamedBarriers::left_by(func, arch),
            sends: send::sends(func),
            waits_for_predecessor: false,
        }
    }

    /// A message about the current operation.
    pub(super) fn refuse(&self, id: &'static str, message: impl Into<String>) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(id, self.span, message))
    }

    /// Something that the target cannot do.
    pub(super) fn unsupported(&self, what: impl std::fmt::Display) -> Box<Diagnostic> {
        self.refuse("target-unsupported", format!("{what} on `{}`", self.arch))
    }

    /// What is not there although the verifier saw to it: a mistake of ours, told as such.
    pub(super) fn broken(&self, what: &str) -> Box<Diagnostic> {
        Box::new(Diagnostic::error("target-broken", self.span, format!("lowering to the target found {what}")).ours())
    }

    /// Binds a value.
    pub(super) fn bind(&mut self, value: Value, bound: Bound) {
        self.bound[value.index()] = Some(bound);
    }

    /// Binds a scalar or tile.
    pub(super) fn bind_regs(&mut self, value: Value, regs: impl IntoIterator<Item = Reg>) {
        self.bind(value, Bound::Regs(regs.into_iter().collect()));
    }

    /// What a value is bound to.
    pub(super) fn get(&self, value: Value) -> Lowered<&Bound> {
        self.bound[value.index()].as_ref().ok_or_else(|| self.broken("a value used before it is defined"))
    }

    /// The registers of a scalar or tile.
    pub(super) fn regs(&self, value: Value) -> Lowered<Regs> {
        match self.get(value)? {
            Bound::Regs(regs) => Ok(regs.clone()),
            _ => Err(self.broken("something else where a tile is needed")),
        }
    }

    /// The register of a scalar.
    pub(super) fn reg(&self, value: Value) -> Lowered<Reg> {
        match self.regs(value)?.as_slice() {
            [reg] => Ok(*reg),
            _ => Err(self.broken("a tile where a scalar is needed")),
        }
    }

    /// An array.
    pub(super) fn tensor(&self, value: Value) -> Lowered<Tensor> {
        match self.get(value)? {
            Bound::Tensor(tensor) => Ok(tensor.clone()),
            _ => Err(self.broken("something else where a view is needed")),
        }
    }

    /// A buffer in shared memory or of the thread's own.
    pub(super) fn buffer(&self, value: Value) -> Lowered<Buffer> {
        match self.get(value)? {
            Bound::Buffer(buffer) | Bound::Array(buffer) => Ok(buffer.clone()),
            _ => Err(self.broken("something else where a buffer is needed")),
        }
    }

    /// The element type of a scalar or tile.
    pub(super) fn elem(&self, value: Value) -> Lowered<Elem> {
        self.func.ty(value).as_tile().map(|tile| tile.elem).ok_or_else(|| self.broken("something else where a tile is needed"))
    }

    /// The number type of a scalar or tile of numbers; pointers count as 64-bit integers.
    pub(super) fn dtype(&self, value: Value) -> Lowered<DType> {
        Ok(match self.elem(value)? {
            Elem::Num(dtype) => dtype,
            Elem::Ptr(_) => DType::I64,
        })
    }

    /// A scalar integer, sign-extended to 32 bits (`None` where it has 64).
    pub(super) fn index32(&mut self, value: Value) -> Lowered<Option<Reg>> {
        let (reg, dtype) = (self.reg(value)?, self.dtype(value)?);
        Ok((dtype.bits() <= 32).then(|| self.signed(dtype, reg)))
    }

    /// A scalar integer, sign-extended to 64 bits.
    pub(super) fn index64(&mut self, value: Value) -> Lowered<Reg> {
        let (reg, dtype) = (self.reg(value)?, self.dtype(value)?);
        let reg = self.signed(dtype, reg);
        Ok(self.widen(reg))
    }

    /// 64 bits out of a sign-extended integer of 32 or 64.
    pub(super) fn widen(&mut self, reg: Reg) -> Reg {
        match self.class(reg) {
            Class::B64 => reg,
            _ => self.b.cvt(Ty::S64, Ty::S32, reg),
        }
    }

    /// The class of a register.
    pub(super) fn class(&self, reg: Reg) -> Class {
        self.b.kernel().class(reg)
    }

    /// An instruction of registers only.
    pub(super) fn op(&mut self, text: &str, args: &[Reg]) -> Reg {
        let args: Vec<_> = args.iter().map(|&arg| arg.into()).collect();
        self.b.value(text, &args)
    }

    /// The bits of an element as a register.
    pub(super) fn bits(&mut self, elem: Elem, bits: u64) -> Reg {
        self.b.constant(class_of(elem), bits)
    }

    /// This thread's number in its team, 0 and up.
    pub(super) fn thread(&mut self) -> Reg {
        if self.func.hints.programs.is_some() {
            return self.lane();
        }
        let thread = self.b.special(Special::TidX);
        match self.team.first_warp {
            0 => thread,
            first => {
                let first = self.b.u32(first * Arch::WARP);
                self.b.sub(Ty::S32, thread, first)
            }
        }
    }

    /// The place along x of this warp's program, one of those that the block with this number takes.
    pub(super) fn program_of(&mut self, block: Reg) -> Reg {
        let (threads, thread, five) = (self.b.special(Special::NtidX), self.b.special(Special::TidX), self.b.u32(5));
        let (together, own) = (self.b.shr(Ty::U32, threads, five), self.b.shr(Ty::U32, thread, five));
        let first = self.b.mul(Ty::U32, block, together);
        self.b.add(Ty::U32, first, own)
    }

    /// Waits for all threads of the team.
    pub(super) fn meet(&mut self) {
        if self.team.warps == 1 && self.func.hints.threads().is_multiple_of(Arch::WARP) {
            self.b.warp_sync();
        } else if self.team.barrier == 0 {
            self.b.bar_sync_all();
        } else {
            let id = self.b.u32(self.team.barrier);
            self.b.bar_sync(id, self.team.warps * Arch::WARP);
        }
    }

    /// A value that one thread has, in all threads of the team.
    pub(super) fn spread_scalar(&mut self, elem: Elem, reg: Reg) -> Lowered<Reg> {
        let base = self.exchange(8, 16)?;
        let first = self.is_first_thread();
        self.put(elem, base, reg, Some(first));
        self.meet();
        Ok(self.take(elem, base))
    }

    /// The classes of the registers that values of a type are carried in through loops and branches.
    pub(super) fn classes(&self, ty: &Type) -> Lowered<Vec<Class>> {
        Ok(match ty {
            Type::Tile(tile) => vec![class_of(tile.elem)],
            Type::Distributed(ty) if in_words(ty) => vec![Class::B32; ty.layout.registers() as usize / 2],
            Type::Distributed(ty) | Type::InFlight(ty) => {
                let class = if matches!(ty.tile.elem, Elem::Num(DType::F32)) { Class::B32 } else { class_of(ty.tile.elem) };
                vec![class; ty.layout.registers() as usize]
            }
            Type::Token => Vec::new(),
            Type::Cursor => vec![Class::B32; 2],
            Type::TensorView(view) => self.view_classes(view),
            Type::TileView(view) => self.view_classes(&view.tensor),
            Type::Shared(_) => vec![Class::B32],
            Type::Registers(_) | Type::Ring(_) | Type::Tensor(_) | Type::Operand(_) => {
                return Err(self.broken("a value that no loop can carry"));
            }
        })
    }

    fn view_classes(&self, view: &tessera_ir::TensorViewType) -> Vec<Class> {
        let extents = view.shape.iter().chain(&view.strides);
        std::iter::once(Class::B64).chain(extents.map(|&extent| extent_class(extent))).collect()
    }

    /// The registers that a value is carried in.
    pub(super) fn flatten(&mut self, value: Value) -> Lowered<Vec<Reg>> {
        Ok(match self.get(value)?.clone() {
            Bound::Regs(regs) => match self.func.ty(value) {
                Type::Distributed(ty) if in_words(ty) => self.factors(ty.tile.elem, &regs),
                _ => regs.to_vec(),
            },
            Bound::Tensor(tensor) => {
                let wanted = self.classes(self.func.ty(value))?;
                let all = std::iter::once(tensor.base).chain(tensor.sizes).chain(tensor.strides);
                let all: Vec<Reg> = all.collect();
                if all.iter().zip(&wanted).any(|(&reg, &class)| self.class(reg) != class) {
                    return Err(self.unsupported("a view of an array with 64-bit sizes cannot be carried around a loop"));
                }
                all
            }
            Bound::Buffer(buffer) => vec![buffer.base],
            Bound::Cursor(cursor) => cursor.to_vec(),
            Bound::Token => Vec::new(),
            Bound::Ring(_) | Bound::Array(_) => return Err(self.broken("a value that no loop can carry")),
        })
    }

    /// Binds a value to carried registers.
    pub(super) fn rebuild(&mut self, value: Value, regs: &[Reg], like: Option<Value>) -> Lowered<()> {
        let bound = match self.func.ty(value) {
            Type::Distributed(ty) if in_words(ty) => Bound::Regs(self.split(ty.tile.elem, regs, 2 * regs.len()).into()),
            Type::Tile(_) | Type::Distributed(_) | Type::InFlight(_) => Bound::Regs(regs.iter().copied().collect()),
            Type::Token => Bound::Token,
            Type::Cursor => Bound::Cursor([regs[0], regs[1]]),
            Type::TensorView(_) | Type::TileView(_) => {
                let rank = (regs.len() - 1) / 2;
                Bound::Tensor(Tensor {
                    base: regs[0],
                    sizes: regs[1..1 + rank].iter().copied().collect(),
                    strides: regs[1 + rank..].iter().copied().collect(),
                })
            }
            Type::Shared(ty) => {
                let whole = Buffer::whole(regs[0], ty);
                Bound::Buffer(match like.map(|like| self.buffer(like)) {
                    Some(like) => Buffer { base: regs[0], lies: like?.lies, entry: None },
                    None => whole,
                })
            }
            Type::Registers(_) | Type::Ring(_) | Type::Tensor(_) | Type::Operand(_) => {
                return Err(self.broken("a value that no loop can carry"));
            }
        };
        self.bind(value, bound);
        Ok(())
    }

    /// Lowers the operations of a block, its terminator included.
    pub(super) fn block(&mut self, block: Block) -> Lowered<()> {
        let func = self.func;
        let mut at = 0;
        let ops = &func.blocks[block].ops;
        while at < ops.len() {
            let op = ops[at];
            (self.op, self.scratch.last) = (op, None);
            self.span = func.ops[op].span;
            if !self.is_recording() {
                self.files.set_loc(&mut self.b, self.module, self.span);
            }
            at += match self.roles(&ops[at..])? {
                0 => {
                    self.operation(op)?;
                    1
                }
                taken => taken,
            };
        }
        Ok(())
    }

    /// The number of an attribute-free constant that a scalar is, if it is one.
    pub(super) fn known(&self, value: Value) -> Option<i64> {
        self.func.constant(value).and_then(Const::as_int).or_else(|| self.facts.fact(value).value())
    }

    /// The operation's data.
    pub(super) fn data(&self, op: Op) -> &'m OpData {
        &self.func.ops[op]
    }
}

/// Whether a function allocates memory that pointers lead to.
fn has_memory(func: &Func) -> bool {
    func.linked_ops().into_iter().any(|op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Alloca { .. })))
}

/// Elements of 16 bits go around loops two to a register.
fn in_words(ty: &DistributedType) -> bool {
    class_of(ty.tile.elem) == Class::B16 && ty.layout.registers().is_multiple_of(2)
}
