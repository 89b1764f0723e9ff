//! The forms of a kernel: its text for each tile, with each set of constants that its cases have, as SPIR-V.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use manyhands_engine::kernels::cases::Case;
use manyhands_engine::kernels::{self, Kernel, Tile};
use naga::back::{PipelineConstants, pipeline_constants, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, ShaderStage};

/// One text that a driver gets.
#[derive(Clone, Debug)]
pub struct Form {
    /// Its name: `dense.forward Workgroup64 PRODUCT_ACROSS=16`.
    pub name: String,
    /// Name of its kernel.
    pub kernel: String,
    /// Its tile, where the kernel has several.
    pub tile: Option<Tile>,
    /// Constants that differ from their default.
    pub constants: Vec<(String, f64)>,
    /// Its entry point.
    pub entry: String,
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Its buffers.
    pub bindings: Vec<Binding>,
    /// The text.
    pub spirv: Vec<u32>,
}

/// A buffer that a kernel binds in group 0.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Its number.
    pub number: u32,
    /// Whether it is uniform, and not storage.
    pub is_uniform: bool,
}

/// The forms of all kernels whose names contain `part`, with at most `most` sets of constants for each text; of matrices those that the
/// driver has.
///
/// # Errors
/// If a kernel does not compile.
pub fn all(part: &str, most: usize, matrices: &[Tile]) -> Result<Vec<Form>> {
    let is_known = |tile: &Tile| !tile.is_of_matrices() || matrices.contains(tile);
    let mut forms = Vec::new();
    for kernel in kernels::all().filter(|kernel| kernel.name().contains(part)) {
        for tile in kernel.tiles().iter().copied().filter(is_known) {
            for constants in sets(kernel, tile).into_iter().take(most) {
                forms.push(form(kernel, tile, constants).with_context(|| format!("{kernel:?} for {tile:?}"))?);
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

fn form(kernel: &Kernel, tile: Tile, constants: Vec<(String, f64)>) -> Result<Form> {
    let of_tile = if kernel.is_tiled() { format!(" {tile:?}") } else { String::new() };
    let of_constants: String = constants.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let name = format!("{}{of_tile}{of_constants}", kernel.name());
    let mut form = translated(&kernel.wgsl(tile), kernel.entry, constants)?;
    form.tile = kernel.is_tiled().then_some(tile);
    Ok(Form { name, kernel: kernel.name(), ..form })
}

/// The forms of a file of WGSL, one for each entry point: `attention.forward` and others of `attention.wgsl`.
///
/// # Errors
/// If the file can't be read, does not compile, or has no entry point.
pub fn of_file(path: &Path) -> Result<Vec<Form>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| anyhow!("{}", error.emit_to_string(&text)))?;
    ensure!(!module.entry_points.is_empty(), "{} needs an entry point, but has none", path.display());
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let form = |entry: &naga::EntryPoint| {
        let name = format!("{stem}.{}", entry.name);
        let form = translated(&text, &entry.name, Vec::new()).with_context(|| path.display().to_string())?;
        Ok(Form { kernel: name.clone(), name, ..form })
    };
    module.entry_points.iter().map(form).collect()
}

/// As wgpu gives a kernel of ours to a driver of Vulkan 1.3: without checks.
fn translated(text: &str, entry: &str, constants: Vec<(String, f64)>) -> Result<Form> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| anyhow!("{}", error.emit_to_string(text)))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|error| anyhow!("{}", error.emit_to_string(text)))?;
    let values: PipelineConstants = constants.iter().cloned().collect();
    let (module, info) =
        pipeline_constants::process_overrides(&module, &info, Some((ShaderStage::Compute, entry)), &values)?;
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
    let pipeline = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: entry.to_owned() };
    let spirv = spv::write_vec(&module, &info, &options, Some(&pipeline))?;
    let invocations =
        module.entry_points.iter().find(|it| it.name == entry).map_or(0, |it| it.workgroup_size.iter().product());
    let bindings = module.global_variables.iter().filter_map(|(_, variable)| {
        let number = variable.binding.as_ref()?.binding;
        Some(Binding { number, is_uniform: variable.space == AddressSpace::Uniform })
    });
    let bindings = bindings.collect();
    let (name, kernel, entry) = (String::new(), String::new(), entry.to_owned());
    Ok(Form { name, kernel, tile: None, constants, entry, invocations, bindings, spirv })
}
