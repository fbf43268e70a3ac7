//! Loops, conditions and the ends of blocks. A carried value is carried as all its registers.
//!
//! A `for` is turned around: what is left of the range is compared with the step at the end of a round, so that the counter
//! never passes the end and cannot overflow.
//!
//! ```text
//!     if lower < upper: body(lower, init) else exit(init)
//! body(i, carried):   ...
//! latch(values):      if upper - i > step (unsigned): body(i + step, values) else exit(values)
//! ```

use tessera_ir::{Op, OpData, ScheduleOp, Value};
use tessera_ptx::ssa::{Block, Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};

use super::lowering::{Lowered, Lowering};
use super::operation::astray;

/// What the terminators of an open region jump to.
#[derive(Clone, Debug)]
pub(super) enum Frame {
    /// A `for`: `continue` goes to its latch.
    For {
        /// Takes the next values.
        latch: Block,
        /// The counter, what it starts at, and its step.
        counting: [Reg; 3],
    },
    /// A `loop`.
    Loop {
        /// `continue`
        head: Block,
        /// `break`
        exit: Block,
    },
    /// An `if`: `yield` goes here.
    If {
        /// Takes the results.
        join: Block,
    },
    /// A region that is built in line: its `yield` is kept.
    Inline {
        /// The values yielded.
        yielded: Option<Vec<Value>>,
    },
}

impl Lowering<'_> {
    /// Lowers an operation of control flow.
    pub(super) fn control(&mut self, op: Op, kind: &ScheduleOp) -> Lowered<()> {
        let data = self.data(op);
        match kind {
            ScheduleOp::For { unsigned, unroll } => self.for_loop(data, *unsigned, *unroll)?,
            ScheduleOp::Loop {} => self.open_loop(data)?,
            ScheduleOp::If {} => self.condition(data)?,
            ScheduleOp::Yield {} => match self.frames.last_mut() {
                Some(Frame::Inline { yielded }) => *yielded = Some(data.group(0).to_vec()),
                Some(&mut Frame::If { join }) => self.leave(join, data.group(0))?,
                _ => return Err(self.broken("a `yield` without a region")),
            },
            ScheduleOp::Continue {} => {
                let target = self.frames.iter().rev().find_map(|frame| match frame {
                    Frame::For { latch, .. } => Some(*latch),
                    Frame::Loop { head, .. } => Some(*head),
                    Frame::If { .. } | Frame::Inline { .. } => None,
                });
                let target = target.ok_or_else(|| self.broken("a `continue` without a loop"))?;
                self.leave(target, data.group(0))?;
            }
            ScheduleOp::Break {} => {
                let target = self.frames.iter().rev().find_map(|frame| match frame {
                    Frame::Loop { exit, .. } => Some(*exit),
                    Frame::For { .. } | Frame::If { .. } | Frame::Inline { .. } => None,
                });
                let target = target.ok_or_else(|| self.broken("a `break` without a loop"))?;
                self.leave(target, data.group(0))?;
            }
            ScheduleOp::Return {} => self.b.ret(),
            _ => astray(kind),
        }
        Ok(())
    }

    fn flatten_all(&mut self, values: &[Value]) -> Lowered<Vec<Reg>> {
        let mut regs = Vec::new();
        for &value in values {
            regs.extend(self.flatten(value)?);
        }
        Ok(regs)
    }

    fn leave(&mut self, target: Block, values: &[Value]) -> Lowered<()> {
        let regs = self.flatten_all(values)?;
        self.b.jump(target, &regs);
        Ok(())
    }

    fn classes_of(&self, values: &[Value]) -> Lowered<Vec<Class>> {
        let mut classes = Vec::new();
        for &value in values {
            classes.extend(self.classes(self.func.ty(value))?);
        }
        Ok(classes)
    }

    /// Binds values to a block's parameters from `first` on; `like` are the values that came in.
    fn receive(&mut self, values: &[Value], regs: &[Reg], like: &[Value]) -> Lowered<()> {
        let mut at = 0;
        for (position, &value) in values.iter().enumerate() {
            let count = self.classes(self.func.ty(value))?.len();
            self.rebuild(value, &regs[at..at + count], like.get(position).copied())?;
            at += count;
        }
        Ok(())
    }

    fn for_loop(&mut self, data: &OpData, unsigned: bool, unroll: Option<u32>) -> Lowered<()> {
        let (lower, upper, step) = (data.one(0), data.one(1), data.one(2));
        let dtype = self.dtype(lower)?;
        let extend = |this: &mut Self, value: Value| -> Lowered<Reg> {
            let reg = this.reg(value)?;
            Ok(if unsigned { this.unsigned(dtype, reg) } else { this.signed(dtype, reg) })
        };
        let (low, high, step_reg) = (extend(self, lower)?, extend(self, upper)?, extend(self, step)?);
        let wide = dtype.bits() == 64;
        let (natural, flat) = if wide { (Ty::U64, Ty::S64) } else { (Ty::U32, Ty::S32) };
        let ordered = if unsigned { natural } else { flat };

        let carried = self.classes_of(data.group(3))?;
        let init = self.flatten_all(data.group(3))?;
        let region = data.regions[0];
        let args = self.func.blocks[region].args.clone();
        let counter_class = self.class(low);
        let like = [&[lower][..], data.group(3)].concat();
        if let Some(counters) = self.all_rounds(data, unroll) {
            let mut values = init;
            for counter in counters {
                let number = if wide { self.b.s64(counter) } else { self.b.s32(counter as i32) };
                values = self.round(region, &args, &[&[number][..], &values].concat(), &like, &carried, [low, step_reg])?;
            }
            return self.receive(&data.results, &values, data.group(3));
        }
        let body = self.b.new_block(&[&[counter_class][..], &carried].concat());
        let exit = self.b.new_block(&carried);

        let enters = self.b.setp(Word::Lt, ordered, low, high);
        let first = [&[low][..], &init].concat();
        self.b.branch(enters, (body, &first), (exit, &init));

        self.b.switch_to(body);
        let params = self.b.block_params(body);
        let (mut counter, mut values) = (params[0], params[1..].to_vec());
        for copy in 1..=unroll.unwrap_or(1).max(1) {
            values = self.round(region, &args, &[&[counter][..], &values].concat(), &like, &carried, [low, step_reg])?;
            if copy < unroll.unwrap_or(1) {
                counter = self.b.add(flat, counter, step_reg);
            }
        }
        let next = self.b.add(flat, counter, step_reg);
        let again = if self.cannot_pass(upper, step, wide, unsigned) {
            if !unsigned {
                self.b.mark_exact(next);
            }
            self.b.setp(Word::Lt, ordered, next, high)
        } else {
            let left = self.b.sub(flat, high, counter);
            self.b.setp(Word::Gt, natural, left, step_reg)
        };
        let round = [&[next][..], &values].concat();
        self.b.branch(again, (body, &round), (exit, &values));

        self.b.switch_to(exit);
        let results = self.b.block_params(exit);
        self.receive(&data.results, &results, data.group(3))
    }

    /// The numbers of all rounds of a loop whose body stands once for each of them.
    fn all_rounds(&self, data: &OpData, unroll: Option<u32>) -> Option<Vec<i64>> {
        let rounds = self.func.known_rounds(data)?;
        let copies = unroll.filter(|&copies| u64::from(copies) == rounds)?;
        let (lower, step) = (self.known(data.one(0))?, self.known(data.one(2))?);
        Some((0..i64::from(copies)).map(|round| lower + round * step).collect())
    }

    /// One round: the counter and the carried values come in, and the next carried values go out.
    #[allow(clippy::too_many_arguments, reason = "what comes in, what it is like, and what it counts by")]
    fn round(
        &mut self,
        region: tessera_ir::Block,
        args: &[Value],
        regs: &[Reg],
        like: &[Value],
        carried: &[Class],
        bounds: [Reg; 2],
    ) -> Lowered<Vec<Reg>> {
        let latch = self.b.new_block(carried);
        self.receive(args, regs, like)?;
        self.frames.push(Frame::For { latch, counting: [regs[0], bounds[0], bounds[1]] });
        self.block(region)?;
        self.frames.pop();
        self.b.switch_to(latch);
        Ok(self.b.block_params(latch))
    }

    /// True where adding the step to a counter below the end cannot overflow.
    fn cannot_pass(&self, upper: Value, step: Value, wide: bool, unsigned: bool) -> bool {
        let (upper, step) = (self.facts.fact(upper), self.facts.fact(step));
        if step.value() == Some(1) {
            return true;
        }
        let limit = if wide { i128::from(i64::MAX) } else { i128::from(i32::MAX) };
        !(unsigned && upper.least < 0) && i128::from(upper.greatest) + i128::from(step.greatest) <= limit
    }

    fn open_loop(&mut self, data: &OpData) -> Lowered<()> {
        let init = data.group(0);
        let carried = self.classes_of(init)?;
        let results = self.classes_of(&data.results)?;
        let regs = self.flatten_all(init)?;
        let (head, exit) = (self.b.new_block(&carried), self.b.new_block(&results));
        self.b.jump(head, &regs);
        self.b.switch_to(head);
        let region = data.regions[0];
        let args = self.func.blocks[region].args.clone();
        let params = self.b.block_params(head);
        self.receive(&args, &params, init)?;
        self.frames.push(Frame::Loop { head, exit });
        self.block(region)?;
        self.frames.pop();
        self.b.switch_to(exit);
        let regs = self.b.block_params(exit);
        self.receive(&data.results, &regs, init)
    }

    fn condition(&mut self, data: &OpData) -> Lowered<()> {
        let condition = self.reg(data.one(0))?;
        let results = self.classes_of(&data.results)?;
        let (then, otherwise, join) = (self.b.new_block(&[]), self.b.new_block(&[]), self.b.new_block(&results));
        self.b.branch(condition, (then, &[]), (otherwise, &[]));
        let mut like: Vec<Value> = Vec::new();
        for (block, &region) in [then, otherwise].into_iter().zip(&data.regions) {
            self.b.switch_to(block);
            self.frames.push(Frame::If { join });
            self.block(region)?;
            self.frames.pop();
            if let Some(&last) = self.func.blocks[region].ops.last()
                && matches!(self.func.ops[last].kind.schedule(), Some(ScheduleOp::Yield {}))
            {
                like = self.func.ops[last].group(0).to_vec();
            }
        }
        self.b.switch_to(join);
        let regs = self.b.block_params(join);
        self.receive(&data.results, &regs, &like)
    }

    /// Builds a region of scalars in line and gives what it yields.
    pub(super) fn inline(&mut self, region: tessera_ir::Block, args: &[Reg]) -> Lowered<Vec<Reg>> {
        let params = self.func.blocks[region].args.clone();
        for (&param, &arg) in params.iter().zip(args) {
            self.bind_regs(param, [arg]);
        }
        self.frames.push(Frame::Inline { yielded: None });
        let (span, op, last) = (self.span, self.op, self.scratch.last);
        self.block(region)?;
        (self.span, self.op, self.scratch.last) = (span, op, last);
        match self.frames.pop() {
            Some(Frame::Inline { yielded: Some(values) }) => values.iter().map(|&value| self.reg(value)).collect(),
            _ => Err(self.broken("a region that yields nothing")),
        }
    }
}
