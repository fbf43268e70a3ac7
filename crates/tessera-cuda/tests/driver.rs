//! Without a GPU the driver is an error that says so; with one, the table moves bytes and runs a kernel.

use std::sync::Arc;

use tessera_driver::{Context, DeviceOrdinal, Dim3, DriverCode, DriverError, Params};

const ADD_ONE: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 data)
{
    .reg .u64 %address<3>;
    .reg .u32 %r<3>;
    ld.param.u64 %address0, [data];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %address1, %r0, 4;
    add.u64 %address2, %address0, %address1;
    ld.global.u32 %r1, [%address2];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%address2], %r2;
    ret;
}
";

#[test]
fn a_kernel_runs_or_the_error_says_why_not() {
    let table = match tessera_cuda::driver() {
        Ok(table) => Arc::new(table),
        Err(error) => {
            let known = matches!(error, DriverError::NoDriver { .. }) || error.code() == Some(DriverCode::NO_DEVICE);
            assert!(known, "{error}");
            println!("skipped: {error}");
            return;
        }
    };
    let context = Context::open(table, DeviceOrdinal(0)).unwrap();
    let stream = context.stream().unwrap();
    let words: Vec<u8> = (0u32..32).flat_map(u32::to_le_bytes).collect();
    let buffer = context.buffer(128).unwrap();
    buffer.write(0, &words, &stream).unwrap();
    let kernel = context.module(ADD_ONE.as_bytes()).unwrap().kernel("add_one").unwrap();
    let params = Params::new().pointer(buffer.pointer());
    kernel.launch(&stream, Dim3::ONE, Dim3::from(32), 0, &params).unwrap();
    let mut out = vec![0; 128];
    buffer.read(0, &mut out, &stream).unwrap();
    assert_eq!(out, (1u32..33).flat_map(u32::to_le_bytes).collect::<Vec<_>>());

    let broken = context.module(b".version 7.0\n.target sm_70\nnonsense").unwrap_err();
    assert!(matches!(&broken, DriverError::Module { log, .. } if !log.is_empty()), "{broken}");
}
