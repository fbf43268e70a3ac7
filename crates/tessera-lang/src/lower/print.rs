//! Printing and run-time assertions.

use tessera_ir::{Diagnostic, ScheduleOp, Span, Type};
use tessera_types::DType;

use super::expr::unsupported;
use super::operand::At;
use super::{Lowerer, Res};
use crate::ast::{Arg, ExprKind, FPart};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::promote::{dtype_name, is_restricted};
use crate::value::Val;

impl Lowerer<'_> {
    /// Emits the operation for a C format and its tiles.
    fn emit_print(&mut self, format: String, tiles: &[tessera_ir::Value]) {
        self.emit(ScheduleOp::PrintTko { format }, &[tiles, &[]], [Type::Token]);
    }

    /// A tile that C's formats can show, and the letter that shows it.
    fn printable(&mut self, at: &At) -> Res<(tessera_ir::Value, &'static str)> {
        let tile = self.tile(at)?;
        Ok(match tile.dtype {
            DType::B1 => (self.convert(tile, DType::I32, None, at.1)?.value, "d"),
            dtype if is_restricted(dtype) => (self.convert(tile, DType::F32, None, at.1)?.value, "f"),
            dtype if dtype.is_float() => (tile.value, "f"),
            dtype if dtype.bits() == 64 => (tile.value, if dtype.is_signed() { "lld" } else { "llu" }),
            dtype => (tile.value, if dtype.is_signed() { "d" } else { "u" }),
        })
    }

    /// `ct.printf`.
    pub(crate) fn printf(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("printf", args.call)?;
        let format = self.require_str(&args.at(0))?;
        let specs = conversions(&format).ok_or_else(|| {
            Box::new(
                Diagnostic::error(id::FORMAT, args.span(0), "the format has a conversion that is not C's")
                    .help("conversions are `%[flags][width][.precision][length]` and one of `diuoxXeEfFgGaA`; write `%%` for a percent sign"),
            )
        })?;
        if specs.len() != args.rest().len() {
            return Err(Box::new(
                Diagnostic::error(
                    id::FORMAT,
                    args.span(0),
                    format!("the format has {} conversions for {} values", specs.len(), args.rest().len()),
                )
                .label("this format")
                .help("give one value for each conversion"),
            ));
        }
        let mut tiles = Vec::new();
        for (given, spec) in args.rest().to_vec().iter().zip(specs) {
            let at = (given.value.clone(), given.span);
            let dtype = self.dtype_of(&at)?;
            let wants_float = "eEfFgGaA".contains(spec);
            if wants_float != dtype.is_float() {
                return Err(Box::new(
                    Diagnostic::error(id::FORMAT, given.span, format!("`%{spec}` does not print {}", dtype_name(dtype)))
                        .label(format!("this is {}", given.value.describe()))
                        .also(args.span(0), "in this format"),
                ));
            }
            tiles.push(self.printable(&at)?.0);
        }
        self.emit_print(format.to_string(), &tiles);
        Ok(Val::None)
    }

    /// `print(...)` with f-strings; the arguments are taken as written, so that holes keep their formats.
    pub(crate) fn print_call(&mut self, args: &[Arg], span: Span) -> Res<Val> {
        self.check_effects("print", span)?;
        let (mut separator, mut end) = (" ".to_string(), "\n".to_string());
        let mut parts: Vec<(String, Vec<tessera_ir::Value>)> = Vec::new();
        for arg in args {
            match arg.keyword.as_ref().map(|keyword| keyword.name.as_str()) {
                Some("sep") => separator = self.print_text(arg)?,
                Some("end") => end = self.print_text(arg)?,
                Some(other) => {
                    let place = arg.keyword.as_ref().map_or(span, |keyword| keyword.span);
                    return Err(Box::new(
                        Diagnostic::error(id::CALL, place, format!("`print` has no keyword parameter `{other}`"))
                            .help("it has `sep` and `end`"),
                    ));
                }
                None => {
                    if let ExprKind::Starred(items) = &arg.value.kind {
                        let items = self.at(items)?;
                        for item in self.sequence(&items)? {
                            let shown = self.shown(&(item, items.1))?;
                            let (mut format, mut tiles) = (String::new(), Vec::new());
                            self.print_value(&shown, "", &mut format, &mut tiles)?;
                            parts.push((format, tiles));
                        }
                        continue;
                    }
                    let (mut format, mut tiles) = (String::new(), Vec::new());
                    match &arg.value.kind {
                        ExprKind::FString(pieces) => {
                            for piece in pieces {
                                match piece {
                                    FPart::Text(text) => format.push_str(&text.replace('%', "%%")),
                                    FPart::Value { value, conversion, format: spec } => {
                                        let at = self.at(value)?;
                                        if matches!(at.0, Val::Instance(..) | Val::Member(..))
                                            && conversion.is_some_and(|c| c != 's')
                                        {
                                            return Err(unsupported("a conversion of an object", at.1));
                                        }
                                        let at = self.shown(&at)?;
                                        match (at.0.fixed(), conversion) {
                                            (Some(known), Some('r')) => {
                                                let text = fixed::format(&Fixed::str(&fixed::repr(&known, at.1)?), spec, at.1)?;
                                                format.push_str(&text.replace('%', "%%"));
                                            }
                                            (_, Some('a')) => return Err(unsupported("`!a` in an f-string", at.1)),
                                            _ => self.print_value(&at, spec, &mut format, &mut tiles)?,
                                        }
                                    }
                                }
                            }
                        }
                        _ => {
                            let at = self.at(&arg.value)?;
                            let at = self.shown(&at)?;
                            self.print_value(&at, "", &mut format, &mut tiles)?;
                        }
                    }
                    parts.push((format, tiles));
                }
            }
        }
        let texts: Vec<&str> = parts.iter().map(|(text, _)| text.as_str()).collect();
        let format = format!("{}{}", texts.join(&separator.replace('%', "%%")), end.replace('%', "%%"));
        let tiles: Vec<_> = parts.iter().flat_map(|(_, tiles)| tiles.iter().copied()).collect();
        self.emit_print(format, &tiles);
        Ok(Val::None)
    }

    fn print_text(&mut self, arg: &Arg) -> Res<String> {
        let at = self.at(&arg.value)?;
        Ok(self.require_str(&at)?.to_string())
    }

    fn print_value(&mut self, at: &At, spec: &str, format: &mut String, tiles: &mut Vec<tessera_ir::Value>) -> Res<()> {
        match &at.0 {
            Val::Tile(tile) => {
                let is_float = tile.dtype.is_float();
                let (value, usual) = self.printable(at)?;
                let (flags, letter) = match spec.chars().last() {
                    Some(last) if last.is_ascii_alphabetic() => (&spec[..spec.len() - 1], Some(last)),
                    _ => (spec, None),
                };
                // C pads on the left unless it is told otherwise, and centres nothing: `^` pads on the left, too, as in cuTile.
                let (align, flags) = match flags.chars().next() {
                    Some('<') => ("-", &flags[1..]),
                    Some('>' | '^') => ("", &flags[1..]),
                    _ => ("", flags),
                };
                let is_aligned = flags.len() < spec.len() - letter.map_or(0, |_| 1);
                let fills = flags.trim_start_matches(['+', '-', ' ', '#']).starts_with('0');
                let plain = !(is_aligned && fills)
                    && flags.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | '#' | '0' | ' '));
                let fits = match letter {
                    None => true,
                    Some(letter) => (if is_float { "eEfFgGaA" } else { "dioxXu" }).contains(letter),
                };
                if !plain || !fits {
                    return Err(Box::new(
                        Diagnostic::error(id::FORMAT, at.1, format!("the format {spec:?} does not print {}", at.0.describe()))
                            .help("formats are `[<>^][flags][width][.precision]` and a letter of C's"),
                    ));
                }
                format.push('%');
                format.push_str(align);
                format.push_str(flags);
                match letter {
                    Some(letter) if usual.starts_with("ll") => format.push_str(&format!("ll{letter}")),
                    Some(letter) => format.push(letter),
                    None => format.push_str(usual),
                }
                tiles.push(value);
            }
            Val::Tuple(items) => {
                format.push('(');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        format.push_str(", ");
                    }
                    match item {
                        Val::Str(_) => {
                            format.push_str(&fixed::repr(&self.require_fixed(&(item.clone(), at.1))?, at.1)?.replace('%', "%%"))
                        }
                        _ => self.print_value(&(item.clone(), at.1), spec, format, tiles)?,
                    }
                }
                format.push_str(if items.len() == 1 { ",)" } else { ")" });
            }
            other => {
                let text = match other.fixed() {
                    Some(known) => fixed::format(&known, spec, at.1)?,
                    None => self.text_of(other),
                };
                format.push_str(&text.replace('%', "%%"));
            }
        }
        Ok(())
    }

    /// `ct.assert_`.
    pub(crate) fn assert(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("assert_", args.call)?;
        let dtype = self.dtype_of(&args.at(0))?;
        if dtype != DType::B1 {
            return Err(Box::new(
                Diagnostic::error(id::CONDITION, args.span(0), format!("an assertion needs bool_, not {}", dtype_name(dtype)))
                    .label(format!("this is {}", args.val(0).describe()))
                    .help("compare it, for example with `!= 0`"),
            ));
        }
        let message = match args.val(1) {
            Val::None => String::new(),
            _ => self.require_str(&args.at(1))?.to_string(),
        };
        let condition = self.tile(&args.at(0))?;
        self.emit(ScheduleOp::Assert { message }, &[&[condition.value]], []);
        Ok(Val::None)
    }
}

/// The conversion letters of a C format; `None` when one is not C's.
fn conversions(format: &str) -> Option<Vec<char>> {
    let mut letters = Vec::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            continue;
        }
        while chars.next_if(|c| "-+ #0123456789.".contains(*c)).is_some() {}
        while chars.next_if(|c| "hljztL".contains(*c)).is_some() {}
        letters.push(chars.next().filter(|c| "diuoxXeEfFgGaA".contains(*c))?);
    }
    Some(letters)
}
