//! The text form of every level.

pub mod cursor;
mod parse;
mod print;

pub use parse::{parse_module, parse_type};
pub use print::{print_func, print_module};
