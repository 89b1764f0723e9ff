//! Instructions by kind, of all blocks and of the hottest, on which a kernel spends its time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Kinds of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Multiply-adds of vectors: the work of a product.
    MultiplyAdd,
    /// Other arithmetic of vectors.
    Vector,
    /// Arithmetic of numbers that all invocations share.
    Scalar,
    /// Loads and stores of buffers.
    Memory,
    /// Loads and stores of workgroup memory.
    Workgroup,
    /// Waits, barriers, jumps.
    Control,
}

/// Instructions of one block.
pub type Mix = BTreeMap<Kind, u32>;

/// A block of instructions that run one after the other.
struct Block<'a> {
    label: &'a str,
    instructions: Vec<&'a str>,
}

/// The mix of the hottest block of a text by ACO, AMD's compiler of Mesa: the one with most multiply-adds within a loop; without any, the
/// longest one within a loop; without a loop, the longest.
pub fn hottest(assembly: &str) -> Mix {
    let blocks = blocks(assembly);
    let looped = looped(&blocks);
    let weight = |at: usize| {
        let mix = mix(&blocks[at]);
        (looped[at], mix.get(&Kind::MultiplyAdd).copied().unwrap_or(0), mix.values().sum::<u32>())
    };
    (0..blocks.len()).max_by_key(|at| weight(*at)).map(|at| mix(&blocks[at])).unwrap_or_default()
}

/// The mix of all blocks.
pub fn all(assembly: &str) -> Mix {
    let mut all = Mix::new();
    for block in blocks(assembly) {
        for (kind, count) in mix(&block) {
            *all.entry(kind).or_default() += count;
        }
    }
    all
}

fn blocks(assembly: &str) -> Vec<Block<'_>> {
    let mut blocks = vec![Block { label: "BB0", instructions: Vec::new() }];
    for line in assembly.lines().map(str::trim) {
        if let Some((label, _)) = line.split_once(':').filter(|(label, _)| is_label(label)) {
            blocks.push(Block { label, instructions: Vec::new() });
        } else if let Some(last) = blocks.last_mut().filter(|_| kind(line).is_some()) {
            last.instructions.push(line);
        }
    }
    blocks
}

fn is_label(text: &str) -> bool {
    text.strip_prefix("BB").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether each block lies within a loop: some later block, or itself, jumps back to it or before it.
fn looped(blocks: &[Block<'_>]) -> Vec<bool> {
    let mut looped = vec![false; blocks.len()];
    for (from, block) in blocks.iter().enumerate() {
        let jumps = block.instructions.iter().filter(|it| it.starts_with("s_cbranch") || it.starts_with("s_branch"));
        let targets = jumps.filter_map(|it| it.split_whitespace().nth(1));
        for to in targets.filter_map(|target| blocks[..=from].iter().position(|block| block.label == target)) {
            looped[to..=from].fill(true);
        }
    }
    looped
}

fn mix(block: &Block<'_>) -> Mix {
    let mut mix = Mix::new();
    for kind in block.instructions.iter().filter_map(|it| kind(it)) {
        *mix.entry(kind).or_default() += 1;
    }
    mix
}

/// Kind of an instruction by its name; `None` for a line that is none.
fn kind(line: &str) -> Option<Kind> {
    let name = line.split_whitespace().next()?;
    let (family, rest) = name.split_once('_')?;
    Some(match family {
        "v" if ["fma", "mac", "mad_f", "dot"].iter().any(|part| rest.contains(part)) => Kind::MultiplyAdd,
        "v" => Kind::Vector,
        "s" if ["wait", "nop", "barrier", "branch", "cbranch", "endpgm", "clause", "delay", "sleep", "inst"]
            .iter()
            .any(|part| rest.starts_with(part)) =>
        {
            Kind::Control
        }
        "s" => Kind::Scalar,
        "buffer" | "global" | "flat" | "scratch" => Kind::Memory,
        "ds" => Kind::Workgroup,
        _ => return None,
    })
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
        let mix = hottest(TEXT);
        assert_eq!(mix, Mix::from([(Kind::MultiplyAdd, 2), (Kind::Memory, 1), (Kind::Control, 2)]));
    }

    #[test]
    fn every_instruction_is_counted() {
        let mix = all(TEXT);
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
}
