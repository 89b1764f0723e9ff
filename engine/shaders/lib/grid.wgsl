// Index of a workgroup or invocation in a grid that is folded at 65,535 workgroups onto the y axis.
//
// A grid of `groups` workgroups is dispatched as x = min(groups, 65535), y = ceil(groups / x): the last
// row of it may hold workgroups that have no work, so every caller compares the index with its count.
// z is left to the caller (the depth of a tiled product). Behind this text stands lib/grid_whole.wgsl or
// lib/grid_part.wgsl, which counts workgroups.
//
//     @builtin(workgroup_id) workgroup, @builtin(num_workgroups) workgroups, @builtin(local_invocation_index) lane

// Linear index of an invocation, for workgroups of `size` invocations: the element of `Grid::Elements`.
fn element_index(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32, size: u32) -> u32 {
    return item_index(workgroup, workgroups) * size + lane;
}

// Which of the four elements of vector `i` stand behind the end of `len` elements.
fn behind_end(i: u32, len: u32) -> vec4<bool> {
    return vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) >= vec4<u32>(len);
}

// Row and column, in tiles, of a workgroup of `Grid::Tiles`; columns run fastest.
fn tile_index(workgroup: vec3<u32>, workgroups: vec3<u32>, columns: u32) -> vec2<u32> {
    let item = item_index(workgroup, workgroups);
    return vec2<u32>(item / columns, item % columns);
}
