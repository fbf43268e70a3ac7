//! Operators, precisions and sizes as the command line names them.

use tessera::bench::{Selection, Shapes, Sizes};
use tessera::ops::OPERATORS;

use crate::failure::{Failure, Outcome, read_text};

/// Operators, a suite, sizes and precisions as the command line names them.
pub(crate) fn selection(subjects: &[String], precisions: &[String], sizes: Option<&str>) -> Result<Selection, Failure> {
    let mut chosen: Option<Sizes> = None;
    let mut operators = Vec::new();
    let twice =
        |names: &[String]| names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name.clone());
    if let Some(name) = twice(subjects).or_else(|| twice(precisions)) {
        return Err(Failure::usage(format!("`{name}` is given twice")));
    }
    for subject in subjects {
        match sizes_named(subject) {
            Some(_) if chosen.is_some() || sizes.is_some() => {
                let other = sizes.map_or("another suite".to_string(), |sizes| format!("`--sizes {sizes}`"));
                return Err(Failure::usage(format!("the suite `{subject}` and {other} are both given\nhelp: name one")));
            }
            Some(sizes) => chosen = Some(sizes),
            None => operators.push(subject.clone()),
        }
    }
    let sizes = match sizes {
        None => chosen.unwrap_or(Sizes::Quick),
        Some(text) => match sizes_named(text) {
            Some(sizes) => sizes,
            None => Sizes::Given(given(text, &numbers_of_operators())?),
        },
    };
    Ok(Selection { operators, precisions: precisions.to_vec(), sizes })
}

/// The sizes that a suite's name means.
pub(crate) fn sizes_named(name: &str) -> Option<Sizes> {
    match name {
        "quick" => Some(Sizes::Quick),
        "seed" => Some(Sizes::Seed),
        "all" => Some(Sizes::All),
        "edges" => Some(Sizes::Edges),
        _ => None,
    }
}

/// What `--sizes` gives operators beside extents and a variant.
fn numbers_of_operators() -> Vec<&'static str> {
    OPERATORS.iter().flat_map(|operator| operator.numbers).map(|(name, _)| *name).collect()
}

/// Values of an extent at most.
const MOST_VALUES: usize = 1000;

/// `1024`, `64..1024*2` or `1000..1010+5`; a range without a step has all its values, the last one included.
fn values(text: &str) -> Result<Vec<u64>, String> {
    let number = |text: &str| text.parse::<u64>().ok().ok_or("an extent is a number".to_string());
    let Some((first, rest)) = text.split_once("..") else { return Ok(vec![number(text)?]) };
    let (last, factor, distance) = match (rest.split_once('*'), rest.split_once('+')) {
        (Some((last, factor)), _) => (last, number(factor)?, 0),
        (None, Some((last, distance))) => (last, 1, number(distance)?),
        (None, None) => (rest, 1, 1),
    };
    if factor == 1 && distance == 0 {
        let what = if rest.contains('*') { "the factor of a range is 2 at least" } else { "the step of a range is 1 at least" };
        return Err(what.to_string());
    }
    let step = |value: u64| value.checked_mul(factor)?.checked_add(distance);
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("{first} is more than {last}"));
    }
    if first == 0 && distance == 0 {
        return Err("0 times a factor stays 0\nhelp: begin with 1, or take steps: `0..8+2`".to_string());
    }
    let values: Vec<u64> = std::iter::successors(Some(first), |&value| step(value))
        .take_while(|&value| value <= last)
        .take(MOST_VALUES + 1)
        .collect();
    if values.len() > MOST_VALUES {
        return Err(format!(
            "more than {MOST_VALUES} values\nhelp: take larger steps: `{first}..{last}*2` or `{first}..{last}+{}`",
            (last - first) / 16
        ));
    }
    Ok(values)
}

/// What `--sizes` gives: one text, or `@FILE` with one in each line. Behind a `#` a line has a remark. Names of `numbers` have those, all
/// others extents.
pub(crate) fn given(text: &str, numbers: &[&str]) -> Result<Vec<Shapes>, Failure> {
    let Some(path) = text.strip_prefix('@') else { return Ok(vec![shapes(text, numbers)?]) };
    let lines = read_text(path)?;
    let line = |(at, line): (usize, &str)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then(|| shapes(line, numbers).map_err(|failure| failure.about(&format!("{path}:{}", at + 1))))
    };
    let all: Vec<Shapes> = lines.lines().enumerate().filter_map(line).collect::<Result<_, _>>()?;
    match all.is_empty() {
        true => Err(Failure::usage(format!("`{path}` names no sizes\nhelp: write one a line, such as `m=1024,n=1024,k=64`"))),
        false => Ok(all),
    }
}

/// What more values of a list, without a name, belong to.
#[derive(Clone, Copy, PartialEq)]
enum List {
    Extents,
    Numbers,
    Nothing,
}

/// `m=1024,n=64..1024*2,k=1,2,8,alpha=0.5,variant=nt`.
fn shapes(text: &str, numbers: &[&str]) -> Result<Shapes, Failure> {
    let mut shapes = Shapes::default();
    let Shapes { extents, numbers: given, variant } = &mut shapes;
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let mut list = List::Nothing;
    for part in text.split(',') {
        let is_more = !part.contains('=');
        if let (List::Numbers, Some((_, known)), Some(more), true) = (list, given.last_mut(), number(part), is_more) {
            known.push(more);
            continue;
        }
        if let (List::Extents, Some((_, known)), Ok(more), true) = (list, extents.last_mut(), values(part), is_more) {
            known.extend(more);
            continue;
        }
        list = match part.split_once('=') {
            Some(("variant", _)) | None => List::Nothing,
            Some((name, _)) if numbers.contains(&name) => List::Numbers,
            Some(_) => List::Extents,
        };
        match part.split_once('=') {
            Some(("variant", _)) if variant.is_some() => {
                return Err(Failure::usage(format!("`variant` is given twice in `--sizes {text}`")));
            }
            Some(("variant", word)) => *variant = Some(word.to_string()),
            Some((name, _)) if extents.iter().any(|(known, _)| known == name) || given.iter().any(|(known, _)| known == name) => {
                return Err(Failure::usage(format!("`{name}` is given twice in `--sizes {text}`")));
            }
            Some((name, value)) if list == List::Numbers => {
                let own = number(value).ok_or_else(|| Failure::usage(format!("`{part}`: `{name}` is a number, such as 0.5")))?;
                given.push((name.to_string(), vec![own]));
            }
            Some((name, value)) => {
                let values = values(value).map_err(|why| Failure::usage(format!("`{part}`: {why}")))?;
                extents.push((name.to_string(), values));
            }
            None => {
                return Err(Failure::usage(format!(
                    "`{part}` is not a size\nhelp: write quick, seed, all, or NAME=NUMBER,... or NAME=A..B*2,... or NAME=1,2,8,... or @FILE"
                )));
            }
        }
    }
    Ok(shapes)
}

/// Refuses what cannot be timed: extents that take no time, and results that grow with every launch until they are infinite.
pub(crate) fn refuse_untimed(sizes: &Sizes, operators: &[String]) -> Outcome {
    refuse_nought(sizes)?;
    let Sizes::Given(all) = sizes else { return Ok(()) };
    let grows = |name: &str| {
        let own = |word: &str| operators.is_empty() || operators.iter().any(|own| own == word);
        OPERATORS.iter().any(|operator| own(operator.name) && operator.rereads() == Some(name))
    };
    let mut numbers = all.iter().flat_map(|shapes| &shapes.numbers);
    match numbers.find(|(name, values)| grows(name) && values.iter().any(|value| value.abs() > 1.0)) {
        Some((name, _)) => Err(Failure::usage(format!(
            "`{name}` beyond -1 to 1 in `--sizes`: launches are timed one after another, and each would multiply what the last one left\nhelp: \
             `tessera check` takes it"
        ))),
        None => Ok(()),
    }
}

/// Refuses extents that take no time.
pub(crate) fn refuse_nought(sizes: &Sizes) -> Outcome {
    let Sizes::Given(all) = sizes else { return Ok(()) };
    match all.iter().flat_map(|shapes| &shapes.extents).find(|(_, values)| values.contains(&0)) {
        Some((name, _)) => {
            Err(Failure::usage(format!("`{name}=0` in `--sizes`: an extent of 0 takes no time\nhelp: `tessera check` takes it")))
        }
        None => Ok(()),
    }
}
