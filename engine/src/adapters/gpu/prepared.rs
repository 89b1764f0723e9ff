//! Dispatches that are ready to be encoded.

use super::parts::FirstItem;
use super::tuning::{self, TileChoice};
use crate::kernels::{Extent, completion};

/// A dispatch that is ready to be encoded.
pub(super) struct PreparedDispatch {
    /// With the tile that suits the kind of adapter.
    pub(super) usual: TileChoice,
    /// With better tiles, found by measurement, by size of the run.
    pub(super) tuned: Vec<(u32, TileChoice)>,
    pub(super) bind_group: wgpu::BindGroup,
    /// Position of its params in the arena, in bytes.
    pub(super) params_at: u64,
    /// Whether it may run in parts.
    pub(super) extent: Extent,
}

impl PreparedDispatch {
    /// Tile and pipeline for a run of so many rows.
    pub(super) fn choice(&self, rows: u32) -> &TileChoice {
        let size = tuning::size(rows);
        self.tuned.iter().find(|(tuned, _)| *tuned == size).map_or(&self.usual, |(_, choice)| choice)
    }
}

/// The kernel at the end of each submission, which counts them in the completion marker: buffers of a lost device may still map with
/// plausible values, and a driver may drop a submission and report success.
pub(super) struct Completion {
    pub(super) prepared: PreparedDispatch,
    pub(super) marker: wgpu::Buffer,
    /// Submissions so far that count.
    pub(super) submissions: u32,
}

impl Completion {
    /// Encodes the last dispatch of a submission.
    pub(super) fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        launch(&mut pass, &self.prepared, &self.prepared.usual, None, [1, 1, 1]);
    }

    /// Counts a submission that ends with it.
    pub(super) fn submitted(&mut self) {
        self.submissions = self.submissions.wrapping_add(1);
    }

    /// Value of the marker when the device has done all that was submitted.
    pub(super) fn expected(&self) -> f32 {
        completion::marker(self.submissions)
    }
}

/// Encodes a dispatch, if it has any workgroups.
pub(super) fn launch(
    pass: &mut wgpu::ComputePass<'_>,
    prepared: &PreparedDispatch,
    choice: &TileChoice,
    first_item: Option<&FirstItem>,
    groups: [u32; 3],
) {
    if groups.contains(&0) {
        return;
    }
    pass.set_pipeline(&choice.pipeline);
    pass.set_bind_group(0, &prepared.bind_group, &[]);
    if let Some(first_item) = first_item.filter(|_| prepared.extent == Extent::Part) {
        pass.set_bind_group(1, &first_item.bind_group, &[]);
    }
    pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
}
