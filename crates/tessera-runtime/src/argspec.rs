//! Kernel arguments as text: what `tessera run`, `check` and `compile` take after the kernel's name.
//!
//! | text | is |
//! |---|---|
//! | `n=4096`, `eps=1e-5`, `causal=True`, `mask=None`, `acc=f32`, `mode='tn'`, `tile=(64, 32)` | a value |
//! | `x=randn:f32[1024,1024];seed=3` | an array with made-up elements ([`Fill`]) |
//! | `x=@data.npy`, `w=@model.safetensors#layer.0.weight` | an array from a file |
//! | `a=@fp8.npy;dtype=f8e4m3` | its bytes as codes of a type that NumPy has no name for |
//! | `xs=[@a.npy, zeros:f32[8,4]]` | a list of arrays |
//!
//! and, as types ([`parse_type`]):
//!
//! | text | is |
//! |---|---|
//! | `x=f32[?,?]` | an array of run-time sizes, row-major, with unit inner stride |
//! | `x=f32[4096,1024];align=16;index=64` | known sizes; the base, other strides and lines are multiples of 16 bytes; 64-bit sizes and strides |
//! | `x=f32[?,?];strides=[1,?]` | strides in elements, as the caller's array has them |
//! | `xs=[f32[?,?],f32[?,?]]` | a list of arrays of one type and rank; how many there are is known at launch only |
//! | `eps=f32` | a scalar passed at launch |
//! | `TM=128` | a constant |
//!
//! A word that is none of Python's literals is an element type's name or else a string. Mistakes are diagnostics whose carets
//! stand in the argument's text.
//!
//! ```
//! use tessera_ir::SourceMap;
//! use tessera_runtime::argspec::{self, Value};
//! let mut sources = SourceMap::default();
//! let argument = argspec::parse(&mut sources, "x=zeros:f32[2,3]").unwrap();
//! let Value::Made(made) = argument.value else { panic!() };
//! assert_eq!(made.tensor("x").unwrap().shape(), &[2, 3]);
//! let error = argspec::parse(&mut sources, "x=zeros:f33[2,3]").unwrap_err();
//! assert_eq!(error.render_line(&sources), "<argument>:1:9: error[argument]: `f33` is not an element type");
//! ```

use tessera_ir::{Diagnostic, Extent, IndexType, SourceMap};
use tessera_lang::{ArgType, ConstValue};
use tessera_types::{DType, cast, default_rounding};

use crate::error::{FileError, TensorError};
use crate::random::RandomStream;
use crate::tensor::Tensor;
use crate::{npy, safetensors};

mod scan;

use scan::{Parsed, Scanner};

/// How the elements of an array are made.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Normal with mean 0 and standard deviation 1 ([`RandomStream::randn`]).
    Randn,
    /// Uniform in `[0, 1)` ([`RandomStream::rand`]).
    Rand,
    /// 0, 1, 2, ... in row-major order; `iota` is another name.
    Arange,
    /// Poison: to be written by the kernel.
    Empty,
    /// All one number.
    Const(ConstValue),
}

/// An array to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// How.
    pub fill: Fill,
    /// Its element type.
    pub dtype: DType,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// The random stream's key; absent, the argument's name gives it, so that two arguments differ.
    pub seed: Option<u64>,
}

impl Made {
    /// Makes the array for the argument of a name.
    pub fn tensor(&self, name: &str) -> Result<Tensor, TensorError> {
        let stream = || match self.seed {
            Some(seed) => RandomStream::new(seed),
            None => RandomStream::named(0, name),
        };
        let (dtype, shape) = (self.dtype, &self.shape[..]);
        match &self.fill {
            Fill::Zeros => Tensor::zeros(dtype, shape),
            Fill::Ones => Tensor::ones(dtype, shape),
            Fill::Randn => stream().randn(dtype, shape),
            Fill::Rand => stream().rand(dtype, shape),
            Fill::Arange => Tensor::arange(dtype, shape),
            Fill::Empty => Tensor::empty(dtype, shape),
            Fill::Const(ConstValue::Float(value)) => Tensor::full(dtype, shape, *value),
            Fill::Const(ConstValue::Int(value)) => {
                Tensor::full_code(dtype, shape, cast(*value as u64, DType::I64, dtype, default_rounding(DType::I64, dtype)))
            }
            Fill::Const(other) => Tensor::full(dtype, shape, f64::from(u8::from(*other == ConstValue::Bool(true)))),
        }
    }
}

/// An array in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A `.npy` file, and what its elements are where NumPy cannot say.
    Npy(String, Option<DType>),
    /// A tensor of a `.safetensors` file: path and name.
    Safetensors(String, String),
}

impl Stored {
    /// Reads it.
    pub fn read(&self) -> Result<Tensor, FileError> {
        match self {
            Stored::Npy(path, None) => npy::read(path),
            Stored::Npy(path, Some(dtype)) => npy::read_as(path, *dtype),
            Stored::Safetensors(path, name) => safetensors::read(path, name),
        }
    }
}

/// What an argument is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A value: a constant or a run-time scalar, as the kernel's parameter says.
    Plain(ConstValue),
    /// An array to be made.
    Made(Made),
    /// An array in a file.
    Stored(Stored),
    /// Arrays, each made or in a file.
    List(Vec<Value>),
}

/// Why an argument's array is not there.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    /// It cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Value {
    /// Makes or reads the arrays of the argument of a name; those of a list are named by position, as `xs[1]`.
    pub fn load(&self, name: &str) -> Result<crate::Value, ArgumentError> {
        Ok(match self {
            Value::Plain(value) => value.clone().into(),
            Value::Made(made) => crate::Value::Tensor(made.tensor(name)?),
            Value::Stored(stored) => crate::Value::Tensor(stored.read()?),
            Value::List(items) => {
                let mut tensors = Vec::with_capacity(items.len());
                for (position, item) in items.iter().enumerate() {
                    if let crate::Value::Tensor(tensor) = item.load(&format!("{name}[{position}]"))? {
                        tensors.push(tensor);
                    }
                }
                crate::Value::List(tensors)
            }
        })
    }
}

/// A named argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The parameter's name.
    pub name: String,
    /// What it is.
    pub value: Value,
}

/// A named argument's type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedArgument {
    /// The parameter's name.
    pub name: String,
    /// What is known about it.
    pub ty: ArgType,
}

/// Reads `NAME=...`.
pub fn parse(sources: &mut SourceMap, text: &str) -> Result<Argument, Box<Diagnostic>> {
    let mut scanner = Scanner::new(sources, text);
    let name = scanner.name()?;
    let value = if scanner.take("[") {
        let mut items = Vec::new();
        while !scanner.take("]") {
            let start = scanner.mark();
            match array(&mut scanner, &[',', ']', ';'])? {
                Some(item) => items.push(item),
                None => {
                    return Err(scanner
                        .error(start, "expected an array")
                        .help("a list holds arrays: `[@a.npy, zeros:f32[8,4]]`; a tuple of values is written `(1, 2)`")
                        .into());
                }
            }
            if !scanner.take(",") && !scanner.at("]") {
                return Err(scanner.error(scanner.mark(), "expected `,` or `]`").into());
            }
        }
        Value::List(items)
    } else if let Some(value) = array(&mut scanner, &[';'])? {
        value
    } else {
        Value::Plain(scanner.value()?)
    };
    scanner.finish()?;
    Ok(Argument { name, value })
}

/// An array that is made or read, if the text goes on with one; a file's name ends at one of `ends`.
fn array(scanner: &mut Scanner, ends: &[char]) -> Parsed<Option<Value>> {
    Ok(if scanner.take("@") {
        Some(Value::Stored(stored(scanner, ends)?))
    } else if let Some(fill) = fill(scanner)? {
        Some(Value::Made(made(scanner, fill)?))
    } else {
        None
    })
}

/// Reads `NAME=TYPE` or `NAME=CONSTANT`.
pub fn parse_type(sources: &mut SourceMap, text: &str) -> Result<TypedArgument, Box<Diagnostic>> {
    let mut scanner = Scanner::new(sources, text);
    let name = scanner.name()?;
    let start = scanner.mark();
    if scanner.take("[") {
        let ty = list_type(&mut scanner)?;
        scanner.finish()?;
        return Ok(TypedArgument { name, ty });
    }
    let ty = match scanner.dtype_word() {
        Some(dtype) if scanner.at("[") => array_type(&mut scanner, dtype)?,
        Some(dtype) => ArgType::Scalar(dtype),
        None if scanner.word_then("[") => {
            let word = scanner.word();
            return Err(scanner.error(start, format!("`{word}` is not an element type")).help(TYPES_HELP).into());
        }
        None if scanner.word_then(":") => {
            return Err(scanner
                .error(start, "a distribution has no place in a type")
                .help(format!("write the type alone: `{name}=f32[?,?]`"))
                .into());
        }
        None => ArgType::Const(scanner.value()?),
    };
    scanner.finish()?;
    Ok(TypedArgument { name, ty })
}

const TYPES_HELP: &str =
    "element types: f64 f32 tf32 f16 bf16 f8e4m3 f8e5m2 f6e2m3 f6e3m2 f4e2m1 e8m0 i64 i32 i16 i8 i4 u64 u32 u16 u8 b1";
const FILLS_HELP: &str = "distributions: zeros ones randn rand arange iota empty const(V)";

/// `DIST:`, if the text goes on like that.
fn fill(scanner: &mut Scanner) -> Parsed<Option<Fill>> {
    let start = scanner.mark();
    let word = scanner.peek_word();
    let is_fill = scanner.word_then(":") || word == "const" && scanner.word_then("(");
    if !is_fill {
        let described =
            scanner.word_then("[").then(|| format!("write `randn:{word}[...]`, or another distribution before the type"));
        return match described {
            Some(help) => {
                Err(scanner.error(start, "an array needs a distribution before its type").help(help).help(FILLS_HELP).into())
            }
            None => Ok(None),
        };
    }
    scanner.word();
    let fill = match word.as_str() {
        "zeros" => Fill::Zeros,
        "ones" => Fill::Ones,
        "randn" => Fill::Randn,
        "rand" => Fill::Rand,
        "arange" | "iota" => Fill::Arange,
        "empty" => Fill::Empty,
        "const" => {
            scanner.expect("(")?;
            let at = scanner.mark();
            let value = scanner.value()?;
            if !matches!(value, ConstValue::Int(_) | ConstValue::Float(_) | ConstValue::Bool(_)) {
                return Err(scanner.error(at, "`const` takes a number").help("write `const(0.5):f32[16]`").into());
            }
            scanner.expect(")")?;
            Fill::Const(value)
        }
        _ => return Err(scanner.error(start, format!("`{word}` is not a distribution")).help(FILLS_HELP).into()),
    };
    scanner.expect(":")?;
    Ok(Some(fill))
}

fn dtype(scanner: &mut Scanner) -> Parsed<DType> {
    let start = scanner.mark();
    match scanner.dtype_word() {
        Some(dtype) => Ok(dtype),
        None => {
            let word = scanner.word();
            let message =
                if word.is_empty() { "expected an element type".to_string() } else { format!("`{word}` is not an element type") };
            Err(scanner.error(start, message).help(TYPES_HELP).into())
        }
    }
}

fn made(scanner: &mut Scanner, fill: Fill) -> Parsed<Made> {
    let dtype = dtype(scanner)?;
    if !scanner.at("[") {
        let start = scanner.mark();
        return Err(scanner.error(start, "expected the array's sizes").help(format!("write `{dtype}[1024,1024]`")).into());
    }
    let mut shape = Vec::new();
    for (start, extent) in scanner.extents()? {
        match extent {
            Extent::Static(size) => shape.push(usize::try_from(size).unwrap_or(usize::MAX)),
            Extent::Dynamic => {
                return Err(scanner
                    .error_at(start, 1, "a size must be known here")
                    .help("write a number in place of `?`")
                    .into());
            }
        }
    }
    let mut seed = None;
    while scanner.take(";") {
        let start = scanner.mark();
        let option = scanner.word();
        if option != "seed" {
            return Err(scanner.error(start, format!("`{option}` is not an option of an array")).help("write `;seed=3`").into());
        }
        if !matches!(fill, Fill::Randn | Fill::Rand) {
            return Err(scanner
                .error(start, "a seed is for random elements")
                .help("leave it out, or write `randn` or `rand`")
                .into());
        }
        scanner.expect("=")?;
        seed = Some(scanner.unsigned()?);
    }
    Ok(Made { fill, dtype, shape, seed })
}

fn stored(scanner: &mut Scanner, ends: &[char]) -> Parsed<Stored> {
    let start = scanner.mark();
    let text = scanner.until(ends);
    if text.is_empty() {
        return Err(scanner.error(start, "expected a file after `@`").help("write `x=@data.npy`").into());
    }
    if let Some((path, name)) = text.split_once(".safetensors#")
        && !name.is_empty()
    {
        return Ok(Stored::Safetensors(format!("{path}.safetensors"), name.to_owned()));
    }
    if text.trim_end_matches('#').ends_with(".safetensors") {
        let help = format!("write `@{}#NAME`", text.trim_end_matches('#'));
        return Err(scanner.error(start, "a .safetensors file holds many tensors: name one").help(help).into());
    }
    if !text.ends_with(".npy") {
        return Err(scanner
            .error(start, "neither a `.npy` nor a `.safetensors` file")
            .help("write `@data.npy` or `@data.safetensors#NAME`")
            .into());
    }
    if !scanner.take(";") {
        return Ok(Stored::Npy(text, None));
    }
    let start = scanner.mark();
    let option = scanner.word();
    if option != "dtype" {
        return Err(scanner.error(start, format!("`{option}` is not an option of a file")).help("write `;dtype=f8e4m3`").into());
    }
    scanner.expect("=")?;
    Ok(Stored::Npy(text, Some(dtype(scanner)?)))
}

/// The type of a list behind its `[`. Every array of a list brings its own sizes and strides at launch.
fn list_type(scanner: &mut Scanner) -> Parsed<ArgType> {
    let mut list: Option<(DType, usize, IndexType)> = None;
    while !scanner.take("]") {
        let start = scanner.mark();
        let item = match scanner.dtype_word() {
            Some(dtype) if scanner.at("[") => array_type(scanner, dtype)?,
            _ => {
                return Err(scanner
                    .error(start, "expected an array's type")
                    .help("a list holds arrays: `[f32[?,?],f32[?,?]]`; a tuple of values is written `(1, 2)`")
                    .into());
            }
        };
        let ArgType::Array { dtype, shape, index, .. } = item else { continue };
        let found = (dtype, shape.len());
        match &mut list {
            Some((dtype, rank, wide)) if found == (*dtype, *rank) => *wide = if index == IndexType::I64 { index } else { *wide },
            Some((dtype, rank, _)) => {
                let message = format!(
                    "the arrays of a list differ: item 0 is `{dtype}` of rank {rank}, this is `{}` of rank {}",
                    found.0, found.1
                );
                return Err(scanner.error(start, message).help("give arrays of different types parameters of their own").into());
            }
            None => list = Some((dtype, shape.len(), index)),
        }
        if !scanner.take(",") && !scanner.at("]") {
            return Err(scanner.error(scanner.mark(), "expected `,` or `]`").into());
        }
    }
    match list {
        Some((dtype, rank, index)) => Ok(ArgType::List { dtype, rank: rank as u32, index }),
        None => Err(scanner.error(scanner.mark(), "a list needs an array to know its element type by").into()),
    }
}

fn array_type(scanner: &mut Scanner, dtype: DType) -> Parsed<ArgType> {
    let shape: Vec<Extent> = scanner.extents()?.into_iter().map(|(_, extent)| extent).collect();
    let (mut align, mut index) = (16_u32, IndexType::I32);
    let mut written: Option<Vec<Extent>> = None;
    while scanner.take(";") {
        let start = scanner.mark();
        let option = scanner.word();
        match option.as_str() {
            "align" => {
                scanner.expect("=")?;
                let at = scanner.mark();
                let bytes = scanner.unsigned()?;
                align = match u32::try_from(bytes) {
                    Ok(bytes) if bytes.is_power_of_two() && bytes <= 4096 => bytes,
                    _ => return Err(scanner.error(at, "an alignment is a power of two of at most 4096 bytes").into()),
                };
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
                return Err(scanner.error(start, message).help("write `;align=16`, `;index=64` or `;strides=[?,1]`").into());
            }
        }
    }
    if let Some(strides) = written {
        return Ok(ArgType::Array { dtype, shape: shape.into(), strides: strides.into(), align, index, disjoint: true });
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
    Ok(ArgType::Array { dtype, shape: shape.into(), strides: strides.into(), align, index, disjoint: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        let mut sources = SourceMap::default();
        parse(&mut sources, text).unwrap_or_else(|error| panic!("{}", error.render(&sources, false))).value
    }

    fn plain(text: &str) -> ConstValue {
        match value(text) {
            Value::Plain(value) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values() {
        assert_eq!(plain("n=4_096"), ConstValue::Int(4096));
        assert_eq!(plain("n=-0x10"), ConstValue::Int(-16));
        assert_eq!(plain("eps=1e-5"), ConstValue::Float(1e-5));
        assert_eq!(plain("a=-inf"), ConstValue::Float(f64::NEG_INFINITY));
        assert_eq!(plain("causal=True"), ConstValue::Bool(true));
        assert_eq!(plain("mask=None"), ConstValue::None);
        assert_eq!(plain("acc=fp32"), ConstValue::DType(DType::F32));
        assert_eq!(plain("acc=ct.float16"), ConstValue::DType(DType::F16));
        assert_eq!(plain("mode=tn"), ConstValue::Str("tn".into()));
        assert_eq!(plain("mode=\"a b\""), ConstValue::Str("a b".into()));
        assert_eq!(plain("t=(1, 2.5,)"), ConstValue::Tuple(vec![ConstValue::Int(1), ConstValue::Float(2.5)]));
        assert_eq!(plain("t=()"), ConstValue::Tuple(vec![]));
    }

    #[test]
    fn arrays() {
        let made = |text: &str| match value(text) {
            Value::Made(made) => made,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            made("x=randn:f32[1024,7];seed=3"),
            Made { fill: Fill::Randn, dtype: DType::F32, shape: vec![1024, 7], seed: Some(3) }
        );
        assert_eq!(made("x=const(-2):i8[3]").tensor("x").unwrap().to_f64().unwrap(), [-2.0; 3]);
        assert_eq!(made("x=iota:f16[2,2]").tensor("x").unwrap().to_f64().unwrap(), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(made("x=ones:b1[]").shape, Vec::<usize>::new());
        let (x, y) = (made("x=rand:f32[4]").tensor("x").unwrap(), made("y=rand:f32[4]").tensor("y").unwrap());
        assert!(!x.same_bits(&y).unwrap());
        assert_eq!(value("x=@a b.npy"), Value::Stored(Stored::Npy("a b.npy".into(), None)));
        assert_eq!(value("x=@a.npy;dtype=f8e4m3"), Value::Stored(Stored::Npy("a.npy".into(), Some(DType::F8E4M3))));
        let Value::List(items) = value("xs=[@a.npy, @b.npy;dtype=f4e2m1,ones:f32[2,3] ,rand:f32[4];seed=1]") else { panic!() };
        assert_eq!(items[1], Value::Stored(Stored::Npy("b.npy".into(), Some(DType::F4E2M1))));
        assert_eq!(items[2], value("x=ones:f32[2,3]"));
        assert_eq!(items.len(), 4);
        assert_eq!(value("xs=[]"), Value::List(Vec::new()));
        assert_eq!(value("x=@m.safetensors#l.0"), Value::Stored(Stored::Safetensors("m.safetensors".into(), "l.0".into())));
    }

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
    fn mistakes_have_a_place() {
        let cases = [
            ("x", "1:2", "expected `=` after the argument's name"),
            ("=3", "1:1", "expected an argument's name"),
            ("x=", "1:3", "expected a value"),
            ("x=f32[4]", "1:3", "an array needs a distribution before its type"),
            ("x=normal:f32[4]", "1:3", "`normal` is not a distribution"),
            ("x=randn:f32", "1:12", "expected the array's sizes"),
            ("x=randn:f32[4,?]", "1:15", "a size must be known here"),
            ("x=randn:f32[4,-1]", "1:15", "a size is a number or `?`"),
            ("x=randn:f32[4", "1:14", "expected `,` or `]`"),
            ("x=randn:f32[4];sed=3", "1:16", "`sed` is not an option of an array"),
            ("x=randn:f32[4];seed=a", "1:21", "expected a whole number"),
            ("x=randn:f32[4] y", "1:16", "unexpected text after the argument"),
            ("x=@", "1:4", "expected a file after `@`"),
            ("x=@m.safetensors", "1:4", "a .safetensors file holds many tensors: name one"),
            ("x=[3]", "1:4", "expected an array"),
            ("x=[@a.npy", "1:10", "expected `,` or `]`"),
            ("x=[@a.txt]", "1:5", "neither a `.npy` nor a `.safetensors` file"),
            ("x=@a.npy;type=f32", "1:10", "`type` is not an option of a file"),
            ("x=@a.npy;dtype=f99", "1:16", "`f99` is not an element type"),
            ("x=@m.txt", "1:4", "neither a `.npy` nor a `.safetensors` file"),
            ("x=const(a):f32[1]", "1:9", "`const` takes a number"),
            ("x=99999999999999999999", "1:3", "the integer does not fit 64 bits"),
            ("x='abc", "1:3", "the string does not end"),
            ("x=((((((((((((((((((1", "1:20", "the tuples nest too deeply"),
        ];
        for (text, place, message) in cases {
            let mut sources = SourceMap::default();
            let error = parse(&mut sources, text).unwrap_err();
            assert_eq!(error.render_line(&sources), format!("<argument>:{place}: error[argument]: {message}"), "{text}");
        }
        let mut sources = SourceMap::default();
        let error = parse_type(&mut sources, "x=f32[?];align=3").unwrap_err();
        assert_eq!(error.message, "an alignment is a power of two of at most 4096 bytes");
    }

    #[test]
    fn types_of_lists_and_strides() {
        let mut sources = SourceMap::default();
        let mut ty = |text: &str| parse_type(&mut sources, text).map(|argument| argument.ty);
        let list = |rank, index| ArgType::List { dtype: DType::F32, rank, index };
        assert_eq!(ty("xs=[f32[?],f32[8]]").unwrap(), list(1, IndexType::I32));
        assert_eq!(ty("xs=[f32[?,?], f32[?,3];strides=[7,2],f32[4,4];index=64]").unwrap(), list(2, IndexType::I64));
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
        ] {
            let mut sources = SourceMap::default();
            let error = parse_type(&mut sources, text).unwrap_err();
            assert_eq!(error.render_line(&sources), format!("<argument>:{place}: error[argument]: {message}"), "{text}");
        }
    }
}
