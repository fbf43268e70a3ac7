//! 64-bit products of a loop's index become sums that grow with it.
//!
//! ```text
//! loop(i):  offset = mul.lo.s64 (cvt.s64.s32 i), stride     loop(i, offset):
//!           ...                                     ->        ...
//!           jump loop(i + 1)                                  jump loop(i + 1, offset + stride)
//! ```
//! A 64-bit product is three multiplications; 32-bit and widening ones are one, no dearer than the sum, and stay. A 32-bit
//! index that is extended must be exact: its sum does not wrap.

use super::super::cfg::Cfg;
use super::super::code::{Code, Half};
use super::super::inst::Terminator;
use super::super::kernel::{Block, Class, Inst, Kernel, Origin, Value};
use super::Replacements;
use super::hoist::preheader;
use super::ranges::Ranges;
use crate::types::Type;

/// A loop gets at most so many new values to carry.
const MOST: usize = 6;

/// An index of a loop: a parameter of its header that grows by a fixed step.
struct Index {
    param: Value,
    position: usize,
    step: Value,
    /// The instruction that adds the step.
    sum: Inst,
}

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let mut cfg = Cfg::new(kernel);
    let headers: Vec<Block> = cfg.order.iter().copied().filter(|&block| cfg.header[block.index()] == Some(block)).collect();
    let mut changes = 0;
    for header in headers {
        let reduced = reduce(kernel, &cfg, header);
        if reduced > 0 {
            changes += reduced;
            cfg = Cfg::new(kernel);
        }
    }
    changes
}

fn reduce(kernel: &mut Kernel, cfg: &Cfg, header: Block) -> usize {
    let back: Vec<Block> = cfg.preds[header.index()].iter().copied().filter(|&pred| cfg.dominates(header, pred)).collect();
    let [latch] = back[..] else { return 0 };
    let blocks = cfg.loop_blocks(header);
    let mut inside = vec![false; kernel.blocks.len()];
    blocks.iter().for_each(|block| inside[block.index()] = true);
    let fixed = |kernel: &Kernel, value: Value| match kernel.origin(value) {
        Origin::BlockParam(block, _) => !inside[block.index()],
        Origin::Result(inst) => blocks.iter().all(|&block| !kernel.block(block).insts.contains(&inst)),
        _ => true,
    };
    let indices = indices(kernel, header, latch, &fixed);
    let mut ranges = Ranges::new(kernel);
    let mut work = Vec::new();
    for &block in &blocks {
        for &inst in &kernel.block(block).insts {
            let Some(sources) = kernel.sources(inst) else { continue };
            let (a, b, c) = match (kernel.code(inst), &sources[..]) {
                (Some(Code::Mul(Half::Low, Type::S64 | Type::U64)), &[a, b]) => (a, b, None),
                (Some(Code::Mad(Half::Low, Type::S64 | Type::U64)), &[a, b, c]) => (a, b, Some(c)),
                _ => continue,
            };
            for (index, stride) in [(a, b), (b, a)] {
                let scaled = fixed(kernel, stride) && c.is_none_or(|c| fixed(kernel, c));
                if let Some((found, extension)) =
                    indices.iter().find_map(|found| Some((found, extends(kernel, &mut ranges, found, index)?)))
                    && scaled
                    && work.len() < MOST
                {
                    work.push((inst, found.position, found.step, extension, stride, c));
                    break;
                }
            }
        }
    }
    if work.is_empty() {
        return 0;
    }
    let front = preheader(kernel, cfg, header);
    let mut replacements = Replacements::new(kernel);
    let mut done = Vec::new();
    for (inst, position, step, extension, stride, c) in work {
        if let Some(param) = carry(kernel, (front, header, latch), inst, (position, step, extension), stride, c)
            && let Some(result) = kernel.inst(inst).single_def()
        {
            replacements.replace(result, param);
            done.push(inst);
        }
    }
    for block in blocks {
        kernel.block_mut(block).insts.retain(|inst| !done.contains(inst));
    }
    replacements.apply(kernel);
    done.len()
}

fn indices(kernel: &Kernel, header: Block, latch: Block, fixed: &dyn Fn(&Kernel, Value) -> bool) -> Vec<Index> {
    let mut found = Vec::new();
    let Some(end) = &kernel.block(latch).terminator else { return found };
    let mut ways = end.targets().filter(|target| target.block == header);
    let (Some(target), None) = (ways.next(), ways.next()) else { return found };
    for (position, (&param, &next)) in kernel.block(header).params.iter().zip(&target.args).enumerate() {
        let Some((code, sources)) = kernel.expression(next) else { continue };
        if !code.is_integer_sum() {
            continue;
        }
        let step = match sources[..] {
            [a, b] if a == param && fixed(kernel, b) => b,
            [a, b] if b == param && fixed(kernel, a) => a,
            _ => continue,
        };
        let Some(sum) = kernel.definition(next) else { continue };
        found.push(Index { param, position, step, sum });
    }
    found
}

/// How a 64-bit factor follows from an index: as it is, or extended by this instruction.
fn extends(kernel: &Kernel, ranges: &mut Ranges, index: &Index, factor: Value) -> Option<Option<Code>> {
    if factor == index.param {
        return Some(None);
    }
    let (code, sources) = kernel.expression(factor)?;
    if sources[0] != index.param || !kernel.inst(index.sum).exact {
        return None;
    }
    let signed = kernel.code(index.sum) == Some(Code::Add(Type::S32));
    match code {
        Code::Cvt(Type::S64 | Type::U64, Type::S32) if signed => Some(Some(Code::Cvt(Type::S64, Type::S32))),
        // A signed index that is never negative does not wrap as an unsigned one.
        Code::Cvt(Type::S64 | Type::U64, Type::U32) if !signed || ranges.is_not_negative(kernel, index.param) => {
            Some(Some(Code::Cvt(Type::U64, Type::U32)))
        }
        _ => None,
    }
}

/// Adds a parameter that is `index * stride + c` in every iteration.
fn carry(
    kernel: &mut Kernel,
    (front, header, latch): (Block, Block, Block),
    like: Inst,
    (position, step, extension): (usize, Value, Option<Code>),
    stride: Value,
    c: Option<Value>,
) -> Option<Value> {
    let start = match &kernel.block(front).terminator {
        Some(Terminator::Jump(target)) => target.args[position],
        _ => return None,
    };
    let mut before = Vec::new();
    let mut add = |kernel: &mut Kernel, code: Code, sources: &[Value]| {
        let (inst, value) = kernel.pure(code, Class::B64, sources, like)?;
        before.push(inst);
        Some(value)
    };
    let (mut start, mut step) = (start, step);
    if let Some(code) = extension {
        start = add(kernel, code, &[start])?;
        step = add(kernel, code, &[step])?;
    }
    let product = Code::Mul(Half::Low, Type::U64);
    let first = match c {
        Some(c) => add(kernel, Code::Mad(Half::Low, Type::U64), &[start, stride, c])?,
        None => add(kernel, product, &[start, stride])?,
    };
    let growth = add(kernel, product, &[step, stride])?;
    let param = kernel.new_block_param(header, Class::B64);
    let (sum, next) = kernel.pure(Code::Add(Type::U64), Class::B64, &[param, growth], like)?;
    kernel.block_mut(front).insts.extend(before);
    kernel.block_mut(latch).insts.push(sum);
    for (block, value) in [(front, first), (latch, next)] {
        for target in kernel.block_mut(block).terminator.iter_mut().flat_map(|end| end.targets_mut()) {
            if target.block == header {
                target.args.push(value);
            }
        }
    }
    Some(param)
}
