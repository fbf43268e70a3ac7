//! Roles: warps that go ways of their own.
//!
//! A role that does nothing but start copies of the accelerator is one thread's; its others go on at once. Guards around each copy would do
//! the same, and cost a product of warpgroups 8 in a hundred: the lanes part and meet five times a round (`results/products-in-flight-h100.txt`).

use tessera_ir::{Block, Effects, Func, Op, OpKind, TileOp, Type, bug};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::Arch;

use super::control::Frame;
use super::lowering::{Lowered, Lowering, Team};

/// One thread does all that a role does: scalars, copies of the accelerator and the rings that they fill.
fn is_for_one(func: &Func, block: Block) -> bool {
    let scalar = |ty: &Type| ty.layout().is_none() && !matches!(ty, Type::Registers(_));
    func.blocks[block].ops.iter().all(|&op| {
        let data = &func.ops[op];
        let fits = match &data.kind {
            OpKind::Tile(TileOp::TmaLoad { .. } | TileOp::Acquire {} | TileOp::Commit { .. } | TileOp::Mark { .. }) => true,
            OpKind::Schedule(kind) if kind.is_weak_load() => true,
            _ => matches!(data.row().effects, Effects::Pure | Effects::MayTrap | Effects::Terminator | Effects::Regions),
        };
        let types = data.results.iter().chain(&data.operands).all(|&value| scalar(func.ty(value)));
        fits && types && data.through.is_none() && data.regions.iter().all(|&region| is_for_one(func, region))
    })
}

impl Lowering<'_> {
    /// Lowers roles that follow each other; how many operations they are.
    pub(super) fn roles(&mut self, ops: &[Op]) -> Lowered<usize> {
        let is_role = |op: &&Op| matches!(self.data(**op).kind, OpKind::Tile(TileOp::Role { .. }));
        let count = ops.iter().take_while(is_role).count();
        if count == 0 {
            return Ok(0);
        }
        let outer = self.team;
        let join = self.b.new_block(&[]);
        let (thread, five) = (self.b.special(tessera_ptx::Special::TidX), self.b.u32(5));
        let warp = self.b.shr(Ty::U32, thread, five);
        // All lanes agree, and the assembler may know it.
        let zero = self.b.u32(0);
        let warp = self.b.shfl(Word::Idx, warp, zero, 31);
        for &op in &ops[..count] {
            let data = self.data(op);
            let OpKind::Tile(TileOp::Role { first_warp, warps, registers }) = &data.kind else { bug!("a role that is none") };
            let (body, next) = (self.b.new_block(&[]), self.b.new_block(&[]));
            let (first, number) = (self.b.u32(*first_warp), self.b.u32(*warps));
            let place = self.b.sub(Ty::U32, warp, first);
            let belongs = self.b.setp(Word::Lt, Ty::U32, place, number);
            self.b.branch(belongs, (body, &[]), (next, &[]));
            self.b.switch_to(body);
            if let Some(registers) = registers.filter(|_| self.arch.has_setmaxnreg()) {
                let threads = self.func.hints.warps() * Arch::WARP;
                // Blocks that shall be resident together share the registers.
                let given = self.arch.registers_at_launch(threads * self.func.hints.occupancy.unwrap_or(1).max(1));
                if registers > given {
                    self.b.setmaxnreg_inc(registers);
                } else {
                    self.b.setmaxnreg_dec(registers);
                }
            }
            let Some(barrier) = self.barriers.first() else {
                let most = self.arch.limits().barriers_per_block;
                return Err(self.unsupported(format!("the {most} barriers of a block do not do for roles and named barriers")));
            };
            self.team = Team { first_warp: *first_warp, warps: *warps, warp: Some(place), barrier, alone: false };
            self.frames.push(Frame::If { join });
            if is_for_one(self.func, data.regions[0]) {
                let (first, only) = (self.is_first_thread(), self.b.new_block(&[]));
                self.b.branch(first, (only, &[]), (join, &[]));
                self.b.switch_to(only);
                self.team.alone = true;
            }
            self.block(data.regions[0])?;
            self.frames.pop();
            if !self.b.is_ended() {
                self.b.jump(join, &[]);
            }
            self.b.switch_to(next);
        }
        self.team = outer;
        self.b.jump(join, &[]);
        self.b.switch_to(join);
        Ok(count)
    }
}
