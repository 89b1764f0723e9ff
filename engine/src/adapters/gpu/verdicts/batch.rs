//! Runs the cases of many pipelines in one submission, and compares them with their twins.

use super::super::super::Fault;
use super::super::bindings::{KernelPipeline, Slice, bind_group};
use super::super::device::Gpu;
use super::super::grid::{Cut, MOST_WORKGROUPS, workgroups};
use super::super::parts::FirstItem;
use super::Verdict;
use crate::kernels::Kernel;
use crate::kernels::cases::{Case, compare_within};
use crate::plan::{ALIGN, Scalars};
use crate::size::F32_BYTES;

/// Value around the outputs, which no kernel may change.
const FILLER: f32 = 12_345.678;
/// Elements from binding to binding at least.
#[allow(clippy::cast_possible_truncation, reason = "64 elements")]
const STEP: usize = ALIGN as usize;
/// Part of a kernel's tolerance by which a result may differ more than on the devices of the tests: rounding differs by driver, and an
/// error of a compiler is far larger.
const LENIENCE: f32 = 4.0;

/// A pipeline, and the cases that it must compute as its twin does.
pub(in crate::adapters::gpu) struct Trial {
    pub(in crate::adapters::gpu) kernel: &'static Kernel,
    pub(in crate::adapters::gpu) cut: Cut,
    pub(in crate::adapters::gpu) pipeline: KernelPipeline,
    pub(in crate::adapters::gpu) cases: Vec<Case>,
}

/// Values of many bindings, one behind the other in a buffer.
struct Arena {
    values: Vec<f32>,
    buffer: Option<wgpu::Buffer>,
}

/// Elements of a binding in an arena.
#[derive(Clone)]
struct Place {
    first: usize,
    len: usize,
}

/// A case with its bindings.
struct Placed<'a> {
    trial: &'a Trial,
    case: &'a Case,
    params: Option<Place>,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
}

impl Arena {
    fn new() -> Self {
        Self { values: Vec::new(), buffer: None }
    }

    /// Adds values, with filler up to where the next may begin.
    fn add(&mut self, values: &[f32]) -> Place {
        let place = Place { first: self.values.len(), len: values.len() };
        self.values.extend(values);
        let end = self.values.len().next_multiple_of(STEP).max(place.first + STEP);
        self.values.resize(end, FILLER);
        place
    }

    fn upload(&mut self, gpu: &Gpu, usage: wgpu::BufferUsages) {
        let usage = usage | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let buffer = gpu.buffer("cases", self.bytes(), usage);
        gpu.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&self.values));
        self.buffer = Some(buffer);
    }

    fn bytes(&self) -> u64 {
        self.values.len() as u64 * F32_BYTES
    }

    fn slice(&self, place: &Place) -> Option<Slice<'_>> {
        let bytes = (place.len as u64).next_multiple_of(ALIGN).max(ALIGN) * F32_BYTES;
        let offset = place.first as u64 * F32_BYTES;
        self.buffer.as_ref().map(|buffer| Slice { buffer, offset, bytes })
    }
}

/// Runs all cases; gives a verdict on each pipeline.
pub(in crate::adapters::gpu) async fn run(
    gpu: &Gpu,
    first_item: Option<&FirstItem>,
    trials: &[Trial],
) -> Result<Vec<Verdict>, Fault> {
    let [mut params, mut inputs, mut outputs] = [(); 3].map(|()| Arena::new());
    let mut placed = Vec::new();
    for trial in trials {
        for case in &trial.cases {
            let words: Vec<f32> = case.params.iter().map(|word| f32::from_bits(*word)).collect();
            placed.push(Placed {
                trial,
                case,
                params: (!words.is_empty()).then(|| params.add(&words)),
                inputs: case.input_values().iter().map(|values| inputs.add(values)).collect(),
                outputs: case.output_values().iter().map(|values| outputs.add(values)).collect(),
            });
        }
    }
    if placed.is_empty() {
        return Ok(vec![Verdict::Untried; trials.len()]);
    }
    let uploads = || {
        params.upload(gpu, wgpu::BufferUsages::UNIFORM);
        inputs.upload(gpu, wgpu::BufferUsages::STORAGE);
        outputs.upload(gpu, wgpu::BufferUsages::STORAGE);
    };
    gpu.scoped(uploads).await?;
    let groups = || placed.iter().map(|it| group(gpu, it, [&params, &inputs, &outputs])).collect::<Option<Vec<_>>>();
    let groups = gpu.scoped(groups).await?.unwrap_or_default();
    let computed = computed(gpu, first_item, &placed, &groups, &outputs).await?;
    let mut verdicts = Vec::with_capacity(trials.len());
    let mut rest = placed.as_slice();
    for trial in trials {
        let (own, behind) = rest.split_at(trial.cases.len());
        rest = behind;
        let wrong = own.iter().find_map(|placed| placed.difference(&computed));
        let none = if own.is_empty() { Verdict::Untried } else { Verdict::Right };
        verdicts.push(wrong.map_or(none, Verdict::Wrong));
    }
    Ok(verdicts)
}

fn group(gpu: &Gpu, placed: &Placed<'_>, [params, inputs, outputs]: [&Arena; 3]) -> Option<wgpu::BindGroup> {
    let of_inputs = placed.inputs.iter().map(|place| inputs.slice(place));
    let of_outputs = placed.outputs.iter().map(|place| outputs.slice(place));
    let storage = of_inputs.chain(of_outputs).collect::<Option<Vec<_>>>()?;
    let params = placed.params.as_ref().and_then(|place| params.slice(place));
    Some(bind_group(gpu, &placed.trial.pipeline, params, &storage))
}

/// The values of the outputs' arena after all cases.
async fn computed(
    gpu: &Gpu,
    first_item: Option<&FirstItem>,
    placed: &[Placed<'_>],
    groups: &[wgpu::BindGroup],
    outputs: &Arena,
) -> Result<Vec<f32>, Fault> {
    let Some(buffer) = &outputs.buffer else { return Ok(Vec::new()) };
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let staging = gpu.scoped(|| gpu.buffer("readback", outputs.bytes(), usage)).await?;
    let mut encoder = gpu.encoder();
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for (Placed { trial, case, .. }, group) in placed.iter().zip(groups) {
        let [x, y, z] = workgroups(case.grid, trial.kernel, trial.cut, &Scalars::default(), MOST_WORKGROUPS);
        pass.set_pipeline(&trial.pipeline.pipeline);
        pass.set_bind_group(0, group, &[]);
        if let Some(first_item) = first_item.filter(|_| trial.pipeline.is_for_parts()) {
            pass.set_bind_group(1, &first_item.bind_group, &[]);
        }
        if x * y * z > 0 {
            pass.dispatch_workgroups(x, y, z);
        }
    }
    drop(pass);
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, outputs.bytes());
    let submission = gpu.submit(encoder);
    staging.slice(..).map_async(wgpu::MapMode::Read, |_| {});
    gpu.wait(submission).await?;
    let mapped = staging.slice(..outputs.bytes()).get_mapped_range();
    let mapped = mapped.map_err(|error| Fault::Lost(error.to_string()))?;
    Ok(bytemuck::cast_slice(&mapped).to_vec())
}

impl Placed<'_> {
    /// The first difference from the twin, if there is one.
    fn difference(&self, computed: &[f32]) -> Option<String> {
        let Self { trial: Trial { kernel, .. }, case, outputs, .. } = self;
        let got: Vec<Vec<f32>> = outputs.iter().map(|at| computed[at.first..at.first + at.len].to_vec()).collect();
        let compared = compare_within(kernel.tolerance * LENIENCE, kernel, case, &got, &case.run(kernel.twin));
        compared.err().or_else(|| {
            let behind = |at: &Place| at.first + at.len..at.first + at.len.next_multiple_of(STEP);
            let is_changed = |at: &Place| computed[behind(at)].iter().any(|value| value.to_bits() != FILLER.to_bits());
            let changed = outputs.iter().any(is_changed);
            changed.then(|| format!("{kernel:?}, {}: it writes behind its output", case.label))
        })
    }
}
