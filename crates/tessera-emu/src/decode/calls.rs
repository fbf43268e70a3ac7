//! Branches, calls and returns.
//!
//! A direct call is inlined: the function's body is translated again where it stands, its parameters standing for the caller's
//! `.param` variables. A function that is being inlined already (recursion) or is called by pointer becomes a [`Routine`], which
//! is translated once, behind the kernel, with variables in a frame of local memory:
//!
//! ```text
//! kernel    call f          f's body, then
//! f         call f again    Call(routine f): the registers of f are saved, its frame begins behind the caller's
//! routine f ret             Return: back behind the call, registers restored, results handed over
//! ```

use std::collections::BTreeMap;

use smallvec::smallvec;
use tessera_ptx::{Function, FunctionKind, Item, Name, Operand, Space as VariableSpace, Variable};

use super::{Binding, Builder, Frame, Place, Result, layout_32};
use crate::ops::{float, float::Flags};
use crate::program::{Call, Callee, Fill, Formal, Meta, NOWHERE, Op, Passed, Pred, Reg, Routine, StackPlace};

impl<'m> Builder<'m> {
    pub(super) fn control(&mut self, mnemonic: &str, operands: &'m [Operand]) -> Result<bool> {
        match mnemonic {
            "bra" => {
                let Some(Operand::Symbol(name, _)) = operands.first() else { return Ok(false) };
                self.open.push((self.code.len(), 0, name.clone()));
                self.emit(Op::Branch { target: NOWHERE, join: NOWHERE });
            }
            "brx" => {
                let [index, Operand::Symbol(list, _)] = operands else { return Ok(false) };
                let names = self.targets.iter().rev().find_map(|scope| scope.get(list)).cloned();
                let names = names.ok_or_else(|| format!("no list of branch targets is named `{list}`"))?;
                let index = self.source(index, false)?;
                let at = self.code.len();
                let targets = vec![NOWHERE; names.len()];
                self.open.extend(names.into_iter().enumerate().map(|(index, name)| (at, index, name)));
                self.emit(Op::BranchTo { index, targets, join: NOWHERE });
            }
            "ret" if self.calls.len() > 1 || self.routine.is_some() => {
                self.frame.returns.push(self.code.len());
                self.emit(Op::Branch { target: NOWHERE, join: NOWHERE });
            }
            "ret" | "exit" => self.emit(Op::Exit),
            "trap" => self.emit(Op::Trap),
            "brkpt" | "pmevent" => self.emit(Op::Nop),
            "call" => self.call(operands)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn call(&mut self, operands: &'m [Operand]) -> Result<()> {
        let none: &[Operand] = &[];
        let (results, callee, arguments) = match operands {
            [Operand::List(results), callee, Operand::List(arguments), ..] => (&results[..], callee, &arguments[..]),
            [Operand::List(results), callee, ..] => (&results[..], callee, none),
            [callee, Operand::List(arguments), ..] => (none, callee, &arguments[..]),
            [callee, ..] => (none, callee, none),
            [] => return Err("a call names a function".to_owned()),
        };
        let Operand::Symbol(name, _) = callee else { return self.call_pointer(results, callee, arguments) };
        let Some(found) = self.module.function(name) else { return self.call_system(name, arguments) };
        if found.kind == FunctionKind::Entry {
            return Err(format!("`{name}` is a kernel and cannot be called here"));
        }
        if found.params.len() != arguments.len() || found.results.len() != results.len() {
            return Err(format!("`{name}` takes {} arguments and gives {} results", found.params.len(), found.results.len()));
        }
        // A guarded call jumps over the function where the guard does not hold.
        let guarded = self.jump_over();
        if self.calls.contains(&found.name) {
            let routine = self.routine_of(found)?;
            self.emit_call(Callee::Routine(routine), results, arguments)?;
        } else {
            self.inline(found, results, arguments)?;
        }
        self.land(guarded);
        Ok(())
    }

    /// A jump over what follows, for the lanes in which the guard does not hold; what follows has no guard.
    fn jump_over(&mut self) -> Option<usize> {
        let guard = std::mem::replace(&mut self.guard, Pred::TRUE);
        (guard != Pred::TRUE).then(|| {
            let at = self.code.len();
            self.push(Op::Branch { target: NOWHERE, join: NOWHERE }, Pred { index: guard.index, negated: !guard.negated });
            at
        })
    }

    fn land(&mut self, jumps: impl IntoIterator<Item = usize>) {
        let end = self.code.len() as u32;
        for at in jumps {
            if let Op::Branch { target, .. } = &mut self.code[at].op {
                *target = end;
            }
        }
        self.emit(Op::Nop);
    }

    /// Functions that the driver has.
    fn call_system(&mut self, name: &Name, arguments: &[Operand]) -> Result<()> {
        match (&*name.0, arguments) {
            ("vprintf", [format, values]) => {
                let (format, arguments) = (self.passed(format, false)?, self.passed(values, false)?);
                self.emit(Op::Print { format, arguments });
                Ok(())
            }
            ("__assertfail", _) => {
                self.emit(Op::Trap);
                Ok(())
            }
            _ => Err(format!("the function `{name}` has no body in this module")),
        }
    }

    fn stack_place(&self, operand: &Operand) -> Result<StackPlace> {
        match operand {
            Operand::Symbol(name, _) => match self.place(name) {
                Some(Place::Local(at)) => Ok(StackPlace { at, framed: false }),
                Some(Place::Frame(at)) => Ok(StackPlace { at, framed: true }),
                _ => Err(format!("`{name}` is no `.param` variable of this function")),
            },
            _ => Err("arguments are `.param` variables or registers".to_owned()),
        }
    }

    fn copy(&mut self, to: Reg, from: u32) {
        let map = if to.wide { float::one_64("mov", Flags::default()) } else { float::one("mov", Flags::default()) };
        if let Some(map) = map {
            // What is handed over is no operand of the call itself, which else would count as writing it whole.
            let Meta { line, loc, .. } = self.current;
            let mnemonic = self.current.mnemonic.clone();
            let own = Meta { line, loc, mnemonic, reads: smallvec![from], writes: smallvec![to.slot], ..Meta::default() };
            let call = std::mem::replace(&mut self.current, own);
            self.push(Op::Map { run: map.run, to, from: [from; 4] }, self.guard);
            self.current = call;
            self.current.reads.retain(|slot| *slot != from);
            self.current.writes.retain(|slot| *slot != to.slot);
            for op in std::mem::take(&mut self.after) {
                self.push(op, self.guard);
            }
        }
    }

    fn inline(&mut self, callee: &'m Function, results: &[Operand], arguments: &[Operand]) -> Result<()> {
        let caller = self.current.clone();
        let mut scope = BTreeMap::new();
        let mut bindings = vec![Binding::None; callee.registers.len()];
        let mut handed_back = Vec::new();
        let formals = callee.results.iter().zip(results).map(|pair| (pair, true));
        let formals = formals.chain(callee.params.iter().zip(arguments).map(|pair| (pair, false)));
        let mut passed = 0;
        for ((variable, operand), result) in formals {
            if variable.space != VariableSpace::Local {
                let StackPlace { at, framed } = self.stack_place(operand)?;
                scope.insert(variable.name.clone(), if framed { Place::Frame(at) } else { Place::Local(at) });
                continue;
            }
            // A parameter that is a register: the first registers of the function, in order.
            let reg = self.passed_register(variable);
            if let Some(binding) = bindings.get_mut(passed) {
                *binding = Binding::Slot(reg);
            }
            passed += 1;
            if result {
                handed_back.push((operand, reg));
            } else {
                let from = self.source(operand, reg.wide)?;
                self.copy(reg, from);
            }
        }
        let inner = Frame { registers: &callee.registers, bindings, returns: Vec::new() };
        let outer = std::mem::replace(&mut self.frame, inner);
        // The callee sees the module's variables and its parameters, not the caller's.
        let module_scope = self.scopes.first().cloned().unwrap_or_default();
        let scopes = std::mem::replace(&mut self.scopes, vec![module_scope, scope]);
        let (open, loc) = (std::mem::take(&mut self.open), self.loc);
        self.calls.push(callee.name.clone());
        self.block(callee.body.as_deref().unwrap_or_default())?;
        if let Some((_, _, label)) = self.open.first() {
            return Err(format!("no label `{label}` is in scope"));
        }
        self.calls.pop();
        let frame = std::mem::replace(&mut self.frame, outer);
        (self.scopes, self.open, self.loc) = (scopes, open, loc);
        self.current = caller;
        self.guard = Pred::TRUE;
        self.land(frame.returns);
        for (operand, reg) in handed_back {
            let to = self.destination(operand, reg.wide)?;
            self.copy(to, reg.slot);
        }
        Ok(())
    }

    fn passed_register(&mut self, variable: &Variable) -> Reg {
        self.new_register(&variable.name.to_string(), variable.ty.bits() == 64)
    }

    /// A function as a routine; its body is translated behind the kernel.
    fn routine_of(&mut self, function: &'m Function) -> Result<u32> {
        if let Some(index) = self.routine_names.iter().position(|name| *name == function.name) {
            return Ok(index as u32);
        }
        let item =
            self.module.items.iter().position(|item| matches!(item, Item::Function(found) if std::ptr::eq(found, function)));
        let mut routine = Routine { address: super::function_address(item.unwrap_or(usize::MAX >> 8)), ..Routine::default() };
        let mut end = 0u32;
        for (variables, result) in [(&function.results, true), (&function.params, false)] {
            for variable in variables {
                let formal = if variable.space == VariableSpace::Local {
                    Formal::Register(self.passed_register(variable))
                } else {
                    let (bytes, align) = layout_32(variable)?;
                    let at = end.next_multiple_of(align);
                    end = at.checked_add(bytes).filter(|&end| end < 1 << 16).ok_or("the parameters are too large")?;
                    Formal::Bytes { at, bytes }
                };
                if result { routine.results.push(formal) } else { routine.params.push(formal) }
            }
        }
        routine.frame_bytes = end;
        self.routines.push(routine);
        self.routine_names.push(function.name.clone());
        self.waiting.push(self.routines.len() as u32 - 1);
        Ok(self.routines.len() as u32 - 1)
    }

    fn passed(&mut self, operand: &Operand, result: bool) -> Result<Passed> {
        match operand {
            Operand::Symbol(..) => self.stack_place(operand).map(Passed::Bytes),
            _ if result => match self.target(operand)? {
                Some(reg) => Ok(Passed::Register(reg)),
                None => Ok(Passed::Register(self.scratch(true))),
            },
            _ => self.value(operand, false).map(Passed::Register),
        }
    }

    fn emit_call(&mut self, callee: Callee, results: &[Operand], arguments: &[Operand]) -> Result<()> {
        let arguments = arguments.iter().map(|operand| self.passed(operand, false)).collect::<Result<_>>()?;
        let results = results.iter().map(|operand| self.passed(operand, true)).collect::<Result<_>>()?;
        self.emit(Op::Call(Box::new(Call { callee, arguments, results, caller: self.routine })));
        Ok(())
    }

    /// A call by pointer: every function of the module that takes as many arguments may be meant.
    fn call_pointer(&mut self, results: &[Operand], pointer: &Operand, arguments: &[Operand]) -> Result<()> {
        let guarded = self.jump_over();
        let pointer = Reg { slot: self.source(pointer, true)?, wide: true };
        for item in &self.module.items {
            if let Item::Function(function) = item
                && function.kind == FunctionKind::Device
                && function.body.is_some()
                && (function.params.len(), function.results.len()) == (arguments.len(), results.len())
            {
                self.routine_of(function)?;
            }
        }
        self.emit_call(Callee::Pointer(pointer), results, arguments)?;
        self.land(guarded);
        Ok(())
    }

    /// The bodies of the routines, and of those that they call.
    pub(super) fn translate_routines(&mut self) -> Result<()> {
        while let Some(index) = self.waiting.pop() {
            let name = self.routine_names[index as usize].clone();
            let module = self.module;
            let Some(function) = module.function(&name) else { continue };
            let first_slot = self.slots.len() as u32;
            let first_predicate = self.predicate_names.len() as u32;
            let routine = self.routines[index as usize].clone();
            let mut bindings = vec![Binding::None; function.registers.len()];
            let mut scope = BTreeMap::new();
            let mut passed = 0;
            let variables = function.results.iter().chain(&function.params);
            for (variable, formal) in variables.zip(routine.results.iter().chain(&routine.params)) {
                match *formal {
                    Formal::Bytes { at, .. } => drop(scope.insert(variable.name.clone(), Place::Frame(at))),
                    Formal::Register(reg) => {
                        if let Some(binding) = bindings.get_mut(passed) {
                            *binding = Binding::Slot(reg);
                        }
                        passed += 1;
                    }
                }
            }
            self.routine = Some(index);
            self.local_end = routine.frame_bytes;
            self.frame = Frame { registers: &function.registers, bindings, returns: Vec::new() };
            self.scopes.truncate(1);
            self.scopes.push(scope);
            self.calls = vec![name];
            self.guard = Pred::TRUE;
            let start = self.code.len() as u32;
            self.block(function.body.as_deref().unwrap_or_default())?;
            if let Some((_, _, label)) = self.open.first() {
                return Err(format!("no label `{label}` is in scope"));
            }
            let returns = std::mem::take(&mut self.frame.returns);
            self.guard = Pred::TRUE;
            self.land(returns);
            self.emit(Op::Return);
            let own = (first_slot..self.slots.len() as u32).filter(|&slot| self.slots[slot as usize] == Fill::Register);
            let mut registers: Vec<Reg> = own.map(|slot| Reg { slot, wide: self.wide_registers.contains(&slot) }).collect();
            registers.extend(routine.results.iter().chain(&routine.params).filter_map(|formal| match formal {
                Formal::Register(reg) => Some(*reg),
                Formal::Bytes { .. } => None,
            }));
            let routine = &mut self.routines[index as usize];
            (routine.start, routine.registers) = (start, registers);
            routine.predicates = (first_predicate..self.predicate_names.len() as u32).collect();
            routine.frame_bytes = self.local_end.next_multiple_of(16);
        }
        Ok(())
    }
}
