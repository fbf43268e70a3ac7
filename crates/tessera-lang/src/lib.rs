//! The kernel language: Python syntax in, Schedule IR out, diagnostics with carets on the way.
//!
//! [`parse_file`] reads a file and finds its kernels; [`lower`] compiles one of them for given arguments. Evaluation is
//! abstract interpretation of the syntax tree: an expression's value is either a tile that exists at run time, for which
//! operations are emitted, or a compile-time value (a number, a tuple, a dtype, a function), for which nothing is. Helper
//! functions are inlined, `if` on compile-time conditions is decided, loops and branches become structured operations that
//! carry the variables they assign.
//!
//! ```
//! use tessera_lang::{ArgType, ConstValue, LowerOptions, lower, parse_file};
//! use tessera_types::DType;
//!
//! let file = parse_file("scale.py", "
//! import cuda.tile as ct
//!
//! @ct.kernel
//! def scale(x, factor, N: ct.Constant[int]):
//!     i = ct.bid(0)
//!     ct.store(x, (i,), ct.load(x, (i,), (N,)) * factor)
//! ");
//! let args = [
//!     ("x".to_string(), ArgType::array(DType::F32, 1)),
//!     ("factor".to_string(), ArgType::Scalar(DType::F32)),
//!     ("N".to_string(), ArgType::Const(ConstValue::Int(64))),
//! ];
//! let module = lower(&file, "scale", &args, &LowerOptions::default()).unwrap();
//! assert_eq!(module.funcs[0].name, "scale");
//! ```

pub mod ast;

mod annotation;
mod args;
mod bind;
mod builtins;
mod class;
mod declarative;
mod diagnostics;
mod file;
mod fixed;
mod lower;
mod modules;
mod nesting;
mod number;
mod promote;
mod python;
mod scopes;
mod signature;
mod style;
mod value;
mod written;

pub mod simt;
pub mod tuning;

pub use annotation::{Annotation, ConstKind};
pub use args::{ArgType, ConstValue, LowerOptions, number_class, state_odd_lines, state_rows};
pub use builtins::{Builtin, BuiltinRow, REFUSED, Space};
pub use diagnostics::{DiagnosticRow, ROWS as DIAGNOSTICS};
pub use file::{DECORATOR, Kernel, Param, ParsedFile, parse_file, parse_live, parse_project};
pub use lower::{Lowered, kernel_option_takes, kernel_options, lower, lower_with_notes};
pub use modules::{ModuleText, Modules, Wanted};
pub use style::Style;
