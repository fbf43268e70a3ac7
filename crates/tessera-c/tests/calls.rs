//! Calls as C makes them: what they give, and what each mistake is told as.

#![allow(unsafe_code, reason = "calls the functions that C calls")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

use tessera_c::*;
use tessera_runtime::Bundle;

use crate::packed::{bundle, product};

pub(crate) fn last_error() -> String {
    // SAFETY: a text that lives until the thread's next failure.
    unsafe { CStr::from_ptr(tessera_last_error()) }.to_str().expect("text").to_owned()
}

pub(crate) fn opened(bytes: &[u8]) -> *mut TesseraBundle {
    let mut bundle = null_mut();
    // SAFETY: bytes and a place that live.
    let status = unsafe { tessera_open_memory(bytes.as_ptr(), bytes.len(), &mut bundle) };
    assert_eq!(status, Status::Ok, "{}", last_error());
    bundle
}

pub(crate) fn device(name: &CStr) -> *mut TesseraDevice {
    let mut device = null_mut();
    // SAFETY: a text and a place that live.
    let status = unsafe { tessera_device_open(name.as_ptr(), &mut device) };
    assert_eq!(status, Status::Ok, "{}", last_error());
    device
}

/// A product's arrays on a device.
pub(crate) struct Operands {
    device: *mut TesseraDevice,
    shapes: [[i64; 2]; 3],
    pub(crate) memory: [*mut c_void; 3],
    bits: u8,
}

fn sizes(shape: &'static [i64; 2]) -> *const i64 {
    shape.as_ptr()
}

const NAMES: [&CStr; 3] = [c"A", c"B", c"C"];

impl Operands {
    pub(crate) fn new(device: *mut TesseraDevice, [m, n, k]: [i64; 3]) -> Operands {
        let shapes = [[m, k], [k, n], [m, n]];
        let memory = shapes.map(|[rows, columns]| {
            let ones = vec![1.0_f32; (rows * columns) as usize];
            let mut memory = null_mut();
            // SAFETY: a handle, a place and bytes that live.
            unsafe {
                assert_eq!(tessera_alloc(device, 4 * ones.len(), &mut memory), Status::Ok);
                assert_eq!(tessera_copy_to(device, memory, ones.as_ptr().cast(), 4 * ones.len()), Status::Ok);
            }
            memory
        });
        Operands { device, shapes, memory, bits: 32 }
    }

    pub(crate) fn tensors(&self) -> [TesseraTensor; 3] {
        std::array::from_fn(|at| TesseraTensor {
            data: self.memory[at],
            device_type: 2,
            device_id: 0,
            ndim: 2,
            code: 2,
            bits: self.bits,
            lanes: 1,
            shape: self.shapes[at].as_ptr(),
            strides: null(),
            byte_offset: 0,
        })
    }

    /// Launches with changed tensors or arguments.
    fn launch(
        &self,
        bundle: *const TesseraBundle,
        change: impl FnOnce(&mut [TesseraTensor; 3], &mut Vec<TesseraArgument>),
    ) -> Status {
        let mut tensors = Box::new(self.tensors());
        let argument = |at: usize| TesseraArgument {
            name: NAMES[at].as_ptr(),
            kind: Kind::Tensor as i32,
            value: TesseraValue { tensor: &tensors[at] },
        };
        let mut arguments: Vec<TesseraArgument> = (0..3).map(argument).collect();
        change(&mut tensors, &mut arguments);
        // The change may not have moved them.
        for (argument, tensor) in arguments.iter_mut().zip(tensors.iter()) {
            if argument.kind == Kind::Tensor as i32 {
                argument.value = TesseraValue { tensor };
            }
        }
        // SAFETY: handles, texts and arguments that live.
        unsafe {
            tessera_launch(bundle, c"product".as_ptr(), self.device, null_mut(), null(), arguments.as_ptr(), arguments.len())
        }
    }

    pub(crate) fn result(&self) -> Vec<f32> {
        let mut result = vec![0.0_f32; (self.shapes[2][0] * self.shapes[2][1]) as usize];
        // SAFETY: a handle and memory that live.
        let status = unsafe { tessera_copy_from(self.device, result.as_mut_ptr().cast(), self.memory[2], 4 * result.len()) };
        assert_eq!(status, Status::Ok, "{}", last_error());
        result
    }
}

#[test]
fn threads_share_a_bundle_and_a_device() {
    let (bundle, device) = (opened(&bundle()) as usize, device(c"emu") as usize);
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            scope.spawn(move || {
                let (bundle, device) = (bundle as *mut TesseraBundle, device as *mut TesseraDevice);
                let own = Operands::new(device, [16, 16, 16 * (thread + 1)]);
                for _ in 0..3 {
                    assert_eq!(own.launch(bundle, |_, _| ()), Status::Ok, "{}", last_error());
                }
                assert_eq!(own.result(), vec![16.0 * (thread + 1) as f32; 256]);
                // A mistake is told to the thread that made it.
                assert_eq!(own.launch(bundle, |tensors, _| tensors[0].ndim = -1 - thread as i32), Status::InvalidCall);
                assert_eq!(last_error(), format!("the tensor of `A`: it has {} axes", -1 - thread));
            });
        }
    });
    // SAFETY: nobody uses them any more.
    unsafe {
        assert_eq!(tessera_synchronize(device as *mut TesseraDevice), Status::Ok);
        tessera_close(bundle as *mut TesseraBundle);
        tessera_device_close(device as *mut TesseraDevice);
    }
}

#[test]
fn each_mistake_in_a_launch_has_a_status_and_says_what_is_wrong() {
    let (bundle, device) = (opened(&bundle()), device(c"emu:a100"));
    let own = Operands::new(device, [32, 16, 16]);
    let refuse = |wanted: Status, says: &str, change: &dyn Fn(&mut [TesseraTensor; 3], &mut Vec<TesseraArgument>)| {
        assert_eq!(own.launch(bundle, change), wanted, "{}", last_error());
        assert!(last_error().contains(says), "{}", last_error());
    };
    assert_eq!(own.launch(bundle, |_, _| ()), Status::Ok, "{}", last_error());
    assert_eq!(own.result(), vec![16.0; 512]);
    refuse(Status::WrongArguments, "the argument `C` is missing", &|_, arguments| _ = arguments.pop());
    refuse(Status::WrongArguments, "`product` has no parameter `D`", &|_, arguments| {
        arguments.push(TesseraArgument { name: c"D".as_ptr(), kind: Kind::Integer as i32, value: TesseraValue { integer: 3 } });
    });
    refuse(Status::WrongArguments, "`A` holds `f16`, the kernel was compiled for `f32`", &|tensors, _| tensors[0].bits = 16);
    refuse(Status::WrongArguments, "`A` has 1 axes, the kernel was compiled for 2", &|tensors, _| tensors[0].ndim = 1);
    refuse(Status::WrongArguments, "does not start at a multiple of 16 bytes", &|tensors, _| tensors[1].byte_offset = 4);
    refuse(Status::WrongArguments, "`K` is 8 in `A` (axis 1) but 16 in `B`", &|tensors, _| {
        tensors[0].shape = sizes(&[32_i64, 8])
    });
    refuse(Status::WrongArguments, "no multiple of 16 bytes", &|tensors, _| {
        tensors[0].shape = sizes(&[32_i64, 15]);
        tensors[1].shape = sizes(&[15_i64, 16]);
    });
    refuse(Status::WrongArguments, "takes an array, not the float 0.5", &|_, arguments| {
        arguments[1].kind = Kind::Real as i32;
        arguments[1].value = TesseraValue { real: 0.5 };
    });
    refuse(Status::InvalidCall, "the tensor of `A`: it has the size -1", &|tensors, _| tensors[0].shape = sizes(&[-1_i64, 16]));
    refuse(Status::InvalidCall, "is beyond any memory", &|tensors, _| tensors[0].shape = sizes(&[i64::MAX, 16]));
    refuse(Status::InvalidCall, "no element type has the class 2, 24 bits", &|tensors, _| tensors[0].bits = 24);
    refuse(Status::InvalidCall, "its device type is 1", &|tensors, _| tensors[0].device_type = 1);
    refuse(Status::InvalidCall, "its shape is a null pointer", &|tensors, _| tensors[0].shape = null());
    refuse(Status::InvalidCall, "the kind 9, which there is not", &|_, arguments| arguments[0].kind = 9);
    refuse(Status::InvalidCall, "an argument's name is a null pointer", &|_, arguments| arguments[2].name = null());
    refuse(Status::InvalidCall, "an argument's name is not UTF-8", &|_, arguments| arguments[2].name = c"\xff".as_ptr());
    // SAFETY: handles and texts that live; null where a mistake is made on purpose.
    unsafe {
        let launch = |bundle, kernel: *const c_char, device, grid: *const u32, count| {
            (tessera_launch(bundle, kernel, device, null_mut(), grid, null(), count), last_error())
        };
        let name = c"product".as_ptr();
        assert_eq!(launch(null(), name, device, null(), 0), (Status::InvalidCall, "the bundle is a null pointer".into()));
        assert_eq!(launch(bundle, name, null(), null(), 0), (Status::InvalidCall, "the device is a null pointer".into()));
        assert_eq!(launch(bundle, null(), device, null(), 0).0, Status::InvalidCall);
        assert_eq!(launch(bundle, name, device, null(), 3).0, Status::InvalidCall);
        let missing = launch(bundle, c"sum".as_ptr(), device, null(), 0);
        assert_eq!(missing, (Status::NoKernel, "the bundle has no kernel `sum`; it has product".into()));
        assert_eq!(launch(bundle, name, device, [7, 1, 1].as_ptr(), 0).0, Status::WrongArguments);
        tessera_close(bundle);
        tessera_device_close(device);
    }
}

#[test]
fn a_device_without_a_variant_and_several_variants_that_do_not_fit() {
    let types = |dtype: &str| ["A", "B", "C"].map(|name| format!("{name}={dtype}[?,?]"));
    let packed = |target: &str, dtype: &str| product(target, &types(dtype).each_ref().map(String::as_str));
    let later = opened(&Bundle::new(vec![packed("sm_90a", "f32")]).expect("whole").to_bytes());
    let device = device(c"emu:a100");
    let mut own = Operands::new(device, [16, 16, 16]);
    assert_eq!(own.launch(later, |_, _| ()), Status::WrongTarget);
    assert!(last_error().ends_with("(sm_80); there are variants for sm_90a"), "{}", last_error());
    let two = opened(&Bundle::new(vec![packed("sm_80", "f32"), packed("sm_80", "bf16")]).expect("whole").to_bytes());
    own.bits = 64;
    assert_eq!(own.launch(two, |_, _| ()), Status::NoVariant);
    let text = last_error();
    assert!(text.starts_with("no variant of `product` takes A=f64[16,16], B=f64[16,16], C=f64[16,16]; there are\n"), "{text}");
    assert!(text.contains("\n  product for sm_80: A=bf16[?,?];align=16, B=bf16[?,?];align=16, C=bf16[?,?];align=16\n"), "{text}");
    // SAFETY: nobody uses them any more.
    unsafe {
        tessera_close(later);
        tessera_close(two);
        tessera_device_close(device);
    }
}

#[test]
fn files_memory_and_devices_that_are_not_there() {
    // SAFETY: texts, places and bytes that live; null where a mistake is made on purpose.
    unsafe {
        let mut bundle: *mut TesseraBundle = null_mut();
        assert_eq!(tessera_open(c"/nowhere.tbundle".as_ptr(), &mut bundle), Status::NoFile);
        assert_eq!(tessera_open(null(), &mut bundle), Status::InvalidCall);
        assert_eq!(tessera_open_memory(null(), 5, &mut bundle), Status::InvalidCall);
        let mut bytes = crate::packed::bundle();
        assert_eq!(tessera_open_memory(bytes.as_ptr(), bytes.len(), null_mut()), Status::InvalidCall);
        assert_eq!(tessera_open_memory(bytes.as_ptr(), 0, &mut bundle), Status::BadBundle);
        assert_eq!(tessera_open_memory(bytes.as_ptr(), bytes.len() - 1, &mut bundle), Status::BadBundle);
        bytes[200] ^= 1;
        assert_eq!(tessera_open_memory(bytes.as_ptr(), bytes.len(), &mut bundle), Status::BadBundle);
        assert!(last_error().contains("damaged"), "{}", last_error());
        bytes[16] = 9;
        assert_eq!(tessera_open_memory(bytes.as_ptr(), bytes.len(), &mut bundle), Status::OtherVersion);
        assert!(bundle.is_null());
        tessera_close(null_mut());
        tessera_device_close(null_mut());
        assert_eq!(tessera_variant_count(null()), 0);
        assert!(tessera_variant_describe(null(), 0).is_null());

        let mut device: *mut TesseraDevice = null_mut();
        for name in [c"gpu", c"cuda:x", c"cuda:99", c"emu:nothing"] {
            assert_eq!(tessera_device_open(name.as_ptr(), &mut device), Status::NoDevice, "{name:?}: {}", last_error());
        }
        assert_eq!(tessera_device_open(c"emu".as_ptr(), &mut device), Status::Ok);
        let mut memory = null_mut();
        assert_eq!(tessera_alloc(device, 16, &mut memory), Status::Ok);
        let bytes = [7_u8; 17];
        assert_eq!(tessera_copy_to(device, memory, bytes.as_ptr().cast(), 17), Status::InvalidCall);
        assert_eq!(last_error(), "17 bytes are copied where 16 are left of the allocation");
        assert_eq!(tessera_copy_to(device, memory, null(), 1), Status::InvalidCall);
        assert_eq!(tessera_copy_to(device, null_mut(), null(), 0), Status::Ok);
        assert_eq!(tessera_alloc(device, 1 << 50, &mut null_mut()), Status::OutOfMemory, "{}", last_error());
        assert_eq!(tessera_free(device, null_mut()), Status::Ok);
        assert_eq!(tessera_free(device, memory), Status::Ok);
        assert_eq!(tessera_free(device, memory), Status::InvalidCall);
        tessera_device_close(device);
        let version = CStr::from_ptr(tessera_version());
        assert_eq!(version, CString::new(env!("CARGO_PKG_VERSION")).expect("text").as_c_str());
    }
}
