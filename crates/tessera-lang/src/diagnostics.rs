//! Every diagnostic of the language, one row each: its stable id and what it is about.
//!
//! A message is made where the mistake is found; the row gives it its name. [`ROWS`] is what a reference page lists and what
//! the tests walk: each id has a kernel in the corpus that provokes it.

/// One kind of diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnosticRow {
    /// Stable, kebab case.
    pub id: &'static str,
    /// One line.
    pub summary: &'static str,
}

macro_rules! diagnostics {
    ($($name:ident = $id:literal : $summary:literal;)*) => {
        /// The ids as constants.
        pub(crate) mod id {
            $( #[doc = $summary] pub(crate) const $name: &str = $id; )*
        }
        /// Every row.
        pub const ROWS: &[DiagnosticRow] = &[$( DiagnosticRow { id: $id, summary: $summary } ),*];
    };
}

diagnostics! {
    SYNTAX = "syntax-error": "the text is not Python";
    TOO_DEEP = "nested-too-deeply": "expressions, calls or blocks nest beyond a fixed limit";
    IGNORED = "ignored-code": "module-level code that no kernel can use (a note)";
    IMPORT = "import": "an import leads to no module, to no name, or round in a circle";
    UNSUPPORTED = "unsupported-syntax": "a Python construct that kernels can't use";
    NO_KERNEL = "no-such-kernel": "the file has no kernel of that name";
    KERNEL_OPTION = "kernel-option": "a decorator option is unknown or its value is out of range";
    MISSING_ARGUMENT = "missing-argument": "a kernel parameter got neither an argument nor a default";
    UNKNOWN_ARGUMENT = "unknown-argument": "an argument names no parameter";
    ARGUMENT_KIND = "argument-kind": "an argument is not of the kind that the parameter's annotation asks for";
    UNKNOWN_NAME = "unknown-name": "a name that is defined nowhere";
    UNKNOWN_ATTRIBUTE = "unknown-attribute": "a value has no attribute of that name";
    MAYBE_UNDEFINED = "maybe-undefined": "a variable is not assigned on every path that leads here";
    PATH_TYPE = "type-depends-on-path": "a variable has different types on the paths that lead here";
    LOOP_TYPE = "loop-type-change": "a variable changes its type inside a loop";
    CALL = "call-arguments": "a call's arguments don't fit the parameters";
    NOT_CALLABLE = "not-callable": "a value that is called is no function";
    ARGUMENT_TYPE = "argument-type": "an argument is of a kind that the function does not take";
    NOT_CONSTANT = "not-constant": "a value that must be known when the kernel is compiled is not";
    OPERAND_TYPE = "operand-type": "an operator does not take values of this kind";
    PROMOTION = "dtype-mismatch": "two element types have no common type, or a cast must be written out";
    BROADCAST = "shape-mismatch": "two shapes don't broadcast to a common shape";
    RANK = "rank-mismatch": "an index or shape has the wrong number of entries";
    POWER_OF_TWO = "not-power-of-two": "a tile extent is not a power of two in a `cuda.tile` kernel";
    SHAPE = "bad-shape": "a shape is empty, negative, too large or does not fit the elements";
    AXIS = "axis-out-of-range": "an axis is outside the rank";
    VALUE_RANGE = "value-out-of-range": "a constant is outside what is allowed here";
    CONSTANT_OVERFLOW = "constant-overflow": "a constant does not fit its element type";
    DIVISION_BY_ZERO = "division-by-zero": "a constant division by zero";
    CONDITION = "condition-type": "a condition is not a truth value or a scalar";
    DIRECT_INDEX = "direct-indexing": "a tile or array is indexed by number";
    IMMUTABLE = "immutable-value": "an item or attribute of a value is assigned";
    NOT_ITERABLE = "not-iterable": "a loop over something that is not a range or compile-time sequence";
    ENDLESS = "endless-loop": "a loop has no way out";
    UNPACK = "unpack-mismatch": "a tuple has another number of items than the names it is assigned to";
    RETURN_VALUE = "kernel-returns-value": "a kernel returns a value";
    MISPLACED = "misplaced-statement": "a statement or call stands where it is not allowed";
    RECURSION = "recursion-limit": "functions call each other too deeply";
    TOO_LARGE = "kernel-too-large": "unrolling or inlining makes too many operations";
    STATIC_ASSERT = "static-assertion": "a compile-time assertion fails";
    STATIC_EXCEPTION = "static-exception": "a kernel raises an exception at compile time";
    REDUCE_BODY = "combine-function": "the function of a reduction or scan does what it must not";
    ROUNDING = "rounding-mode": "an operation has no such rounding or flush mode for the type";
    MEMORY_MODEL = "memory-model": "a memory order or scope is not allowed here";
    ATOMIC_TYPE = "atomic-type": "an atomic operation has no form for the element type";
    MMA_TYPE = "mma-type": "a matrix product has no form for the element types";
    BIT_WIDTH = "bit-width": "element types of different width, or a bit count that does not fit whole elements";
    FORMAT = "format-string": "a format string does not fit its arguments";
    TENSOR = "tensor-annotation": "a `Tensor` annotation names no axes or element type";
    SYMBOL = "symbol-mismatch": "one axis name stands for two sizes";
    TRANSPOSE = "transpose-conflict": "an operand is used both as it is and transposed";
    TUNING = "tuning-space": "a tuning space is not understood, or no point of it is legal";
    CONFIG = "config-value": "a configuration names no choice of the schedule, or a value outside its space";
    BLOCK_SIZE = "block-size-clash": "two sources give a different number of threads a block";
    DIVERGENT = "divergent-barrier": "threads of one block can disagree about reaching a barrier";
    SHARED_MEMORY = "shared-memory": "an allocation is misplaced or exceeds what a block has";
    REFUSED = "refused-name": "a documented name that is not available in kernels";
}

#[cfg(test)]
mod tests {
    use super::ROWS;

    #[test]
    fn ids_are_unique_kebab_case() {
        let mut seen = std::collections::BTreeSet::new();
        for row in ROWS {
            assert!(seen.insert(row.id), "`{}` twice", row.id);
            assert!(row.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "`{}`", row.id);
            assert!(!row.summary.ends_with('.'));
        }
    }
}
