//! What is wrong with a piece of PTX, and where.

/// An error in PTX text or in a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct PtxError {
    /// Line in the text, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was expected and what was found.
    pub message: String,
}

impl PtxError {
    /// The error below its source line, with a caret.
    pub fn render(&self, text: &str) -> String {
        let source = text.lines().nth(self.line.saturating_sub(1) as usize).unwrap_or("").replace('\t', " ");
        let gutter = self.line.to_string();
        let space = " ".repeat(self.column.saturating_sub(1) as usize);
        let pad = " ".repeat(gutter.len());
        format!("error: {}\n{pad} |\n{gutter} | {source}\n{pad} | {space}^\n", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_the_column() {
        let error = PtxError { line: 2, column: 5, message: "no".into() };
        assert_eq!(error.render("a\n    bad\n"), "error: no\n  |\n2 |     bad\n  |     ^\n");
    }
}
