//! Chips whose compilers can be had, and how a driver is made to take each for its own.

use std::path::PathBuf;

use crate::figures::{Figure, Source};
use crate::languages::Language;

/// A chip, and its driver.
#[derive(Debug)]
pub struct Chip {
    /// Name for `--chips`.
    pub name: &'static str,
    /// Names that versions of the driver have for it, the newest first.
    pub values: &'static [&'static str],
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
    /// Variables that the driver needs besides.
    pub variables: &'static [(&'static str, &'static str)],
    /// Library that answers in place of the kernel, if the driver asks the kernel for a card.
    pub stub: Option<&'static str>,
    /// Folders of its libraries below that of `scripts/setup-compilers`.
    pub folders: &'static [&'static str],
    /// The language of its compiler.
    pub language: Language,
    /// Its names for figures.
    pub sources: &'static [Source],
}

/// AMD's, with the compiler ACO: shows a device without hardware.
static RADV: DriverFile = DriverFile {
    file: "radeon",
    variable: "RADV_FORCE_FAMILY",
    variables: &[("RADV_DEBUG", "nocache")],
    stub: None,
    folders: &["root"],
    language: Language::Amd,
    sources: &[
        Source(Figure::Registers, &["VGPRs"], 1.0),
        Source(Figure::Spilled, &["Spilled VGPRs", "Spilled SGPRs"], 1.0),
        Source(Figure::ScratchBytes, &["Scratch size"], 1.0),
        Source(Figure::WorkgroupBytes, &["LDS size"], 1.0),
        Source(Figure::Subgroups, &["Subgroups per SIMD"], 1.0),
        Source(Figure::Cycles, &["Inverse Throughput"], 1.0),
        Source(Figure::Latency, &["Latency"], 1.0),
    ],
};

/// Intel's.
static ANV: DriverFile = DriverFile {
    file: "intel",
    variable: "INTEL_STUB_GPU_PLATFORM",
    variables: &[("INTEL_STUB_GPU", "1")],
    stub: Some("libintel_noop_drm_shim.so"),
    folders: &["root"],
    language: Language::Intel,
    sources: &[
        Source(Figure::Registers, &["Max live registers"], 1.0),
        Source(Figure::Spilled, &["Spill Count", "Fill Count"], 1.0),
        Source(Figure::ScratchBytes, &["Scratch Memory Size"], 1.0),
        Source(Figure::WorkgroupBytes, &["Workgroup Memory Size"], 1.0),
        Source(Figure::Cycles, &["Cycle Count"], 1.0),
    ],
};

/// That of NVIDIA's cards by Mesa, with the compiler NAK. NVIDIA's own compiler may do otherwise.
static NVK: DriverFile = DriverFile {
    file: "nouveau",
    variable: "NOUVEAU_CHIPSET",
    variables: &[],
    stub: Some("libnouveau_noop_drm_shim.so"),
    folders: &["newest", "root"],
    language: Language::Nvidia,
    sources: &[
        Source(Figure::Registers, &["Number of GPRs"], 1.0),
        Source(Figure::Spilled, &["Spills to memory"], 1.0),
        Source(Figure::ScratchBytes, &["SLM size"], 1.0),
        // A multiprocessor has four SIMDs.
        Source(Figure::Subgroups, &["Max warps/SM"], 4.0),
        Source(Figure::Cycles, &["Static cycle count"], 1.0),
    ],
};

/// llvmpipe, which computes on the CPU what others compile: the one driver of such that has cooperative matrices, since Mesa 24.
static LAVAPIPE: DriverFile = DriverFile {
    file: "lvp",
    variable: "LP_NUM_THREADS",
    variables: &[],
    stub: None,
    folders: &["newest", "root"],
    language: Language::Amd,
    sources: &[],
};

/// The CPU as a chip that runs kernels, with the newest llvmpipe. It tells nothing of what it compiled.
pub static CPU: Chip = Chip { name: "cpu", values: &["1"], cards: "llvmpipe", driver: &LAVAPIPE };

/// By vendor, from old to new.
pub static CHIPS: &[Chip] = &[
    Chip { name: "polaris10", values: &["polaris10"], cards: "RX 470 to 580 (GCN 4)", driver: &RADV },
    Chip { name: "vega10", values: &["vega10"], cards: "RX Vega 56, 64 (GCN 5)", driver: &RADV },
    Chip { name: "navi21", values: &["navi21"], cards: "RX 6800 to 6950 (RDNA 2)", driver: &RADV },
    Chip { name: "navi31", values: &["navi31", "gfx1100"], cards: "RX 7900 (RDNA 3)", driver: &RADV },
    Chip { name: "gfx1201", values: &["gfx1201"], cards: "RX 9070 (RDNA 4)", driver: &RADV },
    Chip { name: "tgl", values: &["tgl"], cards: "Iris Xe of Core 11 (Tiger Lake)", driver: &ANV },
    Chip { name: "adl", values: &["adl"], cards: "UHD and Iris Xe of Core 12 (Alder Lake)", driver: &ANV },
    Chip { name: "dg2", values: &["dg2"], cards: "Arc A310 to A770 (Alchemist)", driver: &ANV },
    Chip { name: "bmg", values: &["bmg"], cards: "Arc B570, B580 (Battlemage)", driver: &ANV },
    Chip { name: "tu102", values: &["162"], cards: "RTX 2080 Ti (Turing)", driver: &NVK },
    Chip { name: "ga102", values: &["172"], cards: "RTX 3080, 3090 (Ampere)", driver: &NVK },
];

impl Chip {
    /// The chip of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        CHIPS.iter().find(|chip| chip.name == name)
    }
}

impl DriverFile {
    /// The system's own file.
    pub fn find(&self) -> Option<PathBuf> {
        let folders = ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
        let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        let stem = format!("{}_icd", self.file);
        files
            .map(|file| file.path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&stem)))
    }
}
