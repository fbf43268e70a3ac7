//! Types of kernel arguments as text, see [`super`].

use tessera_ir::{Diagnostic, Extent, IndexType, SourceMap};
use tessera_lang::{ArgType, ConstValue};
use tessera_types::DType;

use super::TYPES_HELP;
use super::scan::{Parsed, Scanner};

/// A named argument's type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedArgument {
    /// The parameter's name.
    pub name: String,
    /// What is known about it.
    pub ty: ArgType,
}

/// Reads `NAME=TYPE` or `NAME=CONSTANT`.
pub fn parse_type(sources: &mut SourceMap, text: &str) -> Result<TypedArgument, Box<Diagnostic>> {
    let mut scanner = Scanner::new(sources, text);
    let name = scanner.name()?;
    let ty = one(&mut scanner, &name, 0)?;
    scanner.finish()?;
    Ok(TypedArgument { name, ty })
}

/// A type or a constant, `depth` tuples deep.
fn one(scanner: &mut Scanner, name: &str, depth: usize) -> Parsed<ArgType> {
    if let Some(items) = scanner.tuple(depth, |scanner, depth| one(scanner, name, depth))? {
        return Ok(tuple_type(items));
    }
    let start = scanner.mark();
    if scanner.take("[") {
        return list_type(scanner);
    }
    match scanner.dtype_word() {
        Some(dtype) if scanner.at("[") => array_type(scanner, dtype),
        Some(dtype) if dtype.is_integer() && scanner.take(";") => {
            let start = scanner.mark();
            match &*scanner.word() {
                "most" => Ok(stated(ArgType::Scalar(dtype), Some(most(scanner)?), None)),
                option => {
                    let message = format!("`{option}` is not an option of a number's type");
                    Err(scanner.error(start, message).help("write `;most=1024`").into())
                }
            }
        }
        Some(dtype) => Ok(ArgType::Scalar(dtype)),
        None if scanner.word_then("[") => {
            let word = scanner.word();
            Err(scanner.error(start, format!("`{word}` is not an element type")).help(TYPES_HELP).into())
        }
        None if scanner.word_then(":") => Err(scanner
            .error(start, "a distribution has no place in a type")
            .help(format!("write the type alone: `{name}=f32[?,?]`"))
            .into()),
        None => Ok(ArgType::Const(scanner.value()?)),
    }
}

/// A tuple: a constant where no item is an array, so that a type's name in it is that type.
fn tuple_type(items: Vec<ArgType>) -> ArgType {
    let constant = |item: &ArgType| match item {
        ArgType::Const(value) => Some(value.clone()),
        ArgType::Scalar(dtype) => Some(ConstValue::DType(*dtype)),
        ArgType::Array { .. } | ArgType::List { .. } | ArgType::Tuple(_) | ArgType::Stated { .. } => None,
    };
    match items.iter().map(constant).collect() {
        Some(constants) => ArgType::Const(ConstValue::Tuple(constants)),
        None => ArgType::Tuple(items),
    }
}

/// The type of a list behind its `[`. Every array of a list brings its own sizes and strides at launch.
fn list_type(scanner: &mut Scanner) -> Parsed<ArgType> {
    let mut list: Option<(DType, usize, IndexType)> = None;
    scanner.items("]", |scanner| {
        let start = scanner.mark();
        let (dtype, shape, index) = match scanner.dtype_word().filter(|_| scanner.at("[")).map(|dtype| array_type(scanner, dtype))
        {
            Some(Ok(ArgType::Array { dtype, shape, index, .. })) => (dtype, shape, index),
            Some(Err(error)) => return Err(error),
            Some(Ok(_)) | None => {
                let error = scanner.error(start, "expected an array's type");
                let help = "a list holds arrays: `[f32[?,?],f32[?,?]]`; a tuple of values is written `(1, 2)`";
                return Err(error.help(help).into());
            }
        };
        match &mut list {
            Some((known, rank, wide)) if dtype == *known && shape.len() == *rank => {
                *wide = if index == IndexType::I64 { index } else { *wide };
            }
            Some((known, rank, _)) => {
                let message = format!(
                    "the arrays of a list differ: item 0 is `{known}` of rank {rank}, this is `{dtype}` of rank {}",
                    shape.len()
                );
                return Err(scanner
                    .error(start, message)
                    .help("write a tuple, `(f32[?],f16[?])`, or parameters of their own")
                    .into());
            }
            None => list = Some((dtype, shape.len(), index)),
        }
        Ok(())
    })?;
    match list {
        Some((dtype, rank, index)) => Ok(ArgType::List { dtype, rank: rank as u32, index }),
        None => Err(scanner.error(scanner.mark(), "a list needs an array to know its element type by").into()),
    }
}

fn array_type(scanner: &mut Scanner, dtype: DType) -> Parsed<ArgType> {
    let shape: Vec<Extent> = scanner.extents()?.into_iter().map(|(_, extent)| extent).collect();
    let (mut align, mut lines, mut index) = (16_u32, None, IndexType::I32);
    let mut written: Option<Vec<Extent>> = None;
    let (mut at_most, mut like) = (None, None);
    let mut given: Vec<String> = Vec::new();
    while scanner.take(";") {
        let start = scanner.mark();
        let option = scanner.word();
        if given.contains(&option) {
            return Err(scanner.error(start, format!("`{option}` is given twice")).help("leave one out").into());
        }
        given.push(option.clone());
        match option.as_str() {
            "align" => align = alignment(scanner)?,
            "lines" => lines = Some(alignment(scanner)?),
            "most" => at_most = Some(most(scanner)?),
            "like" => {
                scanner.expect("=")?;
                like = Some(scanner.word());
            }
            "index" => {
                scanner.expect("=")?;
                let at = scanner.mark();
                index = match scanner.unsigned()? {
                    32 => IndexType::I32,
                    64 => IndexType::I64,
                    _ => return Err(scanner.error(at, "sizes and strides are 32 or 64 bits wide").into()),
                };
            }
            "strides" => {
                scanner.expect("=")?;
                let at = scanner.mark();
                let strides: Vec<Extent> = scanner.extents()?.into_iter().map(|(_, extent)| extent).collect();
                if strides.len() != shape.len() {
                    let message = format!("{} strides for {} sizes", strides.len(), shape.len());
                    return Err(scanner.error(at, message).help("write one number or `?` for each size").into());
                }
                written = Some(strides);
            }
            _ => {
                let message = format!("`{option}` is not an option of an array's type");
                return Err(scanner
                    .error(start, message)
                    .help("write `;align=16`, `;lines=16`, `;index=64`, `;strides=[?,1]`, `;most=1024` or `;like=x`")
                    .into());
            }
        }
    }
    let lines = lines.unwrap_or(align);
    if let Some(strides) = written {
        let of = ArgType::Array { dtype, shape: shape.into(), strides: strides.into(), align, lines, index, disjoint: true };
        return Ok(stated(of, at_most, like));
    }
    // Row-major: a stride is known while all sizes inside it are.
    let mut strides = vec![Extent::Dynamic; shape.len()];
    let mut stride = Some(1_i64);
    for (axis, extent) in shape.iter().enumerate().rev() {
        let Some(known) = stride else { break };
        strides[axis] = Extent::Static(known);
        stride = match extent {
            Extent::Static(size) => known.checked_mul((*size).max(1)),
            Extent::Dynamic => None,
        };
    }
    let of = ArgType::Array { dtype, shape: shape.into(), strides: strides.into(), align, lines, index, disjoint: true };
    Ok(stated(of, at_most, like))
}

fn stated(of: ArgType, most: Option<i64>, like: Option<String>) -> ArgType {
    if most.is_none() && like.is_none() { of } else { ArgType::Stated { of: Box::new(of), most, like } }
}

/// `=1024`: a number.
fn most(scanner: &mut Scanner) -> Parsed<i64> {
    scanner.expect("=")?;
    let at = scanner.mark();
    i64::try_from(scanner.unsigned()?).map_err(|_| scanner.error(at, "so large is no size").into())
}

/// `=16`: bytes.
fn alignment(scanner: &mut Scanner) -> Parsed<u32> {
    scanner.expect("=")?;
    let at = scanner.mark();
    match u32::try_from(scanner.unsigned()?) {
        Ok(bytes) if bytes.is_power_of_two() && bytes <= 4096 => Ok(bytes),
        _ => Err(scanner.error(at, "an alignment is a power of two of at most 4096 bytes").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        let ty = |text: &str| parse_type(&mut SourceMap::default(), text).unwrap().ty;
        assert_eq!(ty("eps=f32"), ArgType::Scalar(DType::F32));
        assert_eq!(ty("TM=128"), ArgType::Const(ConstValue::Int(128)));
        assert_eq!(ty("x=f32[?,?]"), ArgType::array(DType::F32, 2));
        let ArgType::Array { shape, strides, align, index, .. } = ty("x=bf16[?,8,4];align=64;index=64") else { panic!() };
        assert_eq!(shape[..], [Extent::Dynamic, Extent::Static(8), Extent::Static(4)]);
        assert_eq!(strides[..], [Extent::Static(32), Extent::Static(4), Extent::Static(1)]);
        assert_eq!((align, index), (64, IndexType::I64));
    }

    #[test]
    fn types_of_lists_and_strides() {
        let mut sources = SourceMap::default();
        let mut ty = |text: &str| parse_type(&mut sources, text).map(|argument| argument.ty);
        let list = |rank, index| ArgType::List { dtype: DType::F32, rank, index };
        assert_eq!(ty("xs=[f32[?],f32[8]]").unwrap(), list(1, IndexType::I32));
        assert_eq!(ty("xs=[f32[?,?], f32[?,3];strides=[7,2],f32[4,4];index=64]").unwrap(), list(2, IndexType::I64));
        assert_eq!(
            ty("xs=(f32[?,?], [f32[?],f32[?]], (f16[?];align=2, f32), 8)").unwrap(),
            ArgType::Tuple(vec![
                ArgType::array(DType::F32, 2),
                list(1, IndexType::I32),
                ArgType::Tuple(vec![ty("x=f16[?];align=2").unwrap(), ArgType::Scalar(DType::F32)]),
                ArgType::Const(ConstValue::Int(8)),
            ])
        );
        let ArgType::Array { shape, strides, align, .. } = ty("x=f16[?,8];strides=[1,?];align=2").unwrap() else { panic!() };
        assert_eq!(shape[..], [Extent::Dynamic, Extent::Static(8)]);
        assert_eq!(strides[..], [Extent::Static(1), Extent::Dynamic]);
        assert_eq!(align, 2);
        assert_eq!(
            ty("t=((1, (2.5, True)), f16)").unwrap(),
            ArgType::Const(ConstValue::Tuple(vec![
                ConstValue::Tuple(vec![
                    ConstValue::Int(1),
                    ConstValue::Tuple(vec![ConstValue::Float(2.5), ConstValue::Bool(true)])
                ]),
                ConstValue::DType(DType::F16)
            ]))
        );
        for (text, place, message) in [
            ("xs=[]", "1:6", "a list needs an array to know its element type by"),
            ("xs=[f32]", "1:5", "expected an array's type"),
            ("xs=[[f32[?]]]", "1:5", "expected an array's type"),
            ("xs=[f32[?],f16[?]]", "1:12", "the arrays of a list differ: item 0 is `f32` of rank 1, this is `f16` of rank 1"),
            ("xs=[f32[?]", "1:11", "expected `,` or `]`"),
            ("x=f32[?,?];strides=[1]", "1:20", "1 strides for 2 sizes"),
            ("xs=(f32[?],f99[?])", "1:12", "`f99` is not an element type"),
            ("xs=(f32[?]", "1:11", "expected `,` or `)`"),
            ("x=f32[?];align=3", "1:16", "an alignment is a power of two of at most 4096 bytes"),
        ] {
            let mut sources = SourceMap::default();
            let error = parse_type(&mut sources, text).unwrap_err();
            assert_eq!(error.render_line(&sources), format!("<argument>:{place}: error[argument]: {message}"), "{text}");
        }
    }
}
