//! Bank conflicts of the library's kernels: none in loops, at most two-way elsewhere and next to nothing of all.
//!
//! One compilation of each kernel in each precision, that of the largest problem.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use tessera_compile::Compiled;
use tessera_compile::target::shared_accesses;
use tessera_lang::{ArgType, ConstValue};
use tessera_types::{Arch, DType};

use crate::devices::lowered;
use crate::library::{self, Case};

/// How often a loop's body is taken to run, when the accesses in it are weighed against those outside.
const ROUNDS: u64 = 32;

/// A tile turned by a block, and by a block that goes through a row of them.
const TRANSPOSE: &str = "
import cuda.tile as ct

@ct.kernel
def block(x, y, T: ct.Constant[int], U: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (j, i), ct.transpose(ct.load(x, (i, j), (T, U))))

@ct.kernel
def row(x, y, T: ct.Constant[int], U: ct.Constant[int]):
    i = ct.bid(0)
    for j in range(ct.cdiv(x.shape[1], U)):
        ct.store(y, (j, i), ct.permute(ct.load(x, (i, j), (T, U)), (1, 0)))
";

/// What is wrong with a kernel's accesses on a target: any conflict in a loop; outside of loops one of more than two ways, or
/// conflicts that take a hundredth of all passes over the banks. Of updates whose places the data says nothing is known.
fn faults(compiled: &Compiled, arch: Arch) -> String {
    let kernel = match lowered(compiled, arch) {
        Ok(kernel) => kernel,
        Err(error) => return format!("{error}\n"),
    };
    let mut text = String::new();
    let (mut all, mut lost) = (0, 0);
    for access in shared_accesses(&kernel.kernel) {
        let weight = ROUNDS.pow(access.loops) * u64::from(access.instructions);
        all += weight * u64::from(access.cost.wavefronts);
        lost += weight * u64::from(access.cost.wavefronts - access.cost.ideal);
        let most = if access.loops > 0 { 1 } else { 2 };
        // Where updates go is for the data to say.
        let follows_data = access.cost.degree.is_none() && access.operation.starts_with("red.");
        // Each thread's number goes to another block.
        let leaves = access.operation.starts_with("st.async.");
        if !follows_data && !leaves && access.cost.degree.is_none_or(|degree| degree > most) {
            let _ = writeln!(
                text,
                "  degree {:?} of {} {} in {} loops at {:?}",
                access.cost.degree, access.instructions, access.operation, access.loops, access.place
            );
        }
    }
    if lost * 100 > all {
        let _ = writeln!(text, "  {lost} of {all} wavefronts are conflicts");
    }
    text
}

/// Kernels that have conflicts, in a precision or, where none is named, in any: not mended yet. One that has none any more leaves the list.
const OPEN: [(&str, &str, &str); 18] = [
    // Elements of 64 bits, two of a thread at a time.
    ("attention", "attention", "fp64"),
    ("attention", "few_queries", "fp64"),
    ("attention", "few_queries_split", "fp64"),
    ("attention_backward", "of_keys", "fp64"),
    ("attention_backward", "of_queries", "fp64"),
    ("attention_decode", "attention_decode", "fp64"),
    ("attention_decode", "attention_decode_alibi", "fp64"),
    // What scans leave between warps, and places that the data says.
    ("csr_to_csc", "move", ""),
    ("dense_to_csr", "to_csr", ""),
    ("masked_select", "select", ""),
    ("moe_sort", "places", ""),
    ("prefix_sum", "scan", ""),
    ("sort", "move", ""),
    ("spmv", "spmv_merge", ""),
    // Neighbours that change places go through shared memory.
    ("rope", "rope", ""),
    ("rope", "rope_theta", ""),
    ("rope_backward", "rope", ""),
    ("rope_backward", "rope_theta", ""),
];

#[test]
fn library_kernels_have_no_conflicts_in_loops() {
    let (mut text, mut open) = (String::new(), BTreeSet::new());
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let mut largest: BTreeMap<(&str, &str, &str), Case> = BTreeMap::new();
        for case in library::cases(arch) {
            largest.insert((case.operator, case.kernel, case.policy), case);
        }
        for case in largest.values() {
            let found = faults(&case.compiled(), arch);
            let is_it = |(operator, kernel, policy): &&(&str, &str, &str)| {
                (*operator, *kernel) == (case.operator, case.kernel) && (policy.is_empty() || *policy == case.policy)
            };
            match OPEN.iter().find(is_it) {
                _ if found.is_empty() => {}
                Some(known) => drop(open.insert(known)),
                None => {
                    let _ = writeln!(text, "{} on {arch}\n{found}", case.name);
                }
            }
        }
    }
    assert!(text.is_empty(), "{text}");
    let mended: Vec<_> = OPEN.iter().filter(|known| !open.contains(known)).collect();
    assert!(mended.is_empty(), "without conflicts, and still in the list: {mended:?}");
}

#[test]
fn transposes_have_no_conflicts_in_loops() {
    let file = tessera_lang::parse_file("transpose.py", TRANSPOSE);
    let mut text = String::new();
    for (dtype, kernel) in
        [DType::I8, DType::F16, DType::F32, DType::F64].into_iter().flat_map(|dtype| [(dtype, "block"), (dtype, "row")])
    {
        // A tile of 2 KiB to 64 KiB.
        let fits = |[t, u]: &[i64; 2]| (2 << 10..=64 << 10).contains(&(t * u * i64::from(dtype.bits()) / 8));
        for [t, u] in [[32, 32], [64, 64], [128, 32], [32, 128], [64, 128], [128, 128], [256, 64]].into_iter().filter(fits) {
            let array = || ArgType::array(dtype, 2);
            let constant = |value| ArgType::Const(ConstValue::Int(value));
            let args = [("x", array()), ("y", array()), ("T", constant(t)), ("U", constant(u))];
            let compiled = library::compiled(&file, kernel, &args.map(|(name, ty)| (name.to_string(), ty)).to_vec());
            for arch in [Arch::Sm80, Arch::Sm90a] {
                let found = faults(&compiled, arch);
                if !found.is_empty() {
                    let _ = writeln!(text, "{kernel} {dtype} {t} x {u} on {arch}\n{found}");
                }
            }
        }
    }
    assert!(text.is_empty(), "{text}");
}
