//! How an operator is called on arrays that there are: names for its arrays and for their axes.
//!
//! `x[..rows, keys]` is an array whose last axis is `keys`; `..rows` are the axes before it, as many as there are. A name has one
//! size, or one row of sizes, in all arrays of a call, from which the extents of a [`Problem`] follow:
//!
//! | operand | shape | says |
//! |---|---|---|
//! | `A[..batch, m, k]` | `[3, 64, 32]` | `batch` is `[3]`, `m` 64, `k` 32 |
//! | `B[..batch, k, n]` | `[3, 32, 10]` | `n` 10; `batch` and `k` agree |
//! | `C[..batch, m, n]` | | is `[3, 64, 10]` |

mod values;

use std::fmt;

use tessera_types::DType;

use crate::call::CallError;
use crate::operator::Unsupported;
use crate::problem::Problem;

pub(crate) use self::values::{ClassAxis, Indices, Labels, Pages, Rows, pair_at};

/// An array of a call: its name, that of the plan's tensor; and names of its axes with spaces between. A number is the size itself,
/// two dots before the first name stand for any number of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand(pub(crate) &'static str, pub(crate) &'static str);

impl Operand {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.0
    }

    /// The names of its axes; a number is the size itself, and `..rows` stands for any number of axes.
    pub fn axes(&self) -> impl DoubleEndedIterator<Item = &'static str> {
        self.1.split(' ').filter(|axis| !axis.is_empty())
    }

    /// Its shape for known sizes.
    pub(crate) fn shape(&self, sizes: &Sizes) -> Vec<usize> {
        self.axes().flat_map(|axis| sizes.of(axis.trim_start_matches('.')).to_vec()).collect()
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}[{}]`", self.0, self.axes().collect::<Vec<_>>().join(", "))
    }
}

/// The arrays and numbers of one variant.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// What is read.
    pub inputs: &'static [Operand],
    /// What is written; made where it is not given.
    pub outputs: &'static [Operand],
    /// Numbers that have a value when they are not given.
    pub scalars: &'static [&'static str],
    /// Arrays that hold a type of their own, by name, and not that of the first one that is not among them.
    pub types: &'static [(&'static str, DType)],
    /// Arrays that hold what sums are kept in, by name: `f64` beside arrays of `f64`, else `f32`.
    pub sums: &'static [&'static str],
    /// The scalar that has the first output read, too, where it is not 0.
    pub rereads: Option<&'static str>,
    /// Outputs that are read as well, and given therefore.
    pub updated: &'static [&'static str],
    /// Arrays that say where groups of rows begin, and the one whose rows they are: each rises from 0 to how many these are.
    pub bounds: &'static [[&'static str; 2]],
    /// The array that has a class for each row.
    pub(crate) labels: Option<Labels>,
    /// Arrays of numbers of rows.
    pub(crate) indices: &'static [Indices],
    /// The arrays that say in which pages rows of sequences lie.
    pub(crate) pages: Option<Pages>,
    /// The array that says where two of each four neighbours stand.
    pub(crate) fours: Option<&'static str>,
    /// Numbers that are more than 0.
    pub(crate) positive: &'static [&'static str],
    /// Two numbers, with their usual values, of which the first is less.
    pub(crate) rising: Option<[(&'static str, f64); 2]>,
    /// Axes whose extents follow from the problem, numbers included, as an image's behind a convolution.
    pub(crate) follows: &'static [Follows],
}

/// Whether a number is one of a kind.
type IsOne = fn(f64) -> bool;

/// Numbers that are one kind of number wherever they occur: in words, and whether a value is one as launches are given it, in 32 bits.
const KINDS: [(&str, &str, IsOne); 3] = [
    ("eps", "a finite number of 0 or more", |value| value >= 0.0 && (value as f32).is_finite()),
    ("momentum", "a share from 0 to 1", |value| (0.0..=1.0).contains(&value)),
    ("theta", "a finite number of more than 0", |value| value as f32 > 0.0 && (value as f32).is_finite()),
];

/// An axis and its extent in a problem.
pub(crate) type Follows = (&'static str, fn(&Problem) -> Result<u64, Unsupported>);

impl Signature {
    /// Without numbers.
    pub(crate) const fn new(inputs: &'static [Operand], outputs: &'static [Operand]) -> Signature {
        Signature {
            inputs,
            outputs,
            scalars: &[],
            types: &[],
            sums: &[],
            rereads: None,
            updated: &[],
            bounds: &[],
            labels: None,
            indices: &[],
            pages: None,
            fours: None,
            positive: &[],
            rising: None,
            follows: &[],
        }
    }

    /// With arrays of types of their own.
    pub(crate) const fn types(self, types: &'static [(&'static str, DType)]) -> Signature {
        Signature { types, ..self }
    }

    /// The extent of an axis that follows from the problem.
    ///
    /// # Errors
    /// Where nothing follows, as behind a window that has no place in an image.
    pub fn following(&self, axis: &str, problem: &Problem) -> Result<Option<usize>, Unsupported> {
        let own = self.follows.iter().find(|(own, _)| *own == axis);
        own.map(|(_, extent)| extent(problem).map(|extent| extent as usize)).transpose()
    }

    /// With axes whose extents follow from the problem.
    pub(crate) const fn follows(self, follows: &'static [Follows]) -> Signature {
        Signature { follows, ..self }
    }

    /// With arrays of the type that sums are kept in.
    pub(crate) const fn sums(self, sums: &'static [&'static str]) -> Signature {
        Signature { sums, ..self }
    }

    /// The type of an array that does not hold the first one's.
    pub(crate) fn own_type(&self, name: &str, first: DType) -> Option<DType> {
        let sums = if first == DType::F64 { DType::F64 } else { DType::F32 };
        let own = self.types.iter().find_map(|&(own, dtype)| (own == name).then_some(dtype));
        own.or_else(|| self.sums.contains(&name).then_some(sums))
    }

    /// With outputs that are changed in place.
    pub(crate) const fn updated(self, updated: &'static [&'static str]) -> Signature {
        Signature { updated, ..self }
    }

    /// With arrays of bounds, and the array whose rows lie between each one's.
    pub(crate) const fn bounds(self, bounds: &'static [[&'static str; 2]]) -> Signature {
        Signature { bounds, ..self }
    }

    /// With an array of labels.
    pub(crate) const fn labels(self, labels: Labels) -> Signature {
        Signature { labels: Some(labels), ..self }
    }

    /// With arrays of numbers of rows.
    pub(crate) const fn indices(self, indices: &'static [Indices]) -> Signature {
        Signature { indices, ..self }
    }

    /// With arrays of pages.
    pub(crate) const fn pages(self, pages: Pages) -> Signature {
        Signature { pages: Some(pages), ..self }
    }

    /// With an array of places of fours.
    pub(crate) const fn fours(self, places: &'static str) -> Signature {
        Signature { fours: Some(places), ..self }
    }

    /// With numbers that are more than 0.
    pub(crate) const fn positive(self, positive: &'static [&'static str]) -> Signature {
        Signature { positive, ..self }
    }

    /// With two numbers, and their usual values, of which the first is less.
    pub(crate) const fn rising(self, numbers: [(&'static str, f64); 2]) -> Signature {
        Signature { rising: Some(numbers), ..self }
    }

    /// Refuses a number that has to be more than 0 and is not, as launches are given it, in 32 bits, those that are none of their kind, and two that do
    /// not rise.
    pub(crate) fn refuse_numbers(&self, scalars: &[(&str, f64)]) -> Result<(), CallError> {
        for &(name, value) in scalars {
            let wrong = KINDS.iter().find(|(own, _, is_one)| *own == name && !is_one(value));
            if let Some((_, kind, _)) = wrong {
                return Err(CallError::Scalar { name: name.to_string(), value, why: format!("it is {kind}") });
            }
        }
        if let Some([low, high]) = self.rising {
            let value = |(own, usual)| scalars.iter().find(|(name, _)| *name == own).map_or(usual, |(_, value)| *value);
            let [(value, least), (other, most)] = [value(low), value(high)].map(|value| (value, value as f32));
            if !(least < most && least.is_finite() && most.is_finite()) {
                let why = format!("`{}` is {other}, and both are finite numbers of which the first is less, in 32 bits", high.0);
                return Err(CallError::Scalar { name: low.0.to_string(), value, why });
            }
        }
        let is_wrong = |(name, value): &&(&str, f64)| {
            let passed = *value as f32;
            self.positive.contains(name) && !(passed > 0.0 && passed.is_finite())
        };
        let Some(&(name, value)) = scalars.iter().find(is_wrong) else { return Ok(()) };
        let why = "it is a finite number of more than 0, in 32 bits: a factor that is not goes into an array".to_string();
        Err(CallError::Scalar { name: name.to_string(), value, why })
    }

    /// The arrays, those that are read first.
    pub fn arrays(&self) -> impl Iterator<Item = Operand> {
        self.inputs.iter().chain(self.outputs).copied()
    }

    /// Whether an output has an axis that no input has and that does not follow from the problem: it is then given, since nothing else says how long that is.
    pub(crate) fn says_sizes(&self, output: Operand) -> bool {
        output.axes().any(|axis| self.own_axes().any(|own| own == axis.trim_start_matches('.')))
    }

    /// With numbers of these names.
    pub(crate) const fn scalars(self, scalars: &'static [&'static str]) -> Signature {
        Signature { scalars, ..self }
    }
}

/// How an operator is called.
pub struct Calls {
    /// What a call can be, where there are several kinds: `causal`, `nt`, `dot`.
    pub variants: &'static [&'static str],
    /// The variant of a call that names none.
    pub default: Option<&'static str>,
    /// The arrays of a variant.
    pub(crate) signature: fn(&str) -> Signature,
    /// The problem of known sizes.
    pub(crate) problem: fn(&Sizes) -> Result<Problem, Unsupported>,
}

/// Sizes by the names of axes, as the arrays of a call say them.
pub(crate) struct Sizes {
    pub(crate) variant: &'static str,
    pub(crate) dtype: DType,
    bound: Vec<Bound>,
}

/// The sizes of a name, and the array that says so.
struct Bound {
    name: &'static str,
    sizes: Vec<usize>,
    array: (Operand, Vec<usize>),
}

impl Sizes {
    pub(crate) fn new(variant: &'static str, dtype: DType) -> Sizes {
        Sizes { variant, dtype, bound: Vec::new() }
    }

    /// How many places the axes of a name have together.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.of(name).iter().map(|&size| size as u64).product()
    }

    fn of(&self, name: &str) -> Vec<usize> {
        match (name.parse(), self.bound.iter().find(|bound| bound.name == name)) {
            (Ok(size), _) => vec![size],
            (_, Some(bound)) => bound.sizes.clone(),
            // A call binds what its operands name.
            (Err(_), None) => Vec::new(),
        }
    }

    /// Takes the extent of an axis that follows from the problem; what an array says it is must be that.
    pub(crate) fn follow(&mut self, name: &'static str, extent: u64) -> Result<(), CallError> {
        let size = extent as usize;
        match self.bound.iter().find(|bound| bound.name == name) {
            Some(known) if known.sizes != [size] => {
                let operand = known.array.0;
                Err(CallError::Follows { axis: name, found: shown(&known.sizes), wanted: size, array: operand })
            }
            Some(_) => Ok(()),
            None => {
                self.bound.push(Bound { name, sizes: vec![size], array: (Operand(name, name), vec![size]) });
                Ok(())
            }
        }
    }

    /// Takes the sizes of an axis that no array has.
    pub(crate) fn say(&mut self, name: &'static str, sizes: &[usize]) {
        self.bound.push(Bound { name, sizes: sizes.to_vec(), array: (Operand(name, name), sizes.to_vec()) });
    }

    /// Whether an axis, as an operand names it, has its sizes.
    pub(crate) fn knows(&self, axis: &str) -> bool {
        let name = axis.trim_start_matches('.');
        name.parse::<usize>().is_ok() || self.bound.iter().any(|bound| bound.name == name)
    }

    /// Takes an array's sizes, or says with which other array they do not agree.
    pub(crate) fn bind(&mut self, operand: Operand, shape: &[usize]) -> Result<(), CallError> {
        let axes: Vec<&'static str> = operand.axes().collect();
        let is_open = axes.first().is_some_and(|axis| axis.starts_with(".."));
        let single = axes.len() - usize::from(is_open);
        if shape.len() < single || !is_open && shape.len() > single {
            return Err(CallError::Rank { operand, shape: shape.to_vec() });
        }
        let leading = shape.len() - single;
        let open = is_open.then(|| (axes[0].trim_start_matches('.'), &shape[..leading]));
        let rest = axes[usize::from(is_open)..].iter().copied().zip(shape[leading..].chunks(1));
        for (name, sizes) in open.into_iter().chain(rest) {
            match self.bound.iter().find(|bound| bound.name == name) {
                None if name.parse().is_ok_and(|size: usize| sizes != [size]) => {
                    return Err(CallError::Rank { operand, shape: shape.to_vec() });
                }
                None => self.bound.push(Bound { name, sizes: sizes.to_vec(), array: (operand, shape.to_vec()) }),
                Some(known) if known.sizes == sizes => {}
                Some(known) => {
                    return Err(CallError::Sizes {
                        axis: name,
                        sizes: [shown(&known.sizes), shown(sizes)],
                        arrays: Box::new([known.array.clone(), (operand, shape.to_vec())]),
                    });
                }
            }
        }
        Ok(())
    }
}

/// One size as a number, several as a list.
fn shown(sizes: &[usize]) -> String {
    match sizes {
        [size] => size.to_string(),
        sizes => format!("{sizes:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_size() {
        let mut sizes = Sizes::new("", DType::F32);
        sizes.bind(Operand("A", "..batch m k"), &[2, 3, 64, 32]).unwrap();
        sizes.bind(Operand("B", "..batch k n"), &[2, 3, 32, 10]).unwrap();
        assert_eq!((sizes.get("batch"), sizes.get("m"), sizes.get("n")), (6, 64, 10));
        assert_eq!(Operand("C", "..batch m n").shape(&sizes), [2, 3, 64, 10]);
        let wrong = |axes, shape: &[usize]| {
            let mut again = Sizes::new("", DType::F32);
            again.bind(Operand("A", "..batch m k"), &[64, 32]).unwrap();
            again.bind(Operand("B", axes), shape).unwrap_err().to_string()
        };
        assert_eq!(
            wrong("..batch k n", &[33, 10]),
            "`k` is 32 in `A` and 33 in `B`: `A[..batch, m, k]` has shape [64, 32], `B[..batch, k, n]` has shape [33, 10]"
        );
        assert!(wrong("..batch k n", &[4, 32, 10]).starts_with("`batch` is [] in `A` and 4 in `B`"));
        assert_eq!(wrong("k n", &[32]), "`B` has shape [32], and `B[k, n]` is wanted");
        assert_eq!(wrong("1", &[2]), "`B` has shape [2], and `B[1]` is wanted");
    }

    #[test]
    fn numbers_are_of_their_kind() {
        let said = |name, value| {
            let signature = Signature::new(&[], &[]).positive(&["scale"]);
            signature.refuse_numbers(&[("seed", -1.0), (name, value)]).map_err(|error| error.to_string())
        };
        assert_eq!(said("eps", -1e-6), Err("`eps` is -0.000001: it is a finite number of 0 or more".to_string()));
        assert_eq!(said("momentum", 2.0), Err("`momentum` is 2: it is a share from 0 to 1".to_string()));
        assert_eq!(said("theta", 0.0), Err("`theta` is 0: it is a finite number of more than 0".to_string()));
        for (name, right, wrong) in [
            ("eps", [0.0, 1e-300, 1.0], [f64::NAN, f64::INFINITY, 1e300]),
            ("momentum", [0.0, 0.1, 1.0], [f64::NAN, -0.1, 1.1]),
            ("theta", [1e-30, 1e4, 1e38], [-1.0, f64::NAN, 1e-300]),
            ("scale", [1e-30, 1.0, 1e38], [0.0, f64::INFINITY, 1e-300]),
        ] {
            assert!(right.iter().all(|&value| said(name, value).is_ok()), "{name}");
            assert!(wrong.iter().all(|&value| said(name, value).is_err()), "{name}");
        }
        let rising = |scalars: &[(&str, f64)]| {
            let signature = Signature::new(&[], &[]).rising([("least", -4.0), ("greatest", 4.0)]);
            signature.refuse_numbers(scalars).map_err(|error| error.to_string())
        };
        assert_eq!([rising(&[]), rising(&[("greatest", -3.0)]), rising(&[("least", 5.0), ("greatest", 6.0)])], [(); 3].map(Ok));
        let why = "both are finite numbers of which the first is less, in 32 bits";
        assert_eq!(rising(&[("least", 5.0)]), Err(format!("`least` is 5: `greatest` is 4, and {why}")));
        for wrong in [("least", f64::NAN), ("least", f64::NEG_INFINITY), ("greatest", 1e300), ("greatest", -4.0 + 1e-12)] {
            assert!(rising(&[wrong]).is_err(), "{wrong:?}");
        }
    }
}
