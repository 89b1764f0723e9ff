//! Kernels of the plan by which adapters are tested, with their twins.

use manyhands::extend::{Call, Field, FieldType, Kernel};

macro_rules! test_kernel {
    ($static:ident, $entry:literal, $inputs:expr, $twin:expr, $wgsl:literal) => {
        pub static $static: Kernel = Kernel {
            stem: "test",
            entry: $entry,
            source: $wgsl,
            uses: &[],
            params: &[
                Field { name: "rows", ty: FieldType::U32 },
                Field { name: "columns", ty: FieldType::U32 },
                Field { name: "factor", ty: FieldType::F32 },
            ],
            inputs: $inputs,
            outputs: &["y"],
            workgroup: 64,
            constants: &["SHIFT"],
            twin: $twin,
            fast: None,
            tolerance: 0.0,
            cases: Vec::new,
        };
    };
}

test_kernel!(
    SCALE,
    "scale",
    &["x"],
    scale_twin,
    "
override SHIFT: f32 = 0.0;
struct Params { rows: u32, columns: u32, factor: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn scale(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
         @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 64u + lane;
    if i < params.rows * params.columns { y[i] = x[i] * params.factor + SHIFT; }
}"
);

test_kernel!(
    SUM,
    "sum",
    &["x"],
    sum_twin,
    "
struct Params { rows: u32, columns: u32, factor: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn sum(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var total = 0.0;
    for (var r = 0u; r < params.rows; r++) { total += x[r * params.columns + group.x]; }
    if lane == 0u { y[group.x] = total * params.factor; }
}"
);

test_kernel!(
    ADD,
    "add",
    &["x", "row"],
    add_twin,
    "
struct Params { rows: u32, columns: u32, factor: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> row: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn add(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
       @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 64u + lane;
    if i < params.rows * params.columns { y[i] = x[i] + params.factor * row[i % params.columns]; }
}"
);

test_kernel!(BROKEN, "broken", &["x"], |_, _| panic!("this is no twin"), "fn broken() { this is no shader }");

fn words(call: &Call<'_>) -> (usize, usize, f32) {
    (call.params[0] as usize, call.params[1] as usize, f32::from_bits(call.params[2]))
}

#[allow(clippy::cast_possible_truncation, reason = "the shift is a whole number")]
fn scale_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let (rows, columns, factor) = words(call);
    let shift = call.constant("SHIFT", 0.0) as f32;
    for (y, x) in outputs[0].iter_mut().zip(&call.inputs[0][..rows * columns]) {
        *y = x * factor + shift;
    }
}

fn sum_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let (rows, columns, factor) = words(call);
    for (column, y) in outputs[0].iter_mut().enumerate().take(columns) {
        *y = (0..rows).map(|row| call.inputs[0][row * columns + column]).sum::<f32>() * factor;
    }
}

fn add_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let (rows, columns, factor) = words(call);
    let added = call.inputs[1][..columns].iter().cycle();
    for ((y, x), row) in outputs[0].iter_mut().zip(&call.inputs[0][..rows * columns]).zip(added) {
        *y = x + factor * row;
    }
}
