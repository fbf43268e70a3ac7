//! What stands around a kernel's body: parameters, launch limits, source places.
//!
//! The entry's parameters are the ABI's arguments in order: an array is a pointer, then sizes, then strides. What the ABI
//! states as a number is a constant in the body.

use tessera_ir::{Elem, HiddenParam, Module, ParamKind, Span, Type, Value};
use tessera_ptx::ssa::Builder;
use tessera_ptx::{Limit, Loc, Type as Ty, file_name};
use tessera_types::DType;

use super::bound::class_of;
use super::lowering::{Lowered, Lowering};

/// The source files that places are in, in the order of their first mention.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    sources: Vec<tessera_ir::SourceId>,
    last: Option<(Span, Loc)>,
}

impl Files {
    /// The names of the files, from number 1 on.
    pub(super) fn names(&self, module: &Module) -> Vec<String> {
        self.sources.iter().map(|&id| file_name(&module.sources.get(id).name)).collect()
    }

    /// Says where the instructions that follow come from.
    pub(super) fn set_loc(&mut self, builder: &mut Builder, module: &Module, span: Span) {
        if self.last.is_none_or(|(last, _)| last != span) {
            let number = match self.sources.iter().position(|&known| known == span.source) {
                Some(number) => number,
                None => {
                    self.sources.push(span.source);
                    self.sources.len() - 1
                }
            };
            let (line, column) = module.sources.get(span.source).line_column(span.start);
            self.last = Some((span, Loc { file: number as u32 + 1, line: line as u32, column: column as u32 }));
        }
        builder.set_loc(self.last.map(|(_, loc)| loc));
    }
}

/// A name that PTX takes.
pub(super) fn identifier(name: &str) -> String {
    let mut text: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        text.insert_str(0, "k_");
    }
    text
}

impl Lowering<'_> {
    /// Binds the function's arguments to the entry's parameters.
    pub(super) fn parameters(&mut self) -> Lowered<()> {
        let func = self.func;
        let mut args = func.args().iter().copied();
        for (position, param) in func.abi.params.iter().enumerate() {
            let name = format!("{}_{position}", identifier(&param.name));
            match &param.kind {
                ParamKind::Array { align, shape, .. } => {
                    if let Some(pointer) = args.next() {
                        let reg = self.b.pointer_param(&name, (*align).max(1));
                        self.bind_regs(pointer, [reg]);
                    }
                    for what in ["size", "stride"] {
                        for axis in 0..shape.len() {
                            if let Some(value) = args.next() {
                                self.scalar_parameter(&format!("{name}_{what}{axis}"), value)?;
                            }
                        }
                    }
                }
                ParamKind::List { .. } => {
                    if let Some(pointer) = args.next() {
                        let reg = self.b.pointer_param(&name, 8);
                        self.bind_regs(pointer, [reg]);
                    }
                    if let Some(length) = args.next() {
                        self.scalar_parameter(&format!("{name}_length"), length)?;
                    }
                }
                ParamKind::Scalar { .. } => {
                    if let Some(value) = args.next() {
                        self.scalar_parameter(&name, value)?;
                    }
                }
                ParamKind::Operand { .. } => return Err(self.broken("an operand that was not tiled")),
            }
        }
        for (position, value) in args.enumerate() {
            self.scalar_parameter(&format!("argument_{position}"), value)?;
        }
        if func.hints.is_launched_otherwise() {
            self.asked = ["x", "y", "z"].iter().map(|axis| self.b.scalar_param(&format!("blocks_{axis}"), Ty::U32)).collect();
            self.hidden.push(HiddenParam::Grid);
            self.maps.extend(self.asked.first());
        }
        Ok(())
    }

    fn scalar_parameter(&mut self, name: &str, value: Value) -> Lowered<()> {
        let Type::Tile(tile) = self.func.ty(value) else { return Err(self.broken("a parameter that is no scalar")) };
        let elem = tile.elem;
        let ty = match elem {
            Elem::Ptr(_) => {
                let reg = self.b.pointer_param(name, 1);
                self.bind_regs(value, [reg]);
                return Ok(());
            }
            Elem::Num(DType::F32) => Ty::F32,
            Elem::Num(DType::F64) => Ty::F64,
            Elem::Num(DType::I32) => Ty::S32,
            Elem::Num(DType::I64) => Ty::S64,
            Elem::Num(dtype) => match dtype.unpacked_bytes() {
                1 => Ty::U8,
                2 => Ty::U16,
                4 => Ty::B32,
                _ => Ty::B64,
            },
        };
        let reg = self.b.scalar_param(name, ty);
        let stated = self.facts.fact(value).value().filter(|_| matches!(elem, Elem::Num(dtype) if dtype.is_integer()));
        let reg = match stated {
            Some(stated) => self.bits(elem, stated as u64),
            None => {
                let reg = self.fitted(reg, class_of(elem));
                self.truth_of_byte(elem, reg)
            }
        };
        self.bind_regs(value, [reg]);
        Ok(())
    }

    /// A truth value out of a byte whose upper bits are zero.
    fn truth_of_byte(&mut self, elem: Elem, reg: tessera_ptx::ssa::Value) -> tessera_ptx::ssa::Value {
        if elem == Elem::Num(DType::B1) { self.read_element(elem, reg) } else { reg }
    }

    /// States the launch limits.
    pub(super) fn limits(&mut self, threads: u32) -> Lowered<()> {
        let limits = self.arch.limits();
        if threads > limits.threads_per_block {
            let message =
                format!("a block of {threads} threads is more than the {} that a block may have", limits.threads_per_block);
            return Err(Box::new(
                tessera_ir::Diagnostic::error("target-threads", self.func.span, message).help("ask for fewer warps"),
            ));
        }
        let programs = self.func.hints.programs.unwrap_or(1);
        let threads = threads * programs;
        self.b.limit(match programs {
            1 => Limit::RequiredThreads([threads, 1, 1]),
            _ => Limit::MaxThreads([threads, 1, 1]),
        });
        if let Some(blocks) = self.func.hints.blocks_of_cluster() {
            if !self.arch.has_clusters() || blocks > limits.blocks_per_cluster {
                return Err(self.unsupported(format!("there are no clusters of {blocks} blocks")));
            }
            self.b.limit(Limit::Cluster([blocks, 1, 1]));
        }
        let resident = (self.func.hints.occupancy.unwrap_or(1) / programs).min(limits.blocks_per_sm);
        self.b.limit(Limit::MinBlocks(resident.clamp(1, (limits.threads_per_sm / threads.max(1)).max(1))));
        Ok(())
    }

    /// Refuses a kernel that needs more shared memory than a block may have.
    pub(super) fn check_shared(&self, bytes: u64) -> Lowered<u32> {
        let limit = u64::from(self.arch.limits().shared_per_block);
        if bytes > limit {
            let message = format!(
                "the kernel needs {bytes} bytes of shared memory, {} more than a block has on `{}`",
                bytes - limit,
                self.arch
            );
            return Err(Box::new(
                tessera_ir::Diagnostic::error("target-shared-memory", self.func.span, message)
                    .help("make the tiles smaller, or use fewer stages"),
            ));
        }
        Ok(bytes as u32)
    }
}
