//! What a call gives, from the types and shapes of its arrays alone: nothing of them has to be in memory.
//!
//! ```
//! use tessera_ops::{Outline, OutlineCall, find};
//! use tessera_types::DType;
//! let softmax = find("softmax").expect("an operator");
//! let x = Outline { name: "x", dtype: DType::BF16, shape: &[8, 1000] };
//! let gives = softmax.outline(&OutlineCall { arrays: vec![x], ..OutlineCall::default() })?;
//! assert_eq!((gives[0].name, gives[0].dtype, &gives[0].shape[..]), ("y", DType::BF16, &[8, 1000][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use tessera_types::DType;

use crate::call::{CallError, OutputArray};
use crate::operator::{Machine, Operator};
use crate::signature::{Operand, Signature, Sizes};
use crate::tuned::Planned;

/// An array of which the name, the type and the shape are known.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: &'a [usize],
}

/// A call of which nothing is in memory.
#[derive(Clone, Debug, Default)]
pub struct OutlineCall<'a> {
    /// Which of the operator's variants; the default one when absent.
    pub variant: Option<&'a str>,
    /// Arrays by name.
    pub arrays: Vec<Outline<'a>>,
    /// Numbers by name; those that are absent have the suite's values.
    pub scalars: Vec<(&'a str, f64)>,
    /// Sizes of axes that no input has, by name: a call on arrays is given the results that have these.
    pub sizes: Vec<(&'a str, Vec<usize>)>,
    /// The type of the first result, where there is a choice, and where no array says one.
    pub result: Option<DType>,
}

impl Operator {
    /// The results of a call, in the operator's order, as it would give them on the CPU; types and shapes are those of any device.
    ///
    /// # Errors
    /// What [`Operator::resolve`] refuses, but for devices and what arrays hold; an axis of a result that nothing says.
    pub fn outline(&'static self, call: &OutlineCall<'_>) -> Result<Vec<OutputArray>, CallError> {
        let (variant, signature) = self.signature(call.variant)?;
        let names: Vec<&str> = call.arrays.iter().map(|array| array.name).collect();
        self.refuse_unknown(&names, &call.scalars, variant, &signature)?;
        signature.refuse_numbers(&call.scalars)?;
        self.refuse_unread(&names, &call.scalars, variant, &signature)?;
        let find = |operand: Operand| call.arrays.iter().find(|array| array.name == operand.name());
        let given: Vec<(Operand, &Outline<'_>)> =
            signature.arrays().filter_map(|operand| Some((operand, find(operand)?))).collect();
        // What has a type of its own does not say what the others hold.
        let says_type =
            |(operand, _): &&(Operand, &Outline<'_>)| !signature.types.iter().any(|(name, _)| *name == operand.name());
        let first = given.iter().find(says_type).or(given.first()).map(|(operand, array)| (*operand, array.dtype));
        for &(operand, array) in &given {
            first.iter().try_for_each(|first| self.refuse_type(&signature, *first, (operand, array.dtype)))?;
        }
        let written = signature.outputs[0].name();
        let dtype = first.map(|(_, dtype)| dtype).or(call.result);
        let dtype = dtype.ok_or_else(|| self.wrong(variant, &signature, written, "not given, and nothing else says its type"))?;
        let mut sizes = Sizes::new(variant, dtype);
        given.iter().try_for_each(|(operand, array)| sizes.bind(*operand, array.shape))?;
        for (axis, extents) in &call.sizes {
            let own = signature.own_axes().find(|own| own == axis);
            let own = own.ok_or_else(|| self.wrong(variant, &signature, axis, "no axis of results alone"))?;
            if sizes.knows(own) {
                return Err(self.wrong(variant, &signature, axis, "said by an array, or twice"));
            }
            let is_open = signature.outputs.iter().flat_map(Operand::axes).any(|axis| axis.strip_prefix("..") == Some(own));
            if !is_open && extents.len() != 1 {
                return Err(self.wrong(variant, &signature, axis, "an axis of one size"));
            }
            sizes.say(own, extents);
        }
        for output in signature.outputs {
            let known = output.axes().all(|axis| sizes.knows(axis) || signature.is_following(axis));
            if !known {
                return Err(self.wrong(variant, &signature, output.name(), "not given, and nothing else says how large it is"));
            }
        }
        let problem = self.problem_of(&signature, &mut sizes, &call.scalars)?;
        let wanted = call.result.or_else(|| signature.outputs.first().and_then(|output| find(*output)).map(|array| array.dtype));
        let policy = self.policy_of(dtype, wanted)?;
        let Planned { mut plan, .. } = self.plan_with(&problem, policy, Machine::Cpu, None)?;
        self.set_scalars(&mut plan, &call.scalars)?;
        let outputs: Vec<OutputArray> =
            signature.outputs.iter().map(|operand| OutputArray::of(*operand, &plan, &sizes)).collect();
        for (at, (operand, output)) in signature.outputs.iter().zip(&outputs).enumerate() {
            self.refuse_output_type(output, find(*operand).map(|array| array.dtype), dtype)?;
            self.refuse_output_type(output, call.result.filter(|_| at == 0), dtype)?;
        }
        Ok(outputs)
    }
}

impl Signature {
    /// The axes that outputs alone have and that do not follow from the problem, without dots.
    pub fn own_axes(&self) -> impl Iterator<Item = &'static str> {
        let of_outputs = self.outputs.iter().flat_map(Operand::axes).map(|axis| axis.trim_start_matches('.'));
        let of_inputs = |axis: &str| self.inputs.iter().flat_map(Operand::axes).any(|own| own.trim_start_matches('.') == axis);
        of_outputs.filter(move |axis| axis.parse::<usize>().is_err() && !of_inputs(axis) && !self.is_following(axis))
    }

    /// Whether the extent of an axis follows from the problem.
    pub fn is_following(&self, axis: &str) -> bool {
        self.follows.iter().any(|(own, _)| *own == axis)
    }
}

#[cfg(test)]
mod tests {
    use tessera_runtime::Tensor;

    use super::*;
    use crate::{Call, find};

    fn gives(name: &str, call: &OutlineCall<'_>) -> String {
        let said = find(name).unwrap().outline(call).map(|outputs| {
            let shown = |output: &OutputArray| format!("{}: {} {:?}", output.name, output.dtype, output.shape);
            outputs.iter().map(shown).collect::<Vec<_>>().join(", ")
        });
        said.unwrap_or_else(|error| error.to_string())
    }

    /// What a call on arrays in memory says, too: its refusal, where both refuse.
    fn both_refuse(name: &str, call: &OutlineCall<'_>) -> String {
        let tensors = call.arrays.iter().map(|array| (array.name, Tensor::zeros(array.dtype, array.shape).unwrap())).collect();
        let call_on_arrays = Call { variant: call.variant, tensors, scalars: call.scalars.clone(), lock: None };
        let operator = find(name).unwrap();
        let said = operator.resolve(&call_on_arrays).expect_err("a call that is refused").to_string();
        assert_eq!(operator.outline(call).expect_err("an outline that is refused").to_string(), said);
        said
    }

    #[test]
    fn an_outline_refuses_what_a_call_refuses() {
        let of = |name, dtype, shape| Outline { name, dtype, shape };
        let square = |name| of(name, DType::BF16, &[4, 4]);
        let products = vec![square("A"), square("B")];
        let call = OutlineCall { arrays: products.clone(), scalars: vec![("beta", 0.5)], ..OutlineCall::default() };
        assert!(both_refuse("gemm", &call).contains("`C` is not given, but read as well"));
        let given = products.into_iter().chain([of("C", DType::F64, &[4, 4])]).collect();
        let call = OutlineCall { arrays: given, ..OutlineCall::default() };
        assert_eq!(both_refuse("gemm", &call), "`C` holds `f64`, and gemm of `bf16` gives `f32`");
        let rows = [of("k", DType::F16, &[2, 1, 4]), of("v", DType::F16, &[2, 1, 4]), of("slots", DType::I32, &[2])];
        let call = OutlineCall { arrays: rows.to_vec(), ..OutlineCall::default() };
        assert!(both_refuse("kv_append", &call).contains("`k_cache` is not given, but read as well"));
        let second =
            vec![of("x", DType::BF16, &[5, 100]), of("values", DType::BF16, &[5, 7]), of("indices", DType::I64, &[5, 7])];
        let said = both_refuse("top_k", &OutlineCall { arrays: second, ..OutlineCall::default() });
        assert!(said.contains("`indices` holds `i64`"), "{said}");
    }

    #[test]
    fn axes_follow_from_numbers_and_from_sizes() {
        let (x, weight) = (Outline { name: "x", dtype: DType::F16, shape: &[2, 3, 9, 8] }, [4, 3, 3, 3]);
        let weight = Outline { name: "weight", dtype: DType::F16, shape: &weight };
        let call = OutlineCall { arrays: vec![x, weight], scalars: vec![("stride", 2.0)], ..OutlineCall::default() };
        assert_eq!(gives("conv2d", &call), "y: f16 [2, 4, 4, 3]");
        let square = |name| Outline { name, dtype: DType::BF16, shape: &[4, 4] };
        let call = OutlineCall { arrays: vec![square("A"), square("B")], ..OutlineCall::default() };
        assert_eq!(gives("gemm", &call), "C: f32 [4, 4]");
        let call = OutlineCall { result: Some(DType::BF16), ..call };
        assert_eq!(gives("gemm", &call), "C: bf16 [4, 4]");
        let call = OutlineCall { result: Some(DType::F64), ..call };
        assert_eq!(gives("gemm", &call), "`C` holds `f64`, and gemm of `bf16` gives `f32`");
        let rows = Outline { name: "x", dtype: DType::BF16, shape: &[5, 100] };
        let call = OutlineCall { arrays: vec![rows], ..OutlineCall::default() };
        assert!(gives("top_k", &call).contains("`values` is not given, and nothing else says how large it is"));
        let call = OutlineCall { sizes: vec![("k", vec![7])], ..call };
        assert_eq!(gives("top_k", &call), "values: bf16 [5, 7], indices: i32 [5, 7]");
        let call = OutlineCall { sizes: vec![("n", vec![7])], ..call };
        assert!(gives("top_k", &call).contains("`n` is no axis of results alone"));
        let call = OutlineCall { result: Some(DType::F64), sizes: vec![("n", vec![2, 3])], ..OutlineCall::default() };
        assert_eq!(gives("random_uniform", &call), "y: f64 [2, 3]");
    }
}
