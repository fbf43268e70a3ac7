//! Smaller programs that still fail: what a message shows.

use super::{Expression, Program, Statement, Test};

impl Program {
    /// The program with statements and operations left out as long as `fails` holds.
    pub(crate) fn shrunk(mut self, fails: impl Fn(&Program) -> bool) -> Program {
        while let Some(body) = smaller_blocks(&self.body).into_iter().find(|body| fails(&self.with(body.clone()))) {
            self.body = body;
        }
        self
    }

    fn with(&self, body: Vec<Statement>) -> Program {
        Program { body, ..self.clone() }
    }
}

/// The block without one statement, or with a smaller one. What remains is never empty.
fn smaller_blocks(body: &[Statement]) -> Vec<Vec<Statement>> {
    let replaced = |at: usize, by: Vec<Statement>| [&body[..at], &by[..], &body[at + 1..]].concat();
    let mut found = Vec::new();
    for (at, statement) in body.iter().enumerate() {
        if body.len() > 1 {
            found.push(replaced(at, Vec::new()));
        }
        if let Statement::If(_, then, other) = statement {
            found.extend([then, other].map(|inner| replaced(at, inner.clone())));
        }
        found.extend(smaller(statement).into_iter().map(|smaller| replaced(at, vec![smaller])));
    }
    found
}

fn smaller(statement: &Statement) -> Vec<Statement> {
    match statement.clone() {
        Statement::Assign(variable, value) => parts(&value).into_iter().map(|value| Statement::Assign(variable, value)).collect(),
        Statement::Store(place, value) => parts(&value).into_iter().map(|value| Statement::Store(place, value)).collect(),
        Statement::Update { variable, place, how, value } => {
            parts(&value).into_iter().map(|value| Statement::Update { variable, place, how, value }).collect()
        }
        Statement::For { rounds, level, body } => {
            smaller_blocks(&body).into_iter().map(|body| Statement::For { rounds, level, body }).collect()
        }
        Statement::If(test, then, other) => {
            let of = |then, other| Statement::If(test.clone(), then, other);
            let first = smaller_blocks(&then).into_iter().map(|then| of(then, other.clone()));
            let second = smaller_blocks(&other).into_iter().map(|other| of(then.clone(), other));
            let tests = tests(&test).into_iter().map(|test| Statement::If(test, then.clone(), other.clone()));
            first.chain(second).chain(tests).collect()
        }
        Statement::Skip(test) => tests(&test).into_iter().map(Statement::Skip).collect(),
    }
}

fn tests(test: &Test) -> Vec<Test> {
    match test {
        Test::Positive(value) => parts(value).into_iter().map(Test::Positive).collect(),
        Test::Odd(_) | Test::First(_) => Vec::new(),
    }
}

/// What an expression is made of, and the expression with smaller operands.
fn parts(expression: &Expression) -> Vec<Expression> {
    let made = |of: Vec<Expression>| {
        let mut of = of.into_iter();
        let mut one = || Box::new(of.next().unwrap_or(Expression::Variable(0)));
        match expression.clone() {
            Expression::Load(_) | Expression::Variable(_) => expression.clone(),
            Expression::Cast(_, dtype) => Expression::Cast(one(), dtype),
            Expression::Binary(operation, _, dtype) => Expression::Binary(operation, Box::new([*one(), *one()]), dtype),
            Expression::Less(_, fold, axis) => Expression::Less(one(), fold, axis),
            Expression::Scan(_, axis) => Expression::Scan(one(), axis),
            Expression::Turn(_) => Expression::Turn(one()),
            Expression::Swap(_, axis) => Expression::Swap(one(), axis),
            Expression::Product(_) => Expression::Product(Box::new([*one(), *one(), *one()])),
        }
    };
    let operands = children(expression);
    let mut found: Vec<Expression> = operands.clone();
    for (at, operand) in operands.iter().enumerate() {
        for part in parts(operand) {
            let mut of = operands.clone();
            of[at] = part;
            found.push(made(of));
        }
    }
    found
}

fn children(expression: &Expression) -> Vec<Expression> {
    match expression {
        Expression::Load(_) | Expression::Variable(_) => Vec::new(),
        Expression::Cast(of, _)
        | Expression::Less(of, ..)
        | Expression::Scan(of, _)
        | Expression::Turn(of)
        | Expression::Swap(of, _) => vec![(**of).clone()],
        Expression::Binary(_, of, _) => of.to_vec(),
        Expression::Product(of) => of.to_vec(),
    }
}
