//! Random kernels that read and write the same arrays at equal, shifted and overlapping places, with what they mean.
//!
//! Every number is an integer between -8 and 8, which each type holds and computes with exactly: `clamp` stands around whatever could leave
//! that range. So conversions change nothing, results agree bit by bit, and the meaning ([`Program::run`]) is a page of integer
//! arithmetic that knows neither tiles nor types.

mod meaning;
mod products;
mod shrink;
mod text;

pub(crate) use products::{Product, product};
use tessera_types::DType;

/// Yields a number below its argument.
pub(crate) type Choose<'c> = dyn FnMut(usize) -> usize + 'c;

/// Types of arrays, and those of variables and arithmetic.
const STORED: [DType; 9] =
    [DType::F16, DType::BF16, DType::F32, DType::F8E4M3, DType::F8E5M2, DType::I8, DType::I16, DType::I32, DType::F64];
const COMPUTED: [DType; 7] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::F64, DType::I8, DType::I16];

/// Rounds of `range(n)`.
pub(crate) const ROUNDS: i64 = 3;

/// A program over arrays of `rows` times `columns` elements; its tiles have `side` times `side`.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) side: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) arrays: Vec<DType>,
    /// The second array is the first one's memory from this element on.
    pub(crate) shared: Option<usize>,
    variables: Vec<DType>,
    /// What each variable is loaded from at the start.
    starts: Vec<Place>,
    body: Vec<Statement>,
}

/// A number that says where a tile lies.
#[derive(Clone, Copy, Debug)]
enum Index {
    Fixed(i64),
    /// `(k + plus) % modulus` for the counter of an enclosing loop.
    Counted {
        level: usize,
        plus: i64,
        modulus: i64,
    },
}

/// The elements of an array that a tile's elements are, by row and column `(x, y)` of the tile.
#[derive(Clone, Copy, Debug)]
struct Place {
    array: usize,
    row: Index,
    column: Index,
    shape: Footprint,
}

#[derive(Clone, Copy, Debug)]
enum Footprint {
    /// Tile `(row, column)` of the array without its first rows and columns.
    Tile { skip: [usize; 2] },
    /// The same, with rows and columns exchanged.
    Turned,
    /// `side * side` neighbours of a row.
    Line,
    /// Elements `(row + x * steps[0], column + y * steps[1])`, through index tiles.
    Points { steps: [i64; 2] },
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Add,
    Sub,
    Mul,
    Max,
    Min,
    /// The first where it is less than the second, else 3.
    Where,
}

#[derive(Clone, Copy, Debug)]
enum Fold {
    Sum,
    Max,
    Min,
}

#[derive(Clone, Debug)]
enum Expression {
    Load(Place),
    Variable(usize),
    Cast(Box<Expression>, DType),
    Binary(Operation, Box<[Expression; 2]>, DType),
    /// Minus what a fold along an axis yields.
    Less(Box<Expression>, Fold, usize),
    /// Running sums along an axis.
    Scan(Box<Expression>, usize),
    Turn(Box<Expression>),
    /// The halves along an axis exchanged.
    Swap(Box<Expression>, usize),
    Product(Box<[Expression; 3]>),
}

#[derive(Clone, Copy, Debug)]
enum Update {
    Max,
    Min,
    Exchange,
    /// What is 1 becomes the value.
    Swap,
}

#[derive(Clone, Debug)]
enum Test {
    /// The counter of the innermost loop is odd.
    Odd(usize),
    /// The elements' sum is positive.
    Positive(Expression),
    /// The tile's first element is positive, read alone.
    First(Place),
}

#[derive(Clone, Debug)]
enum Statement {
    Assign(usize, Expression),
    Store(Place, Expression),
    Update {
        variable: usize,
        place: Place,
        how: Update,
        value: Expression,
    },
    For {
        rounds: Option<i64>,
        level: usize,
        body: Vec<Statement>,
    },
    If(Test, Vec<Statement>, Vec<Statement>),
    /// Goes on with the next round.
    Skip(Test),
}

struct Generator<'g, 'c> {
    choose: &'g mut Choose<'c>,
    program: Program,
    budget: usize,
    loops: usize,
    depth: usize,
}

/// A program of about `size` statements.
pub(crate) fn program(size: usize, choose: &mut Choose<'_>) -> Program {
    let side = [4, 8, 8, 16][choose(4)];
    let columns = if side < 16 { side * side.max(3) } else { 3 * side };
    let mut arrays: Vec<DType> = (0..1 + choose(3)).map(|_| STORED[choose(STORED.len())]).collect();
    let shared = (arrays.len() > 1 && choose(4) == 0).then(|| [0, 1, columns, 2 * columns + 3][choose(4)]);
    if shared.is_some() {
        arrays[1] = arrays[0];
    }
    let variables = (0..2 + choose(2)).map(|_| COMPUTED[choose(COMPUTED.len())]).collect();
    let (starts, body) = (Vec::new(), Vec::new());
    let program = Program { side, rows: 3 * side, columns, arrays, shared, variables, starts, body };
    let mut generator = Generator { choose, program, budget: size, loops: 0, depth: 0 };
    let count = generator.program.variables.len();
    let (starts, mut body) = ((0..count).map(|_| generator.place()).collect(), Vec::new());
    while generator.budget > 0 {
        body.push(generator.statement());
    }
    // What the variables hold in the end is seen.
    for variable in 0..count {
        let place = generator.place();
        body.push(Statement::Store(place, Expression::Variable(variable)));
    }
    Program { starts, body, ..generator.program }
}

impl Generator<'_, '_> {
    fn below(&mut self, limit: usize) -> usize {
        (self.choose)(limit) % limit
    }

    fn block(&mut self, most: usize) -> Vec<Statement> {
        self.depth += 1;
        let count = 1 + self.below(most);
        let body = (0..count).map(|_| self.statement()).collect();
        self.depth -= 1;
        body
    }

    fn statement(&mut self) -> Statement {
        self.budget = self.budget.saturating_sub(1);
        let variables = self.program.variables.len();
        match self.below(16) {
            0..=3 => Statement::Assign(self.below(variables), self.expression(2)),
            4..=8 => Statement::Store(self.place(), self.expression(2)),
            9 => {
                let Some(array) = self.program.arrays.iter().position(|&dtype| dtype == DType::I32) else {
                    return Statement::Store(self.place(), self.expression(1));
                };
                let (variable, steps) = (self.below(variables), [1, 1]);
                let place = Place { array, shape: Footprint::Points { steps }, ..self.place() };
                let how = [Update::Max, Update::Min, Update::Exchange, Update::Swap][self.below(4)];
                Statement::Update { variable, place, how, value: self.expression(1) }
            }
            10..=12 if self.depth < 3 => {
                let rounds = (self.below(2) == 0).then(|| 1 + self.below(4) as i64);
                let level = self.loops;
                self.loops += 1;
                let body = self.block(6);
                self.loops -= 1;
                Statement::For { rounds, level, body }
            }
            13 | 14 if self.depth < 3 => Statement::If(self.test(), self.block(4), self.block(3)),
            15 if self.loops > 0 => Statement::Skip(self.test()),
            _ => Statement::Store(self.place(), Expression::Variable(self.below(variables))),
        }
    }

    fn test(&mut self) -> Test {
        match self.below(3) {
            0 if self.loops > 0 => Test::Odd(self.loops - 1),
            1 => Test::First(Place { shape: Footprint::Tile { skip: [0, 0] }, ..self.place() }),
            _ => Test::Positive(self.expression(1)),
        }
    }

    /// An index below `most`.
    fn index(&mut self, most: usize) -> Index {
        if self.loops > 0 && self.below(2) == 0 {
            let (level, plus) = (self.below(self.loops), self.below(3) as i64);
            return Index::Counted { level, plus, modulus: most as i64 };
        }
        Index::Fixed(self.below(most) as i64)
    }

    fn place(&mut self) -> Place {
        let Program { side, rows, columns, .. } = self.program;
        // Most accesses meet in few arrays and places.
        let array = self.below(self.program.arrays.len());
        let (down, across) = (rows / side, (columns / side).min(3));
        let shape = match self.below(9) {
            0..=3 => Footprint::Tile { skip: [0, 0] },
            4 | 5 => Footprint::Tile { skip: [self.below(3), self.below(3)] },
            6 => Footprint::Turned,
            7 if columns >= side * side => Footprint::Line,
            _ => Footprint::Points { steps: [[1, 2, -1][self.below(3)], [1, -1, 2][self.below(3)]] },
        };
        let (row, column) = match shape {
            Footprint::Tile { .. } | Footprint::Turned => (self.index(down), self.index(across)),
            Footprint::Line => (self.index(rows), self.index(columns / (side * side))),
            Footprint::Points { .. } => (self.index(rows), self.index(columns)),
        };
        Place { array, row, column, shape }
    }

    fn expression(&mut self, depth: usize) -> Expression {
        if depth == 0 || self.below(6) == 0 {
            return match self.below(2) {
                0 => Expression::Load(self.place()),
                _ => Expression::Variable(self.below(self.program.variables.len())),
            };
        }
        let inner = |this: &mut Self| Box::new(this.expression(depth - 1));
        match self.below(14) {
            0..=3 => Expression::Cast(inner(self), COMPUTED[self.below(COMPUTED.len())]),
            4..=8 => {
                use Operation::{Add, Max, Min, Mul, Sub, Where};
                let operation = [Add, Sub, Mul, Max, Min, Where][self.below(6)];
                let both = Box::new([self.expression(depth - 1), self.expression(depth - 1)]);
                Expression::Binary(operation, both, COMPUTED[self.below(COMPUTED.len())])
            }
            9 => Expression::Less(inner(self), [Fold::Sum, Fold::Max, Fold::Min][self.below(3)], self.below(2)),
            10 => Expression::Scan(inner(self), self.below(2)),
            11 => Expression::Turn(inner(self)),
            12 => Expression::Swap(inner(self), self.below(2)),
            _ => Expression::Product(Box::new([0; 3].map(|_| self.expression(depth - 1)))),
        }
    }
}
