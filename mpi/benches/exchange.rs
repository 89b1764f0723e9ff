//! Our sums of gradients over processes, against MPI's own all-reduce of the same bytes.
//!
//! `cargo bench --package manyhands-mpi --bench exchange -- [PROCESSES] [TURNS] [-- OPTIONS OF MPIRUN]`, by default 2 processes and 15
//! turns. Within each turn ours, ours as 16-bit floats, and one `MPI_Allreduce` of all bytes exchange the same values some times; medians
//! and the fastest turns are shown. `-- --mca btl tcp,self --mca btl_tcp_if_include lo` takes TCP in place of shared memory.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]
#![allow(clippy::disallowed_methods, reason = "the bench measures by the clock of the system")]

use std::ops::Range;
use std::process::Command;
use std::time::Instant;

use manyhands::GradientCompression;
use manyhands::internals::scheduler::{AllReduce, pieces};
use manyhands::internals::timing::median;
use manyhands::processes::{Group, Processes, Reply};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::CommunicatorCollectives;
use pollster::block_on;

mod error {
    pub use manyhands::{Error, ErrorKind, Result};
}

mod runtime {
    pub use manyhands::internals::runtime::*;
}

#[path = "../../src/processes/mpi.rs"]
mod started;

/// Sizes of the gradients, in megabytes, and how often each is exchanged in a turn.
const SIZES: [(usize, usize); 3] = [(1, 40), (10, 8), (50, 2)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let group = started::world().unwrap();
    if group.is_alone() {
        return start(&arguments);
    }
    for (megabytes, repeats) in SIZES {
        measure(&group, megabytes * 1_000_000 / size_of::<f32>(), repeats, arguments[0].parse().unwrap());
    }
    block_on(group.close(Ok(()))).unwrap();
}

/// Starts this program in several processes.
fn start(arguments: &[String]) {
    let number = |at: usize| arguments.get(at).filter(|argument| argument.as_str() != "--");
    let options = arguments.iter().skip_while(|argument| argument.as_str() != "--").skip(1);
    let status = Command::new("mpirun")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .args(["--oversubscribe", "-n", number(0).map_or("2", String::as_str)])
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .arg(number(1).map_or("15", String::as_str))
        .status()
        .unwrap();
    assert!(status.success());
}

/// Sums as a training step takes them: while some pieces are on their way, the last are taken over.
async fn ours(group: &Group, compression: GradientCompression, values: &mut [f32]) {
    let mut all_reduce = AllReduce::new(group.clone(), compression);
    for piece in pieces(0..values.len()) {
        if all_reduce.is_full() {
            take(&mut all_reduce, values).await;
        }
        all_reduce.send(piece.clone(), &values[piece]);
    }
    while take(&mut all_reduce, values).await {}
}

/// Takes the next sum over; false if none is on its way.
async fn take(all_reduce: &mut AllReduce<Range<usize>>, values: &mut [f32]) -> bool {
    let Some((piece, sum)) = all_reduce.next().await else { return false };
    let sum = sum.unwrap();
    values[piece].copy_from_slice(&sum);
    all_reduce.reuse(sum);
    true
}

fn measure(group: &Group, len: usize, repeats: usize, turns: usize) {
    // MPI's thread waits for requests meanwhile, so that no two threads call MPI at once.
    let world = SimpleCommunicator::world();
    let mut sum = vec![0.0_f32; len];
    let mut values = vec![0.5_f32; len];
    block_on(ours(group, GradientCompression::None, &mut values));
    assert!(
        values.iter().all(|value| value.to_bits() == (0.5 * f32::from(u16::try_from(group.size()).unwrap())).to_bits())
    );
    values.fill(0.0);
    let mut seconds = [const { Vec::new() }; 3];
    for _ in 0..turns {
        for (at, seconds) in seconds.iter_mut().enumerate() {
            world.barrier();
            let begin = Instant::now();
            for _ in 0..repeats {
                match at {
                    0 => world.all_reduce_into(&values[..], &mut sum[..], SystemOperation::sum()),
                    1 => block_on(ours(group, GradientCompression::None, &mut values)),
                    _ => block_on(ours(group, GradientCompression::Fp16, &mut values)),
                }
            }
            seconds.push(begin.elapsed().as_secs_f64() / repeats as f64);
        }
    }
    if group.is_first() {
        let megabytes = len * size_of::<f32>() / 1_000_000;
        let middle = seconds.each_ref().map(|seconds| median(seconds.iter().copied()) * 1e3);
        let fastest = seconds.map(|seconds| seconds.into_iter().fold(f64::INFINITY, f64::min) * 1e3);
        for (what, [mpi, ours, halves]) in [("median", middle), ("fastest", fastest)] {
            println!(
                "{megabytes:>3} MB, {what:<7}: MPI_Allreduce {mpi:.2} ms, ours {ours:.2} ms ({:.2}), as 16-bit floats {halves:.2} ms ({:.2})",
                ours / mpi,
                halves / mpi
            );
        }
    }
}
