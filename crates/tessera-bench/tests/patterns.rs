//! Inputs whose elements follow from each other, in sizes above the chunks that random ones are made in.

use tessera_bench::{GateOptions, Library, Selection, Shapes, Sizes, Status, Suite, TESSERA, check};
use tessera_runtime::{CompileOptions, Device};

#[test]
fn a_sparse_matrix_of_more_elements_than_a_chunk_is_right() {
    let extents = [("m", 1 << 14), ("n", 1 << 14), ("elements", (1 << 20) + 77)];
    let selection = Selection {
        operators: vec!["spmv".into()],
        precisions: vec!["fp32".into()],
        sizes: Sizes::Given(vec![Shapes {
            extents: extents.map(|(name, extent)| (name.to_string(), vec![extent])).to_vec(),
            variant: Some("banded".into()),
            ..Shapes::default()
        }]),
    };
    let library = Library::select(&selection, CompileOptions::default(), Device::Cpu).unwrap();
    let mut subject = library.build(&library.cases()[0], TESSERA).unwrap();
    let report = check(&mut *subject, GateOptions { seeds: 1, suite_seed: 3, tolerance: None, specials: true }).unwrap();
    assert_eq!(report.status, Status::Ok, "{:?}", report.reason);
}
