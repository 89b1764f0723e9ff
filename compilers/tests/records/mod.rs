//! Records of what kernels cost on a chip: `compilers/known/CHIP.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use manyhands_compilers::report::{OnChip, Told};

/// Cycles may grow by this part before it counts: schedulers of instructions are fickle. Not so where the hottest block grows by more than
/// [`SLACK_OF_BLOCK`]: cycles are of the whole kernel, with few runs of the loop.
const SLACK: f64 = 0.02;
const SLACK_OF_BLOCK: f64 = 0.01;

/// Numbers of a form that are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    cycles: f64,
    registers: f64,
    spilled: f64,
    instructions: u32,
}

impl Known {
    fn of(told: &Told) -> Self {
        Self {
            cycles: told.cycles().unwrap_or(0.0),
            registers: told.registers().unwrap_or(0.0),
            spilled: told.spilled(),
            instructions: told.hottest.values().sum(),
        }
    }

    /// Says that it became worse, if it did. A block that is longer costs nothing where blocks became one.
    fn complaint(self, now: Self) -> Option<String> {
        let is_longer = f64::from(now.instructions) > f64::from(self.instructions) * (1.0 + SLACK_OF_BLOCK);
        let slack = if is_longer { 0.0 } else { SLACK };
        let is_worse = now.cycles > self.cycles * (1.0 + slack) || now.spilled > self.spilled;
        is_worse.then(|| format!("{now}, but was {self}"))
    }
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cycles, registers, spilled, instructions } = self;
        write!(f, "{cycles} cycles, {registers} registers, {spilled} spilled, {instructions} in the hottest block")
    }
}

fn path(chip: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("known/{chip}.txt"))
}

/// The first line is the driver, the others are forms and their numbers.
fn read(text: &str) -> (String, BTreeMap<String, Known>) {
    let mut lines = text.lines();
    let driver = lines.next().unwrap_or_default().to_owned();
    let known = lines.map(|line| {
        let (form, numbers) = line.split_once(": ").unwrap();
        let numbers: Vec<f64> = numbers.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[cycles, registers, spilled, instructions] = &numbers[..] else { panic!("{line}") };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        let instructions = instructions as u32;
        (form.to_owned(), Known { cycles, registers, spilled, instructions })
    });
    (driver, known.collect())
}

/// A record of what was found.
pub fn written(found: &OnChip) -> String {
    let mut text = format!("{}\n", found.device[1]);
    let forms: BTreeMap<&str, Known> = found.forms.iter().map(|told| (told.form.as_str(), Known::of(told))).collect();
    for (form, known) in forms {
        writeln!(text, "{form}: {known}").unwrap();
    }
    text
}

/// Forms that are worse than the record, or not in it.
pub fn worse(found: &OnChip, record: &str) -> Vec<String> {
    let (driver, known) = read(record);
    if driver != found.device[1] {
        println!("{}: the record is of {driver}, this is {}: only the floors are checked", found.chip, found.device[1]);
        return Vec::new();
    }
    let complaint = |told: &Told| match known.get(&told.form) {
        Some(known) => known.complaint(Known::of(told)),
        None => Some("is not in the record".to_owned()),
    };
    found
        .forms
        .iter()
        .filter_map(|told| complaint(told).map(|it| format!("{}: {}: {it}", found.chip, told.form)))
        .collect()
}

/// Writes the record again if `UPDATE` asks for it, and gives the forms that are worse than the record.
pub fn compare(found: &OnChip) -> Vec<String> {
    println!("{}: {} forms, by {}", found.chip, found.forms.len(), found.device[1]);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path(&found.chip).parent().unwrap()).unwrap();
        std::fs::write(path(&found.chip), written(found)).unwrap();
    }
    worse(found, &std::fs::read_to_string(path(&found.chip)).unwrap_or_default())
}
