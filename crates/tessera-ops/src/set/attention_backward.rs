//! Gradients of attention: dQ, dK and dV, from what the forward pass was given and gave ([`attention_lse`](super::attention_lse)) and
//! cotangents of its results.
//!
//! Three launches: what each query's gradients need of its row; a block for each tile of keys, which adds up dK and dV over the queries that see it;
//! and a block for each tile of queries, which adds up dQ over keys. Scores are computed in both, seven products for a pair of tiles where one launch
//! that adds dQ to memory would take five: in return nothing is added up in an order that depends on the scheduler, and results are the same in
//! every launch. Heads of more than 128 columns take dK and dV one after the other, since registers hold one of them.

use tessera_runtime::Sharing;
use tessera_types::{Arch, DType, Policy};

use super::attention::{self, Extents};
use super::attention_gradients::Gradients;
use super::rows;
use crate::draw::Draw;
use crate::operator::{Argument, Fill, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ATTENTION_BACKWARD: Operator = Operator {
    name: "attention_backward",
    about: "gradients of attention, full or causal, heads of K and V shared by groups",
    file: "attention_backward.py",
    source: include_str!("../../kernels/attention_backward.py"),
    precisions: &["fp16", "bf16"],
    further_precisions: &["fp32", "fp64"],
    suite: Vec::new,
    further_suite: suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: Some("its bounds are of the largest magnitudes of a head, and say nothing where one is infinite"),
    ladder: &[],
};

const CALLS: Calls = Calls {
    variants: &["", "causal"],
    default: Some(""),
    signature: |_| {
        const INPUTS: [Operand; 7] = [
            Operand("Q", "..batch heads queries dim"),
            Operand("K", "..batch shared keys dim"),
            Operand("V", "..batch shared keys dim"),
            Operand("O", "..batch heads queries dim"),
            Operand("lse", "..batch heads queries"),
            Operand("dO", "..batch heads queries dim"),
            Operand("dlse", "..batch heads queries"),
        ];
        const OUTPUTS: [Operand; 3] = [
            Operand("dQ", "..batch heads queries dim"),
            Operand("dK", "..batch shared keys dim"),
            Operand("dV", "..batch shared keys dim"),
        ];
        Signature::new(&INPUTS, &OUTPUTS).scalars(&["scale"]).sums(&["lse", "dlse"])
    },
    problem: attention::sizes,
};

/// 16384 tokens and 2048 columns in all, as the forward pass is measured, and a model's heads in groups: 32 cases.
fn suite() -> Vec<Problem> {
    let mut cases = Vec::new();
    for variant in ["", "causal"] {
        for length in [512, 1024, 2048, 4096, 8192] {
            for dim in [64, 128, 256] {
                cases.push(attention::problem(16384 / length, 2048 / dim, 1, (length, length), dim, variant));
            }
        }
        cases.push(attention::problem(2, 32, 4, (4096, 4096), 128, variant));
    }
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![
        (attention::problem(1, 2, 1, (256, 320), 128, ""), "fp16"),
        (attention::problem(1, 2, 2, (256, 256), 64, "causal"), "bf16"),
    ]
}

fn edges() -> Vec<Problem> {
    let mut cases = Vec::new();
    let lengths = [((1, 1), 64), ((5, 200), 64), ((64, 64), 128), ((127, 129), 128), ((130, 257), 64), ((97, 130), 256)];
    for variant in ["", "causal"] {
        cases.extend(lengths.map(|(lengths, dim)| attention::problem(1, 2, 1, lengths, dim, variant)));
        cases.push(attention::problem(2, 4, 2, (70, 150), 128, variant));
        cases.push(attention::problem(1, 3, 3, (33, 100), 64, variant));
    }
    cases.push(attention::problem(1, 1, 1, (0, 5), 64, ""));
    cases
}

/// The reference is the host's, and takes five products.
fn draw(draw: &mut Draw<'_>) -> Problem {
    const MOST: u64 = 1 << 26;
    let dim = draw.one_of(&[64, 128, 256]);
    let pairs = draw.operations().min(MOST) / (10 * dim);
    let group = draw.one_of(&[1, 1, 2, 3, 4]);
    let [queries, keys, batch, groups] = draw.extents(pairs / group, [700, 700, 3, 4]);
    match draw.once_in(2) {
        true => attention::problem(batch, group * groups, group, (queries.min(keys), queries.max(keys)), dim, "causal"),
        false => attention::problem(batch, group * groups, group, (queries, keys), dim, ""),
    }
}

/// What blocks work on: queries and keys of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiles {
    /// Of those that keep keys and go through queries; `None` of values where one launch has both.
    keys: (i64, i64),
    values: Option<(i64, i64)>,
    /// Of those that keep queries and go through keys.
    queries: (i64, i64),
}

impl Tiles {
    fn of(extents: &Extents, storage: DType, machine: Machine) -> Tiles {
        let one = |tile| Tiles { keys: tile, values: None, queries: tile };
        match machine {
            Machine::Cpu => one((64, 64)),
            // A thread of `sm_80` holds one of the results of heads of more than 64 columns.
            Machine::Gpu(arch) if storage.bits() > 32 => {
                let values = (extents.dim > 64 && !arch.has_wgmma() && !arch.has_clusters()).then_some((16, 16));
                Tiles { values, ..one((16, 16)) }
            }
            // All of a block's tiles lie in shared memory, and both results in registers.
            Machine::Gpu(_) if storage.bits() > 16 => match extents.dim {
                ..=64 => one((32, 32)),
                65..=128 => Tiles { keys: (16, 32), ..one((32, 32)) },
                _ => one((16, 16)),
            },
            Machine::Gpu(arch) if arch.has_wgmma() => Tiles::of_warpgroups(extents),
            Machine::Gpu(_) => Tiles::of_warps(extents.dim),
        }
    }

    /// A thread of a warpgroup holds half as many sums as a tile has columns, and both results have as many as a head. With 96 queries beside thin
    /// heads what is multiplied from shared memory is read less often than with 64; 128 do not fit the registers.
    fn of_warpgroups(extents: &Extents) -> Tiles {
        let rounds = |queries: usize| extents.queries.div_ceil(queries) * queries;
        let thin = if rounds(96) <= rounds(64) { 96 } else { 64 };
        match extents.dim {
            ..=64 => Tiles { keys: (thin, 128), values: None, queries: (128, 128) },
            // Where several heads share keys, which of them a round takes needs registers, too.
            65..=128 => Tiles { keys: (if extents.group > 1 { 48 } else { 64 }, 128), values: None, queries: (128, 128) },
            _ => Tiles { keys: (32, 128), values: Some((64, 128)), queries: (128, 32) },
        }
    }

    /// A warp holds sums of 16 rows.
    fn of_warps(dim: usize) -> Tiles {
        match dim {
            ..=64 => Tiles { keys: (32, 64), values: None, queries: (64, 64) },
            65..=128 => Tiles { keys: (32, 64), values: Some((32, 64)), queries: (64, 32) },
            _ => Tiles { keys: (16, 64), values: Some((16, 64)), queries: (64, 16) },
        }
    }
}

/// Queries of a block that looks at rows alone.
const ROWS: usize = 64;

/// The tensors in their places.
const Q: Argument = Argument::Tensor(0);
const K: Argument = Argument::Tensor(1);
const V: Argument = Argument::Tensor(2);
const O: Argument = Argument::Tensor(3);
const LSE: Argument = Argument::Tensor(4);
const D_O: Argument = Argument::Tensor(5);
const D_LSE: Argument = Argument::Tensor(6);
const D_Q: Argument = Argument::Tensor(7);
const D_K: Argument = Argument::Tensor(8);
const D_V: Argument = Argument::Tensor(9);
const DELTA: Argument = Argument::Tensor(10);
const SHIFT: Argument = Argument::Tensor(11);

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "attention_backward")?;
    if storage.bits() < 16 {
        return Err(Unsupported(format!("attention_backward takes no `{policy}`")));
    }
    let extents = Extents::of(problem)?;
    let Extents { batch, heads, group, queries, keys, dim, .. } = extents;
    let (asked, shared) = ([batch, heads, queries, dim], [batch, heads / group, keys, dim]);
    let statistics = acc;
    // Lines of whole vectors, for the copy engine.
    let of_rows = [batch, heads, queries.next_multiple_of(ROWS)];
    // What a forward pass has left: weights of a query's keys that sum up to about 1.
    let lse = Fill::Normal { mean: (keys.max(1) as f64).ln() + 0.5, sd: 0.25 };
    // Problems of a size that is measured have none, as libraries take none.
    let d_lse = Fill::Normal { mean: 0.0, sd: if queries < 512 { 1.0 } else { 0.0 } };
    let tensors = vec![
        TensorSpec::new("Q", storage, asked, Role::Input),
        TensorSpec::new("K", storage, shared, Role::Input),
        TensorSpec::new("V", storage, shared, Role::Input),
        TensorSpec::new("O", storage, asked, Role::Input),
        TensorSpec { fill: lse, ..TensorSpec::new("lse", statistics, [batch, heads, queries], Role::Input) },
        TensorSpec::new("dO", storage, asked, Role::Input),
        TensorSpec { fill: d_lse, ..TensorSpec::new("dlse", statistics, [batch, heads, queries], Role::Input) },
        TensorSpec::new("dQ", storage, asked, Role::Output),
        TensorSpec::new("dK", storage, shared, Role::Output),
        TensorSpec::new("dV", storage, shared, Role::Output),
        TensorSpec::new("delta", statistics, of_rows, Role::Workspace),
        TensorSpec::new("shift", statistics, of_rows, Role::Workspace),
    ];
    let scale = 1.0 / (dim as f64).sqrt();
    let outputs = [(7, extents.rows()), (8, extents.shared_rows()), (9, extents.shared_rows())];
    Ok(Plan {
        tensors,
        launches: launches(&extents, Tiles::of(&extents, storage, machine), machine, (scale, acc))?,
        outputs: outputs.map(|(tensor, rows)| OutputRows { tensor, rows, row_len: dim, exact: false }).into(),
        work: work(&extents, storage, statistics),
        exact_lane: false,
        reference: Box::new(Gradients { extents, scale, storage, acc }),
    })
}

fn work(extents: &Extents, storage: DType, statistics: DType) -> Work {
    let (asked, shared) = ((extents.rows() * extents.dim) as u64, (extents.shared_rows() * extents.dim) as u64);
    Work {
        read_bytes: packed_bytes(storage, 3 * asked + 2 * shared) + packed_bytes(statistics, 2 * extents.rows() as u64),
        write_bytes: packed_bytes(storage, asked + 2 * shared),
        flops: 10 * (extents.batch * extents.heads * extents.dim) as u64 * extents.pairs(),
        compute: Some(storage),
        metric: Metric::Compute,
        formula: "10 dim operations for each pair of a query and a key that it sees: five products",
    }
}

fn launches(
    extents: &Extents,
    tiles: Tiles,
    machine: Machine,
    (scale, acc): (f64, DType),
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let &Extents { batch, heads, group, queries, keys, dim, causal } = extents;
    let blocks = |extent: usize, tile: i64, planes: usize| -> Result<[u32; 3], Unsupported> {
        let planes = u32::try_from(planes).ok().filter(|&planes| planes < 1 << 16);
        let along = u32::try_from(extent.div_ceil(tile as usize)).ok();
        planes
            .zip(along)
            .map(|(planes, along)| [along, planes, 1])
            .ok_or_else(|| Unsupported(format!("{} heads of {extent} rows need too many blocks", batch * heads)))
    };
    let int = |value: usize| Argument::Int(value as i64);
    let of_rows = vec![
        ("O", O),
        ("dO", D_O),
        ("lse", LSE),
        ("dlse", D_LSE),
        ("delta", DELTA),
        ("shift", SHIFT),
        ("HEADS", int(heads)),
        ("TM", int(ROWS)),
        ("D", int(dim)),
        ("ACC", Argument::Type(acc)),
    ];
    let common = |(tm, tn): (i64, i64)| {
        vec![
            ("Q", Q),
            ("K", K),
            ("V", V),
            ("dO", D_O),
            ("delta", DELTA),
            ("shift", SHIFT),
            ("scale", Argument::Float(scale)),
            ("GROUP", int(group)),
            ("TM", Argument::Int(tm)),
            ("TN", Argument::Int(tn)),
            ("D", int(dim)),
            ("CAUSAL", Argument::Bool(causal)),
            ("ACC", Argument::Type(acc)),
        ]
    };
    // Blocks of full attention have as much to do each: they stay, and the next one's tile comes while the last one's is stored.
    let stays = |grid: [u32; 3]| match machine {
        Machine::Gpu(arch) if !causal && arch.has_wgmma() && is_many(grid, arch) => Sharing::Blocks,
        Machine::Gpu(_) | Machine::Cpu => Sharing::Nothing,
    };
    let launch =
        |kernel, arguments, grid: [u32; 3]| LaunchSpec { sharing: stays(grid), ..LaunchSpec::new(kernel, arguments, grid) };
    let mut launches = vec![LaunchSpec::new("of_rows", of_rows, blocks(queries, ROWS as i64, batch * heads)?)];
    let shared = batch * heads / group;
    let mut of_keys = |tile: (i64, i64), [wants_keys, wants_values]: [bool; 2]| -> Result<(), Unsupported> {
        let mut arguments = common(tile);
        arguments.extend([("dK", D_K), ("dV", D_V), ("SHARED", int(heads / group))]);
        arguments.extend([("KEYS", Argument::Bool(wants_keys)), ("VALUES", Argument::Bool(wants_values))]);
        launches.push(launch("of_keys", arguments, blocks(keys, tile.1, shared)?));
        Ok(())
    };
    match tiles.values {
        None => of_keys(tiles.keys, [true, true])?,
        Some(values) => {
            of_keys(values, [false, true])?;
            of_keys(tiles.keys, [true, false])?;
        }
    }
    let mut arguments = common(tiles.queries);
    arguments.extend([("dQ", D_Q), ("HEADS", int(heads))]);
    launches.push(launch("of_queries", arguments, blocks(queries, tiles.queries.0, batch * heads)?));
    Ok(launches)
}

fn is_many(grid: [u32; 3], arch: Arch) -> bool {
    grid.iter().map(|&blocks| u64::from(blocks)).product::<u64>() > u64::from(arch.multiprocessors())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles(queries: usize, dim: usize) -> Tiles {
        let extents = Extents { batch: 1, heads: 1, group: 1, queries, keys: queries, dim, causal: false };
        Tiles::of(&extents, DType::BF16, Machine::Gpu(Arch::Sm90a))
    }

    #[test]
    fn thin_heads_take_more_queries_where_their_tiles_are_full() {
        assert_eq!(tiles(96 * 11, 64).keys, (96, 128));
        assert_eq!(tiles(512, 64).keys, (64, 128));
        assert_eq!(tiles(4096, 128), Tiles { keys: (64, 128), values: None, queries: (128, 128) });
        assert_eq!(tiles(4096, 256).values, Some((64, 128)));
    }
}
