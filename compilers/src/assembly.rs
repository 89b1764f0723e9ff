//! Instructions by kind, of all blocks and of the hottest, on which a kernel spends its time.

use std::collections::{BTreeMap, BTreeSet};

use crate::languages::{Kind, Language};

/// Instructions of one block.
pub type Mix = BTreeMap<Kind, u32>;

/// The blocks of each loop, by its first.
type Loops = BTreeMap<usize, BTreeSet<usize>>;

/// A block of instructions that run one after the other.
#[derive(Default)]
struct Block {
    label: String,
    mix: Mix,
    /// Multiply-adds of an invocation.
    multiply_adds: f64,
    /// Labels of the blocks that may run next, and how often the compiler guesses that a jump there is not taken.
    next: Vec<(String, f64)>,
}

/// Multiply-adds of an invocation, with each block run as often as the compiler guesses for its model of cycles.
pub fn multiply_adds(assembly: &str, language: Language, subgroup: u32) -> f64 {
    let blocks = blocks(assembly, language, subgroup);
    let loops = loops(&blocks, language);
    let of_block = |(at, block): (usize, &Block)| {
        let depth = loops.values().filter(|blocks| blocks.contains(&at)).count();
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        block.multiply_adds * language.runs(depth) * skips(&blocks, &loops, at)
    };
    blocks.iter().enumerate().map(of_block).sum()
}

/// The compiler's guess for the part of runs in which no jump skips a block. A jump out of a loop counts as none.
fn skips(blocks: &[Block], loops: &Loops, at: usize) -> f64 {
    let mut part = 1.0;
    for (from, block) in blocks[..at].iter().enumerate() {
        let last = loops.values().filter(|blocks| blocks.contains(&from)).filter_map(|blocks| blocks.last()).min();
        for (label, falls_through) in &block.next {
            let to = blocks.iter().position(|block| block.label == *label);
            if to.is_some_and(|to| to > at && last.is_none_or(|last| to <= *last)) {
                part *= falls_through;
            }
        }
    }
    part
}

/// The mix of the hottest block, and the multiply-adds of an invocation in it: of the block with most multiply-adds within a loop; without
/// any, of the longest one within a loop; without a loop, of the longest.
pub fn hottest(assembly: &str, language: Language, subgroup: u32) -> (Mix, f64) {
    let blocks = blocks(assembly, language, subgroup);
    let at = hottest_of(&blocks, &loops(&blocks, language));
    at.map(|at| (blocks[at].mix.clone(), blocks[at].multiply_adds)).unwrap_or_default()
}

fn hottest_of(blocks: &[Block], loops: &Loops) -> Option<usize> {
    let weight = |at: usize| {
        let Block { mix, multiply_adds, .. } = &blocks[at];
        let is_looped = loops.values().any(|blocks| blocks.contains(&at));
        // The bits of floats that are not negative are ordered as they are.
        (is_looped, multiply_adds.to_bits(), mix.values().sum::<u32>())
    };
    (0..blocks.len()).max_by_key(|at| weight(*at))
}

/// Instructions a multiply-add of an invocation in the outermost loop around the hottest block, whatever runs before and after it: what a
/// multiply-add costs where that loop runs often. A loop within it counts as [`INNER_RUNS`] runs, and no jump skips a block.
pub fn main_loop(assembly: &str, language: Language, subgroup: u32) -> Option<f64> {
    let blocks = blocks(assembly, language, subgroup);
    let loops = loops(&blocks, language);
    let hottest = hottest_of(&blocks, &loops)?;
    let around = loops.values().filter(|blocks| blocks.contains(&hottest)).max_by_key(|blocks| blocks.len())?;
    let mut sums = [0.0, 0.0];
    for at in around {
        let within = loops.values().filter(|blocks| blocks.contains(at) && blocks.len() < around.len()).count();
        let runs = INNER_RUNS.powf(f64::from(u32::try_from(within).unwrap_or(u32::MAX)));
        sums[0] += runs * f64::from(blocks[*at].mix.values().sum::<u32>());
        sums[1] += runs * blocks[*at].multiply_adds;
    }
    (sums[1] > 0.0).then(|| sums[0] / sums[1])
}

/// Runs of a loop within the main loop: those of our products, which take 4 × 4 of 16 numbers, and of attention with 64 columns a head.
const INNER_RUNS: f64 = 4.0;

/// The mix of all blocks.
pub fn all(assembly: &str, language: Language) -> Mix {
    let mut all = Mix::new();
    for (kind, count) in blocks(assembly, language, 1).iter().flat_map(|block| &block.mix) {
        *all.entry(*kind).or_default() += count;
    }
    all
}

fn blocks(assembly: &str, language: Language, subgroup: u32) -> Vec<Block> {
    let mut blocks = vec![Block::default()];
    for line in assembly.lines().map(str::trim) {
        let read = language.read(line);
        if let Some(label) = read.label {
            blocks.push(Block { label: label.to_owned(), ..Block::default() });
        }
        let Some(last) = blocks.last_mut() else { continue };
        if let Some(kind) = read.kind {
            *last.mix.entry(kind).or_default() += 1;
        }
        if read.kind == Some(Kind::MultiplyAdd) {
            // RDNA 3 has two in one instruction.
            let pair = if line.starts_with("v_dual_") && line.matches("_fma").count() == 2 { 2.0 } else { 1.0 };
            last.multiply_adds += pair * read.lanes.map_or(1.0, |lanes| f64::from(lanes) / f64::from(subgroup));
        }
        let falls_through = language.falls_through(line);
        last.next.extend(read.next.into_iter().map(|label| (label.to_owned(), falls_through)));
    }
    blocks
}

/// All loops: some later block, or the first itself, jumps back to the first.
fn loops(blocks: &[Block], language: Language) -> Loops {
    let position = |label: &str| blocks.iter().position(|block| block.label == label);
    let next: Vec<Vec<usize>> =
        blocks.iter().map(|block| block.next.iter().filter_map(|(label, _)| position(label)).collect()).collect();
    let mut loops = Loops::new();
    for (from, next_of) in next.iter().enumerate() {
        for first in next_of.iter().copied().filter(|to| *to <= from) {
            let blocks = loops.entry(first).or_default();
            if language.is_in_order() {
                blocks.extend(first..=from);
                continue;
            }
            // All from which the jump back can be reached without the first.
            blocks.insert(first);
            let mut reached = vec![from];
            while let Some(at) = reached.pop() {
                if blocks.insert(at) {
                    reached.extend((0..next.len()).filter(|it| next[*it].contains(&at)));
                }
            }
        }
    }
    loops
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "BB0:
\ts_load_dwordx2 s[0:1], s[2:3], 0x0           ; f4040001
\tv_mad_u32_u24 v0, v1, v2, v3                  ; d5
BB1:
\tbuffer_load_dword v1, v2, s[4:7], 0 offen     ; e0
\tv_fmac_f32_e32 v0, v1, v2                     ; 56
\tv_dual_fmac_f32 v0, v1, v2 :: v_dual_fmac_f32 v3, v4, v5
\ts_waitcnt vmcnt(0)                            ; bf
\ts_cbranch_scc0 BB1                            ; bf
BB2:
\tv_add_f32_e32 v0, v1, v2
\tv_add_f32_e32 v0, v1, v2
\tv_add_f32_e32 v0, v1, v2
\tv_add_f32_e32 v0, v1, v2
\tds_write_b32 v0, v1
\tbuffer_store_dword v0, v1, s[4:7], 0 offen
\ts_endpgm
";

    #[test]
    fn the_loop_is_hotter_than_longer_blocks() {
        let mix = Mix::from([(Kind::MultiplyAdd, 2), (Kind::Memory, 1), (Kind::Control, 2)]);
        assert_eq!(hottest(TEXT, Language::Amd, 64), (mix, 3.0));
    }

    #[test]
    fn every_instruction_is_counted() {
        let mix = all(TEXT, Language::Amd);
        let expected = [
            (Kind::MultiplyAdd, 2),
            (Kind::Vector, 5),
            (Kind::Scalar, 1),
            (Kind::Memory, 2),
            (Kind::Workgroup, 1),
            (Kind::Control, 3),
        ];
        assert_eq!(mix, Mix::from(expected));
    }

    #[test]
    fn multiply_adds_run_as_often_as_the_compiler_guesses() {
        // A fused one and a pair, in one loop.
        assert_eq!(multiply_adds(TEXT, Language::Amd, 64), 3.0 * 8.0);
        let skipped = "BB0:\n s_cbranch_execz BB2\nBB1:\n v_fmac_f32_e32 v0, v1, v2\nBB2:\n s_endpgm";
        assert_eq!(multiply_adds(skipped, Language::Amd, 64), 0.75);
        let nested = "LABEL1:\nLABEL2:\nmad(8) g1<1>F g1<8>F g2<8>F g3<1>F\nwhile(8) JIP: LABEL2\nwhile(8) JIP: LABEL1";
        assert_eq!(multiply_adds(nested, Language::Intel, 16), 100.0 / 2.0);
    }

    #[test]
    fn the_main_loop_is_the_outermost_one() {
        // 5 instructions and 3 multiply-adds in a loop of its own.
        assert_eq!(main_loop(TEXT, Language::Amd, 64), Some(5.0 / 3.0));
        let add = "mad(8) g1<1>F g1<8>F g2<8>F g3<1>F";
        let nested =
            format!("{add}\nLABEL1:\nadd(8) g1<1>F g1<8>F\nLABEL2:\n{add}\nwhile(8) JIP: LABEL2\nwhile(8) JIP: LABEL1");
        // A block ends at the next label: the outer jump counts as one of the inner block.
        assert_eq!(main_loop(&nested, Language::Intel, 8), Some((1.0 + 4.0 * 3.0) / 4.0));
        assert_eq!(main_loop(add, Language::Intel, 8), None);
    }

    #[test]
    fn blocks_that_leave_a_loop_of_nvidia_are_not_in_it() {
        let add = "r5 = ffma.ftz r1 r2 r5 // delay=2";
        let text = format!(
            "block 0 L0 [] -> {{\n{add}\n}} -> [1]\nblock 1 L1 [0, 3] -> {{\n{add}\n}} -> [2, 3]
            block 2 L2 [1] -> {{\n{add}\n}} -> []\nblock 3 L3 [1] -> {{\n{add}\n}} -> [1]"
        );
        assert_eq!(multiply_adds(&text, Language::Nvidia, 32), 2.0 + 2.0 * 10.0);
    }
}
