//! Chips whose compilers can be had, and how a driver is made to take each for its own.

use std::path::PathBuf;

/// A chip, and its driver.
#[derive(Debug)]
pub struct Chip {
    /// Name for `--chips`, that of Mesa.
    pub name: &'static str,
    /// Names that older versions of Mesa have for it.
    pub older: &'static [&'static str],
    /// Cards that have it, or its generation.
    pub cards: &'static str,
    /// Driver that compiles for it.
    pub driver: &'static DriverFile,
}

/// A driver of Mesa.
#[derive(Debug)]
pub struct DriverFile {
    /// Start of the name of its file in `icd.d`.
    pub file: &'static str,
    /// Variable that names the chip.
    pub variable: &'static str,
}

/// AMD's, with the compiler ACO: shows a device without hardware.
static RADV: DriverFile = DriverFile { file: "radeon_icd", variable: "RADV_FORCE_FAMILY" };

/// From old to new.
pub static CHIPS: &[Chip] = &[
    Chip { name: "polaris10", older: &[], cards: "RX 470 to 580 (GCN 4)", driver: &RADV },
    Chip { name: "vega10", older: &[], cards: "RX Vega 56, 64 (GCN 5)", driver: &RADV },
    Chip { name: "navi21", older: &[], cards: "RX 6800 to 6950 (RDNA 2)", driver: &RADV },
    Chip { name: "navi31", older: &["gfx1100"], cards: "RX 7900 (RDNA 3)", driver: &RADV },
    Chip { name: "gfx1201", older: &[], cards: "RX 9070 (RDNA 4)", driver: &RADV },
];

impl Chip {
    /// The chip of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        CHIPS.iter().find(|chip| chip.name == name)
    }
}

impl DriverFile {
    /// Its file on this machine.
    pub fn find(&self) -> Option<PathBuf> {
        let folders = ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
        let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        files
            .map(|file| file.path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(self.file)))
    }
}
