//! Files of the kernel language that those of several operators import, beside which they lie.

use tessera_runtime::{ModuleText, Modules, Wanted};

/// The name and the text of each.
const FILES: [(&str, &str); 2] =
    [("partial.py", include_str!("../kernels/partial.py")), ("pieces.py", include_str!("../kernels/pieces.py"))];

/// Finds them: `from .pieces import leave` is about `pieces.py`.
#[derive(Clone, Copy, Debug)]
pub struct SharedFiles;

impl Modules for SharedFiles {
    fn find(&self, wanted: Wanted<'_>) -> Result<ModuleText, Vec<String>> {
        let file = FILES.iter().find(|(name, _)| wanted.level == 1 && name.strip_suffix(".py") == Some(wanted.path));
        file.map(|(name, text)| ModuleText::of_file(*name, *text)).ok_or_else(|| vec!["the library's own files".to_string()])
    }
}
