// Attention of queries to keys, tile by tile: no matrix of queries by keys is ever in memory.
//
//     p[i, j] = exp(scale q[i] · k[j] - lse[i]) where j is seen from i, else 0;  lse[i] = log sum over j of exp(scale q[i] · k[j])
//     y[i]    = sum over j of f[i, j] p[i, j] v[j],  f[i, j] = u >= rate ? 1 / (1 - rate) : 0
//     d_v[j]  = sum over i of f p dy[i];  ds[i, j] = scale p (f dy[i] · v[j] - dy[i] · y[i])
//     d_q[i]  = sum over j of ds k[j];  d_k[j] = sum over i of ds q[i]
//
// Where no key is seen from i, p is 0, or, if UNIFORM, 1 / keys for all keys; lse is EMPTY there.
//
// Source    Vaswani et al. 2017, arXiv:1706.03762; Dao 2023, arXiv:2307.08691, for the order of the sums. u is lib/random's
//           number of (seed, step, node, row of the whole batch, (head queries + i) keys + j).
// Shapes    q, d_q [rows, queries, heads, dim]; k, d_k [rows, keys, heads, dim]; v, d_v [rows, keys, heads, value_dim];
//           y, dy [rows, queries, heads, value_dim]; query_mask [rows, queries]; key_mask [rows, keys]; lse [rows, queries,
//           heads]; statistics [rows, queries, heads, 2]: lse and dy · y.
// Grid      a workgroup for each row, head, 32 queries (backward_keys: keys) and 64 columns of the result;
//           backward_sums: an invocation for each row, query and head.
// Accuracy  within 2e-5 of the twin, relative to 1 + |y|, up to 257 keys.
// Twin      src/kernels/attention/twins.rs
// Uses      lib/grid.wgsl, lib/random.wgsl

struct Params {
    rows: u32,
    heads: u32,
    queries: u32,
    keys: u32,
    dim: u32,
    value_dim: u32,
    scale: f32,
    first_row: u32,
    seed: u32,
    step: u32,
    node: u32,
    rate: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> key_mask: array<f32>;

@group(0) @binding(5) var<storage, read> query_mask: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
@group(0) @binding(7) var<storage, read_write> lse: array<f32>;

@group(0) @binding(5) var<storage, read> dy: array<f32>;
@group(0) @binding(6) var<storage, read> statistics: array<f32>;
@group(0) @binding(7) var<storage, read_write> d_q: array<f32>;

@group(0) @binding(7) var<storage, read_write> d_k: array<f32>;
@group(0) @binding(8) var<storage, read_write> d_v: array<f32>;

@group(0) @binding(1) var<storage, read> saved_y: array<f32>;
@group(0) @binding(2) var<storage, read> saved_dy: array<f32>;
@group(0) @binding(3) var<storage, read> saved_lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums: array<f32>;

// Does a query see no later key?
override CAUSAL: u32 = 0u;
// 0 leaves a mask unread: any buffer may be bound there.
override QUERY_MASKED: u32 = 0u;
override KEY_MASKED: u32 = 0u;
// Is a query that sees no key given the mean of all values? Else 0.
override UNIFORM: u32 = 0u;
override DROPS: u32 = 0u;

const LOW: f32 = -3e38;
const EMPTY: f32 = 3e38;
// Positions of a workgroup, and positions of a tile that it meets.
const OWN: u32 = 32u;
const MET: u32 = 16u;
// Columns of a tile, in numbers and vectors; from row to row of a tile there is one vector more, against bank conflicts.
const COLUMNS: u32 = 64u;
const VECTORS: u32 = 16u;
const PITCH: u32 = 17u;

var<workgroup> own: array<vec4<f32>, 544>;
var<workgroup> met: array<vec4<f32>, 272>;
var<workgroup> weights: array<f32, 544>;
var<workgroup> parts: array<f32, 128>;

// A lane has own positions `lane / 4` and 16 behind, and met positions `lane % 4`, 4, 8 and 12 behind.
struct Pair {
    a: vec4<f32>,
    b: vec4<f32>,
}

// Columns `4 (lane % 4)` and 16, 32, 48 behind, of both own positions.
struct Rows {
    a0: vec4<f32>,
    a1: vec4<f32>,
    a2: vec4<f32>,
    a3: vec4<f32>,
    b0: vec4<f32>,
    b1: vec4<f32>,
    b2: vec4<f32>,
    b3: vec4<f32>,
}

// What a workgroup is for.
struct Place {
    row: u32,
    head: u32,
    first: u32,
    column: u32,
}

fn place_of(item: u32, positions: u32, columns: u32) -> Place {
    let tiles = (positions + OWN - 1u) / OWN;
    let n_parts = (columns + COLUMNS - 1u) / COLUMNS;
    let head = item / (tiles * n_parts);
    return Place(head / params.heads, head % params.heads, item / n_parts % tiles * OWN, item % n_parts * COLUMNS);
}

// Vectors of a tile that begins at a column and has numbers in them.
fn vectors_from(column: u32, columns: u32) -> u32 {
    return (min(columns - min(column, columns), COLUMNS) + 3u) / 4u;
}

fn q_at(place: Place, i: u32, c: u32) -> vec4<f32> {
    var four = vec4<f32>(0.0);
    let at = ((place.row * params.queries + i) * params.heads + place.head) * params.dim + c;
    let n = select(0u, params.dim - min(c, params.dim), i < params.queries);
    if n > 0u { four.x = q[at]; }
    if n > 1u { four.y = q[at + 1u]; }
    if n > 2u { four.z = q[at + 2u]; }
    if n > 3u { four.w = q[at + 3u]; }
    return four;
}

fn k_at(place: Place, j: u32, c: u32) -> vec4<f32> {
    var four = vec4<f32>(0.0);
    let at = ((place.row * params.keys + j) * params.heads + place.head) * params.dim + c;
    let n = select(0u, params.dim - min(c, params.dim), j < params.keys);
    if n > 0u { four.x = k[at]; }
    if n > 1u { four.y = k[at + 1u]; }
    if n > 2u { four.z = k[at + 2u]; }
    if n > 3u { four.w = k[at + 3u]; }
    return four;
}

fn v_at(place: Place, j: u32, c: u32) -> vec4<f32> {
    var four = vec4<f32>(0.0);
    let at = ((place.row * params.keys + j) * params.heads + place.head) * params.value_dim + c;
    let n = select(0u, params.value_dim - min(c, params.value_dim), j < params.keys);
    if n > 0u { four.x = v[at]; }
    if n > 1u { four.y = v[at + 1u]; }
    if n > 2u { four.z = v[at + 2u]; }
    if n > 3u { four.w = v[at + 3u]; }
    return four;
}

fn dy_at(place: Place, i: u32, c: u32) -> vec4<f32> {
    var four = vec4<f32>(0.0);
    let at = ((place.row * params.queries + i) * params.heads + place.head) * params.value_dim + c;
    let n = select(0u, params.value_dim - min(c, params.value_dim), i < params.queries);
    if n > 0u { four.x = dy[at]; }
    if n > 1u { four.y = dy[at + 1u]; }
    if n > 2u { four.z = dy[at + 2u]; }
    if n > 3u { four.w = dy[at + 3u]; }
    return four;
}

fn own_q(place: Place, column: u32, lane: u32) {
    for (var n = lane; n < OWN * VECTORS; n += 64u) {
        own[n / VECTORS * PITCH + n % VECTORS] = q_at(place, place.first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

fn own_k(place: Place, column: u32, lane: u32) {
    for (var n = lane; n < OWN * VECTORS; n += 64u) {
        own[n / VECTORS * PITCH + n % VECTORS] = k_at(place, place.first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

fn own_v(place: Place, column: u32, lane: u32) {
    for (var n = lane; n < OWN * VECTORS; n += 64u) {
        own[n / VECTORS * PITCH + n % VECTORS] = v_at(place, place.first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

fn own_dy(place: Place, column: u32, lane: u32) {
    for (var n = lane; n < OWN * VECTORS; n += 64u) {
        own[n / VECTORS * PITCH + n % VECTORS] = dy_at(place, place.first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

fn met_q(place: Place, first: u32, column: u32, lane: u32) {
    for (var n = lane; n < MET * VECTORS; n += 64u) {
        met[n / VECTORS * PITCH + n % VECTORS] = q_at(place, first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

fn met_k(place: Place, first: u32, column: u32, lane: u32) {
    for (var n = lane; n < MET * VECTORS; n += 64u) {
        met[n / VECTORS * PITCH + n % VECTORS] = k_at(place, first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

fn met_v(place: Place, first: u32, column: u32, lane: u32) {
    for (var n = lane; n < MET * VECTORS; n += 64u) {
        met[n / VECTORS * PITCH + n % VECTORS] = v_at(place, first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

fn met_dy(place: Place, first: u32, column: u32, lane: u32) {
    for (var n = lane; n < MET * VECTORS; n += 64u) {
        met[n / VECTORS * PITCH + n % VECTORS] = dy_at(place, first + n / VECTORS, column + 4u * (n % VECTORS));
    }
}

// Adds the products of own and met rows of both tiles.
fn with_products(before: Pair, lane: u32, n_vectors: u32) -> Pair {
    let a = lane / 4u * PITCH;
    let b = a + 16u * PITCH;
    let other = lane % 4u * PITCH;
    var sum_a = before.a;
    var sum_b = before.b;
    for (var c = 0u; c < n_vectors; c += 1u) {
        let own_a = own[a + c];
        let own_b = own[b + c];
        let met_0 = met[other + c];
        let met_1 = met[other + 4u * PITCH + c];
        let met_2 = met[other + 8u * PITCH + c];
        let met_3 = met[other + 12u * PITCH + c];
        sum_a += vec4<f32>(dot(own_a, met_0), dot(own_a, met_1), dot(own_a, met_2), dot(own_a, met_3));
        sum_b += vec4<f32>(dot(own_b, met_0), dot(own_b, met_1), dot(own_b, met_2), dot(own_b, met_3));
    }
    return Pair(sum_a, sum_b);
}

// Adds the met rows, each by its weight for the own positions.
fn with_weighted(before: Rows, lane: u32, n_vectors: u32) -> Rows {
    let a = lane / 4u * PITCH;
    let b = a + 16u * PITCH;
    var rows = before;
    for (var n = 0u; n < MET; n += 1u) {
        let weight_a = weights[a + n];
        let weight_b = weights[b + n];
        let at = n * PITCH + lane % 4u;
        let met_0 = met[at];
        rows.a0 += weight_a * met_0;
        rows.b0 += weight_b * met_0;
        if n_vectors > 4u {
            let met_1 = met[at + 4u];
            rows.a1 += weight_a * met_1;
            rows.b1 += weight_b * met_1;
        }
        if n_vectors > 8u {
            let met_2 = met[at + 8u];
            let met_3 = met[at + 12u];
            rows.a2 += weight_a * met_2;
            rows.b2 += weight_b * met_2;
            rows.a3 += weight_a * met_3;
            rows.b3 += weight_b * met_3;
        }
    }
    return rows;
}

fn keep_weights(pair: Pair, lane: u32) {
    let a = lane / 4u * PITCH + lane % 4u;
    let b = a + 16u * PITCH;
    weights[a] = pair.a.x;
    weights[a + 4u] = pair.a.y;
    weights[a + 8u] = pair.a.z;
    weights[a + 12u] = pair.a.w;
    weights[b] = pair.b.x;
    weights[b + 4u] = pair.b.y;
    weights[b + 8u] = pair.b.z;
    weights[b + 12u] = pair.b.w;
}

fn is_seen(row: u32, i: u32, j: u32) -> bool {
    if i >= params.queries || j >= params.keys || (CAUSAL != 0u && j > i) {
        return false;
    }
    if KEY_MASKED != 0u {
        return key_mask[row * params.keys + j] >= 0.5;
    }
    return true;
}

fn are_keys_seen(row: u32, i: u32, j: u32) -> vec4<bool> {
    return vec4<bool>(is_seen(row, i, j), is_seen(row, i, j + 4u), is_seen(row, i, j + 8u), is_seen(row, i, j + 12u));
}

fn are_seen_from(row: u32, i: u32, j: u32) -> vec4<bool> {
    return vec4<bool>(is_seen(row, i, j), is_seen(row, i + 4u, j), is_seen(row, i + 8u, j), is_seen(row, i + 12u, j));
}

fn query_counts(row: u32, i: u32) -> bool {
    if QUERY_MASKED != 0u && i < params.queries {
        return query_mask[row * params.queries + i] >= 0.5;
    }
    return true;
}

// Key of the random numbers of a row.
fn draws_of(row: u32) -> vec3<u32> {
    if DROPS == 0u {
        return vec3<u32>(0u);
    }
    return random_row(params.seed, params.step, params.node, params.first_row + row);
}

// The factor of a probability: 0 if it is dropped.
fn factor_of(draws: vec3<u32>, head: u32, i: u32, j: u32) -> f32 {
    let unit = random_unit(draws, (head * params.queries + i) * params.keys + j);
    return select(0.0, 1.0 / max(1.0 - params.rate, 1e-7), unit >= params.rate);
}

// Factors for four queries or keys, `di` and `dj` apart.
fn factors_of(draws: vec3<u32>, head: u32, i: u32, j: u32, di: u32, dj: u32) -> vec4<f32> {
    if DROPS == 0u {
        return vec4<f32>(1.0);
    }
    return vec4<f32>(
        factor_of(draws, head, i, j),
        factor_of(draws, head, i + di, j + dj),
        factor_of(draws, head, i + 2u * di, j + 2u * dj),
        factor_of(draws, head, i + 3u * di, j + 3u * dj),
    );
}

fn largest(four: vec4<f32>) -> f32 {
    return max(max(four.x, four.y), max(four.z, four.w));
}

fn total(four: vec4<f32>) -> f32 {
    return (four.x + four.y) + (four.z + four.w);
}

// The values of both own positions that the four lanes of each have left in `parts`.
fn parts_of(lane: u32) -> Pair {
    let a = lane / 4u * 4u;
    let b = a + 64u;
    return Pair(
        vec4<f32>(parts[a], parts[a + 1u], parts[a + 2u], parts[a + 3u]),
        vec4<f32>(parts[b], parts[b + 1u], parts[b + 2u], parts[b + 3u]),
    );
}

fn y_is(at: u32, c: u32, four: vec4<f32>) {
    if c < params.value_dim { y[at + c] = four.x; }
    if c + 1u < params.value_dim { y[at + c + 1u] = four.y; }
    if c + 2u < params.value_dim { y[at + c + 2u] = four.z; }
    if c + 3u < params.value_dim { y[at + c + 3u] = four.w; }
}

fn d_q_is(at: u32, c: u32, four: vec4<f32>) {
    if c < params.dim { d_q[at + c] = four.x; }
    if c + 1u < params.dim { d_q[at + c + 1u] = four.y; }
    if c + 2u < params.dim { d_q[at + c + 2u] = four.z; }
    if c + 3u < params.dim { d_q[at + c + 3u] = four.w; }
}

fn d_k_is(at: u32, c: u32, four: vec4<f32>) {
    if c < params.dim { d_k[at + c] = four.x; }
    if c + 1u < params.dim { d_k[at + c + 1u] = four.y; }
    if c + 2u < params.dim { d_k[at + c + 2u] = four.z; }
    if c + 3u < params.dim { d_k[at + c + 3u] = four.w; }
}

fn d_v_is(at: u32, c: u32, four: vec4<f32>) {
    if c < params.value_dim { d_v[at + c] = four.x; }
    if c + 1u < params.value_dim { d_v[at + c + 1u] = four.y; }
    if c + 2u < params.value_dim { d_v[at + c + 2u] = four.z; }
    if c + 3u < params.value_dim { d_v[at + c + 3u] = four.w; }
}

fn mean_value(place: Place, c: u32) -> vec4<f32> {
    var sum = vec4<f32>(0.0);
    for (var j = 0u; j < params.keys; j += 1u) {
        sum += v_at(place, j, c);
    }
    return sum / f32(params.keys);
}

// Writes the results of a query, and the logarithm of its sum.
fn leave_query(place: Place, i: u32, sub: u32, peak: f32, sum: f32, r0: vec4<f32>, r1: vec4<f32>, r2: vec4<f32>, r3: vec4<f32>) {
    if i >= params.queries {
        return;
    }
    let query = (place.row * params.queries + i) * params.heads + place.head;
    let at = query * params.value_dim;
    let c = place.column + 4u * sub;
    let is_empty = sum == 0.0;
    if is_empty && UNIFORM != 0u {
        y_is(at, c, mean_value(place, c));
        y_is(at, c + 16u, mean_value(place, c + 16u));
        y_is(at, c + 32u, mean_value(place, c + 32u));
        y_is(at, c + 48u, mean_value(place, c + 48u));
    } else {
        let share = select(1.0 / max(sum, 1e-30), 0.0, is_empty);
        y_is(at, c, r0 * share);
        y_is(at, c + 16u, r1 * share);
        y_is(at, c + 32u, r2 * share);
        y_is(at, c + 48u, r3 * share);
    }
    if sub == 0u && place.column == 0u {
        lse[query] = select(peak + log(max(sum, 1e-30)), EMPTY, is_empty);
    }
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let place = place_of(item_index(workgroup, workgroups), params.queries, params.value_dim);
    if place.row >= params.rows {
        return;
    }
    let sub = lane % 4u;
    let mine = lane / 4u;
    let i_a = place.first + mine;
    let i_b = i_a + 16u;
    let draws = draws_of(place.row);
    let counts_a = vec4<bool>(query_counts(place.row, i_a));
    let counts_b = vec4<bool>(query_counts(place.row, i_b));
    let zero = vec4<f32>(0.0);
    var rows = Rows(zero, zero, zero, zero, zero, zero, zero, zero);
    var peak_a = LOW;
    var peak_b = LOW;
    var sum_a = 0.0;
    var sum_b = 0.0;
    var end = params.keys;
    if CAUSAL != 0u {
        end = min(end, place.first + OWN);
    }
    for (var first = 0u; first < end; first += MET) {
        var scores = Pair(zero, zero);
        for (var column = 0u; column < params.dim; column += COLUMNS) {
            if first == 0u || params.dim > COLUMNS {
                own_q(place, column, lane);
            }
            met_k(place, first, column, lane);
            workgroupBarrier();
            scores = with_products(scores, lane, vectors_from(column, params.dim));
            workgroupBarrier();
        }
        met_v(place, first, place.column, lane);
        let j = first + sub;
        let seen_a = are_keys_seen(place.row, i_a, j) & counts_a;
        let seen_b = are_keys_seen(place.row, i_b, j) & counts_b;
        let score_a = select(vec4<f32>(LOW), scores.a * params.scale, seen_a);
        let score_b = select(vec4<f32>(LOW), scores.b * params.scale, seen_b);
        parts[lane] = largest(score_a);
        parts[lane + 64u] = largest(score_b);
        workgroupBarrier();
        let peaks = parts_of(lane);
        let new_a = max(peak_a, largest(peaks.a));
        let new_b = max(peak_b, largest(peaks.b));
        let p_a = select(zero, exp(score_a - new_a), seen_a);
        let p_b = select(zero, exp(score_b - new_b), seen_b);
        let shrink_a = exp(peak_a - new_a);
        let shrink_b = exp(peak_b - new_b);
        peak_a = new_a;
        peak_b = new_b;
        sum_a = sum_a * shrink_a + total(p_a);
        sum_b = sum_b * shrink_b + total(p_b);
        rows.a0 *= shrink_a;
        rows.a1 *= shrink_a;
        rows.a2 *= shrink_a;
        rows.a3 *= shrink_a;
        rows.b0 *= shrink_b;
        rows.b1 *= shrink_b;
        rows.b2 *= shrink_b;
        rows.b3 *= shrink_b;
        let kept_a = p_a * factors_of(draws, place.head, i_a, j, 0u, 4u);
        let kept_b = p_b * factors_of(draws, place.head, i_b, j, 0u, 4u);
        keep_weights(Pair(kept_a, kept_b), lane);
        workgroupBarrier();
        rows = with_weighted(rows, lane, vectors_from(place.column, params.value_dim));
        workgroupBarrier();
    }
    parts[lane] = sum_a;
    parts[lane + 64u] = sum_b;
    workgroupBarrier();
    let totals = parts_of(lane);
    leave_query(place, i_a, sub, peak_a, total(totals.a), rows.a0, rows.a1, rows.a2, rows.a3);
    leave_query(place, i_b, sub, peak_b, total(totals.b), rows.b0, rows.b1, rows.b2, rows.b3);
}

@compute @workgroup_size(64)
fn backward_sums(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let query = element_index(workgroup, workgroups, lane, 64u);
    if query >= params.rows * params.queries * params.heads {
        return;
    }
    var sum = 0.0;
    for (var c = 0u; c < params.value_dim; c += 1u) {
        sum += saved_y[query * params.value_dim + c] * saved_dy[query * params.value_dim + c];
    }
    sums[2u * query] = saved_lse[query];
    sums[2u * query + 1u] = sum;
}

// Logarithm of a query's sum, and dy · y; nothing where there is no query.
fn statistics_of(place: Place, i: u32) -> vec2<f32> {
    if i >= params.queries {
        return vec2<f32>(EMPTY, 0.0);
    }
    let at = 2u * ((place.row * params.queries + i) * params.heads + place.head);
    return vec2<f32>(statistics[at], statistics[at + 1u]);
}

@compute @workgroup_size(64)
fn backward_queries(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let place = place_of(item_index(workgroup, workgroups), params.queries, params.dim);
    if place.row >= params.rows {
        return;
    }
    let i_a = place.first + lane / 4u;
    let i_b = i_a + 16u;
    let draws = draws_of(place.row);
    let of_a = statistics_of(place, i_a);
    let of_b = statistics_of(place, i_b);
    let zero = vec4<f32>(0.0);
    var rows = Rows(zero, zero, zero, zero, zero, zero, zero, zero);
    var end = params.keys;
    if CAUSAL != 0u {
        end = min(end, place.first + OWN);
    }
    for (var first = 0u; first < end; first += MET) {
        var dp = Pair(zero, zero);
        for (var column = 0u; column < params.value_dim; column += COLUMNS) {
            own_dy(place, column, lane);
            met_v(place, first, column, lane);
            workgroupBarrier();
            dp = with_products(dp, lane, vectors_from(column, params.value_dim));
            workgroupBarrier();
        }
        var scores = Pair(zero, zero);
        for (var column = 0u; column < params.dim; column += COLUMNS) {
            own_q(place, column, lane);
            met_k(place, first, column, lane);
            workgroupBarrier();
            scores = with_products(scores, lane, vectors_from(column, params.dim));
            workgroupBarrier();
        }
        let j = first + lane % 4u;
        let seen_a = are_keys_seen(place.row, i_a, j);
        let seen_b = are_keys_seen(place.row, i_b, j);
        let p_a = select(zero, exp(scores.a * params.scale - of_a.x), seen_a);
        let p_b = select(zero, exp(scores.b * params.scale - of_b.x), seen_b);
        let dp_a = dp.a * factors_of(draws, place.head, i_a, j, 0u, 4u);
        let dp_b = dp.b * factors_of(draws, place.head, i_b, j, 0u, 4u);
        keep_weights(Pair(p_a * (dp_a - of_a.y) * params.scale, p_b * (dp_b - of_b.y) * params.scale), lane);
        if params.dim > COLUMNS {
            met_k(place, first, place.column, lane);
        }
        workgroupBarrier();
        rows = with_weighted(rows, lane, vectors_from(place.column, params.dim));
        workgroupBarrier();
    }
    let c = place.column + 4u * (lane % 4u);
    let at = (place.row * params.queries + i_a) * params.heads * params.dim + place.head * params.dim;
    if i_a < params.queries {
        d_q_is(at, c, rows.a0);
        d_q_is(at, c + 16u, rows.a1);
        d_q_is(at, c + 32u, rows.a2);
        d_q_is(at, c + 48u, rows.a3);
    }
    let at_b = at + 16u * params.heads * params.dim;
    if i_b < params.queries {
        d_q_is(at_b, c, rows.b0);
        d_q_is(at_b, c + 16u, rows.b1);
        d_q_is(at_b, c + 32u, rows.b2);
        d_q_is(at_b, c + 48u, rows.b3);
    }
}

// Sum of dy over the queries before `end` that see no key, by their share of each value.
fn shares_before(place: Place, end: u32, c: u32) -> vec4<f32> {
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < end; i += 1u) {
        if statistics_of(place, i).x == EMPTY {
            sum += dy_at(place, i, c);
        }
    }
    return sum / f32(params.keys);
}

fn leave_key(place: Place, j: u32, c: u32, r0: vec4<f32>, r1: vec4<f32>, r2: vec4<f32>, r3: vec4<f32>) {
    if j < params.keys {
        let at = ((place.row * params.keys + j) * params.heads + place.head) * params.dim;
        d_k_is(at, c, r0);
        d_k_is(at, c + 16u, r1);
        d_k_is(at, c + 32u, r2);
        d_k_is(at, c + 48u, r3);
    }
}

fn leave_value(place: Place, j: u32, c: u32, r0: vec4<f32>, r1: vec4<f32>, r2: vec4<f32>, r3: vec4<f32>) {
    if j < params.keys {
        let at = ((place.row * params.keys + j) * params.heads + place.head) * params.value_dim;
        d_v_is(at, c, r0);
        d_v_is(at, c + 16u, r1);
        d_v_is(at, c + 32u, r2);
        d_v_is(at, c + 48u, r3);
    }
}

@compute @workgroup_size(64)
fn backward_keys(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let place = place_of(item_index(workgroup, workgroups), params.keys, max(params.dim, params.value_dim));
    if place.row >= params.rows {
        return;
    }
    let sub = lane % 4u;
    let j_a = place.first + lane / 4u;
    let j_b = j_a + 16u;
    let draws = draws_of(place.row);
    let zero = vec4<f32>(0.0);
    var d_keys = Rows(zero, zero, zero, zero, zero, zero, zero, zero);
    var d_values = Rows(zero, zero, zero, zero, zero, zero, zero, zero);
    // No query before its first key sees any of them.
    var start = 0u;
    if CAUSAL != 0u {
        start = place.first;
    }
    for (var first = start; first < params.queries; first += MET) {
        var scores = Pair(zero, zero);
        for (var column = 0u; column < params.dim; column += COLUMNS) {
            own_k(place, column, lane);
            met_q(place, first, column, lane);
            workgroupBarrier();
            scores = with_products(scores, lane, vectors_from(column, params.dim));
            workgroupBarrier();
        }
        var dp = Pair(zero, zero);
        for (var column = 0u; column < params.value_dim; column += COLUMNS) {
            own_v(place, column, lane);
            met_dy(place, first, column, lane);
            workgroupBarrier();
            dp = with_products(dp, lane, vectors_from(column, params.value_dim));
            workgroupBarrier();
        }
        let i = first + sub;
        let of_0 = statistics_of(place, i);
        let of_1 = statistics_of(place, i + 4u);
        let of_2 = statistics_of(place, i + 8u);
        let of_3 = statistics_of(place, i + 12u);
        let logs = vec4<f32>(of_0.x, of_1.x, of_2.x, of_3.x);
        let mean = vec4<f32>(of_0.y, of_1.y, of_2.y, of_3.y);
        let p_a = select(zero, exp(scores.a * params.scale - logs), are_seen_from(place.row, i, j_a));
        let p_b = select(zero, exp(scores.b * params.scale - logs), are_seen_from(place.row, i, j_b));
        let factors_a = factors_of(draws, place.head, i, j_a, 4u, 0u);
        let factors_b = factors_of(draws, place.head, i, j_b, 4u, 0u);
        var weight_a = p_a * factors_a;
        var weight_b = p_b * factors_b;
        if UNIFORM != 0u {
            let share = vec4<f32>(1.0 / f32(params.keys));
            weight_a = select(weight_a, share, logs == vec4<f32>(EMPTY));
            weight_b = select(weight_b, share, logs == vec4<f32>(EMPTY));
        }
        keep_weights(Pair(weight_a, weight_b), lane);
        if params.value_dim > COLUMNS {
            met_dy(place, first, place.column, lane);
        }
        workgroupBarrier();
        d_values = with_weighted(d_values, lane, vectors_from(place.column, params.value_dim));
        workgroupBarrier();
        let ds_a = p_a * (dp.a * factors_a - mean) * params.scale;
        let ds_b = p_b * (dp.b * factors_b - mean) * params.scale;
        keep_weights(Pair(ds_a, ds_b), lane);
        met_q(place, first, place.column, lane);
        workgroupBarrier();
        d_keys = with_weighted(d_keys, lane, vectors_from(place.column, params.dim));
        workgroupBarrier();
    }
    let c = place.column + 4u * sub;
    if UNIFORM != 0u {
        let end = min(start, params.queries);
        let share_0 = shares_before(place, end, c);
        let share_1 = shares_before(place, end, c + 16u);
        let share_2 = shares_before(place, end, c + 32u);
        let share_3 = shares_before(place, end, c + 48u);
        d_values.a0 += share_0;
        d_values.a1 += share_1;
        d_values.a2 += share_2;
        d_values.a3 += share_3;
        d_values.b0 += share_0;
        d_values.b1 += share_1;
        d_values.b2 += share_2;
        d_values.b3 += share_3;
    }
    leave_key(place, j_a, c, d_keys.a0, d_keys.a1, d_keys.a2, d_keys.a3);
    leave_key(place, j_b, c, d_keys.b0, d_keys.b1, d_keys.b2, d_keys.b3);
    leave_value(place, j_a, c, d_values.a0, d_values.a1, d_values.a2, d_values.a3);
    leave_value(place, j_b, c, d_values.b0, d_values.b1, d_values.b2, d_values.b3);
}
