// Attention through workgroup memory: tiles of queries, keys and values that all lanes read.
//
// A workgroup has a part to itself: 32 own positions and 64 columns of the result. It meets the other positions 16 at a time. A
// lane computes two own positions by four met ones, and two own positions by 16 columns.

const ATTENTION_INVOCATIONS: u32 = 64u;
// Positions of a tile that is met.
const MET: u32 = 16u;
// Vectors of a tile's row; from row to row of a tile there is one more, against bank conflicts.
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

// Vectors of a tile that begins at a column and has numbers in them.
fn vectors_from(column: u32, columns: u32) -> u32 {
    return (min(columns - min(column, columns), COLUMNS) + 3u) / 4u;
}

// The logarithm of the vectors of a row that are loaded: as many as are read, 4, 8 or 16.
fn shift_of(column: u32, columns: u32) -> u32 {
    let n_vectors = vectors_from(column, columns);
    return select(select(2u, 3u, n_vectors > 4u), 4u, n_vectors > 8u);
}

// Where four numbers of a position stand, and which of them there are. Those that there are not stand at one that is there.
struct Four {
    at: vec4<u32>,
    is_in: vec4<bool>,
}

fn four_at(place: Place, i: u32, positions: u32, c: u32, columns: u32) -> Four {
    let is_in = (i < positions) & (c < columns);
    let at = select(0u, ((place.row * positions + i) * params.heads + place.head) * columns + c, is_in);
    let n = select(1u, columns - c, is_in);
    let lanes = vec4<u32>(0u, 1u, 2u, 3u);
    return Four(vec4<u32>(at) + min(lanes, vec4<u32>(n - 1u)), vec4<bool>(is_in) & (vec4<u32>(n) > lanes));
}

fn q_at(place: Place, i: u32, c: u32) -> vec4<f32> {
    let four = four_at(place, i, params.queries, c, params.dim);
    return select(vec4<f32>(0.0), vec4<f32>(q[four.at.x], q[four.at.y], q[four.at.z], q[four.at.w]), four.is_in);
}

fn k_at(place: Place, j: u32, c: u32) -> vec4<f32> {
    let four = four_at(place, j, params.keys, c, params.dim);
    return select(vec4<f32>(0.0), vec4<f32>(k[four.at.x], k[four.at.y], k[four.at.z], k[four.at.w]), four.is_in);
}

fn v_at(place: Place, j: u32, c: u32) -> vec4<f32> {
    let four = four_at(place, j, params.keys, c, params.value_dim);
    return select(vec4<f32>(0.0), vec4<f32>(v[four.at.x], v[four.at.y], v[four.at.z], v[four.at.w]), four.is_in);
}

fn dy_at(place: Place, i: u32, c: u32) -> vec4<f32> {
    let four = four_at(place, i, params.queries, c, params.value_dim);
    return select(vec4<f32>(0.0), vec4<f32>(dy[four.at.x], dy[four.at.y], dy[four.at.z], dy[four.at.w]), four.is_in);
}

fn own_q(place: Place, column: u32, lane: u32) {
    let shift = shift_of(column, params.dim);
    for (var n = lane; n < OWN << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        own[at.x * PITCH + at.y] = q_at(place, place.first + at.x, column + 4u * at.y);
    }
}

fn own_k(place: Place, column: u32, lane: u32) {
    let shift = shift_of(column, params.dim);
    for (var n = lane; n < OWN << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        own[at.x * PITCH + at.y] = k_at(place, place.first + at.x, column + 4u * at.y);
    }
}

fn own_v(place: Place, column: u32, lane: u32) {
    let shift = shift_of(column, params.value_dim);
    for (var n = lane; n < OWN << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        own[at.x * PITCH + at.y] = v_at(place, place.first + at.x, column + 4u * at.y);
    }
}

fn own_dy(place: Place, column: u32, lane: u32) {
    let shift = shift_of(column, params.value_dim);
    for (var n = lane; n < OWN << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        own[at.x * PITCH + at.y] = dy_at(place, place.first + at.x, column + 4u * at.y);
    }
}

fn met_q(place: Place, first: u32, column: u32, lane: u32) {
    let shift = shift_of(column, params.dim);
    for (var n = lane; n < MET << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        met[at.x * PITCH + at.y] = q_at(place, first + at.x, column + 4u * at.y);
    }
}

fn met_k(place: Place, first: u32, column: u32, lane: u32) {
    let shift = shift_of(column, params.dim);
    for (var n = lane; n < MET << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        met[at.x * PITCH + at.y] = k_at(place, first + at.x, column + 4u * at.y);
    }
}

fn met_v(place: Place, first: u32, column: u32, lane: u32) {
    let shift = shift_of(column, params.value_dim);
    for (var n = lane; n < MET << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        met[at.x * PITCH + at.y] = v_at(place, first + at.x, column + 4u * at.y);
    }
}

fn met_dy(place: Place, first: u32, column: u32, lane: u32) {
    let shift = shift_of(column, params.value_dim);
    for (var n = lane; n < MET << shift; n += 64u) {
        let at = vec2<u32>(n >> shift, n & ((1u << shift) - 1u));
        met[at.x * PITCH + at.y] = dy_at(place, first + at.x, column + 4u * at.y);
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

// Leaves sums of both own positions in the tile of own rows.
fn keep_rows(rows: Rows, lane: u32) {
    let a = lane / 4u * PITCH + lane % 4u;
    let b = a + 16u * PITCH;
    own[a] = rows.a0;
    own[a + 4u] = rows.a1;
    own[a + 8u] = rows.a2;
    own[a + 12u] = rows.a3;
    own[b] = rows.b0;
    own[b + 4u] = rows.b1;
    own[b + 8u] = rows.b2;
    own[b + 12u] = rows.b3;
}

// A lane's column of an own row.
fn kept_number(r: u32, lane: u32) -> f32 {
    return own[r * PITCH + lane / 4u][lane % 4u];
}

fn mean_value(place: Place, c: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < params.keys; j += 1u) {
        sum += v[((place.row * params.keys + j) * params.heads + place.head) * params.value_dim + c];
    }
    return sum / f32(params.keys);
}

fn forward_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
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
        let keys = vec4<u32>(j, j + 4u, j + 8u, j + 12u);
        let known = known_keys(place.row, keys);
        let seen_a = known & counts_a & are_before(vec4<u32>(i_a), keys);
        let seen_b = known & counts_b & are_before(vec4<u32>(i_b), keys);
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
    workgroupBarrier();
    let total_a = total(totals.a);
    let total_b = total(totals.b);
    keep_rows(rows, lane);
    if sub == 0u {
        parts[mine] = total_a;
        parts[mine + 16u] = total_b;
        let query = (place.row * params.queries + i_a) * params.heads + place.head;
        if place.column == 0u && i_a < params.queries {
            lse[query] = select(peak_a + log(max(total_a, 1e-30)), EMPTY, total_a == 0.0);
        }
        if place.column == 0u && i_b < params.queries {
            lse[query + 16u * params.heads] = select(peak_b + log(max(total_b, 1e-30)), EMPTY, total_b == 0.0);
        }
    }
    workgroupBarrier();
    let c = place.column + lane;
    let n_rows = select(0u, min(OWN, params.queries - place.first), c < params.value_dim);
    for (var r = 0u; r < n_rows; r += 1u) {
        var value = kept_number(r, lane) / max(parts[r], 1e-30);
        if parts[r] == 0.0 {
            value = 0.0;
            if UNIFORM != 0u {
                value = mean_value(place, c);
            }
        }
        y[((place.row * params.queries + place.first + r) * params.heads + place.head) * params.value_dim + c] = value;
    }
}

fn queries_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
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
        let keys = vec4<u32>(j, j + 4u, j + 8u, j + 12u);
        let known = known_keys(place.row, keys);
        let seen_a = known & are_before(vec4<u32>(i_a), keys);
        let seen_b = known & are_before(vec4<u32>(i_b), keys);
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
    keep_rows(rows, lane);
    workgroupBarrier();
    let c = place.column + lane;
    let n_rows = select(0u, min(OWN, params.queries - place.first), c < params.dim);
    for (var r = 0u; r < n_rows; r += 1u) {
        d_q[((place.row * params.queries + place.first + r) * params.heads + place.head) * params.dim + c] = kept_number(r, lane);
    }
}

// Sum of dy over the queries before `end` that see no key, by their share of each value.
fn share_before(place: Place, end: u32, c: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < end; i += 1u) {
        let query = (place.row * params.queries + i) * params.heads + place.head;
        if statistics[2u * query] == EMPTY {
            sum += dy[query * params.value_dim + c];
        }
    }
    return sum / f32(params.keys);
}

fn keys_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
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
    let known = known_keys(place.row, vec4<u32>(j_a, j_b, j_a, j_b));
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
        let queries = vec4<u32>(i, i + 4u, i + 8u, i + 12u);
        let seen_a = are_before(queries, vec4<u32>(j_a)) & vec4<bool>(known.x);
        let seen_b = are_before(queries, vec4<u32>(j_b)) & vec4<bool>(known.y);
        let p_a = select(zero, exp(scores.a * params.scale - logs), seen_a);
        let p_b = select(zero, exp(scores.b * params.scale - logs), seen_b);
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
    keep_rows(d_keys, lane);
    workgroupBarrier();
    let c = place.column + lane;
    let n_rows = min(OWN, params.keys - place.first);
    let n_keys = select(0u, n_rows, c < params.dim);
    for (var r = 0u; r < n_keys; r += 1u) {
        d_k[((place.row * params.keys + place.first + r) * params.heads + place.head) * params.dim + c] = kept_number(r, lane);
    }
    workgroupBarrier();
    keep_rows(d_values, lane);
    workgroupBarrier();
    let n_values = select(0u, n_rows, c < params.value_dim);
    var share = 0.0;
    if UNIFORM != 0u && n_values > 0u {
        share = share_before(place, min(start, params.queries), c);
    }
    for (var r = 0u; r < n_values; r += 1u) {
        let at = ((place.row * params.keys + place.first + r) * params.heads + place.head) * params.value_dim + c;
        d_v[at] = kept_number(r, lane) + share;
    }
}
