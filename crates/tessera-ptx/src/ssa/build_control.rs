//! Builder methods: control flow, raw and structured.
//!
//! Structured loops are built rotated: a test in front, the body, and the test again behind it, so that an iteration has one
//! branch and the induction variable is added to in place.

use super::builder::Builder;
use super::inst::{Target, Terminator};
use super::kernel::{Block, Class, Value};
use crate::types::{Kind, Type};
use crate::word::Word;

impl Builder {
    fn classes(&self, values: &[Value]) -> Vec<Class> {
        values.iter().map(|&value| self.kernel.class(value)).collect()
    }

    /// Ends the block with a jump.
    pub fn jump(&mut self, block: Block, args: &[Value]) {
        self.end(Terminator::Jump(Target { block, args: args.to_vec() }));
    }

    /// Ends the block with a branch; with a jump where the condition is known.
    pub fn branch(&mut self, condition: Value, then: (Block, &[Value]), otherwise: (Block, &[Value])) {
        if let Some(known) = self.kernel.constant(condition) {
            let (block, args) = if known == 1 { then } else { otherwise };
            return self.jump(block, args);
        }
        if let Some(inverse) = self.kernel.negated(condition) {
            return self.branch(inverse, otherwise, then);
        }
        let target = |(block, args): (Block, &[Value])| Target { block, args: args.to_vec() };
        self.end(Terminator::Branch { condition, then: target(then), otherwise: target(otherwise) });
    }

    /// Ends the block and the thread's run.
    pub fn ret(&mut self) {
        self.end(Terminator::Return);
    }

    /// Ends the block and the thread.
    pub fn exit(&mut self) {
        self.end(Terminator::Exit);
    }

    /// Ends the block with a fault.
    pub fn trap(&mut self) {
        self.end(Terminator::Trap);
    }

    /// Either of two: both arms give as many values of the same classes, which the call gives back. An arm may end the thread
    /// instead.
    pub fn if_(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Builder) -> Vec<Value>,
        otherwise: impl FnOnce(&mut Builder) -> Vec<Value>,
    ) -> Vec<Value> {
        let (yes, no) = (self.new_block(&[]), self.new_block(&[]));
        self.branch(condition, (yes, &[]), (no, &[]));
        self.switch_to(yes);
        let first = then(self);
        let first_end = (!self.is_ended()).then(|| self.current_block());
        self.switch_to(no);
        let second = otherwise(self);
        let second_end = (!self.is_ended()).then(|| self.current_block());
        let classes = self.classes(if first_end.is_some() { &first } else { &second });
        let join = self.new_block(&classes);
        for (end, values) in [(first_end, first), (second_end, second)] {
            if let Some(block) = end {
                self.switch_to(block);
                self.jump(join, &values);
            }
        }
        self.switch_to(join);
        self.block_params(join)
    }

    /// Something that is done only where the condition is true.
    pub fn when(&mut self, condition: Value, then: impl FnOnce(&mut Builder)) {
        let (yes, join) = (self.new_block(&[]), self.new_block(&[]));
        self.branch(condition, (yes, &[]), (join, &[]));
        self.switch_to(yes);
        then(self);
        if !self.is_ended() {
            self.jump(join, &[]);
        }
        self.switch_to(join);
    }

    /// `for i in lo, lo + step, ... while i < hi`, with values carried around: the body takes the index and the carried values
    /// and gives the next ones; the call gives the last ones. The type (`S32`, `U32`, `S64`, `U64`) is the index's; the step
    /// is positive, and `hi + step` must not overflow.
    pub fn for_(
        &mut self,
        ty: Type,
        (lo, hi, step): (Value, Value, Value),
        carried: &[Value],
        body: impl FnOnce(&mut Builder, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        if ty.kind() != Kind::Int {
            self.fail(format!("a loop's index cannot be `.{ty}`"));
        }
        let classes = self.classes(carried);
        let exit = self.new_block(&classes);
        let first = [&[lo], carried].concat();
        let with_index = self.classes(&first);
        let head = self.new_block(&with_index);
        let enters = self.setp(Word::Lt, ty, lo, hi);
        self.branch(enters, (head, &first), (exit, carried));
        self.switch_to(head);
        let params = self.block_params(head);
        let next = body(self, params[0], &params[1..]);
        let index = self.add(ty, params[0], step);
        self.mark_exact(index);
        let again = self.setp(Word::Lt, ty, index, hi);
        let all = [&[index][..], &next].concat();
        self.branch(again, (head, &all), (exit, &next));
        self.switch_to(exit);
        self.block_params(exit)
    }

    /// Says of an integer sum that it does not wrap in the type it was built with. Of a loop's next index, compared with the
    /// bound by `lt` in that type, the optimiser then knows the range.
    pub fn mark_exact(&mut self, sum: Value) {
        if let Some(inst) = self.kernel.definition(sum) {
            self.kernel.inst_mut(inst).exact = true;
        }
    }

    /// Repeats a body while its condition is true, the first time unconditionally: the body takes the carried values and gives
    /// the condition and the next ones; the call gives the last ones.
    pub fn repeat_while(
        &mut self,
        carried: &[Value],
        body: impl FnOnce(&mut Builder, &[Value]) -> (Value, Vec<Value>),
    ) -> Vec<Value> {
        let classes = self.classes(carried);
        let (head, exit) = (self.new_block(&classes), self.new_block(&classes));
        self.jump(head, carried);
        self.switch_to(head);
        let params = self.block_params(head);
        let (again, next) = body(self, &params);
        self.branch(again, (head, &next), (exit, &next));
        self.switch_to(exit);
        self.block_params(exit)
    }

    /// `while test { body }`: both take the carried values; the test gives a predicate, the body the next values; the call
    /// gives the values for which the test failed.
    pub fn while_(
        &mut self,
        carried: &[Value],
        test: impl FnOnce(&mut Builder, &[Value]) -> Value,
        body: impl FnOnce(&mut Builder, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let classes = self.classes(carried);
        let (head, inside, exit) = (self.new_block(&classes), self.new_block(&[]), self.new_block(&[]));
        self.jump(head, carried);
        self.switch_to(head);
        let params = self.block_params(head);
        let goes_on = test(self, &params);
        self.branch(goes_on, (inside, &[]), (exit, &[]));
        self.switch_to(inside);
        let next = body(self, &params);
        if !self.is_ended() {
            self.jump(head, &next);
        }
        self.switch_to(exit);
        params
    }
}
