//! Sizes by name in what a kernel is launched on.
//!
//! `--sizes m=1024..8192*2,n=1,8` names sizes. In `x=randn:bf16[m,2*n]`, in `N=cdiv(n,16)` and in `--grid 'cdiv(m,128),n'` their numbers
//! stand for them, one row for each combination. There are `+ - * // %`, `cdiv`, `min` and `max`.

use crate::failure::Failure;

/// Rows of one command at most.
const MOST_ROWS: usize = 1000;
/// Parentheses in each other at most.
const MOST_DEPTH: usize = 64;

/// A number for each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents(Vec<(String, u64)>);

impl Extents {
    /// Every combination, the last name's values following each other.
    pub(crate) fn combinations(given: &[(String, Vec<u64>)]) -> Result<Vec<Extents>, Failure> {
        let rows = given.iter().try_fold(1usize, |rows, (_, values)| rows.checked_mul(values.len()));
        if rows.is_none_or(|rows| rows > MOST_ROWS) {
            return Err(Failure::usage(format!("`--sizes` has more than {MOST_ROWS} combinations\nhelp: take larger steps")));
        }
        let mut all = vec![Extents::default()];
        for (name, values) in given {
            let with = |row: &Extents, value: u64| Extents([&row.0[..], &[(name.clone(), value)]].concat());
            all = all.iter().flat_map(|row| values.iter().map(move |&value| with(row, value))).collect();
        }
        Ok(all)
    }

    /// Names with their numbers.
    pub(crate) fn named(&self) -> &[(String, u64)] {
        &self.0
    }

    /// The first name that stands in none of the texts.
    pub(crate) fn unused(&self, texts: &[&str]) -> Option<&str> {
        let used = |name: &str| texts.iter().any(|text| words(text).any(|word| word == name));
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !used(name))
    }

    /// An argument with numbers for names: in an array's sizes, or where its value is made of them.
    pub(crate) fn argument(&self, text: &str) -> Result<String, Failure> {
        let Some((name, value)) = text.split_once('=').filter(|_| !self.0.is_empty()) else { return Ok(text.to_string()) };
        let wrong =
            |why: String| Failure::usage(format!("`{text}`: {why}\nhelp: name sizes in `--sizes`, such as `--sizes m=1024`"));
        if value.starts_with(['@', '\'', '"']) {
            return Ok(text.to_string());
        }
        if !value.contains(['[', ':']) {
            let is_made = words(value).any(|word| self.0.iter().any(|(own, _)| own == word));
            return if is_made { Ok(format!("{name}={}", self.evaluate(value).map_err(wrong)?)) } else { Ok(text.to_string()) };
        }
        // Sizes stand in brackets right behind an element type; a list of arrays has brackets behind `=`.
        let (mut filled, mut rest) = (String::new(), value);
        while let Some(open) = rest.find('[') {
            let (before, inside) = rest.split_at(open + 1);
            filled.push_str(before);
            rest = inside;
            let is_shape = before[..open].ends_with(|c: char| c.is_alphanumeric());
            if let (true, Some(close)) = (is_shape, inside.find(']')) {
                filled.push_str(&self.list(&inside[..close]).map_err(wrong)?);
                rest = &inside[close..];
            }
        }
        Ok(format!("{name}={filled}{rest}"))
    }

    /// A grid with numbers for names.
    pub(crate) fn grid(&self, text: &str) -> Result<String, Failure> {
        if self.0.is_empty() || text == "auto" {
            return Ok(text.to_string());
        }
        self.list(text).map_err(|why| Failure::usage(format!("`--grid {text}`: {why}\nhelp: such as `cdiv(m,128),n`")))
    }

    /// Numbers between commas that stand in no parentheses.
    fn list(&self, text: &str) -> Result<String, String> {
        let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
        for (at, c) in text.char_indices() {
            depth += i32::from(c == '(') - i32::from(c == ')');
            if c == ',' && depth == 0 {
                parts.push(&text[start..at]);
                start = at + 1;
            }
        }
        if !text[start..].trim().is_empty() {
            parts.push(&text[start..]);
        }
        let numbers: Vec<String> =
            parts.iter().map(|part| self.evaluate(part).map(|it| it.to_string())).collect::<Result<_, _>>()?;
        Ok(numbers.join(","))
    }

    fn evaluate(&self, text: &str) -> Result<u64, String> {
        let mut reader = Reader { extents: self, left: text, depth: 0 };
        let value = reader.sum()?;
        match reader.left.trim() {
            "" => Ok(value),
            rest if rest.starts_with('/') => Err("a size is a whole number: `//` rounds down, `cdiv(a,b)` up".to_string()),
            rest => Err(format!("`{rest}` is not understood")),
        }
    }
}

/// Words of letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Reads an expression from left to right.
struct Reader<'a> {
    extents: &'a Extents,
    left: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn take(&mut self, mark: &str) -> bool {
        match self.left.trim_start().strip_prefix(mark) {
            Some(rest) => {
                self.left = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Result<u64, String> {
        let mut value = self.product()?;
        loop {
            let of = match () {
                () if self.take("+") => u64::checked_add,
                () if self.take("-") => u64::checked_sub,
                () => return Ok(value),
            };
            value = of(value, self.product()?).ok_or("a size is from 0 on and fits 64 bits")?;
        }
    }

    fn product(&mut self) -> Result<u64, String> {
        let mut value = self.number()?;
        loop {
            let (of, why): (fn(u64, u64) -> Option<u64>, _) = match () {
                () if self.take("*") => (u64::checked_mul, "a size fits 64 bits"),
                () if self.take("//") => (u64::checked_div, "nothing is divided by 0"),
                () if self.take("%") => (u64::checked_rem, "nothing is divided by 0"),
                () => return Ok(value),
            };
            value = of(value, self.number()?).ok_or(why)?;
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err("the parentheses nest too deeply".to_string());
        }
        let value = self.atom();
        self.depth -= 1;
        value
    }

    fn atom(&mut self) -> Result<u64, String> {
        if self.take("(") {
            let value = self.sum()?;
            return if self.take(")") { Ok(value) } else { Err("expected `)`".to_string()) };
        }
        let left = self.left.trim_start();
        let word = words(left).next().unwrap_or_default();
        self.left = &left[word.len()..];
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.replace('_', "").parse().map_err(|_| format!("`{word}` is not a number"));
        }
        let of: fn(u64, u64) -> Option<u64> = match word {
            "cdiv" => |a, b| (b != 0).then(|| a.div_ceil(b)),
            "min" => |a, b| Some(a.min(b)),
            "max" => |a, b| Some(a.max(b)),
            "" => return Err("expected a size".to_string()),
            name => {
                let found = self.extents.0.iter().find(|(own, _)| own == name);
                return found.map(|(_, value)| *value).ok_or_else(|| format!("there is no size `{name}`"));
            }
        };
        if !self.take("(") {
            return Err(format!("expected `(` behind `{word}`"));
        }
        let first = self.sum()?;
        let second = if self.take(",") { self.sum()? } else { return Err(format!("`{word}` takes two numbers")) };
        if !self.take(")") {
            return Err("expected `)`".to_string());
        }
        of(first, second).ok_or_else(|| "nothing is divided by 0".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents() -> Extents {
        Extents(vec![("m".into(), 1000), ("n".into(), 6)])
    }

    #[test]
    fn names_become_numbers() {
        let extents = extents();
        let filled = |text: &str| extents.argument(text).map_err(|failure| failure.text).expect("understood");
        assert_eq!(filled("x=randn:bf16[m,2*(n+1)];seed=3"), "x=randn:bf16[1000,14];seed=3");
        assert_eq!(filled("xs=[ones:f32[m],ones:f32[min(m,n),7]]"), "xs=[ones:f32[1000],ones:f32[6,7]]");
        assert_eq!(filled("N=cdiv(m,16)*16"), "N=1008");
        assert_eq!(filled("eps=1e-5"), "eps=1e-5");
        assert_eq!(filled("x=@m.npy"), "x=@m.npy");
        assert_eq!(filled("mode='n'"), "mode='n'");
        assert_eq!(extents.grid("cdiv(m, 128),n - 4,1").expect("a grid"), "8,2,1");
        assert_eq!(Extents::default().grid("4,5").expect("a grid"), "4,5");
        assert_eq!(extents.unused(&["x=ones:f32[m]", "cdiv(m,2)"]), Some("n"));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, wanted) in [
            ("x=ones:f32[q]", "there is no size `q`"),
            ("x=ones:f32[m/2]", "`//` rounds down"),
            ("x=ones:f32[n-m]", "a size is from 0 on"),
            ("x=ones:f32[m//0]", "nothing is divided by 0"),
            ("x=ones:f32[cdiv(m)]", "`cdiv` takes two numbers"),
            ("x=ones:f32[(m]", "expected `)`"),
            ("N=m m", "`m` is not understood"),
            ("N=m+", "expected a size"),
        ] {
            let told = extents().argument(text).expect_err("refused").text;
            assert!(told.contains(wanted), "{text}: {told}");
        }
        let deep = format!("N={}m{}", "(".repeat(1000), ")".repeat(1000));
        assert!(extents().argument(&deep).expect_err("refused").text.contains("nest too deeply"));
    }

    #[test]
    fn combinations_are_rows() {
        let rows = Extents::combinations(&[("m".into(), vec![1, 2]), ("n".into(), vec![3, 4])]).expect("few");
        let told: Vec<String> = rows.iter().map(|row| row.grid("m,n").expect("a grid")).collect();
        assert_eq!(told, ["1,3", "1,4", "2,3", "2,4"]);
        let many: Vec<u64> = (0..100).collect();
        assert!(Extents::combinations(&[("m".into(), many.clone()), ("n".into(), many)]).is_err());
    }
}
