//! Arguments of a launch as C writes them.

#![allow(unsafe_code, reason = "reads the caller's arguments")]

use std::borrow::Cow;
use std::ffi::{c_char, c_void};

use tessera_launch::{Argument, Array, Constant, Written};
use tessera_types::DType;

use crate::status::{Failure, handle, text};

/// So many tuples may lie in each other.
const DEEPEST: usize = 16;

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
    /// `items`: arrays of one type and rank.
    List = 4,
    /// `items`: values of any kind, tuples among them.
    Tuple = 5,
}

/// The values of a list or a tuple; their names are not looked at.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TesseraItems {
    /// The values.
    pub values: *const TesseraArgument,
    /// How many they are.
    pub count: usize,
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
    /// What a list or a tuple holds.
    pub items: *const TesseraItems,
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

/// Arguments of a call, as a launch takes them.
pub(crate) struct Arguments<'a> {
    names: Vec<Cow<'a, str>>,
    values: Vec<Argument<Array>>,
}

impl<'a> Arguments<'a> {
    /// Reads `count` arguments.
    ///
    /// # Safety
    /// `list` is null or points at so many arguments. Names are null or texts that end with a zero; values are as `kind` says, with
    /// pointers that are null or point at what they should.
    pub(crate) unsafe fn read(list: *const TesseraArgument, count: usize) -> Result<Arguments<'a>, Failure> {
        // SAFETY: the caller's promise.
        let list = unsafe { many(list, count) }.ok_or_else(|| Failure::call(format!("{count} arguments lie at {list:p}")))?;
        let mut read = Arguments { names: Vec::with_capacity(count), values: Vec::with_capacity(count) };
        for argument in list {
            // SAFETY: the caller's promise.
            let name = unsafe { text(argument.name, "an argument's name") }?;
            // SAFETY: the caller's promise.
            match unsafe { argument.value(name, 0) }? {
                Written::One(value) => {
                    read.names.push(Cow::Borrowed(name));
                    read.values.push(value);
                }
                tuple @ Written::Tuple(_) => {
                    let mut items = Vec::new();
                    tuple.by_name(name.to_owned(), &mut items);
                    for (name, value) in items {
                        read.names.push(Cow::Owned(name));
                        read.values.push(value);
                    }
                }
            }
        }
        Ok(read)
    }

    /// Does something with the arguments by name.
    pub(crate) fn with<T>(self, work: impl FnOnce(&[(&str, Argument<Array>)]) -> T) -> T {
        let arguments: Vec<_> = self.names.iter().map(Cow::as_ref).zip(self.values).collect();
        work(&arguments)
    }
}

/// What lies at a pointer, unless that is null or the count a mistake.
///
/// # Safety
/// `list` is null or points at so many values.
unsafe fn many<'a, T>(list: *const T, count: usize) -> Option<&'a [T]> {
    /// Arguments beyond which a count is taken for a mistake.
    const MOST: usize = 1 << 16;
    match count {
        0 => Some(&[]),
        _ if count > MOST || list.is_null() => None,
        // SAFETY: the caller's promise.
        _ => Some(unsafe { std::slice::from_raw_parts(list, count) }),
    }
}

impl TesseraArgument {
    /// The value, `depth` tuples deep; `name` is what messages call it.
    ///
    /// # Safety
    /// It is as `kind` says, with pointers that are null or point at what they should.
    unsafe fn value(&self, name: &str, depth: usize) -> Result<Written<Array>, Failure> {
        let is = |kind: Kind| self.kind == kind as i32;
        let one = if is(Kind::Tensor) {
            // SAFETY: the caller's promise.
            Argument::Array(unsafe { self.array(name) }?)
        } else if is(Kind::Integer) {
            // SAFETY: the caller's promise: the member that `kind` names is the one that was written.
            Argument::Constant(Constant::Int(unsafe { self.value.integer }))
        } else if is(Kind::Real) {
            // SAFETY: the caller's promise.
            Argument::Constant(Constant::Float(unsafe { self.value.real }))
        } else if is(Kind::Text) {
            // SAFETY: the caller's promise.
            Argument::Constant(Constant::Text(unsafe { text(self.value.text, name)? }.to_owned()))
        } else if is(Kind::List) {
            // SAFETY: the caller's promise.
            let items = unsafe { self.items(name) }?.iter().enumerate();
            // SAFETY: the caller's promise.
            let arrays = items.map(|(at, item)| unsafe { item.list_item(&format!("{name}[{at}]")) });
            Argument::List(arrays.collect::<Result<_, _>>()?)
        } else if is(Kind::Tuple) {
            if depth == DEEPEST {
                return Err(Failure::call(format!("`{name}`: tuples lie in each other, {DEEPEST} deep")));
            }
            // SAFETY: the caller's promise.
            let items = unsafe { self.items(name) }?.iter().enumerate();
            // SAFETY: the caller's promise.
            let values = items.map(|(at, item)| unsafe { item.value(&format!("{name}.{at}"), depth + 1) });
            return Ok(Written::Tuple(values.collect::<Result<_, _>>()?));
        } else {
            return Err(Failure::call(format!("the argument `{name}` has the kind {}, which there is not", self.kind)));
        };
        Ok(Written::One(one))
    }

    /// # Safety
    /// It is a tensor: null, or a pointer at one.
    unsafe fn array(&self, name: &str) -> Result<Array, Failure> {
        // SAFETY: the caller's promise.
        let tensor = unsafe { handle(self.value.tensor, &format!("the tensor of `{name}`"))? };
        // SAFETY: the caller's promise.
        unsafe { tensor.read(name) }
    }

    /// # Safety
    /// As for [`TesseraArgument::value`].
    unsafe fn list_item(&self, name: &str) -> Result<Array, Failure> {
        if self.kind != Kind::Tensor as i32 {
            return Err(Failure::call(format!("`{name}` has the kind {}: a list holds tensors", self.kind)));
        }
        // SAFETY: the caller's promise.
        unsafe { self.array(name) }
    }

    /// # Safety
    /// It is a list or a tuple: null, or a pointer at items that are null or as many as they say.
    unsafe fn items(&self, name: &str) -> Result<&[TesseraArgument], Failure> {
        // SAFETY: the caller's promise.
        let TesseraItems { values, count } = *unsafe { handle(self.value.items, &format!("what `{name}` holds")) }?;
        // SAFETY: the caller's promise.
        unsafe { many(values, count) }.ok_or_else(|| Failure::call(format!("`{name}`: {count} items lie at {values:p}")))
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
