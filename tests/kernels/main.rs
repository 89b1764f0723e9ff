//! Shaders and kernels: valid texts, results of the twins, on every compiler and adapter that is here.

#[path = "../common/needed.rs"]
mod needed;

mod browser;
mod mutations;
mod shaders;
mod twins;
