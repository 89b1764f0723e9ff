//! The values of a simulated adapter: computed by the twins, or zeros.

use std::sync::Arc;

use crate::plan::{Dispatch, Pass, Plan, Role, Scalars, View};
use manyhands_engine::adapters::cpu::Interpreter;

/// Arithmetic of simulated adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// That of the CPU adapter: the kernels' twins.
    #[default]
    Twins,
    /// None: answers are zeros of the right lengths, at the right time.
    TimeOnly,
}

/// A plan, with its buffers, if any.
pub(super) enum Memory {
    Twins(Interpreter),
    TimeOnly(Arc<Plan>),
}

impl Memory {
    pub fn new(arithmetic: Arithmetic, plan: Arc<Plan>, capacity: u32) -> Self {
        match arithmetic {
            Arithmetic::Twins => Self::Twins(Interpreter::new(plan, capacity)),
            Arithmetic::TimeOnly => Self::TimeOnly(plan),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Twins(interpreter) => interpreter.bytes(),
            Self::TimeOnly(_) => 0,
        }
    }

    pub fn write(&mut self, role: Role, offset: u64, data: &[f32]) {
        if let Self::Twins(interpreter) = self {
            interpreter.write(role, offset, data);
        }
    }

    pub fn read(&self, role: Role) -> Vec<f32> {
        match self {
            Self::Twins(interpreter) => interpreter.read(role).to_vec(),
            Self::TimeOnly(plan) => plan.find(role).map_or_else(Vec::new, |buffer| zeros(plan.get(buffer).len.at(1))),
        }
    }

    pub fn view(&self, view: View, rows: u32) -> Vec<f32> {
        match self {
            Self::Twins(interpreter) => interpreter.view(view, rows).to_vec(),
            Self::TimeOnly(_) => zeros(view.len.at(rows)),
        }
    }

    pub fn replace(&mut self, view: View, rows: u32, data: &[f32]) {
        if let Self::Twins(interpreter) = self {
            interpreter.view_mut(view, rows).copy_from_slice(data);
        }
    }

    pub fn dispatch(&mut self, dispatch: &Dispatch, scalars: &Scalars) {
        if let Self::Twins(interpreter) = self {
            interpreter.dispatch(dispatch, scalars);
        }
    }

    pub fn results(&self, pass: Pass, rows: u32) -> Vec<Vec<f32>> {
        match self {
            Self::Twins(interpreter) => interpreter.results(pass, rows),
            Self::TimeOnly(plan) => zero_results(plan, pass, rows),
        }
    }
}

fn zero_results(plan: &Plan, pass: Pass, rows: u32) -> Vec<Vec<f32>> {
    plan.results(pass).into_iter().map(|buffer| zeros(plan.get(buffer).len.at(rows))).collect()
}

#[allow(clippy::cast_possible_truncation, reason = "a buffer is smaller than the address space")]
fn zeros(len: u64) -> Vec<f32> {
    vec![0.0; len as usize]
}
