//! Bank conflicts of the library's kernels: none in loops, at most two-way elsewhere and next to nothing of all.
//!
//! One compilation of each kernel in each precision, and of each in each variant, that of the largest problem.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tessera_compile::Compiled;
use tessera_compile::target::shared_accesses;
use tessera_lang::{ArgType, ConstValue};
use tessera_types::{Arch, DType};

use crate::devices::lowered;
use crate::library::{self, Case};

/// The targets that are looked at.
const ARCHS: [Arch; 2] = [Arch::Sm80, Arch::Sm90a];

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
/// conflicts that take a hundredth of all passes over the banks. Of updates whose places the data says nothing is known. And the passes over the
/// banks that conflicts take.
fn faults(compiled: &Compiled, arch: Arch) -> (String, u64) {
    let kernel = match lowered(compiled, arch) {
        Ok(kernel) => kernel,
        Err(error) => return (format!("{error}\n"), u64::MAX),
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
    (text, lost)
}

/// A kernel that has conflicts, not mended yet: the targets, the operator, the kernel, the variant, and in which precisions, each with how many passes over
/// the banks conflicts take. Places that the data says count as none.
type Open = (&'static [Arch], [&'static str; 3], &'static [(&'static str, u64)]);

const BOTH: &[Arch] = &ARCHS;

/// One that has none any more leaves the list. What is known of them: elements of 64 bits, two of a thread at a time (`fp64`); what scans leave between
/// warps, and places that the data says (`scan.py`, `sort.py`); neighbours that change places (`interleaved`); products of bytes,
/// most of them in batches, and bytes whose three axes are turned; sums of channels of 196 places, which lie across threads; results of 2:4 products, of which a
/// fragment's rows meet two by two where they are stored word by word, in a loop over strips; in `fp32` what a product's sums are added to, behind its loop.
const OPEN: [Open; 38] = [
    (&[Arch::Sm80], ["attention", "attention", ""], &[("fp64", 256)]),
    (&[Arch::Sm90a], ["attention", "attention", ""], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention", "attention", "causal"], &[("fp64", 256)]),
    (&[Arch::Sm90a], ["attention", "attention", "causal"], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention", "few_queries", ""], &[("fp64", 256)]),
    (&[Arch::Sm90a], ["attention", "few_queries", ""], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention", "few_queries", "causal"], &[("fp64", 256)]),
    (&[Arch::Sm90a], ["attention", "few_queries", "causal"], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention", "few_queries_split", ""], &[("fp64", 256)]),
    (&[Arch::Sm90a], ["attention", "few_queries_split", ""], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention", "few_queries_split", "causal"], &[("fp64", 256)]),
    (&[Arch::Sm90a], ["attention", "few_queries_split", "causal"], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention_backward", "of_keys", ""], &[("fp64", 128)]),
    (&[Arch::Sm90a], ["attention_backward", "of_keys", ""], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention_backward", "of_keys", "causal"], &[("fp64", 128)]),
    (&[Arch::Sm90a], ["attention_backward", "of_keys", "causal"], &[("fp64", 512)]),
    (&[Arch::Sm80], ["attention_backward", "of_queries", ""], &[("fp64", 128)]),
    (&[Arch::Sm90a], ["attention_backward", "of_queries", ""], &[("fp64", 256)]),
    (&[Arch::Sm80], ["attention_backward", "of_queries", "causal"], &[("fp64", 128)]),
    (&[Arch::Sm90a], ["attention_backward", "of_queries", "causal"], &[("fp64", 256)]),
    (&[Arch::Sm80], ["attention_decode", "attention_decode", ""], &[("fp64", 128)]),
    (&[Arch::Sm90a], ["attention_decode", "attention_decode", ""], &[("fp64", 256)]),
    (&[Arch::Sm80], ["attention_decode", "attention_decode_alibi", "alibi"], &[("fp64", 128)]),
    (&[Arch::Sm90a], ["attention_decode", "attention_decode_alibi", "alibi"], &[("fp64", 256)]),
    (BOTH, ["csr_to_csc", "move", "uniform"], &[("fp32", 0)]),
    (&[Arch::Sm90a], ["gemm", "gemm", "tn"], &[("fp8_e5m2->bf16", 512)]),
    (&[Arch::Sm80], ["gemm", "gemm_batched", "nt"], &[("fp8_e5m2->bf16", 512)]),
    (&[Arch::Sm80], ["gemm", "gemm_batched", "tn"], &[("fp8_e5m2->bf16", 4608)]),
    (&[Arch::Sm90a], ["gemm", "gemm_batched", "tn"], &[("fp8_e5m2->bf16", 512)]),
    (&[Arch::Sm80], ["gemm", "gemm_batched", "tt"], &[("fp8_e5m2->bf16", 3328)]),
    (BOTH, ["group_norm_backward", "group_norm_backward", ""], &[("bf16", 160), ("fp16", 160), ("fp32", 96), ("fp64", 32)]),
    (BOTH, ["permute", "permute", "210"], &[("fp8_e5m2@accum(fp32)", 8)]),
    (BOTH, ["sort", "move", "keys"], &[("fp32", 0)]),
    (BOTH, ["sort", "move", "order"], &[("fp32", 0), ("int32", 0)]),
    (BOTH, ["sort", "move", "values"], &[("fp32", 0)]),
    (&[Arch::Sm80], ["sparse24_gemm", "product", ""], &[("bf16", 5120), ("fp16", 5120)]),
    (BOTH, ["top_k", "select", "smallest"], &[("fp64", 8)]),
    (&[Arch::Sm90a], ["linear", "linear_residual", "residual"], &[("fp32", 512)]),
];

/// What is open of a case.
fn known_of(case: &Case, arch: Arch) -> Option<u64> {
    let is_it = |(archs, names, _): &&Open| archs.contains(&arch) && *names == [case.operator, case.kernel, &case.variant];
    let known = OPEN.iter().filter(is_it).flat_map(|(_, _, precisions)| precisions.iter());
    known.filter(|(precision, _)| *precision == case.policy).map(|(_, most)| *most).next()
}

/// The largest problem of each kernel in each precision, and of each kernel in each variant.
fn largest(arch: Arch) -> Vec<Case> {
    let mut largest: BTreeMap<(&str, &str, &str, String), Case> = BTreeMap::new();
    for case in library::cases(arch) {
        largest.insert((case.operator, case.kernel, case.policy, String::new()), case.clone());
        largest.insert((case.operator, case.kernel, "", case.variant.clone()), case);
    }
    let mut seen = BTreeSet::new();
    largest.into_values().filter(|case| seen.insert(case.name.clone())).collect()
}

#[test]
fn library_kernels_have_no_conflicts_in_loops() {
    let work: Vec<(Arch, Case)> =
        ARCHS.into_iter().flat_map(|arch| largest(arch).into_iter().map(move |case| (arch, case))).collect();
    let (next, wrong, met) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((arch, case)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (found, lost) = faults(&case.compiled(), *arch);
                    if found.is_empty() {
                        continue;
                    }
                    met.lock().expect("no thread panicked").insert((
                        *arch,
                        [case.operator, case.kernel, &case.variant],
                        case.policy,
                    ));
                    if known_of(case, *arch).is_none_or(|most| lost > most) {
                        let known = known_of(case, *arch);
                        let text = format!("{} on {arch}: {lost} passes are conflicts, {known:?} are known\n{found}", case.name);
                        wrong.lock().expect("no thread panicked").push(text);
                    }
                }
            });
        }
    });
    println!("{} kernels", work.len());
    let mut wrong = wrong.into_inner().expect("no thread panicked");
    wrong.sort();
    let met = met.into_inner().expect("no thread panicked");
    for (archs, names, precisions) in OPEN {
        let rows = archs.iter().flat_map(|arch| precisions.iter().map(move |(precision, _)| (*arch, names, *precision)));
        wrong.extend(rows.filter(|row| !met.contains(row)).map(|row| format!("{row:?}: mended, or not looked at")));
    }
    assert!(wrong.is_empty(), "{} are not as the list says:\n{}", wrong.len(), wrong.join("\n"));
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
            for arch in ARCHS {
                let (found, _) = faults(&compiled, arch);
                if !found.is_empty() {
                    let _ = writeln!(text, "{kernel} {dtype} {t} x {u} on {arch}\n{found}");
                }
            }
        }
    }
    assert!(text.is_empty(), "{text}");
}
