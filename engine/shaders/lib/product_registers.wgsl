// Tile loop of a matrix product, from registers alone: no workgroup memory, no barriers.
//
//     out[row, column] = sum over k of a[row, k] b[k, column]
//
// For a "GPU" that is a CPU (lavapipe, SwiftShader). A workgroup of 64 invocations computes 64 x 64
// results, or with fewer of them side by side a taller and narrower part; an invocation 8 x 8 that lie
// together, so that a result of few rows or columns keeps few lanes busy. The accumulators are named: an
// array of them would live in memory.
//
// The kernel gives the sizes and both factors; `part` is the workgroup's z (split of the sum, or phase):
//
//     product_sizes(part) -> (rows, columns, first k, end of k)
//     row_of_a(row, part), inner_of_a(k, part) -> what load_a(row, inner) wants to know of each, found once
//     column_of_b(column, part), inner_of_b(k, part) -> the same for load_b(inner, column)
//     next_of_a(inner, k, step, part), next_of_b(...) -> inner_of_a(k, part), from that of k - step
//     store(row, column, part, value)
//
// Rows and columns past the end are computed from the last one and not stored.

const PRODUCT_INVOCATIONS: u32 = 64u;
const PRODUCT_SIDE: u32 = 8u;
// Invocations side by side: fewer for a narrow result.
override PRODUCT_ACROSS: u32 = 8u;

fn product(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let part = workgroup.z;
    let sizes = product_sizes(part);
    let columns = PRODUCT_ACROSS * PRODUCT_SIDE;
    let tile = tile_index(workgroup, workgroups, (sizes.y + columns - 1u) / columns);
    let row = (tile.x * (PRODUCT_INVOCATIONS / PRODUCT_ACROSS) + lane / PRODUCT_ACROSS) * PRODUCT_SIDE;
    let column = (tile.y * PRODUCT_ACROSS + lane % PRODUCT_ACROSS) * PRODUCT_SIDE;
    // Also where the last row of a folded grid has no tile for this workgroup.
    if (row >= sizes.x || column >= sizes.y) { return; }

    let last_row = sizes.x - 1u;
    let ra0 = row_of_a(row, part);
    let ra1 = row_of_a(min(row + 1u, last_row), part);
    let ra2 = row_of_a(min(row + 2u, last_row), part);
    let ra3 = row_of_a(min(row + 3u, last_row), part);
    let ra4 = row_of_a(min(row + 4u, last_row), part);
    let ra5 = row_of_a(min(row + 5u, last_row), part);
    let ra6 = row_of_a(min(row + 6u, last_row), part);
    let ra7 = row_of_a(min(row + 7u, last_row), part);

    let last_column = sizes.y - 1u;
    let cb0 = column_of_b(column, part);
    let cb1 = column_of_b(min(column + 1u, last_column), part);
    let cb2 = column_of_b(min(column + 2u, last_column), part);
    let cb3 = column_of_b(min(column + 3u, last_column), part);
    let cb4 = column_of_b(min(column + 4u, last_column), part);
    let cb5 = column_of_b(min(column + 5u, last_column), part);
    let cb6 = column_of_b(min(column + 6u, last_column), part);
    let cb7 = column_of_b(min(column + 7u, last_column), part);

    var l0 = vec4<f32>(); var h0 = vec4<f32>();
    var l1 = vec4<f32>(); var h1 = vec4<f32>();
    var l2 = vec4<f32>(); var h2 = vec4<f32>();
    var l3 = vec4<f32>(); var h3 = vec4<f32>();
    var l4 = vec4<f32>(); var h4 = vec4<f32>();
    var l5 = vec4<f32>(); var h5 = vec4<f32>();
    var l6 = vec4<f32>(); var h6 = vec4<f32>();
    var l7 = vec4<f32>(); var h7 = vec4<f32>();

    var ia = inner_of_a(sizes.z, part);
    var ib = inner_of_b(sizes.z, part);
    for (var k = sizes.z + 1u; k <= sizes.w; k++) {
        let b_low = vec4<f32>(rounded(load_b(ib, cb0)), rounded(load_b(ib, cb1)), rounded(load_b(ib, cb2)), rounded(load_b(ib, cb3)));
        let b_high = vec4<f32>(rounded(load_b(ib, cb4)), rounded(load_b(ib, cb5)), rounded(load_b(ib, cb6)), rounded(load_b(ib, cb7)));
        let a0 = rounded(load_a(ra0, ia));
        l0 += a0 * b_low; h0 += a0 * b_high;
        let a1 = rounded(load_a(ra1, ia));
        l1 += a1 * b_low; h1 += a1 * b_high;
        let a2 = rounded(load_a(ra2, ia));
        l2 += a2 * b_low; h2 += a2 * b_high;
        let a3 = rounded(load_a(ra3, ia));
        l3 += a3 * b_low; h3 += a3 * b_high;
        let a4 = rounded(load_a(ra4, ia));
        l4 += a4 * b_low; h4 += a4 * b_high;
        let a5 = rounded(load_a(ra5, ia));
        l5 += a5 * b_low; h5 += a5 * b_high;
        let a6 = rounded(load_a(ra6, ia));
        l6 += a6 * b_low; h6 += a6 * b_high;
        let a7 = rounded(load_a(ra7, ia));
        l7 += a7 * b_low; h7 += a7 * b_high;
        ia = next_of_a(ia, k, 1u, part);
        ib = next_of_b(ib, k, 1u, part);
    }

    // By one text for all rows: drivers take seconds to compile a store for each result.
    for (var idx = 0u; idx < PRODUCT_SIDE; idx++) {
        var low: vec4<f32>;
        var high: vec4<f32>;
        switch (idx) {
            case 0u: { low = l0; high = h0; }
            case 1u: { low = l1; high = h1; }
            case 2u: { low = l2; high = h2; }
            case 3u: { low = l3; high = h3; }
            case 4u: { low = l4; high = h4; }
            case 5u: { low = l5; high = h5; }
            case 6u: { low = l6; high = h6; }
            default: { low = l7; high = h7; }
        }
        store_row(row + idx, column, sizes.xy, part, low, high);
    }
}

fn store_row(row: u32, column: u32, size: vec2<u32>, part: u32, low: vec4<f32>, high: vec4<f32>) {
    if (row >= size.x) { return; }
    store_within(row, column, size.y, part, low.x);
    store_within(row, column + 1u, size.y, part, low.y);
    store_within(row, column + 2u, size.y, part, low.z);
    store_within(row, column + 3u, size.y, part, low.w);
    store_within(row, column + 4u, size.y, part, high.x);
    store_within(row, column + 5u, size.y, part, high.y);
    store_within(row, column + 6u, size.y, part, high.z);
    store_within(row, column + 7u, size.y, part, high.w);
}

fn store_within(row: u32, column: u32, columns: u32, part: u32, value: f32) {
    if (column < columns) { store(row, column, part, value); }
}
