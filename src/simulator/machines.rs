//! Several machines that train together through MPI, predicted.

use super::budget::Budget;
use super::network::Links;
use super::report::{LinkPoint, MachinePoint, Machines, Report};
use super::rig::{MachineSpec, RigConfig};
use super::trial::{Trial, TrialMachine};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;

/// Networks that are compared, with the 10⁹ bytes a second that they carry each way: 94 % of their bits, as TCP leaves them.
const NETWORKS: [(&str, f64); 5] =
    [("1 Gbit/s", 0.117), ("2.5 Gbit/s", 0.293), ("10 Gbit/s", 1.17), ("25 Gbit/s", 2.93), ("100 Gbit/s", 11.7)];

/// Machines of a kind, and the rows a second of one of them by itself.
struct MachineKind {
    spec: MachineSpec,
    rows_per_s: f64,
}

/// The predicted speed of some machines together.
struct PredictedMachines {
    budget: Budget,
    /// Rows of a machine of each kind.
    rows: Vec<u32>,
    /// The kind whose machines take longest, and its adapters.
    slowest: usize,
    rows_per_s: f64,
    efficiency: f64,
}

/// Predicts the fastest 1, 2, 4 and so on of a rig's machines, with a constant batch and with a growing one, and all of them with
/// other networks.
///
/// # Errors
/// If the model can't be planned, or a copy fits no machine.
pub(super) fn predict(rig: &RigConfig, model: &Model) -> Result<Report> {
    // The host's speed is that of each machine.
    let copies = Trial::new(model, &rig.objective(model), None, 1, rig.host.copy_gb_s)?.split(rig.split.clone());
    let (kinds, notes) = kinds(rig, &copies)?;
    let total: usize = kinds.iter().map(|kind| kind.spec.n_machines()).sum();
    let links = links(rig);
    let (mut strong, mut weak) = (Vec::new(), Vec::new());
    for n_machines in sizes(total) {
        for (points, batch_size) in [(&mut strong, rig.batch_size), (&mut weak, grown(rig.batch_size, n_machines))] {
            points.push(point(&copies, &first(&kinds, n_machines), links, batch_size)?);
        }
    }
    let mut other_links = Vec::new();
    for (name, gb_s) in NETWORKS.into_iter().filter(|_| total > 1) {
        let links = links.map(|links| Links { gb_s, ..links });
        let of = |batch_size| predicted(&copies, &kinds, links, batch_size);
        let (strong, weak) = (of(rig.batch_size)?, of(grown(rig.batch_size, total))?);
        other_links.push(LinkPoint {
            network: name.to_owned(),
            gb_s,
            step_ms: strong.budget.step_ms,
            efficiency: strong.efficiency,
            grown_step_ms: weak.budget.step_ms,
            grown_efficiency: weak.efficiency,
        });
    }
    let names = kinds.iter().map(|kind| kind.spec.shown_name()).collect();
    let machines = Some(Machines { names, strong, weak, links: other_links });
    Ok(Report { model: rig.in_words(model), batch_size: rig.batch_size, notes, machines, ..Report::default() })
}

/// The kinds of machines, the fastest first, without adapters on which no copy fits; and sentences about these.
fn kinds(rig: &RigConfig, copies: &Trial) -> Result<(Vec<MachineKind>, Vec<String>)> {
    let (mut kinds, mut notes, mut lacking) = (Vec::new(), Vec::new(), None);
    for machine in &rig.machine {
        let mut spec = machine.clone();
        spec.adapters.clear();
        for adapter in &machine.adapters {
            match copies.capacities(std::slice::from_ref(adapter), rig.batch_size) {
                Ok(_) => spec.adapters.push(adapter.clone()),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    let (name, problem) = (&machine.name, error.problem());
                    notes
                        .push(format!("A copy of the model does not fit on {} of {name}: it {problem}.", adapter.name));
                    lacking = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if !spec.adapters.is_empty() {
            let kind = MachineKind { spec, rows_per_s: 0.0 };
            let rows_per_s =
                predicted(copies, &first(std::slice::from_ref(&kind), 1), None, rig.batch_size)?.rows_per_s;
            kinds.push(MachineKind { rows_per_s, ..kind });
        }
    }
    if let Some(error) = lacking.filter(|_| kinds.is_empty()) {
        return Err(error);
    }
    kinds.sort_by(|a, b| b.rows_per_s.total_cmp(&a.rows_per_s));
    Ok((kinds, notes))
}

/// The slowest of a rig's links; a machine by itself has none.
fn links(rig: &RigConfig) -> Option<Links> {
    let gb_s = rig.machine.iter().filter_map(|machine| machine.network_gb_s).reduce(f64::min)?;
    let latency_ms = rig.machine.iter().map(|machine| machine.network_latency_ms).fold(0.0, f64::max);
    Some(Links { gb_s, latency_ms })
}

/// 1, 2, 4 and so on up to all.
fn sizes(total: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (0..usize::BITS).map(|power| 1 << power).take_while(|size| *size < total).collect();
    sizes.push(total);
    sizes
}

/// A batch that grows with the machines.
fn grown(batch_size: u32, n_machines: usize) -> u32 {
    batch_size.saturating_mul(u32::try_from(n_machines).unwrap_or(u32::MAX))
}

/// The fastest of the machines, of the last kind perhaps fewer than there are.
fn first(kinds: &[MachineKind], n_machines: usize) -> Vec<MachineKind> {
    let mut left = n_machines;
    let mut first = Vec::new();
    for MachineKind { spec, rows_per_s } in kinds {
        let count = left.min(spec.n_machines());
        left -= count;
        if count > 0 {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            first.push(MachineKind { spec: MachineSpec { count, ..spec.clone() }, rows_per_s: *rows_per_s });
        }
    }
    first
}

fn point(copies: &Trial, kinds: &[MachineKind], links: Option<Links>, batch_size: u32) -> Result<MachinePoint> {
    let PredictedMachines { budget, rows, slowest, rows_per_s, efficiency } =
        predicted(copies, kinds, links, batch_size)?;
    let MachineSpec { name, adapters, .. } = &kinds[slowest].spec;
    let several = kinds.len() > 1;
    Ok(MachinePoint {
        n_machines: kinds.iter().map(|kind| kind.spec.n_machines()).sum(),
        n_adapters: kinds.iter().map(|kind| kind.spec.n_machines() * kind.spec.adapters.len()).sum(),
        batch_size,
        rows,
        step_ms: budget.step_ms,
        rows_per_s,
        efficiency,
        network_ms: budget.network_ms,
        limit: budget.limit(adapters, several.then_some(name)),
    })
}

fn predicted(
    copies: &Trial,
    kinds: &[MachineKind],
    links: Option<Links>,
    batch_size: u32,
) -> Result<PredictedMachines> {
    let machine = |kind: &MachineKind| TrialMachine {
        adapters: kind.spec.adapters.clone(),
        host_gb_s: kind.spec.host.copy_gb_s,
        count: kind.spec.n_machines(),
    };
    let machines: Vec<TrialMachine> = kinds.iter().map(machine).collect();
    let is_alone = machines.iter().map(|machine| machine.count).sum::<usize>() < 2;
    let ran = copies.run_on(&machines, links.filter(|_| !is_alone), batch_size)?;
    let budgets: Vec<(Budget, Vec<u32>)> =
        kinds.iter().zip(&ran.kinds).map(|(kind, ran)| Budget::of(kind.spec.adapters.len(), &ran.counted)).collect();
    let slowest = (0..budgets.len()).max_by(|a, b| budgets[*a].0.busy_ms().total_cmp(&budgets[*b].0.busy_ms()));
    let slowest = slowest.ok_or_else(|| Error::setting("`machine`", "needs an adapter, but has none", "add one"))?;
    let budget = Budget { network_ms: ran.network_ms, ..budgets[slowest].0 };
    let rows_per_s = f64::from(batch_size) / budget.step_ms * 1e3;
    let alone: f64 = kinds.iter().map(|kind| f64::from(kind.spec.count) * kind.rows_per_s).sum();
    Ok(PredictedMachines {
        budget,
        rows: budgets.iter().map(|(_, shares)| shares.iter().sum()).collect(),
        slowest,
        rows_per_s,
        efficiency: rows_per_s / alone,
    })
}
