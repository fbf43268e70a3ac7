//! Random statements and functions.

use std::rc::Rc;

use super::program::{Dialect, Generator, Param, Passing, Signature, Size, Ty, Variable};

impl Generator<'_> {
    pub(super) fn statements(&mut self) {
        let before = self.out.len();
        while self.budget > 0 {
            self.budget -= 1;
            self.statement();
            if self.indent > 1 && self.choices.chance(40) {
                break;
            }
        }
        if self.out.len() == before {
            self.line("pass");
        }
    }

    fn scalar(&mut self) -> Ty {
        [Ty::Int, Ty::Int, Ty::Bool, Ty::Float][self.choices.below(4) as usize].clone()
    }

    /// Names that are read and assigned; some belong to functions around.
    fn target(&mut self, ty: &Ty) -> String {
        let own: Vec<String> = self
            .frames
            .last()
            .map(|frame| {
                frame
                    .iter()
                    .filter(|own| own.ty == *ty && !matches!(own.name.as_str(), "K" | "S" | "T"))
                    .map(|own| own.name.clone())
                    .collect()
            })
            .unwrap_or_default();
        if !own.is_empty() && self.choices.chance(55) {
            return own[self.choices.below(own.len() as u32) as usize].clone();
        }
        self.fresh('v')
    }

    /// The value for an assignment: in a loop it stays small.
    fn assigned(&mut self, ty: &Ty, depth: u32) -> super::program::Written {
        let value = self.expression(ty, depth);
        if self.loops > 0 { self.wrapped(value, ty) } else { value }
    }

    fn assign(&mut self) {
        let ty = if self.dialect == Dialect::Block && self.choices.chance(15) {
            Ty::Tuple((0..1 + self.choices.below(3)).map(|_| self.scalar()).collect())
        } else {
            self.scalar()
        };
        let value = self.assigned(&ty, 3);
        let name = self.target(&ty);
        if self.choices.chance(10) {
            let second = self.fresh('v');
            self.line(format!("{second} = {name} = {}", value.text));
            self.bind(&second, ty.clone(), value.size);
        } else if self.choices.chance(10) {
            self.line(format!("{name}: int = {}", value.text));
        } else {
            self.line(format!("{name} = {}", value.text));
        }
        self.bind(&name, ty, value.size);
    }

    fn update(&mut self) {
        let own: Vec<Variable> = self.frames.last().cloned().unwrap_or_default();
        let own: Vec<Variable> = own.into_iter().filter(|own| own.ty == Ty::Int && own.name != "K").collect();
        let at = self.choices.below(own.len().max(1) as u32) as usize;
        let Some(target) = own.get(at) else { return self.assign() };
        let op = ["+", "-", "*", "//", "%", "&", "|", "^", ">>"][self.choices.below(9) as usize];
        let (text, bound) = match op {
            "*" => ("3".to_string(), target.size.bound * 3.0),
            "//" | "%" => ("(-7)".to_string(), target.size.bound + 8.0),
            ">>" => ("2".to_string(), target.size.bound),
            _ => {
                let value = self.expression(&Ty::Int, 2);
                (value.text, 2.0 * target.size.bound.max(value.size.bound) + 1.0)
            }
        };
        let name = target.name.clone();
        self.line(format!("{name} {op}= {text}"));
        self.bind(&name, Ty::Int, Size { bound, bits: 0 });
        if bound > Size::LOOP.bound && self.loops > 0 {
            self.line(format!("{name} %= 89"));
            self.bind(&name, Ty::Int, Size::LOOP);
        }
    }

    fn unpack(&mut self) {
        match self.choices.below(4) {
            0 => {
                let own: Vec<String> =
                    self.visible_of(&Ty::Int).into_iter().map(|own| own.name).filter(|name| name != "K").collect();
                let mine: Vec<String> =
                    self.frames.last().map_or(Vec::new(), |frame| frame.iter().map(|own| own.name.clone()).collect());
                let own: Vec<String> = own.into_iter().filter(|name| mine.contains(name)).collect();
                if let [first, second, ..] = own.as_slice() {
                    self.line(format!("{first}, {second} = {second}, {first}"));
                    let sizes: Vec<Size> =
                        self.visible().iter().filter(|v| v.name == *first || v.name == *second).map(|v| v.size).collect();
                    let size = sizes.into_iter().fold(Size::SMALL, Size::max);
                    let (first, second) = (first.clone(), second.clone());
                    self.bind(&first, Ty::Int, size);
                    self.bind(&second, Ty::Int, size);
                }
            }
            1 if self.sees("T") => {
                let (first, rest) = (self.fresh('v'), self.fresh('r'));
                self.line(format!("{first}, *{rest} = T"));
                self.bind(&first, Ty::Int, Size::SMALL);
                let total = self.fresh('v');
                self.line(format!("{total} = sum({rest}) + len({rest})"));
                self.bind(&total, Ty::Int, Size { bound: 40.0, bits: 0 });
            }
            _ => {
                let types = [Ty::Int, self.scalar()];
                let (x, y) = (self.assigned(&types[0], 2), self.assigned(&types[1], 2));
                let (first, second) = (self.target(&types[0]), self.fresh('v'));
                self.line(format!("({first}, {second}) = ({}, {})", x.text, y.text));
                self.bind(&first, types[0].clone(), x.size);
                self.bind(&second, types[1].clone(), y.size);
            }
        }
    }

    /// Runs `work` one level deeper; the variables that are there on both paths.
    fn nested(&mut self, work: impl FnOnce(&mut Self)) -> Vec<Variable> {
        let before = self.frames.last().cloned().unwrap_or_default();
        self.indent += 1;
        work(self);
        self.indent -= 1;
        std::mem::replace(self.frames.last_mut().expect("a frame"), before)
    }

    /// Keeps variables that two paths agree about.
    fn meet(&mut self, a: Vec<Variable>, b: &[Variable]) {
        let maybe = self.choices.chance(4);
        let merged = a
            .into_iter()
            .filter_map(|own| match b.iter().find(|other| other.name == own.name) {
                Some(other) if other.ty == own.ty => Some(Variable { size: own.size.max(other.size), ..own }),
                Some(_) => None,
                // Once in a while what one path assigns is read behind both.
                None => maybe.then_some(own),
            })
            .collect();
        *self.frames.last_mut().expect("a frame") = merged;
    }

    fn branch(&mut self) {
        let test = if self.choices.chance(20) {
            let (x, y) = (self.expression(&Ty::Int, 1), self.truth(1));
            format!("{} and {}", x.text, y.text)
        } else {
            self.truth(2).text
        };
        self.line(format!("if {test}:"));
        let then = self.nested(Self::statements);
        let mut other = self.frames.last().cloned().unwrap_or_default();
        if self.choices.chance(25) {
            let test = self.truth(2);
            self.line(format!("elif {}:", test.text));
            let second = self.nested(Self::statements);
            self.line("else:");
            let third = self.nested(Self::statements);
            self.meet(second, &third);
            other = self.frames.last().cloned().unwrap_or_default();
        } else if self.choices.chance(60) {
            self.line("else:");
            other = self.nested(Self::statements);
        }
        self.meet(then, &other);
    }

    /// What the variables of a loop's body may be at its start.
    fn enter_loop(&mut self) {
        for own in self.frames.last_mut().expect("a frame") {
            own.size = own.size.max(Size::LOOP);
        }
        self.loops += 1;
    }

    fn loop_body(&mut self, jumps: bool) {
        let jump = if jumps { self.choices.below(5) } else { 4 };
        if jump < 2 {
            let test = self.truth(2);
            self.line(format!("if {}:", test.text));
            self.nested(|own| own.line(["break", "continue"][jump as usize]));
        }
        self.statements();
    }

    fn counted(&mut self) {
        let name = if self.choices.chance(20) { self.target(&Ty::Int) } else { self.fresh('i') };
        let threads = self.dialect == Dialect::Threads;
        let (items, is_range) = match self.choices.below(if threads { 5 } else { 8 }) {
            0 => (format!("range({})", self.choices.below(5)), true),
            1 => (format!("range({}, {})", self.choices.below(3), self.choices.below(6)), true),
            2 => (format!("range({}, {}, -{})", self.choices.below(7), self.choices.below(3), 1 + self.choices.below(3)), true),
            3 => {
                let value = self.expression(&Ty::Int, 1);
                (format!("range(abs({}) % 5)", value.text), true)
            }
            4 => {
                let value = self.expression(&Ty::Int, 1);
                (format!("range(0, {} % 6, {})", value.text, 1 + self.choices.below(2)), true)
            }
            5 if self.sees("T") => ("T".to_string(), false),
            6 => {
                let (x, y) = (self.expression(&Ty::Int, 1), self.expression(&Ty::Int, 1));
                (self.display(&[x, y]).text, false)
            }
            _ => ("reversed((3, 1, 2))".to_string(), false),
        };
        self.line(format!("for {name} in {items}:"));
        let before = self.frames.last().cloned().unwrap_or_default();
        self.enter_loop();
        let after = self.nested(|own| {
            own.bind(&name, Ty::Int, Size::LOOP);
            own.loop_body(is_range);
        });
        self.loops -= 1;
        let mut before: Vec<Variable> = before;
        before.iter_mut().for_each(|own| own.size = own.size.max(Size::LOOP));
        self.meet(after, &before);
        if is_range && self.choices.chance(25) {
            self.line("else:");
            let other = self.nested(Self::statements);
            let now = self.frames.last().cloned().unwrap_or_default();
            self.meet(other, &now);
        }
    }

    fn repeated(&mut self) {
        let name = self.fresh('w');
        let rounds = self.choices.below(5);
        self.line(format!("{name} = {rounds}"));
        self.bind(&name, Ty::Int, Size::SMALL);
        let test = self.truth(1);
        let test =
            if self.choices.chance(30) { format!("{name} > 0 and ({} or {name} > 2)", test.text) } else { format!("{name} > 0") };
        self.line(format!("while {test}:"));
        self.enter_loop();
        let after = self.nested(|own| {
            own.line(format!("{name} -= 1"));
            // The counter is not to be touched by anything else.
            own.frames.last_mut().expect("a frame").retain(|own| own.name != name);
            own.loop_body(true);
        });
        self.loops -= 1;
        let now = self.frames.last().cloned().unwrap_or_default();
        self.meet(after, &now);
        self.bind(&name, Ty::Int, Size::SMALL);
        if self.choices.chance(25) {
            self.line("else:");
            let other = self.nested(Self::statements);
            let now = self.frames.last().cloned().unwrap_or_default();
            self.meet(other, &now);
        }
    }

    /// A function, nested or of module level.
    pub(super) fn define(&mut self, is_module: bool) {
        let name = self.fresh('f');
        let mut params = Vec::new();
        let mut texts = Vec::new();
        let mut defaults = false;
        let block = self.dialect == Dialect::Block;
        for _ in 0..1 + self.choices.below(3) {
            // Some parameters have the names of what is outside.
            let own = if self.choices.chance(20) && !is_module && params.is_empty() { "b".to_string() } else { self.fresh('p') };
            let mut ty = self.scalar();
            if block && !defaults && self.choices.chance(12) {
                let param = Param { name: self.fresh('p'), ty: Ty::Int, passing: Passing::Either, has_default: false };
                ty = Ty::Function(Rc::new(Signature { params: vec![param], result: Ty::Int }));
            } else if block && !defaults && self.choices.chance(12) {
                ty = Ty::Tuple(vec![self.scalar(), Ty::Int]);
            }
            defaults |= self.choices.chance(30);
            let default = defaults.then(|| {
                let value = self.expression(&ty, 1);
                self.wrapped(value, &ty).text
            });
            texts.push(default.as_ref().map_or(own.clone(), |text| format!("{own}={text}")));
            params.push(Param { name: own, ty, passing: Passing::Either, has_default: default.is_some() });
        }
        if block && self.choices.chance(20) && !params.iter().any(|param| param.has_default) {
            let own = self.fresh('p');
            texts.push(format!("*{own}"));
            params.push(Param { name: own, ty: Ty::Tuple(Vec::new()), passing: Passing::Variadic, has_default: false });
        } else if block && self.choices.chance(15) {
            texts.push("*".to_string());
        }
        if texts.last().is_some_and(|text| text.starts_with('*')) {
            let own = self.fresh('p');
            let has_default = self.choices.chance(50);
            texts.push(if has_default { format!("{own}=2") } else { own.clone() });
            params.push(Param { name: own, ty: Ty::Int, passing: Passing::Keyword, has_default });
        }
        let result = self.scalar();
        self.line(format!("def {name}({}):", texts.join(", ")));
        self.body(&params, &result);
        self.bind(&name, Ty::Function(Rc::new(Signature { params, result })), Size::LOOP);
    }

    fn body(&mut self, params: &[Param], result: &Ty) {
        self.frames.push(Vec::new());
        let outside = (self.loops, self.may_return, std::mem::replace(&mut self.results, vec![result.clone()]));
        (self.loops, self.may_return) = (0, self.dialect == Dialect::Block && self.choices.chance(30));
        self.indent += 1;
        for Param { name, ty, passing, .. } in params {
            if *passing == Passing::Variadic {
                let total = self.fresh('v');
                self.line(format!("{total} = sum({name}) + len({name})"));
                self.bind(&total, Ty::Int, Size { bound: 1000.0, bits: 0 });
            } else {
                self.bind(name, ty.clone(), Size::LOOP);
            }
        }
        let budget = self.budget;
        self.budget = self.choices.below(3).min(budget);
        let spent = self.budget;
        if spent > 0 {
            self.statements();
        }
        self.budget = budget - (spent - self.budget);
        let value = self.expression(result, 2);
        let value = self.wrapped(value, result);
        self.line(format!("return {}", value.text));
        self.indent -= 1;
        (self.loops, self.may_return, self.results) = outside;
        self.frames.pop();
    }

    /// A function that reads a variable which is assigned only after it, and again after that.
    fn late(&mut self) {
        let (name, free, own) = (self.fresh('f'), self.fresh('k'), self.fresh('p'));
        if self.choices.chance(50) {
            let first = self.choices.below(9);
            self.line(format!("{free} = {first}"));
        }
        self.line(format!("def {name}({own}):"));
        self.indent += 1;
        self.line(format!("return {own} * 2 + {free}"));
        self.indent -= 1;
        for _ in 0..1 + self.choices.below(2) {
            let value = self.assigned(&Ty::Int, 2);
            let value = self.wrapped(value, &Ty::Int);
            self.line(format!("{free} = {}", value.text));
            let arg = self.expression(&Ty::Int, 1);
            let arg = self.wrapped(arg, &Ty::Int);
            let target = self.fresh('v');
            self.line(format!("{target} = {name}({})", arg.text));
            self.bind(&target, Ty::Int, Size { bound: 300.0, bits: 0 });
            if self.loops > 0 {
                self.line(format!("{target} %= 83"));
                self.bind(&target, Ty::Int, Size::LOOP);
            }
        }
        self.bind(&free, Ty::Int, Size::LOOP);
    }

    /// Functions made by a function, one of which is chosen.
    fn factory(&mut self) {
        let (make, inner, k, own) = (self.fresh('f'), self.fresh('g'), self.fresh('k'), self.fresh('p'));
        self.line(format!("def {make}({k}):"));
        self.indent += 1;
        let default = self.choices.chance(40);
        let head = if default { format!("{own}, {k}={k}") } else { own.clone() };
        if self.choices.chance(50) {
            self.line(format!("def {inner}({head}):"));
            self.indent += 1;
            self.line(format!("return {own} + {k}"));
            self.indent -= 1;
        } else {
            self.line(format!("{inner} = lambda {head}: {own} - {k}"));
        }
        match self.choices.below(3) {
            0 => self.line(format!("{k} = {k} * 2")),
            1 => {
                self.line(format!("if {k} > 2:"));
                self.nested(|own| own.line(format!("{k} = 7")));
            }
            _ => {}
        }
        if self.choices.chance(25) {
            self.line(format!("if {k} > 3:"));
            self.nested(|own| {
                own.line(format!("{k} = 4"));
                own.line(format!("return {inner}"));
            });
        }
        self.line(format!("return {inner}"));
        self.indent -= 1;
        let mut made = Vec::new();
        for _ in 0..2 {
            let value = self.expression(&Ty::Int, 1);
            let value = self.wrapped(value, &Ty::Int);
            let name = self.fresh('h');
            self.line(format!("{name} = {make}({})", value.text));
            made.push(name);
        }
        let chosen = self.fresh('h');
        let test = self.truth(2);
        self.line(format!("{chosen} = {} if {} else {}", made[0], test.text, made[1]));
        let target = self.fresh('v');
        let arg = self.expression(&Ty::Int, 1);
        let arg = self.wrapped(arg, &Ty::Int);
        self.line(format!("{target} = ({chosen}({}) + {}(1)) % 79", arg.text, made[1]));
        self.bind(&target, Ty::Int, Size::LOOP);
    }

    /// Lambdas that see a loop's variable, or keep it.
    fn lambdas(&mut self) {
        let (functions, i, q) = (self.fresh('h'), self.fresh('i'), self.fresh('q'));
        let kept = if self.choices.chance(50) { format!(", {i}={i}") } else { String::new() };
        if self.choices.chance(50) {
            self.line(format!("{functions} = ()"));
            self.line(format!("for {i} in (1, 2, 5):"));
            self.nested(|own| own.line(format!("{functions} = {functions} + (lambda {q}{kept}: {q} + {i},)")));
        } else {
            self.line(format!("{functions} = tuple([lambda {q}{kept}: {q} * {i} for {i} in (1, 2, 5)])"));
        }
        let target = self.fresh('v');
        let arg = self.expression(&Ty::Int, 1);
        let arg = self.wrapped(arg, &Ty::Int);
        let at = self.choices.below(3);
        self.line(format!("{target} = ({functions}[{at}]({}) + {functions}[1](2)) % 73", arg.text));
        self.bind(&target, Ty::Int, Size::LOOP);
    }

    /// A function that a decorator of the file changes.
    pub(super) fn decorated(&mut self) {
        let (decorator, inner, f, name, own) =
            (self.fresh('d'), self.fresh('g'), self.fresh('f'), self.fresh('f'), self.fresh('p'));
        let takes = self.choices.chance(40);
        if takes {
            self.line(format!("def {decorator}(times):"));
            self.indent += 1;
            self.line(format!("def outer({f}):"));
        } else {
            self.line(format!("def {decorator}({f}):"));
        }
        self.indent += 1;
        self.line(format!("def {inner}(*args):"));
        self.indent += 1;
        self.line(format!("return ({f}(*args) * {} + 1) % 91", if takes { "times" } else { "2" }));
        self.indent -= 1;
        self.line(format!("return {inner}"));
        self.indent -= 1;
        if takes {
            self.line("return outer");
            self.indent -= 1;
        }
        for _ in 0..1 + self.choices.below(2) {
            self.line(format!("@{decorator}{}", if takes { "(3)" } else { "" }));
        }
        self.line(format!("def {name}({own}):"));
        self.indent += 1;
        self.line(format!("return {own} - 4"));
        self.indent -= 1;
        let params = vec![Param { name: String::new(), ty: Ty::Int, passing: Passing::Either, has_default: false }];
        if self.indent > 0 {
            let target = self.fresh('v');
            let arg = self.expression(&Ty::Int, 1);
            let arg = self.wrapped(arg, &Ty::Int);
            self.line(format!("{target} = {name}({})", arg.text));
            self.bind(&target, Ty::Int, Size::LOOP);
        } else {
            self.bind(&name, Ty::Function(Rc::new(Signature { params, result: Ty::Int })), Size::LOOP);
        }
    }

    /// A function that calls itself.
    fn recursive(&mut self) {
        let (name, own) = (self.fresh('f'), self.fresh('p'));
        self.line(format!("def {name}({own}, k=3):"));
        self.indent += 1;
        if self.choices.chance(50) {
            self.line(format!("return {own} if k == 0 else ({name}({own} + 1, k - 1) * 2) % 67"));
        } else {
            self.line("if k < 1:");
            self.nested(|inner| inner.line(format!("return {own}")));
            self.line(format!("return {name}({own} - k, k=k - 1)"));
        }
        self.indent -= 1;
        let target = self.fresh('v');
        let arg = self.expression(&Ty::Int, 1);
        let arg = self.wrapped(arg, &Ty::Int);
        self.line(format!("{target} = {name}({})", arg.text));
        self.bind(&target, Ty::Int, Size::LOOP);
    }

    /// Names of Python's own functions for other things.
    fn shadows(&mut self) {
        let (name, target) = (self.fresh('f'), self.fresh('v'));
        let own = ["min", "max", "abs", "len", "int", "bool", "range"][self.choices.below(7) as usize];
        let body: &[&str] = match self.choices.below(4) {
            0 => &["def OWN(u, v=2):", "    return u - v", "return OWN(p) + OWN(p, 1)"],
            1 => &["OWN = p + 1", "return OWN * 2"],
            2 => &["def inner(OWN):", "    return OWN * 3", "return inner(p)"],
            _ => &["def OWN(u):", "    return u", "t = 0", "for i in OWN(4):", "    t += i", "return t"],
        };
        self.line(format!("def {name}(p):"));
        body.iter().for_each(|line| self.line(format!("    {}", line.replace("OWN", own))));
        let arg = self.expression(&Ty::Int, 1);
        let arg = self.wrapped(arg, &Ty::Int);
        self.line(format!("{target} = {name}({}) % 71", arg.text));
        self.bind(&target, Ty::Int, Size::LOOP);
    }

    /// What Python refuses, or what kernels can't do: `nonlocal`, names that are read before they are assigned.
    fn odd(&mut self) {
        if self.choices.chance(50) {
            return self.shadows();
        }
        let (name, target) = (self.fresh('f'), self.fresh('v'));
        match self.choices.below(3) {
            0 => {
                self.line(format!("{target} = 1"));
                self.line(format!("def {name}():"));
                self.line(format!("    nonlocal {target}"));
                self.line(format!("    {target} = 2"));
                self.line(format!("{name}()"));
            }
            1 => {
                self.line(format!("def {name}():"));
                self.line("    G += 1");
                self.line("    return G");
                self.line(format!("{target} = {name}()"));
            }
            _ => {
                self.line(format!("def {name}():"));
                self.line("    h = H");
                self.line("    H = 3");
                self.line("    return h");
                self.line(format!("{target} = {name}()"));
            }
        }
        self.bind(&target, Ty::Int, Size::LOOP);
    }

    fn statement(&mut self) {
        let deep = self.indent > 3 || self.budget == 0;
        let block = self.dialect == Dialect::Block;
        match self.choices.below(if block { 24 } else { 14 }) {
            7 | 8 if !deep => self.branch(),
            9 | 10 if !deep => self.counted(),
            11 if !deep => self.repeated(),
            12 if !deep => self.define(false),
            13 if self.choices.chance(35) => self.odd(),
            14 | 15 if !deep => self.late(),
            16 if !deep => self.factory(),
            17 if !deep => self.lambdas(),
            18 if !deep => self.decorated(),
            19 if !deep => self.recursive(),
            20 | 21 => self.unpack(),
            22 | 4 if self.may_return => {
                let test = self.truth(2);
                self.line(format!("if {}:", test.text));
                let results = self.results.clone();
                let is_case = self.frames.len() == 2;
                self.nested(|own| {
                    let values: Vec<String> = results
                        .iter()
                        .map(|ty| {
                            let value = own.expression(ty, 1);
                            own.wrapped(value, ty).text
                        })
                        .collect();
                    match (is_case, values.as_slice()) {
                        (false, [only]) => own.line(format!("return {only}")),
                        _ => own.line(format!("return ({},)", values.join(", "))),
                    }
                });
                self.returned |= is_case;
            }
            5 | 6 | 23 => self.update(),
            _ => self.assign(),
        }
    }
}
