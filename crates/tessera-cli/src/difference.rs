//! What changed between two texts, in the unified form that `diff -u` has: lines that went (`-`) and came (`+`), with three lines
//! around each change, and a line `@@` that says where they stand.

/// Lines around each change.
const AROUND: usize = 3;

/// The changes from one text to another; with colours where asked for.
pub(crate) fn difference(before: &str, after: &str, coloured: bool) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let lines = aligned(&before, &after);
    let changed: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].0 != ' ').collect();
    let mut text = String::new();
    let mut next = 0;
    while next < changed.len() {
        let start = changed[next].saturating_sub(AROUND);
        let mut end = changed[next];
        while next < changed.len() && changed[next] <= end + 2 * AROUND {
            end = changed[next];
            next += 1;
        }
        let hunk = &lines[start..(end + AROUND + 1).min(lines.len())];
        let count = |lines: &[(char, &str)], absent: char| lines.iter().filter(|line| line.0 != absent).count();
        let (old, new) = (count(&lines[..start], '+'), count(&lines[..start], '-'));
        let head = format!("@@ -{},{} +{},{} @@", old + 1, count(hunk, '+'), new + 1, count(hunk, '-'));
        push(&mut text, '@', &head, coloured);
        for (mark, line) in hunk {
            push(&mut text, *mark, &format!("{mark}{line}"), coloured);
        }
    }
    text
}

fn push(text: &mut String, mark: char, line: &str, coloured: bool) {
    let code = match mark {
        '-' => "31",
        '+' => "32",
        '@' => "36",
        _ => "",
    };
    if coloured && !code.is_empty() {
        text.push_str(&format!("\u{1b}[{code}m{line}\u{1b}[0m\n"));
    } else {
        text.push_str(line);
        text.push('\n');
    }
}

/// Every line of both texts in order: kept, gone or new. By the longest common subsequence of what lies between the common beginning and
/// the common end.
fn aligned<'t>(before: &[&'t str], after: &[&'t str]) -> Vec<(char, &'t str)> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = before.iter().zip(after).take_while(same).count();
    let tail = before[head..].iter().rev().zip(after[head..].iter().rev()).take_while(same).count();
    let (old, new) = (&before[head..before.len() - tail], &after[head..after.len() - tail]);
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let mut lines: Vec<(char, &str)> = before[..head].iter().map(|&line| (' ', line)).collect();
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1] {
            lines.push(('-', old[i]));
            i += 1;
        } else {
            lines.push(('+', new[j]));
            j += 1;
        }
    }
    lines.extend(before[before.len() - tail..].iter().map(|&line| (' ', line)));
    lines
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_change_is_shown_with_its_place() {
        let before: String = (0..20).map(|line| format!("line {line}\n")).collect();
        let after = before.replace("line 9\n", "line nine\nand more\n");
        let shown = difference(&before, &after, false);
        assert!(shown.starts_with("@@ -7,7 +7,8 @@\n line 6\n"), "{shown}");
        assert!(shown.contains("-line 9\n+line nine\n+and more\n line 10\n"), "{shown}");
        assert_eq!(difference(&before, &before, false), "");
        assert!(difference(&before, &after, true).contains("\u{1b}[31m-line 9"));
    }
}
