//! Engine types for this repository's own tests, benches, command and browser demo.
//!
//! **Nothing here is promised**: names and behaviour change with any version, without a line in the changelog.

macro_rules! whole {
    ($($module:ident),* $(,)?) => { $(
        #[allow(missing_docs, reason = "the module that it passes on has its own")]
        pub mod $module {
            pub use crate::$module::*;
        }
    )* };
}

whole!(
    bench, error, files, kernels, kind, misread, names, placer, plan, processes, runtime, scheduler, schema, size,
    table, timing, trainer
);

pub use crate::shown::{Shown, bytes, is_obeyed, shown, thousands};

/// Messages of adapters, and what opens them.
pub mod adapters {
    pub use crate::adapters::opening::*;
    pub use crate::adapters::protocol::*;
    pub use crate::adapters::throttle::Throttles;
    pub use crate::adapters::*;

    /// The adapter that runs the twins.
    pub mod cpu {
        pub use crate::adapters::cpu::*;
    }

    /// The adapters of wgpu.
    #[cfg(feature = "gpu")]
    pub mod gpu {
        pub use crate::adapters::gpu::*;
    }

    /// Lists of adapters.
    pub mod list {
        pub use crate::adapters::list::*;
    }

    /// An adapter behind a link.
    pub mod remote {
        pub use crate::adapters::remote::*;
    }

    /// Memory that a plan takes.
    pub mod memory {
        pub use crate::adapters::memory::*;
    }

    /// Memory of activations.
    pub mod storage {
        pub use crate::adapters::storage::*;
    }
}

/// Checks of data.
pub mod data {
    pub use crate::data::batch::{check_labels, check_probabilities};
    pub use crate::data::buffers::Buffers;
    pub use crate::data::*;
}

/// Changes of images.
pub mod augment {
    pub use crate::data::augment::*;
}

/// The table of layers.
pub mod layers {
    pub use crate::layers::table::LAYERS;
    pub use crate::layers::*;
}

/// The table of losses.
pub mod losses {
    pub use crate::losses::table::LOSSES;
    pub use crate::losses::*;
}

/// The table of metrics.
pub mod metrics {
    pub use crate::metrics::table::METRICS;
    pub use crate::metrics::*;
}

/// From a model to a plan.
pub mod model {
    pub use crate::model::objective::Objective;
    pub use crate::model::stages::{Source, Stage};
    pub use crate::model::*;
}

/// The table of optimizers.
pub mod optimizers {
    pub use crate::optimizers::table::OPTIMIZERS;
    pub use crate::optimizers::*;
}

/// Presets one by one, for a page that must not load all of them.
pub mod presets {
    pub use crate::presets::convolutional::*;
    pub use crate::presets::perceptrons::*;
    pub use crate::presets::size::Size;
    pub use crate::presets::*;

    /// The networks of the digits.
    pub mod digits {
        pub use crate::presets::digits::*;
    }
}

/// Worlds in virtual time, with faults.
pub mod simulator {
    pub use crate::simulator::arithmetic::Arithmetic;
    pub use crate::simulator::crowd::Crowding;
    pub use crate::simulator::predict::{SimulatedStep, simulate_steps, step_ms};
    pub use crate::simulator::spec::{FaultKind, InjectedFault, Trigger};
    pub use crate::simulator::virtual_time::Virtual;
    pub use crate::simulator::world::World;
    pub use crate::simulator::*;
}
