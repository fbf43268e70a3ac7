//! What a program means, on integers.

use super::{Expression, Fold, Footprint, Index, Operation, Place, Program, ROUNDS, Statement, Test, Update};

/// The numbers of each array, row-major.
pub(crate) type Arrays = Vec<Vec<i64>>;

struct Meaning<'p> {
    program: &'p Program,
    arrays: Arrays,
    variables: Vec<Vec<i64>>,
    counters: Vec<i64>,
}

pub(super) fn clamp(value: i64) -> i64 {
    value.clamp(-8, 8)
}

impl Program {
    /// The arrays before a run: each has other numbers. The memory that two share is the first one's.
    pub(crate) fn arrays(&self) -> Arrays {
        let number = |array: usize, i: usize| ((i * 7 + i / 11 * 5 + array * 3) % 17) as i64 - 8;
        let length = |array: usize| match (self.shared, array) {
            (Some(offset), 0) => self.rows * self.columns + offset,
            (Some(_), 1) => 0,
            _ => self.rows * self.columns,
        };
        (0..self.arrays.len()).map(|array| (0..length(array)).map(|i| number(array, i)).collect()).collect()
    }

    /// The arrays after a run.
    pub(crate) fn run(&self) -> Arrays {
        let mut meaning = Meaning { program: self, arrays: self.arrays(), variables: Vec::new(), counters: Vec::new() };
        meaning.variables = self.starts.iter().map(|&place| meaning.value(&Expression::Load(place))).collect();
        meaning.block(&self.body);
        meaning.arrays
    }
}

impl Meaning<'_> {
    /// False where the round ends early.
    fn block(&mut self, body: &[Statement]) -> bool {
        body.iter().all(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Statement) -> bool {
        match statement {
            Statement::Assign(variable, value) => self.variables[*variable] = self.value(value),
            Statement::Store(place, value) => {
                let value = self.value(value);
                for (at, value) in self.elements(place).into_iter().zip(value) {
                    if let Some(at) = at {
                        *self.cell(place.array, at) = value;
                    }
                }
            }
            Statement::Update { variable, place, how, value } => {
                let value = self.value(value);
                let mut old = Vec::new();
                for (at, value) in self.elements(place).into_iter().zip(value) {
                    let Some(at) = at else {
                        old.push(i64::from(matches!(how, Update::Swap)));
                        continue;
                    };
                    let element = self.cell(place.array, at);
                    old.push(*element);
                    *element = match how {
                        Update::Max => value.max(*element),
                        Update::Min => value.min(*element),
                        Update::Exchange => value,
                        Update::Swap if *element == 1 => value,
                        Update::Swap => *element,
                    };
                }
                self.variables[*variable] = old;
            }
            Statement::For { rounds, body, .. } => {
                for counter in 0..rounds.unwrap_or(ROUNDS) {
                    self.counters.push(counter);
                    self.block(body);
                    self.counters.pop();
                }
            }
            Statement::If(test, then, other) => return if self.holds(test) { self.block(then) } else { self.block(other) },
            Statement::Skip(test) => return !self.holds(test),
        }
        true
    }

    fn holds(&self, test: &Test) -> bool {
        match test {
            Test::Odd(level) => self.counters[*level] % 2 == 1,
            Test::Positive(value) => self.value(value).iter().sum::<i64>() > 0,
            Test::First(place) => {
                let at = self.index(place.row) * self.program.columns as i64 + self.index(place.column);
                self.element(place.array, at as usize) > 0
            }
        }
    }

    fn index(&self, index: Index) -> i64 {
        match index {
            Index::Fixed(value) => value,
            Index::Counted { level, plus, modulus } => (self.counters[level] + plus) % modulus,
        }
    }

    /// The memory of an array's element.
    fn home(&self, array: usize, at: usize) -> (usize, usize) {
        match self.program.shared {
            Some(offset) if array == 1 => (0, at + offset),
            _ => (array, at),
        }
    }

    fn element(&self, array: usize, at: usize) -> i64 {
        let (array, at) = self.home(array, at);
        self.arrays[array][at]
    }

    fn cell(&mut self, array: usize, at: usize) -> &mut i64 {
        let (array, at) = self.home(array, at);
        &mut self.arrays[array][at]
    }

    /// Where each element of a tile lies; `None` outside the array.
    fn elements(&self, place: &Place) -> Vec<Option<usize>> {
        let Program { side, rows, columns, .. } = *self.program;
        let (row, column) = (self.index(place.row), self.index(place.column));
        let size = side as i64;
        let at = |x: i64, y: i64| match place.shape {
            Footprint::Tile { skip } => (skip[0] as i64 + row * size + x, skip[1] as i64 + column * size + y),
            Footprint::Turned => (row * size + y, column * size + x),
            Footprint::Line => (row, (column * size + x) * size + y),
            Footprint::Points { steps } => (row + x * steps[0], column + y * steps[1]),
        };
        let inside = |(row, column): (i64, i64)| {
            let fits = (0..rows as i64).contains(&row) && (0..columns as i64).contains(&column);
            fits.then(|| row as usize * columns + column as usize)
        };
        (0..size * size).map(|i| inside(at(i / size, i % size))).collect()
    }

    fn value(&self, expression: &Expression) -> Vec<i64> {
        let side = self.program.side;
        let turned = |value: &[i64]| -> Vec<i64> { (0..side * side).map(|i| value[i % side * side + i / side]).collect() };
        match expression {
            Expression::Load(place) => {
                self.elements(place).into_iter().map(|at| at.map_or(0, |at| self.element(place.array, at))).collect()
            }
            Expression::Variable(variable) => self.variables[*variable].clone(),
            Expression::Cast(value, _) => self.value(value),
            Expression::Binary(operation, both, _) => {
                let (a, b) = (self.value(&both[0]), self.value(&both[1]));
                let one = |(a, b): (i64, i64)| match operation {
                    Operation::Add => clamp(a + b),
                    Operation::Sub => clamp(a - b),
                    Operation::Mul => clamp(a * b),
                    Operation::Max => a.max(b),
                    Operation::Min => a.min(b),
                    Operation::Where if a < b => a,
                    Operation::Where => 3,
                };
                a.into_iter().zip(b).map(one).collect()
            }
            Expression::Less(value, fold, axis) => {
                let value = self.value(value);
                let lines = if *axis == 1 { value.clone() } else { turned(&value) };
                let folded: Vec<i64> = lines
                    .chunks(side)
                    .map(|line| match fold {
                        Fold::Sum => line.iter().sum(),
                        Fold::Max => line.iter().copied().max().unwrap_or(0),
                        Fold::Min => line.iter().copied().min().unwrap_or(0),
                    })
                    .collect();
                let of = |i: usize| folded[if *axis == 1 { i / side } else { i % side }];
                value.iter().enumerate().map(|(i, &value)| clamp(value - of(i))).collect()
            }
            Expression::Scan(value, axis) => {
                let value = self.value(value);
                let lines = if *axis == 1 { value } else { turned(&value) };
                let sums = |line: &[i64]| -> Vec<i64> { (0..side).map(|i| clamp(line[..=i].iter().sum())).collect() };
                let scanned: Vec<i64> = lines.chunks(side).flat_map(sums).collect();
                if *axis == 1 { scanned } else { turned(&scanned) }
            }
            Expression::Turn(value) => turned(&self.value(value)),
            Expression::Swap(value, axis) => {
                let (value, half) = (self.value(value), side / 2);
                let other =
                    |i: usize| if *axis == 1 { i / side * side + (i + half) % side } else { (i + half * side) % (side * side) };
                (0..side * side).map(|i| value[other(i)]).collect()
            }
            Expression::Product(three) => {
                let [a, b, c] = three.each_ref().map(|value| self.value(value));
                let sum = |i: usize| (0..side).map(|k| a[i / side * side + k] * b[k * side + i % side]).sum::<i64>();
                (0..side * side).map(|i| clamp(sum(i) + c[i])).collect()
            }
        }
    }
}
