//! Inputs for fuzzing: whole ones with a few errors, the same on every machine for a number.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers at the edges of what programs expect, as bytes.
const EDGES: &[&[u8]] = &[
    &[0],
    &[255],
    &[0, 0, 0, 0],
    &[255, 255, 255, 255],
    &[255, 255, 255, 127],
    &[127, 255, 255, 255],
    &[0, 0, 0, 0, 0, 0, 0, 128],
    &[255, 255, 255, 255, 255, 255, 255, 127],
];

/// Pieces of text that mean something to a reader of TOML, JSON or tables.
const WORDS: &[&str] = &[
    "-1",
    "0",
    "1",
    "1e308",
    "-1e400",
    "nan",
    "inf",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "0.5",
    "\"\"",
    "[]",
    "{}",
    "[[",
    "]]",
    "null",
    "true",
    "\\u0000",
    "\\",
    "'",
    "\"",
    "\n",
    "\r\n",
    ",",
    ";",
    "=",
    ".",
    "\u{feff}",
    "\u{1b}[31m",
    "é",
    "type",
    "name",
    "input",
    "inputs",
    "reuse",
    "units",
    "18446744073709551615",
    "2147483648",
    "1000000000",
    "<mh>",
    "&",
    "=1+1",
    "-",
    "\t",
];

/// Input number `number`: one of `seeds` with up to 8 changes.
pub fn mutated(seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut bytes = pick(seeds, &mut random).clone();
    for _ in 0..random.random_range(1..=8) {
        change(&mut bytes, seeds, &mut random);
    }
    bytes
}

fn pick<'a, T>(items: &'a [T], random: &mut ChaCha8Rng) -> &'a T {
    &items[random.random_range(0..items.len())]
}

/// A range of at most 64 places.
fn range(bytes: &[u8], random: &mut ChaCha8Rng) -> std::ops::Range<usize> {
    let start = random.random_range(0..=bytes.len());
    let end = (start + random.random_range(0..=64)).min(bytes.len());
    start..end
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut ChaCha8Rng) {
    let place = random.random_range(0..=bytes.len());
    match random.random_range(0..10) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        2 => overwrite(bytes, place, EDGES[random.random_range(0..EDGES.len())]),
        3 => overwrite(bytes, place, pick(WORDS, random).as_bytes()),
        4 => drop(bytes.splice(place..place, pick(WORDS, random).bytes())),
        5 => drop(bytes.drain(range(bytes, random))),
        6 => {
            let copied = bytes[range(bytes, random)].to_vec();
            drop(bytes.splice(place..place, copied));
        }
        7 => {
            let other = pick(seeds, random);
            let other = &other[range(other, random)];
            drop(bytes.splice(place..place, other.iter().copied()));
        }
        8 => number(bytes, place, random),
        _ => bytes.truncate(place),
    }
}

fn overwrite(bytes: &mut [u8], place: usize, with: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(place).zip(with) {
        *byte = *new;
    }
}

/// Replaces the next number in a text by one of the words, so that settings stay readable.
fn number(bytes: &mut Vec<u8>, place: usize, random: &mut ChaCha8Rng) {
    let Some(start) = (place..bytes.len()).find(|&place| bytes[place].is_ascii_digit()) else { return };
    let end = (start..bytes.len()).find(|&place| !bytes[place].is_ascii_digit()).unwrap_or(bytes.len());
    drop(bytes.splice(start..end, pick(&WORDS[..11], random).bytes()));
}
