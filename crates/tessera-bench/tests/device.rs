//! The device half of the harness against a pretended device: times, gate, sampling, state, loss of the device.

use std::sync::Arc;

use tessera_bench::device::{DeviceLibrary, DeviceOptions, DeviceTensors, Launcher, Timing};
use tessera_bench::{
    Clock, GateOptions, Mode, Record, Results, RunOptions, Selection, Shapes, Sizes, Status, Suite, SummaryRecord, check, run,
};
use tessera_driver::{DriverCode, DriverError, Params, Stream};
use tessera_runtime::{CompileOptions, DriverDevice};

use crate::machine::{self, Machine, Pretended, at, machine, table, word};

fn nothing(_: &mut [u8], _: &[Vec<u8>], _: u64) -> Result<(), DriverCode> {
    Ok(())
}

fn clock(memory: &mut [u8], params: &[Vec<u8>], _: u64) -> Result<(), DriverCode> {
    // Two readings 1 ms and 1.5 million cycles apart, on one multiprocessor.
    let out = word(&params[0]);
    let second = u64::from(out % 256 == 24);
    for (index, value) in [second * 1_500_000, second * 1_000_000, 3].iter().enumerate() {
        memory[at(out) + 8 * index..][..8].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

fn digest(memory: &mut [u8], params: &[Vec<u8>], _: u64) -> Result<(), DriverCode> {
    let (data, words, out) = (at(word(&params[0])), word(&params[1]) as usize, at(word(&params[2])));
    let mut sum = word(&memory[out..out + 8]);
    for index in 0..words {
        let value = word(&memory[data + 4 * index..][..4]);
        let mixed = (value ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sum = sum.wrapping_add(mixed ^ (mixed >> 29));
    }
    memory[out..out + 8].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// `c = a`, all but the last `param 3` elements of four bytes.
fn copy(memory: &mut [u8], params: &[Vec<u8>], _: u64) -> Result<(), DriverCode> {
    let (from, to, count) = (at(word(&params[0])), at(word(&params[1])), word(&params[2]) as usize);
    let data = memory[from..from + 4 * count].to_vec();
    memory[to..to + 4 * count].copy_from_slice(&data);
    Ok(())
}

/// `c = a` but for one element.
fn hole(memory: &mut [u8], params: &[Vec<u8>], launch: u64) -> Result<(), DriverCode> {
    let at = at(word(&params[1])) + 4 * 5000;
    let kept = memory[at..at + 4].to_vec();
    copy(memory, params, launch)?;
    memory[at..at + 4].copy_from_slice(&kept);
    Ok(())
}

fn crash(_: &mut [u8], _: &[Vec<u8>], _: u64) -> Result<(), DriverCode> {
    Err(DriverCode::ILLEGAL_ADDRESS)
}

fn open(bytes: u64) -> (Machine, DriverDevice) {
    let kernel = |body: machine::Body, nanoseconds: f64| Pretended { body, nanoseconds };
    let kernels = [
        ("tessera_empty", kernel(nothing, 2000.0)),
        ("tessera_read", kernel(nothing, 10_000.0)),
        ("tessera_copy", kernel(nothing, 50_000.0)),
        ("tessera_clock", kernel(clock, 500.0)),
        ("tessera_digest", kernel(digest, 500.0)),
        ("copy", kernel(copy, 70_000.0)),
        ("hole", kernel(hole, 70_000.0)),
        ("crash", kernel(crash, 1000.0)),
    ];
    let machine = machine(bytes, &kernels);
    let device = DriverDevice::open(Arc::new(table(&machine)), 0).unwrap();
    (machine, device)
}

/// The copy kernel, leaving out some elements at the end or writing some too many.
struct Copies {
    kernel: tessera_driver::Kernel,
    count: u64,
}

impl Launcher for Copies {
    fn enqueue(&mut self, tensors: &DeviceTensors, stream: &Stream) -> Result<(), DriverError> {
        let params = Params::new().pointer(tensors.pointer(0)).pointer(tensors.pointer(1)).u64(self.count);
        self.kernel.launch(stream, 1.into(), 32.into(), 0, &params)
    }
}

fn suite(
    device: &DriverDevice,
    bytes: u64,
    implementations: &[(&'static str, &'static str, i64)],
    timing: Timing,
) -> DeviceLibrary {
    let selection = Selection {
        operators: vec!["bandwidth".into()],
        precisions: vec!["fp32".into()],
        sizes: Sizes::Given(vec![Shapes {
            extents: vec![("bytes".into(), vec![bytes])],
            variant: Some("copy sequential".into()),
            ..Shapes::default()
        }]),
    };
    let options = DeviceOptions { timing, ceiling_samples: 6, ..DeviceOptions::default() };
    let (mut suite, _) = DeviceLibrary::select(&selection, CompileOptions::default(), device, options).unwrap();
    suite.remove("tessera");
    for &(name, kernel, extra) in implementations {
        let kernel = device.context().module(b"copy").unwrap().kernel(kernel).unwrap();
        suite.add(name, false, move |_, plan, _| {
            let count = (plan.tensors[0].len() as i64 + extra) as u64;
            Ok(Box::new(Copies { kernel: kernel.clone(), count }))
        });
    }
    suite
}

/// Time that passes by itself: the pretended device's own clock is what counts.
struct Ticking(std::cell::Cell<f64>);

impl Clock for Ticking {
    fn now_ns(&self) -> f64 {
        self.0.set(self.0.get() + 1000.0);
        self.0.get()
    }

    fn pause(&self, ns: f64) {
        self.0.set(self.0.get() + ns);
    }
}

fn measured(suite: &DeviceLibrary) -> (Vec<SummaryRecord>, Vec<Record>, bool) {
    let options = RunOptions {
        mode: Mode::Quick,
        seed: 1,
        order: 1,
        process: 0,
        timed: None,
        time_limit: None,
        memory_limit: None,
        device: "pretended".into(),
        argv: Vec::new(),
        knobs: Default::default(),
        now: 0,
    };
    let (mut rows, mut records) = (Vec::new(), Vec::new());
    let mut sink = |record: Record| {
        if let Record::Summary(row) = &record {
            rows.push((**row).clone());
        }
        records.push(record);
        Ok(())
    };
    run(suite, &options, &Ticking(Default::default()), None, &mut sink, &mut |_| {}).unwrap();
    let ended = records.iter().any(|record| matches!(record, Record::End(_)));
    (rows, records, ended)
}

#[test]
fn times_are_the_devices_own_and_every_block_says_how_the_device_was() {
    for (timing, launches) in [(Timing::COLD, 1), (Timing::WARM, 1), (Timing::GRAPH, 1)] {
        let (_, device) = open(256 << 20);
        let suite = suite(&device, 64 << 10, &[("right", "copy", 0)], timing);
        let (rows, records, ended) = measured(&suite);
        let row = &rows[0];
        assert_eq!((row.status, ended), (Status::Ok, true), "{:?}", row.reason);
        let times = row.times.as_ref().unwrap();
        assert!((times.median_ns - 70_000.0).abs() < 20.0, "{timing:?}: {}", times.median_ns);
        assert_eq!(row.batch, Some(launches));
        let state = records.iter().find_map(|record| match record {
            Record::Block(block) => block.device,
            _ => None,
        });
        assert_eq!(state.unwrap().mhz, Some(1500.0));
        let session = records.iter().find_map(|record| match record {
            Record::Session(session) => Some(session.clone()),
            _ => None,
        });
        let session = session.unwrap();
        assert_eq!(session.accelerator.as_ref().unwrap().timing, timing.name());
        assert!((session.floor_ns - 2000.0).abs() < 1.0);
        let bytes: Vec<u8> = records.iter().flat_map(|r| [serde_json::to_vec(r).unwrap(), b"\n".to_vec()].concat()).collect();
        assert!(Results::parse(&bytes).unwrap().complete());
    }
}

#[test]
fn the_gate_finds_what_is_not_written_and_what_is_written_beyond() {
    // The larger size is sampled: what is missing lies between the samples, and the digest shows it.
    for bytes in [64 << 10, 20 << 20] {
        let (_, device) = open(256 << 20);
        let flawed =
            [("right", "copy", 0), ("hole", "hole", 0), ("short", "copy", -3), ("long", "copy", 5), ("idle", "tessera_empty", 0)];
        let suite = suite(&device, bytes, &flawed, Timing::COLD);
        let case = &suite.cases()[0];
        let outcome = |name: &str| {
            let mut subject = suite.build(case, name).unwrap();
            check(&mut *subject, GateOptions { seeds: 1, suite_seed: 5, tolerance: None, specials: false }).unwrap()
        };
        assert_eq!(outcome("right").status, Status::Ok);
        assert_eq!(outcome("short").status, Status::NotWritten);
        // Between the samples, where nobody looks unless the digest differs.
        let hole = outcome("hole");
        assert_eq!(hole.status, Status::NotWritten, "{:?}", hole.reason);
        assert!(hole.reason.unwrap().starts_with("1 elements were not written, the first is `c`[5000, 0]"));
        let long = outcome("long");
        assert!(long.reason.unwrap().contains("guard after `c`"));
        assert_eq!(outcome("idle").status, Status::NotWritten);
    }
}

/// Elements that do not fill whole words, in outputs large enough to be judged by a digest: what lies beside them differs between
/// the two poisons nowhere.
#[test]
fn outputs_of_any_size_are_as_deterministic_as_their_kernels() {
    for extra in [4, 20, 60, 124] {
        let (_, device) = open(256 << 20);
        let suite = suite(&device, (20 << 20) + extra, &[("right", "copy", 0), ("long", "copy", 1)], Timing::COLD);
        let case = &suite.cases()[0];
        let outcome = |name: &str| {
            let mut subject = suite.build(case, name).unwrap();
            assert!(subject.sampled_rows(0).is_some(), "the output is large");
            check(&mut *subject, GateOptions { seeds: 1, suite_seed: 5, tolerance: None, specials: false }).unwrap()
        };
        let right = outcome("right");
        assert_eq!(right.status, Status::Ok, "{extra}: {:?}", right.reason);
        let long = outcome("long").reason.unwrap();
        assert!(long.contains("0 bytes into the guard after `c`"), "{extra}: {long}");
    }
}

#[test]
fn rows_are_sampled_only_where_a_problem_is_large() {
    let (_, device) = open(256 << 20);
    let small = suite(&device, 64 << 10, &[("right", "copy", 0)], Timing::COLD);
    assert!(small.build(&small.cases()[0], "right").unwrap().sampled_rows(0).is_none());
    let large = suite(&device, 20 << 20, &[("right", "copy", 0)], Timing::COLD);
    let mut subject = large.build(&large.cases()[0], "right").unwrap();
    subject.refresh(1, tessera_bench::Lane::Case).unwrap();
    let rows = subject.sampled_rows(0).unwrap();
    assert_eq!((rows[0].start, rows[63].end, rows.len()), (0, 5 << 20, 64));
    assert!(rows.windows(2).all(|pair| pair[0].end <= pair[1].start));
}

#[test]
fn a_fault_ends_the_run_without_an_end_and_names_the_kernel() {
    let (_, device) = open(256 << 20);
    let suite = suite(&device, 64 << 10, &[("crash", "crash", 0), ("right", "copy", 0)], Timing::COLD);
    let (rows, _, ended) = measured(&suite);
    assert_eq!((rows.len(), ended), (1, false));
    assert_eq!((rows[0].implementation.as_str(), rows[0].status), ("crash", Status::RuntimeError));
}

#[test]
fn what_does_not_fit_the_device_is_skipped_with_numbers() {
    let (_, device) = open(256 << 20);
    let suite = suite(&device, 256 << 20, &[("right", "copy", 0)], Timing::COLD);
    let (rows, ..) = measured(&suite);
    assert_eq!(rows[0].status, Status::Skipped);
}
