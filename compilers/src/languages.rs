//! The texts of three compilers, line by line.

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
    /// Waits, barriers, fences, jumps.
    Control,
}

/// The way in which a compiler of Mesa writes instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// AMD's, by ACO.
    Amd,
    /// Intel's, by ANV's compiler.
    Intel,
    /// NVIDIA's, by NAK.
    Nvidia,
}

/// A line as it was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Line<'a> {
    /// Label of the block that begins.
    pub label: Option<&'a str>,
    /// Kind of the instruction.
    pub kind: Option<Kind>,
    /// Labels of the blocks that may run next.
    pub next: Vec<&'a str>,
    /// Lanes that compute, if the instruction has fewer or more than the subgroup; of an instruction of matrices its multiply-adds.
    pub lanes: Option<u32>,
}

impl Language {
    /// Runs of a block within so many loops, by the compiler's own guess.
    ///
    /// Source: Mesa, `aco_statistics.cpp`, `brw_ir_performance.cpp`, and `estimate_block_weight` of NAK.
    pub fn runs(self, loops: u32) -> f64 {
        match (self, loops) {
            (_, 0) => 1.0,
            (Self::Amd, 1) => 8.0,
            (Self::Amd, _) => 8.0 * 2_f64.powf(f64::from(loops)),
            (Self::Intel, _) => 10_f64.powf(f64::from(loops)),
            (Self::Nvidia, _) => 10_f64.powf(f64::from(loops + 1).log2()).trunc(),
        }
    }

    /// Whether a loop's blocks stand together.
    pub fn is_in_order(self) -> bool {
        self != Self::Nvidia
    }

    /// Lanes of which the compiler gives cycles, if they are not those of a subgroup.
    ///
    /// Source: `wave64_per_cycle` in `aco_statistics.cpp`.
    pub fn lanes_of_cycles(self) -> Option<u32> {
        (self == Self::Amd).then_some(64)
    }

    /// The compiler's guess for the part of runs in which a jump forward is not taken.
    pub fn falls_through(self, line: &str) -> f64 {
        match self {
            Self::Amd if line.starts_with("s_cbranch_exec") => 0.75,
            Self::Amd if line.starts_with("s_cbranch") || line.starts_with("s_branch") => 0.5,
            _ => 1.0,
        }
    }

    /// Reads a line without spaces around it.
    pub fn read(self, line: &str) -> Line<'_> {
        match self {
            Self::Amd => amd(line),
            Self::Intel => intel(line),
            Self::Nvidia => nvidia(line),
        }
    }
}

fn amd(line: &str) -> Line<'_> {
    if let Some(label) = numbered(line, "BB") {
        return Line { label: Some(label), ..Line::default() };
    }
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let jumps = line.starts_with("s_cbranch") || line.starts_with("s_branch");
    let next = words.next().filter(|_| jumps).into_iter().collect();
    Line { kind: amd_kind(name), next, lanes: of_matrices(name), ..Line::default() }
}

/// Multiply-adds of an instruction of matrices, whose name has their three sizes: `v_wmma_f32_16x16x16_f16`, `hmma.m16n8k16.f32`.
fn of_matrices(name: &str) -> Option<u32> {
    let sizes_of = |part: &str| -> Vec<u32> {
        part.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    let sizes = name.split(['_', '.']).map(sizes_of).find(|sizes| sizes.len() == 3)?;
    Some(sizes.iter().product())
}

/// The label that a line consists of, up to its colon: a stem and a number.
fn numbered<'a>(line: &'a str, stem: &str) -> Option<&'a str> {
    let (label, _) = line.split_once(':')?;
    let number = label.strip_prefix(stem)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(label)
}

fn amd_kind(name: &str) -> Option<Kind> {
    let (family, rest) = name.split_once('_')?;
    Some(match family {
        // A float that becomes one of 16 bits.
        "v" if rest.starts_with("fma_mixlo") || rest.starts_with("fma_mixhi") => Kind::Vector,
        "v" if ["fma", "mac", "mad_f", "dot", "wmma"].iter().any(|part| rest.contains(part)) => Kind::MultiplyAdd,
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

/// `(+f0.0) name.modifier(lanes)  result  factors`. What a `send` does stands in the line after it.
fn intel(line: &str) -> Line<'_> {
    if let Some(label) = numbered(line, "LABEL") {
        return Line { label: Some(label), ..Line::default() };
    }
    if let Some((unit, message)) = line.split_once("MsgDesc:") {
        return Line { kind: Some(intel_message(unit, message)), ..Line::default() };
    }
    let unpredicated = match line.strip_prefix('(').and_then(|rest| rest.split_once(") ")) {
        Some((_, rest)) => rest.trim_start(),
        None => line,
    };
    // Names stand before the number of lanes; `math` and `sync` have their function in between.
    let Some((name, rest)) = unpredicated.split_once('(') else { return Line::default() };
    let name = name.split(['.', ' ']).next().unwrap_or_default();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return Line::default();
    }
    let kind = match name {
        "send" | "sends" | "sendc" | "sendsc" => return Line::default(),
        "mad" | "mac" | "madm" if is_float(rest) => Kind::MultiplyAdd,
        "dp4a" | "dpas" => Kind::MultiplyAdd,
        "sync" | "if" | "else" | "endif" | "while" | "break" | "cont" | "halt" | "jmpi" | "nop" | "wait" | "ret"
        | "call" => Kind::Control,
        _ => Kind::Vector,
    };
    // All other jumps lead forward.
    let next = (name == "while").then(|| rest.split_whitespace().find(|word| word.starts_with("LABEL"))).flatten();
    Line { label: None, kind: Some(kind), next: next.into_iter().collect(), lanes: number(rest) }
}

/// The number of lanes at the begin of what follows `(`.
fn number(rest: &str) -> Option<u32> {
    rest.split(')').next()?.parse().ok()
}

/// Whether the first register after the number of lanes is of floats.
fn is_float(rest: &str) -> bool {
    let result = rest.split_whitespace().nth(1).unwrap_or_default();
    result.ends_with(">F") || result.ends_with(">HF")
}

fn intel_message(unit: &str, message: &str) -> Kind {
    let is_memory =
        ["ugm", "tgm", "dp data", "data", "hdc", "const", "sampler"].iter().any(|it| unit.trim().starts_with(it));
    if message.contains("fence") {
        Kind::Control
    // Before Arc, workgroup memory is the surface 254.
    } else if unit.trim() == "slm" || message.contains("Surface = 254") {
        Kind::Workgroup
    } else if is_memory {
        Kind::Memory
    } else {
        Kind::Control
    }
}

/// `@!p0  result = name.modifiers factors  // delay`; blocks are `block 4 L8 [3] -> {` to `} -> [5, 11]`.
fn nvidia(line: &str) -> Line<'_> {
    if let Some(next) = line.strip_prefix("} -> [").and_then(|rest| rest.strip_suffix(']')) {
        return Line { next: next.split(", ").filter(|it| !it.is_empty()).collect(), ..Line::default() };
    }
    if line.starts_with("block") && line.ends_with("-> {") {
        return Line { label: line.split_whitespace().nth(1), ..Line::default() };
    }
    let Some((instruction, _)) = line.split_once("// delay=") else { return Line::default() };
    let (result, operation) = instruction.split_once(" = ").unwrap_or(("", instruction));
    let mut words = operation.split_whitespace().skip_while(|word| word.starts_with('@'));
    let is_uniform = result.split_whitespace().any(|word| word.starts_with("ur") || word.starts_with("up"));
    let name = words.next();
    Line { kind: name.map(|name| nvidia_kind(name, is_uniform)), lanes: name.and_then(of_matrices), ..Line::default() }
}

fn nvidia_kind(name: &str, is_uniform: bool) -> Kind {
    let mut parts = name.split('.');
    match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
        ("ffma" | "hfma2" | "dfma" | "hmma" | "imma", _) => Kind::MultiplyAdd,
        ("ld" | "st" | "atom", "shared") => Kind::Workgroup,
        ("ld" | "st" | "atom" | "red" | "suld" | "sust" | "suatom" | "tex" | "tld", _) => Kind::Memory,
        (
            "bra" | "bsync" | "bssy" | "bclear" | "nop" | "bar" | "exit" | "membar" | "warpsync" | "depbar" | "brk",
            _,
        ) => Kind::Control,
        _ if is_uniform => Kind::Scalar,
        // A constant for a vector is a load of no buffer.
        _ => Kind::Vector,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(kind: Kind) -> Line<'static> {
        Line { kind: Some(kind), ..Line::default() }
    }

    #[test]
    fn matrices_are_multiplied_by_one_instruction() {
        let of = |lanes| Line { lanes: Some(lanes), ..of_kind(Kind::MultiplyAdd) };
        let amd = "v_wmma_f32_16x16x16_f16 v[28:31], v[64:71], v[44:51], v[28:31] ; cc40401c";
        assert_eq!(Language::Amd.read(amd), of(16 * 16 * 16));
        let nvidia = "r76..80  = hmma.m16n8k16.f32 r64..68 r68..70 r76..80    // delay=1 wt=000011 wr:0";
        assert_eq!(Language::Nvidia.read(nvidia), of(16 * 8 * 16));
        let rounded = "v_fma_mixlo_f16 v50, 1.0, v15, neg(0) op_sel_hi:[0,0,1]";
        assert_eq!(Language::Amd.read(rounded), of_kind(Kind::Vector));
    }

    #[test]
    fn intel_sends_are_told_by_the_line_after_them() {
        let read = |line| Language::Intel.read(line);
        assert_eq!(read("send(8)  g61UD  g62UD  nullUD  0x4200d500  0x02000000"), Line::default());
        assert_eq!(read("ugm MsgDesc: ( load, a32, d32, V4, L1STATE_L3MOCS dst_len = 1 )"), of_kind(Kind::Memory));
        assert_eq!(read("slm MsgDesc: ( load, a32, d32, V8, transpose )"), of_kind(Kind::Workgroup));
        assert_eq!(read("slm MsgDesc: ( fence, a32, threadgroup, none )"), of_kind(Kind::Control));
        assert_eq!(read("dp data 1 MsgDesc: (untyped surface read, Surface = 254, SIMD8)"), of_kind(Kind::Workgroup));
        assert_eq!(read("dp data 1 MsgDesc: (untyped surface read, Surface = 4, SIMD8)"), of_kind(Kind::Memory));
        assert_eq!(read("gateway MsgDesc: (open)  mlen 1"), of_kind(Kind::Control));
    }

    #[test]
    fn intel_multiplies_and_adds_floats() {
        let read = |line| Language::Intel.read(line);
        assert_eq!(
            read("mad(16)  g33<1>F  g33<8,8,1>F  g5<8,8,1>F  g7<1,1,1>F { align1 1H }"),
            Line { lanes: Some(16), ..of_kind(Kind::MultiplyAdd) }
        );
        assert_eq!(
            read("mad(8)  g33<1>D  g33<8,8,1>D  g5<8,8,1>W  g7<1,1,1>W { align1 1Q }"),
            Line { lanes: Some(8), ..of_kind(Kind::Vector) }
        );
        assert_eq!(
            read("(+f0.0) sel(8) g23<1>UD  g95<0,1,0>UD  0x1UD"),
            Line { lanes: Some(8), ..of_kind(Kind::Vector) }
        );
        assert_eq!(
            read("math inv(8)  g14<1>F  g4<0,1,0>F  null<8,8,1>F"),
            Line { lanes: Some(8), ..of_kind(Kind::Vector) }
        );
        assert_eq!(
            read("sync nop(1)  null<0,1,0>UB  { align1 WE_all 1N I@3 }"),
            Line { lanes: Some(1), ..of_kind(Kind::Control) }
        );
        assert_eq!(read("Push constant ranges:"), Line::default());
        assert_eq!(read("RANGE0 (32B): Vulkan push constants and API params"), Line::default());
    }

    #[test]
    fn only_the_end_of_a_loop_of_intel_jumps_back() {
        let read = |line| Language::Intel.read(line);
        assert_eq!(read("LABEL13:").label, Some("LABEL13"));
        assert_eq!(read("while(8)        JIP:  LABEL13    { align1 1Q }").next, ["LABEL13"]);
        assert_eq!(
            read("(+f0.0) break(8) JIP:  LABEL5  UIP:  LABEL5 { align1 1Q }"),
            Line { lanes: Some(8), ..of_kind(Kind::Control) }
        );
    }

    #[test]
    fn nvidia_instructions_have_a_result_or_none() {
        let read = |line| Language::Nvidia.read(line);
        assert_eq!(read("r5      = ffma.ftz r1 r2 r5           // delay=2 wt=000010"), of_kind(Kind::MultiplyAdd));
        assert_eq!(read("@!p0            bra pT L1                   // delay=1"), of_kind(Kind::Control));
        assert_eq!(read("ur6..8  = imad64 ur4 ur5 rZ           // delay=4"), of_kind(Kind::Scalar));
        assert_eq!(read("r4..8 = ld.shared.strong.cta.b128 [r1] // delay=2 wr:1"), of_kind(Kind::Workgroup));
        assert_eq!(read("@p1 st.global.a64.strong.gpu.b32 [r2..4] r1 // delay=2"), of_kind(Kind::Memory));
        assert_eq!(read("p1 null = plop3 pT pT pT LUT[0xcc] LUT[0x0] // delay=9"), of_kind(Kind::Vector));
    }

    #[test]
    fn nvidia_blocks_name_what_runs_next() {
        let read = |line| Language::Nvidia.read(line);
        assert_eq!(read("block.u 3 L3 [1, 2] -> {").label, Some("3"));
        assert_eq!(read("} -> [4, 264]").next, ["4", "264"]);
        assert_eq!(read("} -> []").next, Vec::<&str>::new());
    }
}
