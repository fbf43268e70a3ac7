//! Kernel arguments as text: what `tessera run`, `check` and `compile` take after the kernel's name.
//!
//! | text | is |
//! |---|---|
//! | `n=4096`, `eps=1e-5`, `causal=True`, `mask=None`, `acc=f32`, `mode='tn'`, `tile=(64, 32)` | a value |
//! | `x=randn:f32[1024,1024];seed=3` | an array with made-up elements ([`Fill`]) |
//! | `x=@data.npy`, `w=@model.safetensors#layer.0.weight` | an array from a file |
//! | `a=@fp8.npy;dtype=f8e4m3` | its bytes as codes of a type that NumPy has no name for |
//! | `xs=[@a.npy, zeros:f32[8,4]]` | a list of arrays |
//! | `xs=(@a.npy, zeros:f32[8,4], 2.5)` | a tuple; its items are `xs.0`, `xs.1` and `xs.2` to a launch |
//!
//! and, as types ([`parse_type`]):
//!
//! | text | is |
//! |---|---|
//! | `x=f32[?,?]` | an array of run-time sizes, row-major, with unit inner stride |
//! | `x=f32[4096,1024];align=16;index=64` | known sizes; the base, other strides and lines are multiples of 16 bytes; 64-bit sizes and strides |
//! | `x=f32[?,?];lines=4` | the base is a multiple of 16 bytes, other strides and lines are multiples of 4 |
//! | `x=f32[?,?];strides=[1,?]` | strides in elements, as the caller's array has them |
//! | `xs=[f32[?,?],f32[?,?]]` | a list of arrays of one type and rank; how many there are is known at launch only |
//! | `xs=(f32[?,?],f16[?];strides=[2],f32,8)` | a tuple; where it holds an array, `f32` in it is a run-time scalar and `8` a constant |
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

use tessera_ir::{Diagnostic, Extent, SourceMap, item_name};
use tessera_lang::ConstValue;
use tessera_types::{DType, FloatFormat, IntFormat, cast, default_rounding};

use crate::error::{FileError, TensorError};
use crate::random::RandomStream;
use crate::tensor::Tensor;
use crate::{npy, safetensors};

mod scan;
mod types;

use scan::{Parsed, Scanner};
pub use types::{TypedArgument, parse_type};

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
    /// A tuple with an array in it.
    Tuple(Vec<Value>),
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
    /// It is none.
    #[error("`{0}` is no array")]
    NoArray(String),
}

/// A named argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The parameter's name.
    pub name: String,
    /// What it is.
    pub value: Value,
}

impl Argument {
    /// Makes or reads what a launch takes: one value by the parameter's name, of a tuple each item by its own (`xs.0`, `xs.1`).
    pub fn load(&self) -> Result<Vec<(String, crate::Value)>, ArgumentError> {
        let mut loaded = Vec::new();
        load(&self.name, &self.value, &mut loaded)?;
        Ok(loaded)
    }
}

fn load(name: &str, value: &Value, loaded: &mut Vec<(String, crate::Value)>) -> Result<(), ArgumentError> {
    let value = match value {
        Value::Plain(value) => value.clone().into(),
        Value::Made(_) | Value::Stored(_) => crate::Value::Tensor(value.tensor(name)?),
        Value::List(items) => {
            let items = items.iter().enumerate().map(|(position, item)| item.tensor(&format!("{name}[{position}]")));
            crate::Value::List(items.collect::<Result<_, _>>()?)
        }
        Value::Tuple(items) => {
            for (position, item) in items.iter().enumerate() {
                load(&item_name(name, position), item, loaded)?;
            }
            return Ok(());
        }
    };
    loaded.push((name.to_owned(), value));
    Ok(())
}

impl Value {
    /// The array, made or read for the argument of a name.
    pub fn tensor(&self, name: &str) -> Result<Tensor, ArgumentError> {
        match self {
            Value::Made(made) => Ok(made.tensor(name)?),
            Value::Stored(stored) => Ok(stored.read()?),
            Value::Plain(_) | Value::List(_) | Value::Tuple(_) => Err(ArgumentError::NoArray(name.to_owned())),
        }
    }
}

/// Reads `NAME=...`.
pub fn parse(sources: &mut SourceMap, text: &str) -> Result<Argument, Box<Diagnostic>> {
    let mut scanner = Scanner::new(sources, text);
    let name = scanner.name()?;
    let value = value(&mut scanner, 0, &[';'])?;
    scanner.finish()?;
    Ok(Argument { name, value })
}

/// A value, `depth` tuples deep; a file's name in it ends at one of `ends`.
fn value(scanner: &mut Scanner, depth: usize, ends: &[char]) -> Parsed<Value> {
    if let Some(items) = scanner.tuple(depth, |scanner, depth| value(scanner, depth, &[',', ')', ']', ';']))? {
        return Ok(tuple(items));
    }
    if scanner.take("[") {
        let items = scanner.items("]", |scanner| {
            let start = scanner.mark();
            array(scanner, &[',', ']', ';'])?.ok_or_else(|| {
                let error = scanner.error(start, "expected an array");
                error.help("a list holds arrays: `[@a.npy, zeros:f32[8,4]]`; a tuple of values is written `(1, 2)`").into()
            })
        })?;
        return Ok(Value::List(items));
    }
    match array(scanner, ends)? {
        Some(array) => Ok(array),
        None => Ok(Value::Plain(scanner.value()?)),
    }
}

/// A tuple: a constant where all its items are.
fn tuple(items: Vec<Value>) -> Value {
    let constant = |item: &Value| match item {
        Value::Plain(value) => Some(value.clone()),
        Value::Made(_) | Value::Stored(_) | Value::List(_) | Value::Tuple(_) => None,
    };
    match items.iter().map(constant).collect() {
        Some(constants) => Value::Plain(ConstValue::Tuple(constants)),
        None => Value::Tuple(items),
    }
}

/// An array that is made or read, if the text goes on with one; a file's name ends at one of `ends`.
fn array(scanner: &mut Scanner, ends: &[char]) -> Parsed<Option<Value>> {
    Ok(if scanner.take("@") {
        Some(Value::Stored(stored(scanner, ends)?))
    } else if let Some((fill, at)) = fill(scanner)? {
        Some(Value::Made(made(scanner, fill, at)?))
    } else {
        None
    })
}

const TYPES_HELP: &str =
    "element types: f64 f32 tf32 f16 bf16 f8e4m3 f8e5m2 f6e2m3 f6e3m2 f4e2m1 e8m0 i64 i32 i16 i8 i4 u64 u32 u16 u8 b1";
const FILLS_HELP: &str = "distributions: zeros ones randn rand arange iota empty const(V)";

/// `DIST:`, if the text goes on like that, and where the distribution, or its number, stands.
fn fill(scanner: &mut Scanner) -> Parsed<Option<(Fill, usize)>> {
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
    let mut place = start;
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
            place = at;
            Fill::Const(value)
        }
        _ => return Err(scanner.error(start, format!("`{word}` is not a distribution")).help(FILLS_HELP).into()),
    };
    scanner.expect(":")?;
    Ok(Some((fill, place)))
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

/// True where an element type has a number, but for rounding.
fn holds(dtype: DType, value: &ConstValue) -> bool {
    let whole = |value: f64| value.fract() == 0.0;
    match (value, IntFormat::of(dtype), FloatFormat::of(dtype)) {
        (ConstValue::Int(value), Some(format), _) => (format.min()..=format.max()).contains(&i128::from(*value)),
        (ConstValue::Float(value), Some(format), _) => {
            whole(*value) && (format.min() as f64..=format.max() as f64).contains(value)
        }
        (ConstValue::Int(value), None, Some(format)) => (*value as f64).abs() <= format.max_finite(),
        (ConstValue::Float(value), None, Some(format)) => !value.is_finite() || value.abs() <= format.max_finite(),
        (ConstValue::Int(value), None, None) => matches!(value, 0 | 1),
        (ConstValue::Float(value), None, None) => *value == 0.0 || *value == 1.0,
        _ => true,
    }
}

/// An array whose elements are said, by a word or number at a place.
fn made(scanner: &mut Scanner, fill: Fill, at: usize) -> Parsed<Made> {
    let dtype = dtype(scanner)?;
    if let Fill::Const(value) = &fill
        && !holds(dtype, value)
    {
        let shown = match value {
            ConstValue::Int(value) => value.to_string(),
            ConstValue::Float(value) => format!("{value:?}"),
            other => format!("{other:?}"),
        };
        return Err(scanner
            .error(at, format!("{shown} is no `{dtype}`"))
            .help("write a number that the element type has")
            .into());
    }
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
        if seed.is_some() {
            return Err(scanner.error(start, "the seed is given twice").help("leave one out").into());
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
        let Value::Tuple(items) = value("xs=(@a.npy, (2.5, [rand:f32[4]]),1)") else { panic!() };
        assert_eq!(items[0], Value::Stored(Stored::Npy("a.npy".into(), None)));
        assert_eq!(items[1], Value::Tuple(vec![Value::Plain(ConstValue::Float(2.5)), value("x=[rand:f32[4]]")]));
        assert_eq!(value("x=@m.safetensors#l.0"), Value::Stored(Stored::Safetensors("m.safetensors".into(), "l.0".into())));
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
            ("x=randn:f32[4];seed=1;seed=2", "1:23", "the seed is given twice"),
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
            ("x=const(300):u8[16]", "1:9", "300 is no `u8`"),
            ("x=const(-1):u32[16]", "1:9", "-1 is no `u32`"),
            ("x=const(0.5):i32[16]", "1:9", "0.5 is no `i32`"),
            ("x=const(1e39):f32[16]", "1:9", "1e39 is no `f32`"),
            ("x=const(500):f8e4m3[16]", "1:9", "500 is no `f8e4m3`"),
            ("x=zeros:f32[4,99999999999999]", "1:15", "99999999999999 elements along one axis are too many"),
            ("x=99999999999999999999", "1:3", "the integer does not fit 64 bits"),
            ("x='abc", "1:3", "the string does not end"),
            ("x=((((((((((((((((((1", "1:20", "the tuples nest too deeply"),
            ("x=(@a.npy", "1:10", "expected `,` or `)`"),
            ("x=(ones:f32[2], f32[4])", "1:17", "an array needs a distribution before its type"),
        ];
        for (text, place, message) in cases {
            let mut sources = SourceMap::default();
            let error = parse(&mut sources, text).unwrap_err();
            assert_eq!(error.render_line(&sources), format!("<argument>:{place}: error[argument]: {message}"), "{text}");
        }
    }
}

#[cfg(test)]
mod loading {
    use super::*;

    /// The items of a tuple are arguments by their own names, and random ones differ.
    #[test]
    fn items_of_a_tuple_have_names() {
        let argument = parse(&mut SourceMap::default(), "xs=(rand:f32[4], (2, rand:f32[4]), [ones:f32[1]])").unwrap();
        let loaded = argument.load().unwrap();
        let names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["xs.0", "xs.1.0", "xs.1.1", "xs.2"]);
        let (crate::Value::Tensor(a), crate::Value::Tensor(b)) = (&loaded[0].1, &loaded[2].1) else { panic!("{loaded:?}") };
        assert!(!a.same_bits(b).unwrap());
    }
}
