// Tile loop of a matrix product through workgroup memory: 8 x 8 results an invocation, for GPUs of many registers.
//
//     out[row, column] = sum over k of a[row, k] b[k, column]
//
// A workgroup of s x s invocations, s being 16 or 8, computes 8 s x 8 s results, s / 2 k at a time; an
// invocation the 8 x 8 of rows y + s i and columns x + s j. A tile in workgroup memory holds the eight rows
// (or columns) of one invocation as two vec4s, the second half of the tile's rows behind the first: a vec4
// that is read serves twice as many sums as in lib/product_workgroup.wgsl. The next tiles are on their way
// to registers while the present ones are multiplied.
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

// Invocations side by side: 16, or 8 for small tiles.
override PRODUCT_ACROSS: u32 = 16u;
override PRODUCT_INVOCATIONS: u32 = PRODUCT_ACROSS * PRODUCT_ACROSS;
override PRODUCT_TILE: u32 = 8u * PRODUCT_ACROSS;
override PRODUCT_DEPTH: u32 = PRODUCT_ACROSS / 2u;

// One vec4 more than a k has: invocations that differ in k write to different banks.
override PRODUCT_PITCH: u32 = 2u * PRODUCT_ACROSS + 1u;
override PRODUCT_LENGTH: u32 = PRODUCT_DEPTH * PRODUCT_PITCH;
// Small tiles stand in workgroup memory twice: the next is written while others still multiply the one before, which takes one barrier in
// place of two. Large ones have no room, and more to do between barriers.
override PRODUCT_BUFFERS: u32 = select(1u, 2u, PRODUCT_ACROSS == 8u);
override PRODUCT_LENGTHS: u32 = PRODUCT_BUFFERS * PRODUCT_LENGTH;
var<workgroup> tile_a: array<vec4<f32>, PRODUCT_LENGTHS>;
var<workgroup> tile_b: array<vec4<f32>, PRODUCT_LENGTHS>;

fn product(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let part = workgroup.z;
    let sizes = product_sizes(part);
    let columns = (sizes.y + PRODUCT_TILE - 1u) / PRODUCT_TILE;
    let tile = tile_index(workgroup, workgroups, columns);
    let first = tile * PRODUCT_TILE;
    // The last row of a folded grid may have no tile for this workgroup. Uniform, so barriers may follow.
    if (first.x >= sizes.x) { return; }

    // What this invocation brings to the tiles: one k of four rows, and one k of four columns; those of
    // vec4 q begin at q, or, in the second half, at 4 s + q - s.
    let vec4s = 2u * PRODUCT_ACROSS;
    let vec4_a = select(lane % vec4s, lane / PRODUCT_DEPTH, A_ALONG_K);
    let vec4_b = select(lane % vec4s, lane / PRODUCT_DEPTH, B_ALONG_K);
    let depth_a = select(lane / vec4s, lane % PRODUCT_DEPTH, A_ALONG_K);
    let depth_b = select(lane / vec4s, lane % PRODUCT_DEPTH, B_ALONG_K);
    let at_a = depth_a * PRODUCT_PITCH + vec4_a;
    let at_b = depth_b * PRODUCT_PITCH + vec4_b;
    let y_a = first.x + vec4_a + vec4_a / PRODUCT_ACROSS * (3u * PRODUCT_ACROSS);
    let x_b = first.y + vec4_b + vec4_b / PRODUCT_ACROSS * (3u * PRODUCT_ACROSS);
    var k_a = sizes.z + depth_a;
    var k_b = sizes.z + depth_b;
    let last = sizes.xy - 1u;
    let ra0 = row_of_a(min(y_a, last.x), part);
    let ra1 = row_of_a(min(y_a + PRODUCT_ACROSS, last.x), part);
    let ra2 = row_of_a(min(y_a + 2u * PRODUCT_ACROSS, last.x), part);
    let ra3 = row_of_a(min(y_a + 3u * PRODUCT_ACROSS, last.x), part);
    let cb0 = column_of_b(min(x_b, last.y), part);
    let cb1 = column_of_b(min(x_b + PRODUCT_ACROSS, last.y), part);
    let cb2 = column_of_b(min(x_b + 2u * PRODUCT_ACROSS, last.y), part);
    let cb3 = column_of_b(min(x_b + 3u * PRODUCT_ACROSS, last.y), part);

    // Past the end of k, where a load would leave the buffer, the first k is loaded and not used.
    let first_a = inner_of_a(sizes.z, part);
    let first_b = inner_of_b(sizes.z, part);
    var inner_a = inner_of_a(k_a, part);
    var inner_b = inner_of_b(k_b, part);

    let slow = lane / PRODUCT_ACROSS;
    let fast = lane % PRODUCT_ACROSS;
    var l0 = vec4<f32>(); var h0 = vec4<f32>();
    var l1 = vec4<f32>(); var h1 = vec4<f32>();
    var l2 = vec4<f32>(); var h2 = vec4<f32>();
    var l3 = vec4<f32>(); var h3 = vec4<f32>();
    var l4 = vec4<f32>(); var h4 = vec4<f32>();
    var l5 = vec4<f32>(); var h5 = vec4<f32>();
    var l6 = vec4<f32>(); var h6 = vec4<f32>();
    var l7 = vec4<f32>(); var h7 = vec4<f32>();
    var next_a = vec4<f32>();
    var next_b = vec4<f32>();

    // One round more than there are tiles: round i fetches tile i and multiplies tile i - 1.
    let rounds = (sizes.w - sizes.z + PRODUCT_DEPTH - 1u) / PRODUCT_DEPTH;
    for (var round = 0u; round <= rounds; round++) {
        let buffer = round % PRODUCT_BUFFERS * PRODUCT_LENGTH;
        if (round > 0u) {
            if (PRODUCT_BUFFERS == 1u) { workgroupBarrier(); }
            tile_a[buffer + at_a] = next_a;
            tile_b[buffer + at_b] = next_b;
            workgroupBarrier();
        }
        if (round < rounds) {
            let in_a = k_a < sizes.w;
            let ia = select(first_a, inner_a, in_a);
            let a = vec4<f32>(rounded(load_a(ra0, ia)), rounded(load_a(ra1, ia)), rounded(load_a(ra2, ia)), rounded(load_a(ra3, ia)));
            next_a = select(vec4<f32>(), a, in_a);
            k_a += PRODUCT_DEPTH;
            inner_a = next_of_a(inner_a, k_a, PRODUCT_DEPTH, part);

            let in_b = k_b < sizes.w;
            let ib = select(first_b, inner_b, in_b);
            let b = vec4<f32>(rounded(load_b(ib, cb0)), rounded(load_b(ib, cb1)), rounded(load_b(ib, cb2)), rounded(load_b(ib, cb3)));
            next_b = select(vec4<f32>(), b, in_b);
            k_b += PRODUCT_DEPTH;
            inner_b = next_of_b(inner_b, k_b, PRODUCT_DEPTH, part);
        }
        if (round > 0u) {
            for (var k = 0u; k < PRODUCT_LENGTH; k += 2u * PRODUCT_PITCH) {
                let at = buffer + k + vec2<u32>(slow, fast);
                let a0l = tile_a[at.x];
                let a0h = tile_a[at.x + PRODUCT_ACROSS];
                let b0l = tile_b[at.y];
                let b0h = tile_b[at.y + PRODUCT_ACROSS];
                l0 += a0l.x * b0l; h0 += a0l.x * b0h;
                l1 += a0l.y * b0l; h1 += a0l.y * b0h;
                l2 += a0l.z * b0l; h2 += a0l.z * b0h;
                l3 += a0l.w * b0l; h3 += a0l.w * b0h;
                l4 += a0h.x * b0l; h4 += a0h.x * b0h;
                l5 += a0h.y * b0l; h5 += a0h.y * b0h;
                l6 += a0h.z * b0l; h6 += a0h.z * b0h;
                l7 += a0h.w * b0l; h7 += a0h.w * b0h;
                let a1l = tile_a[at.x + PRODUCT_PITCH];
                let a1h = tile_a[at.x + PRODUCT_PITCH + PRODUCT_ACROSS];
                let b1l = tile_b[at.y + PRODUCT_PITCH];
                let b1h = tile_b[at.y + PRODUCT_PITCH + PRODUCT_ACROSS];
                l0 += a1l.x * b1l; h0 += a1l.x * b1h;
                l1 += a1l.y * b1l; h1 += a1l.y * b1h;
                l2 += a1l.z * b1l; h2 += a1l.z * b1h;
                l3 += a1l.w * b1l; h3 += a1l.w * b1h;
                l4 += a1h.x * b1l; h4 += a1h.x * b1h;
                l5 += a1h.y * b1l; h5 += a1h.y * b1h;
                l6 += a1h.z * b1l; h6 += a1h.z * b1h;
                l7 += a1h.w * b1l; h7 += a1h.w * b1h;
            }
        }
    }

    let row = first.x + slow;
    let column = first.y + fast;
    store_row(row, column, sizes.xy, part, l0, h0);
    store_row(row + PRODUCT_ACROSS, column, sizes.xy, part, l1, h1);
    store_row(row + 2u * PRODUCT_ACROSS, column, sizes.xy, part, l2, h2);
    store_row(row + 3u * PRODUCT_ACROSS, column, sizes.xy, part, l3, h3);
    store_row(row + 4u * PRODUCT_ACROSS, column, sizes.xy, part, l4, h4);
    store_row(row + 5u * PRODUCT_ACROSS, column, sizes.xy, part, l5, h5);
    store_row(row + 6u * PRODUCT_ACROSS, column, sizes.xy, part, l6, h6);
    store_row(row + 7u * PRODUCT_ACROSS, column, sizes.xy, part, l7, h7);
}

fn store_row(row: u32, column: u32, size: vec2<u32>, part: u32, low: vec4<f32>, high: vec4<f32>) {
    if (row >= size.x) { return; }
    store_within(row, column, size.y, part, low.x);
    store_within(row, column + PRODUCT_ACROSS, size.y, part, low.y);
    store_within(row, column + 2u * PRODUCT_ACROSS, size.y, part, low.z);
    store_within(row, column + 3u * PRODUCT_ACROSS, size.y, part, low.w);
    store_within(row, column + 4u * PRODUCT_ACROSS, size.y, part, high.x);
    store_within(row, column + 5u * PRODUCT_ACROSS, size.y, part, high.y);
    store_within(row, column + 6u * PRODUCT_ACROSS, size.y, part, high.z);
    store_within(row, column + 7u * PRODUCT_ACROSS, size.y, part, high.w);
}

fn store_within(row: u32, column: u32, columns: u32, part: u32, value: f32) {
    if (column < columns) { store(row, column, part, value); }
}
