//! Loops of machine code.

use std::ops::Range;

use super::Instruction;
use super::kind::Kind;
use crate::ssa::Block;
use crate::ssa::cfg::Cfg;

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// 1 for a loop in no other, 2 for one in such, and so on.
    pub depth: u32,
    /// Positions of its instructions, without those of loops in it.
    pub members: Vec<usize>,
}

/// Blocks of instructions, and their loops from the one that begins first on. One that only waits is no loop but a part of what is around it. What
/// cannot be reached and does nothing is taken away.
pub(super) fn blocks_and_loops(instructions: &mut Vec<Instruction>) -> (Vec<Range<usize>>, Vec<Loop>) {
    let starts = starts(instructions);
    let block_of = |at: usize| starts.partition_point(|&start| start <= at) - 1;
    let place = |address: u32| instructions.iter().position(|instruction| instruction.address == address);
    let ends = || starts.iter().skip(1).copied().chain([instructions.len()]);
    let targets: Vec<Vec<Block>> = ends()
        .map(|end| {
            let last = &instructions[end - 1];
            let behind = (!last.leaves && end < instructions.len()).then_some(end);
            let all = behind.into_iter().chain(last.target.and_then(place));
            all.map(|at| Block(block_of(at) as u32)).collect()
        })
        .collect();
    let cfg = Cfg::over(starts.len(), Block(0), |block| targets[block.index()].iter().copied());
    // The innermost loop around each instruction; headers from the innermost outwards, so that a wait goes to what is around it.
    let mut innermost: Vec<Option<Block>> = (0..instructions.len()).map(|at| cfg.header[block_of(at)]).collect();
    let mut headers: Vec<Block> = cfg.order.iter().copied().filter(|&block| cfg.header[block.index()] == Some(block)).collect();
    headers.sort_by_key(|header| (std::cmp::Reverse(cfg.depth[header.index()]), *header));
    let mut found = Vec::new();
    for header in headers {
        let members: Vec<usize> = (0..instructions.len()).filter(|&at| innermost[at] == Some(header)).collect();
        let around = around(&cfg, header);
        if members.iter().all(|&at| instructions[at].kind.is_waiting())
            && members.iter().any(|&at| instructions[at].kind == Kind::Barrier)
        {
            members.iter().for_each(|&at| innermost[at] = around);
        } else {
            found.push(Loop { depth: cfg.depth[header.index()], members });
        }
    }
    found.sort_by_key(|one| one.members.first().copied());
    let mut blocks: Vec<Range<usize>> = starts.iter().copied().zip(ends()).map(|(start, end)| start..end).collect();
    // Fillers stand behind everything else.
    while blocks.len() > 1
        && !cfg.is_reachable(Block(blocks.len() as u32 - 1))
        && blocks.last().is_some_and(|block| instructions[block.clone()].iter().all(Instruction::is_filler))
    {
        blocks.pop();
    }
    instructions.truncate(blocks.last().map_or(0, |block| block.end));
    (blocks, found)
}

/// The header of the loop around the one of a header.
fn around(cfg: &Cfg, header: Block) -> Option<Block> {
    let depth = cfg.depth[header.index()];
    let mut outer = cfg
        .order
        .iter()
        .copied()
        .filter(|&block| cfg.header[block.index()] == Some(block) && cfg.depth[block.index()] + 1 == depth);
    outer.find(|&block| cfg.loop_blocks(block).contains(&header))
}

/// Positions at which a block begins: the entry, what is gone to, and what stands behind something that goes.
fn starts(instructions: &[Instruction]) -> Vec<usize> {
    let targets: Vec<u32> = instructions.iter().filter_map(|instruction| instruction.target).collect();
    let begins = |at: usize| {
        let before = at.checked_sub(1).map(|before| &instructions[before]);
        before.is_none_or(|before| before.target.is_some() || before.leaves) || targets.contains(&instructions[at].address)
    };
    (0..instructions.len()).filter(|&at| begins(at)).collect()
}
