//! Our sums of gradients over processes, against MPI's own all-reduce of the same bytes.
//!
//! `cargo bench --package manyhands-mpi --bench exchange -- [PROCESSES] [TURNS] [-- OPTIONS OF MPIRUN]`, by default 2 processes and 15
//! turns. A turn starts the processes three times: for one `MPI_Allreduce` of all bytes, which the main thread calls, for ours, and for ours
//! as 16-bit floats. All take values and give sums in memory of their own. Medians and the fastest times are shown.
//! `-- --mca btl tcp,self --mca btl_tcp_if_include lo` takes TCP in place of shared memory.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]
#![allow(clippy::disallowed_methods, reason = "the bench measures by the clock of the system")]

use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::Instant;

use manyhands::GradientCompression;
use manyhands::processes::Group;
use manyhands::scheduler::{AllReduce, pieces};
use manyhands_engine::timing::median;
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};
use pollster::block_on;

/// Sizes of the gradients, in megabytes, and how often each is exchanged in a round.
const SIZES: [(usize, usize); 3] = [(1, 40), (10, 8), (50, 2)];

/// Rounds of each size in a turn.
const ROUNDS: usize = 5;

/// The ways that are compared, each the argument of its processes.
const WAYS: [&str; 3] = ["mpi", "ours", "halves"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.first().map_or("", String::as_str) {
        "mpi" => mpi_alone(),
        "ours" => ours(GradientCompression::None),
        "halves" => ours(GradientCompression::Fp16),
        _ => start(&arguments),
    }
}

/// Starts this program in several processes, in turns.
fn start(arguments: &[String]) {
    let number = |at: usize| arguments.get(at).filter(|argument| argument.as_str() != "--");
    let turns = number(1).map_or(15, |turns| turns.parse().unwrap());
    // Of each way and size.
    let mut all_ms = vec![vec![Vec::new(); SIZES.len()]; WAYS.len()];
    for _ in 0..turns {
        for (way, all_ms) in WAYS.iter().zip(&mut all_ms) {
            let output = Command::new("mpirun")
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .args(["--oversubscribe", "-n", number(0).map_or("2", String::as_str)])
                .args(arguments.iter().skip_while(|argument| argument.as_str() != "--").skip(1))
                .arg(std::env::current_exe().unwrap())
                .arg(way)
                .stderr(Stdio::inherit())
                .output()
                .unwrap();
            assert!(output.status.success());
            let lines = String::from_utf8(output.stdout).unwrap();
            for (ms, line) in all_ms.iter_mut().zip(lines.lines()) {
                ms.extend(line.split(' ').map(|ms| ms.parse::<f64>().unwrap()));
            }
        }
    }
    for (size, (megabytes, _)) in SIZES.iter().enumerate() {
        let of = |way: usize| all_ms[way][size].iter().copied();
        let fastest = |way: usize| of(way).fold(f64::INFINITY, f64::min);
        let rows = [
            ("median", [median(of(0)), median(of(1)), median(of(2))]),
            ("fastest", [fastest(0), fastest(1), fastest(2)]),
        ];
        for (what, [mpi, ours, halves]) in rows {
            println!(
                "{megabytes:>3} MB, {what:<7}: MPI_Allreduce {mpi:.3} ms, ours {ours:.3} ms ({:.2}), as 16-bit floats {halves:.3} ms ({:.2})",
                ours / mpi,
                halves / mpi
            );
        }
    }
}

/// Prints the milliseconds of an exchange of each size, of all rounds, in the first process.
fn measure(is_first: bool, mut barrier: impl FnMut(), mut exchange: impl FnMut(usize)) {
    for (size, (_, repeats)) in SIZES.into_iter().enumerate() {
        exchange(size);
        let mut round = |_| {
            barrier();
            let begin = Instant::now();
            (0..repeats).for_each(|_| exchange(size));
            (begin.elapsed().as_secs_f64() * 1e3 / repeats as f64).to_string()
        };
        let all_ms: Vec<String> = (0..ROUNDS).map(&mut round).collect();
        if is_first {
            println!("{}", all_ms.join(" "));
        }
    }
}

fn len_of(megabytes: usize) -> usize {
    megabytes * 1_000_000 / size_of::<f32>()
}

/// MPI by itself, called by the thread that began it.
fn mpi_alone() {
    let universe = mpi::initialize().unwrap();
    let world: SimpleCommunicator = universe.world();
    let mut all: Vec<_> =
        SIZES.map(|(megabytes, _)| (vec![0.0_f32; len_of(megabytes)], vec![0.0_f32; len_of(megabytes)])).into();
    let exchange = |size: usize| {
        let (values, sum) = &mut all[size];
        world.all_reduce_into(&values[..], &mut sum[..], SystemOperation::sum());
        std::mem::swap(values, sum);
    };
    measure(world.rank() == 0, || world.barrier(), exchange);
}

/// Sums as a training step takes them: while some pieces are on their way, the last are taken over.
fn ours(compression: GradientCompression) {
    let group = manyhands_mpi::world().unwrap();
    check(&group, compression);
    let mut all: Vec<Vec<Vec<f32>>> = SIZES.map(|(megabytes, _)| in_pieces(megabytes, 0.0)).into();
    let exchange = |size: usize| block_on(exchanged(&group, compression, &mut all[size]));
    measure(group.is_first(), || drop(block_on(group.all_gather(Vec::new())).unwrap()), exchange);
    block_on(group.close(Ok(()))).unwrap();
}

fn in_pieces(megabytes: usize, value: f32) -> Vec<Vec<f32>> {
    pieces(0..len_of(megabytes)).map(|piece: Range<usize>| vec![value; piece.len()]).collect()
}

fn check(group: &Group, compression: GradientCompression) {
    let mut values = in_pieces(3, 0.5);
    block_on(exchanged(group, compression, &mut values));
    let sum = 0.5 * f32::from(u16::try_from(group.size()).unwrap());
    assert!(values.concat().iter().all(|value| value.to_bits() == sum.to_bits()));
}

async fn exchanged(group: &Group, compression: GradientCompression, values: &mut [Vec<f32>]) {
    let mut all_reduce = AllReduce::new(group.clone(), compression);
    for piece in 0..values.len() {
        if all_reduce.is_full() {
            take(&mut all_reduce, values).await;
        }
        all_reduce.send(piece, std::mem::take(&mut values[piece]));
    }
    while take(&mut all_reduce, values).await {}
}

/// Takes the next sum over; false if none is on its way.
async fn take(all_reduce: &mut AllReduce<usize>, values: &mut [Vec<f32>]) -> bool {
    let Some((piece, sum)) = all_reduce.next().await else { return false };
    values[piece] = sum.unwrap();
    true
}
