//! A fake back end under the owned resources: they call the slots in the right order and give everything back.

use std::sync::{Arc, Mutex};

use tessera_driver::{
    Context, ContextHandle, DeviceOrdinal, DevicePtr, Dim3, DriverCode, DriverError, DriverTable, EventHandle, FunctionHandle,
    GraphHandle, ModuleHandle, Params, StreamHandle,
};

type Log = Arc<Mutex<Vec<String>>>;

fn logged(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

/// A driver with one device whose only kernel `twice` doubles the bytes at its pointer, and `crash` faults.
fn fake(log: &Log) -> DriverTable {
    let memory: Arc<Mutex<Vec<u8>>> = Arc::new(Mutex::new(vec![0; 1024]));
    let mut table = DriverTable::empty("fake");
    let say = |log: &Log| {
        let log = log.clone();
        move |line: &str| log.lock().unwrap().push(line.to_owned())
    };
    table.device_count = Some(Box::new(|| Ok(1)));
    table.context_retain = Some(Box::new(|_| Ok(ContextHandle(5))));
    let s = say(log);
    table.context_release = Some(Box::new(move |_| {
        s("release");
        Ok(())
    }));
    let s = say(log);
    table.context_reset = Some(Box::new(move |_| {
        s("reset");
        Ok(())
    }));
    table.context_set_current = Some(Box::new(|context| {
        assert_eq!(context, ContextHandle(5));
        Ok(())
    }));
    table.mem_alloc = Some(Box::new(|bytes| {
        if bytes > 1024 {
            return Err(DriverError::Failed {
                call: "mem_alloc",
                code: DriverCode::OUT_OF_MEMORY,
                name: "OUT_OF_MEMORY".into(),
                message: "out of memory".into(),
                kernel: None,
            });
        }
        Ok(DevicePtr(0))
    }));
    let s = say(log);
    table.mem_free = Some(Box::new(move |_| {
        s("free");
        Ok(())
    }));
    let m = memory.clone();
    table.copy_to_device = Some(Box::new(move |to, from, _| {
        m.lock().unwrap()[to.0 as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }));
    let m = memory.clone();
    table.copy_to_host = Some(Box::new(move |to, from, _| {
        to.copy_from_slice(&m.lock().unwrap()[from.0 as usize..][..to.len()]);
        Ok(())
    }));
    table.stream_create = Some(Box::new(|| Ok(StreamHandle(7))));
    let s = say(log);
    table.stream_destroy = Some(Box::new(move |_| {
        s("stream");
        Ok(())
    }));
    table.module_load = Some(Box::new(|_| Ok(ModuleHandle(1))));
    let s = say(log);
    table.module_unload = Some(Box::new(move |_| {
        s("unload");
        Ok(())
    }));
    table.module_function = Some(Box::new(|_, name| Ok(FunctionHandle(u64::from(name == "twice")))));
    let m = memory.clone();
    table.launch = Some(Box::new(move |spec| {
        if spec.function == FunctionHandle(0) {
            return Err(DriverError::Failed {
                call: "launch",
                code: DriverCode::ILLEGAL_ADDRESS,
                name: "ILLEGAL_ADDRESS".into(),
                message: "illegal address".into(),
                kernel: None,
            });
        }
        let at = u64::from_le_bytes(spec.params.bytes()[..8].try_into().unwrap()) as usize;
        for byte in &mut m.lock().unwrap()[at..][..(spec.grid.count() * spec.block.count()) as usize] {
            *byte *= 2;
        }
        Ok(())
    }));
    table.capture_begin = Some(Box::new(|_| Ok(())));
    let s = say(log);
    table.capture_end = Some(Box::new(move |_| {
        s("captured");
        Ok(GraphHandle(3))
    }));
    table.graph_destroy = Some(Box::new(|_| Ok(())));
    table.event_create = Some(Box::new(|| Ok(EventHandle(2))));
    table
}

#[test]
fn a_kernel_runs_and_everything_is_given_back_once() {
    let log = Log::default();
    {
        let context = Context::open(Arc::new(fake(&log)), DeviceOrdinal(0)).unwrap();
        let stream = context.stream().unwrap();
        let x = context.buffer(8).unwrap();
        x.write(0, &[1, 2, 3, 4, 5, 6, 7, 8], &stream).unwrap();
        let kernel = context.module(b"image").unwrap().kernel("twice").unwrap();
        kernel.launch(&stream, Dim3::from(2), Dim3::from(2), 0, &Params::new().pointer(x.pointer())).unwrap();
        let mut out = [0; 8];
        x.read(0, &mut out, &stream).unwrap();
        assert_eq!(out, [2, 4, 6, 8, 5, 6, 7, 8]);
        assert!(logged(&log).is_empty(), "the module must live as long as its kernel");
    }
    assert_eq!(logged(&log), ["unload", "free", "stream", "release"]);
}

#[test]
fn faults_name_the_kernel_and_absent_slots_are_errors() {
    let log = Log::default();
    let context = Context::open(Arc::new(fake(&log)), DeviceOrdinal(0)).unwrap();
    let stream = context.stream().unwrap();
    let kernel = context.module(b"image").unwrap().kernel("crash").unwrap();
    let error = kernel.launch(&stream, Dim3::ONE, Dim3::ONE, 0, &Params::new()).unwrap_err();
    assert!(error.poisons_context() && error.to_string().contains("kernel `crash`"), "{error}");
    assert_eq!(
        context.event().unwrap().synchronize(),
        Err(DriverError::Missing { backend: "fake".into(), slot: "event_synchronize" })
    );
}

#[test]
fn wrong_requests_are_refused_before_the_driver_sees_them() {
    let log = Log::default();
    let table = Arc::new(fake(&log));
    assert_eq!(
        Context::open(table.clone(), DeviceOrdinal(3)).unwrap_err(),
        DriverError::NoSuchDevice { ordinal: DeviceOrdinal(3), count: 1 }
    );
    let context = Context::open(table, DeviceOrdinal(0)).unwrap();
    let stream = context.stream().unwrap();
    let x = context.buffer(8).unwrap();
    assert!(matches!(x.write(4, &[0; 5], &stream), Err(DriverError::Argument(_))));
    assert!(matches!(x.write(u64::MAX, &[0; 5], &stream), Err(DriverError::Argument(_))));
    assert!(context.buffer(1 << 40).unwrap_err().is_out_of_memory());
    assert!(context.buffer(8).is_ok(), "out of memory leaves the context usable");
}

#[test]
fn a_failed_recording_still_ends_the_capture() {
    let log = Log::default();
    let context = Context::open(Arc::new(fake(&log)), DeviceOrdinal(0)).unwrap();
    let stream = context.stream().unwrap();
    assert!(stream.record(|| Err(DriverError::Argument("no".into()))).is_err());
    assert_eq!(logged(&log), ["captured"]);
}

#[test]
fn after_a_reset_nothing_of_the_old_context_is_freed_twice() {
    let log = Log::default();
    let table = Arc::new(fake(&log));
    {
        let context = Context::open(table.clone(), DeviceOrdinal(0)).unwrap();
        let buffer = context.buffer(8).unwrap();
        let stream = context.stream().unwrap();
        context.reset().unwrap();
        let lost = DriverError::ContextLost { device: DeviceOrdinal(0) };
        assert_eq!(buffer.write(0, &[1], &stream), Err(lost.clone()));
        assert_eq!(context.clone().buffer(8).unwrap_err(), lost);
    }
    assert_eq!(logged(&log), ["reset", "release"]);
    assert!(Context::open(table, DeviceOrdinal(0)).unwrap().buffer(8).is_ok());
}
