//! What recipes said about a function: which one took it, and why each one asked before did not.
//!
//! A recipe is a function that yields its result or a [`Reason`]; [`Remarks::ask`] notes either. Reasons say what the predicate
//! looked for and did not find, in words of the kernel's source, so that its writer can change that.
//!
//! ```
//! use tessera_compile::tile::{Reason, Remarks};
//!
//! let mut remarks = Remarks::default();
//! let refused = remarks.ask("roles", || Err::<u32, Reason>("no loop holds a product".into()));
//! assert_eq!(refused, None);
//! assert_eq!(remarks.ask("generic", || Ok(4)), Some(4));
//! assert_eq!(remarks.chosen(), Some("generic"));
//! assert_eq!(remarks.asked[0].refusal.as_ref().unwrap().text, "no loop holds a product");
//! ```

use std::borrow::Cow;

use tessera_ir::Span;

/// Why a recipe does not take a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What is missing or in the way.
    pub text: Cow<'static, str>,
    /// The operation that it is about.
    pub span: Option<Span>,
}

impl Reason {
    /// A reason with its place.
    pub fn at(text: impl Into<Cow<'static, str>>, span: impl Into<Option<Span>>) -> Reason {
        Reason { text: text.into(), span: span.into() }
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Reason {
        Reason::at(text, None)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason::at(text, None)
    }
}

/// One recipe's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The recipe.
    pub recipe: &'static str,
    /// Why it did not take the function; `None` where it did.
    pub refusal: Option<Reason>,
}

/// The answers in the order in which recipes were asked, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// One entry a recipe that was asked.
    pub asked: Vec<Remark>,
}

impl Remarks {
    /// Asks a recipe and notes what it said.
    pub fn ask<T>(&mut self, recipe: &'static str, answer: impl FnOnce() -> Result<T, Reason>) -> Option<T> {
        let (taken, refusal) = match answer() {
            Ok(taken) => (Some(taken), None),
            Err(reason) => (None, Some(reason)),
        };
        self.asked.push(Remark { recipe, refusal });
        taken
    }

    /// The recipe that took the function.
    pub fn chosen(&self) -> Option<&'static str> {
        self.asked.iter().find(|remark| remark.refusal.is_none()).map(|remark| remark.recipe)
    }
}
