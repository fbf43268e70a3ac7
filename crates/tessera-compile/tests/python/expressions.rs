//! Random expressions.

use super::program::{Dialect, Generator, Param, Passing, Signature, Size, Ty, Written, written};

const STRINGS: [&str; 4] = ["fast", "slow", "a_b", ""];

fn sum(a: &Written, b: &Written) -> Size {
    Size { bound: a.size.bound + b.size.bound, bits: a.size.bits.max(b.size.bits) }
}

impl Generator<'_> {
    /// An expression of a type.
    pub(super) fn expression(&mut self, ty: &Ty, depth: u32) -> Written {
        let value = match ty {
            Ty::Int => self.integer(depth),
            Ty::Bool => self.truth(depth),
            Ty::Float => self.float(depth),
            Ty::Str => self.string(depth),
            Ty::Tuple(items) => self.tuple(items, depth),
            Ty::Function(signature) => self.function(signature.clone(), ty),
        };
        if value.size.bound > 1e5 || value.size.bits > 8 { self.wrapped(value, ty) } else { value }
    }

    /// The value kept small enough to be carried by loops.
    pub(super) fn wrapped(&mut self, value: Written, ty: &Ty) -> Written {
        match ty {
            Ty::Int if value.size.bound > Size::LOOP.bound => written(format!("({}) % 97", value.text), Size::LOOP),
            Ty::Float if value.size.bound > Size::LOOP.bound || value.size.bits > 2 => {
                let whole = if value.size.bits > 2 { format!("float(int({}))", value.text) } else { value.text };
                written(format!("({whole} % 64.0)"), Size::LOOP)
            }
            Ty::Tuple(items) if value.size.bound > Size::LOOP.bound || value.size.bits > 2 => {
                let parts: Vec<Written> = items.iter().map(|item| self.expression(item, 0)).collect();
                let parts: Vec<Written> = parts.into_iter().zip(items).map(|(part, item)| self.wrapped(part, item)).collect();
                self.display(&parts)
            }
            _ => value,
        }
    }

    fn variable(&mut self, ty: &Ty) -> Option<Written> {
        let known = self.visible_of(ty);
        let at = self.choices.below(known.len().max(1) as u32) as usize;
        known.get(at).map(|own| written(own.name.clone(), own.size))
    }

    fn literal(&mut self) -> Written {
        let value = [0, 1, 2, 3, 5, 7, 9, -1, -2, -3, -5, -8][self.choices.below(12) as usize];
        written(if value < 0 { format!("({value})") } else { value.to_string() }, Size { bound: 10.0, bits: 0 })
    }

    /// An integer that is not zero.
    fn divisor(&mut self) -> String {
        match self.choices.below(4) {
            0 => "3".to_string(),
            1 => "(-4)".to_string(),
            2 => "7".to_string(),
            _ => {
                let value = self.integer(1);
                format!("(abs({}) % 5 + 1)", value.text)
            }
        }
    }

    fn integer(&mut self, depth: u32) -> Written {
        if depth == 0 || !self.choices.chance(85) {
            return match self.choices.below(3) {
                0 => self.literal(),
                _ => match self.variable(&Ty::Int) {
                    Some(own) => own,
                    None => self.literal(),
                },
            };
        }
        let threads = self.dialect == Dialect::Threads;
        let kind = self.choices.below(if threads { 15 } else { 26 });
        let next = depth - 1;
        match kind {
            0 => {
                let (x, y) = (self.integer(next), self.integer(next));
                written(format!("({} + {})", x.text, y.text), sum(&x, &y))
            }
            1 => {
                let (x, y) = (self.integer(next), self.integer(next));
                written(format!("({} - {})", x.text, y.text), sum(&x, &y))
            }
            2 => {
                let (x, times) = (self.integer(next), 2 + self.choices.below(4));
                let size = Size { bound: x.size.bound * f64::from(times), ..x.size };
                written(format!("({} * {times})", x.text), size)
            }
            3 | 4 => {
                let (x, y) = (self.integer(next), self.divisor());
                let op = if kind == 3 { "//" } else { "%" };
                let bound = if kind == 3 { x.size.bound + 1.0 } else { 10.0 };
                written(format!("({} {op} {y})", x.text), Size { bound, bits: 0 })
            }
            5 => {
                let (x, by) = (self.integer(next), self.choices.below(4));
                let op = if self.choices.chance(50) { "<<" } else { ">>" };
                let bound = if op == "<<" { x.size.bound * f64::from(1 << by) } else { x.size.bound };
                written(format!("({} {op} {by})", x.text), Size { bound, bits: 0 })
            }
            6 => {
                let (x, y) = (self.integer(next), self.integer(next));
                let op = ["&", "|", "^"][self.choices.below(3) as usize];
                let bound = 2.0 * x.size.bound.max(y.size.bound) + 1.0;
                written(format!("({} {op} {})", x.text, y.text), Size { bound, bits: 0 })
            }
            7 => {
                let op = ["-", "+", "~"][self.choices.below(3) as usize];
                let x = self.integer(next);
                written(format!("({op}{})", x.text), Size { bound: x.size.bound + 1.0, bits: 0 })
            }
            8 => {
                let test = self.truth(next);
                let (x, y) = (self.integer(next), self.integer(next));
                written(format!("({} if {} else {})", x.text, test.text, y.text), x.size.max(y.size))
            }
            9 => {
                let (x, y) = (self.integer(next), self.integer(next));
                let name = ["min", "max"][self.choices.below(2) as usize];
                if self.choices.chance(25) && !threads {
                    let z = self.integer(next);
                    return written(format!("{name}({}, {}, {})", x.text, y.text, z.text), x.size.max(y.size).max(z.size));
                }
                written(format!("{name}({}, {})", x.text, y.text), x.size.max(y.size))
            }
            10 => {
                let x = self.integer(next);
                written(format!("abs({})", x.text), x.size)
            }
            11 => {
                let x = self.truth(next);
                if self.choices.chance(50) {
                    return written(format!("int({})", x.text), Size { bound: 1.0, bits: 0 });
                }
                if self.choices.chance(50) {
                    let y = self.truth(0);
                    let forms =
                        ["(X + Y)", "(X - Y)", "(X * Y)", "(-X)", "(+X)", "abs(X)", "(X << Y)", "(X % 2)", "int(max(X, Y))"];
                    let form = forms[self.choices.below(forms.len() as u32) as usize];
                    return written(form.replace('X', &x.text).replace('Y', &y.text), Size { bound: 2.0, bits: 0 });
                }
                let y = self.integer(0);
                written(format!("({} + {})", x.text, y.text), Size { bound: y.size.bound + 1.0, bits: 0 })
            }
            12 => {
                let x = self.float(next);
                written(format!("int({})", x.text), Size { bound: x.size.bound, bits: 0 })
            }
            13 => {
                let (x, y) = (self.integer(next), self.integer(next));
                let op = ["and", "or"][self.choices.below(2) as usize];
                written(format!("({} {op} {})", x.text, y.text), x.size.max(y.size))
            }
            14 => self.call_of(&Ty::Int, next),
            15 => {
                let count = 1 + self.choices.below(3) as usize;
                let items: Vec<Written> = (0..count).map(|_| self.integer(next)).collect();
                let at = self.choices.below(count as u32) as i64 - if self.choices.chance(30) { count as i64 } else { 0 };
                let size = items.iter().map(|item| item.size).fold(Size::SMALL, Size::max);
                written(format!("{}[{at}]", self.display(&items).text), size)
            }
            16 => match self.some_tuple() {
                Some((text, types, size)) if types.contains(&Ty::Int) => {
                    let at = types.iter().position(|ty| *ty == Ty::Int).unwrap_or(0);
                    written(format!("{text}[{at}]"), size)
                }
                Some((text, ..)) => written(format!("len({text})"), Size { bound: 4.0, bits: 0 }),
                None => self.literal(),
            },
            17 => {
                let count = 1 + self.choices.below(3);
                let items: Vec<Written> = (0..count).map(|_| self.integer(next)).collect();
                let bound = items.iter().map(|item| item.size.bound).sum();
                written(format!("sum({})", self.display(&items).text), Size { bound, bits: 0 })
            }
            18 => {
                let (element, size) = self.comprehension(next);
                let name = ["sum", "max", "min"][self.choices.below(3) as usize];
                let size = Size { bound: size.bound * if name == "sum" { 4.0 } else { 1.0 }, ..size };
                if self.choices.chance(50) {
                    written(format!("{name}({element})"), size)
                } else {
                    written(format!("{name}([{element}])"), size)
                }
            }
            19 => {
                let (x, y, at) = (self.integer(next), self.divisor(), self.choices.below(2));
                written(format!("divmod({}, {y})[{at}]", x.text), Size { bound: x.size.bound + 8.0, bits: 0 })
            }
            20 => {
                let name = self.fresh('q');
                self.frames.push(Vec::new());
                self.bind(&name, Ty::Int, Size::LOOP);
                let body = self.integer(next);
                self.frames.pop();
                let arg = self.integer(next);
                let arg = self.wrapped(arg, &Ty::Int);
                if self.choices.chance(30) {
                    return written(format!("(lambda {name}={}: {})()", arg.text, body.text), body.size);
                }
                written(format!("(lambda {name}: {})({})", body.text, arg.text), body.size)
            }
            21 => {
                let base = self.choices.below(4);
                let power = self.choices.below(4);
                written(format!("({base} ** {power})"), Size { bound: 27.0, bits: 0 })
            }
            22 => {
                let text = self.string(1);
                written(format!("len({})", text.text), Size { bound: 20.0, bits: 0 })
            }
            23 => {
                let (start, step) = (self.choices.below(4), 1 + self.choices.below(3));
                let at = self.choices.below(3);
                written(format!("tuple(range({start}, {}, {step}))[{at}]", start + 3 * step), Size { bound: 20.0, bits: 0 })
            }
            24 => {
                let (x, y) = (self.integer(next), self.integer(next));
                let name = self.fresh('i');
                let item = self.fresh('v');
                let size = Size { bound: (x.size.bound + y.size.bound) * 2.0, bits: 0 };
                let tuple = self.display(&[x, y]).text;
                match self.choices.below(3) {
                    0 => written(format!("sum({name} * {item} for {name}, {item} in enumerate({tuple}))"), size),
                    1 => written(format!("sum([{name} - {item} for {name}, {item} in zip({tuple}, reversed({tuple}))])"), size),
                    _ => written(format!("[{name} for {name} in reversed({tuple})][0]"), size),
                }
            }
            _ => {
                let (x, y) = (self.truth(next), self.truth(next));
                written(format!("({} + {} * 2)", x.text, y.text), Size { bound: 3.0, bits: 0 })
            }
        }
    }

    /// `element for name in ... if ...`.
    fn comprehension(&mut self, depth: u32) -> (String, Size) {
        let name = if self.choices.chance(30) { "a".to_string() } else { self.fresh('c') };
        let items = match self.choices.below(3) {
            0 => "range(3)".to_string(),
            2 if self.sees("T") => "T".to_string(),
            _ => "(2, 5, -1)".to_string(),
        };
        self.frames.push(Vec::new());
        self.bind(&name, Ty::Int, Size::SMALL);
        let element = self.integer(depth);
        self.frames.pop();
        let condition = if self.choices.chance(30) && items != "T" { format!(" if {name} >= -1") } else { String::new() };
        (format!("{} for {name} in {items}{condition}", element.text), element.size)
    }

    pub(super) fn truth(&mut self, depth: u32) -> Written {
        let size = Size { bound: 1.0, bits: 0 };
        if depth == 0 || !self.choices.chance(90) {
            return match self.choices.below(4) {
                0 => written("True", size),
                1 => written("False", size),
                _ => self.variable(&Ty::Bool).unwrap_or_else(|| written("True", size)),
            };
        }
        let threads = self.dialect == Dialect::Threads;
        let next = depth - 1;
        let ops = ["==", "!=", "<", "<=", ">", ">="];
        let text = match self.choices.below(if threads { 8 } else { 20 }) {
            0 | 1 => {
                let (x, y) = (self.integer(next), self.integer(next));
                format!("({} {} {})", x.text, ops[self.choices.below(6) as usize], y.text)
            }
            2 => {
                let (x, y) = (self.float(next), self.float(next));
                format!("({} {} {})", x.text, ops[self.choices.below(6) as usize], y.text)
            }
            3 => {
                let (x, y, z) = (self.integer(next), self.integer(next), self.integer(next));
                let (first, second) = (ops[self.choices.below(6) as usize], ops[self.choices.below(6) as usize]);
                format!("({} {first} {} {second} {})", x.text, y.text, z.text)
            }
            4 => format!("(not {})", self.truth(next).text),
            5 | 6 => {
                let op = ["and", "or"][self.choices.below(2) as usize];
                let (x, y) = (self.truth(next), self.truth(next));
                if self.choices.chance(30) {
                    let z = self.truth(next);
                    return written(format!("({} {op} {} {op} {})", x.text, y.text, z.text), size);
                }
                format!("({} {op} {})", x.text, y.text)
            }
            7 => format!("bool({})", self.integer(next).text),
            8 | 9 => {
                let count = 1 + self.choices.below(3);
                let items: Vec<Written> = (0..count).map(|_| self.integer(next)).collect();
                let op = ["in", "not in"][self.choices.below(2) as usize];
                let x = self.integer(next);
                format!("({} {op} {})", x.text, self.display(&items).text)
            }
            10 | 11 => {
                let types: Vec<Ty> =
                    (0..1 + self.choices.below(3)).map(|_| [Ty::Int, Ty::Bool][self.choices.below(2) as usize].clone()).collect();
                let mut others = types.clone();
                if self.choices.chance(25) {
                    others.push(Ty::Int);
                }
                let (x, y) = (self.tuple(&types, next), self.tuple(&others, next));
                format!("({} {} {})", x.text, ops[self.choices.below(6) as usize], y.text)
            }
            12 => {
                let (x, y) = (self.string(1), self.string(0));
                let op = ["==", "!=", "<", "in", "not in", ">="][self.choices.below(6) as usize];
                format!("({} {op} {})", y.text, x.text)
            }
            13 => {
                let name = ["any", "all"][self.choices.below(2) as usize];
                let items: Vec<Written> = (0..self.choices.below(4)).map(|_| self.truth(next)).collect();
                format!("{name}({})", self.display(&items).text)
            }
            14 => {
                let name = ["any", "all"][self.choices.below(2) as usize];
                let item = self.fresh('c');
                self.frames.push(Vec::new());
                self.bind(&item, Ty::Int, Size::SMALL);
                let test = self.truth(next);
                self.frames.pop();
                format!("{name}({} for {item} in (1, -2, 4))", test.text)
            }
            16 => {
                let (x, y, z) =
                    (self.tuple(&[Ty::Int, Ty::Bool], next), self.tuple(&[Ty::Int, Ty::Bool], next), self.integer(next));
                let op = ["==", "!=", "<", ">="][self.choices.below(4) as usize];
                format!("(({}, {}) {op} ({}, {}))", x.text, z.text, y.text, self.integer(0).text)
            }
            17 => {
                let (x, y) = (self.tuple(&[Ty::Int, Ty::Int], next), self.tuple(&[Ty::Int, Ty::Int], next));
                let op = ["in", "not in"][self.choices.below(2) as usize];
                format!("({} {op} ({}, {}, (1, 2)))", x.text, y.text, self.tuple(&[Ty::Int, Ty::Int], 0).text)
            }
            18 if self.sees("S") => {
                let format = ["", ":03d", ":>4", "!r", ":x", ":+d"][self.choices.below(6) as usize];
                let text = ["'2'", "'002'", "'   2'", "'5'", "'+3'"][self.choices.below(5) as usize];
                let (start, stop) = (self.choices.below(3), 2 + self.choices.below(3));
                format!("(f\"{{3 - 1{format}}}\" == {text} or (4, 5, 6, 7)[{start}:{stop}] == (5, 6) or str((1, 'a', 2.5)) == S)")
            }
            15 => {
                let name = ["is None", "is not None"][self.choices.below(2) as usize];
                let x = self.integer(0);
                format!("({} {name})", x.text)
            }
            _ => {
                let test = self.truth(next);
                let (x, y) = (self.truth(next), self.truth(next));
                format!("({} if {} else {})", x.text, test.text, y.text)
            }
        };
        written(text, size)
    }

    fn float(&mut self, depth: u32) -> Written {
        if depth == 0 || !self.choices.chance(85) {
            if self.choices.chance(60)
                && let Some(own) = self.variable(&Ty::Float)
            {
                return own;
            }
            let quarters = self.choices.below(33) as i32 - 8;
            let text = format!("{:?}", f64::from(quarters) / 4.0);
            return written(if quarters < 0 { format!("({text})") } else { text }, Size::SMALL);
        }
        let next = depth - 1;
        match self.choices.below(12) {
            0 | 1 => {
                let (x, y) = (self.float(next), self.float(next));
                let op = ["+", "-"][self.choices.below(2) as usize];
                written(format!("({} {op} {})", x.text, y.text), sum(&x, &y))
            }
            2 => {
                let (x, y) = (self.float(next), self.float(0));
                let size = Size { bound: x.size.bound * y.size.bound, bits: x.size.bits + y.size.bits };
                if size.bound > 1e3 || size.bits > 6 { x } else { written(format!("({} * {})", x.text, y.text), size) }
            }
            3 => {
                let x = self.float(next);
                written(format!("(-{})", x.text), x.size)
            }
            4 => {
                let x = self.float(next);
                written(format!("abs({})", x.text), x.size)
            }
            5 => {
                let test = self.truth(next);
                let (x, y) = (self.float(next), self.float(next));
                written(format!("({} if {} else {})", x.text, test.text, y.text), x.size.max(y.size))
            }
            6 => {
                let (x, y) = (self.float(next), self.float(next));
                written(format!("{}({}, {})", ["min", "max"][self.choices.below(2) as usize], x.text, y.text), x.size.max(y.size))
            }
            7 => {
                let x = self.integer(next);
                written(format!("float({})", x.text), Size { bound: x.size.bound, bits: 0 })
            }
            8 => {
                let x = self.integer(next);
                written(
                    format!("({} / {})", x.text, [2, 4, -2][self.choices.below(3) as usize]),
                    Size { bound: x.size.bound, bits: 2 },
                )
            }
            9 => {
                let x = self.float(next);
                written(format!("({} + {})", x.text, self.choices.below(9)), Size { bound: x.size.bound + 9.0, ..x.size })
            }
            10 => {
                let (x, op) = (self.float(next), ["//", "%"][self.choices.below(2) as usize]);
                let by = if self.dialect == Dialect::Block {
                    ["1.5", "2.0", "(-0.75)"][self.choices.below(3) as usize]
                } else {
                    "2.0"
                };
                written(format!("({} {op} {by})", x.text), Size { bound: x.size.bound * 2.0, ..x.size })
            }
            _ => self.call_of(&Ty::Float, next),
        }
    }

    fn string(&mut self, depth: u32) -> Written {
        let size = Size { bound: 0.0, bits: 0 };
        let literal = format!("{:?}", STRINGS[self.choices.below(4) as usize]);
        if !self.sees("S") {
            return written(literal, size);
        }
        if depth == 0 || self.dialect == Dialect::Threads {
            return written(if self.choices.chance(50) { "S".to_string() } else { literal }, size);
        }
        let text = match self.choices.below(7) {
            0 => format!("(S + {literal})"),
            1 => "S[1:]".to_string(),
            2 => "S[::-1]".to_string(),
            3 => "(S * 2)".to_string(),
            4 => "S.upper()".to_string(),
            5 => "f\"{S}_{K}\"".to_string(),
            _ => "str(K)".to_string(),
        };
        written(text, size)
    }

    pub(super) fn display(&mut self, items: &[Written]) -> Written {
        let texts: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
        let size = items.iter().map(|item| item.size).fold(Size { bound: 0.0, bits: 0 }, Size::max);
        written(format!("({}{})", texts.join(", "), if items.len() == 1 { "," } else { "" }), size)
    }

    fn tuple(&mut self, types: &[Ty], depth: u32) -> Written {
        let ty = Ty::Tuple(types.to_vec());
        if self.choices.chance(35)
            && let Some(own) = self.variable(&ty)
        {
            return own;
        }
        let next = depth.saturating_sub(1);
        if depth > 0 && self.choices.chance(20) {
            let test = self.truth(next);
            let (x, y) = (self.tuple(types, next), self.tuple(types, next));
            return written(format!("({} if {} else {})", x.text, test.text, y.text), x.size.max(y.size));
        }
        if types.len() > 1 && depth > 0 && self.choices.chance(25) {
            let (left, right) = types.split_at(1 + self.choices.below(types.len() as u32 - 1) as usize);
            let (x, y) = (self.tuple(left, next), self.tuple(right, next));
            return written(format!("({} + {})", x.text, y.text), x.size.max(y.size));
        }
        let items: Vec<Written> = types.iter().map(|ty| self.expression(ty, next)).collect();
        self.display(&items)
    }

    /// A tuple that is there: its text, its items, and their size.
    pub(super) fn some_tuple(&mut self) -> Option<(String, Vec<Ty>, Size)> {
        let all: Vec<_> = self
            .visible()
            .into_iter()
            .filter_map(|own| match own.ty {
                Ty::Tuple(types) if !types.is_empty() => Some((own.name, types, own.size)),
                _ => None,
            })
            .collect();
        let at = self.choices.below(all.len().max(1) as u32) as usize;
        all.get(at).cloned()
    }

    /// A function of a type: one that is there, or a lambda.
    fn function(&mut self, signature: std::rc::Rc<Signature>, ty: &Ty) -> Written {
        if self.choices.chance(60)
            && let Some(own) = self.variable(ty)
        {
            return own;
        }
        self.frames.push(Vec::new());
        let names: Vec<&str> = signature.params.iter().map(|param| param.name.as_str()).collect();
        for Param { name, ty, .. } in &signature.params {
            self.bind(name, ty.clone(), Size::LOOP);
        }
        let body = self.expression(&signature.result, 1);
        let body = self.wrapped(body, &signature.result);
        self.frames.pop();
        written(format!("(lambda {}: {})", names.join(", "), body.text), body.size)
    }

    /// A call of some function that yields the type, or something simpler.
    fn call_of(&mut self, ty: &Ty, depth: u32) -> Written {
        let mut functions: Vec<(String, std::rc::Rc<Signature>)> = Vec::new();
        for own in self.visible() {
            if let Ty::Function(signature) = own.ty
                && signature.result == *ty
            {
                functions.push((own.name, signature));
            }
        }
        let at = self.choices.below(functions.len().max(1) as u32) as usize;
        match functions.get(at).cloned() {
            // What a function of module level does when it is called there, Python finds out even if nothing needs it.
            Some((name, signature)) if self.frames.len() > 1 => {
                let args = self.arguments(&signature, depth);
                written(format!("{name}({args})"), Size::LOOP)
            }
            _ => self.expression(ty, 0),
        }
    }

    /// Arguments for a signature: by position, then by keyword in any order; some left out, some spread from a tuple.
    pub(super) fn arguments(&mut self, signature: &Signature, depth: u32) -> String {
        let (mut positional, mut keyword): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut by_keyword = false;
        let variadic = signature.params.iter().any(|param| param.passing == Passing::Variadic);
        for param in &signature.params {
            if param.passing == Passing::Variadic {
                if by_keyword {
                    continue;
                }
                for _ in 0..self.choices.below(3) {
                    let value = self.integer(depth.min(1));
                    positional.push(self.wrapped(value, &Ty::Int).text);
                }
                if self.choices.chance(30) && self.sees("T") {
                    positional.push("*T".to_string());
                }
                continue;
            }
            if param.has_default && self.choices.chance(40) {
                by_keyword = true;
                continue;
            }
            let value = self.expression(&param.ty, depth);
            let value = self.wrapped(value, &param.ty);
            if param.passing == Passing::Keyword || by_keyword || !variadic && self.choices.chance(25) {
                by_keyword = true;
                keyword.push(format!("{}={}", param.name, value.text));
            } else {
                positional.push(value.text);
            }
        }
        if self.choices.chance(50) {
            keyword.reverse();
        }
        positional.extend(keyword);
        positional.join(", ")
    }
}
