//! Tensors as numbers: to and from `f64`, and to other element types.
//!
//! Conversions are the language's ([`tessera_types::cast`]): rounded once, saturating for small floats, wrapping between
//! integers. `i64` and `u64` beyond 2^53 are rounded by [`Tensor::to_f64`]; [`Tensor::to_codes`] is exact for every type.

use tessera_types::{DType, FloatFormat, IntFormat, cast, convert, default_rounding};

use crate::error::TensorError;
use crate::layout::{packing, storage_bytes};
use crate::tensor::Tensor;

/// Elements decoded at a time.
const STRIP: usize = 4096;

/// Element codes of packed bytes, zero-extended.
pub(crate) fn codes(dtype: DType, bytes: &[u8], elements: usize) -> Vec<u64> {
    if let Some(packing) = packing(dtype) {
        let mut codes = vec![0; elements];
        packing.unpack(&bytes[..packing.bytes(elements)], &mut codes);
        return codes.into_iter().map(u64::from).collect();
    }
    let width = dtype.unpacked_bytes();
    bytes
        .chunks_exact(width)
        .take(elements)
        .map(|code| {
            let mut word = [0; 8];
            word[..width].copy_from_slice(code);
            u64::from_le_bytes(word)
        })
        .collect()
}

/// Packed bytes of element codes, whose high bits are ignored.
pub(crate) fn bytes_of_codes(dtype: DType, codes: &[u64]) -> Vec<u8> {
    if let Some(packing) = packing(dtype) {
        let small: Vec<u8> = codes.iter().map(|&code| code as u8).collect();
        let mut bytes = vec![0; packing.bytes(codes.len())];
        packing.pack(&small, &mut bytes);
        return bytes;
    }
    let width = dtype.unpacked_bytes();
    codes.iter().flat_map(|code| code.to_le_bytes().into_iter().take(width)).collect()
}

/// The number that an element code stands for.
pub(crate) fn number(dtype: DType, code: u64) -> f64 {
    match (FloatFormat::of(dtype), IntFormat::of(dtype)) {
        (Some(float), _) => float.decode(code),
        (None, Some(int)) => int.value(code) as f64,
        (None, None) => f64::from(u8::from(code != 0)),
    }
}

/// The code of the element nearest to a number.
pub(crate) fn code_of(dtype: DType, value: f64) -> u64 {
    cast(value.to_bits(), DType::F64, dtype, default_rounding(DType::F64, dtype))
}

/// The bytes of `values` converted to `dtype`, packed.
pub(crate) fn encode_f32(dtype: DType, values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(storage_bytes(dtype, values.len()).unwrap_or(0));
    match dtype {
        DType::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        DType::F64 => bytes.extend(values.iter().flat_map(|&value| f64::from(value).to_le_bytes())),
        DType::F16 | DType::BF16 => {
            let mut halves = vec![0; values.len()];
            let narrow = if dtype == DType::F16 { convert::f32_to_f16 } else { convert::f32_to_bf16 };
            narrow(values, &mut halves);
            bytes.extend(halves.iter().flat_map(|code| code.to_le_bytes()));
        }
        _ => {
            let codes: Vec<u64> = values.iter().map(|&value| code_of(dtype, f64::from(value))).collect();
            bytes = bytes_of_codes(dtype, &codes);
        }
    }
    bytes
}

/// The numbers of `elements` packed elements.
fn decode(dtype: DType, bytes: &[u8], elements: usize) -> Vec<f64> {
    match dtype {
        DType::F64 => bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        DType::F32 => bytes.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect(),
        DType::F16 | DType::BF16 => {
            let halves: Vec<u16> = bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)).collect();
            let mut strip = [0.0_f32; STRIP];
            let widen = if dtype == DType::F16 { convert::f16_to_f32 } else { convert::bf16_to_f32 };
            let mut numbers = Vec::with_capacity(elements);
            for part in halves.chunks(STRIP) {
                widen(part, &mut strip[..part.len()]);
                numbers.extend(strip[..part.len()].iter().map(|&value| f64::from(value)));
            }
            numbers
        }
        _ => codes(dtype, bytes, elements).into_iter().map(|code| number(dtype, code)).collect(),
    }
}

/// Kinds of poison beside that of [`Tensor::empty`], as the byte that all bytes are.
const OTHER_POISONS: [u8; 5] = [0x5a, 0x69, 0x96, 0x3c, 0xc3];
/// Kinds of poison that [`Tensor::poison_as`] tells apart, except where elements are single bits.
pub const POISONS: usize = 1 + OTHER_POISONS.len();

/// The code of every element of poisoned memory.
pub(crate) fn poison_code(dtype: DType, kind: usize) -> u64 {
    let nan = FloatFormat::of(dtype).and_then(FloatFormat::nan_code);
    let code = match kind % POISONS {
        0 => nan.unwrap_or(if dtype == DType::B1 { 1 } else { 0xa5a5_a5a5_a5a5_a5a5 }),
        _ if dtype == DType::B1 => 0,
        kind => u64::from(OTHER_POISONS[kind - 1]) * 0x0101_0101_0101_0101,
    };
    let bits = if dtype.is_byte_bool() { 8 } else { dtype.bits() };
    code & (u64::MAX >> (64 - bits))
}

impl Tensor {
    /// Every element has the value nearest to `value`.
    pub fn full(dtype: DType, shape: &[usize], value: f64) -> Result<Tensor, TensorError> {
        Tensor::full_code(dtype, shape, code_of(dtype, value))
    }

    /// Every element has one code.
    pub(crate) fn full_code(dtype: DType, shape: &[usize], code: u64) -> Result<Tensor, TensorError> {
        let tensor = Tensor::zeros(dtype, shape)?;
        tensor.fill_code(code)?;
        Ok(tensor)
    }

    /// Every element is one.
    pub fn ones(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        Tensor::full(dtype, shape, 1.0)
    }

    /// 0, 1, 2, ... in row-major order, each converted to the element type.
    pub fn arange(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let count = crate::tensor::elements_of(dtype, shape)?;
        let codes: Vec<u64> =
            (0..count as u64).map(|i| cast(i, DType::U64, dtype, default_rounding(DType::U64, dtype))).collect();
        Tensor::from_bytes(dtype, shape, &bytes_of_codes(dtype, &codes))
    }

    /// Numbers in row-major order, converted to the element type.
    pub fn from_f64(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, TensorError> {
        let expected = crate::tensor::elements_of(dtype, shape)?;
        if values.len() != expected {
            return Err(TensorError::Count { shape: shape.to_vec(), expected, found: values.len() });
        }
        let codes: Vec<u64> = values.iter().map(|&value| code_of(dtype, value)).collect();
        Tensor::from_bytes(dtype, shape, &bytes_of_codes(dtype, &codes))
    }

    /// Memory to be written by a kernel, filled with poison: NaN where the type has one, else a pattern that no sensible result
    /// shows. Checked launches report elements that are read before anything wrote them.
    pub fn empty(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let tensor = Tensor::zeros(dtype, shape)?;
        tensor.poison()?;
        Ok(tensor)
    }

    /// Makes the whole memory poison again, as [`Tensor::empty`] does.
    pub fn poison(&self) -> Result<(), TensorError> {
        self.poison_as(0)
    }

    /// Makes the whole memory poison of a kind: what is not written shows another code under another kind. Kind 0 is that of
    /// [`Tensor::empty`]; kinds beyond [`POISONS`] repeat.
    pub fn poison_as(&self, kind: usize) -> Result<(), TensorError> {
        self.fill_code(poison_code(self.dtype, kind))?;
        self.memory.set_poisoned(true);
        Ok(())
    }

    /// Gives every element of the memory (not of the view alone) one code.
    fn fill_code(&self, code: u64) -> Result<(), TensorError> {
        // Eight elements are whole bytes in every type.
        let unit = bytes_of_codes(self.dtype, &[code; 8]);
        let mut writer = self.memory.writer()?;
        let bytes = writer.bytes_mut()?;
        if unit.iter().all(|&byte| byte == unit[0]) {
            bytes.fill(unit[0]);
            return Ok(());
        }
        for part in bytes.chunks_mut(unit.len()) {
            part.copy_from_slice(&unit[..part.len()]);
        }
        Ok(())
    }

    /// Element codes in row-major order, zero-extended.
    pub fn to_codes(&self) -> Result<Vec<u64>, TensorError> {
        Ok(codes(self.dtype, &self.to_bytes()?, self.len()))
    }

    /// The elements' numbers in row-major order.
    pub fn to_f64(&self) -> Result<Vec<f64>, TensorError> {
        Ok(decode(self.dtype, &self.to_bytes()?, self.len()))
    }

    /// The elements converted to another type, in new, row-major memory.
    pub fn to_dtype(&self, to: DType) -> Result<Tensor, TensorError> {
        if to == self.dtype {
            return self.contiguous();
        }
        let bytes = self.to_bytes()?;
        if self.dtype == DType::F32 && to.is_float() {
            let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
            return Tensor::from_bytes(to, self.shape(), &encode_f32(to, &values))?.to_device(&self.device());
        }
        let rounding = default_rounding(self.dtype, to);
        let converted: Vec<u64> =
            codes(self.dtype, &bytes, self.len()).into_iter().map(|code| cast(code, self.dtype, to, rounding)).collect();
        Tensor::from_bytes(to, self.shape(), &bytes_of_codes(to, &converted))?.to_device(&self.device())
    }

    /// True when type, shape and every element's bits agree.
    pub fn same_bits(&self, other: &Tensor) -> Result<bool, TensorError> {
        Ok(self.dtype == other.dtype && self.shape() == other.shape() && self.to_bytes()? == other.to_bytes()?)
    }

    /// The index of the element at a place of the row-major order.
    pub fn index_at(&self, place: usize) -> Vec<usize> {
        let mut rest = place;
        let mut index = vec![0; self.rank()];
        for (axis, &size) in self.shape().iter().enumerate().rev() {
            index[axis] = rest % size;
            rest /= size;
        }
        index
    }
}
