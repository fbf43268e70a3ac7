//! Arguments of a launch as C writes them.

#![allow(unsafe_code, reason = "reads the caller's arguments")]

use std::ffi::{c_char, c_void};

use tessera_launch::{Argument, Array, Constant};
use tessera_types::DType;

use crate::status::{Failure, handle, text};

/// An array: the layout of DLPack's `DLTensor`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TesseraTensor {
    /// Its memory.
    pub data: *mut c_void,
    /// DLPack's kind of device: 0 where nobody says, else 2, 3 or 13 for memory that a CUDA device reaches.
    pub device_type: i32,
    /// Which device; not looked at.
    pub device_id: i32,
    /// Number of axes.
    pub ndim: i32,
    /// DLPack's class of element types.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// 1.
    pub lanes: u16,
    /// Elements along each axis.
    pub shape: *const i64,
    /// Elements from one to its neighbour along each axis; null for row-major ones.
    pub strides: *const i64,
    /// Where the first element lies in the memory.
    pub byte_offset: u64,
}

/// Which member of a [`TesseraValue`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// `tensor`.
    Tensor = 0,
    /// `integer`; also a truth value, as 0 or 1.
    Integer = 1,
    /// `real`.
    Real = 2,
    /// `text`: a constant that is a string or an element type's name.
    Text = 3,
}

/// An argument's value.
#[derive(Clone, Copy)]
#[repr(C)]
pub union TesseraValue {
    /// An array.
    pub tensor: *const TesseraTensor,
    /// A whole number.
    pub integer: i64,
    /// A float.
    pub real: f64,
    /// A text.
    pub text: *const c_char,
}

/// A named argument.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TesseraArgument {
    /// The parameter's name in the kernel.
    pub name: *const c_char,
    /// A [`Kind`].
    pub kind: i32,
    /// The value.
    pub value: TesseraValue,
}

impl TesseraArgument {
    /// The argument as a launch takes it.
    ///
    /// # Safety
    /// The name is null or a text that ends with a zero; the value is as `kind` says, with pointers that are null or point at
    /// what they should.
    pub(crate) unsafe fn read<'a>(&self) -> Result<(&'a str, Argument<Array>), Failure> {
        // SAFETY: the caller's promise.
        let name = unsafe { text(self.name, "an argument's name") }?;
        let is = |kind: Kind| self.kind == kind as i32;
        let value = if is(Kind::Tensor) {
            // SAFETY: the caller's promise: the member that `kind` names is the one that was written.
            let tensor = unsafe { handle(self.value.tensor, &format!("the tensor of `{name}`"))? };
            // SAFETY: the caller's promise.
            Argument::Array(unsafe { tensor.read(name) }?)
        } else if is(Kind::Integer) {
            // SAFETY: the caller's promise.
            Argument::Constant(Constant::Int(unsafe { self.value.integer }))
        } else if is(Kind::Real) {
            // SAFETY: the caller's promise.
            Argument::Constant(Constant::Float(unsafe { self.value.real }))
        } else if is(Kind::Text) {
            // SAFETY: the caller's promise.
            Argument::Constant(Constant::Text(unsafe { text(self.value.text, name)? }.to_owned()))
        } else {
            return Err(Failure::call(format!("the argument `{name}` has the kind {}, which there is not", self.kind)));
        };
        Ok((name, value))
    }
}

impl TesseraTensor {
    /// The array that it describes.
    ///
    /// # Safety
    /// `shape` and `strides` are null or point at `ndim` numbers.
    unsafe fn read(&self, name: &str) -> Result<Array, Failure> {
        const MOST_AXES: i32 = 64;
        let wrong = |why: String| Failure::call(format!("the tensor of `{name}`: {why}"));
        if ![0, 2, 3, 13].contains(&self.device_type) {
            return Err(wrong(format!("its device type is {}: its memory is not a CUDA device's", self.device_type)));
        }
        if !(0..=MOST_AXES).contains(&self.ndim) {
            return Err(wrong(format!("it has {} axes", self.ndim)));
        }
        let rank = self.ndim as usize;
        if rank > 0 && self.shape.is_null() {
            return Err(wrong("its shape is a null pointer".to_owned()));
        }
        // SAFETY: the caller's promise; a null pointer is not read.
        let shape = unsafe { extents(self.shape, rank) }.map_err(|extent| wrong(format!("it has the size {extent}")))?;
        let strides = match self.strides.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(unsafe { extents(self.strides, rank) }.map_err(|extent| wrong(format!("it has the stride {extent}")))?),
        };
        let dtype = self.dtype().ok_or_else(|| {
            wrong(format!("no element type has the class {}, {} bits and {} lanes", self.code, self.bits, self.lanes))
        })?;
        let address =
            (self.data.addr() as u64).checked_add(self.byte_offset).ok_or_else(|| wrong("its offset is too large".into()))?;
        Array::new(dtype, address, &shape, strides.as_deref()).map_err(wrong)
    }

    /// The element type that DLPack means.
    fn dtype(&self) -> Option<DType> {
        DTYPES.iter().find(|(code, bits, _)| (*code, *bits, 1) == (self.code, self.bits, self.lanes)).map(|(.., dtype)| *dtype)
    }
}

/// DLPack's class, bits, and ours.
const DTYPES: &[(u8, u8, DType)] = &[
    (0, 4, DType::I4),
    (0, 8, DType::I8),
    (0, 16, DType::I16),
    (0, 32, DType::I32),
    (0, 64, DType::I64),
    (1, 8, DType::U8),
    (1, 16, DType::U16),
    (1, 32, DType::U32),
    (1, 64, DType::U64),
    (2, 16, DType::F16),
    (2, 32, DType::F32),
    (2, 64, DType::F64),
    (4, 16, DType::BF16),
    (6, 8, DType::B1),
    (10, 8, DType::F8E4M3),
    (12, 8, DType::F8E5M2),
    (14, 8, DType::E8M0),
    (15, 6, DType::F6E2M3),
    (16, 6, DType::F6E3M2),
    (17, 4, DType::F4E2M1),
];

/// Numbers that are no less than zero, or the first that is.
///
/// # Safety
/// `count` is 0, or `list` points at so many numbers.
unsafe fn extents(list: *const i64, count: usize) -> Result<Vec<usize>, i64> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    list.iter().map(|&extent| usize::try_from(extent).map_err(|_| extent)).collect()
}
