//! Schedule IR to Tile IR: a list of passes, each of which can be run, printed and left out by its name.
//!
//! | pass | takes | makes of it |
//! |---|---|---|
//! | `pointer-views` ([`blocks`]) | tiles of pointers that cover a block of an array | views |
//! | `unit-axes` ([`flatten`]) | products and loads with axes of extent 1 | the same without |
//! | `product-padding` ([`padded`]) | products of fewer rows, columns or steps than their instruction has | products of so many |
//! | `read-tokens` ([`tokens`]) | tokens of reads that order nothing | nothing |
//! | `code-sinking` ([`sink`]) | what only a branch uses | a part of the branch |
//! | `single-rounds` ([`rounds`]) | a product of warpgroups that stands in no loop | a loop of one round |
//! | `load-portions` ([`portions`]) | a tile that is loaded behind a product's loop | tiles as wide as the loop's left factor |
//! | `row-narrowing` ([`narrow`]) | tiles of rows that are wider than their arrays | tiles of so many columns as these have at most |
//! | `line-alignment` ([`lines`]) | tiles of rows whose lines are no whole vectors | tiles that begin at whole vectors |
//! | `warp-specialization` ([`roles`]) | products of warpgroups in counted loops | a plan: warps that load, warps that multiply |
//! | `multistage-pipeline` ([`stages`]) | other products in counted loops | a plan: all warps copy ahead of what they multiply |
//! | `cluster-rows` ([`row_split`]) | a row that a block reduces, where blocks shall share it | a plan: a cluster takes it |
//! | `mask-elision` ([`guard`]) | masks in loops of chained products | a branch around them |
//! | `pipelining` ([`roles`], [`stages`], [`persistent`], [`stream_k`], [`cluster`], [`cluster_split`], [`row_split`]) | a plan | roles, rings, copies, barriers, a loop over blocks |
//! | `load-batching` ([`batch`]) | loops that use what they load in each round | loads of several rounds before the first of them |
//! | `layouts` | tiles | tiles that are spread over the block's threads |
//! | `product-overlap` ([`overlap`], [`within`]) | chained products of warpgroups | products under the work between them |
//! | `product-alternation` ([`alternate`]) | overlapped products of several warpgroups | products that the groups start in turn |
//! | `loop-splitting` ([`split`]) | loops of products with a test that holds up to some round | two loops, the first without the test |
//! | `product-grouping` ([`abreast`]) | products that need nothing of each other but sums to add to | products in flight together |
//! | `product-pipelining` ([`carry`]) | loops that add up products | products that go on while the next round's start |
//! | `load-prefetching` ([`early`]) | loads beside the products of a round | loads for the next round |
//! | `predicated-load-sinking` ([`late`]) | loads before the mask that throws elements away | loads behind it |
//! | `rematerialization` ([`again`]) | wide numbers that are held while a block reduces | the narrow ones that they are made of |
//! | `occupancy` ([`residence`]) | a block that combines over rows | how many of it shall be resident |
//!
//! The first nine put a function into the forms that the next know. Of the three that plan, the first that can gives the function its plan
//! ([`tessera_ir::plan`]), unless it has one by hand. `pipelining` alone carries plans out, and makes the function `staged`: its roles, rings
//! and copies are there, its tiles have no layouts yet. [`feed`], [`slots`] and [`queue`] have what it builds from;
//! [`outer`](tessera_analysis::outer) and [`spread`] say how factors lie that threads multiply by themselves. Before the plan [`strips`]
//! may cut tiles that are too large for what a block has.
//!
//! `layouts` works in four steps. [`threads`] chooses how many warps a block has, where nothing has. [`anchors`] states layouts that an
//! operation asks for by itself: memory accesses by what is contiguous, matrix products by their instruction's fragments. [`infer`] carries
//! layouts forward from there, through loops until nothing changes; a value that no anchor reaches is *flexible*: a constant, a
//! count, a broadcast, and what is computed from those alone, but for long functions of small tiles: each of their elements is computed by
//! one thread, and handed on. Equal parts of a tile, and tiles joined, stay in their threads where they can. What a factor is computed by may
//! take the layout that its product asks for instead ([`asked`]). [`rewrite`] gives each operand the layout that its operation needs: a
//! flexible value is computed again in that layout, any other is converted by `tile.convert_layout`. Both stand directly behind the
//! definition, so a conversion is made once and never in a loop that does not need it.
//!
//! Invariant: behind `layouts` every tile with axes has a layout, and the operands of an operation agree as the verifier asks.

mod abreast;
mod again;
mod alternate;
mod anchors;
mod apart;
mod asked;
mod batch;
mod blocks;
mod carry;
mod cluster;
mod cluster_split;
mod early;
mod feed;
mod flatten;
mod forecast;
mod guard;
mod in_grid;
mod infer;
mod late;
mod left;
mod lines;
mod narrow;
mod numbers;
mod order;
mod overlap;
mod padded;
mod peel;
mod persistent;
mod pool;
mod portions;
mod queue;
mod relation;
mod remark;
mod residence;
mod rewrite;
mod roles;
mod rounds;
mod row_split;
mod search;
mod sink;
mod slots;
mod split;
mod spread;
mod stages;
mod stream_k;
pub mod strips;
mod threads;
mod tokens;
mod turned;
mod within;

use tessera_ir::{Block, Changed, Diagnostic, Func, Level, Op, OpKind, Pass, PassCx, Plan, Reason, Sharing, TileOp, Type, Value};

pub use anchors::Units;
pub use forecast::Forecast;
pub(crate) use forecast::forecasts;
pub(crate) use in_grid::in_grid;
pub use remark::{Remark, Remarks};
pub(crate) use search::{Candidate, candidates, time_of};
pub use search::{Launch, Time};

pub(crate) const POINTER_VIEWS: Pass = Pass {
    name: "pointer-views",
    doc: "Loads and stores blocks of arrays that are given by tiles of pointers through views.",
    run: |func, _| of_blocks(func, blocks::from_pointers),
};

pub(crate) const UNIT_AXES: Pass = Pass {
    name: "unit-axes",
    doc: "Drops axes of extent 1 from matrix products, and loads single elements as scalars.",
    run: |func, _| of_blocks(func, flatten::flatten),
};

pub(crate) const PRODUCT_PADDING: Pass = Pass {
    name: "product-padding",
    doc: "Pads products of fewer rows, columns or steps than a warp's instruction has with zeros.",
    run: |func, cx| match cx.needs_target(PRODUCT_PADDING.name, func) {
        Some(arch) => of_blocks(func, |func| padded::pad(func, arch)),
        None => Changed(false),
    },
};

pub(crate) const READ_TOKENS: Pass = Pass {
    name: "read-tokens",
    doc: "Forgets tokens that loops carry for reads alone.",
    run: |func, _| of_blocks(func, tokens::forget_reads),
};

pub(crate) const CODE_SINKING: Pass = Pass {
    name: "code-sinking",
    doc: "Moves into branches what only they use.",
    run: |func, _| of_blocks(func, sink::into_branches),
};

pub(crate) const SINGLE_ROUNDS: Pass = Pass {
    name: "single-rounds",
    doc: "Gives a product of warpgroups that stands in no loop one of a single round, where a plan can be made of that.",
    run: |func, cx| match cx.needs_target(SINGLE_ROUNDS.name, func) {
        Some(arch) => of_blocks(func, |func| Changed(rounds::of_one(func, &Units::of(func, arch)))),
        None => Changed(false),
    },
};

pub(crate) const LOAD_PORTIONS: Pass = Pass {
    name: "load-portions",
    doc: "Cuts tiles that are loaded behind a product's loop into portions that its left factor's slots can hold.",
    run: |func, cx| match cx.needs_target(LOAD_PORTIONS.name, func) {
        Some(arch) => of_blocks(func, |func| Changed(portions::cut(func, arch))),
        None => Changed(false),
    },
};

pub(crate) const WARP_SPECIALIZATION: Pass = Pass {
    name: "warp-specialization",
    doc: "Plans warps that bring what the products of warpgroups multiply, and warps that multiply.",
    run: |func, cx| {
        plan(func, cx, WARP_SPECIALIZATION.name, |func, units| {
            roles::propose(func, units).map(|plan| search::filled(func, units, plan))
        })
    },
};

pub(crate) const MULTISTAGE_PIPELINE: Pass = Pass {
    name: "multistage-pipeline",
    doc: "Plans that all warps copy what the loops of products load some rounds ahead.",
    run: |func, cx| {
        let propose = |func: &Func, units: &Units| stages::propose(func, units).map(|plan| search::improved(func, units, plan));
        plan(func, cx, MULTISTAGE_PIPELINE.name, propose)
    },
};

pub(crate) const CLUSTER_ROWS: Pass = Pass {
    name: "cluster-rows",
    doc: "Plans that the blocks of a cluster share the row that a block reduces, where the kernel asks for that.",
    run: |func, cx| match func.hints.shares() {
        Sharing::Cluster => plan(func, cx, CLUSTER_ROWS.name, row_split::propose),
        Sharing::Nothing | Sharing::Blocks | Sharing::Rounds | Sharing::Turns => Changed(false),
    },
};

pub(crate) const ROW_NARROWING: Pass = Pass {
    name: "row-narrowing",
    doc: "Has the tiles of rows end where their arrays do at most.",
    run: |func, cx| of_rows(func, cx, narrow::narrow),
};

pub(crate) const LINE_ALIGNMENT: Pass = Pass {
    name: "line-alignment",
    doc: "Has the tiles of rows begin at whole vectors, where lines of their arrays do not.",
    run: |func, cx| of_rows(func, cx, lines::align),
};

pub(crate) const MASK_ELISION: Pass = Pass {
    name: "mask-elision",
    doc: "Leaves masks out of the rounds of chained products that do not need them.",
    run: |func, _| of_blocks(func, |func| Changed(guard::chains(func))),
};

pub(crate) const PIPELINING: Pass =
    Pass { name: "pipelining", doc: "Carries the plan out: makes its roles, rings, copies and barriers.", run: carry_out };

pub(crate) const LOAD_BATCHING: Pass = Pass {
    name: "load-batching",
    doc: "Loads what several rounds of a loop need before the first of them.",
    run: |func, _| of_blocks(func, batch::batch),
};

pub(crate) const LAYOUTS: Pass = Pass {
    name: "layouts",
    doc: "Gives the tiles of block programs layouts over threads: Schedule IR becomes Tile IR.",
    run: lay_out,
};

pub(crate) const PRODUCT_OVERLAP: Pass = Pass {
    name: "product-overlap",
    doc: "Runs chained products of warpgroups under the work between them.",
    run: |func, _| of_threads(func, |func| Changed(overlap::overlap(func).0 | within::overlap(func).0)),
};

pub(crate) const PRODUCT_ALTERNATION: Pass = Pass {
    name: "product-alternation",
    doc: "Has the warpgroups of a role start overlapped products in turn.",
    run: |func, cx| match cx.needs_target(PRODUCT_ALTERNATION.name, func) {
        Some(arch) => of_threads(func, |func| alternate::alternate(func, arch)),
        None => Changed(false),
    },
};

pub(crate) const LOOP_SPLITTING: Pass = Pass {
    name: "loop-splitting",
    doc: "Gives the rounds of a loop of products that need no test a loop of their own.",
    run: |func, _| of_threads(func, split::split),
};

pub(crate) const PRODUCT_GROUPING: Pass = Pass {
    name: "product-grouping",
    doc: "Starts products of warpgroups together that need nothing of each other but sums to add to.",
    run: |func, _| of_threads(func, abreast::start_together),
};

pub(crate) const PRODUCT_PIPELINING: Pass = Pass {
    name: "product-pipelining",
    doc: "Starts a round's products of warpgroups before the last round's have ended.",
    run: |func, _| of_threads(func, carry::carry),
};

pub(crate) const LOAD_PREFETCHING: Pass = Pass {
    name: "load-prefetching",
    doc: "Loads what a round of products needs beside its factors a round ahead.",
    run: |func, _| of_threads(func, early::load_ahead),
};

pub(crate) const PREDICATED_LOAD_SINKING: Pass = Pass {
    name: "predicated-load-sinking",
    doc: "Moves loads behind the mask that throws some of their elements away.",
    run: |func, _| of_threads(func, late::delay_masked_loads),
};

pub(crate) const REMATERIALIZATION: Pass = Pass {
    name: "rematerialization",
    doc: "Makes numbers of 32 bits again of loaded elements of 16 rather than to hold them while a block reduces.",
    run: |func, cx| match cx.needs_target(REMATERIALIZATION.name, func) {
        Some(arch) => of_threads(func, |func| again::make_again(func, &Units::of(func, arch))),
        None => Changed(false),
    },
};

pub(crate) const OCCUPANCY: Pass = Pass {
    name: "occupancy",
    doc: "Says how many blocks of a kernel that combines over rows shall be resident at once.",
    run: |func, cx| match cx.needs_target(OCCUPANCY.name, func) {
        Some(arch) => of_threads(func, |func| residence::choose(func, &Units::of(func, arch))),
        None => Changed(false),
    },
};

/// Changes a block program that nothing has staged.
fn of_blocks(func: &mut Func, change: impl FnOnce(&mut Func) -> Changed) -> Changed {
    if func.level == Level::Schedule { change(func) } else { Changed(false) }
}

/// Changes the tiles of a block program that nothing has planned, or says why not.
fn of_rows(func: &mut Func, cx: &mut PassCx<'_>, change: impl FnOnce(&mut Func) -> Result<(), Reason>) -> Changed {
    if func.level != Level::Schedule || func.plan.is_some() {
        return Changed(false);
    }
    let mut changed = func.clone();
    match change(&mut changed) {
        Ok(()) => {
            *func = changed;
            Changed(true)
        }
        Err(reason) => {
            cx.refusals.push(Reason { span: reason.span.or(Some(func.span)), ..reason });
            Changed(false)
        }
    }
}

/// Changes a program of threads.
fn of_threads(func: &mut Func, change: impl FnOnce(&mut Func) -> Changed) -> Changed {
    if func.level == Level::Tile { change(func) } else { Changed(false) }
}

/// Plans a block program that nothing has planned, or says why not.
fn plan(func: &mut Func, cx: &mut PassCx<'_>, pass: &str, propose: fn(&Func, &Units) -> Result<Plan, Reason>) -> Changed {
    if func.level != Level::Schedule || func.plan.is_some() {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(pass, func) else { return Changed(false) };
    let placed = |reason: Reason| Reason { span: reason.span.or(Some(func.span)), ..reason };
    match propose(func, &Units::of(func, arch)) {
        Ok(mut plan) => {
            let wanted = [load_together(func, &mut plan, arch), share(func, &mut plan, arch), alone(func)];
            cx.refusals.extend(wanted.into_iter().filter_map(Result::err).map(placed));
            func.plan = Some(plan);
            Changed(true)
        }
        Err(reason) => {
            cx.refusals.push(placed(reason));
            Changed(false)
        }
    }
}

/// Has blocks share what the function's hints ask for.
///
/// # Errors
/// Why they cannot; they share less then.
fn share(func: &Func, plan: &mut Plan, arch: tessera_types::Arch) -> Result<(), Reason> {
    let sharing = func.hints.shares();
    match sharing {
        Sharing::Nothing => return Ok(()),
        Sharing::Cluster => return split(func, plan, arch),
        Sharing::Blocks | Sharing::Rounds | Sharing::Turns => {}
    }
    persistent::can(func)?;
    plan.persistent = Some(1);
    match sharing {
        Sharing::Nothing | Sharing::Blocks | Sharing::Cluster => {}
        Sharing::Rounds => {
            plan.stream_k = Some(stream_k::meeting(func, stream_k::shareable(func)?));
            find_place(plan, 40);
        }
        Sharing::Turns => *plan = in_turn(func, &Units::of(func, arch), plan)?,
    }
    Ok(())
}

/// Gives the threads that copy registers enough to find out what of which tile comes next, in which of several rings, from those that compute:
/// these keep a multiple of eight, and those get what is left.
pub(crate) fn find_place(plan: &mut Plan, enough: u32) {
    let [copy, compute] = &mut plan.partitions[..] else { return };
    if let (Some(few), Some(many)) = (&mut copy.registers, &mut compute.registers)
        && *few < enough
    {
        let all = *few * copy.warps + *many * compute.warps;
        *many = (all - enough * copy.warps) / compute.warps / 8 * 8;
        *few = (all - *many * compute.warps) / copy.warps / 8 * 8;
    }
}

/// Has blocks of the clusters that the function's hints ask for load together.
///
/// # Errors
/// Why they cannot; each loads for itself then.
fn load_together(func: &Func, plan: &mut Plan, arch: tessera_types::Arch) -> Result<(), Reason> {
    if let Some(blocks) = func.hints.num_ctas.filter(|&blocks| blocks > 1 && func.hints.shares() != Sharing::Cluster) {
        cluster::find(func, plan, blocks, arch)?;
        plan.cluster = Some(blocks);
    }
    Ok(())
}

/// Has blocks of the clusters that the function's hints ask for split the rounds of each block.
///
/// # Errors
/// Why they cannot; each takes blocks of its own then.
fn split(func: &Func, plan: &mut Plan, arch: tessera_types::Arch) -> Result<(), Reason> {
    let blocks =
        func.hints.num_ctas.ok_or("`sharing=4` splits rounds among a cluster's blocks, and `num_ctas` does not say how many")?;
    let wanted = Plan { split: Some(blocks), among: func.hints.shared_clusters(), ..plan.clone() };
    try_out(func, &wanted, arch)?;
    *plan = wanted;
    Ok(())
}

/// Clusters share nothing where the function's hints ask for no blocks that do.
///
/// # Errors
/// They ask for clusters.
fn alone(func: &Func) -> Result<(), Reason> {
    match func.hints.shared_clusters() {
        Some(_) if func.hints.shares() != Sharing::Cluster => {
            Err("clusters share the rounds that their blocks split: `num_clusters` needs `sharing=4`".into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Carries a function's plan out; one that cannot be is an error of whoever wrote it.
fn carry_out(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Schedule || func.plan.is_none() {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(PIPELINING.name, func) else { return Changed(false) };
    let Some(plan) = func.plan.take() else { return Changed(false) };
    match apply(func, &plan, arch) {
        Ok(()) => func.level = Level::Staged,
        Err(reason) => cx.diagnostics.push(refused(&plan, &reason)),
    }
    Changed(true)
}

/// Makes rings, roles and loops over blocks of a plan.
///
/// # Errors
/// What cannot be done; what the function is then is of no use.
fn apply(func: &mut Func, plan: &Plan, arch: tessera_types::Arch) -> Result<(), Reason> {
    let units = Units::of(func, arch);
    roles::check_turns(plan)?;
    let together = plan.cluster.map(|blocks| cluster::find(func, plan, blocks, arch)).transpose()?;
    if let Some(together) = &together {
        cluster::guard(func, together);
        func.hints.cluster = plan.cluster;
    }
    match plan.split {
        Some(blocks) if row_split::is_asked_for(plan) => row_split::split(func, plan, blocks, arch)?,
        Some(blocks) => cluster_split::split(func, plan, blocks, arch)?,
        None if plan.among.is_some() => {
            return Err("clusters share the rounds that their blocks split: `among` needs `split`".into());
        }
        None => {}
    }
    share_blocks(func, plan, arch)?;
    match plan.partitions.len() {
        1 => stages::carry_out(func, &units, plan),
        _ => roles::carry_out(func, &units, plan, together),
    }
}

/// Whether a plan can be carried out.
///
/// # Errors
/// Why not.
fn try_out(func: &Func, plan: &Plan, arch: tessera_types::Arch) -> Result<(), Reason> {
    apply(&mut func.clone(), plan, arch)
}

fn refused(plan: &Plan, reason: &Reason) -> Diagnostic {
    let message = format!("the plan cannot be carried out: {}", reason.text);
    Diagnostic::error("plan", reason.span.unwrap_or(plan.span), message)
}

/// Makes a loop over blocks of the function where the plan asks for one.
///
/// # Errors
/// Why that cannot be; the function is as it was.
fn share_blocks(func: &mut Func, plan: &Plan, arch: tessera_types::Arch) -> Result<(), Reason> {
    let Some(blocks) = plan.persistent else {
        return match plan.stream_k {
            Some(_) => Err("rounds are shared by blocks that stay: `stream_k` needs `persistent`".into()),
            None => Ok(()),
        };
    };
    persistent::can(func)?;
    let most = arch.limits().threads_per_sm / tessera_types::Arch::WARP;
    if blocks == 0 || blocks > most {
        return Err(format!("a multiprocessor runs 1 to {most} blocks, not {blocks}").into());
    }
    let threads = plan.computing().warps * tessera_types::Arch::WARP;
    let shared = match plan.stream_k {
        Some(saved) => Some(stream_k::Shared { looped: stream_k::shareable(func)?, saved, threads }),
        None => None,
    };
    let chained = func.linked_blocks().into_iter().any(|block| roles::is_chain(func, block));
    let grouped = !chained && order::plane(func).is_some();
    persistent::over_blocks(func, blocks, grouped, shared);
    Ok(())
}

/// A persistent plan of two partitions in which two teams take tiles in turn.
///
/// # Errors
/// Why they cannot.
pub fn in_turn(func: &Func, units: &Units, plan: &Plan) -> Result<Plan, Reason> {
    let mut over_blocks = func.clone();
    share_blocks(&mut over_blocks, plan, units.arch)?;
    roles::in_turn(&over_blocks, units, plan)
}

fn lay_out(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if !matches!(func.level, Level::Schedule | Level::Staged) {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(LAYOUTS.name, func) else { return Changed(false) };
    let units = Units::of(func, arch);
    let mut laid_out = func.clone();
    if func.level == Level::Schedule {
        laid_out.hints.num_warps = Some(threads::warps(func));
    }
    laid_out.level = Level::Tile;
    match spread_out(&mut laid_out, &units) {
        Ok(()) => {
            *func = laid_out;
            Changed(true)
        }
        Err(diagnostic) => {
            cx.diagnostics.push(diagnostic);
            Changed(false)
        }
    }
}

/// Gives every tile a layout.
fn spread_out(func: &mut Func, units: &Units) -> Result<(), Diagnostic> {
    let layouts = infer::infer(func, anchors::Anchors::new(func, units, computing_warps(func))?)?;
    rewrite::rewrite(func, &layouts)
}

/// The warps that compute: those of the role that multiplies, of the last role where none does, else all.
fn computing_warps(func: &Func) -> u32 {
    let multiplies = |role: Op| {
        let mut blocks: Vec<Block> = func.ops[role].regions.to_vec();
        while let Some(block) = blocks.pop() {
            for &op in &func.blocks[block].ops {
                let kind = &func.ops[op].kind;
                if matches!(kind, OpKind::Tile(TileOp::MmaShared { .. } | TileOp::Wgmma { .. })) {
                    return true;
                }
                blocks.extend(&func.ops[op].regions);
            }
        }
        false
    };
    let role = |&op: &Op| match func.ops[op].kind {
        OpKind::Tile(TileOp::Role { warps, .. }) => Some((op, warps)),
        _ => None,
    };
    let roles: Vec<(Op, u32)> = func.blocks[func.body].ops.iter().filter_map(role).collect();
    let multiplying = roles.iter().filter(|(op, _)| multiplies(*op)).map(|&(_, warps)| warps).max();
    multiplying.or(roles.last().map(|&(_, warps)| warps)).unwrap_or_else(|| threads::warps(func))
}

/// A product that would have an instruction if its tiles lay otherwise.
pub(crate) fn has_better_product(func: &Func, op: Op, units: &Units) -> bool {
    anchors::instruction_for(func, op, units)
}

/// The function with its tiles laid out anew: the layouts that it has, and the conversions between them, are forgotten.
///
/// # Errors
/// A tile that no layout covers.
pub(crate) fn relay(func: &Func, units: &Units) -> Result<Func, Diagnostic> {
    let mut func = func.clone();
    let mut sources: rustc_hash::FxHashMap<Value, Value> = rustc_hash::FxHashMap::default();
    for op in func.linked_ops() {
        if matches!(func.ops[op].kind, OpKind::Tile(TileOp::ConvertLayout {})) {
            let source = func.ops[op].one(0);
            let source = sources.get(&source).copied().unwrap_or(source);
            sources.insert(func.ops[op].result(), source);
        }
    }
    func.replace_uses(|value| sources.get(&value).copied().unwrap_or(value));
    for block in func.linked_blocks() {
        let kept = func.blocks[block].ops.iter().copied();
        let kept = kept.filter(|&op| !matches!(func.ops[op].kind, OpKind::Tile(TileOp::ConvertLayout {}))).collect();
        func.blocks[block].ops = kept;
    }
    for value in func.values.ids().collect::<Vec<_>>() {
        if let Type::Distributed(ty) = func.ty(value).clone() {
            func.values[value].ty = Type::Tile(ty.tile);
        }
    }
    spread_out(&mut func, units)?;
    Ok(func)
}
