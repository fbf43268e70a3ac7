//! Runs text programs on arrays of bytes.

#![allow(unsafe_code, reason = "launches take raw memory")]
#![allow(clippy::result_large_err, reason = "as in the crate")]

use tessera_cpu::{Arg, Fault, Program, RunOptions};
use tessera_ir::Module;
use tessera_ir::text::parse_module;

/// An argument with its memory.
pub(crate) enum Data {
    Bytes(Vec<u64>, usize),
    Number(u64),
}

impl Data {
    pub(crate) fn of<T: Copy>(items: &[T]) -> Data {
        let bytes = std::mem::size_of_val(items);
        let mut words = vec![0_u64; bytes.div_ceil(8) + 8];
        // SAFETY: the words have room for the items, which are plain numbers.
        unsafe { std::ptr::copy_nonoverlapping(items.as_ptr().cast::<u8>(), words.as_mut_ptr().cast(), bytes) };
        Data::Bytes(words, bytes)
    }

    pub(crate) fn int(value: i64) -> Data {
        Data::Number(value as u64)
    }

    pub(crate) fn read<T: Copy>(&self) -> Vec<T> {
        match self {
            Data::Bytes(words, bytes) => {
                let len = bytes / size_of::<T>();
                // SAFETY: the words hold `len` plain numbers.
                (0..len).map(|i| unsafe { words.as_ptr().cast::<T>().add(i).read() }).collect()
            }
            Data::Number(_) => Vec::new(),
        }
    }
}

pub(crate) fn parse(text: &str) -> Module {
    parse_module("test.tir", text).unwrap_or_else(|(module, d)| panic!("{}\n{text}", d.render(&module.sources, false)))
}

pub(crate) fn try_launch(module: &Module, grid: [u32; 3], data: &mut [Data], options: &RunOptions<'_>) -> Result<(), Fault> {
    let program = match Program::prepare(module, &module.funcs[0]) {
        Ok(program) => program,
        Err(diagnostic) => panic!("{}", diagnostic.render(&module.sources, false)),
    };
    let args: Vec<Arg> = data
        .iter_mut()
        .map(|data| match data {
            Data::Bytes(words, bytes) => Arg::Pointer { base: words.as_mut_ptr().cast(), bytes: *bytes },
            Data::Number(bits) => Arg::Scalar(*bits),
        })
        .collect();
    // SAFETY: the data outlives the launch and nothing else uses it.
    unsafe { program.run(grid, &args, options) }
}

/// Runs a program in every mode and expects equal bytes; the results are left in `data`.
pub(crate) fn launch(text: &str, grid: [u32; 3], data: &mut [Data]) {
    let module = parse(text);
    let start: Vec<Vec<u64>> = data
        .iter()
        .map(|data| match data {
            Data::Bytes(words, _) => words.clone(),
            Data::Number(bits) => vec![*bits],
        })
        .collect();
    let mut results: Vec<Vec<Vec<u64>>> = Vec::new();
    for (checked, threads) in [(true, None), (false, Some(1)), (false, Some(2))] {
        for (data, start) in data.iter_mut().zip(&start) {
            if let Data::Bytes(words, _) = data {
                words.copy_from_slice(start);
            }
        }
        let options = RunOptions { checked, threads, ..RunOptions::default() };
        if let Err(fault) = try_launch(&module, grid, data, &options) {
            panic!("{}\n{text}", fault.diagnostic.render(&module.sources, false));
        }
        results.push(
            data.iter()
                .map(|data| match data {
                    Data::Bytes(words, _) => words.clone(),
                    Data::Number(bits) => vec![*bits],
                })
                .collect(),
        );
    }
    assert_eq!(results[1], results[2], "thread counts differ\n{text}");
    assert_eq!(results[0], results[1], "checked and fused runs differ\n{text}");
}

/// Runs a program checked and yields what is reported, with the places as `line` numbers.
pub(crate) fn fault(text: &str, grid: [u32; 3], data: &mut [Data], options: &RunOptions<'_>) -> (String, Vec<usize>) {
    let module = parse(text);
    let options = RunOptions { checked: true, ..RunOptions { uninitialised: options.uninitialised, ..RunOptions::default() } };
    match try_launch(&module, grid, data, &options) {
        Ok(()) => panic!("nothing was reported\n{text}"),
        Err(fault) => {
            let labels = fault.diagnostic.primary.iter().chain(&fault.diagnostic.secondary);
            let lines = labels.map(|label| module.sources.get(label.span.source).line_column(label.span.start).0).collect();
            (fault.diagnostic.id.to_string(), lines)
        }
    }
}
