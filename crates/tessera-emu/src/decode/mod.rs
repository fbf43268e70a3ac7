//! From a PTX kernel to a [`Program`].
//!
//! Statements are translated in order. Each scope keeps its own labels and variables, as PTX does. Calls are translated in
//! `calls`. What is known before the launch becomes a constant: addresses of variables, offsets of parameters, immediates.

mod arithmetic;
mod asynchronous;
mod calls;
mod flow;
mod matrix;
mod memory;
mod modifiers;
mod operands;
mod refused;
mod texture;
mod video;
mod warp;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ptx::{
    Function, FunctionKind, Instruction, Item, Limit, Loc, Module, Name, Register, Space as VariableSpace, Statement, Variable,
};

use self::modifiers::Mods;
use crate::program::{FUNCTION_WINDOW, Fill, Inst, Meta, Op, ParamSlot, Pred, Program, Reg, Routine, SHARED_START, STACK_BYTES};

/// Bytes of a thread's local memory that `alloca` may take.
const ALLOCA_BYTES: u32 = 1 << 14;

/// A kernel with more operations than this after inlining is refused.
const MOST_OPERATIONS: usize = 4_000_000;

/// Why a kernel was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) line: u32,
    pub(crate) message: String,
}

type Result<T> = std::result::Result<T, String>;

/// Where a variable is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Global(u64),
    Shared(u32),
    /// Behind the static shared memory, wherever that ends.
    Dynamic,
    Local(u32),
    /// In the frame of the routine under translation.
    Frame(u32),
    Param(u32),
    /// A function's address.
    Function(u64),
}

/// What a register of the function stands for.
#[derive(Clone, Copy, Debug)]
enum Binding {
    None,
    Slot(Reg),
    /// The halves of a 128-bit register, lower first.
    Pair([Reg; 2]),
    Predicate(u32),
}

struct Frame<'m> {
    registers: &'m [Register],
    bindings: Vec<Binding>,
    /// Branches to the end of an inlined function.
    returns: Vec<usize>,
}

struct Builder<'m> {
    module: &'m Module,
    globals: &'m BTreeMap<Name, u64>,
    code: Vec<Inst>,
    meta: Vec<Meta>,
    slots: Vec<Fill>,
    names: Vec<String>,
    predicate_names: Vec<String>,
    constants: BTreeMap<(u64, bool), u32>,
    specials: BTreeMap<tessera_ptx::Special, u32>,
    /// Slots to fill with the start of dynamic shared memory plus an offset.
    dynamic: Vec<(u32, i64)>,
    dynamic_align: u32,
    shared_end: u32,
    shared_floor: u32,
    local_end: u32,
    scopes: Vec<BTreeMap<Name, Place>>,
    frame: Frame<'m>,
    calls: Vec<Name>,
    /// The slot of the running routine's frame.
    frame_slot: u32,
    /// The slot of where `alloca` takes its next bytes, once one was seen.
    stack_slot: Option<u32>,
    /// The 64-bit registers among the slots.
    wide_registers: BTreeSet<u32>,
    /// The routine under translation; none is the kernel.
    routine: Option<u32>,
    routines: Vec<Routine>,
    /// The functions of the routines, and those whose bodies are not translated yet.
    routine_names: Vec<Name>,
    waiting: Vec<u32>,
    /// Lists of branch targets by name, in the open scopes.
    targets: Vec<BTreeMap<Name, Vec<Name>>>,
    /// Branches of the open scopes whose label is not known yet, and which of their targets that is.
    open: Vec<(usize, usize, Name)>,
    loc: Option<Loc>,
    /// Of the instruction under translation.
    guard: Pred,
    current: Meta,
    /// Operations that go behind the current one: copies to registers of another width.
    after: Vec<Op>,
}

/// Bytes and alignment of a variable; an open extent counts as none.
pub(crate) fn layout(variable: &Variable) -> Option<(u64, u64)> {
    let element = u64::from(variable.ty.bits().div_ceil(8) * variable.lanes);
    let mut bytes = element;
    for extent in &variable.extents {
        bytes = bytes.checked_mul(extent.unwrap_or(0))?;
    }
    Some((bytes, u64::from(variable.align.unwrap_or(0)).max(element)))
}

fn layout_32(variable: &Variable) -> Result<(u32, u32)> {
    let too_large = || format!("`{}` is too large", variable.name);
    let (bytes, align) = layout(variable).ok_or_else(too_large)?;
    let (bytes, align) = (u32::try_from(bytes).map_err(|_| too_large())?, u32::try_from(align).map_err(|_| too_large())?);
    if bytes > 1 << 28 || !align.is_power_of_two() || align > 1 << 20 {
        return Err(too_large());
    }
    Ok((bytes, align))
}

/// What a pointer to a function holds: it says which item of the module the function is.
pub(crate) fn function_address(item: usize) -> u64 {
    FUNCTION_WINDOW + 16 * item as u64
}

/// Translates a kernel. `globals` says where the module's variables are.
pub(crate) fn translate(
    module: &Module,
    globals: &BTreeMap<Name, u64>,
    entry: &Function,
) -> std::result::Result<Program, Refusal> {
    let mut builder = Builder {
        module,
        globals,
        code: Vec::new(),
        meta: Vec::new(),
        slots: Vec::new(),
        names: Vec::new(),
        predicate_names: vec!["true".to_owned()],
        constants: BTreeMap::new(),
        specials: BTreeMap::new(),
        dynamic: Vec::new(),
        dynamic_align: 16,
        shared_end: SHARED_START,
        shared_floor: SHARED_START,
        local_end: 0,
        scopes: vec![BTreeMap::new()],
        frame: Frame { registers: &entry.registers, bindings: vec![Binding::None; entry.registers.len()], returns: Vec::new() },
        calls: vec![entry.name.clone()],
        frame_slot: 0,
        stack_slot: None,
        wide_registers: BTreeSet::new(),
        routine: None,
        routines: Vec::new(),
        routine_names: Vec::new(),
        waiting: Vec::new(),
        targets: Vec::new(),
        open: Vec::new(),
        loc: None,
        guard: Pred::TRUE,
        current: Meta::default(),
        after: Vec::new(),
    };
    builder.kernel(entry).map_err(|message| Refusal { line: builder.current.line, message })
}

impl<'m> Builder<'m> {
    fn kernel(&mut self, entry: &'m Function) -> Result<Program> {
        self.frame_slot = self.new_slot(Fill::Constant(0, true), "frame");
        for (index, item) in self.module.items.iter().enumerate() {
            match item {
                Item::Variable(variable) => self.module_variable(variable)?,
                Item::Function(function) if function.kind == FunctionKind::Device && function.body.is_some() => {
                    self.declare(&function.name, Place::Function(function_address(index)));
                }
                Item::Alias { name, of } => {
                    let device = |item: &Item| matches!(item, Item::Function(found) if found.name == *of && found.body.is_some());
                    if let Some(at) = self.module.items.iter().position(device) {
                        self.declare(name, Place::Function(function_address(at)));
                    }
                }
                Item::Function(_) | Item::Section { .. } | Item::File { .. } | Item::Pragma(_) => {}
            }
        }
        self.scopes.push(BTreeMap::new());
        let mut params = Vec::new();
        let mut end = 0u32;
        for param in &entry.params {
            let (bytes, align) = layout_32(param)?;
            let offset = end.next_multiple_of(align);
            params.push(ParamSlot { offset, bytes });
            self.declare(&param.name, Place::Param(offset));
            end = offset.checked_add(bytes).filter(|&end| end <= 32764).ok_or("the parameters are too large")?;
        }
        self.block(entry.body.as_deref().unwrap_or_default())?;
        if let Some((at, _, name)) = self.open.pop() {
            self.current.line = self.meta[at].line;
            return Err(format!("no label `{name}` is in scope"));
        }
        self.guard = Pred::TRUE;
        self.emit(Op::Exit);
        let kernel_frame = self.local_end.next_multiple_of(16);
        self.translate_routines()?;
        let joins = flow::joins(&self.code);
        for (at, meets) in joins {
            if let Op::Branch { join, .. } | Op::BranchTo { join, .. } = &mut self.code[at].op {
                *join = meets;
            }
        }
        let mut stack = if self.routines.is_empty() { 0 } else { STACK_BYTES };
        if let Some(slot) = self.stack_slot {
            self.slots[slot as usize] = Fill::Constant(u64::from(kernel_frame + stack), true);
            stack += ALLOCA_BYTES;
        }
        let dynamic_start = self.shared_end.next_multiple_of(self.dynamic_align);
        for &(slot, offset) in &self.dynamic {
            if let Fill::Shared(at, _) = &mut self.slots[slot as usize] {
                *at = i64::from(dynamic_start).wrapping_add(offset) as u32;
            }
        }
        let mut program = Program {
            name: entry.name.to_string(),
            code: std::mem::take(&mut self.code),
            meta: Arc::new(std::mem::take(&mut self.meta)),
            slots: std::mem::take(&mut self.slots),
            names: std::mem::take(&mut self.names),
            wide: std::mem::take(&mut self.wide_registers),
            predicates: self.predicate_names.len() as u32,
            predicate_names: std::mem::take(&mut self.predicate_names),
            param_bytes: end,
            params,
            static_shared: self.shared_end - SHARED_START,
            dynamic_start,
            shared_floor: self.shared_floor,
            local_bytes: kernel_frame + stack,
            kernel_frame,
            frame: self.frame_slot,
            routines: std::mem::take(&mut self.routines),
            required_threads: None,
            max_threads: None,
            min_blocks: None,
            max_registers: None,
            cluster: None,
            explicit_cluster: false,
            register_estimate: 0,
        };
        for limit in &entry.limits {
            match *limit {
                Limit::RequiredThreads(threads) => program.required_threads = Some(threads),
                Limit::MaxThreads(threads) => program.max_threads = Some(threads),
                Limit::MinBlocks(blocks) => program.min_blocks = Some(blocks),
                Limit::MaxRegisters(count) => program.max_registers = Some(count),
                Limit::Cluster(extents) => program.cluster = Some(extents),
                Limit::ExplicitCluster => program.explicit_cluster = true,
                Limit::BlocksAreClusters => return Err("`.blocksareclusters`: a grid counts blocks here".to_owned()),
                Limit::MaxBlocks(_)
                | Limit::MaxClusterRank(_)
                | Limit::NoReturn
                | Limit::Preserve(_)
                | Limit::PreserveControl(_) => {}
            }
        }
        program.register_estimate = flow::pressure(&program);
        Ok(program)
    }

    fn module_variable(&mut self, variable: &Variable) -> Result<()> {
        let place = match variable.space {
            VariableSpace::Shared if variable.extents.contains(&None) => {
                let (_, align) = layout_32(variable)?;
                self.dynamic_align = self.dynamic_align.max(align);
                Place::Dynamic
            }
            VariableSpace::Shared => Place::Shared(self.shared_room(variable)?),
            VariableSpace::Global | VariableSpace::Const => match self.globals.get(&variable.name) {
                Some(&address) => Place::Global(address),
                None => return Ok(()),
            },
            VariableSpace::Local | VariableSpace::Param => return Ok(()),
        };
        self.declare(&variable.name, place);
        Ok(())
    }

    fn shared_room(&mut self, variable: &Variable) -> Result<u32> {
        let (bytes, align) = layout_32(variable)?;
        let at = self.shared_end.next_multiple_of(align);
        self.shared_end = at.checked_add(bytes).ok_or("shared memory is too large")?;
        Ok(at)
    }

    fn local_room(&mut self, bytes: u32, align: u32) -> Result<u32> {
        let at = self.local_end.next_multiple_of(align);
        self.local_end = at.checked_add(bytes).filter(|&end| end < 1 << 20).ok_or("local memory is too large")?;
        Ok(at)
    }

    fn declare(&mut self, name: &Name, place: Place) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.clone(), place);
        }
    }

    fn place(&self, name: &Name) -> Option<Place> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    fn block(&mut self, statements: &'m [Statement]) -> Result<()> {
        self.scopes.push(BTreeMap::new());
        let lists = statements.iter().filter_map(|statement| match statement {
            Statement::Targets { name, functions: false, targets } => Some((name.clone(), targets.clone())),
            _ => None,
        });
        self.targets.push(lists.collect());
        let outer = std::mem::take(&mut self.open);
        let mut labels: BTreeMap<&Name, u32> = BTreeMap::new();
        for statement in statements {
            match statement {
                Statement::Registers(_) | Statement::Pragma(_) | Statement::Targets { .. } | Statement::Prototype { .. } => {}
                Statement::Variable(variable) => self.body_variable(variable)?,
                Statement::Label(name) => {
                    if labels.insert(name, self.code.len() as u32).is_some() {
                        return Err(format!("the label `{name}` is there twice"));
                    }
                }
                Statement::Loc(loc, _) => self.loc = Some(*loc),
                Statement::Instruction(instruction) => self.instruction(instruction)?,
                Statement::Block(inner) => self.block(inner)?,
            }
        }
        let mut unknown = outer;
        for (at, index, name) in std::mem::take(&mut self.open) {
            match (labels.get(&name), &mut self.code[at].op) {
                (Some(&label), Op::Branch { target, .. }) => *target = label,
                (Some(&label), Op::BranchTo { targets, .. }) => targets[index] = label,
                _ => unknown.push((at, index, name)),
            }
        }
        self.open = unknown;
        self.targets.pop();
        self.scopes.pop();
        Ok(())
    }

    fn body_variable(&mut self, variable: &Variable) -> Result<()> {
        let place = match variable.space {
            VariableSpace::Shared if variable.extents.contains(&None) => {
                let (_, align) = layout_32(variable)?;
                self.dynamic_align = self.dynamic_align.max(align);
                Place::Dynamic
            }
            VariableSpace::Shared => Place::Shared(self.shared_room(variable)?),
            VariableSpace::Local | VariableSpace::Param => {
                let (bytes, align) = layout_32(variable)?;
                let at = self.local_room(bytes, align)?;
                if self.routine.is_some() { Place::Frame(at) } else { Place::Local(at) }
            }
            VariableSpace::Global | VariableSpace::Const => {
                return Err(format!("`{}`: variables of this space stand outside functions", variable.name));
            }
        };
        self.declare(&variable.name, place);
        Ok(())
    }

    fn instruction(&mut self, instruction: &'m Instruction) -> Result<()> {
        let mnemonic = instruction.row.mnemonic().text();
        self.current = Meta { line: instruction.line.0, loc: self.loc, ..Meta::default() };
        self.current.mnemonic.push_str(mnemonic);
        for modifier in &instruction.modifiers {
            self.current.mnemonic.push('.');
            self.current.mnemonic.push_str(&modifier.to_string());
        }
        if let Some(reason) = refused::reason(&self.current.mnemonic) {
            return Err(format!("`{}` is not executed: {reason}", self.current.mnemonic));
        }
        self.guard = match instruction.guard {
            None => Pred::TRUE,
            Some(guard) => {
                let predicate = self.predicate_of(guard.register)?;
                self.current.reads_predicates.push(predicate);
                Pred { index: predicate, negated: guard.negated }
            }
        };
        let seen = Cell::new(0);
        let mods = Mods::new(&instruction.modifiers, &seen);
        let operands = &instruction.operands[..];
        let done = match mnemonic {
            "ld" | "ldu" | "st" | "atom" | "red" | "cvta" | "isspacep" | "mapa" | "getctarank" | "prefetch" | "prefetchu"
            | "applypriority" | "discard" | "createpolicy" | "alloca" | "stacksave" | "stackrestore" => {
                self.memory(mnemonic, mods, operands)?
            }
            "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" | "bar" | "barrier" | "membar" | "fence"
            | "nanosleep" | "griddepcontrol" | "setmaxnreg" => self.warp(mnemonic, mods, operands)?,
            "tex" | "tld4" | "txq" | "suq" | "istypep" | "suld" | "sust" | "sured" => self.texture(mnemonic, mods, operands)?,
            "mbarrier" | "cp" | "tensormap" => self.asynchronous(mnemonic, mods, operands)?,
            "ldmatrix" | "stmatrix" | "movmatrix" | "mma" | "wmma" | "wgmma" => self.matrix(mnemonic, mods, operands)?,
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "pmevent" => self.control(mnemonic, operands)?,
            _ => self.arithmetic(mnemonic, mods, operands)?,
        };
        if !done {
            return Err(format!("`{}` is not executed by this emulator", self.current.mnemonic));
        }
        if let Some(unseen) = mods.unseen(mnemonic) {
            return Err(format!("`.{unseen}` of `{}` is not executed by this emulator", self.current.mnemonic));
        }
        if self.code.len() > MOST_OPERATIONS {
            return Err(format!("the kernel has more than {MOST_OPERATIONS} operations"));
        }
        Ok(())
    }

    /// Appends an operation for the instruction under translation.
    fn emit(&mut self, op: Op) {
        self.push(op, self.guard);
        let guard = self.guard;
        for op in std::mem::take(&mut self.after) {
            self.push(op, guard);
        }
    }

    /// Appends an operation that runs whatever the guard says: it only prepares operands, which the instruction itself reads.
    fn prepare(&mut self, op: Op) {
        let Meta { line, loc, .. } = self.current;
        let mut meta = Meta { line, loc, mnemonic: self.current.mnemonic.clone(), prepares: true, ..Meta::default() };
        match &op {
            Op::Map { to, from, .. } => {
                meta.reads.extend(*from);
                meta.writes.push(to.slot);
            }
            Op::Select { to, a, b, by } => {
                meta.reads.extend([*a, *b]);
                meta.reads_predicates.push(by.index);
                meta.writes.push(to.slot);
            }
            Op::Test { from, to, .. } => {
                meta.reads.extend(*from);
                meta.writes_predicates.extend(*to);
            }
            _ => {}
        }
        self.code.push(Inst { op, guard: Pred::TRUE });
        self.meta.push(meta);
    }

    fn push(&mut self, op: Op, guard: Pred) {
        self.code.push(Inst { op, guard });
        self.meta.push(self.current.clone());
    }
}
