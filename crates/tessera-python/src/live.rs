//! The modules that a running program gives the compiler, see `tessera/_live.py`.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use tessera::lang::{ModuleText, Modules, Wanted};

/// A module: the file that messages name, its text, what they show in its place, and the module that has its names.
pub(crate) type Text = (String, String, Option<String>, Option<String>);

/// Texts by their modules' names.
pub(crate) struct Texts(BTreeMap<String, Text>);

impl Texts {
    pub(crate) fn new(modules: BTreeMap<String, Text>) -> Texts {
        Texts(modules)
    }

    pub(crate) fn get(&self, name: &str) -> Option<ModuleText> {
        let (file, text, shown, before) = self.0.get(name)?.clone();
        Some(ModuleText { name: name.to_owned(), file, text, shown, before })
    }
}

impl Modules for Texts {
    fn find(&self, wanted: Wanted<'_>) -> Result<ModuleText, Vec<String>> {
        let absolute = (wanted.level == 0).then(|| self.get(wanted.path)).flatten();
        absolute.ok_or_else(Vec::new)
    }
}

/// Refuses what is no module's text.
pub(crate) fn root(texts: &Texts, name: &str) -> PyResult<ModuleText> {
    texts.get(name).ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(format!("`{name}` is none of the modules")))
}
