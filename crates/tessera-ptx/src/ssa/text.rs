//! How a kernel in SSA form reads: for people, reports and tests of passes.
//!
//! ```text
//! kernel loop(x: pointer 4, n: s32)
//! b0:
//!     %5:pred = setp.lt.s32 0, n
//!     branch %5, b2(0, 0), b1(0)
//! b2(%8:b32, %9:b32):
//!     %10:b64 = mad.wide.s32 %8, 4, x
//!     %11:b32 = ld.global.f32 [%10]
//! ```
//! Leaves are written as what they are: numbers, parameters by name, special registers, `&tile+16`. Registers that an
//! instruction takes over read `%old=>`, hidden arguments stand behind `with`.

use std::fmt::{self, Display, Formatter};

use super::inst::{Address, Arg, Target, Terminator};
use super::kernel::{Block, Inst, Kernel, Origin, ParamKind, Value};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}(", self.name)?;
        for (index, param) in self.params.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match param.kind {
                ParamKind::Pointer(align) => write!(f, "{comma}{}: pointer {align}", param.name)?,
                ParamKind::Scalar(ty) => write!(f, "{comma}{}: {ty}", param.name)?,
                ParamKind::TensorMap => write!(f, "{comma}{}: map", param.name)?,
            }
        }
        writeln!(f, ")")?;
        for limit in &self.limits {
            writeln!(f, "limit {limit:?}")?;
        }
        for shared in &self.shared {
            let bytes = shared.bytes.map_or("dynamic".to_owned(), |bytes| bytes.to_string());
            writeln!(f, "shared {}: {bytes} align {}", shared.name, shared.align)?;
        }
        for data in &self.data {
            writeln!(f, "data {}: {} align {}", data.name, data.bytes.escape_ascii(), data.align)?;
        }
        if self.frame_bytes > 0 {
            writeln!(f, "frame {}", self.frame_bytes)?;
        }
        self.layout.iter().try_for_each(|&block| self.write_block(f, block))
    }
}

fn list<T>(f: &mut Formatter<'_>, items: &[T], mut each: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ", " })?;
        each(f, item)?;
    }
    Ok(())
}

impl Kernel {
    fn write_block(&self, f: &mut Formatter<'_>, block: Block) -> fmt::Result {
        let data = self.block(block);
        write!(f, "b{}", block.0)?;
        if !data.params.is_empty() {
            f.write_str("(")?;
            list(f, &data.params, |f, &param| self.write_def(f, param))?;
            f.write_str(")")?;
        }
        writeln!(f, ":")?;
        for &inst in &data.insts {
            self.write_inst(f, inst)?;
        }
        match &data.terminator {
            None => Ok(()),
            Some(Terminator::Jump(target)) => {
                f.write_str("    jump ")?;
                self.write_target(f, target)?;
                writeln!(f)
            }
            Some(Terminator::Branch { condition, then, otherwise }) => {
                f.write_str("    branch ")?;
                self.write_value(f, *condition)?;
                f.write_str(", ")?;
                self.write_target(f, then)?;
                f.write_str(", ")?;
                self.write_target(f, otherwise)?;
                writeln!(f)
            }
            Some(Terminator::Return) => writeln!(f, "    return"),
            Some(Terminator::Exit) => writeln!(f, "    exit"),
            Some(Terminator::Trap) => writeln!(f, "    trap"),
        }
    }

    fn write_target(&self, f: &mut Formatter<'_>, target: &Target) -> fmt::Result {
        write!(f, "b{}", target.block.0)?;
        if target.args.is_empty() {
            return Ok(());
        }
        f.write_str("(")?;
        list(f, &target.args, |f, &arg| self.write_value(f, arg))?;
        f.write_str(")")
    }

    fn write_def(&self, f: &mut Formatter<'_>, value: Value) -> fmt::Result {
        write!(f, "%{}:{}", value.0, self.class(value).ty())
    }

    fn write_value(&self, f: &mut Formatter<'_>, value: Value) -> fmt::Result {
        match self.origin(value) {
            Origin::Const(bits) => write!(f, "{bits}"),
            Origin::Undef => write!(f, "undef"),
            Origin::Special(special) => write!(f, "{special}"),
            Origin::Param(index) => write!(f, "{}", self.params[index as usize].name),
            Origin::ParamAddress(index) => write!(f, "&{}", self.params[index as usize].name),
            Origin::Shared(index, 0) => write!(f, "&{}", self.shared[index as usize].name),
            Origin::Shared(index, offset) => write!(f, "&{}+{offset}", self.shared[index as usize].name),
            Origin::Data(index) => write!(f, "&{}", self.data[index as usize].name),
            Origin::Frame => write!(f, "&frame"),
            Origin::BlockParam(..) | Origin::Result(_) => write!(f, "%{}", value.0),
        }
    }

    fn write_inst(&self, f: &mut Formatter<'_>, inst: Inst) -> fmt::Result {
        let data = self.inst(inst);
        f.write_str("    ")?;
        let defines = |arg: &&Arg| match arg {
            Arg::Def(_) | Arg::Pair(..) | Arg::Sink | Arg::Tied { .. } => true,
            Arg::Vector(parts) | Arg::List(parts) => parts.iter().any(|part| matches!(part, Arg::Def(_) | Arg::Tied { .. })),
            Arg::Function(_) | Arg::Use(_) | Arg::Not(_) | Arg::Int(_) | Arg::Special(_) | Arg::Address(_) => false,
        };
        let results = data.args.iter().take_while(defines).count();
        list(f, &data.args[..results], |f, arg| self.write_arg(f, arg))?;
        f.write_str(if results > 0 { " = " } else { "" })?;
        if let Some(guard) = data.guard {
            f.write_str(if guard.negated { "@!" } else { "@" })?;
            self.write_value(f, guard.value)?;
            f.write_str(" ")?;
        }
        f.write_str(self.text(inst))?;
        f.write_str(if data.args.len() > results { " " } else { "" })?;
        list(f, &data.args[results..], |f, arg| self.write_arg(f, arg))?;
        if !data.hidden.is_empty() {
            f.write_str(" with ")?;
            list(f, &data.hidden, |f, arg| self.write_arg(f, arg))?;
        }
        writeln!(f)
    }

    fn write_arg(&self, f: &mut Formatter<'_>, arg: &Arg) -> fmt::Result {
        match arg {
            Arg::Def(value) => self.write_def(f, *value),
            Arg::Pair(first, second) => {
                self.write_def(f, *first)?;
                f.write_str("|")?;
                self.write_def(f, *second)
            }
            Arg::Sink => f.write_str("_"),
            Arg::Tied { input, output } => {
                self.write_value(f, *input)?;
                f.write_str("=>")?;
                self.write_def(f, *output)
            }
            Arg::Use(value) => self.write_value(f, *value),
            Arg::Not(value) => {
                f.write_str("!")?;
                self.write_value(f, *value)
            }
            Arg::Int(value) => write!(f, "{value}"),
            Arg::Special(special) => write!(f, "{special}"),
            Arg::Address(address) => self.write_address(f, address),
            Arg::Function(name) => f.write_str(name),
            Arg::List(parts) => {
                f.write_str("(")?;
                list(f, parts, |f, part| self.write_arg(f, part))?;
                f.write_str(")")
            }
            Arg::Vector(parts) => {
                f.write_str("{")?;
                list(f, parts, |f, part| self.write_arg(f, part))?;
                f.write_str("}")
            }
        }
    }

    fn write_address(&self, f: &mut Formatter<'_>, address: &Address) -> fmt::Result {
        f.write_str("[")?;
        self.write_value(f, address.base)?;
        if address.offset != 0 {
            write!(f, "+{}", address.offset)?;
        }
        if let Some(coordinates) = &address.coordinates {
            f.write_str(", {")?;
            list(f, coordinates, |f, &value| self.write_value(f, value))?;
            f.write_str("}")?;
        }
        f.write_str("]")
    }
}
