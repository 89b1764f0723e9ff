// Index of a workgroup where several dispatches compute a grid, one part after the other: behind lib/grid.wgsl.

// First workgroup of the part. In a group of its own, so that no kernel's bindings change.
@group(1) @binding(0) var<uniform> first_item: u32;

// Linear index of a workgroup: the item of `Grid::Items`, the tile of `Grid::Tiles`. Uniform in a workgroup.
fn item_index(workgroup: vec3<u32>, workgroups: vec3<u32>) -> u32 {
    return first_item + workgroup.y * workgroups.x + workgroup.x;
}
