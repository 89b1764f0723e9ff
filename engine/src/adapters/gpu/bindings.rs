//! A pipeline with its layout, and the bind groups of its dispatches.

use super::device::{Gpu, count_object};
use crate::kernels::Extent;

/// A pipeline, and the layout for its bind groups.
#[derive(Clone)]
pub(super) struct KernelPipeline {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) extent: Extent,
}

impl KernelPipeline {
    /// Whether it needs a [`FirstItem`].
    pub(super) fn is_for_parts(&self) -> bool {
        self.extent == Extent::Part
    }
}

/// Bytes `[offset, offset + bytes)` of a buffer, as a binding sees it.
#[derive(Clone, Copy)]
pub(super) struct Slice<'a> {
    pub(super) buffer: &'a wgpu::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The bind group of one dispatch: params, if there are any, then storage.
pub(super) fn bind_group(
    gpu: &Gpu,
    pipeline: &KernelPipeline,
    params: Option<Slice<'_>>,
    storage: &[Slice<'_>],
) -> wgpu::BindGroup {
    count_object();
    let params = params.map(|slice| entry(slice, 0));
    let storage = storage.iter().zip(1..).map(|(slice, binding)| entry(*slice, binding));
    let entries: Vec<_> = params.into_iter().chain(storage).collect();
    gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.layout,
        entries: &entries,
    })
}

fn entry(slice: Slice<'_>, binding: u32) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: slice.buffer,
            offset: slice.offset,
            size: wgpu::BufferSize::new(slice.bytes),
        }),
    }
}
