//! Rows that are moved in memory give the bits they gave before, on the CPU and on a device.

use tessera_bench::{Lane, Library, Place, Poison, Selection, Shapes, Sizes, Subject, Suite, TESSERA, result_digest};
use tessera_runtime::{CompileOptions, Device};

fn library(operators: &[&str], extents: &[(&str, u64)], device: Device) -> Library {
    let sizes = match extents {
        [] => Sizes::Edges,
        _ => Sizes::Given(vec![Shapes {
            extents: extents.iter().map(|(name, value)| (name.to_string(), vec![*value])).collect(),
            ..Shapes::default()
        }]),
    };
    let selection =
        Selection { operators: operators.iter().map(|name| name.to_string()).collect(), precisions: Vec::new(), sizes };
    Library::select(&selection, CompileOptions::default(), device).unwrap()
}

fn result(subject: &mut dyn Subject) -> u64 {
    subject.poison(Poison::Ones).unwrap();
    subject.launch().unwrap();
    assert_eq!(subject.damaged_guard(), None);
    result_digest(subject).unwrap()
}

fn moves(library: &Library, most: usize) {
    let mut rows = 0;
    for case in library.cases().iter().take(most) {
        let Ok(mut subject) = library.build(case, TESSERA) else { continue };
        subject.refresh(3, Lane::Case).unwrap();
        let (inputs, first) = (subject.input_digest().unwrap(), result(subject.as_mut()));
        for place in [(true, 1), (false, 2), (true, 3), (false, 0)].map(|(fresh, key)| Place { fresh, key }) {
            subject.relocate(place).unwrap();
            assert_eq!(subject.input_digest().unwrap(), inputs, "{} {place:?}", case.key);
            assert_eq!(result(subject.as_mut()), first, "{} {place:?}", case.key);
        }
        rows += 1;
    }
    assert!(rows > 3, "{rows} rows were built");
}

#[test]
fn on_the_cpu() {
    moves(&library(&["softmax", "vector"], &[], Device::Cpu), 40);
    moves(&library(&["gemm"], &[("batch", 1), ("m", 33), ("n", 20), ("k", 17)], Device::Cpu), 40);
}

#[test]
fn on_a_device() {
    let device = Device::emulator().unwrap();
    moves(&library(&["gemm"], &[("batch", 1), ("m", 33), ("n", 20), ("k", 17)], device.clone()), 8);
    moves(&library(&["rms_norm"], &[("batch", 1), ("sequence", 3), ("hidden", 100)], device), 8);
}
