// Attention of queries to keys, part by part: no matrix of queries by keys is ever in memory.
//
//     p[i, j] = exp(scale q[i] · k[j] - lse[i]) where j is seen from i, else 0;  lse[i] = log sum over j of exp(scale q[i] · k[j])
//     y[i]    = sum over j of f[i, j] p[i, j] v[j],  f[i, j] = u >= rate ? 1 / (1 - rate) : 0
//     d_v[j]  = sum over i of f p dy[i];  ds[i, j] = scale p (f dy[i] · v[j] - dy[i] · y[i])
//     d_q[i]  = sum over j of ds k[j];  d_k[j] = sum over i of ds q[i]
//
// Where no key is seen from i, p is 0, or, if UNIFORM, 1 / keys for all keys; lse is EMPTY there. If DOCUMENTS, key_mask has the number of
// each position's document, and a query sees the keys of its own alone. If WINDOW, it sees no key that is as far before it or farther.
//
// Source    Vaswani et al. 2017, arXiv:1706.03762; Dao 2023, arXiv:2307.08691, for the order of the sums. u is lib/random's
//           number of (seed, step, node, row of the whole batch, (head queries + i) keys + j).
// Shapes    q, d_q [rows, queries, heads, dim]; k, d_k [rows, keys, key_heads, dim]; v, d_v [rows, keys, key_heads, value_dim];
//           y, dy [rows, queries, heads, value_dim]; query_mask [rows, queries]; key_mask [rows, keys]; lse [rows, queries,
//           heads]; statistics [rows, queries, heads, 2]: lse and dy · y. Head h reads head h / (heads / key_heads) of keys.
// Grid      a workgroup for each row, head, 64 queries and 64 columns of the result; backward_keys: for each row, head of keys,
//           64 keys and 64 columns; backward_sums: an invocation for each row, query and head.
// Accuracy  within 2e-5 of the twin, relative to 1 + |y|, up to 257 keys.
// Twin      src/kernels/attention/twins.rs
// Uses      lib/attention.wgsl, lib/grid.wgsl, lib/random.wgsl

struct Params {
    rows: u32,
    heads: u32,
    key_heads: u32,
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
// Has key_mask numbers of documents? There are as many queries as keys, then.
override DOCUMENTS: u32 = 0u;
// Keys that a query sees, its own position and those before it; 0 for all. CAUSAL, and not UNIFORM, then.
override WINDOW: u32 = 0u;
// Is a query that sees no key given the mean of all values? Else 0.
override UNIFORM: u32 = 0u;
override DROPS: u32 = 0u;

const LOW: f32 = -3e38;
const EMPTY: f32 = 3e38;
// Positions and columns of a part.
const OWN: u32 = 64u;
const COLUMNS: u32 = 64u;

// One part.
struct Place {
    row: u32,
    head: u32,
    key_head: u32,
    first: u32,
    column: u32,
}

// The part of an item, of so many heads: those of queries, or those of keys.
fn place_of(item: u32, positions: u32, heads: u32, columns: u32) -> Place {
    let tiles = (positions + OWN - 1u) / OWN;
    let n_parts = (columns + COLUMNS - 1u) / COLUMNS;
    let of_row = item / (tiles * n_parts);
    let head = of_row % heads;
    let key_head = head / (heads / params.key_heads);
    return Place(of_row / heads, head, key_head, item / n_parts % tiles * OWN, item % n_parts * COLUMNS);
}

// Numbers of the vectors of queries and keys; those behind the end are the last.
fn queries_at(place: Place, i: vec4<u32>) -> vec4<u32> {
    return (place.row * params.queries + min(i, vec4<u32>(params.queries - 1u))) * params.heads + place.head;
}

fn keys_at(place: Place, j: vec4<u32>) -> vec4<u32> {
    return (place.row * params.keys + min(j, vec4<u32>(params.keys - 1u))) * params.key_heads + place.key_head;
}

// What the mask has of four positions; of those behind the end, what it has of the last.
fn mask_at(row: u32, j: vec4<u32>) -> vec4<f32> {
    let at = row * params.keys + min(j, vec4<u32>(params.keys - 1u));
    return vec4<f32>(key_mask[at.x], key_mask[at.y], key_mask[at.z], key_mask[at.w]);
}

// Of four keys, those that the mask counts.
fn counted_keys(row: u32, j: vec4<u32>) -> vec4<bool> {
    return mask_at(row, j) >= vec4<f32>(0.5);
}

// Of four keys, those that are there and count.
fn known_keys(row: u32, j: vec4<u32>) -> vec4<bool> {
    let are_there = j < vec4<u32>(params.keys);
    if KEY_MASKED == 0u {
        return are_there;
    }
    return are_there & counted_keys(row, j);
}

// Whether queries may see keys: those that are not behind them, not too far before them, and in their document, where that is asked for.
fn may_see(row: u32, i: vec4<u32>, j: vec4<u32>) -> vec4<bool> {
    var may = (j <= i) | vec4<bool>(CAUSAL == 0u);
    if WINDOW != 0u {
        may = may & (i < j + WINDOW);
    }
    if DOCUMENTS != 0u {
        may = may & (mask_at(row, i) == mask_at(row, j));
    }
    return may;
}

// Of four queries, those that are there and count.
fn counted_queries(row: u32, i: vec4<u32>) -> vec4<bool> {
    let are_there = i < vec4<u32>(params.queries);
    if QUERY_MASKED == 0u {
        return are_there;
    }
    let at = row * params.queries + min(i, vec4<u32>(params.queries - 1u));
    let mask = vec4<f32>(query_mask[at.x], query_mask[at.y], query_mask[at.z], query_mask[at.w]);
    return are_there & (mask >= vec4<f32>(0.5));
}

// Key of the random numbers of a row.
fn draws_of(row: u32) -> vec3<u32> {
    if DROPS == 0u {
        return vec3<u32>(0u);
    }
    return random_row(params.seed, params.step, params.node, params.first_row + row);
}

// Factors of the probabilities of four pairs: 0 of those that are dropped.
fn factors_of(draws: vec3<u32>, head: u32, i: vec4<u32>, j: vec4<u32>) -> vec4<f32> {
    if DROPS == 0u {
        return vec4<f32>(1.0);
    }
    let pairs = (head * params.queries + i) * params.keys + j;
    var units = vec4<f32>(0.0);
    for (var n = 0u; n < 4u; n += 1u) {
        units = select(units, vec4<f32>(random_unit(draws, pairs[n])), vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(n));
    }
    return select(vec4<f32>(0.0), vec4<f32>(1.0 / max(1.0 - params.rate, 1e-7)), units >= vec4<f32>(params.rate));
}

// Logarithms of the sums of four queries, and dy · y; nothing where there is no query.
struct Statistics {
    logs: vec4<f32>,
    means: vec4<f32>,
}

fn statistics_of(at: vec4<u32>, i: vec4<u32>) -> Statistics {
    let logs = vec4<f32>(statistics[2u * at.x], statistics[2u * at.y], statistics[2u * at.z], statistics[2u * at.w]);
    let behind = 2u * at + 1u;
    let means = vec4<f32>(statistics[behind.x], statistics[behind.y], statistics[behind.z], statistics[behind.w]);
    return Statistics(select(vec4<f32>(EMPTY), logs, i < vec4<u32>(params.queries)), means);
}

@compute @workgroup_size(ATTENTION_INVOCATIONS)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    forward_part(workgroup, workgroups, lane);
}

@compute @workgroup_size(ATTENTION_INVOCATIONS)
fn backward_sums(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let query = element_index(workgroup, workgroups, lane, ATTENTION_INVOCATIONS);
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

@compute @workgroup_size(ATTENTION_INVOCATIONS)
fn backward_queries(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    queries_part(workgroup, workgroups, lane);
}

@compute @workgroup_size(ATTENTION_INVOCATIONS)
fn backward_keys(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    keys_part(workgroup, workgroups, lane);
}
