//! Without a GPU the driver is an error that says so; with one, the table moves bytes and runs a kernel.

use std::sync::Arc;

use tessera_driver::{Context, DeviceOrdinal, Dim3, DriverCode, DriverError, FunctionAttribute, Params};

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
    let table_again = Arc::clone(&table);
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

    let graph = stream.record(|| kernel.launch(&stream, Dim3::ONE, Dim3::from(32), 0, &params)).unwrap();
    for _ in 0..3 {
        graph.launch(&stream).unwrap();
    }
    buffer.read(0, &mut out, &stream).unwrap();
    assert_eq!(out, (4u32..36).flat_map(u32::to_le_bytes).collect::<Vec<_>>(), "three replays add three");

    let table = context.table().unwrap();
    let pooled = table.mem_alloc_async(1024, stream.handle()).unwrap();
    table.fill_u32(pooled, 7, 256, stream.handle()).unwrap();
    table.mem_free_async(pooled, stream.handle()).unwrap();
    assert!(context.buffer(1 << 50).unwrap_err().is_out_of_memory());
    assert!(kernel.attribute(FunctionAttribute::Registers).unwrap() > 0);

    let broken = context.module(b".version 7.0\n.target sm_70\nnonsense").unwrap_err();
    assert!(matches!(&broken, DriverError::Module { log, .. } if !log.is_empty()), "{broken}");
    let unknown = context.module(ADD_ONE.as_bytes()).unwrap().kernel("add_two").unwrap_err();
    assert!(unknown.code() == Some(DriverCode::NOT_FOUND) && unknown.to_string().contains("add_two"), "{unknown}");

    // A fault ends the context. A fresh one works or is refused with the fault's code; nothing panics or hangs.
    let wild = Params::new().u64(0x10);
    kernel.launch(&stream, Dim3::ONE, Dim3::from(32), 0, &wild).unwrap();
    let fault = stream.synchronize().unwrap_err();
    assert!(fault.poisons_context(), "{fault}");
    assert!(buffer.read(0, &mut out, &stream).unwrap_err().poisons_context());
    context.reset().unwrap();
    assert!(matches!(buffer.read(0, &mut out, &stream), Err(DriverError::ContextLost { .. })));
    drop((buffer, kernel, graph, stream));
    match Context::open(table_again, DeviceOrdinal(0)) {
        Ok(fresh) => drop(fresh.buffer(128).unwrap()),
        Err(error) => assert!(error.poisons_context(), "{error}"),
    }
}
