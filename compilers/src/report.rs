//! All that was found, as JSON and as tables.

use manyhands_engine::kernels::Tile;
use serde::{Deserialize, Serialize};

use crate::assembly::Mix;
use crate::figures::{Figure, Figures};
use crate::languages::Kind;

/// All forms on one chip.
#[derive(Debug, Serialize, Deserialize)]
pub struct OnChip {
    /// The chip's name.
    pub chip: String,
    /// Name of the device, and of the driver with its version.
    pub device: [String; 2],
    /// Figures that its compiler does not tell.
    pub untold: Vec<Figure>,
    /// Its forms.
    pub forms: Vec<Told>,
}

/// A form as a compiler made it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    /// Its name.
    pub form: String,
    /// Name of the kernel.
    pub kernel: String,
    /// Tile, where the kernel has several.
    pub tile: Option<Tile>,
    /// Constants that differ from their default.
    pub constants: Vec<(String, f64)>,
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Invocations that run in step.
    pub subgroup: u32,
    /// Registers, cycles and the like, as far as the compiler tells them.
    pub figures: Figures,
    /// All that the driver says, by its own names.
    pub statistics: Vec<(String, f64)>,
    /// Cycles that a multiply-add of one invocation takes, with loops run as often as the compiler guesses; none without multiply-adds.
    pub cycles_a_multiply_add: Option<f64>,
    /// Instructions a multiply-add of an invocation in the outermost loop around the hottest block; none without such a loop.
    pub main_loop_a_multiply_add: Option<f64>,
    /// Instructions by kind, of all blocks.
    pub all: Mix,
    /// Instructions by kind, of the hottest block.
    pub hottest: Mix,
    /// Multiply-adds of an invocation in the hottest block: two for an instruction that computes two.
    pub hottest_multiply_adds: f64,
}

impl Told {
    /// A figure, if the compiler tells it.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).copied()
    }

    /// Registers of an invocation.
    pub fn registers(&self) -> Option<f64> {
        self.figure(Figure::Registers)
    }

    /// Registers that did not fit and lie in memory.
    pub fn spilled(&self) -> f64 {
        self.figure(Figure::Spilled).unwrap_or(0.0)
    }

    /// Says which registers or arrays of an invocation lie in memory, if any do.
    pub fn in_memory(&self) -> Option<String> {
        let [spilled, scratch] = [Figure::Spilled, Figure::ScratchBytes].map(|it| self.figure(it).unwrap_or(0.0));
        (spilled + scratch > 0.0).then(|| format!("{spilled} registers spilled, {scratch} scratch bytes"))
    }

    /// Subgroups that share a SIMD.
    pub fn subgroups(&self) -> Option<f64> {
        self.figure(Figure::Subgroups)
    }

    /// Cycles by the compiler's own model.
    pub fn cycles(&self) -> Option<f64> {
        self.figure(Figure::Cycles)
    }

    /// Part of the hottest block that is multiply-adds, in `[0, 1]`.
    pub fn multiply_adds(&self) -> f64 {
        let count: u32 = self.hottest.values().sum();
        f64::from(self.hottest.get(&Kind::MultiplyAdd).copied().unwrap_or(0)) / f64::from(count.max(1))
    }
}

/// A table of Markdown for each chip: one line a kernel and tile, that of its set of constants with the largest hottest block.
pub fn tables(chips: &[OnChip]) -> String {
    chips.iter().map(table).collect::<Vec<_>>().join("\n")
}

fn table(chip: &OnChip) -> String {
    let [device, driver] = &chip.device;
    let untold: Vec<&str> = chip.untold.iter().map(|figure| figure.name()).collect();
    let untold =
        if untold.is_empty() { String::new() } else { format!(" Its compiler does not tell: {}.", untold.join(", ")) };
    let figures: Vec<&str> = Figure::ALL.iter().map(|figure| figure.name()).collect();
    let head = format!(
        "### {}: {device}\n\n{driver}.{untold}\n\n| kernel | tile | lanes | hottest block | multiply-adds | vector | scalar | memory | \
         workgroup | control | {} |\n|{}\n",
        chip.chip,
        figures.join(" | "),
        " --- |".repeat(10 + figures.len())
    );
    largest(&chip.forms).into_iter().fold(head, |text, told| text + &line(told))
}

fn line(told: &Told) -> String {
    let tile = told.tile.map(|tile| format!("{tile:?}")).unwrap_or_default();
    let count = |kind: &Kind| told.hottest.get(kind).copied().unwrap_or(0).to_string();
    let or_dash = |figure: Figure| told.figure(figure).map_or_else(|| "–".to_owned(), |it| it.round().to_string());
    let mut cells =
        vec![told.kernel.clone(), tile, told.subgroup.to_string(), told.hottest.values().sum::<u32>().to_string()];
    cells.push(format!("{:.0} %", 100.0 * told.multiply_adds()));
    cells.extend([Kind::Vector, Kind::Scalar, Kind::Memory, Kind::Workgroup, Kind::Control].iter().map(count));
    cells.extend(Figure::ALL.into_iter().map(or_dash));
    format!("| {} |\n", cells.join(" | "))
}

/// One form a kernel and tile: that whose hottest block has most instructions, in the order of the forms.
fn largest(forms: &[Told]) -> Vec<&Told> {
    let mut found: Vec<&Told> = Vec::new();
    for told in forms {
        let size = |it: &Told| it.hottest.values().sum::<u32>();
        match found.iter_mut().find(|it| (&it.kernel, &it.tile) == (&told.kernel, &told.tile)) {
            Some(known) if size(known) < size(told) => *known = told,
            Some(_) => {}
            None => found.push(told),
        }
    }
    found
}
