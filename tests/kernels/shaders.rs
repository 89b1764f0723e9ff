//! Does each entry point validate with no capability that it need not have, translate to SPIR-V, HLSL and MSL, keep WebGPU's default
//! limits, and match its host side? Needs no adapter. SPIR-V goes through `spirv-val`; where CI runs on
//! Linux (`CI=true`) its absence is a failure.

#![allow(clippy::print_stdout, clippy::expect_used, reason = "a test says what it left out, and panics")]

use std::collections::BTreeSet;
use std::process::Command;

use manyhands::extend::{FieldType, Kernel};
use manyhands_engine::kernels::activation_functions::CONSTANTS;
use manyhands_engine::kernels::cases::Case;
use manyhands_engine::kernels::{self, Extent, Tile};
use manyhands_engine::plan::{Grid, Word};
use naga::back::{hlsl, msl, pipeline_constants, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, GlobalVariable, Module, ScalarKind, ShaderStage, StorageAccess, TypeInner};

use crate::needed;

const MAX_STORAGE_BUFFERS: usize = 8;
const MAX_WORKGROUP_BYTES: u32 = 16_384;
const MAX_INVOCATIONS: u32 = 256;

/// What a text may ask of a device: nothing, but for the tiles of 16-bit floats, and `pack2x16float`, which is no feature in WebGPU.
fn capabilities(kernel: &Kernel, tile: Tile) -> Capabilities {
    let of_matrices = Capabilities::COOPERATIVE_MATRIX | Capabilities::SUBGROUP;
    let of_tile = if tile.is_of_halves() { Capabilities::SHADER_FLOAT16 } else { Capabilities::empty() }
        | if tile.is_of_matrices() { of_matrices } else { Capabilities::empty() };
    let halves = if kernel.stem == "halves" { Capabilities::SHADER_FLOAT16_IN_FLOAT32 } else { Capabilities::empty() };
    of_tile | halves
}

/// Every kernel with every tile that makes a difference to it.
fn each(check: impl Fn(&Kernel, Tile, &Module, &ModuleInfo)) {
    let mut entries = 0;
    for kernel in kernels::all() {
        for tile in kernel.tiles().iter().copied() {
            let text = kernel.wgsl(tile);
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|e| panic!("{kernel:?}: {}", e.emit_to_string(&text)));
            let info = Validator::new(ValidationFlags::all(), capabilities(kernel, tile))
                .validate(&module)
                .unwrap_or_else(|e| panic!("{kernel:?}: {}", e.emit_to_string(&text)));
            check(kernel, tile, &module, &info);
            entries += 1;
        }
    }
    assert!(entries >= kernels::all().count() && entries > 0, "no kernel was checked");
}

/// The globals that an entry point uses.
fn globals<'a>(kernel: &Kernel, module: &'a Module, info: &ModuleInfo) -> Vec<&'a GlobalVariable> {
    let at = module.entry_points.iter().position(|entry| entry.name == kernel.entry);
    let at = at.unwrap_or_else(|| panic!("{kernel:?} has no entry point of that name"));
    let used = info.get_entry_point(at);
    module.global_variables.iter().filter(|(handle, _)| !used[*handle].is_empty()).map(|(_, global)| global).collect()
}

/// Pipeline constants to try: the defaults, and those of every case with its tile's own.
fn constants(kernel: &Kernel, tile: Tile) -> Vec<naga::back::PipelineConstants> {
    let cases = (kernel.cases)();
    let as_float = |(name, value)| (name, f64::from(value));
    let of_tile = |case: &Case| tile.constant(case.grid).filter(|_| kernel.is_tiled()).map(as_float);
    let of_cases = cases.iter().map(|case| case.constants.iter().copied().chain(of_tile(case)).collect());
    let mut lists: Vec<Vec<(&str, f64)>> = std::iter::once(Vec::new()).chain(of_cases).collect();
    lists.sort_by_key(|list| format!("{list:?}"));
    lists.dedup();
    lists.iter().map(|list| list.iter().map(|(name, value)| ((*name).to_string(), *value)).collect()).collect()
}

/// An entry point with its constants filled in, as a driver gets it.
fn each_resolved(check: impl Fn(&Kernel, Tile, &str, &Module, &ModuleInfo)) {
    each(|kernel, tile, module, info| {
        for constants in constants(kernel, tile) {
            let name = format!("{kernel:?} {tile:?} {constants:?}");
            let entry = Some((ShaderStage::Compute, kernel.entry));
            let (module, info) = pipeline_constants::process_overrides(module, info, entry, &constants)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            check(kernel, tile, &name, &module, &info);
        }
    });
}

/// Bounds checks and bounded loops, as wgpu sets them for shaders of others; and neither, as for our own.
const CHECKS: [(BoundsCheckPolicy, bool); 2] =
    [(BoundsCheckPolicy::Restrict, true), (BoundsCheckPolicy::Unchecked, false)];

fn policies(policy: BoundsCheckPolicy) -> BoundsCheckPolicies {
    BoundsCheckPolicies { index: policy, buffer: policy, image_load: policy, binding_array: policy }
}

/// SPIR-V for a version of Vulkan, with no capability but the one that every shader has, and those of its tile.
fn spirv(
    kernel: &Kernel,
    tile: Tile,
    module: &Module,
    info: &ModuleInfo,
    version: (u8, u8),
    (policy, bounded): (BoundsCheckPolicy, bool),
) -> Result<Vec<u8>, spv::Error> {
    let of_halves = tile.is_of_halves().then_some(spv::Capability::Float16);
    let of_matrices = [
        spv::Capability::CooperativeMatrixKHR,
        spv::Capability::VulkanMemoryModel,
        spv::Capability::GroupNonUniformArithmetic,
    ];
    let of_matrices = of_matrices.into_iter().filter(|_| tile.is_of_matrices());
    let options = spv::Options {
        lang_version: version,
        capabilities: Some(std::iter::once(spv::Capability::Shader).chain(of_halves).chain(of_matrices).collect()),
        bounds_check_policies: policies(policy),
        force_loop_bounding: bounded,
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        ..Default::default()
    };
    let entry = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: kernel.entry.into() };
    let words = spv::write_vec(module, info, &options, Some(&entry))?;
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

#[test]
fn every_entry_point_is_written_as_hlsl() {
    each_resolved(|kernel, tile, name, module, info| {
        // FXC takes the first, DXC the others, and 16-bit floats from 6.2 on. wgpu has no matrices there.
        let models = [hlsl::ShaderModel::V5_1, hlsl::ShaderModel::V6_0, hlsl::ShaderModel::V6_2];
        let able = match tile {
            _ if tile.is_of_matrices() => &[],
            Tile::Halves64 => &models[2..],
            _ => &models[..2],
        };
        for shader_model in able.iter().copied() {
            for (policy, bounded) in CHECKS {
                let options = hlsl::Options {
                    shader_model,
                    restrict_indexing: policy == BoundsCheckPolicy::Restrict,
                    force_loop_bounding: bounded,
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                };
                let entry = hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, kernel.entry.into())) };
                let mut text = String::new();
                let written = hlsl::Writer::new(&mut text, &options, &entry).write(module, info, None);
                let written = written.unwrap_or_else(|e| panic!("{name} {shader_model:?}: {e}"));
                assert!(matches!(&written.entry_point_names[..], [Ok(_)]), "{name}: {:?}", written.entry_point_names);
                assert!(text.contains("[numthreads("), "{name}: {text}");
            }
        }
    });
}

#[test]
fn every_entry_point_is_written_as_msl() {
    each_resolved(|kernel, tile, name, module, info| {
        for (policy, bounded) in CHECKS {
            let options = msl::Options {
                // The first with matrices is 2.3.
                lang_version: (2, if tile.is_of_matrices() { 3 } else { 0 }),
                bounds_check_policies: policies(policy),
                force_loop_bounding: bounded,
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            };
            let entry = Some((ShaderStage::Compute, kernel.entry.to_string()));
            let pipeline = msl::PipelineOptions { entry_point: entry, ..Default::default() };
            let (text, written) =
                msl::write_string(module, info, &options, &pipeline).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(matches!(&written.entry_point_names[..], [Ok(_)]), "{name}: {:?}", written.entry_point_names);
            assert!(text.contains("kernel void "), "{name}: {text}");
        }
    });
}

/// Vulkan's versions, each with the version of SPIR-V that wgpu writes for it.
const VULKAN: [(&str, (u8, u8)); 3] = [("vulkan1.0", (1, 0)), ("vulkan1.1", (1, 3)), ("vulkan1.3", (1, 6))];

#[test]
fn every_entry_point_is_valid_spirv() {
    if let Err(error) = Command::new("spirv-val").arg("--version").output() {
        needed::missing(&format!("`spirv-val` (Debian's spirv-tools) can't be run: {error}"));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the modules");
    each_resolved(|kernel, tile, name, module, info| {
        for ((target, version), checks) in VULKAN.iter().flat_map(|it| CHECKS.map(|checks| (*it, checks))) {
            let bytes =
                spirv(kernel, tile, module, info, version, checks).unwrap_or_else(|e| panic!("{name} {target}: {e}"));
            // The `spirv-val` of Debian 12 knows no matrices. `compilers/tests/newest.rs` runs them.
            if tile.is_of_matrices() {
                continue;
            }
            let file = folder.path().join("entry.spv");
            std::fs::write(&file, bytes).expect("the module is written");
            let output = Command::new("spirv-val").args(["--target-env", target]).arg(&file).output();
            let output = output.expect("it ran before");
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{name} {target} {checks:?}: {}", String::from_utf8_lossy(&said));
        }
    });
}

/// The validator is one that refuses: a module whose last instruction is missing.
#[test]
fn a_broken_module_is_not_valid_spirv() {
    let text = "@compute @workgroup_size(64) fn forward() {}";
    let module = naga::front::wgsl::parse_str(text).expect("it parses");
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module).expect("it is valid");
    let words = spv::write_vec(&module, &info, &spv::Options::default(), None).expect("it is written");
    let folder = tempfile::tempdir().expect("a folder for the module");
    let file = folder.path().join("entry.spv");
    let bytes: Vec<u8> = words[..words.len() - 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&file, bytes).expect("the module is written");
    match Command::new("spirv-val").arg(&file).output() {
        Ok(output) => assert!(!output.status.success()),
        Err(error) => needed::missing(&format!("`spirv-val` (Debian's spirv-tools) can't be run: {error}")),
    }
}

#[test]
fn bindings_are_those_of_the_host_side() {
    each(|kernel, tile, module, info| {
        let mut told: Vec<(u32, &str, bool)> = Vec::new();
        let inputs = kernel.inputs.iter().map(|name| (*name, false));
        let buffers = inputs.chain(kernel.outputs.iter().map(|name| (*name, true)));
        told.extend((1..).zip(buffers).map(|(binding, (name, writes))| (binding, name, writes)));
        let names: BTreeSet<&str> = told.iter().map(|(_, name, _)| *name).collect();
        assert_eq!(names.len(), told.len(), "{kernel:?}: a name twice");
        assert!(told.len() <= MAX_STORAGE_BUFFERS, "{kernel:?} has too many buffers");

        let mut found: Vec<(u32, &str, bool)> = Vec::new();
        for global in globals(kernel, module, info) {
            let AddressSpace::Storage { access } = global.space else { continue };
            let binding = global.binding.expect("a storage buffer has a binding");
            assert_eq!(binding.group, 0, "{kernel:?}");
            let name = global.name.as_deref().unwrap_or_default();
            found.push((binding.binding, name, access.contains(StorageAccess::STORE)));
            let TypeInner::Array { base, .. } = module.types[global.ty].inner else { panic!("{kernel:?} {name}") };
            // Halves stand in pairs, as words; links are counts.
            let wanted =
                if matches!(name, "packed" | "links" | "chain") { naga::Scalar::U32 } else { naga::Scalar::F32 };
            let is_wanted = matches!(module.types[base].inner,
                TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } if scalar == wanted);
            assert!(is_wanted, "{kernel:?}: `{name}` is no array of f32");
        }
        found.sort_unstable();
        assert_eq!(found, told, "{kernel:?} {tile:?}: shader (left) and host side (right)");
    });
}

#[test]
fn params_are_those_of_the_host_side() {
    each(|kernel, _, module, info| {
        let uniform = globals(kernel, module, info).into_iter().find(|global| global.space == AddressSpace::Uniform);
        assert_eq!(uniform.is_none(), kernel.params.is_empty(), "{kernel:?} reads `params` if it has any");
        let Some(uniform) = uniform else { return };
        assert_eq!(uniform.name.as_deref(), Some("params"), "{kernel:?}");
        assert_eq!(uniform.binding.map(|binding| (binding.group, binding.binding)), Some((0, 0)), "{kernel:?}");
        let TypeInner::Struct { members, .. } = &module.types[uniform.ty].inner else {
            panic!("{kernel:?}: `params` is no struct")
        };
        let found: Vec<(&str, u32, Option<FieldType>)> = members
            .iter()
            .map(|member| (member.name.as_deref().unwrap_or_default(), member.offset, field_type(module, member.ty)))
            .collect();
        let told: Vec<(&str, u32, Option<FieldType>)> =
            (0..).step_by(4).zip(kernel.params).map(|(offset, field)| (field.name, offset, Some(field.ty))).collect();
        assert_eq!(found, told, "{kernel:?}: shader (left) and host side (right)");
    });
}

fn field_type(module: &Module, ty: naga::Handle<naga::Type>) -> Option<FieldType> {
    match module.types[ty].inner {
        TypeInner::Scalar(naga::Scalar { kind: ScalarKind::Uint, width: 4 }) => Some(FieldType::U32),
        TypeInner::Scalar(naga::Scalar { kind: ScalarKind::Float, width: 4 }) => Some(FieldType::F32),
        _ => None,
    }
}

#[test]
fn limits_of_webgpu_are_kept() {
    each(|kernel, tile, module, info| {
        let entry = Some((ShaderStage::Compute, kernel.entry));
        let resolved = pipeline_constants::process_overrides(module, info, entry, &Default::default());
        let (module, info) = resolved.unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
        let entry = module.entry_points.iter().find(|entry| entry.name == kernel.entry).expect("it is there");
        let [x, y, z] = entry.workgroup_size;
        assert!((64..=MAX_INVOCATIONS).contains(&(x * y * z)), "{kernel:?} {tile:?}: {x} x {y} x {z}");
        if tile == Tile::Registers || !kernel.is_tiled() {
            assert_eq!([x, y, z], [kernel.workgroup, 1, 1], "{kernel:?}: workgroup size");
        }
        let bytes: u32 = globals(kernel, &module, &info)
            .iter()
            .filter(|global| global.space == AddressSpace::WorkGroup)
            .map(|global| module.types[global.ty].inner.size(module.to_ctx()))
            .sum();
        assert!(bytes <= MAX_WORKGROUP_BYTES, "{kernel:?} {tile:?} takes {bytes} bytes of workgroup memory");
    });
}

#[test]
fn constants_are_those_of_the_host_side() {
    each(|kernel, _, module, _| {
        let overrides: BTreeSet<&str> = module.overrides.iter().filter_map(|(_, o)| o.name.as_deref()).collect();
        for name in kernel.constants {
            assert!(overrides.contains(name), "{kernel:?}: no `override {name}`");
        }
        // A plan on its way to another machine names constants by their place in this list.
        let functions = kernel.constants.contains(&"ACTIVATION").then_some(CONSTANTS);
        for name in functions.iter().flatten() {
            assert!(
                kernel.constants.contains(name),
                "{kernel:?} applies activation functions, but does not list `{name}`"
            );
        }
        for case in (kernel.cases)() {
            for (name, _) in &case.constants {
                assert!(kernel.constants.contains(name), "{kernel:?}, {}: `{name}` is no constant", case.label);
            }
        }
    });
}

#[test]
fn cases_fit_their_kernel() {
    for kernel in kernels::all() {
        let cases = (kernel.cases)();
        assert!(cases.len() >= 2, "{kernel:?} has too few cases");
        let labels: BTreeSet<&str> = cases.iter().map(|case| case.label.as_str()).collect();
        assert_eq!(labels.len(), cases.len(), "{kernel:?}: a label twice");
        for case in &cases {
            let counts = (case.params.len(), case.inputs.len(), case.outputs.len());
            let told = (kernel.params.len(), kernel.inputs.len(), kernel.outputs.len());
            assert_eq!(counts, told, "{kernel:?}, {}: params, inputs, outputs", case.label);
        }
    }
}

/// The texts for parts of a grid differ in one binding.
#[test]
fn texts_for_parts_of_a_grid_are_written_as_hlsl_and_msl() {
    let mut n_texts = 0;
    for kernel in kernels::all().filter(|kernel| kernel.may_run_in_parts()) {
        for tile in kernel.tiles().iter().copied() {
            let text = kernel.wgsl_for(tile, Extent::Part);
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|e| panic!("{kernel:?}: {}", e.emit_to_string(&text)));
            let mut validator = Validator::new(ValidationFlags::all(), capabilities(kernel, tile));
            let info =
                validator.validate(&module).unwrap_or_else(|e| panic!("{kernel:?}: {}", e.emit_to_string(&text)));
            let bindings = |kernel, info: &ModuleInfo| {
                let places = globals(kernel, &module, info).into_iter().filter_map(|global| global.binding);
                places.filter(|binding| binding.group == 1).map(|binding| binding.binding).collect::<Vec<_>>()
            };
            // A kernel whose grid is one workgroup is never cut, and need not know where a part begins.
            let is_alone = (kernel.cases)().iter().all(|case| case.grid == Grid::Items(Word::U32(1)));
            assert_eq!(bindings(kernel, &info), &[0][usize::from(is_alone)..], "{kernel:?}");
            let entry = Some((ShaderStage::Compute, kernel.entry));
            let (module, info) = pipeline_constants::process_overrides(&module, &info, entry, &Default::default())
                .unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
            let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, ..Default::default() };
            let pipeline = hlsl::PipelineOptions { entry_point: entry.map(|(stage, name)| (stage, name.into())) };
            let mut written = String::new();
            if !tile.is_of_matrices() {
                hlsl::Writer::new(&mut written, &options, &pipeline)
                    .write(&module, &info, None)
                    .expect("it is written");
            }
            let options = msl::Options { lang_version: (2, 3), ..Default::default() };
            msl::write_string(&module, &info, &options, &Default::default()).expect("it is written");
            n_texts += 1;
        }
    }
    assert!(n_texts > kernels::all().count(), "{n_texts}");
}

/// Header fields, in order, of every shader; libraries get away with less.
#[test]
fn shaders_have_their_header() {
    for kernel in kernels::all() {
        let header: Vec<&str> = kernel.source.lines().take_while(|line| line.starts_with("//")).collect();
        let fields = ["Source", "Shapes", "Grid", "Accuracy", "Twin", "Uses"];
        let lines = fields.map(|field| header.iter().position(|line| line.starts_with(&format!("// {field} "))));
        assert!(lines.iter().all(Option::is_some), "{kernel:?}: header fields at {lines:?}");
        assert!(lines.is_sorted(), "{kernel:?}: header fields out of order");
        let uses = header[lines[5].unwrap_or_default()];
        assert_eq!(uses.matches("lib/").count(), kernel.uses.len(), "{kernel:?}: `{uses}`");
    }
}

/// Namespaces of DXC's HLSL, which naga does not know of: a variable of that name does not compile on Windows.
const NAMESPACES: [&str; 2] = ["dx", "vk"];

/// Nothing that only some devices have, no name that some compiler has taken, and no NaN test by `x != x`, which drivers
/// fold to false.
#[test]
fn texts_avoid_known_traps() {
    for kernel in kernels::all() {
        let text = kernel.wgsl(Tile::Workgroup64);
        for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
            assert!(!line.contains("enable ") && !line.contains("atomic"), "{kernel:?}: `{line}`");
            let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            assert!(!words.any(|word| NAMESPACES.contains(&word)), "{kernel:?}: `{line}`");
            let sides = line.split_once(" != ").map(|(a, b)| (a.rsplit(' ').next(), b.split([' ', ')', ';']).next()));
            assert!(sides.is_none_or(|(a, b)| a != b), "{kernel:?}: `{line}`");
        }
    }
}
