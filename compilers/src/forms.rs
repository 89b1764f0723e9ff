//! The forms of a kernel: its text for each tile, with each set of constants that its cases have, as SPIR-V.

use anyhow::{Context, Result, anyhow};
use manyhands_engine::kernels::cases::Case;
use manyhands_engine::kernels::{self, Kernel, Tile};
use naga::ShaderStage;
use naga::back::{PipelineConstants, pipeline_constants, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// One text that a driver gets.
#[derive(Debug)]
pub struct Form {
    /// Its kernel.
    pub kernel: &'static Kernel,
    /// Its tile; any where the kernel has but one text.
    pub tile: Tile,
    /// Constants that differ from their default.
    pub constants: Vec<(String, f64)>,
    /// The text.
    pub spirv: Vec<u32>,
}

impl Form {
    /// Its name: `dense.forward Workgroup64 PRODUCT_ACROSS=16`.
    pub fn name(&self) -> String {
        let tile = if self.kernel.is_tiled() { format!(" {:?}", self.tile) } else { String::new() };
        let constants = self.constants.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{}{tile}{}", self.kernel.name(), constants.collect::<String>())
    }
}

/// The forms of all kernels whose names contain `part`, with at most `most` sets of constants for each text.
///
/// # Errors
/// If a kernel does not compile.
pub fn all(part: &str, most: usize) -> Result<Vec<Form>> {
    let mut forms = Vec::new();
    for kernel in kernels::all().filter(|kernel| kernel.name().contains(part)) {
        for tile in kernel.tiles().iter().copied() {
            for constants in sets(kernel, tile).into_iter().take(most) {
                let spirv = spirv(kernel, tile, &constants).with_context(|| format!("{kernel:?} for {tile:?}"))?;
                forms.push(Form { kernel, tile, constants, spirv });
            }
        }
    }
    Ok(forms)
}

/// The sets of constants of a kernel's cases that a tile can compute, each once, in the order of the cases.
fn sets(kernel: &Kernel, tile: Tile) -> Vec<Vec<(String, f64)>> {
    let mut sets = Vec::new();
    let is_able = |case: &Case| !kernel.is_tiled() || tile.is_able(case.grid, &case.constants);
    for case in (kernel.cases)().iter().filter(|case| is_able(case)) {
        let of_tile = tile.constant(case.grid).filter(|_| kernel.is_tiled());
        let of_tile = of_tile.map(|(name, value)| (name, f64::from(value)));
        let set = case.constants.iter().copied().chain(of_tile).map(|(name, value)| (name.to_owned(), value));
        let set: Vec<(String, f64)> = set.collect();
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// As wgpu gives a kernel of ours to a driver of Vulkan 1.3: without checks.
fn spirv(kernel: &Kernel, tile: Tile, constants: &[(String, f64)]) -> Result<Vec<u32>> {
    let text = kernel.wgsl(tile);
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| anyhow!("{}", error.emit_to_string(&text)))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|error| anyhow!("{}", error.emit_to_string(&text)))?;
    let constants: PipelineConstants = constants.iter().cloned().collect();
    let entry = Some((ShaderStage::Compute, kernel.entry));
    let (module, info) = pipeline_constants::process_overrides(&module, &info, entry, &constants)?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: (1, 6),
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        force_loop_bounding: false,
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        ..Default::default()
    };
    let pipeline = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: kernel.entry.into() };
    Ok(spv::write_vec(&module, &info, &options, Some(&pipeline))?)
}
