//! Tensors: a typed, strided view of shared memory on the CPU or on a device.
//!
//! Cloning and slicing share memory; [`Tensor::contiguous`] and [`Tensor::to_dtype`] make new memory. Slices of elements are
//! guards: while one lives, nobody writes (or, for [`Tensor::write`], nobody else touches) that memory, launches included.
//! Sub-byte elements are packed ([`tessera_types::packed`]); truth values take a byte.
//!
//! ```
//! use tessera_runtime::Tensor;
//! use tessera_types::DType;
//! let x = Tensor::from_vec(&[2, 3], vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let t = x.transpose(0, 1)?;
//! assert_eq!((t.shape(), t.strides()), (&[3, 2][..], &[1, 3][..]));
//! assert_eq!(t.to_f64()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
//! assert_eq!(x.to_dtype(DType::I8)?.read::<i8>()?[5], 6);
//! # Ok::<(), tessera_runtime::TensorError>(())
//! ```

#![allow(unsafe_code, reason = "typed views of raw bytes")]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use tessera_driver::{DevicePtr, SharedHandle};
use tessera_launch::{Placed, meet};
use tessera_types::DType;

use crate::device::{Device, DriverDevice};
use crate::error::TensorError;
use crate::layout::{Layout, Views, copy_elements, row_major, storage_bits, storage_bytes};
use crate::memory::{Memory, Reader, Writer};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is an element type.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty = $dtype:ident),*) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty { const DTYPE: DType = DType::$dtype; }
    )*};
}
elements!(f64 = F64, f32 = F32, i64 = I64, i32 = I32, i16 = I16, i8 = I8, u64 = U64, u32 = U32, u16 = U16, u8 = U8);

/// A typed, strided view of shared memory.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) memory: Arc<Memory>,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{:?}, strides {:?}, {})", self.dtype, self.layout.shape, self.layout.strides, self.device())
    }
}

impl Placed for Tensor {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn base(&self) -> u64 {
        self.memory.address()
    }
}

/// How elements lie in somebody else's memory, and how many bytes that takes.
fn foreign_layout(dtype: DType, shape: &[usize], strides: &[usize]) -> Result<(Layout, usize), TensorError> {
    let layout = Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset: 0 };
    if shape.len() != strides.len() {
        return Err(layout.view_error(format!("strides {strides:?}")));
    }
    let too_large = || TensorError::TooLarge { shape: shape.to_vec(), dtype };
    let bytes = layout.span().and_then(|span| storage_bytes(dtype, span.end)).ok_or_else(too_large)?;
    Ok((layout, bytes))
}

impl Tensor {
    /// All zero.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let bytes = bytes_of(dtype, shape)?;
        Ok(Tensor { memory: Arc::new(Memory::host(bytes)?), dtype, layout: Layout::contiguous(shape) })
    }

    /// All zero, on a device.
    pub fn zeros_on(dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor, TensorError> {
        let Device::Driver(there) = device else { return Tensor::zeros(dtype, shape) };
        Tensor::zeroed(Memory::on_device(there, bytes_of(dtype, shape)?)?, dtype, shape)
    }

    /// For results of a kernel that writes every element: what a driver's memory holds until then is undefined, and host memory is zero.
    pub fn unwritten_on(dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor, TensorError> {
        let Device::Driver(there) = device else { return Tensor::zeros(dtype, shape) };
        let memory = Memory::on_device(there, bytes_of(dtype, shape)?)?;
        Ok(Tensor { memory: Arc::new(memory), dtype, layout: Layout::contiguous(shape) })
    }

    /// Zeros in memory that other processes can be let into; it is slower to allocate.
    pub fn zeros_shareable(dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor, TensorError> {
        let Device::Driver(there) = device else { return Tensor::zeros(dtype, shape) };
        Tensor::zeroed(Memory::shareable(there, bytes_of(dtype, shape)?)?, dtype, shape)
    }

    fn zeroed(memory: Memory, dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        if let Some((there, buffer)) = memory.device() {
            buffer.fill(0, there.stream())?;
        }
        Ok(Tensor { memory: Arc::new(memory), dtype, layout: Layout::contiguous(shape) })
    }

    /// The elements of a vector in row-major order.
    pub fn from_vec<T: Element>(shape: &[usize], values: Vec<T>) -> Result<Tensor, TensorError> {
        let tensor = Tensor::zeros(T::DTYPE, shape)?;
        tensor.expect_count(values.len())?;
        tensor.write::<T>()?.copy_from_slice(&values);
        Ok(tensor)
    }

    /// The bytes of elements in row-major order, little-endian and packed.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Tensor, TensorError> {
        let tensor = Tensor::zeros(dtype, shape)?;
        let expected = tensor.memory.bytes();
        if bytes.len() != expected {
            return Err(TensorError::Count { shape: shape.to_vec(), expected, found: bytes.len() });
        }
        tensor.memory.writer()?.bytes_mut()?.copy_from_slice(bytes);
        Ok(tensor)
    }

    /// A view of memory that somebody else owns.
    ///
    /// # Safety
    /// Every element of the view lies in one allocation that stays readable and writable while `owner` lives and that nobody
    /// touches except through this tensor and its clones.
    pub unsafe fn from_foreign(
        base: NonNull<u8>,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Tensor, TensorError> {
        let (layout, bytes) = foreign_layout(dtype, shape, strides)?;
        // SAFETY: the caller's promise.
        let memory = unsafe { Memory::foreign(base, bytes, owner) };
        Ok(Tensor { memory: Arc::new(memory), dtype, layout })
    }

    /// A view of memory on a device that somebody else owns. Work on it goes through the device's own stream, or through that which a launch is
    /// queued on; what else uses the memory is the caller's to order.
    ///
    /// # Safety
    /// Every element of the view lies in one allocation of the device that stays while `owner` lives.
    pub unsafe fn from_foreign_on(
        device: &DriverDevice,
        address: DevicePtr,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Tensor, TensorError> {
        Tensor::kept_by(device, address, dtype, shape, strides, owner)
    }

    /// A view of memory that a device reaches, which is there as long as `owner`.
    pub(crate) fn kept_by(
        device: &DriverDevice,
        address: DevicePtr,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Tensor, TensorError> {
        let (layout, bytes) = foreign_layout(dtype, shape, strides)?;
        Ok(Tensor { memory: Arc::new(Memory::foreign_on(device, address, bytes, owner)), dtype, layout })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Distances between neighbours along each axis, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.layout.strides
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.layout.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its elements, packed.
    pub fn bytes(&self) -> usize {
        storage_bytes(self.dtype, self.len()).unwrap_or(usize::MAX)
    }

    /// Where it lies.
    pub fn device(&self) -> Device {
        match self.memory.device() {
            Some((device, _)) => Device::Driver(device.clone()),
            None => Device::Cpu,
        }
    }

    /// True when the elements follow each other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// True while the memory is the poison of [`Tensor::empty`] and nothing has been written.
    pub fn is_poisoned(&self) -> bool {
        self.memory.is_poisoned()
    }

    /// True when both views share memory.
    pub fn shares_memory(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// True when both have a byte in common, or may have one ([`meet`]): as views of one memory, or of somebody else's.
    pub fn overlaps(&self, other: &Tensor) -> bool {
        let is_one_space = match (self.memory.device(), other.memory.device()) {
            (None, None) => true,
            (Some((own, _)), Some((others, _))) => own.is(others),
            (None, Some(_)) | (Some(_), None) => false,
        };
        is_one_space && meet(self, other)
    }

    /// True when both are the same elements of the same memory, whatever their shapes.
    pub(crate) fn same_place(&self, other: &Tensor) -> bool {
        let same_span = self.layout.span() == other.layout.span() && self.address_range() == other.address_range();
        self.shares_memory(other) && self.dtype() == other.dtype() && same_span
    }

    /// Where the first element lies on its device; `None` on the CPU, and where it does not begin a byte.
    pub fn device_pointer(&self) -> Option<DevicePtr> {
        self.memory.device()?;
        self.address().map(DevicePtr)
    }

    /// The axes in another order.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor, TensorError> {
        Ok(self.with_layout(self.layout.permute(axes)?))
    }

    /// Two axes exchanged.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor, TensorError> {
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        if a >= axes.len() || b >= axes.len() {
            return Err(self.layout.view_error(format!("exchanging axes {a} and {b}")));
        }
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// A range of an axis, every `step`-th element of it.
    pub fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Tensor, TensorError> {
        Ok(self.with_layout(self.layout.slice(axis, range, step)?))
    }

    /// A view with any sizes and strides inside this tensor's memory; `offset` counts elements from the memory's start.
    pub fn strided(&self, offset: usize, shape: &[usize], strides: &[usize]) -> Result<Tensor, TensorError> {
        let layout = Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset };
        let fits = shape.len() == strides.len()
            && layout.span().and_then(|span| storage_bytes(self.dtype, span.end)).is_some_and(|n| n <= self.memory.bytes());
        if !fits {
            return Err(self
                .layout
                .view_error(format!("a view of shape {shape:?} with strides {strides:?} from element {offset}")));
        }
        Ok(self.with_layout(layout))
    }

    /// The same elements in row-major order under another shape; the tensor must be contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor, TensorError> {
        self.expect_contiguous()?;
        let expected = elements_of(self.dtype, shape)?;
        if expected != self.len() {
            return Err(TensorError::Count { shape: shape.to_vec(), expected, found: self.len() });
        }
        Ok(self.with_layout(Layout { shape: shape.to_vec(), strides: row_major(shape), offset: self.layout.offset }))
    }

    fn with_layout(&self, layout: Layout) -> Tensor {
        Tensor { memory: Arc::clone(&self.memory), dtype: self.dtype, layout }
    }

    /// The elements of a contiguous tensor on the CPU.
    pub fn read<T: Element>(&self) -> Result<Elements<'_, T>, TensorError> {
        let range = self.typed_range::<T>()?;
        let reader = self.memory.reader()?;
        let base = reader.bytes()?[range].as_ptr();
        check_alignment::<T>(base, &self.layout)?;
        Ok(Elements { base, len: self.len(), _reader: reader, _type: PhantomData })
    }

    /// The elements of a contiguous tensor on the CPU, to be written.
    pub fn write<T: Element>(&self) -> Result<ElementsMut<'_, T>, TensorError> {
        let range = self.typed_range::<T>()?;
        let mut writer = self.memory.writer()?;
        let base = writer.bytes_mut()?[range].as_mut_ptr();
        check_alignment::<T>(base, &self.layout)?;
        Ok(ElementsMut { base, len: self.len(), _writer: writer, _type: PhantomData })
    }

    fn typed_range<T: Element>(&self) -> Result<Range<usize>, TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::DType { expected: T::DTYPE, found: self.dtype });
        }
        self.expect_contiguous()?;
        let start = self.layout.offset * size_of::<T>();
        Ok(start..start + self.len() * size_of::<T>())
    }

    /// A copy of the bytes of the elements in row-major order, little-endian and packed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TensorError> {
        let host = self.to_device(&Device::Cpu)?;
        let mut bytes = vec![0; host.bytes()];
        let reader = host.memory.reader()?;
        copy_elements(host.dtype, (reader.bytes()?, &host.layout), (&mut bytes, &Layout::contiguous(host.shape())));
        Ok(bytes)
    }

    /// The same elements in new, row-major memory.
    pub fn contiguous(&self) -> Result<Tensor, TensorError> {
        let copy = Tensor::zeros(self.dtype, self.shape())?;
        copy.copy_from(self)?;
        copy.memory.set_poisoned(self.is_poisoned());
        copy.to_device(&self.device())
    }

    /// Writes every element of `from` to its place here; shapes and element types agree.
    pub fn copy_from(&self, from: &Tensor) -> Result<(), TensorError> {
        if self.shape() != from.shape() {
            return Err(TensorError::Shape { left: self.shape().to_vec(), right: from.shape().to_vec() });
        }
        if self.dtype != from.dtype {
            return Err(TensorError::DType { expected: self.dtype, found: from.dtype });
        }
        if let Device::Driver(_) = self.device() {
            return self.copy_to_device_from(from);
        }
        let from = from.to_device(&Device::Cpu)?;
        let source = from.memory.reader()?;
        let mut target = self.memory.writer()?;
        copy_elements(self.dtype, (source.bytes()?, &from.layout), (target.bytes_mut()?, &self.layout));
        Ok(())
    }

    /// First byte and number of bytes of elements in row-major order that fill whole bytes; `None` for others.
    fn byte_run(&self) -> Option<(usize, usize)> {
        let (start, length) = (self.layout.offset * storage_bits(self.dtype), self.len() * storage_bits(self.dtype));
        (self.is_contiguous() && start.is_multiple_of(8) && length.is_multiple_of(8)).then_some((start / 8, length / 8))
    }

    /// Writes the elements of `from` into this tensor on a device.
    fn copy_to_device_from(&self, from: &Tensor) -> Result<(), TensorError> {
        let Some((here, target)) = self.memory.device() else { return Ok(()) };
        if let (Some((to, length)), Some((start, _))) = (self.byte_run(), from.byte_run()) {
            let apart = start + length <= to || to + length <= start;
            let (to, start, length) = (to as u64, start as u64, length as u64);
            let _guard = self.memory.writer()?;
            self.memory.set_poisoned(false);
            if self.shares_memory(from) && apart {
                return Ok(target.copy_part(to, target, start, length, here.stream())?);
            }
            if !self.shares_memory(from) {
                let _source = from.memory.reader()?;
                if let Some((there, source)) = from.memory.device()
                    && there.is(here)
                {
                    return Ok(target.copy_part(to, source, start, length, here.stream())?);
                }
                let host = from.to_device(&Device::Cpu)?;
                let (start, length) = host.byte_run().unwrap_or_default();
                let reader = host.memory.reader()?;
                return Ok(target.write(to, &reader.bytes()?[start..start + length], here.stream())?);
            }
        }
        // Elements that are not in a row are placed on the host, in a copy of the whole memory.
        let whole = Memory::host(self.memory.bytes())?;
        target.read(0, whole.writer()?.bytes_mut()?, here.stream())?;
        let host = Tensor { memory: Arc::new(whole), dtype: self.dtype, layout: self.layout.clone() };
        host.copy_from(from)?;
        let (reader, _guard) = (host.memory.reader()?, self.memory.writer()?);
        target.write(0, reader.bytes()?, here.stream())?;
        self.memory.set_poisoned(false);
        Ok(())
    }

    /// What another process needs to reach this tensor's first element, and how many bytes further on that is. The memory must
    /// be of [`Tensor::zeros_shareable`].
    pub fn share(&self) -> Result<(SharedHandle, u64), TensorError> {
        match self.memory.device() {
            Some((_, buffer)) => Ok((buffer.share()?, (self.layout.offset * storage_bits(self.dtype) / 8) as u64)),
            None => Err(self.layout.view_error("sharing host memory with another process".into())),
        }
    }

    /// This tensor on another device: itself where it is there, else a copy with the same strides.
    pub fn to_device(&self, device: &Device) -> Result<Tensor, TensorError> {
        let memory = match (self.memory.device(), device) {
            (None, Device::Cpu) => return Ok(self.clone()),
            (Some((here, buffer)), Device::Cpu) => {
                let _guard = self.memory.reader()?;
                if let Some((start, length)) = self.byte_run() {
                    let memory = Memory::host(length)?;
                    buffer.read(start as u64, memory.writer()?.bytes_mut()?, here.stream())?;
                    memory.set_poisoned(self.memory.is_poisoned());
                    return Ok(Tensor { memory: Arc::new(memory), dtype: self.dtype, layout: Layout::contiguous(self.shape()) });
                }
                let memory = Memory::host(self.memory.bytes())?;
                buffer.read(0, memory.writer()?.bytes_mut()?, here.stream())?;
                memory
            }
            (None, Device::Driver(there)) => {
                let memory = Memory::on_device(there, self.memory.bytes())?;
                let source = self.memory.reader()?;
                if let Some((there, buffer)) = memory.device() {
                    buffer.write(0, source.bytes()?, there.stream())?;
                    // Where elements share bytes, one is written by reading its neighbours: there nobody can keep count by bytes.
                    if self.is_poisoned() && storage_bits(self.dtype) >= 8 {
                        buffer.forget()?;
                    }
                }
                drop(source);
                memory
            }
            (Some((here, _)), Device::Driver(there)) if here.is(there) => return Ok(self.clone()),
            (Some(_), Device::Driver(_)) => return self.to_device(&Device::Cpu)?.to_device(device),
        };
        memory.set_poisoned(self.memory.is_poisoned());
        Ok(Tensor { memory: Arc::new(memory), dtype: self.dtype, layout: self.layout.clone() })
    }

    fn expect_contiguous(&self) -> Result<(), TensorError> {
        if self.is_contiguous() {
            return Ok(());
        }
        Err(TensorError::NotContiguous { shape: self.shape().to_vec(), strides: self.strides().to_vec() })
    }

    pub(crate) fn expect_count(&self, found: usize) -> Result<(), TensorError> {
        let expected = self.len();
        if found == expected { Ok(()) } else { Err(TensorError::Count { shape: self.shape().to_vec(), expected, found }) }
    }
}

/// Elements of a shape, checked against the address space.
pub(crate) fn elements_of(dtype: DType, shape: &[usize]) -> Result<usize, TensorError> {
    bytes_of(dtype, shape)?;
    Ok(Layout::contiguous(shape).len())
}

/// Bytes of a shape's elements, packed.
pub(crate) fn bytes_of(dtype: DType, shape: &[usize]) -> Result<usize, TensorError> {
    let too_large = || TensorError::TooLarge { shape: shape.to_vec(), dtype };
    if shape.contains(&0) {
        return Ok(0);
    }
    let elements = shape.iter().try_fold(1_usize, |n, &size| n.checked_mul(size)).ok_or_else(too_large)?;
    storage_bytes(dtype, elements).ok_or_else(too_large)
}

/// Foreign memory may start anywhere; typed slices may not.
fn check_alignment<T>(base: *const u8, layout: &Layout) -> Result<(), TensorError> {
    if base.addr().is_multiple_of(align_of::<T>()) {
        return Ok(());
    }
    Err(layout.view_error(format!("a slice of elements aligned to {} bytes", align_of::<T>())))
}

/// Elements of a tensor, borrowed.
#[derive(Debug)]
pub struct Elements<'a, T> {
    base: *const u8,
    len: usize,
    _reader: Reader<'a>,
    _type: PhantomData<&'a [T]>,
}

impl<T: Element> Deref for Elements<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `read` checked type, range and alignment, every bit pattern is an element, and the guard excludes writers.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len) }
    }
}

/// Elements of a tensor, borrowed to be written.
#[derive(Debug)]
pub struct ElementsMut<'a, T> {
    base: *mut u8,
    len: usize,
    _writer: Writer<'a>,
    _type: PhantomData<&'a mut [T]>,
}

impl<T: Element> Deref for ElementsMut<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: as for `Elements`; the guard excludes everybody else.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len) }
    }
}

impl<T: Element> DerefMut for ElementsMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `Elements`; the guard excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.len) }
    }
}
