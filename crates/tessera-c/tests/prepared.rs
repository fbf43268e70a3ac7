//! Launches that C prepares once and queues with other arrays.

#![allow(unsafe_code, reason = "calls the functions that C calls")]

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use tessera_c::*;
use tessera_runtime::Bundle;

use crate::calls::{Operands, device, last_error, opened};
use crate::packed::{bundle, variant};

/// An argument that is a tensor.
fn named(name: &CStr, tensor: &TesseraTensor) -> TesseraArgument {
    TesseraArgument { name: name.as_ptr(), kind: Kind::Tensor as i32, value: TesseraValue { tensor } }
}

/// Launches with changes.
fn launch(prepared: *const TesseraPrepared, stream: usize, changes: &[TesseraArgument]) -> Status {
    // SAFETY: a handle and arguments that live; the emulator takes any stream.
    unsafe { tessera_prepared_launch(prepared, without_provenance_mut(stream), changes.as_ptr(), changes.len()) }
}

#[test]
fn a_prepared_launch_takes_other_arrays() {
    let (bundle, device) = (opened(&bundle()), device(c"emu"));
    let (own, other) = (Operands::new(device, [32, 16, 48]), Operands::new(device, [32, 16, 48]));
    let (tensors, others) = (own.tensors(), other.tensors());
    let arguments = [named(c"A", &tensors[0]), named(c"B", &tensors[1]), named(c"C", &tensors[2])];
    let mut prepared = null_mut();
    let prepare = |kernel: &CStr, count, place| {
        // SAFETY: handles, a text and arguments that live; a place, or null on purpose.
        unsafe { tessera_prepare(bundle, kernel.as_ptr(), device, null(), arguments.as_ptr(), count, place) }
    };
    assert_eq!(prepare(c"product", 3, &mut prepared), Status::Ok, "{}", last_error());
    assert_eq!(own.result(), vec![1.0; 512], "nothing is launched yet");
    assert_eq!(launch(prepared, 0, &[]), Status::Ok, "{}", last_error());
    assert_eq!((own.result(), other.result()), (vec![48.0; 512], vec![1.0; 512]));
    assert_eq!(launch(prepared, 7, &[named(c"C", &others[2])]), Status::Ok, "{}", last_error());
    assert_eq!(other.result(), vec![48.0; 512]);
    // A mistake has its status, says what is wrong, and launches nothing.
    let refuse = |changes: &[TesseraArgument], wanted: Status, says: &str| {
        assert_eq!(launch(prepared, 0, changes), wanted, "{}", last_error());
        assert!(last_error().contains(says), "{}", last_error());
    };
    let small = TesseraTensor { shape: [16_i64, 48].as_ptr(), ..others[0] };
    refuse(
        &[named(c"A", &small)],
        Status::WrongArguments,
        "`A` is f32[16, 48] with strides [48, 1], the launch was prepared for f32[32, 48]",
    );
    refuse(&[named(c"A", &tensors[2])], Status::WrongArguments, "`A` is f32[32, 16]");
    refuse(&[named(c"A", &TesseraTensor { byte_offset: 4, ..others[0] })], Status::WrongArguments, "multiple of 16 bytes");
    refuse(&[named(c"C", &TesseraTensor { data: own.memory[0], ..others[2] })], Status::WrongArguments, "overlap in memory");
    refuse(&[named(c"D", &others[0])], Status::WrongArguments, "its arguments are `A`, `B`, `C`");
    refuse(&[named(c"A", &TesseraTensor { ndim: -1, ..others[0] })], Status::InvalidCall, "it has -1 axes");
    // SAFETY: null on purpose.
    unsafe {
        assert_eq!(tessera_prepared_launch(prepared, null_mut::<c_void>(), null(), 2), Status::InvalidCall);
        assert_eq!(tessera_prepared_launch(null(), null_mut(), null(), 0), Status::InvalidCall);
    }
    assert_eq!(prepare(c"product", 2, &mut null_mut()), Status::NoVariant);
    assert!(last_error().contains("the argument `C` is missing"), "{}", last_error());
    assert_eq!(prepare(c"sum", 3, &mut null_mut()), Status::NoKernel);
    assert_eq!(prepare(c"product", 3, null_mut()), Status::InvalidCall);
    // SAFETY: nobody uses them any more; the bundle is not needed for what was prepared from it.
    unsafe {
        tessera_close(bundle);
        assert_eq!(launch(prepared, 0, &[named(c"C", &others[2])]), Status::Ok, "{}", last_error());
        tessera_prepared_close(prepared);
        tessera_prepared_close(null_mut());
        assert_eq!(tessera_synchronize(device), Status::Ok);
        tessera_device_close(device);
    }
}

const SHIFTED: &str = "
import cuda.tile as ct

@ct.kernel
def shifted(x, by, TILE: ct.Constant[int]):
    i = ct.bid(0)
    value = ct.load(x, (i,), (TILE,))
    ct.assert_(value >= 0, 'no debts')
    ct.store(x, (i,), value + by)
";

#[test]
fn numbers_change_and_assertions_are_told() {
    let packed = variant(SHIFTED, "shifted", "sm_90a", &["x=f32[?]", "by=f32", "TILE=16"]);
    let (bundle, device) = (opened(&Bundle::new(vec![packed]).expect("whole").to_bytes()), device(c"emu"));
    let own = Operands::new(device, [4, 8, 8]);
    let x = TesseraTensor { ndim: 1, shape: [32_i64].as_ptr(), ..own.tensors()[2] };
    let by = |real| TesseraArgument { name: c"by".as_ptr(), kind: Kind::Real as i32, value: TesseraValue { real } };
    let arguments = [named(c"x", &x), by(1.0)];
    let mut prepared = null_mut();
    // SAFETY: handles, a text, numbers and arguments that live.
    let status =
        unsafe { tessera_prepare(bundle, c"shifted".as_ptr(), device, [2, 1, 1].as_ptr(), arguments.as_ptr(), 2, &mut prepared) };
    assert_eq!(status, Status::Ok, "{}", last_error());
    std::thread::scope(|scope| {
        let prepared = prepared as usize;
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(launch(prepared as *const TesseraPrepared, 0, &[by(0.0)]), Status::Ok, "{}", last_error());
                }
            });
        }
    });
    assert_eq!(launch(prepared, 0, &[by(0.5)]), Status::Ok, "{}", last_error());
    assert_eq!(launch(prepared, 0, &[]), Status::Ok, "{}", last_error());
    assert_eq!(own.result(), vec![2.5; 32]);
    assert_eq!(launch(prepared, 0, &[by(-9.0)]), Status::Ok, "{}", last_error());
    assert_eq!(launch(prepared, 0, &[]), Status::DeviceFailed);
    // SAFETY: nobody uses them any more.
    unsafe {
        assert_eq!(tessera_synchronize(device), Status::DeviceFailed);
        assert!(last_error().starts_with("assertion failed: ") && last_error().contains("no debts"), "{}", last_error());
        tessera_prepared_close(prepared);
        tessera_close(bundle);
        tessera_device_close(device);
    }
}
