// Attention through workgroup memory: two tiles, of which all invocations read.
//
// A workgroup has a part to itself: 64 own positions and 64 columns of the result. It meets the other positions 64 at a time. An
// invocation computes four own positions by four met ones, then four own positions by four columns: `lane / 16` and 16, 32, 48
// behind, by `lane % 16` and 16, 32, 48 behind. So a tile holds, as one vector, the four positions (or columns) of an invocation.
//
// Both are one product: of 16 numbers of each position, or of 16 met positions.

const ATTENTION_INVOCATIONS: u32 = 256u;
// Depth of a tile, and invocations side by side.
const ACROSS: u32 = 16u;
// One vector more than there are invocations side by side, against bank conflicts.
const PITCH: u32 = 17u;
// From one of the four to the next.
const FOUR: vec4<u32> = vec4<u32>(0u, 16u, 32u, 48u);

var<workgroup> tile_own: array<vec4<f32>, 272>;
var<workgroup> tile_met: array<vec4<f32>, 272>;

// Sums of an invocation: a vector, over own positions, for each of four met positions or columns.
struct Block {
    c0: vec4<f32>,
    c1: vec4<f32>,
    c2: vec4<f32>,
    c3: vec4<f32>,
}

fn empty() -> Block {
    return Block(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0));
}

fn scaled(block: Block, factors: vec4<f32>) -> Block {
    return Block(block.c0 * factors, block.c1 * factors, block.c2 * factors, block.c3 * factors);
}

fn product(a: Block, b: Block) -> Block {
    return Block(a.c0 * b.c0, a.c1 * b.c1, a.c2 * b.c2, a.c3 * b.c3);
}

fn chosen(block: Block, n: u32) -> vec4<f32> {
    return select(select(block.c0, block.c1, n == 1u), select(block.c2, block.c3, n == 3u), n > 1u);
}

fn q_at(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(q[at.x], q[at.y], q[at.z], q[at.w]);
}

fn k_at(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(k[at.x], k[at.y], k[at.z], k[at.w]);
}

fn v_at(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(v[at.x], v[at.y], v[at.z], v[at.w]);
}

fn dy_at(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(dy[at.x], dy[at.y], dy[at.z], dy[at.w]);
}

// Four columns of a vector, 16 apart; those behind the end are the last.
fn columns_at(vector: u32, column: u32, columns: u32) -> vec4<u32> {
    return vector + min(column + FOUR, vec4<u32>(columns - 1u));
}

// Place in a tile of what an invocation brings: of a number of a position, or of a column of a position.
fn down(lane: u32) -> u32 {
    return lane % ACROSS * PITCH + lane / ACROSS;
}

fn along(lane: u32) -> u32 {
    return lane / ACROSS * PITCH + lane % ACROSS;
}

// Adds the products of both tiles. Of few met positions or columns, those that are not there are left out.
fn with_products(before: Block, lane: u32, across: u32, depth: u32) -> Block {
    var sums = before;
    let first = vec2<u32>(lane / ACROSS, lane % ACROSS);
    let end = min(depth, ACROSS) * PITCH;
    if across > 32u {
        for (var k = 0u; k < ACROSS * PITCH; k += 4u * PITCH) {
            let at = k + first;
            let a0 = tile_own[at.x];
            let b0 = tile_met[at.y];
            sums.c0 += a0 * b0.x;
            sums.c1 += a0 * b0.y;
            sums.c2 += a0 * b0.z;
            sums.c3 += a0 * b0.w;
            let a1 = tile_own[at.x + PITCH];
            let b1 = tile_met[at.y + PITCH];
            sums.c0 += a1 * b1.x;
            sums.c1 += a1 * b1.y;
            sums.c2 += a1 * b1.z;
            sums.c3 += a1 * b1.w;
            let a2 = tile_own[at.x + 2u * PITCH];
            let b2 = tile_met[at.y + 2u * PITCH];
            sums.c0 += a2 * b2.x;
            sums.c1 += a2 * b2.y;
            sums.c2 += a2 * b2.z;
            sums.c3 += a2 * b2.w;
            let a3 = tile_own[at.x + 3u * PITCH];
            let b3 = tile_met[at.y + 3u * PITCH];
            sums.c0 += a3 * b3.x;
            sums.c1 += a3 * b3.y;
            sums.c2 += a3 * b3.z;
            sums.c3 += a3 * b3.w;
        }
    } else if across > 16u {
        for (var k = 0u; k < end; k += PITCH) {
            let a = tile_own[k + first.x];
            let b = tile_met[k + first.y];
            sums.c0 += a * b.x;
            sums.c1 += a * b.y;
        }
    } else {
        for (var k = 0u; k < end; k += PITCH) {
            sums.c0 += tile_own[k + first.x] * tile_met[k + first.y].x;
        }
    }
    return sums;
}

// Leaves a vector over own positions for the other invocations of these.
fn leave(lane: u32, four: vec4<f32>) {
    workgroupBarrier();
    tile_own[along(lane)] = four;
    workgroupBarrier();
}

fn largest_left(lane: u32) -> vec4<f32> {
    var largest = vec4<f32>(LOW);
    for (var n = 0u; n < ACROSS; n += 1u) {
        largest = max(largest, tile_own[lane / ACROSS * PITCH + n]);
    }
    return largest;
}

fn total_left(lane: u32) -> vec4<f32> {
    var total = vec4<f32>(0.0);
    for (var n = 0u; n < ACROSS; n += 1u) {
        total += tile_own[lane / ACROSS * PITCH + n];
    }
    return total;
}

// Products of own queries and met keys.
fn q_by_k(own: vec4<u32>, met: vec4<u32>, lane: u32, across: u32) -> Block {
    var sums = empty();
    for (var column = 0u; column < params.dim; column += ACROSS) {
        let c = column + lane % ACROSS;
        let at = min(c, params.dim - 1u);
        workgroupBarrier();
        tile_own[down(lane)] = select(vec4<f32>(0.0), q_at(own * params.dim + at), c < params.dim);
        tile_met[down(lane)] = select(vec4<f32>(0.0), k_at(met * params.dim + at), c < params.dim);
        workgroupBarrier();
        sums = with_products(sums, lane, across, params.dim - column);
    }
    return sums;
}

// Products of own keys and met queries.
fn k_by_q(own: vec4<u32>, met: vec4<u32>, lane: u32, across: u32) -> Block {
    var sums = empty();
    for (var column = 0u; column < params.dim; column += ACROSS) {
        let c = column + lane % ACROSS;
        let at = min(c, params.dim - 1u);
        workgroupBarrier();
        tile_own[down(lane)] = select(vec4<f32>(0.0), k_at(own * params.dim + at), c < params.dim);
        tile_met[down(lane)] = select(vec4<f32>(0.0), q_at(met * params.dim + at), c < params.dim);
        workgroupBarrier();
        sums = with_products(sums, lane, across, params.dim - column);
    }
    return sums;
}

// Products of gradients of own queries and met values.
fn dy_by_v(own: vec4<u32>, met: vec4<u32>, lane: u32, across: u32) -> Block {
    var sums = empty();
    for (var column = 0u; column < params.value_dim; column += ACROSS) {
        let c = column + lane % ACROSS;
        let at = min(c, params.value_dim - 1u);
        workgroupBarrier();
        tile_own[down(lane)] = select(vec4<f32>(0.0), dy_at(own * params.value_dim + at), c < params.value_dim);
        tile_met[down(lane)] = select(vec4<f32>(0.0), v_at(met * params.value_dim + at), c < params.value_dim);
        workgroupBarrier();
        sums = with_products(sums, lane, across, params.value_dim - column);
    }
    return sums;
}

// Products of own values and gradients of met queries.
fn v_by_dy(own: vec4<u32>, met: vec4<u32>, lane: u32, across: u32) -> Block {
    var sums = empty();
    for (var column = 0u; column < params.value_dim; column += ACROSS) {
        let c = column + lane % ACROSS;
        let at = min(c, params.value_dim - 1u);
        workgroupBarrier();
        tile_own[down(lane)] = select(vec4<f32>(0.0), v_at(own * params.value_dim + at), c < params.value_dim);
        tile_met[down(lane)] = select(vec4<f32>(0.0), dy_at(met * params.value_dim + at), c < params.value_dim);
        workgroupBarrier();
        sums = with_products(sums, lane, across, params.value_dim - column);
    }
    return sums;
}

// Adds met values, by their weights: four columns of the result.
fn with_v(before: Block, weights: Block, place: Place, first: u32, end: u32, lane: u32) -> Block {
    var sums = before;
    for (var n = 0u; n < 4u && first + n * ACROSS < end; n += 1u) {
        let met = first + n * ACROSS;
        let vector = keys_at(place, vec4<u32>(met + lane / ACROSS)).x * params.value_dim;
        workgroupBarrier();
        tile_own[down(lane)] = chosen(weights, n);
        tile_met[along(lane)] = v_at(columns_at(vector, place.column + lane % ACROSS, params.value_dim));
        workgroupBarrier();
        sums = with_products(sums, lane, params.value_dim - min(place.column, params.value_dim), end - met);
    }
    return sums;
}

// Adds met keys, by their weights: four columns of the result.
fn with_k(before: Block, weights: Block, place: Place, first: u32, end: u32, lane: u32) -> Block {
    var sums = before;
    for (var n = 0u; n < 4u && first + n * ACROSS < end; n += 1u) {
        let met = first + n * ACROSS;
        let vector = keys_at(place, vec4<u32>(met + lane / ACROSS)).x * params.dim;
        workgroupBarrier();
        tile_own[down(lane)] = chosen(weights, n);
        tile_met[along(lane)] = k_at(columns_at(vector, place.column + lane % ACROSS, params.dim));
        workgroupBarrier();
        sums = with_products(sums, lane, params.dim - min(place.column, params.dim), end - met);
    }
    return sums;
}

// Adds met queries, by their weights: four columns of the result.
fn with_q(before: Block, weights: Block, place: Place, first: u32, end: u32, lane: u32) -> Block {
    var sums = before;
    for (var n = 0u; n < 4u && first + n * ACROSS < end; n += 1u) {
        let met = first + n * ACROSS;
        let vector = queries_at(place, vec4<u32>(met + lane / ACROSS)).x * params.dim;
        workgroupBarrier();
        tile_own[down(lane)] = chosen(weights, n);
        tile_met[along(lane)] = q_at(columns_at(vector, place.column + lane % ACROSS, params.dim));
        workgroupBarrier();
        sums = with_products(sums, lane, params.dim - min(place.column, params.dim), end - met);
    }
    return sums;
}

// Adds met gradients, by their weights: four columns of the result.
fn with_dy(before: Block, weights: Block, place: Place, first: u32, end: u32, lane: u32) -> Block {
    var sums = before;
    for (var n = 0u; n < 4u && first + n * ACROSS < end; n += 1u) {
        let met = first + n * ACROSS;
        let vector = queries_at(place, vec4<u32>(met + lane / ACROSS)).x * params.value_dim;
        workgroupBarrier();
        tile_own[down(lane)] = chosen(weights, n);
        tile_met[along(lane)] = dy_at(columns_at(vector, place.column + lane % ACROSS, params.value_dim));
        workgroupBarrier();
        sums = with_products(sums, lane, params.value_dim - min(place.column, params.value_dim), end - met);
    }
    return sums;
}

// A place before which no own query sees a key.
fn start_of_keys(place: Place) -> u32 {
    if WINDOW == 0u {
        return 0u;
    }
    return (place.first - min(place.first, WINDOW)) / OWN * OWN;
}

// The end of the keys that some own query sees.
fn end_of_keys(place: Place) -> u32 {
    return select(params.keys, min(params.keys, place.first + OWN), CAUSAL != 0u);
}

fn mean_value(place: Place, c: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < params.keys; j += 1u) {
        sum += v[keys_at(place, vec4<u32>(j)).x * params.value_dim + c];
    }
    return sum / f32(params.keys);
}

fn forward_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let place = place_of(item_index(workgroup, workgroups), params.queries, params.heads, params.value_dim);
    if place.row >= params.rows {
        return;
    }
    let i = place.first + lane / ACROSS + FOUR;
    let own = queries_at(place, i);
    let counted = counted_queries(place.row, i);
    let draws = draws_of(place.row);
    let end = end_of_keys(place);
    let low = vec4<f32>(LOW);
    let zero = vec4<f32>(0.0);
    var sums = empty();
    var peak = low;
    var total = zero;
    for (var first = start_of_keys(place); first < end; first += OWN) {
        let met = keys_at(place, first + lane / ACROSS + FOUR);
        var p = scaled(q_by_k(own, met, lane, end - first), vec4<f32>(params.scale));
        let j = first + lane % ACROSS + FOUR;
        let known = known_keys(place.row, j);
        p.c0 = select(low, p.c0, counted & may_see(place.row, i, j.xxxx) & vec4<bool>(known.x));
        p.c1 = select(low, p.c1, counted & may_see(place.row, i, j.yyyy) & vec4<bool>(known.y));
        p.c2 = select(low, p.c2, counted & may_see(place.row, i, j.zzzz) & vec4<bool>(known.z));
        p.c3 = select(low, p.c3, counted & may_see(place.row, i, j.wwww) & vec4<bool>(known.w));
        leave(lane, max(max(p.c0, p.c1), max(p.c2, p.c3)));
        let before = peak;
        peak = max(peak, largest_left(lane));
        p.c0 = select(exp(p.c0 - peak), zero, p.c0 == low);
        p.c1 = select(exp(p.c1 - peak), zero, p.c1 == low);
        p.c2 = select(exp(p.c2 - peak), zero, p.c2 == low);
        p.c3 = select(exp(p.c3 - peak), zero, p.c3 == low);
        let shrink = exp(before - peak);
        total = total * shrink + ((p.c0 + p.c1) + (p.c2 + p.c3));
        p.c0 *= factors_of(draws, place.head, i, j.xxxx);
        p.c1 *= factors_of(draws, place.head, i, j.yyyy);
        p.c2 *= factors_of(draws, place.head, i, j.zzzz);
        p.c3 *= factors_of(draws, place.head, i, j.wwww);
        sums = with_v(scaled(sums, shrink), p, place, first, end, lane);
    }
    leave(lane, total);
    total = total_left(lane);
    store_y(place, i, scaled(sums, 1.0 / max(total, vec4<f32>(1e-30))), total == zero, lane);
    if place.column == 0u && lane % ACROSS == 0u {
        store_lse(own, i, select(peak + log(max(total, vec4<f32>(1e-30))), vec4<f32>(EMPTY), total == zero));
    }
}

fn store_lse(at: vec4<u32>, i: vec4<u32>, logs: vec4<f32>) {
    for (var n = 0u; n < 4u; n += 1u) {
        if i[n] < params.queries {
            lse[at[n]] = logs[n];
        }
    }
}

// Writes an invocation's results; those of empty queries are means of all values, or 0.
fn store_y(place: Place, i: vec4<u32>, results: Block, are_empty: vec4<bool>, lane: u32) {
    let at = queries_at(place, i) * params.value_dim;
    for (var n = 0u; n < 4u; n += 1u) {
        let c = place.column + lane % ACROSS + n * ACROSS;
        if c >= params.value_dim {
            return;
        }
        var mean = 0.0;
        if UNIFORM != 0u && any(are_empty) {
            mean = mean_value(place, c);
        }
        let four = select(chosen(results, n), vec4<f32>(mean), are_empty);
        for (var m = 0u; m < 4u; m += 1u) {
            if i[m] < params.queries {
                y[at[m] + c] = four[m];
            }
        }
    }
}

// Gradients of four scores, from probabilities and the gradients of these.
fn slopes(p: vec4<f32>, dp: vec4<f32>, mean: vec4<f32>) -> vec4<f32> {
    return p * (dp - mean) * params.scale;
}

// Probabilities of four scores.
fn shares(score: vec4<f32>, log: vec4<f32>, seen: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(0.0), exp(score * params.scale - log), seen);
}

fn queries_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let place = place_of(item_index(workgroup, workgroups), params.queries, params.heads, params.dim);
    if place.row >= params.rows {
        return;
    }
    let i = place.first + lane / ACROSS + FOUR;
    let own = queries_at(place, i);
    let draws = draws_of(place.row);
    let end = end_of_keys(place);
    let its = statistics_of(own, i);
    var sums = empty();
    for (var first = start_of_keys(place); first < end; first += OWN) {
        let met = keys_at(place, first + lane / ACROSS + FOUR);
        let dp = dy_by_v(own, met, lane, end - first);
        let scores = q_by_k(own, met, lane, end - first);
        let j = first + lane % ACROSS + FOUR;
        let known = known_keys(place.row, j);
        let p0 = shares(scores.c0, its.logs, may_see(place.row, i, j.xxxx) & vec4<bool>(known.x));
        let p1 = shares(scores.c1, its.logs, may_see(place.row, i, j.yyyy) & vec4<bool>(known.y));
        let p2 = shares(scores.c2, its.logs, may_see(place.row, i, j.zzzz) & vec4<bool>(known.z));
        let p3 = shares(scores.c3, its.logs, may_see(place.row, i, j.wwww) & vec4<bool>(known.w));
        let ds = Block(
            slopes(p0, dp.c0 * factors_of(draws, place.head, i, j.xxxx), its.means),
            slopes(p1, dp.c1 * factors_of(draws, place.head, i, j.yyyy), its.means),
            slopes(p2, dp.c2 * factors_of(draws, place.head, i, j.zzzz), its.means),
            slopes(p3, dp.c3 * factors_of(draws, place.head, i, j.wwww), its.means),
        );
        sums = with_k(sums, ds, place, first, end, lane);
    }
    for (var n = 0u; n < 4u; n += 1u) {
        let c = place.column + lane % ACROSS + n * ACROSS;
        let four = chosen(sums, n);
        for (var m = 0u; m < 4u; m += 1u) {
            if c < params.dim && i[m] < params.queries {
                d_q[own[m] * params.dim + c] = four[m];
            }
        }
    }
}

// Weight of a query's gradient in those of four values: of a query that sees no key, if there is one, all values have a share.
fn weights_of(p: vec4<f32>, factors: vec4<f32>, log: f32, is_there: bool) -> vec4<f32> {
    if UNIFORM == 0u {
        return p * factors;
    }
    return select(p * factors, vec4<f32>(1.0 / f32(params.keys)), vec4<bool>(is_there && log == EMPTY));
}

// Sum of dy over the queries of a head before `end` that see no key, by their share of each value.
fn share_before(place: Place, end: u32, c: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < end; i += 1u) {
        let query = queries_at(place, vec4<u32>(i)).x;
        if statistics[2u * query] == EMPTY {
            sum += dy[query * params.value_dim + c];
        }
    }
    return sum / f32(params.keys);
}

// Of four keys and a query that they meet: factors of dy for d_v, and of q for d_k.
struct Met {
    weights: vec4<f32>,
    slopes: vec4<f32>,
}

fn met_query(
    row: u32,
    i: u32,
    score: vec4<f32>,
    dp: vec4<f32>,
    log: f32,
    mean: f32,
    head: u32,
    j: vec4<u32>,
    known: vec4<bool>,
    draws: vec3<u32>,
) -> Met {
    let p = shares(score, vec4<f32>(log), may_see(row, vec4<u32>(i), j) & known);
    let factors = factors_of(draws, head, vec4<u32>(i), j);
    return Met(weights_of(p, factors, log, i < params.queries), slopes(p, dp * factors, vec4<f32>(mean)));
}

fn keys_part(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) {
    let columns = max(params.dim, params.value_dim);
    var place = place_of(item_index(workgroup, workgroups), params.keys, params.key_heads, columns);
    if place.row >= params.rows {
        return;
    }
    let j = place.first + lane / ACROSS + FOUR;
    let are_there = j < vec4<u32>(params.keys);
    let own = keys_at(place, j);
    let draws = draws_of(place.row);
    // No query before its first key sees any of them.
    let start = select(0u, min(place.first, params.queries), CAUSAL != 0u);
    var end = params.queries;
    if WINDOW != 0u {
        end = min(end, place.first + OWN + WINDOW);
    }
    let n_heads = params.heads / params.key_heads;
    var d_keys = empty();
    var d_values = empty();
    for (var h = 0u; h < n_heads; h += 1u) {
        place.head = place.key_head * n_heads + h;
        for (var first = start; first < end; first += OWN) {
            let met = queries_at(place, first + lane / ACROSS + FOUR);
            let scores = k_by_q(own, met, lane, params.queries - first);
            let dp = v_by_dy(own, met, lane, params.queries - first);
            let i = first + lane % ACROSS + FOUR;
            let its = statistics_of(queries_at(place, i), i);
            // Intel's compilers have no register to spare: the mask is read again for each 64 queries, and one query is computed
            // after the other. Keys behind the end store nothing.
            var known = are_there;
            if KEY_MASKED != 0u {
                known = counted_keys(place.row, j);
            }
            let x = met_query(place.row, i.x, scores.c0, dp.c0, its.logs.x, its.means.x, place.head, j, known, draws);
            let y = met_query(place.row, i.y, scores.c1, dp.c1, its.logs.y, its.means.y, place.head, j, known, draws);
            let z = met_query(place.row, i.z, scores.c2, dp.c2, its.logs.z, its.means.z, place.head, j, known, draws);
            let w = met_query(place.row, i.w, scores.c3, dp.c3, its.logs.w, its.means.w, place.head, j, known, draws);
            let weights = Block(x.weights, y.weights, z.weights, w.weights);
            let ds = Block(x.slopes, y.slopes, z.slopes, w.slopes);
            d_values = with_dy(d_values, weights, place, first, params.queries, lane);
            d_keys = with_q(d_keys, ds, place, first, params.queries, lane);
        }
    }
    for (var n = 0u; n < 4u; n += 1u) {
        let c = place.column + lane % ACROSS + n * ACROSS;
        let of_key = chosen(d_keys, n);
        for (var m = 0u; m < 4u; m += 1u) {
            if c < params.dim && j[m] < params.keys {
                d_k[own[m] * params.dim + c] = of_key[m];
            }
        }
        var share = 0.0;
        if UNIFORM != 0u && c < params.value_dim {
            for (var h = 0u; h < n_heads; h += 1u) {
                place.head = place.key_head * n_heads + h;
                share += share_before(place, start, c);
            }
        }
        let of_value = chosen(d_values, n) + share;
        for (var m = 0u; m < 4u; m += 1u) {
            if c < params.value_dim && j[m] < params.keys {
                d_v[own[m] * params.value_dim + c] = of_value[m];
            }
        }
    }
}
