//! Training steps of two machines over a limited network, beside what `simulate` predicts.
//!
//! `cargo bench --package manyhands-mpi --bench network -- [OPTIONS OF MPIRUN]`, on Linux, as root: a machine is a network namespace with a
//! process of its own on a core of its own, the network a pair of virtual cards, which `tc` limits. Messages go by TCP alone; by default
//! with `--mca btl_tcp_eager_limit 1048576`. Two processes train each model on the CPU, in turns without a limit, which tells their speeds,
//! and with it. The prediction gets those speeds, the time of the shortest message, and 94 % of the limit, as users are told to
//! give it. Only a quiet machine tells anything.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]
#![allow(clippy::disallowed_methods, reason = "the bench measures by the clock of the system")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use manyhands::Optimizer;
use manyhands::adapters;
use manyhands::simulator::step_ms;
use manyhands::simulator::{MachineSpec, RigConfig};
use manyhands_bench::rig::{Opening, RigAdapter};
use manyhands_bench::speeds::measure;
use manyhands_bench::workloads::{self, Workload};
use manyhands_engine::timing::median;
use mpi::point_to_point::send_receive_into;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;
use pollster::block_on;

/// Limits of the network, for people and for `tc`, and what TCP leaves of them, in 10⁹ bytes a second. A burst is a quarter of a
/// millisecond long: with the 4 kB of the slower network, `tc` lets only 85 % of 1 Gbit/s pass.
const LIMITS: [(&str, &str, f64); 2] =
    [("100 Mbit/s", "rate 100mbit burst 4kb", 0.0117), ("1 Gbit/s", "rate 1gbit burst 32kb", 0.117)];

/// Models, and rows of a batch on each machine.
const MODELS: [(&str, u32); 3] = [("mlp", 64), ("cnn", 8), ("small_cnn", 16)];

/// The machines, which are named as their network namespaces, and their addresses.
const MACHINES: [(&str, &str); 2] = [("manyhands0", "10.73.0.1"), ("manyhands1", "10.73.0.2")];

/// Rounds whose medians are compared: the machines' speeds change from one moment to the next.
const ROUNDS: usize = 3;

/// Messages whose median is the network's latency.
const MESSAGES: usize = 200;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["latency"] => latency(),
        ["train", model] => train(model),
        options => start(options),
    }
}

/// Compares all models over all networks.
fn start(options: &[&str]) {
    let default = ["--mca", "btl_tcp_eager_limit", "1048576"];
    let options = if options.is_empty() { &default[..] } else { options };
    let cable = Cable::lay();
    for (shown, limit, gb_s) in LIMITS {
        println!("{shown}, of which TCP leaves {gb_s} GB/s");
        for (name, rows) in MODELS {
            let rounds: Vec<[f64; 2]> = (0..ROUNDS)
                .map(|_| {
                    cable.limit(None);
                    let (_, machines) = trained(&cable, options, name);
                    cable.limit(Some(limit));
                    let latency_ms = cable.run(options, &["latency"]).trim().parse().unwrap();
                    let (measured_ms, _) = trained(&cable, options, name);
                    [measured_ms, predicted_ms(workload(name, rows), machines, gb_s, latency_ms)]
                })
                .collect();
            let [measured_ms, predicted_ms] = [0, 1].map(|which| median(rounds.iter().map(|round| round[which])));
            let error = 100.0 * (predicted_ms / measured_ms - 1.0);
            println!("    {name:<10} {measured_ms:>8.1} ms a step, {predicted_ms:>8.1} ms predicted ({error:.1} %)");
        }
    }
}

/// The prediction for two machines with a network.
fn predicted_ms(workload: Workload, machines: Vec<MachineSpec>, gb_s: f64, latency_ms: f64) -> f64 {
    let linked = |machine| MachineSpec { network_gb_s: Some(gb_s), network_latency_ms: latency_ms, ..machine };
    let rig = RigConfig {
        batch_size: 2 * workload.batch_size,
        optimizer: Some(workload.optimizer),
        machine: machines.into_iter().map(linked).collect(),
        model: Some(workload.model.config()),
        ..RigConfig::default()
    };
    step_ms(&rig).unwrap()
}

/// Milliseconds of a training step over a network, and the machines as they were in it, without their network.
fn trained(cable: &Cable, options: &[&str], name: &str) -> (f64, Vec<MachineSpec>) {
    let output = cable.run(options, &["train", name]);
    let (ms, machines) = output.trim().split_once(' ').unwrap();
    (ms.parse().unwrap(), serde_json::from_str(machines).unwrap())
}

fn workload(name: &str, rows: u32) -> Workload {
    Workload { optimizer: Optimizer::adam(1e-3), batch_size: rows, ..workloads::by_name(name).unwrap() }
}

/// Two network namespaces that a pair of virtual cards joins, and the script by which `mpirun` starts its part on the other machine.
struct Cable {
    agent: PathBuf,
}

impl Cable {
    fn lay() -> Self {
        remove_machines();
        let [(here, _), (there, _)] = MACHINES;
        for (name, _) in MACHINES {
            must(&format!("ip netns add {name}"));
        }
        must(&format!("ip link add card netns {here} type veth peer name card netns {there}"));
        for (name, address) in MACHINES {
            must(&format!("ip -n {name} address add {address}/24 dev card"));
            must(&format!("ip -n {name} link set lo up"));
            must(&format!("ip -n {name} link set card up"));
        }
        let agent = std::env::temp_dir().join(format!("manyhands-agent-{}", std::process::id()));
        let script = format!(
            "#!/bin/sh\nshift\nexec ip netns exec {there} unshare --uts sh -c 'hostname {there}; exec sh -c \"$0\"' \"$*\"\n"
        );
        fs::write(&agent, script).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        Self { agent }
    }

    /// Limits what passes each way from now on.
    fn limit(&self, limit: Option<&str>) {
        for (name, _) in MACHINES {
            let kind = limit.map_or("noqueue".into(), |limit| format!("tbf {limit} latency 100ms"));
            must(&format!("tc -n {name} qdisc replace dev card root {kind}"));
        }
    }

    /// The output of a process on each machine.
    fn run(&self, options: &[&str], arguments: &[&str]) -> String {
        let [(here, first), (_, second)] = MACHINES;
        let output = Command::new("ip")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .args(["netns", "exec", here, "unshare", "--uts", "sh", "-c"])
            .args([&format!("hostname {here}; exec mpirun \"$@\""), "sh"])
            .args(["-n", "2", "--host", &format!("{first}:1,{second}:1"), "--bind-to", "none"])
            .args(["--mca", "plm_rsh_agent", self.agent.to_str().unwrap(), "--mca", "pml", "ob1"])
            .args([
                "--mca",
                "btl",
                "tcp,self",
                "--mca",
                "btl_tcp_if_include",
                "card",
                "--mca",
                "oob_tcp_if_include",
                "card",
            ])
            .args(options)
            .args(["sh", "-c", "exec taskset --cpu-list $OMPI_COMM_WORLD_RANK \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        remove_machines();
        fs::remove_file(&self.agent).unwrap();
    }
}

/// A namespace takes its cards along. There may be none, or some that a run has left.
fn remove_machines() {
    for (name, _) in MACHINES {
        Command::new("ip").args(["netns", "delete", name]).stderr(Stdio::null()).status().unwrap();
    }
}

fn must(line: &str) {
    let mut words = line.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "`{line}` failed: the bench needs root and the package `iproute2`");
}

/// Prints the milliseconds of a message of a few bytes, while another comes the other way.
fn latency() {
    let universe = mpi::initialize().unwrap();
    let world: SimpleCommunicator = universe.world();
    let other = world.process_at_rank(1 - world.rank());
    let mut received = [0.0_f32];
    let exchange = |_| {
        let begin = Instant::now();
        send_receive_into(&[0.0_f32], &other, &mut received, &other);
        begin.elapsed().as_secs_f64() * 1e3
    };
    let ms = median((0..MESSAGES).map(exchange));
    if world.rank() == 0 {
        println!("{ms}");
    }
}

/// Prints the milliseconds of a training step of both processes, and the machines as JSON, without their network.
fn train(name: &str) {
    let rows = MODELS.iter().find(|(model, _)| *model == name).unwrap().1;
    let cpu = adapters::choose(&adapters::list(), "cpu").unwrap();
    let members: Vec<RigAdapter> = cpu.into_iter().map(RigAdapter::from).collect();
    let processes = manyhands_mpi::world().unwrap();
    let opening = Opening { processes: processes.clone(), ..Opening::default() };
    let measured = block_on(measure(&opening, &workload(name, rows), &members)).unwrap();
    let machine = MachineSpec {
        name: processes.host(),
        count: 1,
        network_gb_s: None,
        network_latency_ms: 0.0,
        host: measured.rig.host,
        adapters: measured.rig.adapters,
    };
    let machines = block_on(processes.all_gather(serde_json::to_vec(&machine).unwrap())).unwrap();
    if processes.is_first() {
        let machines: Vec<MachineSpec> = machines.iter().map(|it| serde_json::from_slice(it).unwrap()).collect();
        println!("{} {}", measured.step_ms, serde_json::to_string(&machines).unwrap());
    }
    block_on(processes.close(Ok(()))).unwrap();
}
