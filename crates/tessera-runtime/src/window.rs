//! Parts of a tensor, read and filled without copies of the whole: what the harness needs to stream references and to guard memory.
//!
//! A place counts elements in row-major order of the shape, whatever the strides are.

use tessera_types::DType;

use crate::device::Device;
use crate::error::TensorError;
use crate::layout::packing;
use crate::numbers::number;
use crate::tensor::Tensor;

impl Tensor {
    /// Codes of the elements from place `start` on, zero-extended.
    pub fn read_codes(&self, start: usize, out: &mut [u64]) -> Result<(), TensorError> {
        self.each_element(start, out.len(), |at, code| out[at] = code)
    }

    /// Numbers of the elements from place `start` on.
    pub fn read_f64(&self, start: usize, out: &mut [f64]) -> Result<(), TensorError> {
        match self.dtype {
            DType::F32 => self.each_element(start, out.len(), |at, code| out[at] = f64::from(f32::from_bits(code as u32))),
            DType::F64 => self.each_element(start, out.len(), |at, code| out[at] = f64::from_bits(code)),
            DType::BF16 => {
                self.each_element(start, out.len(), |at, code| out[at] = f64::from(f32::from_bits((code as u32) << 16)))
            }
            dtype => self.each_element(start, out.len(), |at, code| out[at] = number(dtype, code)),
        }
    }

    /// Codes of the elements at places, zero-extended.
    pub fn read_codes_at(&self, places: &[usize], out: &mut [u64]) -> Result<(), TensorError> {
        self.each_place(places, |at, code| out[at] = code)
    }

    /// Numbers of the elements at places.
    pub fn read_f64_at(&self, places: &[usize], out: &mut [f64]) -> Result<(), TensorError> {
        self.each_place(places, |at, code| out[at] = number(self.dtype, code))
    }

    fn each_element(&self, start: usize, count: usize, visit: impl FnMut(usize, u64)) -> Result<(), TensorError> {
        if start.checked_add(count).is_none_or(|end| end > self.len()) {
            return Err(self.outside(start.saturating_add(count)));
        }
        match self.layout.is_contiguous() {
            true => self.visit(count, |at| self.layout.offset + start + at, visit),
            false => self.visit(count, |at| self.layout.offset_of(start + at), visit),
        }
    }

    fn each_place(&self, places: &[usize], visit: impl FnMut(usize, u64)) -> Result<(), TensorError> {
        if let Some(&place) = places.iter().find(|&&place| place >= self.len()) {
            return Err(self.outside(place + 1));
        }
        self.visit(places.len(), |at| self.layout.offset_of(places[at]), visit)
    }

    fn outside(&self, found: usize) -> TensorError {
        TensorError::Count { shape: self.shape().to_vec(), expected: self.len(), found }
    }

    /// Calls `visit` with a number and the code of the element that lies at `place` of that number in memory.
    fn visit(&self, count: usize, place: impl Fn(usize) -> usize, mut visit: impl FnMut(usize, u64)) -> Result<(), TensorError> {
        let reader = self.memory.reader()?;
        let bytes = reader.bytes()?;
        if let Some(packing) = packing(self.dtype) {
            for at in 0..count {
                visit(at, u64::from(packing.get(bytes, place(at))));
            }
            return Ok(());
        }
        match self.dtype.unpacked_bytes() {
            1 => (0..count).for_each(|at| visit(at, u64::from(bytes[place(at)]))),
            2 => (0..count).for_each(|at| visit(at, u64::from(u16::from_le_bytes(word(bytes, place(at)))))),
            4 => (0..count).for_each(|at| visit(at, u64::from(u32::from_le_bytes(word(bytes, place(at)))))),
            _ => (0..count).for_each(|at| visit(at, u64::from_le_bytes(word(bytes, place(at))))),
        }
        Ok(())
    }

    /// Sets every byte of a contiguous tensor whose elements fill whole bytes.
    pub fn fill_bytes(&self, byte: u8) -> Result<(), TensorError> {
        let range = self.byte_range()?;
        let mut writer = self.memory.writer()?;
        if let Some((device, buffer)) = self.memory.device() {
            let (start, length) = (range.start as u64, range.len() as u64);
            return Ok(buffer.fill_part(start, length, byte, device.stream())?);
        }
        writer.bytes_mut()?[range].fill(byte);
        Ok(())
    }

    /// Where the first byte that is not `byte` lies in a contiguous tensor whose elements fill whole bytes.
    pub fn first_other_byte(&self, byte: u8) -> Result<Option<usize>, TensorError> {
        if self.memory.device().is_some() {
            return self.to_device(&Device::Cpu)?.first_other_byte(byte);
        }
        let range = self.byte_range()?;
        Ok(self.memory.reader()?.bytes()?[range].iter().position(|&found| found != byte))
    }

    /// A digest of the bytes of a contiguous tensor whose elements fill whole bytes, taken without copying them.
    pub fn digest(&self) -> Result<u64, TensorError> {
        let range = self.byte_range()?;
        let reader = self.memory.reader()?;
        let hash = blake3::hash(&reader.bytes()?[range]);
        Ok(u64::from_le_bytes(word(hash.as_bytes(), 0)))
    }

    fn byte_range(&self) -> Result<std::ops::Range<usize>, TensorError> {
        let bits = if self.dtype.is_byte_bool() { 8 } else { self.dtype.bits() as usize };
        let (first, last) = (self.layout.offset * bits, (self.layout.offset + self.len()) * bits);
        if !self.layout.is_contiguous() || first % 8 != 0 || last % 8 != 0 {
            return Err(TensorError::NotContiguous { shape: self.shape().to_vec(), strides: self.strides().to_vec() });
        }
        Ok(first / 8..last / 8)
    }
}

fn word<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[index * N..(index + 1) * N]);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_shape_whatever_the_strides() {
        let x = Tensor::arange(DType::I16, &[3, 4]).expect("tensor");
        let t = x.transpose(0, 1).expect("view");
        let mut out = [0.0; 5];
        t.read_f64(2, &mut out).expect("read");
        assert_eq!(out, [8.0, 1.0, 5.0, 9.0, 2.0]);
        assert!(t.read_f64(8, &mut out).is_err());
        t.read_f64_at(&[6, 2, 2, 0, 11], &mut out).expect("read");
        assert_eq!(out, [2.0, 8.0, 8.0, 0.0, 11.0]);
        assert!(t.read_f64_at(&[12], &mut out).is_err());
    }

    #[test]
    fn packed_elements_are_read_one_by_one() {
        let x = Tensor::from_f64(DType::F4E2M1, &[8], &[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]).expect("tensor");
        let mut out = [0.0; 3];
        x.read_f64(5, &mut out).expect("read");
        assert_eq!(out, [3.0, 4.0, 6.0]);
        x.fill_bytes(0x55).expect("whole bytes");
        assert_eq!(x.first_other_byte(0x55).expect("whole bytes"), None);
        assert!(x.slice(0, 1..4, 1).expect("view").fill_bytes(0).is_err());
    }
}
