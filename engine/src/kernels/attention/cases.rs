//! The sizes at which attention is tested.

use bytemuck::Zeroable as _;

use super::super::cases::{Case, InputFill};
use super::super::rounding::{float, index};
use super::{EMPTY, Params, Record};
use crate::size::Grid;

/// Rows, heads of queries and of keys, queries, keys, numbers of a query, numbers of a value.
const SIZES: [[u32; 7]; 12] = [
    [1, 1, 1, 1, 1, 1, 1],
    [2, 2, 2, 63, 65, 8, 8],
    [1, 2, 2, 65, 63, 64, 64],
    [1, 1, 1, 64, 64, 65, 7],
    [1, 1, 1, 33, 17, 3, 130],
    [3, 1, 1, 16, 48, 16, 1],
    [1, 1, 1, 100, 257, 32, 32],
    [1, 3, 3, 257, 70, 5, 20],
    [0, 2, 2, 5, 5, 4, 4],
    [2, 3, 3, 45, 70, 28, 12],
    [2, 6, 2, 70, 66, 12, 20],
    [1, 4, 1, 40, 130, 33, 65],
];

/// Many workgroups: a grid that is folded.
const FOLDED: [u32; 7] = [1_100, 1, 1, 1, 1, 1, 1];

/// Constants of cases; a kernel gets those that it has.
const SETTINGS: [&[&str]; 11] = [
    &[],
    &["CAUSAL"],
    &["KEY_MASKED"],
    &["CAUSAL", "KEY_MASKED", "QUERY_MASKED"],
    &["CAUSAL", "KEY_MASKED", "QUERY_MASKED", "UNIFORM"],
    &["DROPS", "KEY_MASKED"],
    &["DROPS", "CAUSAL"],
    &["DOCUMENTS", "CAUSAL"],
    &["DOCUMENTS", "DROPS"],
    &["WINDOW", "CAUSAL"],
    &["DOCUMENTS", "WINDOW", "CAUSAL"],
];

/// Keys of a window: within a part of 64 and some behind it.
const WINDOW: f64 = 70.0;

/// As many queries as keys, for documents and windows.
const OF_DOCUMENTS: [[u32; 7]; 2] = [[2, 4, 2, 130, 130, 12, 20], [3, 1, 1, 64, 64, 8, 8]];
/// Several parts of 64 before and behind a window.
const OF_WINDOWS: [u32; 7] = [1, 2, 1, 330, 330, 8, 8];

/// Every case of a kernel that has these constants.
fn each(known: &[&str], grid: fn(&Record) -> Grid, buffers: impl Fn(Case, &Params, &[&str]) -> Case) -> Vec<Case> {
    let some = |size: [u32; 7], settings: &'static [&'static str]| {
        let [rows, heads, key_heads, queries, keys, dim, value_dim] = size;
        let scale = 1.0 / float(index(dim)).sqrt();
        let (first_row, seed, step, node, rate) = (3, 5, 70, 2, 0.3);
        let sizes = Params { rows, heads, key_heads, queries, keys, dim, value_dim, ..Params::zeroed() };
        let params = Params { scale, first_row, seed, step, node, rate, ..sizes };
        let label =
            format!("{rows} x {heads} by {key_heads} x {queries} to {keys}, {dim} and {value_dim} {settings:?}");
        let set = settings.iter().filter(|name| known.contains(name));
        let value = |name: &str| if name == "WINDOW" { WINDOW } else { 1.0 };
        let case = set.fold(Case::new(label, params.words(), grid(&params.record())), |case, name| {
            case.constant(name, value(name))
        });
        buffers(case, &params, settings)
    };
    let all = SIZES.iter().flat_map(|size| [0, 4].map(|settings| (*size, SETTINGS[settings])));
    let others =
        [1, 2, 7, 9, 10].into_iter().flat_map(|size| [1, 2, 3, 5, 6].map(|settings| (SIZES[size], SETTINGS[settings])));
    let folded = [(FOLDED, SETTINGS[0])];
    let documents = OF_DOCUMENTS.into_iter().flat_map(|size| [7, 8].map(|settings| (size, SETTINGS[settings])));
    let windows =
        [OF_DOCUMENTS[0], OF_WINDOWS].into_iter().flat_map(|size| [9, 10].map(|settings| (size, SETTINGS[settings])));
    all.chain(others)
        .chain(folded)
        .chain(documents)
        .chain(windows)
        .map(|(size, settings)| some(size, settings))
        .collect()
}

/// Lengths of queries, keys and values.
fn lengths(p: &Params) -> [usize; 3] {
    let of_keys = index(p.rows * p.key_heads) * index(p.keys);
    [index(p.rows * p.heads) * index(p.queries * p.dim), of_keys * index(p.dim), of_keys * index(p.value_dim)]
}

/// Length of the results.
fn results_len(p: &Params) -> usize {
    index(p.rows * p.heads) * index(p.queries * p.value_dim)
}

/// A mask of which the first positions of a row are 0, as a row that is padded on the left has them, and some others.
fn mask(rows: u32, positions: u32) -> InputFill {
    let is_masked = |row: u32, at: u32| at < row % 3 * 20 || (at + row) % 7 == 3;
    let of_row = |row| (0..positions).map(move |at| if is_masked(row + 1, at) { 0.0 } else { 1.0 });
    InputFill::Values((0..rows).flat_map(of_row).collect())
}

/// Numbers of documents, the lengths of which differ from row to row; the last positions are in none, and have 0.
fn documents(rows: u32, positions: u32) -> InputFill {
    let document = |row: u32, at: u32| if at + 5 < positions { 1 + at / (row % 3 * 17 + 9) } else { 0 };
    let of_row = |row| (0..positions).map(move |at| float(index(document(row, at))));
    InputFill::Values((0..rows).flat_map(of_row).collect())
}

fn inputs(case: Case, p: &Params, settings: &[&str]) -> Case {
    let [q, k, v] = lengths(p);
    let mask = if settings.contains(&"DOCUMENTS") { documents(p.rows, p.keys) } else { mask(p.rows, p.keys) };
    case.input(InputFill::Normal(q)).input(InputFill::Normal(k)).input(InputFill::Normal(v)).input(mask)
}

pub(super) fn forward() -> Vec<Case> {
    let known = ["CAUSAL", "QUERY_MASKED", "KEY_MASKED", "DOCUMENTS", "WINDOW", "UNIFORM", "DROPS"];
    let mut cases = each(&known, Record::forward_grid, |case, p, settings| {
        let case = inputs(case, p, settings).input(mask(p.rows, p.queries));
        case.output(results_len(p)).output(index(p.rows * p.queries * p.heads))
    });
    // Scores of hundreds, whose exponentials are no numbers; of whole numbers and a power of 2, so that they are exact.
    let mut large = cases[4].clone();
    large.label += ", large scores";
    let [q, k] = [0, 1].map(|input| large.inputs[input].len());
    (large.inputs[0], large.inputs[1]) = (InputFill::Labels(q, 60), InputFill::Labels(k, 3));
    cases.push(large);
    cases
}

pub(super) fn backward_sums() -> Vec<Case> {
    let sizes = SIZES.iter().map(|size| (*size, 0)).chain([([1_100, 3, 3, 20, 1, 1, 1], 1)]);
    let case = |([rows, heads, key_heads, queries, keys, dim, value_dim], _): ([u32; 7], u32)| {
        let p = Params { rows, heads, key_heads, queries, keys, dim, value_dim, ..Params::zeroed() };
        let count = rows * heads * queries;
        let case = Case::elements(format!("{rows} x {heads} x {queries}, {value_dim}"), p.words(), count);
        let case = case.input(InputFill::Normal(results_len(&p))).input(InputFill::Normal(results_len(&p)));
        case.input(InputFill::Normal(index(count))).output(2 * index(count))
    };
    sizes.map(case).collect()
}

/// Logarithms of sums, and products; some queries see no key, if they may.
fn statistics(p: &Params, settings: &[&str]) -> InputFill {
    let count = index(p.rows * p.queries * p.heads);
    let normal = InputFill::Normal(2 * count).values(9);
    let may_be_empty = settings.contains(&"KEY_MASKED");
    let value = |(at, x): (usize, f32)| match (at % 2, may_be_empty && at / 2 % 5 == 1) {
        (0, true) => EMPTY,
        (0, false) => 5.0 + 0.5 * x,
        _ => x,
    };
    InputFill::Values(normal.into_iter().enumerate().map(value).collect())
}

fn backward_inputs(case: Case, p: &Params, settings: &[&str]) -> Case {
    inputs(case, p, settings).input(InputFill::Normal(results_len(p))).input(statistics(p, settings))
}

pub(super) fn backward_queries() -> Vec<Case> {
    each(
        &["CAUSAL", "KEY_MASKED", "DOCUMENTS", "WINDOW", "DROPS"],
        Record::backward_queries_grid,
        |case, p, settings| backward_inputs(case, p, settings).output(lengths(p)[0]),
    )
}

pub(super) fn backward_keys() -> Vec<Case> {
    let known = ["CAUSAL", "KEY_MASKED", "DOCUMENTS", "WINDOW", "UNIFORM", "DROPS"];
    each(&known, Record::backward_keys_grid, |case, p, settings| {
        let [_, k, v] = lengths(p);
        backward_inputs(case, p, settings).output(k).output(v)
    })
}
