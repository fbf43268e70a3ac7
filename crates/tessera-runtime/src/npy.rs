//! NumPy's `.npy` files: versions 1.0 to 3.0, both element orders, both byte orders.
//!
//! A file is `\x93NUMPY`, two version bytes, the header's length, the header (the text of a Python dict) and the elements.
//! Nothing is allocated before the file's length proves that the elements are there.
//!
//! | descr | element type |
//! |---|---|
//! | `|b1` | `b1` |
//! | `|i1 <i2 <i4 <i8`, `|u1 <u2 <u4 <u8`, also `>` | `i8` ... `u64` |
//! | `<f2 <f4 <f8`, also `>` | `f16 f32 f64` |
//! | `<u2`, where the caller says `bf16` ([`read_as`]) | `bf16` |
//! | `<V2` (what NumPy writes for `ml_dtypes.bfloat16`) | `bf16` |
//! | `<f1` (what it writes for `float8_e5m2`) | `f8e5m2` |
//! | `[('float8_e4m3fn', '|V1')]`, with any name of a type | that type |
//!
//! NumPy writes every other 8-bit and smaller type of ml_dtypes as `|V1` and forgets which it was: such a file is read where the
//! caller says what it holds ([`read_as`]) and refused otherwise. We write these types as one-field records whose field
//! has ml_dtypes' name: `numpy.load(...).view(ml_dtypes.float8_e4m3fn)` reads them, and so do we. Elements below eight bits take
//! a byte each in files. `tf32` is written as `<f4`.
//!
//! ```
//! use tessera_runtime::{Tensor, npy};
//! let x = Tensor::from_vec(&[2, 2], vec![1.0_f32, 2.0, 3.0, 4.0])?;
//! let bytes = npy::encode(&x)?;
//! assert!(npy::decode(&bytes)?.same_bits(&x)?);
//! # Ok::<(), tessera_runtime::FormatError>(())
//! ```

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tessera_types::DType;

use crate::error::{FileError, FormatError, TensorError};
use crate::layout::{Layout, packing};
use crate::numbers::{bytes_of_codes, codes};
use crate::tensor::{Tensor, bytes_of};
use crate::whole_file::write_whole;

mod header;

use header::{ByteOrder, Header, Kind};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The names ml_dtypes gives types that a `.npy` header cannot name.
const RECORD_NAMES: &[(DType, &str)] = &[
    (DType::F8E4M3, "float8_e4m3fn"),
    (DType::F8E5M2, "float8_e5m2"),
    (DType::E8M0, "float8_e8m0fnu"),
    (DType::F6E2M3, "float6_e2m3fn"),
    (DType::F6E3M2, "float6_e3m2fn"),
    (DType::F4E2M1, "float4_e2m1fn"),
    (DType::I4, "int4"),
];

/// Reads a file.
pub fn read(path: impl AsRef<Path>) -> Result<Tensor, FileError> {
    read_with(path.as_ref(), None)
}

/// Reads a file whose elements have a known type: decides what `|V1` means, and takes `|u1` as codes of a type that has no name
/// in NumPy, `<u2` as `bf16`; other types must agree.
pub fn read_as(path: impl AsRef<Path>, dtype: DType) -> Result<Tensor, FileError> {
    read_with(path.as_ref(), Some(dtype))
}

fn read_with(path: &Path, dtype: Option<DType>) -> Result<Tensor, FileError> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        decode_with(&bytes, dtype)
    };
    read().map_err(|kind| FileError { path: path.to_owned(), kind })
}

/// Writes a file: version 1.0, row-major, little-endian.
pub fn write(path: impl AsRef<Path>, tensor: &Tensor) -> Result<(), FileError> {
    let path = path.as_ref();
    let write = || -> Result<(), FormatError> {
        let (head, data) = parts(tensor)?;
        Ok(write_whole(path, &[&head, &data])?)
    };
    write().map_err(|kind| FileError { path: path.to_owned(), kind })
}

/// Reads the bytes of a file.
pub fn decode(bytes: &[u8]) -> Result<Tensor, FormatError> {
    decode_with(bytes, None)
}

/// The bytes of a file.
pub fn encode(tensor: &Tensor) -> Result<Vec<u8>, FormatError> {
    let (mut head, data) = parts(tensor)?;
    head.extend(data);
    Ok(head)
}

fn parts(tensor: &Tensor) -> Result<(Vec<u8>, Vec<u8>), FormatError> {
    let dtype = tensor.dtype();
    let mut data = tensor.to_bytes()?;
    if packing(dtype).is_some() {
        data = codes(dtype, &data, tensor.len()).into_iter().map(|code| code as u8).collect();
    }
    Ok((header::encode(&descr(dtype), tensor.shape()), data))
}

fn descr(dtype: DType) -> String {
    if let Some((_, name)) = RECORD_NAMES.iter().find(|(known, _)| *known == dtype) {
        return format!("[('{name}', '|V1')]");
    }
    let width = dtype.unpacked_bytes();
    let order = if width == 1 { '|' } else { '<' };
    let kind = match dtype {
        DType::BF16 => 'V',
        DType::B1 => 'b',
        _ if dtype.is_float() => 'f',
        _ if dtype.is_signed() => 'i',
        _ => 'u',
    };
    format!("'{order}{kind}{width}'")
}

fn decode_with(bytes: &[u8], wanted: Option<DType>) -> Result<Tensor, FormatError> {
    let (text, data) = split(bytes)?;
    let header = Header::parse(text)?;
    let dtype = element_type(&header, wanted)?;
    let width = header.width;

    let too_large = || TensorError::TooLarge { shape: header.shape.clone(), dtype };
    let layout = Layout::contiguous(&header.shape);
    bytes_of(dtype, &header.shape)?;
    let needed = layout.len().checked_mul(width).ok_or_else(too_large)?;
    if data.len() < needed {
        return Err(FormatError::Truncated { what: "the array", needed: needed as u64, found: data.len() as u64 });
    }
    let mut data = std::borrow::Cow::Borrowed(&data[..needed]);
    if header.order == ByteOrder::Big && width > 1 {
        data.to_mut().chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if dtype.is_byte_bool() {
        data.to_mut().iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    let packed;
    let stored: &[u8] = if packing(dtype).is_some() {
        packed = bytes_of_codes(dtype, &data.iter().map(|&code| u64::from(code)).collect::<Vec<u64>>());
        &packed
    } else {
        &data
    };
    if !header.fortran {
        return Ok(Tensor::from_bytes(dtype, &header.shape, stored)?);
    }
    let reversed: Vec<usize> = header.shape.iter().rev().copied().collect();
    let axes: Vec<usize> = (0..reversed.len()).rev().collect();
    Ok(Tensor::from_bytes(dtype, &reversed, stored)?.permute(&axes)?.contiguous()?)
}

/// The header's text and what follows it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), FormatError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(FormatError::Magic { expected: ".npy" })?;
    let truncated = |what, needed: usize| FormatError::Truncated { what, needed: needed as u64, found: bytes.len() as u64 };
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(|| truncated("the version", MAGIC.len() + 2))?;
    let (length, start, rest) = match version {
        [1, 0] => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(|| truncated("the header's length", 10))?;
            (usize::from(u16::from_le_bytes(*length)), 10, rest)
        }
        [2 | 3, 0] => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(|| truncated("the header's length", 12))?;
            (u32::from_le_bytes(*length) as usize, 12, rest)
        }
        [major, minor] => return Err(FormatError::Version { major: *major, minor: *minor }),
    };
    if rest.len() < length {
        return Err(truncated("the header", start + length));
    }
    let (text, data) = rest.split_at(length);
    let text = std::str::from_utf8(text).map_err(|_| FormatError::Header("it is not text".into()))?;
    Ok((text, data))
}

/// A type of ml_dtypes that a header cannot name: a byte an element, and nothing says which.
fn has_no_name(dtype: DType) -> bool {
    RECORD_NAMES.iter().any(|(known, _)| *known == dtype)
}

fn element_type(header: &Header, wanted: Option<DType>) -> Result<DType, FormatError> {
    let found = match (&header.kind, header.width) {
        (Kind::Bool, 1) => Some(DType::B1),
        (Kind::Signed, 1) => Some(DType::I8),
        (Kind::Signed, 2) => Some(DType::I16),
        (Kind::Signed, 4) => Some(DType::I32),
        (Kind::Signed, 8) => Some(DType::I64),
        (Kind::Unsigned, 1) => Some(wanted.filter(|dtype| has_no_name(*dtype)).unwrap_or(DType::U8)),
        // What NumPy cannot name is kept as integers of its width by those without ml_dtypes.
        (Kind::Unsigned, 2) => Some(wanted.filter(|dtype| *dtype == DType::BF16).unwrap_or(DType::U16)),
        (Kind::Unsigned, 4) => Some(DType::U32),
        (Kind::Unsigned, 8) => Some(DType::U64),
        (Kind::Float, 1) => Some(DType::F8E5M2),
        (Kind::Float, 2) => Some(DType::F16),
        (Kind::Float, 4) => Some(DType::F32),
        (Kind::Float, 8) => Some(DType::F64),
        (Kind::Opaque, 2) => Some(DType::BF16),
        (Kind::Opaque, 1) => wanted.filter(|dtype| has_no_name(*dtype)),
        (Kind::Record(name), width) => DType::parse(name).filter(|dtype| dtype.unpacked_bytes() == width),
        _ => None,
    };
    let hint = match header.kind {
        Kind::Opaque if header.width == 1 => {
            "; NumPy does not record which 8-bit type `V1` is: name it, as in `x=@data.npy;dtype=f8e4m3`"
        }
        _ => "",
    };
    let dtype = found.ok_or_else(|| FormatError::DType { descr: header.descr.clone(), hint })?;
    match wanted {
        Some(expected) if expected != dtype => Err(TensorError::DType { expected, found: dtype }.into()),
        _ => Ok(dtype),
    }
}
