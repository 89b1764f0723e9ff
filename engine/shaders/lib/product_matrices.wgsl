// Tile loop of a matrix product by cooperative matrices: subgroups multiply fragments of 16-bit factors and add in 32 bits, on the
// matrix units of a GPU (tensor cores, WMMA, simdgroup matrices). The device rounds factors to 16 bits (lib/product_factors_halves.wgsl).
//
//     out[row, column] = sum over k of a[row, k] b[k, column]
//
// A workgroup of 256 invocations computes 64 x 64 or 128 x 128 results, 16 k at a time. A fragment has FRAGMENT x FRAGMENT results
// (lib/product_matrices_*.wgsl); a block is two beside each other, and each subgroup has one block, or up to four in the same
// columns: which, is known when it runs, as a driver chooses the size of its subgroups. Factors lie in workgroup memory with
// neighbours in k side by side. Results go through workgroup memory, a fragment of each subgroup at a time, as only `store` knows
// where they belong.
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

override PRODUCT_INVOCATIONS: u32 = 256u;
// 64, or 128 for subgroups of 32 invocations and fragments of 16 x 16.
override PRODUCT_TILE: u32 = 64u;
const PRODUCT_DEPTH: u32 = 16u;

// Eight more than there are k: rows begin in different banks, at multiples of 16 bytes.
const PRODUCT_PITCH: u32 = PRODUCT_DEPTH + 8u;
override PRODUCT_LENGTH: u32 = PRODUCT_TILE * PRODUCT_PITCH;
var<workgroup> tile_a: array<f16, PRODUCT_LENGTH>;
var<workgroup> tile_b: array<f16, PRODUCT_LENGTH>;

// Blocks side by side, and in all.
override BLOCKS_ACROSS: u32 = PRODUCT_TILE / (2u * FRAGMENT);
override BLOCKS: u32 = BLOCKS_ACROSS * (PRODUCT_TILE / FRAGMENT);
const FRAGMENT_LENGTH: u32 = FRAGMENT * FRAGMENT;
// Of each subgroup one fragment: eight results an invocation, in the smallest subgroups.
var<workgroup> results: array<f32, 2048>;
// Blocks of a subgroup at most.
override MOST_BLOCKS: u32 = BLOCKS / (PRODUCT_INVOCATIONS / LARGEST_SUBGROUP);
// Is there a second half of rows and columns to bring?
override IS_LARGE: bool = PRODUCT_TILE > 64u;

fn product(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let part = workgroup.z;
    let sizes = product_sizes(part);
    let columns = (sizes.y + PRODUCT_TILE - 1u) / PRODUCT_TILE;
    let tile = tile_index(workgroup, workgroups, columns);
    let first = tile * PRODUCT_TILE;
    // The last row of a folded grid may have no tile for this workgroup. Uniform, so barriers may follow.
    if (first.x >= sizes.x) { return; }

    // What this invocation brings to the tiles: one k of four or eight rows, and one k of as many columns.
    let fast = lane % PRODUCT_DEPTH;
    let slow = lane / PRODUCT_DEPTH;
    let y_a = select(fast, slow, A_ALONG_K);
    let x_b = select(fast, slow, B_ALONG_K);
    let depth_a = select(slow, fast, A_ALONG_K);
    let depth_b = select(slow, fast, B_ALONG_K);
    let at_a = y_a * PRODUCT_PITCH + depth_a;
    let at_b = x_b * PRODUCT_PITCH + depth_b;
    var k_a = sizes.z + depth_a;
    var k_b = sizes.z + depth_b;
    let last = sizes.xy - 1u;
    let ra0 = row_of_a(min(first.x + y_a, last.x), part);
    let ra1 = row_of_a(min(first.x + y_a + 16u, last.x), part);
    let ra2 = row_of_a(min(first.x + y_a + 32u, last.x), part);
    let ra3 = row_of_a(min(first.x + y_a + 48u, last.x), part);
    let ra4 = row_of_a(min(first.x + y_a + 64u, last.x), part);
    let ra5 = row_of_a(min(first.x + y_a + 80u, last.x), part);
    let ra6 = row_of_a(min(first.x + y_a + 96u, last.x), part);
    let ra7 = row_of_a(min(first.x + y_a + 112u, last.x), part);
    let cb0 = column_of_b(min(first.y + x_b, last.y), part);
    let cb1 = column_of_b(min(first.y + x_b + 16u, last.y), part);
    let cb2 = column_of_b(min(first.y + x_b + 32u, last.y), part);
    let cb3 = column_of_b(min(first.y + x_b + 48u, last.y), part);
    let cb4 = column_of_b(min(first.y + x_b + 64u, last.y), part);
    let cb5 = column_of_b(min(first.y + x_b + 80u, last.y), part);
    let cb6 = column_of_b(min(first.y + x_b + 96u, last.y), part);
    let cb7 = column_of_b(min(first.y + x_b + 112u, last.y), part);

    // Past the end of k, where a load would leave the buffer, the first k is loaded and not used.
    let first_a = inner_of_a(sizes.z, part);
    let first_b = inner_of_b(sizes.z, part);
    var inner_a = inner_of_a(k_a, part);
    var inner_b = inner_of_b(k_b, part);

    // Subgroups follow each other in the order of the invocations.
    let subgroup_size = subgroupAdd(1u);
    let subgroup = lane / subgroup_size;
    let subgroups = PRODUCT_INVOCATIONS / subgroup_size;
    let n_blocks = BLOCKS / subgroups;
    // In workgroup memory: the columns of this subgroup, the rows of its first block, and from one of its blocks to the next.
    let from_b = subgroup % BLOCKS_ACROSS * (2u * FRAGMENT * PRODUCT_PITCH);
    let from_a = subgroup / BLOCKS_ACROSS * (FRAGMENT * PRODUCT_PITCH);
    let next_block = subgroups / BLOCKS_ACROSS * (FRAGMENT * PRODUCT_PITCH);

    // Loaded: the compiler of AMD in Mesa 25 leaves `MatrixC()` as the registers were.
    for (var at = lane; at < FRAGMENT_LENGTH; at += PRODUCT_INVOCATIONS) { results[at] = 0.0; }
    workgroupBarrier();
    let zero = coopLoadT<MatrixC>(&results[0], FRAGMENT);
    var c0 = zero; var c1 = zero;
    var c2 = zero; var c3 = zero;
    var c4 = zero; var c5 = zero;
    var c6 = zero; var c7 = zero;
    var next_a = vec4<f32>();
    var next_b = vec4<f32>();
    var next_large_a = vec4<f32>();
    var next_large_b = vec4<f32>();

    // One round more than there are tiles: round i fetches tile i and multiplies tile i - 1.
    let rounds = (sizes.w - sizes.z + PRODUCT_DEPTH - 1u) / PRODUCT_DEPTH;
    for (var round = 0u; round <= rounds; round++) {
        if (round > 0u) {
            workgroupBarrier();
            tile_a[at_a] = f16(next_a.x);
            tile_a[at_a + 16u * PRODUCT_PITCH] = f16(next_a.y);
            tile_a[at_a + 32u * PRODUCT_PITCH] = f16(next_a.z);
            tile_a[at_a + 48u * PRODUCT_PITCH] = f16(next_a.w);
            tile_b[at_b] = f16(next_b.x);
            tile_b[at_b + 16u * PRODUCT_PITCH] = f16(next_b.y);
            tile_b[at_b + 32u * PRODUCT_PITCH] = f16(next_b.z);
            tile_b[at_b + 48u * PRODUCT_PITCH] = f16(next_b.w);
            if (IS_LARGE) {
                tile_a[at_a + 64u * PRODUCT_PITCH] = f16(next_large_a.x);
                tile_a[at_a + 80u * PRODUCT_PITCH] = f16(next_large_a.y);
                tile_a[at_a + 96u * PRODUCT_PITCH] = f16(next_large_a.z);
                tile_a[at_a + 112u * PRODUCT_PITCH] = f16(next_large_a.w);
                tile_b[at_b + 64u * PRODUCT_PITCH] = f16(next_large_b.x);
                tile_b[at_b + 80u * PRODUCT_PITCH] = f16(next_large_b.y);
                tile_b[at_b + 96u * PRODUCT_PITCH] = f16(next_large_b.z);
                tile_b[at_b + 112u * PRODUCT_PITCH] = f16(next_large_b.w);
            }
            workgroupBarrier();
        }
        if (round < rounds) {
            let in_a = k_a < sizes.w;
            let ia = select(first_a, inner_a, in_a);
            let a = vec4<f32>(load_a(ra0, ia), load_a(ra1, ia), load_a(ra2, ia), load_a(ra3, ia));
            next_a = select(vec4<f32>(), a, in_a);
            if (IS_LARGE) {
                let large = vec4<f32>(load_a(ra4, ia), load_a(ra5, ia), load_a(ra6, ia), load_a(ra7, ia));
                next_large_a = select(vec4<f32>(), large, in_a);
            }
            k_a += PRODUCT_DEPTH;
            inner_a = next_of_a(inner_a, k_a, PRODUCT_DEPTH, part);

            let in_b = k_b < sizes.w;
            let ib = select(first_b, inner_b, in_b);
            let b = vec4<f32>(load_b(ib, cb0), load_b(ib, cb1), load_b(ib, cb2), load_b(ib, cb3));
            next_b = select(vec4<f32>(), b, in_b);
            if (IS_LARGE) {
                let large = vec4<f32>(load_b(ib, cb4), load_b(ib, cb5), load_b(ib, cb6), load_b(ib, cb7));
                next_large_b = select(vec4<f32>(), large, in_b);
            }
            k_b += PRODUCT_DEPTH;
            inner_b = next_of_b(inner_b, k_b, PRODUCT_DEPTH, part);
        }
        if (round > 0u) {
            for (var k = 0u; k < PRODUCT_DEPTH; k += FRAGMENT) {
                let b0 = coopLoad<MatrixB>(&tile_b[from_b + k], PRODUCT_PITCH);
                let b1 = coopLoad<MatrixB>(&tile_b[from_b + FRAGMENT * PRODUCT_PITCH + k], PRODUCT_PITCH);
                let a0 = coopLoadT<MatrixA>(&tile_a[from_a + k], PRODUCT_PITCH);
                c0 = coopMultiplyAdd(a0, b0, c0);
                c1 = coopMultiplyAdd(a0, b1, c1);
                if (MOST_BLOCKS > 1u && n_blocks > 1u) {
                    let a1 = coopLoadT<MatrixA>(&tile_a[from_a + next_block + k], PRODUCT_PITCH);
                    c2 = coopMultiplyAdd(a1, b0, c2);
                    c3 = coopMultiplyAdd(a1, b1, c3);
                }
                if (MOST_BLOCKS > 2u && n_blocks > 2u) {
                    let a2 = coopLoadT<MatrixA>(&tile_a[from_a + 2u * next_block + k], PRODUCT_PITCH);
                    c4 = coopMultiplyAdd(a2, b0, c4);
                    c5 = coopMultiplyAdd(a2, b1, c5);
                    let a3 = coopLoadT<MatrixA>(&tile_a[from_a + 3u * next_block + k], PRODUCT_PITCH);
                    c6 = coopMultiplyAdd(a3, b0, c6);
                    c7 = coopMultiplyAdd(a3, b1, c7);
                }
            }
        }
    }

    let from_c = subgroup * FRAGMENT_LENGTH;
    for (var fragment = 0u; fragment < 2u * n_blocks; fragment++) {
        switch (fragment) {
            case 0u: { coopStoreT(c0, &results[from_c], FRAGMENT); }
            case 1u: { coopStoreT(c1, &results[from_c], FRAGMENT); }
            case 2u: { coopStoreT(c2, &results[from_c], FRAGMENT); }
            case 3u: { coopStoreT(c3, &results[from_c], FRAGMENT); }
            case 4u: { coopStoreT(c4, &results[from_c], FRAGMENT); }
            case 5u: { coopStoreT(c5, &results[from_c], FRAGMENT); }
            case 6u: { coopStoreT(c6, &results[from_c], FRAGMENT); }
            default: { coopStoreT(c7, &results[from_c], FRAGMENT); }
        }
        workgroupBarrier();
        for (var at = lane; at < subgroups * FRAGMENT_LENGTH; at += PRODUCT_INVOCATIONS) {
            let block = at / FRAGMENT_LENGTH + fragment / 2u * subgroups;
            let row = first.x + block / BLOCKS_ACROSS * FRAGMENT + at / FRAGMENT % FRAGMENT;
            let column = first.y + (block % BLOCKS_ACROSS * 2u + fragment % 2u) * FRAGMENT + at % FRAGMENT;
            if (row < sizes.x && column < sizes.y) { store(row, column, part, results[at]); }
        }
        workgroupBarrier();
    }
}
