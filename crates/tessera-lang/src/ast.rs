//! The syntax tree that the rest of the crate works on: small, owned, with a span on every node.
//!
//! It holds what the kernel language may use and, for everything else Python can say, one [`ExprKind::Unsupported`] or
//! [`StmtKind::Unsupported`] node that names the construct, so that host code in the same file parses and is ignored.

use std::sync::Arc;

use indexmap::IndexSet;
use tessera_ir::Span;

/// A name as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ident {
    /// The text.
    pub name: String,
    /// Where.
    pub span: Span,
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A name.
    Name(String),
    /// An integer literal.
    Int(i128),
    /// A float literal.
    Float(f64),
    /// `True` or `False`.
    Bool(bool),
    /// A string literal.
    Str(String),
    /// An f-string.
    FString(Vec<FPart>),
    /// `None`.
    None,
    /// `...`.
    Ellipsis,
    /// A tuple.
    Tuple(Vec<Expr>),
    /// A list display.
    List(Vec<Expr>),
    /// `*x` in a tuple or a call.
    Starred(Box<Expr>),
    /// `**x` in a call.
    DoubleStarred(Box<Expr>),
    /// `yield` or `yield x`.
    Yield(Option<Box<Expr>>),
    /// A dictionary display.
    Dict(Vec<(Expr, Expr)>),
    /// A unary operation.
    Unary(UnaryOp, Box<Expr>),
    /// A binary operation.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `a and b ...` when the flag holds, else `a or b ...`.
    BoolOp(BoolOp, Vec<Expr>),
    /// `a < b <= c`.
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    /// A call.
    Call(Box<Expr>, Vec<Arg>),
    /// `x.name`.
    Attribute(Box<Expr>, Ident),
    /// `x[index]`.
    Subscript(Box<Expr>, Box<Expr>),
    /// `lower:upper:step` inside a subscript.
    Slice([Option<Box<Expr>>; 3]),
    /// `a if test else b`.
    IfElse {
        /// The condition.
        test: Box<Expr>,
        /// The value where it holds.
        body: Box<Expr>,
        /// The value elsewhere.
        orelse: Box<Expr>,
    },
    /// `lambda params: body`, as a function whose body is one `return`.
    Lambda(Arc<Function>),
    /// A list comprehension or generator expression.
    Comprehension {
        /// The element.
        element: Box<Expr>,
        /// `for target in iterable if ...`, outermost first.
        clauses: Vec<Clause>,
        /// The names that the targets bind, which are the comprehension's own.
        names: Arc<Names>,
        /// True for a generator expression, whose items are made when they are asked for.
        lazy: bool,
    },
    /// Python that the kernel language has no use for; the text names the construct.
    Unsupported(&'static str),
}

/// One `for` clause of a comprehension.
#[derive(Clone, Debug)]
pub struct Clause {
    /// What is bound.
    pub target: Expr,
    /// What is iterated over.
    pub iterable: Expr,
    /// Conditions.
    pub conditions: Vec<Expr>,
}

/// A piece of an f-string.
#[derive(Clone, Debug)]
pub enum FPart {
    /// Text.
    Text(String),
    /// `{value!conversion:format}`.
    Value {
        /// The expression.
        value: Expr,
        /// `r`, `s` or `a`.
        conversion: Option<char>,
        /// The format, empty when absent.
        format: String,
    },
}

/// An argument of a call.
#[derive(Clone, Debug)]
pub struct Arg {
    /// The keyword, for keyword arguments.
    pub keyword: Option<Ident>,
    /// The value.
    pub value: Expr,
}

/// A unary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `+x`
    Pos,
    /// `~x`
    Invert,
    /// `not x`
    Not,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `@`
    MatMul,
    /// `/`
    Div,
    /// `//`
    FloorDiv,
    /// `%`
    Mod,
    /// `**`
    Pow,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
}

impl BinaryOp {
    /// The operator as written.
    pub const fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::MatMul => "@",
            BinaryOp::Div => "/",
            BinaryOp::FloorDiv => "//",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "**",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::And => "&",
            BinaryOp::Or => "|",
            BinaryOp::Xor => "^",
        }
    }
}

/// `and` or `or`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoolOp {
    /// `and`
    And,
    /// `or`
    Or,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `is`
    Is,
    /// `is not`
    IsNot,
    /// `in`
    In,
    /// `not in`
    NotIn,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Where.
    pub span: Span,
}

/// What a statement is.
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// `a = b = value`.
    Assign(Vec<Expr>, Expr),
    /// `target op= value`.
    AugAssign(Expr, BinaryOp, Expr),
    /// `target: annotation = value`.
    AnnAssign(Expr, Expr, Option<Expr>),
    /// An expression for its effect.
    Expr(Expr),
    /// A `for` loop.
    For {
        /// What is bound.
        target: Expr,
        /// What is iterated over.
        iterable: Expr,
        /// The body.
        body: Vec<Stmt>,
    },
    /// A `while` loop.
    While {
        /// The condition.
        test: Expr,
        /// The body.
        body: Vec<Stmt>,
    },
    /// An `if`; `elif` is an `if` in the else part, and so is the `else` part of a loop that has a `break`: an `if` on a variable
    /// `$broke...` that is set where the loop is left.
    If {
        /// The condition.
        test: Expr,
        /// Where it holds.
        body: Vec<Stmt>,
        /// Elsewhere.
        orelse: Vec<Stmt>,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return value`
    Return(Option<Expr>),
    /// `pass`
    Pass,
    /// `raise exception`
    Raise(Option<Expr>),
    /// `assert condition, message`
    Assert(Expr, Option<Expr>),
    /// A function.
    Function(Arc<Function>),
    /// `with manager as target, ...:`
    With {
        /// The managers, each with what is bound to what it yields.
        items: Vec<(Expr, Option<Expr>)>,
        /// The body.
        body: Vec<Stmt>,
    },
    /// A class.
    Class(Arc<Class>),
    /// Imported names.
    Import(Vec<Import>),
    /// Python that the kernel language has no use for; the text names the construct.
    Unsupported(&'static str),
}

/// One imported name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The name it gets here; `*` for those of a whole module.
    pub name: String,
    /// The dots before the module's name: 0 for an absolute import.
    pub level: u32,
    /// The module, with dots; empty for the package itself.
    pub module: String,
    /// What of the module; `None` for the module.
    pub member: Option<String>,
    /// Whether the name stands for the outermost package of the module: `import a.b` binds `a`.
    pub binds_top: bool,
    /// Where.
    pub span: Span,
}

/// How a parameter can be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// By position only.
    Positional,
    /// Either way.
    Either,
    /// By keyword only.
    Keyword,
    /// `*args`.
    Variadic,
    /// `**kwargs`.
    Keywords,
}

/// A parameter of a function.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: Ident,
    /// How it is passed.
    pub passing: Passing,
    /// Its annotation.
    pub annotation: Option<Expr>,
    /// Its default.
    pub default: Option<Expr>,
}

/// The names that belong to a function or comprehension, by Python's rule: what it binds anywhere in its body is its own in all of
/// the body, and everything else is looked up outside.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// What it binds: parameters, targets, nested functions, imports.
    pub own: IndexSet<String>,
    /// Those of its own names that functions defined inside it read.
    pub shared: IndexSet<String>,
}

/// A class.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: Ident,
    /// Decorators, outermost first.
    pub decorators: Vec<Expr>,
    /// Base classes and, by keyword, options.
    pub bases: Vec<Arg>,
    /// The body.
    pub body: Vec<Stmt>,
    /// The whole definition.
    pub span: Span,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name; `<lambda>` for a lambda.
    pub name: Ident,
    /// Decorators, outermost first.
    pub decorators: Vec<Expr>,
    /// Parameters.
    pub params: Vec<Parameter>,
    /// Its variables.
    pub names: Arc<Names>,
    /// What keeps it from being used in kernels, such as `async`, and where that stands.
    pub unsupported: Option<(&'static str, Span)>,
    /// The body.
    pub body: Vec<Stmt>,
    /// The whole definition.
    pub span: Span,
}
