//! Target IR and PTX: one typed model of the PTX subset that Tessera emits, with its text form.
//!
//! - The **instruction table** ([`Row`], [`rows`]) states each instruction once: mnemonic with its modifiers, operand
//!   pattern, the PTX version and the target it needs. Parser, printer, legality check and documentation follow from the row.
//! - The **model** ([`Module`], [`Function`], [`Instruction`]) is what a kernel is made of. It prints as PTX ([`print()`]) and is
//!   read back ([`parse`]); `parse(print(m)) == m`.
//! - The **SSA form** ([`ssa`]) is what compilers build: values and blocks instead of registers and labels, with its
//!   optimiser and the way out to the model.
//! - The **check** ([`check`]) applies the rows to a module: operands, register types, version and target.
//! - The **assembler** ([`Assembler`]) finds `ptxas`, runs it and turns its messages into [`AssemblyReport`]; the **disassembler**
//!   ([`Disassembler`]) gives machine code back as data ([`sass`]).
//!
//! ```
//! let text = "
//! .version 8.0
//! .target sm_90a
//! .address_size 64
//! .visible .entry scale(.param .u64 x)
//! {
//!     .reg .f32 %f<2>;
//!     .reg .u64 %a<1>;
//!     ld.param.u64 %a0, [x];
//!     ld.global.f32 %f0, [%a0];
//!     mul.rn.f32 %f1, %f0, 0f40000000;
//!     st.global.f32 [%a0], %f1;
//!     ret;
//! }";
//! let module = tessera_ptx::parse(text).unwrap();
//! assert!(tessera_ptx::check(&module).is_empty());
//! assert_eq!(tessera_ptx::parse(&tessera_ptx::print(&module)).unwrap(), module);
//! ```

mod assembler;
mod check;
mod constant;
mod disassembler;
mod error;
pub mod examples;
mod form;
mod fragment;
mod initial;
mod lexer;
mod messages;
mod mnemonic;
mod model;
mod operand_rule;
mod parser;
mod parser_body;
mod printer;
pub mod sass;
pub mod ssa;
mod table;
mod target;
mod tool;
mod types;
mod word;

pub use assembler::{AssembleError, Assembler, Assembly, Optimize};
pub use check::check;
pub use disassembler::{DisassembleError, Disassembler};
pub use error::PtxError;
pub use form::{Row, RowId, rows};
pub use messages::{AssemblyReport, FunctionUsage, Message, Severity};
pub use mnemonic::Mnemonic;
pub use model::{
    Address, Base, Declaration, Function, FunctionKind, Guard, Initial, Inlined, Instruction, Item, Limit, Linkage, Loc, Module,
    Name, Operand, Part, RegId, Register, Space, Statement, Variable, file_name,
};
pub use parser::parse;
pub use printer::print;
pub use target::{Needs, PtxVersion, Target, Variant};
pub use tool::{Missing, Tool, ToolSource};
pub use types::Type;
pub use word::{Modifier, Special, Word};
