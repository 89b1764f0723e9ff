//! The first workgroup of a part of a grid: long dispatches run in parts.

use super::device::{Gpu, count_object};
use crate::size::F32_BYTES;

/// The first workgroup of the part that runs next, for kernels whose text is for parts. It is 0 but between the parts of a dispatch.
#[derive(Clone)]
pub(super) struct FirstItem {
    buffer: wgpu::Buffer,
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) bind_group: wgpu::BindGroup,
}

impl FirstItem {
    pub(super) fn new(gpu: &Gpu) -> Self {
        (0..3).for_each(|_| count_object());
        let buffer = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("first item"),
            size: F32_BYTES,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let ty = wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Uniform,
            has_dynamic_offset: false,
            min_binding_size: None,
        };
        let entry = wgpu::BindGroupLayoutEntry { binding: 0, visibility: wgpu::ShaderStages::COMPUTE, ty, count: None };
        let layout =
            gpu.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &[entry] });
        let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
        });
        Self { buffer, layout, bind_group }
    }

    /// Sets it for what is submitted next.
    pub(super) fn set(&self, gpu: &Gpu, item: u32) {
        gpu.queue.write_buffer(&self.buffer, 0, bytemuck::bytes_of(&item));
    }
}
