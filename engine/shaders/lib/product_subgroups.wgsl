// Tile loop of a matrix product, from registers alone, for subgroups of eight invocations that share what they load.
//
//     out[row, column] = sum over k of a[row, k] b[k, column]
//
// A "GPU" that is a CPU spends most of a product on loads, lane by lane. The eight invocations of a
// subgroup stand side by side over the same 32 rows: each loads a part of them, and subgroupBroadcast
// gives it to all. Each has up to eight columns of its own. Factors are bound as vec4, as in
// lib/product_vectors.wgsl.
//
// Neither WebGPU without its feature nor most GPUs will do: the subgroups must have eight invocations,
// with consecutive indices. It is for lavapipe.
//
// The kernel gives the sizes and both factors; `part` is the workgroup's z (split of the sum, or phase):
//
//     product_sizes(part) -> (rows, columns, first k, end of k)
//     row_of_a(row, part), inner_of_a(k, part) -> what load_a(row, inner) wants to know of each, found once
//     column_of_b(column, part), inner_of_b(k, part) -> the same for load_b(inner, column)
//     next_of_a(inner, k, step, part), next_of_b(...) -> inner_of_a(k, part), from that of k - step
//     A_ALONG_K, B_ALONG_K -> are neighbours in memory neighbours in k? Not of b alone: no kernel has that.
//     store(row, column, part, value)
//
// Rows and columns past the end are computed from the last ones and not stored: no invocation of a
// subgroup may end before the others.

alias Factor = vec4<f32>;
alias FactorBits = vec4<u32>;
const FACTOR_WIDTH: u32 = 4u;

const PRODUCT_INVOCATIONS: u32 = 64u;
const PRODUCT_ROWS: u32 = 32u;
// Invocations of a subgroup.
const SHARERS: u32 = 8u;
// Columns an invocation: 4 for a narrow result, or 8.
override PRODUCT_COLUMNS: u32 = 8u;

fn product(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let sizes = product_sizes(workgroup.z);
    let columns = SHARERS * PRODUCT_COLUMNS;
    let tile = tile_index(workgroup, workgroups, (sizes.y + columns - 1u) / columns);
    let row = (tile.x * (PRODUCT_INVOCATIONS / SHARERS) + lane / SHARERS) * PRODUCT_ROWS;
    let sharer = lane % SHARERS;
    let column = tile.y * columns + sharer * PRODUCT_COLUMNS;
    // Of a whole subgroup. Also where the last row of a folded grid has no tile for this workgroup.
    if (row >= sizes.x) { return; }
    if (A_ALONG_K && B_ALONG_K) {
        both_along_k(row, column, sharer, workgroup.z, sizes);
    } else if (A_ALONG_K) {
        a_along_k(row, column, sharer, workgroup.z, sizes);
    } else {
        across_k(row, column, sharer, workgroup.z, sizes);
    }
}

// Sums of eight rows and four columns.
struct Sums {
    s0: vec4<f32>,
    s1: vec4<f32>,
    s2: vec4<f32>,
    s3: vec4<f32>,
    s4: vec4<f32>,
    s5: vec4<f32>,
    s6: vec4<f32>,
    s7: vec4<f32>,
}

// Adds the products of eight values of a, one of each sharer, with four of b.
fn add(sums: Sums, a: f32, b: vec4<f32>) -> Sums {
    return Sums(
        sums.s0 + subgroupBroadcast(a, 0u) * b,
        sums.s1 + subgroupBroadcast(a, 1u) * b,
        sums.s2 + subgroupBroadcast(a, 2u) * b,
        sums.s3 + subgroupBroadcast(a, 3u) * b,
        sums.s4 + subgroupBroadcast(a, 4u) * b,
        sums.s5 + subgroupBroadcast(a, 5u) * b,
        sums.s6 + subgroupBroadcast(a, 6u) * b,
        sums.s7 + subgroupBroadcast(a, 7u) * b,
    );
}

// Rows of a along k, rows of b along the columns: four k a round.
fn a_along_k(row: u32, column: u32, sharer: u32, part: u32, sizes: vec4<u32>) {
    let last_row = sizes.x - 1u;
    let r0 = row_of_a(min(row + sharer, last_row), part);
    let r1 = row_of_a(min(row + sharer + 8u, last_row), part);
    let r2 = row_of_a(min(row + sharer + 16u, last_row), part);
    let r3 = row_of_a(min(row + sharer + 24u, last_row), part);
    // Groups of four columns: the number of columns is a multiple of four.
    let last_column = sizes.y - 4u;
    let c0 = column_of_b(min(column, last_column), part);
    let c1 = column_of_b(min(column + 4u, last_column), part);

    var s0a = Sums(); var s0b = Sums();
    var s1a = Sums(); var s1b = Sums();
    var s2a = Sums(); var s2b = Sums();
    var s3a = Sums(); var s3b = Sums();

    var ia = inner_of_a(sizes.z, part);
    var ib = inner_of_b(sizes.z, part);
    for (var k = sizes.z + 4u; k <= sizes.w; k += 4u) {
        let a0 = rounded(load_a(r0, ia));
        let a1 = rounded(load_a(r1, ia));
        let a2 = rounded(load_a(r2, ia));
        let a3 = rounded(load_a(r3, ia));
        ia = next_of_a(ia, k, 4u, part);

        let b0 = rounded(load_b(ib, c0));
        s0a = add(s0a, a0.x, b0); s1a = add(s1a, a1.x, b0);
        s2a = add(s2a, a2.x, b0); s3a = add(s3a, a3.x, b0);
        if (PRODUCT_COLUMNS == 8u) {
            let more = rounded(load_b(ib, c1));
            s0b = add(s0b, a0.x, more); s1b = add(s1b, a1.x, more);
            s2b = add(s2b, a2.x, more); s3b = add(s3b, a3.x, more);
        }
        ib = next_of_b(ib, k - 3u, 1u, part);

        let b1 = rounded(load_b(ib, c0));
        s0a = add(s0a, a0.y, b1); s1a = add(s1a, a1.y, b1);
        s2a = add(s2a, a2.y, b1); s3a = add(s3a, a3.y, b1);
        if (PRODUCT_COLUMNS == 8u) {
            let more = rounded(load_b(ib, c1));
            s0b = add(s0b, a0.y, more); s1b = add(s1b, a1.y, more);
            s2b = add(s2b, a2.y, more); s3b = add(s3b, a3.y, more);
        }
        ib = next_of_b(ib, k - 2u, 1u, part);

        let b2 = rounded(load_b(ib, c0));
        s0a = add(s0a, a0.z, b2); s1a = add(s1a, a1.z, b2);
        s2a = add(s2a, a2.z, b2); s3a = add(s3a, a3.z, b2);
        if (PRODUCT_COLUMNS == 8u) {
            let more = rounded(load_b(ib, c1));
            s0b = add(s0b, a0.z, more); s1b = add(s1b, a1.z, more);
            s2b = add(s2b, a2.z, more); s3b = add(s3b, a3.z, more);
        }
        ib = next_of_b(ib, k - 1u, 1u, part);

        let b3 = rounded(load_b(ib, c0));
        s0a = add(s0a, a0.w, b3); s1a = add(s1a, a1.w, b3);
        s2a = add(s2a, a2.w, b3); s3a = add(s3a, a3.w, b3);
        if (PRODUCT_COLUMNS == 8u) {
            let more = rounded(load_b(ib, c1));
            s0b = add(s0b, a0.w, more); s1b = add(s1b, a1.w, more);
            s2b = add(s2b, a2.w, more); s3b = add(s3b, a3.w, more);
        }
        ib = next_of_b(ib, k, 1u, part);
    }

    store_blocks(row, vec2<u32>(8u, 1u), column, sizes.xy, part, s0a, s1a, s2a, s3a, s0b, s1b, s2b, s3b);
}

// Both along k: four k a round.
fn both_along_k(row: u32, column: u32, sharer: u32, part: u32, sizes: vec4<u32>) {
    let last_row = sizes.x - 1u;
    let r0 = row_of_a(min(row + sharer, last_row), part);
    let r1 = row_of_a(min(row + sharer + 8u, last_row), part);
    let r2 = row_of_a(min(row + sharer + 16u, last_row), part);
    let r3 = row_of_a(min(row + sharer + 24u, last_row), part);
    let last_column = sizes.y - 1u;
    let c0 = column_of_b(min(column, last_column), part);
    let c1 = column_of_b(min(column + 1u, last_column), part);
    let c2 = column_of_b(min(column + 2u, last_column), part);
    let c3 = column_of_b(min(column + 3u, last_column), part);
    let c4 = column_of_b(min(column + 4u, last_column), part);
    let c5 = column_of_b(min(column + 5u, last_column), part);
    let c6 = column_of_b(min(column + 6u, last_column), part);
    let c7 = column_of_b(min(column + 7u, last_column), part);

    var s0a = Sums(); var s0b = Sums();
    var s1a = Sums(); var s1b = Sums();
    var s2a = Sums(); var s2b = Sums();
    var s3a = Sums(); var s3b = Sums();

    var ia = inner_of_a(sizes.z, part);
    var ib = inner_of_b(sizes.z, part);
    for (var k = sizes.z + 4u; k <= sizes.w; k += 4u) {
        let a0 = rounded(load_a(r0, ia));
        let a1 = rounded(load_a(r1, ia));
        let a2 = rounded(load_a(r2, ia));
        let a3 = rounded(load_a(r3, ia));
        let b0 = rounded(load_b(ib, c0));
        let b1 = rounded(load_b(ib, c1));
        let b2 = rounded(load_b(ib, c2));
        let b3 = rounded(load_b(ib, c3));

        let k0 = vec4<f32>(b0.x, b1.x, b2.x, b3.x);
        s0a = add(s0a, a0.x, k0); s1a = add(s1a, a1.x, k0);
        s2a = add(s2a, a2.x, k0); s3a = add(s3a, a3.x, k0);
        let k1 = vec4<f32>(b0.y, b1.y, b2.y, b3.y);
        s0a = add(s0a, a0.y, k1); s1a = add(s1a, a1.y, k1);
        s2a = add(s2a, a2.y, k1); s3a = add(s3a, a3.y, k1);
        let k2 = vec4<f32>(b0.z, b1.z, b2.z, b3.z);
        s0a = add(s0a, a0.z, k2); s1a = add(s1a, a1.z, k2);
        s2a = add(s2a, a2.z, k2); s3a = add(s3a, a3.z, k2);
        let k3 = vec4<f32>(b0.w, b1.w, b2.w, b3.w);
        s0a = add(s0a, a0.w, k3); s1a = add(s1a, a1.w, k3);
        s2a = add(s2a, a2.w, k3); s3a = add(s3a, a3.w, k3);
        if (PRODUCT_COLUMNS == 8u) {
            let b4 = rounded(load_b(ib, c4));
            let b5 = rounded(load_b(ib, c5));
            let b6 = rounded(load_b(ib, c6));
            let b7 = rounded(load_b(ib, c7));
            let m0 = vec4<f32>(b4.x, b5.x, b6.x, b7.x);
            s0b = add(s0b, a0.x, m0); s1b = add(s1b, a1.x, m0);
            s2b = add(s2b, a2.x, m0); s3b = add(s3b, a3.x, m0);
            let m1 = vec4<f32>(b4.y, b5.y, b6.y, b7.y);
            s0b = add(s0b, a0.y, m1); s1b = add(s1b, a1.y, m1);
            s2b = add(s2b, a2.y, m1); s3b = add(s3b, a3.y, m1);
            let m2 = vec4<f32>(b4.z, b5.z, b6.z, b7.z);
            s0b = add(s0b, a0.z, m2); s1b = add(s1b, a1.z, m2);
            s2b = add(s2b, a2.z, m2); s3b = add(s3b, a3.z, m2);
            let m3 = vec4<f32>(b4.w, b5.w, b6.w, b7.w);
            s0b = add(s0b, a0.w, m3); s1b = add(s1b, a1.w, m3);
            s2b = add(s2b, a2.w, m3); s3b = add(s3b, a3.w, m3);
        }
        ia = next_of_a(ia, k, 4u, part);
        ib = next_of_b(ib, k, 4u, part);
    }

    store_blocks(row, vec2<u32>(8u, 1u), column, sizes.xy, part, s0a, s1a, s2a, s3a, s0b, s1b, s2b, s3b);
}

// Both across k: their rows are the k, and neighbours are rows and columns of the result.
fn across_k(row: u32, column: u32, sharer: u32, part: u32, sizes: vec4<u32>) {
    // Each sharer has four rows.
    let rows = row_of_a(min(row + 4u * sharer, sizes.x - 4u), part);
    // Groups of four columns: the number of columns is a multiple of four.
    let last_column = sizes.y - 4u;
    let c0 = column_of_b(min(column, last_column), part);
    let c1 = column_of_b(min(column + 4u, last_column), part);

    var s0a = Sums(); var s0b = Sums();
    var s1a = Sums(); var s1b = Sums();
    var s2a = Sums(); var s2b = Sums();
    var s3a = Sums(); var s3b = Sums();

    var ia = inner_of_a(sizes.z, part);
    var ib = inner_of_b(sizes.z, part);
    for (var k = sizes.z + 1u; k <= sizes.w; k++) {
        let a = rounded(load_a(rows, ia));
        let b = rounded(load_b(ib, c0));
        s0a = add(s0a, a.x, b); s1a = add(s1a, a.y, b);
        s2a = add(s2a, a.z, b); s3a = add(s3a, a.w, b);
        if (PRODUCT_COLUMNS == 8u) {
            let more = rounded(load_b(ib, c1));
            s0b = add(s0b, a.x, more); s1b = add(s1b, a.y, more);
            s2b = add(s2b, a.z, more); s3b = add(s3b, a.w, more);
        }
        ia = next_of_a(ia, k, 1u, part);
        ib = next_of_b(ib, k, 1u, part);
    }

    store_blocks(row, vec2<u32>(1u, 4u), column, sizes.xy, part, s0a, s1a, s2a, s3a, s0b, s1b, s2b, s3b);
}

// Stores the blocks, whose first rows are apart.x from each other, and the rows of each apart.y.
fn store_blocks(
    row: u32, apart: vec2<u32>, column: u32, size: vec2<u32>, part: u32,
    s0a: Sums, s1a: Sums, s2a: Sums, s3a: Sums, s0b: Sums, s1b: Sums, s2b: Sums, s3b: Sums,
) {
    // Blocks of eight rows and four columns, by one text: drivers take seconds to compile a store for each result.
    for (var block = 0u; block < PRODUCT_COLUMNS; block++) {
        var sums: Sums;
        switch (block) {
            case 0u: { sums = s0a; }
            case 1u: { sums = s1a; }
            case 2u: { sums = s2a; }
            case 3u: { sums = s3a; }
            case 4u: { sums = s0b; }
            case 5u: { sums = s1b; }
            case 6u: { sums = s2b; }
            default: { sums = s3b; }
        }
        store_rows(row + apart.x * (block % 4u), apart.y, column + block / 4u * 4u, size, part, sums);
    }
}

// Stores eight rows, `apart` from each other.
fn store_rows(row: u32, apart: u32, column: u32, size: vec2<u32>, part: u32, sums: Sums) {
    for (var idx = 0u; idx < 8u; idx++) {
        var sum: vec4<f32>;
        switch (idx) {
            case 0u: { sum = sums.s0; }
            case 1u: { sum = sums.s1; }
            case 2u: { sum = sums.s2; }
            case 3u: { sum = sums.s3; }
            case 4u: { sum = sums.s4; }
            case 5u: { sum = sums.s5; }
            case 6u: { sum = sums.s6; }
            default: { sum = sums.s7; }
        }
        store_row(row + idx * apart, column, size, part, sum);
    }
}

fn store_row(row: u32, column: u32, size: vec2<u32>, part: u32, sums: vec4<f32>) {
    if (row >= size.x) { return; }
    store_within(row, column, size.y, part, sums.x);
    store_within(row, column + 1u, size.y, part, sums.y);
    store_within(row, column + 2u, size.y, part, sums.z);
    store_within(row, column + 3u, size.y, part, sums.w);
}

fn store_within(row: u32, column: u32, columns: u32, part: u32, value: f32) {
    if (column < columns) { store(row, column, part, value); }
}
