//! All that was found, as JSON and as tables.

use manyhands_engine::kernels::Tile;
use serde::{Deserialize, Serialize};

use crate::assembly::{Kind, Mix};

/// All forms on one chip.
#[derive(Debug, Serialize, Deserialize)]
pub struct OnChip {
    /// The chip's name.
    pub chip: String,
    /// Name of the device, and of the driver with its version.
    pub device: [String; 2],
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
    /// Invocations that run in step.
    pub subgroup: u32,
    /// All that the driver says, by its own names.
    pub statistics: Vec<(String, f64)>,
    /// Instructions by kind, of all blocks.
    pub all: Mix,
    /// Instructions by kind, of the hottest block.
    pub hottest: Mix,
}

impl Told {
    /// A number of the driver, by the driver's name for it.
    fn number(&self, name: &str) -> Option<f64> {
        self.statistics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Registers of an invocation.
    pub fn registers(&self) -> Option<f64> {
        self.number("VGPRs")
    }

    /// Registers that did not fit and lie in memory.
    pub fn spilled(&self) -> f64 {
        ["Spilled VGPRs", "Spilled SGPRs"].iter().filter_map(|name| self.number(name)).sum()
    }

    /// Subgroups that run on a SIMD in turns; more of them hide more of what loads take.
    pub fn subgroups(&self) -> Option<f64> {
        self.number("Subgroups per SIMD")
    }

    /// Bytes of workgroup memory.
    pub fn workgroup_bytes(&self) -> Option<f64> {
        self.number("LDS size")
    }

    /// Cycles by the compiler's own model, of one subgroup that shares its SIMD with others.
    pub fn cycles(&self) -> Option<f64> {
        self.number("Inverse Throughput")
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
    let head = format!(
        "### {}: {device}\n\n{driver}\n\n| kernel | tile | instructions of the hottest block | multiply-adds | registers | spilled | \
         subgroups a SIMD | workgroup bytes | cycles |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        chip.chip
    );
    largest(&chip.forms).into_iter().fold(head, |text, told| text + &line(told))
}

fn line(told: &Told) -> String {
    let or_dash = |number: Option<f64>| number.map_or_else(|| "–".to_owned(), |it| it.to_string());
    format!(
        "| {} | {} | {} | {:.0} % | {} | {} | {} | {} | {} |\n",
        told.kernel,
        told.tile.map(|tile| format!("{tile:?}")).unwrap_or_default(),
        told.hottest.values().sum::<u32>(),
        100.0 * told.multiply_adds(),
        or_dash(told.registers()),
        told.spilled(),
        or_dash(told.subgroups()),
        or_dash(told.workgroup_bytes()),
        or_dash(told.cycles()),
    )
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
