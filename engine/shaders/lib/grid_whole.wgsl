// Index of a workgroup where one dispatch computes the whole of a grid: behind lib/grid.wgsl.

// Linear index of a workgroup: the item of `Grid::Items`, the tile of `Grid::Tiles`. Uniform in a workgroup.
fn item_index(workgroup: vec3<u32>, workgroups: vec3<u32>) -> u32 {
    return workgroup.y * workgroups.x + workgroup.x;
}
