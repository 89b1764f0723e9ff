// Tile loop of a matrix product through workgroup memory: for real GPUs.
//
//     out[row, column] = sum over k of a[row, k] b[k, column]
//
// A workgroup of s x s invocations, s being 16 or 8, computes 4 s x 4 s results, s k at a time; an
// invocation the 4 x 4 of rows y + s i and columns x + s j. So a tile in workgroup memory holds, as one
// vec4, the four rows (or columns) of one invocation: every read of global memory is of s neighbours,
// every access to workgroup memory is a whole vec4, and results are stored s neighbours at a time. The
// next tiles are on their way to registers while the present ones are multiplied.
//
// The kernel gives the sizes and both factors; `part` is the workgroup's z (split of the sum, or phase):
//
//     product_sizes(part) -> (rows, columns, first k, end of k)
//     row_of_a(row, part), inner_of_a(k, part) -> what load_a(row, inner) wants to know of each, found once
//     column_of_b(column, part), inner_of_b(k, part) -> the same for load_b(inner, column)
//     next_of_a(inner, k, step, part), next_of_b(...) -> inner_of_a(k, part), from that of k - step
//     A_ALONG_K, B_ALONG_K -> are neighbours in memory neighbours in k?
//     store(row, column, part, value)
//
// Rows and columns past the end are computed from the last one and not stored; k past the end is 0.

// Invocations side by side, and k at a time: 16, or 8 for small tiles.
override PRODUCT_ACROSS: u32 = 16u;
override PRODUCT_INVOCATIONS: u32 = PRODUCT_ACROSS * PRODUCT_ACROSS;
override PRODUCT_TILE: u32 = 4u * PRODUCT_ACROSS;

// A vec4 more than there are invocations side by side: those that differ in k write to different banks.
override PRODUCT_PITCH: u32 = PRODUCT_ACROSS + 1u;
override PRODUCT_LENGTH: u32 = PRODUCT_ACROSS * PRODUCT_PITCH;
// lib/product_kept_*.wgsl says in which type factors are kept.
var<workgroup> tile_a: array<Kept, PRODUCT_LENGTH>;
var<workgroup> tile_b: array<Kept, PRODUCT_LENGTH>;

fn product(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let part = workgroup.z;
    let sizes = product_sizes(part);
    let columns = (sizes.y + PRODUCT_TILE - 1u) / PRODUCT_TILE;
    let tile = tile_index(workgroup, workgroups, columns);
    let first = tile * PRODUCT_TILE;
    // The last row of a folded grid may have no tile for this workgroup. Uniform, so barriers may follow.
    if (first.x >= sizes.x) { return; }

    // What this invocation brings to the tiles: one k of four rows, and one k of four columns.
    let fast = lane % PRODUCT_ACROSS;
    let slow = lane / PRODUCT_ACROSS;
    let y_a = select(fast, slow, A_ALONG_K);
    let x_b = select(fast, slow, B_ALONG_K);
    let at_a = select(slow, fast, A_ALONG_K) * PRODUCT_PITCH + y_a;
    let at_b = select(slow, fast, B_ALONG_K) * PRODUCT_PITCH + x_b;
    var k_a = sizes.z + select(slow, fast, A_ALONG_K);
    var k_b = sizes.z + select(slow, fast, B_ALONG_K);
    let last = sizes.xy - 1u;
    let ra0 = row_of_a(min(first.x + y_a, last.x), part);
    let ra1 = row_of_a(min(first.x + y_a + PRODUCT_ACROSS, last.x), part);
    let ra2 = row_of_a(min(first.x + y_a + 2u * PRODUCT_ACROSS, last.x), part);
    let ra3 = row_of_a(min(first.x + y_a + 3u * PRODUCT_ACROSS, last.x), part);
    let cb0 = column_of_b(min(first.y + x_b, last.y), part);
    let cb1 = column_of_b(min(first.y + x_b + PRODUCT_ACROSS, last.y), part);
    let cb2 = column_of_b(min(first.y + x_b + 2u * PRODUCT_ACROSS, last.y), part);
    let cb3 = column_of_b(min(first.y + x_b + 3u * PRODUCT_ACROSS, last.y), part);

    // Past the end of k, where a load would leave the buffer, the first k is loaded and not used.
    let first_a = inner_of_a(sizes.z, part);
    let first_b = inner_of_b(sizes.z, part);
    var inner_a = inner_of_a(k_a, part);
    var inner_b = inner_of_b(k_b, part);

    var c0 = vec4<f32>();
    var c1 = vec4<f32>();
    var c2 = vec4<f32>();
    var c3 = vec4<f32>();
    var next_a = vec4<f32>();
    var next_b = vec4<f32>();

    // One round more than there are tiles: round i fetches tile i and multiplies tile i - 1.
    let rounds = (sizes.w - sizes.z + PRODUCT_ACROSS - 1u) / PRODUCT_ACROSS;
    for (var round = 0u; round <= rounds; round++) {
        if (round > 0u) {
            workgroupBarrier();
            tile_a[at_a] = Kept(next_a);
            tile_b[at_b] = Kept(next_b);
            workgroupBarrier();
        }
        if (round < rounds) {
            let in_a = k_a < sizes.w;
            let ia = select(first_a, inner_a, in_a);
            let a = vec4<f32>(rounded(load_a(ra0, ia)), rounded(load_a(ra1, ia)), rounded(load_a(ra2, ia)), rounded(load_a(ra3, ia)));
            next_a = select(vec4<f32>(), a, in_a);
            k_a += PRODUCT_ACROSS;
            inner_a = next_of_a(inner_a, k_a, PRODUCT_ACROSS, part);

            let in_b = k_b < sizes.w;
            let ib = select(first_b, inner_b, in_b);
            let b = vec4<f32>(rounded(load_b(ib, cb0)), rounded(load_b(ib, cb1)), rounded(load_b(ib, cb2)), rounded(load_b(ib, cb3)));
            next_b = select(vec4<f32>(), b, in_b);
            k_b += PRODUCT_ACROSS;
            inner_b = next_of_b(inner_b, k_b, PRODUCT_ACROSS, part);
        }
        if (round > 0u) {
            for (var k = 0u; k < PRODUCT_LENGTH; k += 4u * PRODUCT_PITCH) {
                let at = k + vec2<u32>(slow, fast);
                let a0 = vec4<f32>(tile_a[at.x]);
                let b0 = vec4<f32>(tile_b[at.y]);
                c0 += a0.x * b0; c1 += a0.y * b0; c2 += a0.z * b0; c3 += a0.w * b0;
                let a1 = vec4<f32>(tile_a[at.x + PRODUCT_PITCH]);
                let b1 = vec4<f32>(tile_b[at.y + PRODUCT_PITCH]);
                c0 += a1.x * b1; c1 += a1.y * b1; c2 += a1.z * b1; c3 += a1.w * b1;
                let a2 = vec4<f32>(tile_a[at.x + 2u * PRODUCT_PITCH]);
                let b2 = vec4<f32>(tile_b[at.y + 2u * PRODUCT_PITCH]);
                c0 += a2.x * b2; c1 += a2.y * b2; c2 += a2.z * b2; c3 += a2.w * b2;
                let a3 = vec4<f32>(tile_a[at.x + 3u * PRODUCT_PITCH]);
                let b3 = vec4<f32>(tile_b[at.y + 3u * PRODUCT_PITCH]);
                c0 += a3.x * b3; c1 += a3.y * b3; c2 += a3.z * b3; c3 += a3.w * b3;
            }
        }
    }

    let row = first.x + slow;
    let column = first.y + fast;
    store_row(row, column, sizes.xy, part, c0);
    store_row(row + PRODUCT_ACROSS, column, sizes.xy, part, c1);
    store_row(row + 2u * PRODUCT_ACROSS, column, sizes.xy, part, c2);
    store_row(row + 3u * PRODUCT_ACROSS, column, sizes.xy, part, c3);
}

fn store_row(row: u32, column: u32, size: vec2<u32>, part: u32, values: vec4<f32>) {
    if (row >= size.x) { return; }
    store_within(row, column, size.y, part, values.x);
    store_within(row, column + PRODUCT_ACROSS, size.y, part, values.y);
    store_within(row, column + 2u * PRODUCT_ACROSS, size.y, part, values.z);
    store_within(row, column + 3u * PRODUCT_ACROSS, size.y, part, values.w);
}

fn store_within(row: u32, column: u32, columns: u32, part: u32, value: f32) {
    if (column < columns) { store(row, column, part, value); }
}
