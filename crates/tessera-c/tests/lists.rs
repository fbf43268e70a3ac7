//! Lists and tuples as C writes them.

#![allow(unsafe_code, reason = "calls the functions that C calls")]

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use tessera_c::*;
use tessera_runtime::Bundle;

use crate::calls::{device, last_error, opened};
use crate::packed::variant;

const BLEND: &str = "
import cuda.tile as ct

@ct.kernel
def blend(pair, rest, out, sizes: ct.Constant):
    i = ct.bid(0)
    a, (b, scale) = pair
    sum = (ct.load(a, i, sizes[0]) + ct.load(b, i, sizes[0]).astype(ct.float32)) * scale
    for k in range(len(rest[0])):
        sum = sum + ct.load(rest[0][k], i, sizes[0])
    ct.store(out, i, sum + sizes[1])
";

const TYPES: [&str; 4] = ["pair=(f32[?],(f16[?],f32))", "rest=([f32[?],f32[?]],)", "out=f32[?]", "sizes=(16,100)"];

/// An array of 32 elements on the device, each with these bytes.
fn array(device: *const TesseraDevice, bytes: &[u8]) -> TesseraTensor {
    const SHAPE: &[i64; 1] = &[32];
    let contents = bytes.repeat(32);
    let mut data = null_mut();
    // SAFETY: a handle, a place and bytes that live.
    unsafe {
        assert_eq!(tessera_alloc(device, contents.len(), &mut data), Status::Ok);
        assert_eq!(tessera_copy_to(device, data, contents.as_ptr().cast(), contents.len()), Status::Ok);
    }
    TesseraTensor {
        data,
        device_type: 2,
        device_id: 0,
        ndim: 1,
        code: 2,
        bits: 8 * bytes.len() as u8,
        lanes: 1,
        shape: SHAPE.as_ptr(),
        strides: null(),
        byte_offset: 0,
    }
}

fn named(name: *const std::ffi::c_char, kind: Kind, value: TesseraValue) -> TesseraArgument {
    TesseraArgument { name, kind: kind as i32, value }
}

/// What a list or a tuple holds has no name.
fn item(kind: Kind, value: TesseraValue) -> TesseraArgument {
    named(null(), kind, value)
}

fn tensor(tensor: &TesseraTensor) -> TesseraArgument {
    item(Kind::Tensor, TesseraValue { tensor })
}

fn items(values: &[TesseraArgument]) -> TesseraItems {
    TesseraItems { values: values.as_ptr(), count: values.len() }
}

#[test]
fn lists_and_tuples_of_arrays() {
    let packed = variant(BLEND, "blend", "sm_90a", &TYPES);
    let (bundle, device) = (opened(&Bundle::new(vec![packed]).expect("whole").to_bytes()), device(c"emu"));
    let (a, b) = (array(device, &3.0_f32.to_le_bytes()), array(device, &0x3c00_u16.to_le_bytes()));
    let [first, second, out] = [1.0_f32, 2.0, 0.0].map(|value| array(device, &value.to_le_bytes()));
    let integer = |integer| item(Kind::Integer, TesseraValue { integer });

    let inner = [tensor(&b), item(Kind::Real, TesseraValue { real: 2.5 })];
    let inner = items(&inner);
    let pair = [tensor(&a), item(Kind::Tuple, TesseraValue { items: &inner })];
    let pair = items(&pair);
    let list = [tensor(&first), tensor(&second)];
    let list = items(&list);
    let rest = [item(Kind::List, TesseraValue { items: &list })];
    let rest = items(&rest);
    let sizes = [integer(16), integer(100)];
    let sizes = items(&sizes);
    let given = |name: &CStr, items: &TesseraItems| named(name.as_ptr(), Kind::Tuple, TesseraValue { items });
    let output = named(c"out".as_ptr(), Kind::Tensor, TesseraValue { tensor: &out });
    let launch = |arguments: &[TesseraArgument]| {
        // SAFETY: handles, a text, numbers and arguments that live.
        unsafe {
            tessera_launch(bundle, c"blend".as_ptr(), device, null_mut(), [2, 1, 1].as_ptr(), arguments.as_ptr(), arguments.len())
        }
    };
    let result = || {
        let mut result = [0.0_f32; 32];
        // SAFETY: a handle and memory that live.
        assert_eq!(unsafe { tessera_copy_from(device, result.as_mut_ptr().cast(), out.data, 128) }, Status::Ok);
        result
    };
    let whole = [given(c"pair", &pair), given(c"rest", &rest), output, given(c"sizes", &sizes)];
    assert_eq!(launch(&whole), Status::Ok, "{}", last_error());
    // (3 + 1) * 2.5 + 1 + 2 + 100.
    assert_eq!(result(), [113.0; 32]);

    // Items by names of their own; what is a constant may be left out.
    let apart = [
        named(c"pair.0".as_ptr(), Kind::Tensor, TesseraValue { tensor: &a }),
        named(c"pair.1.0".as_ptr(), Kind::Tensor, TesseraValue { tensor: &b }),
        named(c"pair.1.1".as_ptr(), Kind::Integer, TesseraValue { integer: 0 }),
        named(c"rest.0".as_ptr(), Kind::List, TesseraValue { items: &list }),
        output,
    ];
    assert_eq!(launch(&apart), Status::Ok, "{}", last_error());
    assert_eq!(result(), [103.0; 32]);

    let refuse = |arguments: &[TesseraArgument], wanted: Status, says: &str| {
        assert_eq!(launch(arguments), wanted, "{}", last_error());
        assert!(last_error().contains(says), "{}", last_error());
    };
    let other = |at: usize, argument: TesseraArgument| {
        let mut changed = whole;
        changed[at] = argument;
        changed
    };
    let mixed = [tensor(&first), tensor(&b)];
    let mixed = items(&mixed);
    let mixed = [item(Kind::List, TesseraValue { items: &mixed })];
    refuse(&other(1, given(c"rest", &items(&mixed))), Status::WrongArguments, "the list `rest.0` holds `f16` arrays of rank 1");
    let numbers = [integer(1), integer(2)];
    let numbers = items(&numbers);
    let of_numbers = [item(Kind::List, TesseraValue { items: &numbers })];
    refuse(
        &other(1, given(c"rest", &items(&of_numbers))),
        Status::InvalidCall,
        "`rest.0[0]` has the kind 1: a list holds tensors",
    );
    refuse(&other(3, given(c"sizes", &numbers)), Status::WrongArguments, "the kernel was compiled for (16,100)");
    let alone = [tensor(&a)];
    refuse(&other(0, given(c"pair", &items(&alone))), Status::WrongArguments, "the argument `pair.1.0` is missing");
    let nothing = TesseraItems { values: null(), count: 3 };
    refuse(&other(0, given(c"pair", &nothing)), Status::InvalidCall, "`pair`: 3 items lie at 0x0");
    let no_items = named(c"pair".as_ptr(), Kind::Tuple, TesseraValue { items: null() });
    refuse(&other(0, no_items), Status::InvalidCall, "what `pair` holds is a null pointer");
    // A tuple in itself, and so without end.
    let mut turns = TesseraItems { values: null(), count: 1 };
    let turning = [item(Kind::Tuple, TesseraValue { items: &raw const turns })];
    turns.values = turning.as_ptr();
    refuse(&other(0, given(c"pair", &turns)), Status::InvalidCall, "tuples lie in each other, 16 deep");
    // SAFETY: nobody uses them any more.
    unsafe {
        tessera_close(bundle);
        tessera_device_close(device);
    }
}
