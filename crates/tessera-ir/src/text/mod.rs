//! The text form of every level.

pub mod cursor;
mod interface;
mod parse;
mod plan;
mod print;

pub use crate::constant::element as parse_element;
pub use parse::{Form, parse_module, parse_plan, parse_type, parse_with};
pub use print::{print_func, print_module, print_plan};
