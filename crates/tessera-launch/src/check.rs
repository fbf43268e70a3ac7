//! What a launch must be before anything runs: arguments against the interface that a kernel was compiled for.
//!
//! A compiled kernel assumes what its [`Abi`](tessera_ir::Abi) says (static sizes and strides, alignment, width of sizes, that
//! arrays share nothing with what is written) and what its symbols say (`K` is one number, wherever it occurs). Each assumption is verified here
//! against the arguments; what does not hold is a diagnostic that names both sides. The result is the flat argument list.

use tessera_ir::{AbiParam, Diagnostic, Extent, IndexType, ParamKind, Span, Stated};
use tessera_types::{DType, IntFormat, cast, default_rounding};

use crate::argument::{Argument, Constant, Flat};
use crate::array::Placed;
use crate::interface::Interface;
use crate::meet::meet;

/// A launch's arguments and what they are checked against.
pub(crate) struct Checker<'a, A> {
    /// Parameters with the place to show for each.
    pub(crate) places: &'a [(&'a str, Span)],
    pub(crate) interface: &'a Interface,
    pub(crate) args: &'a [(&'a str, Argument<A>)],
}

impl<'a, A: Placed> Checker<'a, A> {
    /// The flat arguments, or everything that is wrong.
    pub(crate) fn flatten(&self) -> Result<Vec<Flat<A>>, Vec<Diagnostic>> {
        let mut wrong = Vec::new();
        let mut flat = Vec::new();
        for param in &self.interface.abi.params {
            let Some(value) = self.value(&param.name) else {
                wrong.push(self.at(&param.name, "missing-argument", format!("the argument `{}` is missing", param.name)));
                continue;
            };
            if let Err(diagnostic) = self.param(&param.name, &param.kind, value, &mut flat) {
                wrong.push(*diagnostic);
            }
        }
        self.symbols(&mut wrong);
        self.stated(&mut wrong);
        let arrays = |param: &AbiParam| match (&param.kind, self.value(&param.name)) {
            (ParamKind::Array { .. }, Some(Argument::Array(tensor))) => std::slice::from_ref(tensor),
            (ParamKind::List { .. }, Some(Argument::List(items))) => items,
            _ => &[],
        };
        let arrays: Vec<&[A]> = self.interface.abi.params.iter().map(arrays).collect();
        wrong.extend(self.overlaps(&arrays));
        if wrong.is_empty() { Ok(flat) } else { Err(wrong) }
    }

    fn value(&self, name: &str) -> Option<&'a Argument<A>> {
        self.args.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    fn span(&self, name: &str) -> Option<Span> {
        let place = |name: &str| self.places.iter().find(|(param, _)| *param == name).map(|(_, span)| *span);
        // An item of a tuple is shown where the tuple's parameter is.
        place(name).or_else(|| place(name.split('.').next()?))
    }

    fn at(&self, name: &str, id: &'static str, message: String) -> Diagnostic {
        match self.span(name) {
            Some(span) => Diagnostic::error(id, span, message),
            None => Diagnostic::bare(id, message),
        }
    }

    fn param(&self, name: &str, kind: &ParamKind, value: &Argument<A>, flat: &mut Vec<Flat<A>>) -> Result<(), Box<Diagnostic>> {
        match (kind, value) {
            (ParamKind::Array { .. }, Argument::Array(tensor)) => self.array(name, kind, tensor, flat),
            (ParamKind::List { dtype, rank, index }, Argument::List(items)) => {
                for item in items {
                    if item.dtype() != *dtype || item.sizes().len() != *rank as usize {
                        let message = format!(
                            "the list `{name}` holds `{}` arrays of rank {}, the kernel takes `{dtype}` of rank {rank}",
                            item.dtype(),
                            item.sizes().len()
                        );
                        return Err(Box::new(self.at(name, "argument-type", message)));
                    }
                    self.begins(name, 1, item)?;
                    self.index_width(name, item, *index)?;
                }
                flat.push(Flat::Table(items.clone()));
                flat.push(Flat::Word(items.len() as u64));
                Ok(())
            }
            (ParamKind::Scalar { dtype }, _) => {
                flat.push(Flat::Word(self.scalar(name, *dtype, value)?));
                Ok(())
            }
            (ParamKind::Array { .. } | ParamKind::List { .. } | ParamKind::Operand { .. }, _) => {
                let wanted = if matches!(kind, ParamKind::List { .. }) { "a list of arrays" } else { "an array" };
                Err(Box::new(self.at(name, "argument-kind", format!("`{name}` takes {wanted}, not {}", value.describe()))))
            }
        }
    }

    fn array(&self, name: &str, kind: &ParamKind, tensor: &A, flat: &mut Vec<Flat<A>>) -> Result<(), Box<Diagnostic>> {
        let ParamKind::Array { dtype, shape, strides, index, align, lines, .. } = kind else { return Ok(()) };
        if tensor.dtype() != *dtype {
            let message = format!("`{name}` holds `{}`, the kernel was compiled for `{dtype}`", tensor.dtype());
            let diagnostic = self.at(name, "argument-type", message);
            return Err(Box::new(
                diagnostic.help(format!("convert the array to `{dtype}`, or compile for `{}`", tensor.dtype())),
            ));
        }
        if tensor.sizes().len() != shape.len() {
            let message = format!("`{name}` has {} axes, the kernel was compiled for {}", tensor.sizes().len(), shape.len());
            return Err(Box::new(self.at(name, "argument-rank", message)));
        }
        for (what, extents, values) in [("size", shape, tensor.sizes()), ("stride", strides, tensor.steps())] {
            for (axis, (extent, &value)) in extents.iter().zip(values).enumerate() {
                // The stride of an axis of one element is never used, nor any of an array without elements.
                let unused = what == "stride" && (tensor.sizes()[axis] <= 1 || tensor.has_none());
                if let Extent::Static(known) = extent
                    && *known != value as i64
                    && !unused
                {
                    let message = format!("axis {axis} of `{name}` has {what} {value}, the kernel was compiled for {known}");
                    let help = format!("pass an array with {what} {known}, or leave the {what} open (`?`) when compiling");
                    return Err(Box::new(self.at(name, "argument-shape", message).help(help)));
                }
            }
        }
        self.begins(name, *align, tensor)?;
        let divides = |count: usize| {
            *lines <= 1 || (count as u64).wrapping_mul(u64::from(dtype.bits())).is_multiple_of(u64::from(*lines) * 8)
        };
        for axis in 0..strides.len() {
            let (size, stride) = (tensor.sizes()[axis], tensor.steps()[axis]);
            let (what, value) = match strides[axis] {
                Extent::Dynamic if size > 1 && !tensor.has_none() => ("stride", stride),
                Extent::Static(1) if shape[axis] == Extent::Dynamic => ("size", size),
                Extent::Dynamic | Extent::Static(_) => continue,
            };
            if !divides(value) {
                let message = format!(
                    "axis {axis} of `{name}` has {what} {value}, no multiple of {lines} bytes, as the kernel was compiled for"
                );
                let help = "pass a copy with padded rows, or compile for smaller `;lines`";
                return Err(Box::new(self.at(name, "argument-alignment", message).help(help)));
            }
        }
        self.index_width(name, tensor, *index)?;
        flat.push(Flat::Array(tensor.clone()));
        let word = |value: usize| match index {
            IndexType::I32 => value as u64 & 0xffff_ffff,
            IndexType::I64 => value as u64,
        };
        // An unused stride is passed as what the kernel assumes.
        let stride = |axis: usize| match strides[axis] {
            Extent::Static(known) => known as usize,
            Extent::Dynamic if tensor.has_none() && !divides(tensor.steps()[axis]) => 0,
            Extent::Dynamic => tensor.steps()[axis],
        };
        flat.extend(tensor.sizes().iter().map(|&size| Flat::Word(word(size))));
        flat.extend((0..tensor.sizes().len()).map(|axis| Flat::Word(word(stride(axis)))));
        Ok(())
    }

    /// The first element lies where the kernel assumes it.
    pub(crate) fn begins(&self, name: &str, align: u32, tensor: &A) -> Result<(), Box<Diagnostic>> {
        if tensor.has_none() {
            return Ok(());
        }
        let Some(address) = tensor.address() else { return Err(Box::new(within_a_byte(name, self.span(name), tensor.dtype()))) };
        if address.is_multiple_of(u64::from(align.max(1))) {
            return Ok(());
        }
        let message = format!("`{name}` does not start at a multiple of {align} bytes, as the kernel was compiled for");
        Err(Box::new(self.at(name, "argument-alignment", message).help("pass a copy made by `contiguous`")))
    }

    fn index_width(&self, name: &str, tensor: &A, index: IndexType) -> Result<(), Box<Diagnostic>> {
        if index == IndexType::I64 || !tensor.needs_wide_index() {
            return Ok(());
        }
        let message = format!("`{name}` has more elements than 32-bit sizes and strides can count");
        Err(Box::new(self.at(name, "argument-index", message).help("compile with `;index=64` for this argument")))
    }

    /// The bits of a number as its parameter's type.
    pub(crate) fn scalar(&self, name: &str, dtype: DType, value: &Argument<A>) -> Result<u64, Box<Diagnostic>> {
        let refuse = |why: String| Err(Box::new(self.at(name, "argument-scalar", why)));
        let from = |bits: u64, from: DType| cast(bits, from, dtype, default_rounding(from, dtype));
        match value {
            Argument::Constant(Constant::Int(value)) => {
                if let Some(format) = IntFormat::of(dtype)
                    && !(format.min()..=format.max()).contains(&i128::from(*value))
                {
                    return refuse(format!("`{name}` is {value}, beyond the range of `{dtype}`"));
                }
                self.at_most(name, *value)?;
                Ok(from(*value as u64, DType::I64))
            }
            Argument::Constant(Constant::Bool(value)) => Ok(from(u64::from(*value), DType::B1)),
            Argument::Constant(Constant::Float(value)) if dtype.is_float() => {
                let bits = from(value.to_bits(), DType::F64);
                if value.is_finite()
                    && !f64::from_bits(cast(bits, dtype, DType::F64, default_rounding(dtype, DType::F64))).is_finite()
                {
                    return refuse(format!("`{name}` is {value:?}, beyond the range of `{dtype}`"));
                }
                Ok(bits)
            }
            Argument::Constant(Constant::Float(value)) => refuse(format!("`{name}` takes `{dtype}`, not the float {value:?}")),
            Argument::Array(_) | Argument::List(_) | Argument::Constant(_) => {
                refuse(format!("`{name}` takes a number of type `{dtype}`, not {}", value.describe()))
            }
        }
    }

    /// What the kernel assumes beside the kinds of its parameters.
    fn stated(&self, wrong: &mut Vec<Diagnostic>) {
        for stated in &self.interface.abi.stated {
            match stated {
                Stated::Alike { array, other } => {
                    let (Some(Argument::Array(own)), Some(Argument::Array(first))) = (self.value(array), self.value(other))
                    else {
                        continue;
                    };
                    let strides = || own.steps().iter().zip(first.steps()).zip(own.sizes());
                    let alike = own.sizes() == first.sizes()
                        && (own.has_none() || strides().all(|((own, first), &size)| own == first || size <= 1));
                    if !alike {
                        let message = format!(
                            "`{array}` and `{other}` differ in sizes or strides, the kernel was compiled for two that do not"
                        );
                        wrong.push(
                            self.at(array, "argument-shape", message).help("compile for arrays that differ, without `;like`"),
                        );
                    }
                }
                Stated::AtMost { param, .. } => {
                    // Numbers are looked at where they are taken.
                    let Some(Argument::Array(array)) = self.value(param) else { continue };
                    let kind = self.interface.abi.position(param).map(|position| &self.interface.abi.params[position].kind);
                    let Some(ParamKind::Array { strides, .. }) = kind else { continue };
                    let line = strides.iter().position(|stride| *stride == Extent::Static(1));
                    let Some(&size) = line.and_then(|axis| array.sizes().get(axis)) else { continue };
                    wrong.extend(self.at_most(param, size as i64).err().map(|diagnostic| *diagnostic));
                }
            }
        }
    }

    /// Refuses a number, or a size, beyond what the kernel was compiled for.
    fn at_most(&self, name: &str, number: i64) -> Result<(), Box<Diagnostic>> {
        let of = |stated: &Stated| match stated {
            Stated::AtMost { param, most } if param == name => Some(*most),
            Stated::AtMost { .. } | Stated::Alike { .. } => None,
        };
        let Some(most) = self.interface.abi.stated.iter().find_map(of).filter(|&most| number > most) else { return Ok(()) };
        let message =
            format!("`{name}` is {number}, or has lines of so many elements: the kernel was compiled for {most} at most");
        Err(Box::new(self.at(name, "argument-scalar", message).help("compile for more, or without `;most`")))
    }

    /// Every named axis has one size, and every numbered one its own.
    fn symbols(&self, wrong: &mut Vec<Diagnostic>) {
        let mut bound: Vec<(&str, usize, &str, usize)> = Vec::new();
        for (name, axes) in &self.interface.axes {
            let Some(Argument::Array(tensor)) = self.value(name) else { continue };
            for (axis, (symbol, &size)) in axes.iter().zip(tensor.sizes()).enumerate() {
                if let Ok(fixed) = symbol.parse::<usize>() {
                    if fixed != size {
                        let message = format!("axis {axis} of `{name}` has size {size}, its annotation says {fixed}");
                        wrong.push(self.at(name, "argument-shape", message));
                    }
                    continue;
                }
                match bound.iter().find(|(known, ..)| known == symbol) {
                    None => bound.push((symbol, size, name, axis)),
                    Some((_, first, other, at)) if *first != size => {
                        let message =
                            format!("`{symbol}` is {first} in `{other}` (axis {at}) but {size} in `{name}` (axis {axis})");
                        let mut diagnostic =
                            self.at(name, "symbol-mismatch", message).label(format!("`{name}` has shape {:?}", tensor.sizes()));
                        if let (Some(span), Some(Argument::Array(earlier))) = (self.span(other), self.value(other)) {
                            diagnostic = diagnostic.also(span, format!("`{other}` has shape {:?}", earlier.sizes()));
                        }
                        wrong.push(diagnostic.help("pass arrays whose axes of one name have one size"));
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// What is written shares no memory with another argument, nor with itself; `arrays` are those of each parameter.
    pub(crate) fn overlaps(&self, arrays: &[&[A]]) -> Vec<Diagnostic> {
        let mut wrong = Vec::new();
        let mut seen: Vec<(&str, &A, bool, bool)> = Vec::new();
        for ((param, &written), arrays) in self.interface.abi.params.iter().zip(&self.interface.written).zip(arrays) {
            let disjoint = matches!(param.kind, ParamKind::Array { disjoint: true, .. });
            for tensor in *arrays {
                if written && disjoint && !tensor.layout().is_injective() {
                    let message = format!("several elements of `{}` share memory, and the kernel writes it", param.name);
                    let strides = format!("shape {:?}, strides {:?}", tensor.sizes(), tensor.steps());
                    wrong.push(self.at(&param.name, "argument-overlap", message).label(strides));
                }
                let clash = seen.iter().find(|(_, other, other_written, other_disjoint)| {
                    (written || *other_written) && (disjoint || *other_disjoint) && meet(tensor, *other)
                });
                if let Some((other, _, other_written, _)) = clash {
                    let writes = if written { &param.name } else { *other };
                    let message = format!("`{}` and `{other}` overlap in memory, and the kernel writes `{writes}`", param.name);
                    let mut diagnostic = self.at(&param.name, "argument-overlap", message);
                    if let Some(span) = self.span(other) {
                        diagnostic = diagnostic.also(span, if *other_written { "written" } else { "read" });
                    }
                    wrong.push(diagnostic.help("pass a copy: a kernel may assume that what it writes is nothing else's memory"));
                }
                seen.push((&param.name, tensor, written, disjoint));
            }
        }
        wrong
    }
}

/// An array whose first element does not begin a byte has no address; `span` is its parameter's place.
pub fn within_a_byte(name: &str, span: Option<Span>, dtype: DType) -> Diagnostic {
    let message = format!("the first element of `{name}` does not begin a byte: `{dtype}` elements share bytes");
    let diagnostic = match span {
        Some(span) => Diagnostic::error("argument-alignment", span, message),
        None => Diagnostic::bare("argument-alignment", message),
    };
    diagnostic.help("pass a copy made by `contiguous`")
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;
    use tessera_ir::Abi;

    use super::*;
    use crate::array::Array;
    use crate::layout::Layout;

    /// The messages of a check against one parameter.
    fn check<A: Placed>(kind: ParamKind, value: Argument<A>) -> Result<Vec<Flat<A>>, Vec<String>> {
        let abi = Abi { params: vec![AbiParam { name: "x".into(), kind }], stated: Vec::new() };
        let interface = Interface { abi, written: vec![true], ..Interface::default() };
        let outcome = interface.check(&[], &[("x", value)]);
        outcome.map_err(|wrong| wrong.into_iter().map(|diagnostic| diagnostic.message).collect())
    }

    fn words(flat: Result<Vec<Flat<Array>>, Vec<String>>) -> Vec<u64> {
        let flat = flat.unwrap_or_else(|wrong| panic!("{wrong:?}"));
        flat.iter().filter_map(|flat| if let Flat::Word(bits) = flat { Some(*bits) } else { None }).collect()
    }

    fn message<A>(flat: Result<Vec<Flat<A>>, Vec<String>>) -> String {
        flat.map(drop).expect_err("refused").join("; ")
    }

    /// A row from some element of a memory on.
    #[derive(Clone, Debug)]
    struct Row(DType, Layout);

    impl Placed for Row {
        fn dtype(&self) -> DType {
            self.0
        }

        fn layout(&self) -> &Layout {
            &self.1
        }

        fn base(&self) -> u64 {
            64
        }
    }

    #[test]
    fn an_array_that_begins_within_a_byte_has_no_address() {
        let row = |dtype, offset, size| Row(dtype, Layout { shape: vec![size], strides: vec![1], offset });
        let array = |dtype| ParamKind::Array {
            dtype,
            shape: smallvec![Extent::Dynamic],
            strides: smallvec![Extent::Static(1)],
            index: IndexType::I32,
            align: 1,
            lines: 1,
            disjoint: true,
        };
        let list = |dtype| ParamKind::List { dtype, rank: 1, index: IndexType::I32 };
        for (dtype, whole) in [(DType::I4, 2), (DType::F6E2M3, 4)] {
            let within = format!("the first element of `x` does not begin a byte: `{dtype}` elements share bytes");
            assert_eq!(message(check(array(dtype), Argument::Array(row(dtype, 1, 8)))), within);
            let rows = Argument::List(vec![row(dtype, 0, 8), row(dtype, 3, 8)]);
            assert_eq!(message(check(list(dtype), rows)), within);
            assert!(check(array(dtype), Argument::Array(row(dtype, whole, 8))).is_ok());
            // Without elements there is nothing to find.
            assert!(check(array(dtype), Argument::Array(row(dtype, 1, 0))).is_ok());
            assert_eq!(
                (row(dtype, whole, 8).start(), row(dtype, 1, 0).start()),
                (64 + whole as u64 * u64::from(dtype.bits()) / 8, 64)
            );
        }
        let found = within_a_byte("x", None, DType::I4);
        assert_eq!((found.id, &found.help[..]), ("argument-alignment", &["pass a copy made by `contiguous`".to_string()][..]));
    }

    #[test]
    fn scalars_are_checked_against_their_type() {
        let scalar = |dtype, value| check(ParamKind::Scalar { dtype }, value);
        assert_eq!(words(scalar(DType::I8, Argument::Constant(Constant::Int(-1)))), [0xff]);
        assert_eq!(words(scalar(DType::F32, Argument::Constant(Constant::Int(2)))), [u64::from(2.0_f32.to_bits())]);
        assert_eq!(words(scalar(DType::B1, Argument::Constant(Constant::Bool(true)))), [1]);
        assert_eq!(
            message(scalar(DType::I32, Argument::Constant(Constant::Int(1 << 31)))),
            "`x` is 2147483648, beyond the range of `i32`"
        );
        assert_eq!(message(scalar(DType::U8, Argument::Constant(Constant::Int(-1)))), "`x` is -1, beyond the range of `u8`");
        assert!(
            message(scalar(DType::F32, Argument::Constant(Constant::Float(1e300))))
                .contains("`x` is 1e300, beyond the range of `f32`")
        );
        assert_eq!(message(scalar(DType::I32, Argument::Constant(Constant::Float(2.5)))), "`x` takes `i32`, not the float 2.5");
        let text = Argument::Constant(Constant::Text("a".into()));
        assert_eq!(message(scalar(DType::I32, text)), "`x` takes a number of type `i32`, not the string \"a\"");
    }

    #[test]
    fn arrays_are_checked_against_what_was_compiled() {
        let kind = |dtype, size, align| ParamKind::Array {
            dtype,
            shape: smallvec![size],
            strides: smallvec![Extent::Static(1)],
            index: IndexType::I32,
            align,
            lines: align,
            disjoint: true,
        };
        let array = |address, shape: &[usize], strides: &[usize]| {
            Argument::Array(Array::new(DType::F32, address, shape, Some(strides)).expect("array"))
        };
        let x = || array(64, &[8], &[1]);
        assert_eq!(words(check(kind(DType::F32, Extent::Dynamic, 16), x())), [8, 1]);
        assert_eq!(
            message(check(kind(DType::F16, Extent::Dynamic, 16), x())),
            "`x` holds `f32`, the kernel was compiled for `f16`"
        );
        assert_eq!(
            message(check(kind(DType::F32, Extent::Static(4), 16), x())),
            "axis 0 of `x` has size 8, the kernel was compiled for 4"
        );
        assert_eq!(
            message(check(kind(DType::F32, Extent::Dynamic, 4), array(64, &[4], &[2]))),
            "axis 0 of `x` has stride 2, the kernel was compiled for 1"
        );
        assert_eq!(
            message(check(kind(DType::F32, Extent::Dynamic, 16), array(68, &[7], &[1]))),
            "`x` does not start at a multiple of 16 bytes, as the kernel was compiled for"
        );
        let square = array(64, &[2, 4], &[4, 1]);
        assert_eq!(
            message(check(kind(DType::F32, Extent::Dynamic, 16), square)),
            "`x` has 2 axes, the kernel was compiled for 1"
        );
        let number = check(kind(DType::F32, Extent::Dynamic, 16), Argument::<Array>::Constant(Constant::Int(3)));
        assert_eq!(message(number), "`x` takes an array, not the integer 3");
        let wide = ParamKind::Array {
            dtype: DType::F32,
            shape: smallvec![Extent::Dynamic, Extent::Dynamic],
            strides: smallvec![Extent::Dynamic, Extent::Dynamic],
            index: IndexType::I32,
            align: 4,
            lines: 4,
            disjoint: true,
        };
        let long = array(64, &[1 << 31, 0], &[0, 1]);
        assert_eq!(message(check(wide, long)), "`x` has more elements than 32-bit sizes and strides can count");
    }
}
