//! An adapter that slows down threefold in mid-run and recovers: how near its share is to the ideal, on real devices.
//!
//! `cargo bench --bench slowdown -- [ADAPTERS] [STEPS]`, by default two software adapters and 40 steps before, during
//! and after. The ideal comes from elsewhere: each adapter is first timed alone at several sizes, which
//! tells the rows with which all end together. Only a quiet machine tells anything.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use manyhands::SplitMode;
use manyhands::adapters;
use manyhands_bench::rig::{BenchRig, RigAdapter, synthetic};
use manyhands_bench::workloads::{self, Workload};
use manyhands_engine::timing::median;

const SLOWER: f64 = 3.0;
/// Training steps in which a share may still move.
const SETTLING: usize = 10;

/// Rows, and the median milliseconds that they take.
type ScalingCurve = Vec<(f64, f64)>;

/// An adapter's busy times, alone, at several sizes up to the batch's.
async fn curve(member: &RigAdapter, workload: &Workload) -> ScalingCurve {
    let alone = std::slice::from_ref(member);
    let mut rig = BenchRig::open(workload, alone, SplitMode::Learned, workload.batch_size).await.unwrap();
    let mut points = ScalingCurve::new();
    let sizes = [8_u16, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256];
    for rows in sizes.into_iter().filter(|rows| u32::from(*rows) <= workload.batch_size) {
        let batch = synthetic(workload, u32::from(rows)).unwrap();
        let mut times = Vec::new();
        for _ in 0..9 {
            times.push(rig.train(&batch).await.unwrap().shards[0].timing.busy_ms());
        }
        points.push((f64::from(rows), median(times)));
    }
    points
}

/// Milliseconds of any number of rows, on the straight line between the two points around it.
fn ms_at(curve: &ScalingCurve, rows: f64) -> f64 {
    let pair = curve.windows(2).find(|pair| rows <= pair[1].0).unwrap_or(&curve[curve.len() - 2..]);
    let slope = (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
    pair[0].1 + slope * (rows - pair[0].0)
}

/// Rows of the first of two adapters with which both end together, the first being slowed down by a factor.
fn ideal(factor: f64, first: &ScalingCurve, second: &ScalingCurve, batch_rows: f64) -> f64 {
    let (mut least, mut most) = (0.0, batch_rows);
    for _ in 0..50 {
        let rows = f64::midpoint(least, most);
        let is_too_much = factor * ms_at(first, rows) > ms_at(second, batch_rows - rows);
        *(if is_too_much { &mut most } else { &mut least }) = rows;
    }
    least
}

async fn measure(workload: &Workload, members: &[RigAdapter], n_steps: usize) {
    let first = curve(&members[0], workload).await;
    let second = curve(&members[1], workload).await;
    for (member, curve) in members.iter().zip([&first, &second]) {
        println!("{}: {} alone, rows and ms: {curve:.0?}", workload.name, member.info.name);
    }
    let mut rig = BenchRig::open(workload, members, SplitMode::Learned, workload.batch_size).await.unwrap();
    let batch = synthetic(workload, workload.batch_size).unwrap();
    for (phase, factor) in [("before", 1.0), ("slowed", SLOWER), ("after", 1.0)] {
        rig.throttles.set(0, factor);
        let wanted = ideal(factor, &first, &second, f64::from(workload.batch_size));
        let mut shares = Vec::new();
        for _ in 0..n_steps {
            let report = rig.train(&batch).await.unwrap();
            shares.push(report.shards.iter().find(|shard| shard.adapter_idx == 0).map_or(0, |shard| shard.rows));
        }
        let settled = &shares[SETTLING..];
        let (least, most) = (*settled.iter().min().unwrap(), *settled.iter().max().unwrap());
        println!("  {phase}: ideal {wanted:.1} rows; from step {SETTLING} on {least} to {most}; all {shares:?}");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("software", String::as_str);
    let n_steps = arguments.get(1).map_or(40, |steps| steps.parse().unwrap());
    pollster::block_on(async {
        let chosen = adapters::choose(&adapters::list_async().await, wanted).unwrap();
        let members: Vec<RigAdapter> = chosen.into_iter().map(RigAdapter::from).collect();
        assert_eq!(members.len(), 2, "two adapters are compared");
        for name in ["small_cnn", "mlp"] {
            measure(&workloads::by_name(name).unwrap(), &members, n_steps).await;
        }
    });
}
