// Tile loop of a matrix product, from registers alone, which reads four neighbours at a time.
//
//     out[row, column] = sum over k of a[row, k] b[k, column]
//
// As lib/product_registers.wgsl, for factors whose strides are multiples of four: both are bound as
// vec4, and a load gives four k of one row or column, or four rows or columns of one k. A "GPU" that is
// a CPU spends most of a product on loads, lane by lane; these are a quarter as many.
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
// Rows and columns past the end are computed from the last ones and not stored.

alias Factor = vec4<f32>;
alias FactorBits = vec4<u32>;
const FACTOR_WIDTH: u32 = 4u;

const PRODUCT_INVOCATIONS: u32 = 64u;
const PRODUCT_ROWS: u32 = 8u;
const PRODUCT_COLUMNS: u32 = 8u;
// Invocations side by side: fewer for a narrow result.
override PRODUCT_ACROSS: u32 = 8u;

fn product(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let sizes = product_sizes(workgroup.z);
    let columns = PRODUCT_ACROSS * PRODUCT_COLUMNS;
    let tile = tile_index(workgroup, workgroups, (sizes.y + columns - 1u) / columns);
    let row = (tile.x * (PRODUCT_INVOCATIONS / PRODUCT_ACROSS) + lane / PRODUCT_ACROSS) * PRODUCT_ROWS;
    let column = (tile.y * PRODUCT_ACROSS + lane % PRODUCT_ACROSS) * PRODUCT_COLUMNS;
    // Also where the last row of a folded grid has no tile for this workgroup.
    if (row >= sizes.x || column >= sizes.y) { return; }
    if (A_ALONG_K && B_ALONG_K) {
        both_along_k(row, column, workgroup.z, sizes);
    } else if (A_ALONG_K) {
        a_along_k(row, column, workgroup.z, sizes);
    } else {
        across_k(row, column, workgroup.z, sizes);
    }
}

// Rows of a along k, rows of b along the columns: four k a round.
fn a_along_k(row: u32, column: u32, part: u32, sizes: vec4<u32>) {
    let last_row = sizes.x - 1u;
    let r0 = row_of_a(row, part);
    let r1 = row_of_a(min(row + 1u, last_row), part);
    let r2 = row_of_a(min(row + 2u, last_row), part);
    let r3 = row_of_a(min(row + 3u, last_row), part);
    let r4 = row_of_a(min(row + 4u, last_row), part);
    let r5 = row_of_a(min(row + 5u, last_row), part);
    let r6 = row_of_a(min(row + 6u, last_row), part);
    let r7 = row_of_a(min(row + 7u, last_row), part);
    // Groups of four columns: the number of columns is a multiple of four.
    let last_column = sizes.y - 4u;
    let c0 = column_of_b(column, part);
    let c1 = column_of_b(min(column + 4u, last_column), part);

    var s0a = vec4<f32>(); var s0b = vec4<f32>();
    var s1a = vec4<f32>(); var s1b = vec4<f32>();
    var s2a = vec4<f32>(); var s2b = vec4<f32>();
    var s3a = vec4<f32>(); var s3b = vec4<f32>();
    var s4a = vec4<f32>(); var s4b = vec4<f32>();
    var s5a = vec4<f32>(); var s5b = vec4<f32>();
    var s6a = vec4<f32>(); var s6b = vec4<f32>();
    var s7a = vec4<f32>(); var s7b = vec4<f32>();

    var ia = inner_of_a(sizes.z, part);
    var ib = inner_of_b(sizes.z, part);
    for (var k = sizes.z + 4u; k <= sizes.w; k += 4u) {
        let a0 = rounded(load_a(r0, ia));
        let a1 = rounded(load_a(r1, ia));
        let a2 = rounded(load_a(r2, ia));
        let a3 = rounded(load_a(r3, ia));
        let a4 = rounded(load_a(r4, ia));
        let a5 = rounded(load_a(r5, ia));
        let a6 = rounded(load_a(r6, ia));
        let a7 = rounded(load_a(r7, ia));
        ia = next_of_a(ia, k, 4u, part);

        let b0a = rounded(load_b(ib, c0));
        let b0b = rounded(load_b(ib, c1));
        s0a += a0.x * b0a; s0b += a0.x * b0b;
        s1a += a1.x * b0a; s1b += a1.x * b0b;
        s2a += a2.x * b0a; s2b += a2.x * b0b;
        s3a += a3.x * b0a; s3b += a3.x * b0b;
        s4a += a4.x * b0a; s4b += a4.x * b0b;
        s5a += a5.x * b0a; s5b += a5.x * b0b;
        s6a += a6.x * b0a; s6b += a6.x * b0b;
        s7a += a7.x * b0a; s7b += a7.x * b0b;
        ib = next_of_b(ib, k - 3u, 1u, part);

        let b1a = rounded(load_b(ib, c0));
        let b1b = rounded(load_b(ib, c1));
        s0a += a0.y * b1a; s0b += a0.y * b1b;
        s1a += a1.y * b1a; s1b += a1.y * b1b;
        s2a += a2.y * b1a; s2b += a2.y * b1b;
        s3a += a3.y * b1a; s3b += a3.y * b1b;
        s4a += a4.y * b1a; s4b += a4.y * b1b;
        s5a += a5.y * b1a; s5b += a5.y * b1b;
        s6a += a6.y * b1a; s6b += a6.y * b1b;
        s7a += a7.y * b1a; s7b += a7.y * b1b;
        ib = next_of_b(ib, k - 2u, 1u, part);

        let b2a = rounded(load_b(ib, c0));
        let b2b = rounded(load_b(ib, c1));
        s0a += a0.z * b2a; s0b += a0.z * b2b;
        s1a += a1.z * b2a; s1b += a1.z * b2b;
        s2a += a2.z * b2a; s2b += a2.z * b2b;
        s3a += a3.z * b2a; s3b += a3.z * b2b;
        s4a += a4.z * b2a; s4b += a4.z * b2b;
        s5a += a5.z * b2a; s5b += a5.z * b2b;
        s6a += a6.z * b2a; s6b += a6.z * b2b;
        s7a += a7.z * b2a; s7b += a7.z * b2b;
        ib = next_of_b(ib, k - 1u, 1u, part);

        let b3a = rounded(load_b(ib, c0));
        let b3b = rounded(load_b(ib, c1));
        s0a += a0.w * b3a; s0b += a0.w * b3b;
        s1a += a1.w * b3a; s1b += a1.w * b3b;
        s2a += a2.w * b3a; s2b += a2.w * b3b;
        s3a += a3.w * b3a; s3b += a3.w * b3b;
        s4a += a4.w * b3a; s4b += a4.w * b3b;
        s5a += a5.w * b3a; s5b += a5.w * b3b;
        s6a += a6.w * b3a; s6b += a6.w * b3b;
        s7a += a7.w * b3a; s7b += a7.w * b3b;
        ib = next_of_b(ib, k, 1u, part);
    }

    store_rows(
        row, column, sizes.xy, part,
        Sums(s0a, s1a, s2a, s3a, s4a, s5a, s6a, s7a), Sums(s0b, s1b, s2b, s3b, s4b, s5b, s6b, s7b),
    );
}

// Both along k: four k a round.
fn both_along_k(row: u32, column: u32, part: u32, sizes: vec4<u32>) {
    let last_row = sizes.x - 1u;
    let r0 = row_of_a(row, part);
    let r1 = row_of_a(min(row + 1u, last_row), part);
    let r2 = row_of_a(min(row + 2u, last_row), part);
    let r3 = row_of_a(min(row + 3u, last_row), part);
    let r4 = row_of_a(min(row + 4u, last_row), part);
    let r5 = row_of_a(min(row + 5u, last_row), part);
    let r6 = row_of_a(min(row + 6u, last_row), part);
    let r7 = row_of_a(min(row + 7u, last_row), part);
    let last_column = sizes.y - 1u;
    let c0 = column_of_b(column, part);
    let c1 = column_of_b(min(column + 1u, last_column), part);
    let c2 = column_of_b(min(column + 2u, last_column), part);
    let c3 = column_of_b(min(column + 3u, last_column), part);
    let c4 = column_of_b(min(column + 4u, last_column), part);
    let c5 = column_of_b(min(column + 5u, last_column), part);
    let c6 = column_of_b(min(column + 6u, last_column), part);
    let c7 = column_of_b(min(column + 7u, last_column), part);

    var s0a = vec4<f32>(); var s0b = vec4<f32>();
    var s1a = vec4<f32>(); var s1b = vec4<f32>();
    var s2a = vec4<f32>(); var s2b = vec4<f32>();
    var s3a = vec4<f32>(); var s3b = vec4<f32>();
    var s4a = vec4<f32>(); var s4b = vec4<f32>();
    var s5a = vec4<f32>(); var s5b = vec4<f32>();
    var s6a = vec4<f32>(); var s6b = vec4<f32>();
    var s7a = vec4<f32>(); var s7b = vec4<f32>();

    var ia = inner_of_a(sizes.z, part);
    var ib = inner_of_b(sizes.z, part);
    for (var k = sizes.z + 4u; k <= sizes.w; k += 4u) {
        let a0 = rounded(load_a(r0, ia));
        let a1 = rounded(load_a(r1, ia));
        let a2 = rounded(load_a(r2, ia));
        let a3 = rounded(load_a(r3, ia));
        let a4 = rounded(load_a(r4, ia));
        let a5 = rounded(load_a(r5, ia));
        let a6 = rounded(load_a(r6, ia));
        let a7 = rounded(load_a(r7, ia));
        let b0 = rounded(load_b(ib, c0));
        let b1 = rounded(load_b(ib, c1));
        let b2 = rounded(load_b(ib, c2));
        let b3 = rounded(load_b(ib, c3));
        let b4 = rounded(load_b(ib, c4));
        let b5 = rounded(load_b(ib, c5));
        let b6 = rounded(load_b(ib, c6));
        let b7 = rounded(load_b(ib, c7));
        ia = next_of_a(ia, k, 4u, part);
        ib = next_of_b(ib, k, 4u, part);

        let k0a = vec4<f32>(b0.x, b1.x, b2.x, b3.x);
        let k0b = vec4<f32>(b4.x, b5.x, b6.x, b7.x);
        s0a += a0.x * k0a; s0b += a0.x * k0b;
        s1a += a1.x * k0a; s1b += a1.x * k0b;
        s2a += a2.x * k0a; s2b += a2.x * k0b;
        s3a += a3.x * k0a; s3b += a3.x * k0b;
        s4a += a4.x * k0a; s4b += a4.x * k0b;
        s5a += a5.x * k0a; s5b += a5.x * k0b;
        s6a += a6.x * k0a; s6b += a6.x * k0b;
        s7a += a7.x * k0a; s7b += a7.x * k0b;

        let k1a = vec4<f32>(b0.y, b1.y, b2.y, b3.y);
        let k1b = vec4<f32>(b4.y, b5.y, b6.y, b7.y);
        s0a += a0.y * k1a; s0b += a0.y * k1b;
        s1a += a1.y * k1a; s1b += a1.y * k1b;
        s2a += a2.y * k1a; s2b += a2.y * k1b;
        s3a += a3.y * k1a; s3b += a3.y * k1b;
        s4a += a4.y * k1a; s4b += a4.y * k1b;
        s5a += a5.y * k1a; s5b += a5.y * k1b;
        s6a += a6.y * k1a; s6b += a6.y * k1b;
        s7a += a7.y * k1a; s7b += a7.y * k1b;

        let k2a = vec4<f32>(b0.z, b1.z, b2.z, b3.z);
        let k2b = vec4<f32>(b4.z, b5.z, b6.z, b7.z);
        s0a += a0.z * k2a; s0b += a0.z * k2b;
        s1a += a1.z * k2a; s1b += a1.z * k2b;
        s2a += a2.z * k2a; s2b += a2.z * k2b;
        s3a += a3.z * k2a; s3b += a3.z * k2b;
        s4a += a4.z * k2a; s4b += a4.z * k2b;
        s5a += a5.z * k2a; s5b += a5.z * k2b;
        s6a += a6.z * k2a; s6b += a6.z * k2b;
        s7a += a7.z * k2a; s7b += a7.z * k2b;

        let k3a = vec4<f32>(b0.w, b1.w, b2.w, b3.w);
        let k3b = vec4<f32>(b4.w, b5.w, b6.w, b7.w);
        s0a += a0.w * k3a; s0b += a0.w * k3b;
        s1a += a1.w * k3a; s1b += a1.w * k3b;
        s2a += a2.w * k3a; s2b += a2.w * k3b;
        s3a += a3.w * k3a; s3b += a3.w * k3b;
        s4a += a4.w * k3a; s4b += a4.w * k3b;
        s5a += a5.w * k3a; s5b += a5.w * k3b;
        s6a += a6.w * k3a; s6b += a6.w * k3b;
        s7a += a7.w * k3a; s7b += a7.w * k3b;
    }

    store_rows(
        row, column, sizes.xy, part,
        Sums(s0a, s1a, s2a, s3a, s4a, s5a, s6a, s7a), Sums(s0b, s1b, s2b, s3b, s4b, s5b, s6b, s7b),
    );
}

// Both across k: their rows are the k, and neighbours are rows and columns of the result.
fn across_k(row: u32, column: u32, part: u32, sizes: vec4<u32>) {
    let r0 = row_of_a(row, part);
    let r1 = row_of_a(min(row + 4u, sizes.x - 4u), part);
    // Groups of four columns: the number of columns is a multiple of four.
    let last_column = sizes.y - 4u;
    let c0 = column_of_b(column, part);
    let c1 = column_of_b(min(column + 4u, last_column), part);

    var s0a = vec4<f32>(); var s0b = vec4<f32>();
    var s1a = vec4<f32>(); var s1b = vec4<f32>();
    var s2a = vec4<f32>(); var s2b = vec4<f32>();
    var s3a = vec4<f32>(); var s3b = vec4<f32>();
    var s4a = vec4<f32>(); var s4b = vec4<f32>();
    var s5a = vec4<f32>(); var s5b = vec4<f32>();
    var s6a = vec4<f32>(); var s6b = vec4<f32>();
    var s7a = vec4<f32>(); var s7b = vec4<f32>();

    var ia = inner_of_a(sizes.z, part);
    var ib = inner_of_b(sizes.z, part);
    for (var k = sizes.z + 1u; k <= sizes.w; k++) {
        let a0 = rounded(load_a(r0, ia));
        let a1 = rounded(load_a(r1, ia));
        let ba = rounded(load_b(ib, c0));
        let bb = rounded(load_b(ib, c1));
        s0a += a0.x * ba; s0b += a0.x * bb;
        s1a += a0.y * ba; s1b += a0.y * bb;
        s2a += a0.z * ba; s2b += a0.z * bb;
        s3a += a0.w * ba; s3b += a0.w * bb;
        s4a += a1.x * ba; s4b += a1.x * bb;
        s5a += a1.y * ba; s5b += a1.y * bb;
        s6a += a1.z * ba; s6b += a1.z * bb;
        s7a += a1.w * ba; s7b += a1.w * bb;
        ia = next_of_a(ia, k, 1u, part);
        ib = next_of_b(ib, k, 1u, part);
    }

    store_rows(
        row, column, sizes.xy, part,
        Sums(s0a, s1a, s2a, s3a, s4a, s5a, s6a, s7a), Sums(s0b, s1b, s2b, s3b, s4b, s5b, s6b, s7b),
    );
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

fn store_rows(row: u32, column: u32, size: vec2<u32>, part: u32, a: Sums, b: Sums) {
    // By one text for all rows: drivers take seconds to compile a store for each result.
    for (var idx = 0u; idx < PRODUCT_ROWS; idx++) {
        var low: vec4<f32>;
        var high: vec4<f32>;
        switch (idx) {
            case 0u: { low = a.s0; high = b.s0; }
            case 1u: { low = a.s1; high = b.s1; }
            case 2u: { low = a.s2; high = b.s2; }
            case 3u: { low = a.s3; high = b.s3; }
            case 4u: { low = a.s4; high = b.s4; }
            case 5u: { low = a.s5; high = b.s5; }
            case 6u: { low = a.s6; high = b.s6; }
            default: { low = a.s7; high = b.s7; }
        }
        store_row(row + idx, column, size, part, low, high);
    }
}

fn store_row(row: u32, column: u32, size: vec2<u32>, part: u32, a: vec4<f32>, b: vec4<f32>) {
    if (row >= size.x) { return; }
    store_within(row, column, size.y, part, a.x);
    store_within(row, column + 1u, size.y, part, a.y);
    store_within(row, column + 2u, size.y, part, a.z);
    store_within(row, column + 3u, size.y, part, a.w);
    store_within(row, column + 4u, size.y, part, b.x);
    store_within(row, column + 5u, size.y, part, b.y);
    store_within(row, column + 6u, size.y, part, b.z);
    store_within(row, column + 7u, size.y, part, b.w);
}

fn store_within(row: u32, column: u32, columns: u32, part: u32, value: f32) {
    if (column < columns) { store(row, column, part, value); }
}
