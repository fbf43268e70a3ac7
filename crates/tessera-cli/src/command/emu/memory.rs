//! Device memory of `tessera emu`: arrays, the modules' variables, and values laid out as a C compiler lays them out.

use tessera::driver::DevicePtr;
use tessera::emu::{Emulator, Module, Parameter};
use tessera::ir::SourceMap;
use tessera::lang::ConstValue;
use tessera::runtime::Tensor;
use tessera::runtime::argspec::{self, ArgumentError, Fill, Made};
use tessera::types::DType;

use super::over::{self, Source};
use super::value::{Kind, Named, Over, Place, Value};
use crate::failure::Failure;

/// An array or a variable.
pub(super) struct Array {
    pub(super) name: String,
    pub(super) at: DevicePtr,
    dtype: DType,
    shape: Vec<usize>,
    /// What it held before any kernel ran, as the host wrote it.
    before: Vec<u8>,
}

impl Array {
    pub(super) fn tensor(&self, bytes: &[u8]) -> Result<Tensor, Failure> {
        Tensor::from_bytes(self.dtype, &self.shape, bytes).map_err(Failure::environment)
    }
}

/// Everything that has a name.
pub(super) struct Memory<'a> {
    emulator: &'a Emulator,
    pub(super) arrays: Vec<Array>,
}

/// Bytes that the host writes in front of a launch.
pub(super) type Write = (DevicePtr, Vec<u8>);

fn usage(message: impl std::fmt::Display) -> Failure {
    Failure::usage(message)
}

/// The element type that shows a variable.
fn shown_as(ty: &str) -> DType {
    let plain = match ty {
        "b8" | "u8" => "u8",
        "b16" | "u16" => "u16",
        "b32" | "u32" => "u32",
        "b64" | "u64" => "u64",
        "s8" => "i8",
        "s16" => "i16",
        "s32" => "i32",
        "s64" => "i64",
        other => other,
    };
    DType::parse(plain).filter(|dtype| dtype.bits() >= 8).unwrap_or(DType::U8)
}

/// A number as bytes of a type.
fn encode(dtype: DType, value: &ConstValue) -> Result<Vec<u8>, String> {
    let shown = || match value {
        ConstValue::Int(value) => value.to_string(),
        ConstValue::Float(value) => value.to_string(),
        other => format!("{other:?}"),
    };
    let bits = dtype.bits();
    if bits < 8 {
        return Err(format!("`{dtype}` has no bytes of its own: write `bytes(...)`"));
    }
    if let (false, ConstValue::Float(_)) = (dtype.is_float(), value) {
        return Err(format!("{} is no {dtype}", shown()));
    }
    if let (true, ConstValue::Int(number)) = (dtype.is_integer() && bits < 64, value)
        && !(-(1i64 << (bits - 1))..1i64 << bits).contains(number)
    {
        return Err(format!("{number} does not fit {dtype}"));
    }
    let made = Made { fill: Fill::Const(value.clone()), dtype, shape: vec![1], seed: None };
    made.tensor("").and_then(|tensor| tensor.to_bytes()).map_err(|error| error.to_string())
}

/// The type of a number that says none, as C has it.
fn usual(value: &ConstValue) -> DType {
    match value {
        ConstValue::Float(_) => DType::F32,
        ConstValue::Bool(_) => DType::U8,
        ConstValue::Int(value) if (-(1 << 31)..1 << 32).contains(value) => DType::I32,
        _ => DType::I64,
    }
}

/// A number as a parameter's bytes.
fn number(value: &ConstValue, parameter: &Parameter) -> Result<Vec<u8>, String> {
    let width = parameter.bytes as usize;
    let float = matches!(value, ConstValue::Float(_));
    let dtype = match parameter.ty {
        "f16" | "bf16" | "f32" | "f64" => shown_as(parameter.ty),
        // Compilers declare floats as untyped bits too: a number with a point means them.
        "b32" if float => DType::F32,
        "b64" if float => DType::F64,
        "b16" if float => DType::F16,
        _ if float => return Err("a number with a point for an integer".to_owned()),
        _ => match width {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        },
    };
    let value = match value {
        ConstValue::Bool(value) if !dtype.is_float() => &ConstValue::Int(i64::from(*value)),
        other => other,
    };
    encode(dtype, value)
}

impl<'a> Memory<'a> {
    /// The memory of some modules' variables.
    pub(super) fn new(emulator: &'a Emulator, modules: &[&Module]) -> Result<Memory<'a>, Failure> {
        let mut memory = Memory { emulator, arrays: Vec::new() };
        for module in modules {
            for variable in module.variables() {
                let name = variable.name.to_string();
                let Some(at) = module.variable(&name) else { continue };
                let bytes = emulator.range(at).map_or(0, |range| range.end - range.start) as usize;
                let mut before = vec![0; bytes];
                emulator.read(at, &mut before).map_err(Failure::environment)?;
                let dtype = shown_as(variable.ty.name());
                let dtype = if bytes.is_multiple_of(dtype.bits() as usize / 8) { dtype } else { DType::U8 };
                memory.arrays.push(Array { name, at, dtype, shape: vec![bytes * 8 / dtype.bits() as usize], before });
            }
        }
        Ok(memory)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.arrays.iter().rposition(|array| array.name == name)
    }

    /// The array or variable of a name.
    pub(super) fn named(&self, name: &str) -> Result<usize, Failure> {
        self.find(name).ok_or_else(|| {
            let names: Vec<&str> = self.arrays.iter().map(|array| array.name.as_str()).collect();
            let known = if names.is_empty() { "none is named".to_owned() } else { format!("there are {}", names.join(", ")) };
            usage(format!("there is no array or variable `{name}`\nhelp: {known}"))
        })
    }

    fn push(&mut self, name: &str, dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> Result<usize, Failure> {
        let at = self.emulator.alloc(bytes.len() as u64).map_err(Failure::environment)?;
        self.arrays.push(Array { name: name.to_owned(), at, dtype, shape, before: bytes });
        Ok(self.arrays.len() - 1)
    }

    /// A name that none has yet: a second `x` is `x#2`.
    fn fresh(&self, wanted: &str) -> String {
        let names = (1..).map(|count| if count == 1 { wanted.to_owned() } else { format!("{wanted}#{count}") });
        names.take(self.arrays.len() + 1).find(|name| self.find(name).is_none()).unwrap_or_else(|| wanted.to_owned())
    }

    /// Makes or reads an array's elements.
    fn load(&self, text: &str, name: &str) -> Result<(Tensor, bool), Failure> {
        let mut sources = SourceMap::default();
        // The argument grammar wants a name that is one.
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let argument = argspec::parse(&mut sources, &format!("{plain}={text}"))
            .map_err(|error| Failure::diagnostics(&[*error], &sources))?;
        let is_empty = matches!(&argument.value, argspec::Value::Made(made) if made.fill == Fill::Empty);
        match argument.value.tensor(name) {
            Ok(tensor) => Ok((tensor, is_empty)),
            Err(ArgumentError::NoArray(_)) => Err(usage(format!("`{text}` is no array"))),
            Err(error) => Err(Failure::environment(error)),
        }
    }

    /// An array of its own in device memory.
    fn array(&mut self, text: &str, name: &str) -> Result<usize, Failure> {
        let (tensor, is_empty) = self.load(text, name)?;
        let bytes = tensor.to_bytes().map_err(Failure::environment)?;
        // What is to be written by the kernel counts as not written before.
        let before = if is_empty { vec![0; bytes.len()] } else { bytes };
        let index = self.push(name, tensor.dtype(), tensor.shape().to_vec(), before)?;
        if !is_empty {
            let array = &self.arrays[index];
            self.emulator.write(array.at, &array.before).map_err(Failure::environment)?;
        }
        Ok(index)
    }

    /// Where a place is.
    fn place(&self, place: &Place) -> Result<DevicePtr, Failure> {
        let array = &self.arrays[self.named(&place.name)?];
        let shape = &array.shape;
        let mut offset = place.bytes;
        if let Some(index) = &place.index {
            let inside = index.len() <= shape.len() && index.iter().zip(shape).all(|(&at, &extent)| at < extent as u64);
            if !inside {
                return Err(usage(format!("`{}` is {}{shape:?}: it has no element {index:?}", place.name, array.dtype)));
            }
            let element = shape
                .iter()
                .enumerate()
                .fold(0u64, |at, (axis, &extent)| at * extent as u64 + index.get(axis).copied().unwrap_or(0));
            offset = offset.saturating_add(element * u64::from(array.dtype.bits()) / 8);
        }
        if offset > array.before.len() as u64 {
            let bytes = array.before.len();
            return Err(usage(format!("byte {offset} of `{}`, which has {bytes}", place.name)));
        }
        Ok(DevicePtr(array.at.0 + offset))
    }

    /// What a map or an image is made over.
    fn source(&mut self, named: &Named, default: &str) -> Result<Source, Failure> {
        let index = match &named.value {
            Value::Array(text) => {
                let name = self.name_of(named, default)?;
                self.array(text, &name)?
            }
            Value::Place(place) => {
                let at = self.place(place)?;
                let array = &self.arrays[self.named(&place.name)?];
                let shape = (at == array.at).then(|| array.shape.clone());
                return Ok(Source { at, dtype: array.dtype, shape });
            }
            _ => return Err(usage("a map, texture or surface is over an array")),
        };
        let array = &self.arrays[index];
        Ok(Source { at: array.at, dtype: array.dtype, shape: Some(array.shape.clone()) })
    }

    fn name_of(&self, named: &Named, default: &str) -> Result<String, Failure> {
        match &named.name {
            Some(name) if self.find(name).is_some() => Err(usage(format!("there are two arrays `{name}`"))),
            Some(name) => Ok(name.clone()),
            None => Ok(self.fresh(default)),
        }
    }

    /// Lays a value out behind what is there; gives its alignment.
    fn lay(&mut self, named: &Named, default: &str, out: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut put = |bytes: &[u8], align: usize| {
            out.resize(out.len().next_multiple_of(align), 0);
            out.extend_from_slice(bytes);
            Ok(align)
        };
        let pointer = |at: DevicePtr| at.0.to_le_bytes();
        match &named.value {
            Value::Number(value) => {
                let bytes = encode(usual(value), value).map_err(usage)?;
                put(&bytes, bytes.len())
            }
            Value::Typed(dtype, values) => {
                let mut bytes = Vec::new();
                for value in values {
                    bytes.extend(encode(*dtype, value).map_err(usage)?);
                }
                put(&bytes, dtype.bits() as usize / 8)
            }
            Value::Array(text) => {
                let name = self.name_of(named, default)?;
                let index = self.array(text, &name)?;
                put(&pointer(self.arrays[index].at), 8)
            }
            Value::Place(place) => put(&pointer(self.place(place)?), 8),
            Value::Bytes(bytes) => put(bytes, 1),
            Value::File(path) => {
                let bytes = std::fs::read(path).map_err(|error| Failure::environment(format!("`{path}`: {error}")))?;
                put(&bytes, 1)
            }
            Value::Struct(fields) => {
                let (bytes, align) = self.fields(fields, default)?;
                put(&bytes, align)
            }
            Value::Pointer(fields) => {
                let name = self.name_of(named, default)?;
                let (bytes, _) = self.fields(fields, &name)?;
                let words = bytes.len().is_multiple_of(8);
                let (dtype, count) = if words { (DType::U64, bytes.len() / 8) } else { (DType::U8, bytes.len()) };
                let index = self.push(&name, dtype, vec![count], bytes)?;
                let array = &self.arrays[index];
                self.emulator.write(array.at, &array.before).map_err(Failure::environment)?;
                put(&pointer(array.at), 8)
            }
            Value::Over(Over { kind, source, options }) => {
                let source = self.source(source, named.name.as_deref().unwrap_or(default))?;
                match kind {
                    Kind::Map => put(&over::tensor_map(&source, options).map_err(usage)?, 64),
                    Kind::Texture | Kind::Surface => {
                        let handle = over::image(self.emulator, *kind, &source, options).map_err(usage)?;
                        put(&handle.to_le_bytes(), 8)
                    }
                }
            }
        }
    }

    /// The bytes of a struct, a multiple of its alignment.
    fn fields(&mut self, fields: &[Named], default: &str) -> Result<(Vec<u8>, usize), Failure> {
        let (mut bytes, mut align) = (Vec::new(), 1);
        for (index, field) in fields.iter().enumerate() {
            align = align.max(self.lay(field, &format!("{default}[{index}]"), &mut bytes)?);
        }
        bytes.resize(bytes.len().next_multiple_of(align), 0);
        Ok((bytes, align))
    }

    /// A parameter's bytes.
    pub(super) fn argument(&mut self, named: &Named, parameter: &Parameter) -> Result<Vec<u8>, Failure> {
        if let (Value::Number(value), 1..=8) = (&named.value, parameter.bytes) {
            return number(value, parameter).map_err(usage);
        }
        let mut bytes = Vec::new();
        self.lay(named, &parameter.name, &mut bytes)?;
        if bytes.len() == parameter.bytes as usize {
            return Ok(bytes);
        }
        let what = match &named.value {
            Value::Array(_) | Value::Place(_) | Value::Pointer(_) => "an address",
            Value::Struct(_) => "a struct",
            Value::Over(Over { kind: Kind::Map, .. }) => "a tensor map",
            Value::Over(_) => "a handle",
            _ => "a value",
        };
        let help = match &named.value {
            Value::Struct(_) => "\nhelp: fields stand where C puts them; `pad(N)` adds bytes, `i8(1)`, `f64(1)` say types",
            _ if parameter.bytes > 8 => "\nhelp: a struct is written `{FIELD, ...}` or `bytes(...)`",
            _ => "",
        };
        Err(usage(format!("{what} of {} bytes for a parameter of {}{help}", bytes.len(), parameter.bytes)))
    }

    /// `NAME=ARRAY` that no parameter takes.
    pub(super) fn declare(&mut self, named: &Named) -> Result<(), Failure> {
        let Some(_) = &named.name else { return Err(usage("an array needs a name\nhelp: write `--array NAME=zeros:f32[64]`")) };
        self.lay(named, "", &mut Vec::new()).map(drop)
    }

    /// What the host writes for `--set PLACE=VALUE`: an array's elements stand there, of all else what a struct would hold.
    pub(super) fn assignment(&mut self, place: &Place, value: &Named) -> Result<Write, Failure> {
        let index = self.named(&place.name)?;
        let at = self.place(place)?;
        let mut bytes = Vec::new();
        match &value.value {
            Value::Array(text) => {
                let (tensor, _) = self.load(text, &place.name)?;
                bytes = tensor.to_bytes().map_err(Failure::environment)?;
                let array = &mut self.arrays[index];
                if bytes.len() == array.before.len() {
                    (array.dtype, array.shape) = (tensor.dtype(), tensor.shape().to_vec());
                }
            }
            // A number alone has the variable's own type.
            Value::Number(number) => {
                let dtype = self.arrays[index].dtype;
                bytes = encode(dtype, number).map_err(usage)?;
            }
            _ => drop(self.lay(value, &place.name, &mut bytes)?),
        }
        let array = &self.arrays[index];
        let room = array.at.0 + array.before.len() as u64 - at.0;
        if bytes.len() as u64 > room {
            return Err(usage(format!("{} bytes for the {room} of `{}` from there on", bytes.len(), place.name)));
        }
        Ok((at, bytes))
    }

    /// Writes what the host has to say in front of a launch.
    pub(super) fn write(&mut self, writes: &[Write]) -> Result<(), Failure> {
        for (at, bytes) in writes {
            self.emulator.write(*at, bytes).map_err(Failure::environment)?;
            for array in &mut self.arrays {
                let Some(start) = at.0.checked_sub(array.at.0).map(|start| start as usize) else { continue };
                if let Some(part) = array.before.get_mut(start..start + bytes.len()) {
                    part.copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    /// An array as it is now, and whether kernels changed it.
    pub(super) fn after(&self, array: &Array) -> Result<(Tensor, bool), Failure> {
        let mut bytes = vec![0; array.before.len()];
        self.emulator.read(array.at, &mut bytes).map_err(Failure::environment)?;
        Ok((array.tensor(&bytes)?, bytes != array.before))
    }
}
