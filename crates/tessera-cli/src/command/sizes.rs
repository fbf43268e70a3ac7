//! Operators, precisions and sizes as the command line names them.

use tessera::bench::{Selection, Shapes, Sizes};

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
            None => Sizes::Given(given(text)?),
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
        return Err("the factor of a range is 2 at least".to_string());
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
        return Err(format!("more than {MOST_VALUES} values\nhelp: take larger steps: `{text}*2` or `{text}+64`"));
    }
    Ok(values)
}

/// What `--sizes` gives: one text, or `@FILE` with one in each line. Behind a `#` a line has a remark.
pub(crate) fn given(text: &str) -> Result<Vec<Shapes>, Failure> {
    let Some(path) = text.strip_prefix('@') else { return Ok(vec![shapes(text)?]) };
    let lines = read_text(path)?;
    let line = |(at, line): (usize, &str)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then(|| shapes(line).map_err(|failure| failure.about(&format!("{path}:{}", at + 1))))
    };
    let all: Vec<Shapes> = lines.lines().enumerate().filter_map(line).collect::<Result<_, _>>()?;
    match all.is_empty() {
        true => Err(Failure::usage(format!("`{path}` names no sizes\nhelp: write one a line, such as `m=1024,n=1024,k=64`"))),
        false => Ok(all),
    }
}

/// `m=1024,n=64..1024*2,k=1,2,8,variant=nt`.
fn shapes(text: &str) -> Result<Shapes, Failure> {
    let mut extents: Vec<(String, Vec<u64>)> = Vec::new();
    let mut variant = None;
    // Behind the values of an extent there may be more of them.
    let mut is_list = false;
    for part in text.split(',') {
        let more = if part.contains('=') { None } else { values(part).ok() };
        if let (Some(more), true, Some((_, known))) = (more, is_list, extents.last_mut()) {
            known.extend(more);
            continue;
        }
        is_list = !part.starts_with("variant=");
        match part.split_once('=') {
            Some(("variant", word)) => variant = Some(word.to_string()),
            Some((name, _)) if extents.iter().any(|(known, _)| known == name) => {
                return Err(Failure::usage(format!("`{name}` is given twice in `--sizes {text}`")));
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
    Ok(Shapes { extents, variant })
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
