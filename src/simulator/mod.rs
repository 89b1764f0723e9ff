//! The scheduler's own code, driven by simulated adapters in virtual time.
//!
//! A [`World`] holds a virtual clock and adapters with given speeds, links and troubles. Time passes only when nothing
//! is left to do at a moment, so hours are simulated in milliseconds, and the same world gives the same run.
//!
//! ```
//! use manyhands::runtime::Runtime;
//! use manyhands::simulator::{AdapterSpec, World};
//! # fn main() -> manyhands::Result<()> {
//! let mut world = World::new(vec![AdapterSpec::new("fast", 1.0, 0.1)]);
//! let runtime = world.runtime();
//! let hours = world.run(1e9, async move {
//!     runtime.sleep(7_200_000.0).await;
//!     runtime.now_ms() / 3_600_000.0
//! })?;
//! assert_eq!(hours, 2.0);
//! # Ok(())
//! # }
//! ```

mod adapter;
mod arithmetic;
mod measure;
mod predict;
mod report;
mod resnet;
mod rig;
mod scaling;
mod skeleton;
mod spec;
mod traffic;
mod virtual_time;
mod world;

pub use arithmetic::Arithmetic;
pub use measure::{Measured, measure};
pub use predict::{simulate, simulate_model, step_ms};
pub use report::{Point, Report};
pub use rig::{HostSpec, Preset, RigConfig};
pub use scaling::{Kind, Part, Scaling, Wish, measure_scaling};
pub use spec::{AdapterSpec, Mishap, Moment, Slowdown, Trouble};
pub use virtual_time::Virtual;
pub use world::World;
