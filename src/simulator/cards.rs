//! Graphics cards by name: what their makers say of them, so that a rig needs no numbers.

use crate::error::{Error, Result};
use crate::names;

/// Maker of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// AMD.
    Amd,
    /// Apple.
    Apple,
    /// Intel.
    Intel,
    /// NVIDIA.
    Nvidia,
}

impl Vendor {
    /// Page of the maker with the specifications of its cards.
    pub fn source(self) -> &'static str {
        match self {
            Self::Amd => "https://www.amd.com/en/products/specifications/graphics.html",
            Self::Apple => "https://www.apple.com/newsroom/ (of each chip's release)",
            Self::Intel => "https://www.intel.com/content/www/us/en/ark.html",
            Self::Nvidia => "https://www.nvidia.com/en-us/geforce/graphics-cards/compare/",
        }
    }
}

/// A card, or a graphics unit within a processor. All numbers are peaks, in the words of its maker.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Card {
    /// Name without maker: `RTX 3060`, `RX 6600`.
    pub name: &'static str,
    /// Maker, whose page is the source of the row.
    pub vendor: Vendor,
    /// Compute units: SMs of NVIDIA, CUs of AMD, Xe cores or subslices of Intel, cores of Apple.
    pub units: u32,
    /// Lanes of 32-bit floats: CUDA cores, stream processors.
    pub lanes: u32,
    /// Boost clock in MHz; of Intel's cards the graphics clock.
    pub boost_mhz: u32,
    /// Operations of 32-bit floats, in 10¹² a second, as the maker states them.
    pub tflops: f64,
    /// Memory of its own in GB; `None` for a unit that shares the host's.
    pub memory_gb: Option<f64>,
    /// Peak bandwidth of the memory, in 10⁹ bytes a second; of shared memory that of the fastest usual modules.
    pub memory_gb_s: f64,
    /// Generation and lanes of PCI Express; `None` for a unit within a processor.
    pub slot: Option<(u32, u32)>,
}

impl Card {
    /// Name with the maker's brand: `GeForce RTX 3060`.
    pub fn full_name(&self) -> String {
        let brand = match self.vendor {
            Vendor::Nvidia => "GeForce ",
            Vendor::Amd => "Radeon ",
            Vendor::Intel if self.slot.is_some() => "Arc ",
            Vendor::Intel | Vendor::Apple => "",
        };
        format!("{brand}{}", self.name)
    }
}

/// A row: units, lanes and MHz; TFLOP/s; GB and GB/s; the slot.
const fn card(
    vendor: Vendor,
    name: &'static str,
    (units, lanes, boost_mhz): (u32, u32, u32),
    tflops: f64,
    (memory_gb, memory_gb_s): (f64, f64),
    slot: (u32, u32),
) -> Card {
    let (memory_gb, slot) = (Some(memory_gb), Some(slot));
    Card { name, vendor, units, lanes, boost_mhz, tflops, memory_gb, memory_gb_s, slot }
}

/// A row of a unit within a processor.
const fn integrated(
    vendor: Vendor,
    name: &'static str,
    (units, lanes, boost_mhz): (u32, u32, u32),
    tflops: f64,
    memory_gb_s: f64,
) -> Card {
    Card { name, vendor, units, lanes, boost_mhz, tflops, memory_gb: None, memory_gb_s, slot: None }
}

use Vendor::{Amd, Apple, Intel, Nvidia};

/// All cards that have a name here.
///
/// Apple states no clocks: those here follow from its lanes and TFLOP/s. Its later chips are left out, since it states no TFLOP/s of them.
pub static CARDS: &[Card] = &[
    card(Nvidia, "GTX 1050 Ti", (6, 768, 1392), 2.1, (4.0, 112.0), (3, 16)),
    card(Nvidia, "GTX 1060", (10, 1280, 1708), 4.4, (6.0, 192.0), (3, 16)),
    card(Nvidia, "GTX 1070", (15, 1920, 1683), 6.5, (8.0, 256.0), (3, 16)),
    card(Nvidia, "GTX 1070 Ti", (19, 2432, 1683), 8.2, (8.0, 256.0), (3, 16)),
    card(Nvidia, "GTX 1080", (20, 2560, 1733), 8.9, (8.0, 320.0), (3, 16)),
    card(Nvidia, "GTX 1080 Ti", (28, 3584, 1582), 11.3, (11.0, 484.0), (3, 16)),
    card(Nvidia, "GTX 1650", (14, 896, 1665), 3.0, (4.0, 128.0), (3, 16)),
    card(Nvidia, "GTX 1660", (22, 1408, 1785), 5.0, (6.0, 192.0), (3, 16)),
    card(Nvidia, "GTX 1660 Super", (22, 1408, 1785), 5.0, (6.0, 336.0), (3, 16)),
    card(Nvidia, "GTX 1660 Ti", (24, 1536, 1770), 5.4, (6.0, 288.0), (3, 16)),
    card(Nvidia, "RTX 2060", (30, 1920, 1680), 6.5, (6.0, 336.0), (3, 16)),
    card(Nvidia, "RTX 2060 Super", (34, 2176, 1650), 7.2, (8.0, 448.0), (3, 16)),
    card(Nvidia, "RTX 2070", (36, 2304, 1620), 7.5, (8.0, 448.0), (3, 16)),
    card(Nvidia, "RTX 2070 Super", (40, 2560, 1770), 9.1, (8.0, 448.0), (3, 16)),
    card(Nvidia, "RTX 2080", (46, 2944, 1710), 10.1, (8.0, 448.0), (3, 16)),
    card(Nvidia, "RTX 2080 Super", (48, 3072, 1815), 11.2, (8.0, 496.0), (3, 16)),
    card(Nvidia, "RTX 2080 Ti", (68, 4352, 1545), 13.4, (11.0, 616.0), (3, 16)),
    card(Nvidia, "RTX 3050", (20, 2560, 1777), 9.1, (8.0, 224.0), (4, 8)),
    card(Nvidia, "RTX 3060", (28, 3584, 1777), 12.7, (12.0, 360.0), (4, 16)),
    card(Nvidia, "RTX 3060 Ti", (38, 4864, 1665), 16.2, (8.0, 448.0), (4, 16)),
    card(Nvidia, "RTX 3070", (46, 5888, 1725), 20.3, (8.0, 448.0), (4, 16)),
    card(Nvidia, "RTX 3070 Ti", (48, 6144, 1770), 21.7, (8.0, 608.0), (4, 16)),
    card(Nvidia, "RTX 3080", (68, 8704, 1710), 29.8, (10.0, 760.0), (4, 16)),
    card(Nvidia, "RTX 3080 Ti", (80, 10240, 1665), 34.1, (12.0, 912.0), (4, 16)),
    card(Nvidia, "RTX 3090", (82, 10496, 1695), 35.6, (24.0, 936.0), (4, 16)),
    card(Nvidia, "RTX 3090 Ti", (84, 10752, 1860), 40.0, (24.0, 1008.0), (4, 16)),
    card(Nvidia, "RTX 4060", (24, 3072, 2460), 15.1, (8.0, 272.0), (4, 8)),
    card(Nvidia, "RTX 4060 Ti", (34, 4352, 2535), 22.1, (8.0, 288.0), (4, 8)),
    card(Nvidia, "RTX 4060 Ti 16GB", (34, 4352, 2535), 22.1, (16.0, 288.0), (4, 8)),
    card(Nvidia, "RTX 4070", (46, 5888, 2475), 29.1, (12.0, 504.0), (4, 16)),
    card(Nvidia, "RTX 4070 Super", (56, 7168, 2475), 35.5, (12.0, 504.0), (4, 16)),
    card(Nvidia, "RTX 4070 Ti", (60, 7680, 2610), 40.1, (12.0, 504.0), (4, 16)),
    card(Nvidia, "RTX 4070 Ti Super", (66, 8448, 2610), 44.1, (16.0, 672.0), (4, 16)),
    card(Nvidia, "RTX 4080", (76, 9728, 2505), 48.7, (16.0, 717.0), (4, 16)),
    card(Nvidia, "RTX 4080 Super", (80, 10240, 2550), 52.2, (16.0, 736.0), (4, 16)),
    card(Nvidia, "RTX 4090", (128, 16384, 2520), 82.6, (24.0, 1008.0), (4, 16)),
    card(Nvidia, "RTX 5060", (30, 3840, 2497), 19.2, (8.0, 448.0), (5, 8)),
    card(Nvidia, "RTX 5060 Ti", (36, 4608, 2572), 23.7, (8.0, 448.0), (5, 8)),
    card(Nvidia, "RTX 5060 Ti 16GB", (36, 4608, 2572), 23.7, (16.0, 448.0), (5, 8)),
    card(Nvidia, "RTX 5070", (48, 6144, 2512), 30.9, (12.0, 672.0), (5, 16)),
    card(Nvidia, "RTX 5070 Ti", (70, 8960, 2452), 43.9, (16.0, 896.0), (5, 16)),
    card(Nvidia, "RTX 5080", (84, 10752, 2617), 56.3, (16.0, 960.0), (5, 16)),
    card(Nvidia, "RTX 5090", (170, 21760, 2407), 104.8, (32.0, 1792.0), (5, 16)),
    card(Amd, "RX 470", (32, 2048, 1206), 4.9, (4.0, 211.0), (3, 16)),
    card(Amd, "RX 480", (36, 2304, 1266), 5.8, (8.0, 256.0), (3, 16)),
    card(Amd, "RX 560", (16, 1024, 1275), 2.6, (4.0, 112.0), (3, 8)),
    card(Amd, "RX 570", (32, 2048, 1244), 5.1, (8.0, 224.0), (3, 16)),
    card(Amd, "RX 580", (36, 2304, 1340), 6.2, (8.0, 256.0), (3, 16)),
    card(Amd, "RX 590", (36, 2304, 1545), 7.1, (8.0, 256.0), (3, 16)),
    card(Amd, "RX Vega 56", (56, 3584, 1471), 10.5, (8.0, 410.0), (3, 16)),
    card(Amd, "RX Vega 64", (64, 4096, 1546), 12.7, (8.0, 484.0), (3, 16)),
    card(Amd, "RX 5500 XT", (22, 1408, 1845), 5.2, (8.0, 224.0), (4, 8)),
    card(Amd, "RX 5700", (36, 2304, 1725), 7.95, (8.0, 448.0), (4, 16)),
    card(Amd, "RX 5700 XT", (40, 2560, 1905), 9.75, (8.0, 448.0), (4, 16)),
    card(Amd, "RX 6400", (12, 768, 2321), 3.57, (4.0, 128.0), (4, 4)),
    card(Amd, "RX 6500 XT", (16, 1024, 2815), 5.77, (4.0, 144.0), (4, 4)),
    card(Amd, "RX 6600", (28, 1792, 2491), 8.93, (8.0, 224.0), (4, 8)),
    card(Amd, "RX 6600 XT", (32, 2048, 2589), 10.6, (8.0, 256.0), (4, 8)),
    card(Amd, "RX 6650 XT", (32, 2048, 2635), 10.79, (8.0, 280.0), (4, 8)),
    card(Amd, "RX 6700 XT", (40, 2560, 2581), 13.21, (12.0, 384.0), (4, 16)),
    card(Amd, "RX 6750 XT", (40, 2560, 2600), 13.31, (12.0, 432.0), (4, 16)),
    card(Amd, "RX 6800", (60, 3840, 2105), 16.17, (16.0, 512.0), (4, 16)),
    card(Amd, "RX 6800 XT", (72, 4608, 2250), 20.74, (16.0, 512.0), (4, 16)),
    card(Amd, "RX 6900 XT", (80, 5120, 2250), 23.04, (16.0, 512.0), (4, 16)),
    card(Amd, "RX 6950 XT", (80, 5120, 2310), 23.65, (16.0, 576.0), (4, 16)),
    card(Amd, "RX 7600", (32, 2048, 2655), 21.75, (8.0, 288.0), (4, 8)),
    card(Amd, "RX 7600 XT", (32, 2048, 2755), 22.57, (16.0, 288.0), (4, 8)),
    card(Amd, "RX 7700 XT", (54, 3456, 2544), 35.17, (12.0, 432.0), (4, 16)),
    card(Amd, "RX 7800 XT", (60, 3840, 2430), 37.32, (16.0, 624.0), (4, 16)),
    card(Amd, "RX 7900 GRE", (80, 5120, 2245), 45.98, (16.0, 576.0), (4, 16)),
    card(Amd, "RX 7900 XT", (84, 5376, 2400), 51.6, (20.0, 800.0), (4, 16)),
    card(Amd, "RX 7900 XTX", (96, 6144, 2500), 61.4, (24.0, 960.0), (4, 16)),
    card(Amd, "RX 9060 XT", (32, 2048, 3130), 25.6, (16.0, 320.0), (5, 16)),
    card(Amd, "RX 9070", (56, 3584, 2520), 36.1, (16.0, 640.0), (5, 16)),
    card(Amd, "RX 9070 XT", (64, 4096, 2970), 48.7, (16.0, 640.0), (5, 16)),
    integrated(Amd, "680M", (12, 768, 2400), 3.69, 102.4),
    integrated(Amd, "780M", (12, 768, 2700), 8.29, 120.0),
    integrated(Amd, "890M", (16, 1024, 2900), 11.88, 120.0),
    card(Intel, "A380", (8, 1024, 2000), 4.1, (6.0, 186.0), (4, 8)),
    card(Intel, "A580", (24, 3072, 1700), 10.4, (8.0, 512.0), (4, 16)),
    card(Intel, "A750", (28, 3584, 2050), 14.7, (8.0, 512.0), (4, 16)),
    card(Intel, "A770", (32, 4096, 2100), 17.2, (16.0, 560.0), (4, 16)),
    card(Intel, "B570", (18, 2304, 2500), 11.5, (10.0, 380.0), (4, 8)),
    card(Intel, "B580", (20, 2560, 2670), 13.7, (12.0, 456.0), (4, 8)),
    integrated(Intel, "UHD 770", (2, 256, 1550), 0.79, 76.8),
    integrated(Intel, "Iris Xe", (6, 768, 1350), 2.07, 68.3),
    integrated(Apple, "M1", (8, 1024, 1278), 2.6, 68.0),
    integrated(Apple, "M1 Pro", (16, 2048, 1270), 5.2, 200.0),
    integrated(Apple, "M1 Max", (32, 4096, 1270), 10.4, 400.0),
    integrated(Apple, "M1 Ultra", (64, 8192, 1282), 21.0, 800.0),
    integrated(Apple, "M2", (10, 1280, 1406), 3.6, 100.0),
];

/// Words of drivers and shops around a name.
const AROUND: [&str; 9] = ["nvidia", "geforce", "amd", "radeon", "intel", "intel(r)", "arc", "apple", "graphics"];

/// Number of names that an error proposes.
const PROPOSED: usize = 3;

/// The card of a name, in any writing: `NVIDIA GeForce RTX 3060` is `rtx3060`.
///
/// ```
/// use manyhands::simulator::cards;
/// assert_eq!(cards::find("amd radeon rx6600")?.lanes, 1792);
/// # Ok::<(), manyhands::Error>(())
/// ```
///
/// # Errors
/// If none has it: the error says the nearest.
pub fn find(name: &str) -> Result<&'static Card> {
    let names: Vec<&str> = CARDS.iter().map(|card| card.name).collect();
    let known = |written: &str| names::known(written, &names);
    // The name alone is asked for first, so that no word of it is taken for its maker's.
    let found = known(name).or_else(|| known(&without_maker(name)));
    found.and_then(|name| CARDS.iter().find(|card| card.name == name)).ok_or_else(|| {
        let problem = format!("needs a card of the table, but got `{}`", crate::shown(name));
        Error::setting("the name of a card", problem, help(&without_maker(name), names))
    })
}

fn without_maker(name: &str) -> String {
    let name = name.split(" (").next().unwrap_or_default();
    let is_own = |word: &&str| !AROUND.contains(&word.to_ascii_lowercase().as_str());
    name.split_whitespace().filter(is_own).collect::<Vec<_>>().join(" ")
}

/// Help that proposes the nearest names.
fn help(name: &str, mut names: Vec<&'static str>) -> String {
    let mut nearest = Vec::new();
    while let Some(next) = names::nearest(name, &names).filter(|_| nearest.len() < PROPOSED) {
        names.retain(|known| *known != next);
        nearest.push(format!("`{next}`"));
    }
    let all =
        "`manyhands simulate --list-cards` lists all; for others write `gflops` and `memory_gb_s` in a rig's file";
    if nearest.is_empty() { all.to_owned() } else { format!("did you mean {}? {all}", nearest.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// AMD counts the pairs of operations that RDNA 3 and 4 can issue.
    fn counts_pairs(card: &Card) -> bool {
        let is_later = |name: &str| ["RX 7", "RX 9", "780M", "890M"].iter().any(|start| name.starts_with(start));
        card.vendor == Amd && is_later(card.name)
    }

    #[test]
    fn makers_state_what_their_lanes_and_clocks_give() {
        for card in CARDS {
            let operations = if counts_pairs(card) { 4.0 } else { 2.0 };
            let tflops = f64::from(card.lanes) * operations * f64::from(card.boost_mhz) / 1e6;
            assert!((tflops / card.tflops - 1.0).abs() < 0.02, "{}: {tflops}, stated {}", card.name, card.tflops);
            let per_unit = card.lanes / card.units;
            assert!(
                card.lanes.is_multiple_of(card.units) && [64, 128].contains(&per_unit),
                "{}: {per_unit}",
                card.name
            );
            // A byte of memory for 5 to 120 operations.
            let balance = card.tflops * 1e3 / card.memory_gb_s;
            assert!((5.0..120.0).contains(&balance), "{}: {balance}", card.name);
            assert_eq!(card.memory_gb.is_some(), card.slot.is_some(), "{}", card.name);
            assert!(card.slot.is_none_or(|slot| matches!(slot, (3..=5, 4 | 8 | 16))), "{}", card.name);
        }
    }

    #[test]
    fn each_card_is_found_by_any_writing_of_its_name() {
        let names: BTreeSet<&str> = CARDS.iter().map(|card| card.name).collect();
        assert_eq!(names.len(), CARDS.len(), "a name stands twice");
        assert!(CARDS.len() >= 60);
        for card in CARDS {
            let written = [card.name.to_owned(), card.name.to_lowercase(), card.name.replace(' ', "")];
            let with_maker = ["NVIDIA GeForce", "AMD Radeon", "Intel(R) Arc", "Apple"];
            let with_maker = with_maker.map(|maker| format!("{maker} {} (a driver)", card.name));
            for written in written.into_iter().chain(with_maker) {
                assert_eq!(find(&written).unwrap().name, card.name, "{written}");
            }
        }
    }

    #[test]
    fn an_unknown_name_is_told_the_nearest() {
        let error = find("Radeon RX 660").unwrap_err().to_string();
        assert!(error.starts_with("the name of a card needs a card of the table, but got `Radeon RX 660`"), "{error}");
        assert!(error.contains("did you mean `RX 6600`, `"), "{error}");
        let error = find("Voodoo 2").unwrap_err();
        assert!(error.help().starts_with("`manyhands simulate --list-cards` lists all"), "{error}");
    }
}
