//! Modules, kernels' numbers and tensor maps.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CString, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use tessera_driver::{
    DriverCode, DriverError, DriverTable, FunctionHandle, L2Promotion, ModuleHandle, OutOfBounds, Result, Swizzle, TensorMap,
    TensorMapSpec,
};
use tessera_types::DType;

use super::{Status, Symbols, handle, number};

pub(super) fn fill(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, module_load, [module_load], |cu, image| {
        // PTX must end in NUL; a cubin says its own length.
        let image: Vec<u8> = image.iter().copied().chain([0]).collect();
        let mut log = ErrorLog::new();
        let (mut options, mut values) = log.options();
        let mut module = ptr::null_mut();
        // SAFETY: the image is terminated; the log has the length that the second option states.
        let status = unsafe { module_load(&mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
        log.check(&cu, status)?;
        Ok(ModuleHandle(number(module)))
    });
    fill_assembler(table, symbols);
    slot!(table, symbols, module_unload, [module_unload], |cu, module| {
        // SAFETY: the handle came from this driver.
        cu.check("cuModuleUnload", unsafe { module_unload(handle(module.0)) })
    });
    slot!(table, symbols, module_function, [module_function], |cu, module, name| {
        let name = CString::new(name).map_err(|_| DriverError::Argument("a kernel's name has no NUL character".to_owned()))?;
        let mut function = ptr::null_mut();
        // SAFETY: writes one handle; the name is terminated.
        let status = unsafe { module_function(&mut function, handle(module.0), name.as_ptr()) };
        cu.check("cuModuleGetFunction", status)?;
        Ok(FunctionHandle(number(function)))
    });
    slot!(table, symbols, function_attribute, [function_attribute], |cu, function, attribute| {
        let mut value = 0;
        // SAFETY: writes one int.
        let status = unsafe { function_attribute(&mut value, attribute.number(), handle(function.0)) };
        cu.check("cuFuncGetAttribute", status)?;
        Ok(value)
    });
    slot!(table, symbols, function_set_attribute, [function_set_attribute], |cu, function, attribute, value| {
        // SAFETY: the handle came from this driver.
        let status = unsafe { function_set_attribute(handle(function.0), attribute.number(), value) };
        cu.check("cuFuncSetAttribute", status)
    });
    slot!(table, symbols, function_occupancy, [function_occupancy], |cu, function, threads, shared_bytes| {
        let mut blocks = 0;
        // SAFETY: writes one int.
        let status = unsafe { function_occupancy(&mut blocks, handle(function.0), threads.cast_signed(), shared_bytes as usize) };
        cu.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)?;
        Ok(blocks.unsigned_abs())
    });
    slot!(table, symbols, tensor_map_encode, [tensor_map_encode], |cu, spec| {
        spec.check().map_err(|error| DriverError::Argument(error.to_string()))?;
        let mut bytes = TensorMap::from_bytes([0; 128]);
        let ones = [1u32; 5];
        // SAFETY: writes 128 bytes aligned to 64; the arrays have `rank` (strides: `rank - 1`) elements, as checked.
        let status = unsafe {
            tensor_map_encode(
                (&raw mut bytes).cast(),
                tensor_map_type(spec),
                spec.extents.len() as c_uint,
                handle(spec.address.0),
                spec.extents.as_ptr(),
                spec.strides.as_ptr(),
                spec.tile.as_ptr(),
                ones.as_ptr(),
                0,
                match spec.swizzle {
                    Swizzle::None => 0,
                    Swizzle::B32 => 1,
                    Swizzle::B64 => 2,
                    Swizzle::B128 => 3,
                },
                match spec.l2 {
                    L2Promotion::None => 0,
                    L2Promotion::B64 => 1,
                    L2Promotion::B128 => 2,
                    L2Promotion::B256 => 3,
                },
                match spec.outside {
                    OutOfBounds::Zero => 0,
                    OutOfBounds::Nan => 1,
                },
            )
        };
        cu.check("cuTensorMapEncodeTiled", status)?;
        Ok(bytes)
    });
}

/// Where the driver's assembler says what is wrong.
struct ErrorLog {
    text: Vec<u8>,
}

impl ErrorLog {
    fn new() -> ErrorLog {
        ErrorLog { text: vec![0; 16384] }
    }

    /// Options and their values; valid while the log is.
    fn options(&mut self) -> ([c_uint; 2], [*mut c_void; 2]) {
        const ERROR_LOG: c_uint = 5;
        const ERROR_LOG_BYTES: c_uint = 6;
        let bytes = ptr::without_provenance_mut(self.text.len());
        ([ERROR_LOG, ERROR_LOG_BYTES], [self.text.as_mut_ptr().cast(), bytes])
    }

    fn check(&self, cu: &Symbols, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let end = self.text.iter().position(|&byte| byte == 0).unwrap_or(self.text.len());
        let mut log = String::from_utf8_lossy(&self.text[..end]).into_owned();
        if log.trim().is_empty() {
            log = cu.text(cu.error_string, status).unwrap_or_default();
        }
        Err(DriverError::Module { code: DriverCode(status), name: cu.name_of(status), log })
    }
}

fn fill_assembler(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, assemble, [link_create, link_add, link_complete, link_destroy], |cu, ptx, optimized| {
        const PTX: c_uint = 1;
        const OPTIMIZATION_LEVEL: c_uint = 7;
        let mut text: Vec<u8> = ptx.bytes().chain([0]).collect();
        let mut log = ErrorLog::new();
        let ([text_at, text_bytes], [at, bytes]) = log.options();
        let mut options = [text_at, text_bytes, OPTIMIZATION_LEVEL];
        // Full optimisation is 4, which is also the driver's default.
        let mut values = [at, bytes, ptr::without_provenance_mut(if optimized { 4 } else { 0 })];
        let mut state = ptr::null_mut();
        // SAFETY: the log has the length that the second option states and outlives the linker's state.
        let status = unsafe { link_create(3, options.as_mut_ptr(), values.as_mut_ptr(), &mut state) };
        log.check(&cu, status)?;
        let (data, length, name) = (text.as_mut_ptr().cast(), text.len(), c"kernel".as_ptr());
        // SAFETY: the text is terminated and has the stated length; there are no further options.
        let mut status = unsafe { link_add(state, PTX, data, length, name, 0, ptr::null_mut(), ptr::null_mut()) };
        let mut cubin = Vec::new();
        if status == 0 {
            let (mut start, mut bytes) = (ptr::null_mut(), 0usize);
            // SAFETY: writes an address and a size.
            status = unsafe { link_complete(state, &mut start, &mut bytes) };
            if status == 0 {
                // SAFETY: the linker's output has that many bytes and lives until the state is destroyed.
                cubin = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) }.to_vec();
            }
        }
        let outcome = log.check(&cu, status);
        // SAFETY: the state came from `link_create` and is not used again.
        let destroyed = unsafe { link_destroy(state) };
        outcome?;
        cu.check("cuLinkDestroy", destroyed)?;
        Ok(cubin)
    });
}

/// The `CUtensorMapDataType` of a spec that passed its check.
fn tensor_map_type(spec: &TensorMapSpec) -> c_uint {
    const U8: c_uint = 0;
    const U16: c_uint = 1;
    const U32: c_uint = 2;
    const U64: c_uint = 4;
    match spec.dtype {
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::TF32 => 11,
        // The engine only copies these, so any type of the same width will do.
        other => match other.bits() {
            64 => U64,
            32 => U32,
            16 => U16,
            _ => U8,
        },
    }
}
