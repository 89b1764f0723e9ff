// Attention from registers alone, for subgroups of eight invocations that share what they load.
//
// A subgroup has a part to itself: 32 own positions, four to a lane, with all of their numbers, of which there are 64 at most.
// It meets the other positions four at a time: each lane loads four numbers of each, and subgroupBroadcast gives them to
// all. Scores and weights of a lane's four positions are the components of a vector.
//
// It is for lavapipe, as lib/product_subgroups.wgsl is: loads, taken lane by lane, limit attention there. Subgroups must have
// eight invocations with consecutive indices. Numbers of queries and of values are multiples of four.

alias Factor = vec4<f32>;

const ATTENTION_INVOCATIONS: u32 = 64u;
// Invocations of a subgroup.
const SHARERS: u32 = 8u;
// Vectors of an own position in registers: 2, 4, 8 or 16. Those past the end of its numbers are multiplied by 0, and not stored.
override ATTENTION_VECTORS: u32 = 8u;

// Four positions' numbers of the same four columns.
struct Four {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// Half of the numbers of a lane's four positions.
struct Half {
    c0: Four,
    c1: Four,
    c2: Four,
    c3: Four,
    c4: Four,
    c5: Four,
    c6: Four,
    c7: Four,
}

// All numbers of a lane's four positions: the first 32, and those behind them, if there are more.
struct Rows {
    low: Half,
    high: Half,
}

// Four columns of each of the four positions that are met in a round; or a score or weight for each with a lane's positions.
struct Met {
    m0: vec4<f32>,
    m1: vec4<f32>,
    m2: vec4<f32>,
    m3: vec4<f32>,
}

// What a lane loads of the positions that are met: one vector of each, and, if there are more than eight, another.
struct Shared {
    low: Met,
    high: Met,
}

fn part_of(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32, positions: u32) -> Place {
    let item = item_index(workgroup, workgroups) * (ATTENTION_INVOCATIONS / SHARERS) + lane / SHARERS;
    return place_of(item, positions, COLUMNS);
}

// A lane's own positions, some of which may be past the end.
fn own_of(place: Place, lane: u32) -> vec4<u32> {
    return place.first + lane % SHARERS + vec4<u32>(0u, 8u, 16u, 24u);
}

// The numbers of a head at some positions, in vectors; past the end, of the last one.
fn vectors_at(place: Place, i: vec4<u32>, positions: u32, columns: u32) -> vec4<u32> {
    return ((place.row * positions + min(i, vec4<u32>(positions - 1u))) * params.heads + place.head) * (columns / 4u);
}

// A vector past the end of the columns is 0.
fn within(met: Met, vector: u32, columns: u32) -> Met {
    let is_in = vec4<bool>(4u * vector < columns);
    let zero = vec4<f32>(0.0);
    return Met(select(zero, met.m0, is_in), select(zero, met.m1, is_in), select(zero, met.m2, is_in), select(zero, met.m3, is_in));
}

fn q_four(at: vec4<u32>, n: u32) -> Four {
    return Four(q[at.x + n], q[at.y + n], q[at.z + n], q[at.w + n]);
}

fn k_four(at: vec4<u32>, n: u32) -> Four {
    return Four(k[at.x + n], k[at.y + n], k[at.z + n], k[at.w + n]);
}

fn v_four(at: vec4<u32>, n: u32) -> Four {
    return Four(v[at.x + n], v[at.y + n], v[at.z + n], v[at.w + n]);
}

fn dy_four(at: vec4<u32>, n: u32) -> Four {
    return Four(dy[at.x + n], dy[at.y + n], dy[at.z + n], dy[at.w + n]);
}

fn q_half(at: vec4<u32>, n: u32, last: u32) -> Half {
    return Half(
        q_four(at, min(n, last)), q_four(at, min(n + 1u, last)), q_four(at, min(n + 2u, last)),
        q_four(at, min(n + 3u, last)), q_four(at, min(n + 4u, last)), q_four(at, min(n + 5u, last)),
        q_four(at, min(n + 6u, last)), q_four(at, min(n + 7u, last)),
    );
}

fn own_q(place: Place, i: vec4<u32>) -> Rows {
    let at = vectors_at(place, i, params.queries, params.dim);
    var rows = Rows();
    rows.low = q_half(at, 0u, params.dim / 4u - 1u);
    if ATTENTION_VECTORS > 8u {
        rows.high = q_half(at, 8u, params.dim / 4u - 1u);
    }
    return rows;
}

fn k_half(at: vec4<u32>, n: u32, last: u32) -> Half {
    return Half(
        k_four(at, min(n, last)), k_four(at, min(n + 1u, last)), k_four(at, min(n + 2u, last)),
        k_four(at, min(n + 3u, last)), k_four(at, min(n + 4u, last)), k_four(at, min(n + 5u, last)),
        k_four(at, min(n + 6u, last)), k_four(at, min(n + 7u, last)),
    );
}

fn own_k(place: Place, i: vec4<u32>) -> Rows {
    let at = vectors_at(place, i, params.keys, params.dim);
    var rows = Rows();
    rows.low = k_half(at, 0u, params.dim / 4u - 1u);
    if ATTENTION_VECTORS > 8u {
        rows.high = k_half(at, 8u, params.dim / 4u - 1u);
    }
    return rows;
}

fn v_half(at: vec4<u32>, n: u32, last: u32) -> Half {
    return Half(
        v_four(at, min(n, last)), v_four(at, min(n + 1u, last)), v_four(at, min(n + 2u, last)),
        v_four(at, min(n + 3u, last)), v_four(at, min(n + 4u, last)), v_four(at, min(n + 5u, last)),
        v_four(at, min(n + 6u, last)), v_four(at, min(n + 7u, last)),
    );
}

fn own_v(place: Place, i: vec4<u32>) -> Rows {
    let at = vectors_at(place, i, params.keys, params.value_dim);
    var rows = Rows();
    rows.low = v_half(at, 0u, params.value_dim / 4u - 1u);
    if ATTENTION_VECTORS > 8u {
        rows.high = v_half(at, 8u, params.value_dim / 4u - 1u);
    }
    return rows;
}

fn dy_half(at: vec4<u32>, n: u32, last: u32) -> Half {
    return Half(
        dy_four(at, min(n, last)), dy_four(at, min(n + 1u, last)), dy_four(at, min(n + 2u, last)),
        dy_four(at, min(n + 3u, last)), dy_four(at, min(n + 4u, last)), dy_four(at, min(n + 5u, last)),
        dy_four(at, min(n + 6u, last)), dy_four(at, min(n + 7u, last)),
    );
}

fn own_dy(place: Place, i: vec4<u32>) -> Rows {
    let at = vectors_at(place, i, params.queries, params.value_dim);
    var rows = Rows();
    rows.low = dy_half(at, 0u, params.value_dim / 4u - 1u);
    if ATTENTION_VECTORS > 8u {
        rows.high = dy_half(at, 8u, params.value_dim / 4u - 1u);
    }
    return rows;
}

fn q_vector(at: vec4<u32>, n: u32) -> Met {
    let four = q_four(at, min(n, params.dim / 4u - 1u));
    return within(Met(four.a, four.b, four.c, four.d), n, params.dim);
}

fn met_q(place: Place, met: vec4<u32>, lane: u32) -> Shared {
    let at = vectors_at(place, met, params.queries, params.dim);
    var loaded = Shared();
    loaded.low = q_vector(at, lane % SHARERS);
    if ATTENTION_VECTORS > 8u {
        loaded.high = q_vector(at, lane % SHARERS + 8u);
    }
    return loaded;
}

fn k_vector(at: vec4<u32>, n: u32) -> Met {
    let four = k_four(at, min(n, params.dim / 4u - 1u));
    return within(Met(four.a, four.b, four.c, four.d), n, params.dim);
}

fn met_k(place: Place, met: vec4<u32>, lane: u32) -> Shared {
    let at = vectors_at(place, met, params.keys, params.dim);
    var loaded = Shared();
    loaded.low = k_vector(at, lane % SHARERS);
    if ATTENTION_VECTORS > 8u {
        loaded.high = k_vector(at, lane % SHARERS + 8u);
    }
    return loaded;
}

fn v_vector(at: vec4<u32>, n: u32) -> Met {
    let four = v_four(at, min(n, params.value_dim / 4u - 1u));
    return within(Met(four.a, four.b, four.c, four.d), n, params.value_dim);
}

fn met_v(place: Place, met: vec4<u32>, lane: u32) -> Shared {
    let at = vectors_at(place, met, params.keys, params.value_dim);
    var loaded = Shared();
    loaded.low = v_vector(at, lane % SHARERS);
    if ATTENTION_VECTORS > 8u {
        loaded.high = v_vector(at, lane % SHARERS + 8u);
    }
    return loaded;
}

fn dy_vector(at: vec4<u32>, n: u32) -> Met {
    let four = dy_four(at, min(n, params.value_dim / 4u - 1u));
    return within(Met(four.a, four.b, four.c, four.d), n, params.value_dim);
}

fn met_dy(place: Place, met: vec4<u32>, lane: u32) -> Shared {
    let at = vectors_at(place, met, params.queries, params.value_dim);
    var loaded = Shared();
    loaded.low = dy_vector(at, lane % SHARERS);
    if ATTENTION_VECTORS > 8u {
        loaded.high = dy_vector(at, lane % SHARERS + 8u);
    }
    return loaded;
}

fn with_product(before: vec4<f32>, own: Four, met: vec4<f32>) -> vec4<f32> {
    return before + vec4<f32>(dot(own.a, met), dot(own.b, met), dot(own.c, met), dot(own.d, met));
}

// Products of the own positions and one that is met.
fn products_with(own: Half, met: vec4<f32>) -> vec4<f32> {
    var sum = vec4<f32>(0.0);
    sum = with_product(sum, own.c0, subgroupBroadcast(met, 0u));
    sum = with_product(sum, own.c1, subgroupBroadcast(met, 1u));
    if ATTENTION_VECTORS > 2u {
        sum = with_product(sum, own.c2, subgroupBroadcast(met, 2u));
        sum = with_product(sum, own.c3, subgroupBroadcast(met, 3u));
    }
    if ATTENTION_VECTORS > 4u {
        sum = with_product(sum, own.c4, subgroupBroadcast(met, 4u));
        sum = with_product(sum, own.c5, subgroupBroadcast(met, 5u));
        sum = with_product(sum, own.c6, subgroupBroadcast(met, 6u));
        sum = with_product(sum, own.c7, subgroupBroadcast(met, 7u));
    }
    return sum;
}

// Products of the own positions and the four that are met.
fn products(own: Rows, met: Shared) -> Met {
    var sums = Met(
        products_with(own.low, met.low.m0), products_with(own.low, met.low.m1), products_with(own.low, met.low.m2),
        products_with(own.low, met.low.m3),
    );
    if ATTENTION_VECTORS > 8u {
        sums.m0 += products_with(own.high, met.high.m0);
        sums.m1 += products_with(own.high, met.high.m1);
        sums.m2 += products_with(own.high, met.high.m2);
        sums.m3 += products_with(own.high, met.high.m3);
    }
    return sums;
}

// Adds the vectors of four met positions, each by its weight for each own position.
fn with_vectors(before: Four, w: Met, m0: vec4<f32>, m1: vec4<f32>, m2: vec4<f32>, m3: vec4<f32>) -> Four {
    return Four(
        before.a + ((w.m0.x * m0 + w.m1.x * m1) + (w.m2.x * m2 + w.m3.x * m3)),
        before.b + ((w.m0.y * m0 + w.m1.y * m1) + (w.m2.y * m2 + w.m3.y * m3)),
        before.c + ((w.m0.z * m0 + w.m1.z * m1) + (w.m2.z * m2 + w.m3.z * m3)),
        before.d + ((w.m0.w * m0 + w.m1.w * m1) + (w.m2.w * m2 + w.m3.w * m3)),
    );
}

fn half_weighted(before: Half, weights: Met, met: Met) -> Half {
    var rows = before;
    rows.c0 = with_vectors(
        rows.c0, weights, subgroupBroadcast(met.m0, 0u), subgroupBroadcast(met.m1, 0u), subgroupBroadcast(met.m2, 0u),
        subgroupBroadcast(met.m3, 0u),
    );
    rows.c1 = with_vectors(
        rows.c1, weights, subgroupBroadcast(met.m0, 1u), subgroupBroadcast(met.m1, 1u), subgroupBroadcast(met.m2, 1u),
        subgroupBroadcast(met.m3, 1u),
    );
    if ATTENTION_VECTORS > 2u {
        rows.c2 = with_vectors(
            rows.c2, weights, subgroupBroadcast(met.m0, 2u), subgroupBroadcast(met.m1, 2u), subgroupBroadcast(met.m2, 2u),
            subgroupBroadcast(met.m3, 2u),
        );
        rows.c3 = with_vectors(
            rows.c3, weights, subgroupBroadcast(met.m0, 3u), subgroupBroadcast(met.m1, 3u), subgroupBroadcast(met.m2, 3u),
            subgroupBroadcast(met.m3, 3u),
        );
    }
    if ATTENTION_VECTORS > 4u {
        rows.c4 = with_vectors(
            rows.c4, weights, subgroupBroadcast(met.m0, 4u), subgroupBroadcast(met.m1, 4u), subgroupBroadcast(met.m2, 4u),
            subgroupBroadcast(met.m3, 4u),
        );
        rows.c5 = with_vectors(
            rows.c5, weights, subgroupBroadcast(met.m0, 5u), subgroupBroadcast(met.m1, 5u), subgroupBroadcast(met.m2, 5u),
            subgroupBroadcast(met.m3, 5u),
        );
        rows.c6 = with_vectors(
            rows.c6, weights, subgroupBroadcast(met.m0, 6u), subgroupBroadcast(met.m1, 6u), subgroupBroadcast(met.m2, 6u),
            subgroupBroadcast(met.m3, 6u),
        );
        rows.c7 = with_vectors(
            rows.c7, weights, subgroupBroadcast(met.m0, 7u), subgroupBroadcast(met.m1, 7u), subgroupBroadcast(met.m2, 7u),
            subgroupBroadcast(met.m3, 7u),
        );
    }
    return rows;
}

// Adds the met positions, each by its weight for each own position.
fn with_weighted(before: Rows, weights: Met, met: Shared) -> Rows {
    var rows = before;
    rows.low = half_weighted(rows.low, weights, met.low);
    if ATTENTION_VECTORS > 8u {
        rows.high = half_weighted(rows.high, weights, met.high);
    }
    return rows;
}

fn scaled_four(four: Four, by: vec4<f32>) -> Four {
    return Four(four.a * by.x, four.b * by.y, four.c * by.z, four.d * by.w);
}

fn scaled_half(rows: Half, by: vec4<f32>) -> Half {
    return Half(
        scaled_four(rows.c0, by), scaled_four(rows.c1, by), scaled_four(rows.c2, by), scaled_four(rows.c3, by),
        scaled_four(rows.c4, by), scaled_four(rows.c5, by), scaled_four(rows.c6, by), scaled_four(rows.c7, by),
    );
}

// Each own position's numbers, by a factor of its own.
fn scaled(before: Rows, by: vec4<f32>) -> Rows {
    var rows = before;
    rows.low = scaled_half(rows.low, by);
    if ATTENTION_VECTORS > 8u {
        rows.high = scaled_half(rows.high, by);
    }
    return rows;
}

// The numbers of four columns, for the loops that store: drivers take seconds to compile a store for each number.
fn four_of(all: Rows, n: u32) -> Four {
    var rows = all.low;
    if ATTENTION_VECTORS > 8u && n > 7u {
        rows = all.high;
    }
    var four: Four;
    switch n % 8u {
        case 0u: { four = rows.c0; }
        case 1u: { four = rows.c1; }
        case 2u: { four = rows.c2; }
        case 3u: { four = rows.c3; }
        case 4u: { four = rows.c4; }
        case 5u: { four = rows.c5; }
        case 6u: { four = rows.c6; }
        default: { four = rows.c7; }
    }
    return four;
}

fn store_y(at: vec4<u32>, are_in: vec4<bool>, four: Four) {
    if are_in.x { y[at.x] = four.a; }
    if are_in.y { y[at.y] = four.b; }
    if are_in.z { y[at.z] = four.c; }
    if are_in.w { y[at.w] = four.d; }
}

fn store_d_q(at: vec4<u32>, are_in: vec4<bool>, four: Four) {
    if are_in.x { d_q[at.x] = four.a; }
    if are_in.y { d_q[at.y] = four.b; }
    if are_in.z { d_q[at.z] = four.c; }
    if are_in.w { d_q[at.w] = four.d; }
}

fn store_d_k(at: vec4<u32>, are_in: vec4<bool>, four: Four) {
    if are_in.x { d_k[at.x] = four.a; }
    if are_in.y { d_k[at.y] = four.b; }
    if are_in.z { d_k[at.z] = four.c; }
    if are_in.w { d_k[at.w] = four.d; }
}

fn store_d_v(at: vec4<u32>, are_in: vec4<bool>, four: Four) {
    if are_in.x { d_v[at.x] = four.a; }
    if are_in.y { d_v[at.y] = four.b; }
    if are_in.z { d_v[at.z] = four.c; }
    if are_in.w { d_v[at.w] = four.d; }
}

// The vector n of those that the lanes have.
fn broadcast_of(vectors: array<vec4<f32>, 2>, n: u32) -> vec4<f32> {
    let four = select(vectors[0], vectors[1], n > 7u);
    var all: vec4<f32>;
    switch n % 8u {
        case 0u: { all = subgroupBroadcast(four, 0u); }
        case 1u: { all = subgroupBroadcast(four, 1u); }
        case 2u: { all = subgroupBroadcast(four, 2u); }
        case 3u: { all = subgroupBroadcast(four, 3u); }
        case 4u: { all = subgroupBroadcast(four, 4u); }
        case 5u: { all = subgroupBroadcast(four, 5u); }
        case 6u: { all = subgroupBroadcast(four, 6u); }
        default: { all = subgroupBroadcast(four, 7u); }
    }
    return all;
}

// A lane's columns of the mean of all values.
fn mean_value(place: Place, lane: u32) -> array<vec4<f32>, 2> {
    var low = vec4<f32>(0.0);
    var high = vec4<f32>(0.0);
    for (var j = 0u; j < params.keys; j += 1u) {
        let value = met_v(place, vec4<u32>(j), lane);
        low += value.low.m0;
        high += value.high.m0;
    }
    return array<vec4<f32>, 2>(low / f32(params.keys), high / f32(params.keys));
}

fn forward_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let place = part_of(workgroup, workgroups, lane, params.queries);
    if place.row >= params.rows {
        return;
    }
    let i = own_of(place, lane);
    let counts = vec4<bool>(
        query_counts(place.row, i.x), query_counts(place.row, i.y), query_counts(place.row, i.z), query_counts(place.row, i.w),
    );
    let draws = draws_of(place.row);
    let own = own_q(place, i);
    let zero = vec4<f32>(0.0);
    let low = vec4<f32>(LOW);
    var sums = Rows();
    var peak = low;
    var total = zero;
    var end = params.keys;
    if CAUSAL != 0u {
        end = min(end, place.first + OWN);
    }
    for (var first = 0u; first < end; first += 4u) {
        let j = first + vec4<u32>(0u, 1u, 2u, 3u);
        let known = known_keys(place.row, j);
        let scores = products(own, met_k(place, j, lane));
        let seen_0 = counts & vec4<bool>(known.x) & are_before(i, vec4<u32>(j.x));
        let seen_1 = counts & vec4<bool>(known.y) & are_before(i, vec4<u32>(j.y));
        let seen_2 = counts & vec4<bool>(known.z) & are_before(i, vec4<u32>(j.z));
        let seen_3 = counts & vec4<bool>(known.w) & are_before(i, vec4<u32>(j.w));
        let score_0 = select(low, scores.m0 * params.scale, seen_0);
        let score_1 = select(low, scores.m1 * params.scale, seen_1);
        let score_2 = select(low, scores.m2 * params.scale, seen_2);
        let score_3 = select(low, scores.m3 * params.scale, seen_3);
        let higher = max(peak, max(max(score_0, score_1), max(score_2, score_3)));
        let p_0 = select(zero, exp(score_0 - higher), seen_0);
        let p_1 = select(zero, exp(score_1 - higher), seen_1);
        let p_2 = select(zero, exp(score_2 - higher), seen_2);
        let p_3 = select(zero, exp(score_3 - higher), seen_3);
        let shrink = exp(peak - higher);
        peak = higher;
        total = total * shrink + ((p_0 + p_1) + (p_2 + p_3));
        let weights = Met(
            p_0 * factors_of(draws, place.head, i.x, j.x, 8u, 0u), p_1 * factors_of(draws, place.head, i.x, j.y, 8u, 0u),
            p_2 * factors_of(draws, place.head, i.x, j.z, 8u, 0u), p_3 * factors_of(draws, place.head, i.x, j.w, 8u, 0u),
        );
        sums = with_weighted(scaled(sums, shrink), weights, met_v(place, j, lane));
    }
    let is_empty = total == zero;
    let result = scaled(sums, select(1.0 / max(total, vec4<f32>(1e-30)), zero, is_empty));
    var mean = array<vec4<f32>, 2>();
    if UNIFORM != 0u {
        mean = mean_value(place, lane);
    }
    let are_in = i < vec4<u32>(params.queries);
    let at = vectors_at(place, i, params.queries, params.value_dim);
    for (var n = 0u; n < params.value_dim / 4u; n += 1u) {
        var four = four_of(result, n);
        if UNIFORM != 0u {
            let means = broadcast_of(mean, n);
            four = Four(
                select(four.a, means, is_empty.x), select(four.b, means, is_empty.y), select(four.c, means, is_empty.z),
                select(four.d, means, is_empty.w),
            );
        }
        store_y(at + n, are_in, four);
    }
    let logs = select(peak + log(max(total, vec4<f32>(1e-30))), vec4<f32>(EMPTY), is_empty);
    let query = (place.row * params.queries + i) * params.heads + place.head;
    if are_in.x { lse[query.x] = logs.x; }
    if are_in.y { lse[query.y] = logs.y; }
    if are_in.z { lse[query.z] = logs.z; }
    if are_in.w { lse[query.w] = logs.w; }
}

fn queries_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let place = part_of(workgroup, workgroups, lane, params.queries);
    if place.row >= params.rows {
        return;
    }
    let i = own_of(place, lane);
    let draws = draws_of(place.row);
    let own = own_q(place, i);
    let own_gradient = own_dy(place, i);
    let of_a = statistics_of(place, i.x);
    let of_b = statistics_of(place, i.y);
    let of_c = statistics_of(place, i.z);
    let of_d = statistics_of(place, i.w);
    let logs = vec4<f32>(of_a.x, of_b.x, of_c.x, of_d.x);
    let means = vec4<f32>(of_a.y, of_b.y, of_c.y, of_d.y);
    let zero = vec4<f32>(0.0);
    var sums = Rows();
    var end = params.keys;
    if CAUSAL != 0u {
        end = min(end, place.first + OWN);
    }
    for (var first = 0u; first < end; first += 4u) {
        let j = first + vec4<u32>(0u, 1u, 2u, 3u);
        let known = known_keys(place.row, j);
        let keys = met_k(place, j, lane);
        let scores = products(own, keys);
        let dp = products(own_gradient, met_v(place, j, lane));
        let p_0 = select(zero, exp(scores.m0 * params.scale - logs), vec4<bool>(known.x) & are_before(i, vec4<u32>(j.x)));
        let p_1 = select(zero, exp(scores.m1 * params.scale - logs), vec4<bool>(known.y) & are_before(i, vec4<u32>(j.y)));
        let p_2 = select(zero, exp(scores.m2 * params.scale - logs), vec4<bool>(known.z) & are_before(i, vec4<u32>(j.z)));
        let p_3 = select(zero, exp(scores.m3 * params.scale - logs), vec4<bool>(known.w) & are_before(i, vec4<u32>(j.w)));
        let ds = Met(
            p_0 * (dp.m0 * factors_of(draws, place.head, i.x, j.x, 8u, 0u) - means) * params.scale,
            p_1 * (dp.m1 * factors_of(draws, place.head, i.x, j.y, 8u, 0u) - means) * params.scale,
            p_2 * (dp.m2 * factors_of(draws, place.head, i.x, j.z, 8u, 0u) - means) * params.scale,
            p_3 * (dp.m3 * factors_of(draws, place.head, i.x, j.w, 8u, 0u) - means) * params.scale,
        );
        sums = with_weighted(sums, ds, keys);
    }
    let are_in = i < vec4<u32>(params.queries);
    let at = vectors_at(place, i, params.queries, params.dim);
    for (var n = 0u; n < params.dim / 4u; n += 1u) {
        store_d_q(at + n, are_in, four_of(sums, n));
    }
}

// A lane's columns of the sum of dy over the queries before `end` that see no key, by their share of each value.
fn share_before(place: Place, end: u32, lane: u32) -> array<vec4<f32>, 2> {
    var low = vec4<f32>(0.0);
    var high = vec4<f32>(0.0);
    for (var i = 0u; i < end; i += 1u) {
        let is_empty = statistics_of(place, i).x == EMPTY;
        let gradient = met_dy(place, vec4<u32>(i), lane);
        low += select(vec4<f32>(0.0), gradient.low.m0, is_empty);
        high += select(vec4<f32>(0.0), gradient.high.m0, is_empty);
    }
    return array<vec4<f32>, 2>(low / f32(params.keys), high / f32(params.keys));
}

// Weights of the values for one query: p, or, of a query that sees no key, the same for all.
fn value_weights(p: vec4<f32>, i: u32, log_sum: f32) -> vec4<f32> {
    if UNIFORM == 0u {
        return p;
    }
    return select(p, vec4<f32>(1.0 / f32(params.keys)), (log_sum == EMPTY) & (i < params.queries));
}

fn keys_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let place = part_of(workgroup, workgroups, lane, params.keys);
    if place.row >= params.rows {
        return;
    }
    let j = own_of(place, lane);
    let known = known_keys(place.row, j);
    let draws = draws_of(place.row);
    let own = own_k(place, j);
    let own_value = own_v(place, j);
    let zero = vec4<f32>(0.0);
    var d_keys = Rows();
    var d_values = Rows();
    // No query before its first key sees any of them.
    var start = 0u;
    if CAUSAL != 0u {
        start = place.first;
    }
    for (var first = start; first < params.queries; first += 4u) {
        let i = first + vec4<u32>(0u, 1u, 2u, 3u);
        let queries = met_q(place, i, lane);
        let gradients = met_dy(place, i, lane);
        let scores = products(own, queries);
        let dp = products(own_value, gradients);
        // Each lane loads those of one query.
        let of_one = statistics_of(place, first + lane % 4u);
        let logs = vec4<f32>(
            subgroupBroadcast(of_one.x, 0u), subgroupBroadcast(of_one.x, 1u), subgroupBroadcast(of_one.x, 2u),
            subgroupBroadcast(of_one.x, 3u),
        );
        let means = vec4<f32>(
            subgroupBroadcast(of_one.y, 0u), subgroupBroadcast(of_one.y, 1u), subgroupBroadcast(of_one.y, 2u),
            subgroupBroadcast(of_one.y, 3u),
        );
        let p_0 = select(zero, exp(scores.m0 * params.scale - logs.x), known & are_before(vec4<u32>(i.x), j));
        let p_1 = select(zero, exp(scores.m1 * params.scale - logs.y), known & are_before(vec4<u32>(i.y), j));
        let p_2 = select(zero, exp(scores.m2 * params.scale - logs.z), known & are_before(vec4<u32>(i.z), j));
        let p_3 = select(zero, exp(scores.m3 * params.scale - logs.w), known & are_before(vec4<u32>(i.w), j));
        let factors_0 = factors_of(draws, place.head, i.x, j.x, 0u, 8u);
        let factors_1 = factors_of(draws, place.head, i.y, j.x, 0u, 8u);
        let factors_2 = factors_of(draws, place.head, i.z, j.x, 0u, 8u);
        let factors_3 = factors_of(draws, place.head, i.w, j.x, 0u, 8u);
        let weights = Met(
            value_weights(p_0 * factors_0, i.x, logs.x), value_weights(p_1 * factors_1, i.y, logs.y),
            value_weights(p_2 * factors_2, i.z, logs.z), value_weights(p_3 * factors_3, i.w, logs.w),
        );
        d_values = with_weighted(d_values, weights, gradients);
        let ds = Met(
            p_0 * (dp.m0 * factors_0 - means.x) * params.scale, p_1 * (dp.m1 * factors_1 - means.y) * params.scale,
            p_2 * (dp.m2 * factors_2 - means.z) * params.scale, p_3 * (dp.m3 * factors_3 - means.w) * params.scale,
        );
        d_keys = with_weighted(d_keys, ds, queries);
    }
    let are_in = j < vec4<u32>(params.keys);
    let at_keys = vectors_at(place, j, params.keys, params.dim);
    for (var n = 0u; n < params.dim / 4u; n += 1u) {
        store_d_k(at_keys + n, are_in, four_of(d_keys, n));
    }
    var share = array<vec4<f32>, 2>();
    if UNIFORM != 0u {
        share = share_before(place, min(start, params.queries), lane);
    }
    let at_values = vectors_at(place, j, params.keys, params.value_dim);
    for (var n = 0u; n < params.value_dim / 4u; n += 1u) {
        var four = four_of(d_values, n);
        if UNIFORM != 0u {
            let shares = broadcast_of(share, n);
            four = Four(four.a + shares, four.b + shares, four.c + shares, four.d + shares);
        }
        store_d_v(at_values + n, are_in, four);
    }
}
