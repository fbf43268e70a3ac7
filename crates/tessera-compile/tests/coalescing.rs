//! The file tests of passes over threads' accesses, executed: lock-step before a pass, lock-step after it and the emulated PTX leave the same
//! bytes in every array.

#![allow(unsafe_code, reason = "the executor takes raw memory; every call owns what it passes")]

use std::path::Path;

use tessera_compile::target::lower;
use tessera_compile::{OptLevel, passes};
use tessera_cpu::{Arg, RunOptions, lockstep};
use tessera_ir::text::parse_module;
use tessera_ir::{Func, Module, ParamKind, PassManager, ScheduleOp};
use tessera_ptx::ssa;
use tessera_types::Arch;

use crate::devices::{Data, run};

/// Elements that an array's sizes tell of; its memory has more, so that what leaves it stays inside.
const TOLD: i64 = 16;

fn data(func: &Func) -> Option<Vec<Data>> {
    let arrays = func.abi.params.iter().enumerate().map(|(seed, param)| match &param.kind {
        ParamKind::Array { dtype, shape, .. } if shape.len() == 1 => match Data::floats(*dtype, &[8192], seed as u64 + 1) {
            Data::Array { dtype, bytes, .. } => Some(Data::Array { dtype, bytes, sizes: vec![TOLD] }),
            Data::Scalar(_) => None,
        },
        _ => None,
    });
    arrays.collect()
}

fn in_lockstep(module: &Module, func: &Func, data: &mut [Data]) -> Result<(), String> {
    let program = lockstep::Program::prepare(module, func).map_err(|found| found.message)?;
    let mut args = Vec::new();
    for item in data {
        if let Data::Array { bytes, sizes, .. } = item {
            args.push(Arg::Pointer { base: bytes.as_mut_ptr(), bytes: bytes.len() });
            args.extend([Arg::Scalar(sizes[0] as u64), Arg::Scalar(1)]);
        }
    }
    // SAFETY: the pointers are to vectors that live and are used by nothing else while the launch runs.
    unsafe { program.run([1, 1, 1], &args, &RunOptions::default()) }.map_err(|fault| fault.diagnostic.message)
}

fn bytes(data: &[Data]) -> Vec<&[u8]> {
    let arrays = data.iter().map(|item| match item {
        Data::Array { bytes, .. } => bytes.as_slice(),
        Data::Scalar(bytes) => bytes.as_slice(),
    });
    arrays.collect()
}

fn emulate(module: &Module, func: &Func, arch: Arch, data: &mut [Data]) -> Result<(), String> {
    let mut kernel = lower(module, func, arch).map_err(|error| error.message)?;
    ssa::optimize(&mut kernel.kernel, ssa::Level::O2);
    run(&kernel, [1, 1, 1], data)
}

/// Executes the functions of a folder's files that the pass takes; how many there were.
fn executed(pass: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests/passes").join(pass);
    let arch: Arch = "sm_80".parse().expect("a target");
    let mut count = 0;
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a file");
        let name = path.display();
        let refused = text.contains("// error:");
        let Some(before) = parse_module("test.tir", &text).ok().filter(|_| !refused) else { continue };
        let mut after = before.clone();
        let pipeline = [passes::find(pass).expect("a pass")];
        PassManager { target: Some(arch), verify_each: true, ..PassManager::default() }
            .run(&mut after, &pipeline)
            .unwrap_or_else(|failure| panic!("{name}: {}", failure.diagnostics[0].message));
        for (old, new) in before.funcs.iter().zip(&after.funcs) {
            let timed = old.hints.timeline.is_some();
            let grids = old
                .linked_ops()
                .iter()
                .any(|&op| matches!(old.ops[op].kind.schedule(), Some(ScheduleOp::GetNumTileBlocks { .. })));
            let Some(start) = data(old).filter(|data| !data.is_empty() && !timed && !grids) else { continue };
            let (mut expected, mut found, mut emulated) = (start.clone(), start.clone(), start);
            in_lockstep(&before, old, &mut expected).unwrap_or_else(|error| panic!("{name}: {error}"));
            in_lockstep(&after, new, &mut found).unwrap_or_else(|error| panic!("{name}, after the pass: {error}"));
            assert!(bytes(&expected) == bytes(&found), "{name}: lock-step differs after the pass");
            count += 1;
            // A program whose threads write to one place has no meaning but lock-step's; it has races before the pass too.
            let mut raced = expected.clone();
            if emulate(&before, old, arch, &mut raced).is_err_and(|error| error.contains("kind: Race")) {
                continue;
            }
            emulate(&after, new, arch, &mut emulated).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(bytes(&expected) == bytes(&emulated), "{name}: the emulated PTX differs");
        }
    }
    count
}

#[test]
fn coalesced_programs_leave_the_same_bytes() {
    assert!(executed("register-coalescing") >= 24);
}

#[test]
fn annotated_programs_leave_the_same_bytes() {
    assert!(executed("performance-annotation") >= 15);
    assert!(OptLevel::O3.tile_pass_names().contains(&"performance-annotation"));
}
