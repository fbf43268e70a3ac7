//! `.safetensors` files: named tensors behind a JSON header.
//!
//! The `safetensors` crate checks that the header's offsets cover the data exactly; its messages are kept. Sub-byte types are
//! packed in these files as they are in memory.
//!
//! ```
//! use tessera_runtime::{Tensor, safetensors};
//! let x = Tensor::from_vec(&[2], vec![1_i32, 2])?;
//! let bytes = safetensors::encode(&[("x", &x)])?;
//! assert!(safetensors::decode(&bytes, "x")?.same_bits(&x)?);
//! # Ok::<(), tessera_runtime::FormatError>(())
//! ```

use std::borrow::Cow;
use std::path::Path;

use ::safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View, serialize};
use tessera_types::DType;

use crate::error::{FileError, FormatError};
use crate::tensor::Tensor;
use crate::whole_file::write_whole;

/// Every element type that both sides have.
const TYPES: &[(DType, Dtype)] = &[
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F8E4M3, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
    (DType::E8M0, Dtype::F8_E8M0),
    (DType::F6E2M3, Dtype::F6_E2M3),
    (DType::F6E3M2, Dtype::F6_E3M2),
    (DType::F4E2M1, Dtype::F4),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::B1, Dtype::BOOL),
];

/// A tensor of a file without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its element type; `None` for a type without a counterpart here.
    pub dtype: Option<DType>,
    /// Its sizes.
    pub shape: Vec<usize>,
}

/// Reads one tensor of a file.
pub fn read(path: impl AsRef<Path>, name: &str) -> Result<Tensor, FileError> {
    with_bytes(path.as_ref(), |bytes| decode(bytes, name))
}

/// What a file holds, by name.
pub fn list(path: impl AsRef<Path>) -> Result<Vec<Entry>, FileError> {
    with_bytes(path.as_ref(), entries)
}

/// Writes a file.
pub fn write(path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<(), FileError> {
    let path = path.as_ref();
    encode(tensors).and_then(|bytes| Ok(write_whole(path, &[&bytes])?)).map_err(|kind| FileError { path: path.to_owned(), kind })
}

fn with_bytes<T>(path: &Path, work: impl FnOnce(&[u8]) -> Result<T, FormatError>) -> Result<T, FileError> {
    std::fs::read(path)
        .map_err(FormatError::from)
        .and_then(|bytes| work(&bytes))
        .map_err(|kind| FileError { path: path.to_owned(), kind })
}

/// What the bytes of a file hold, by name.
pub fn entries(bytes: &[u8]) -> Result<Vec<Entry>, FormatError> {
    let file = parse(bytes)?;
    let mut entries: Vec<Entry> = file
        .iter()
        .map(|(name, view)| Entry { name: name.to_owned(), dtype: ours(view.dtype()), shape: view.shape().to_vec() })
        .collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Reads one tensor of the bytes of a file.
pub fn decode(bytes: &[u8], name: &str) -> Result<Tensor, FormatError> {
    let file = parse(bytes)?;
    let Ok(view) = file.tensor(name) else {
        let mut available: Vec<String> = file.names().into_iter().map(str::to_owned).collect();
        available.sort();
        return Err(FormatError::NoSuchTensor { name: name.to_owned(), available });
    };
    let Some(dtype) = ours(view.dtype()) else {
        return Err(FormatError::DType { descr: format!("{:?}", view.dtype()), hint: "" });
    };
    if !dtype.is_byte_bool() {
        return Ok(Tensor::from_bytes(dtype, view.shape(), view.data())?);
    }
    let truths: Vec<u8> = view.data().iter().map(|&byte| u8::from(byte != 0)).collect();
    Ok(Tensor::from_bytes(dtype, view.shape(), &truths)?)
}

/// The bytes of a file.
pub fn encode(tensors: &[(&str, &Tensor)]) -> Result<Vec<u8>, FormatError> {
    let views = tensors.iter().map(|(name, tensor)| Ok((*name, Stored::of(tensor)?))).collect::<Result<Vec<_>, FormatError>>()?;
    serialize(views, None).map_err(malformed)
}

struct Stored<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    data: Vec<u8>,
}

impl<'a> Stored<'a> {
    fn of(tensor: &'a Tensor) -> Result<Stored<'a>, FormatError> {
        let dtype = TYPES.iter().find(|(ours, _)| *ours == tensor.dtype()).map(|(_, theirs)| *theirs).ok_or_else(|| {
            FormatError::DType {
                descr: tensor.dtype().name().into(),
                hint: "; convert it to a type that .safetensors files have",
            }
        })?;
        Ok(Stored { dtype, shape: tensor.shape(), data: tensor.to_bytes()? })
    }
}

impl View for Stored<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.data)
    }
    fn data_len(&self) -> usize {
        self.data.len()
    }
}

fn parse(bytes: &[u8]) -> Result<SafeTensors<'_>, FormatError> {
    SafeTensors::deserialize(bytes).map_err(malformed)
}

fn ours(theirs: Dtype) -> Option<DType> {
    TYPES.iter().find(|(_, known)| *known == theirs).map(|(ours, _)| *ours)
}

fn malformed(error: SafeTensorError) -> FormatError {
    FormatError::Header(error.to_string())
}
