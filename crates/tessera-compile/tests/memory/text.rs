//! A program as a kernel's source.

use tessera_types::DType;

use super::{Expression, Fold, Footprint, Index, Operation, Place, Program, Statement, Test, Update};

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "ct.float64",
        DType::F32 => "ct.float32",
        DType::F16 => "ct.float16",
        DType::BF16 => "ct.bfloat16",
        DType::F8E4M3 => "ct.float8_e4m3fn",
        DType::F8E5M2 => "ct.float8_e5m2",
        DType::I8 => "ct.int8",
        DType::I16 => "ct.int16",
        DType::I32 => "ct.int32",
        other => unreachable!("{other} is not used"),
    }
}

/// The conversion of a value, by way of `float32` where one side is a small float.
fn cast(text: &str, from: DType, to: DType) -> String {
    if from == to {
        return text.to_string();
    }
    let small = |dtype: DType| dtype.is_float() && dtype.bits() < 16;
    match (small(from) && to != DType::F32) || (small(to) && from != DType::F32) {
        true => format!("{text}.astype(ct.float32).astype({})", name(to)),
        false => format!("{text}.astype({})", name(to)),
    }
}

impl Program {
    /// The source of `kernel`, which takes the arrays and the number of rounds.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("import cuda.tile as ct\n\ndef clamp(t):\n    return ct.minimum(ct.maximum(t, -8), 8)\n\n");
        text.push_str(&format!("@ct.kernel\ndef kernel({}, n):\n", NAMES[..self.arrays.len()].join(", ")));
        for (variable, &place) in self.starts.iter().enumerate() {
            self.statement(&Statement::Assign(variable, Expression::Load(place)), 1, &mut text);
        }
        self.block(&self.body, 1, &mut text);
        text
    }

    fn block(&self, body: &[Statement], depth: usize, text: &mut String) {
        for statement in body {
            self.statement(statement, depth, text);
        }
    }

    fn statement(&self, statement: &Statement, depth: usize, text: &mut String) {
        let mut line = |line: String| text.push_str(&format!("{}{line}\n", "    ".repeat(depth)));
        match statement {
            Statement::Assign(variable, value) => {
                let (value, dtype) = self.value(value);
                line(format!("v{variable} = {}", cast(&value, dtype, self.variables[*variable])));
            }
            Statement::Store(place, value) => {
                let (value, dtype) = self.value(value);
                let value = cast(&value, dtype, self.arrays[place.array]);
                let (view, index) = (self.view(place), self.index(place));
                let side = self.side;
                line(match place.shape {
                    Footprint::Tile { .. } => format!("ct.store({view}, {index}, {value})"),
                    Footprint::Turned => format!("ct.store({view}, {index}, ct.permute({value}, (1, 0)))"),
                    Footprint::Line => format!("ct.store({view}, {index}, ct.reshape({value}, (1, {})))", side * side),
                    Footprint::Points { .. } => format!("ct.scatter({view}, {index}, {value})"),
                });
            }
            Statement::Update { variable, place, how, value } => {
                let (value, dtype) = self.value(value);
                let value = cast(&value, dtype, DType::I32);
                let (array, index) = (NAMES[place.array], self.index(place));
                let old = match how {
                    Update::Max => format!("ct.atomic_max({array}, {index}, {value})"),
                    Update::Min => format!("ct.atomic_min({array}, {index}, {value})"),
                    Update::Exchange => format!("ct.atomic_xchg({array}, {index}, {value})"),
                    Update::Swap => format!("ct.atomic_cas({array}, {index}, 1, {value})"),
                };
                line(format!("v{variable} = {}", cast(&old, DType::I32, self.variables[*variable])));
            }
            Statement::For { rounds, level, body } => {
                let rounds = rounds.map_or_else(|| "n".to_string(), |rounds| rounds.to_string());
                line(format!("for k{level} in range({rounds}):"));
                self.block(body, depth + 1, text);
            }
            Statement::If(test, then, other) => {
                line(format!("if {}:", self.test(test)));
                self.block(then, depth + 1, text);
                text.push_str(&format!("{}else:\n", "    ".repeat(depth)));
                self.block(other, depth + 1, text);
            }
            Statement::Skip(test) => {
                line(format!("if {}:", self.test(test)));
                line("    continue".to_string());
            }
        }
    }

    fn test(&self, test: &Test) -> String {
        match test {
            Test::Odd(level) => format!("k{level} % 2 == 1"),
            Test::Positive(value) => {
                let (value, dtype) = self.value(value);
                format!("ct.sum({}) > 0", cast(&value, dtype, DType::F32))
            }
            Test::First(place) => {
                let element = format!("ct.load({}, {}, (1, 1))", NAMES[place.array], self.index(place));
                format!("ct.sum({}) > 0", cast(&element, self.arrays[place.array], DType::F32))
            }
        }
    }

    fn index(&self, place: &Place) -> String {
        let number = |index: Index| match index {
            Index::Fixed(value) => value.to_string(),
            Index::Counted { level, plus, modulus } => format!("(k{level} + {plus}) % {modulus}"),
        };
        let (row, column) = (number(place.row), number(place.column));
        let Footprint::Points { steps } = place.shape else { return format!("({row}, {column})") };
        let along = |first: &str, step: i64| format!("{first} + {step} * ct.arange({}, dtype=ct.int32)", self.side);
        format!("(({})[:, None], ({})[None, :])", along(&row, steps[0]), along(&column, steps[1]))
    }

    fn view(&self, place: &Place) -> String {
        let mut view = NAMES[place.array].to_string();
        if let Footprint::Tile { skip } = place.shape {
            for (axis, (skip, size)) in skip.into_iter().zip([self.rows, self.columns]).enumerate() {
                if skip > 0 {
                    view = format!("{view}.slice(axis={axis}, start={skip}, stop={size})");
                }
            }
        }
        view
    }

    /// A value's text and type.
    fn value(&self, expression: &Expression) -> (String, DType) {
        let side = self.side;
        // Sums need more room than eight bits.
        let wide = |(text, dtype): (String, DType)| match dtype {
            DType::F32 | DType::F64 | DType::I32 | DType::I16 | DType::F16 => (text, dtype),
            other => (cast(&text, other, DType::F32), DType::F32),
        };
        match expression {
            Expression::Load(place) => {
                let (view, index) = (self.view(place), self.index(place));
                let zero = "padding_mode=ct.PaddingMode.ZERO";
                let text = match place.shape {
                    Footprint::Tile { .. } => format!("ct.load({view}, {index}, ({side}, {side}), {zero})"),
                    Footprint::Turned => format!("ct.permute(ct.load({view}, {index}, ({side}, {side}), {zero}), (1, 0))"),
                    Footprint::Line => {
                        format!("ct.reshape(ct.load({view}, {index}, (1, {}), {zero}), ({side}, {side}))", side * side)
                    }
                    Footprint::Points { .. } => format!("ct.gather({view}, {index})"),
                };
                (text, self.arrays[place.array])
            }
            Expression::Variable(variable) => (format!("v{variable}"), self.variables[*variable]),
            Expression::Cast(value, to) => {
                let (value, from) = self.value(value);
                (cast(&value, from, *to), *to)
            }
            Expression::Binary(operation, both, dtype) => {
                let [a, b] = both.each_ref().map(|value| {
                    let (text, from) = self.value(value);
                    cast(&text, from, *dtype)
                });
                let text = match operation {
                    Operation::Add => format!("clamp({a} + {b})"),
                    Operation::Sub => format!("clamp({a} - {b})"),
                    Operation::Mul => format!("clamp({a} * {b})"),
                    Operation::Max => format!("ct.maximum({a}, {b})"),
                    Operation::Min => format!("ct.minimum({a}, {b})"),
                    Operation::Where => format!("ct.where({a} < {b}, {a}, 3).astype({})", name(*dtype)),
                };
                (text, *dtype)
            }
            Expression::Less(value, fold, axis) => {
                let (value, dtype) = wide(self.value(value));
                let fold = match fold {
                    Fold::Sum => "sum",
                    Fold::Max => "max",
                    Fold::Min => "min",
                };
                (format!("clamp({value} - ct.{fold}({value}, axis={axis}, keepdims=True))"), dtype)
            }
            Expression::Scan(value, axis) => {
                let (value, dtype) = wide(self.value(value));
                (format!("clamp(ct.cumsum({value}, axis={axis}))"), dtype)
            }
            Expression::Turn(value) => {
                let (value, dtype) = self.value(value);
                (format!("ct.permute({value}, (1, 0))"), dtype)
            }
            Expression::Swap(value, axis) => {
                let (value, dtype) = self.value(value);
                let half = |at: usize| match axis {
                    1 => format!("ct.extract({value}, (0, {at}), ({side}, {}))", side / 2),
                    _ => format!("ct.extract({value}, ({at}, 0), ({}, {side}))", side / 2),
                };
                (format!("ct.cat(({}, {}), {axis})", half(1), half(0)), dtype)
            }
            Expression::Product(three) => {
                let [a, b, c] = three.each_ref().map(|value| self.value(value));
                let [a, b] = [a, b].map(|(text, from)| cast(&text, from, DType::F16));
                (format!("clamp(ct.mma({a}, {b}, {}))", cast(&c.0, c.1, DType::F32)), DType::F32)
            }
        }
    }
}
