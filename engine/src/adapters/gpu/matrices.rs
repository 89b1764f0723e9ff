//! Cooperative matrices: the tiles of them that an adapter can run, and a device for them.

use crate::kernels::Tile;

/// Features that the tiles' text uses.
const FEATURES: wgpu::Features =
    wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SHADER_F16).union(wgpu::Features::SUBGROUP);

/// Workgroup memory of [`Tile::LargeMatrices16`].
const LARGE_BYTES: u32 = 20_480;

/// A device as described, with the tiles whose matrices it multiplies; without such tiles where the adapter refuses it a device.
pub(super) async fn request_device(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Result<((wgpu::Device, wgpu::Queue), &'static [Tile]), wgpu::RequestDeviceError> {
    let tiles = tiles(adapter);
    if !tiles.is_empty() {
        let mut with_matrices = descriptor.clone();
        with_matrices.required_features |= FEATURES;
        with_matrices.experimental_features = experimental();
        match adapter.request_device(&with_matrices).await {
            Ok(opened) => return Ok((opened, tiles)),
            Err(error) => log::info!("`{}` gives no device with matrices: {error}", adapter.get_info().name),
        }
    }
    Ok((adapter.request_device(descriptor).await?, &[]))
}

/// The tiles whose matrices an adapter multiplies. No tile is chosen in a browser, so none is asked for there.
///
/// A text has blocks of results for subgroups of certain sizes (`lib/product_matrices_*.wgsl`). Metal does not tell the size: it is 32.
fn tiles(adapter: &wgpu::Adapter) -> &'static [Tile] {
    if cfg!(target_arch = "wasm32") || !adapter.features().contains(FEATURES) {
        return &[];
    }
    let info = adapter.get_info();
    let has = |side: u32, subgroups: std::ops::RangeInclusive<u32>| {
        let is_of_side = |it: &wgpu::CooperativeMatrixProperties| {
            [it.m_size, it.n_size, it.k_size] == [side; 3]
                && it.ab_type == wgpu::CooperativeScalarType::F16
                && it.cr_type == wgpu::CooperativeScalarType::F32
        };
        let fits = info.backend == wgpu::Backend::Metal
            || [info.subgroup_min_size, info.subgroup_max_size].iter().all(|size| subgroups.contains(size));
        fits && adapter.cooperative_matrix_properties().iter().any(is_of_side)
    };
    match adapter.limits().max_compute_workgroup_storage_size {
        LARGE_BYTES.. if has(16, 32..=32) => &[Tile::Matrices16, Tile::LargeMatrices16],
        _ if has(16, 32..=64) => &[Tile::Matrices16],
        _ if has(8, 8..=32) => &[Tile::Matrices8],
        _ => &[],
    }
}

/// wgpu gives matrices only to programs that answer for what drivers make of them. Here a pipeline counts once it has computed right
/// (`verdicts/`), and the tile is taken where it is faster.
#[allow(unsafe_code, reason = "the one call that asks wgpu for matrices; see above")]
fn experimental() -> wgpu::ExperimentalFeatures {
    // SAFETY: the texts are this crate's own; they index workgroup memory within its arrays, by constants and the size of a subgroup.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
