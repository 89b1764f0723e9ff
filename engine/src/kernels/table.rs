//! The table of kernels, a line for each family.

use super::{
    Kernel, activation, adadelta, adagrad, adam, adamax, add, attention, batch_norm, bilinear, clip, completion,
    concatenate, conv2d, dense, depthwise_conv2d, depthwise_conv2d_fours, dropout, ema, embedding, ftrl, gaussian,
    global_max, group_norm, halves, lion, mask, merge, nadam, packed, pointwise_loss, pooling, recurrent,
    recurrent_scan, reduce, regularizer, remap, rmsprop, rotary_embedding, row_loss, sgd, softmax,
    softmax_cross_entropy, split_sum,
};

/// Kernels by families: tables of host files.
pub type Families = &'static [&'static [&'static Kernel]];

/// Every kernel of the crate, a line for each family: the host file's own table.
pub static FAMILIES: Families = &[
    activation::KERNELS,
    adadelta::KERNELS,
    adagrad::KERNELS,
    adam::KERNELS,
    adamax::KERNELS,
    add::KERNELS,
    attention::KERNELS,
    batch_norm::KERNELS,
    bilinear::KERNELS,
    clip::KERNELS,
    completion::KERNELS,
    concatenate::KERNELS,
    conv2d::KERNELS,
    dense::KERNELS,
    depthwise_conv2d::KERNELS,
    depthwise_conv2d_fours::KERNELS,
    dropout::KERNELS,
    ema::KERNELS,
    embedding::KERNELS,
    ftrl::KERNELS,
    gaussian::KERNELS,
    global_max::KERNELS,
    group_norm::KERNELS,
    halves::KERNELS,
    lion::KERNELS,
    mask::KERNELS,
    merge::KERNELS,
    nadam::KERNELS,
    packed::KERNELS,
    pointwise_loss::KERNELS,
    pooling::KERNELS,
    recurrent::KERNELS,
    recurrent_scan::KERNELS,
    reduce::KERNELS,
    regularizer::KERNELS,
    remap::KERNELS,
    rmsprop::KERNELS,
    rotary_embedding::KERNELS,
    row_loss::KERNELS,
    sgd::KERNELS,
    softmax::KERNELS,
    softmax_cross_entropy::KERNELS,
    split_sum::KERNELS,
];

/// Every kernel of the crate.
pub fn all() -> impl Iterator<Item = &'static Kernel> {
    FAMILIES.iter().flat_map(|family| family.iter().copied())
}

/// Whether this is a kernel of the crate, and not a user's own.
pub fn is_known(kernel: &Kernel) -> bool {
    all().any(|known| std::ptr::eq(known, kernel))
}

/// The kernel of a name, `stem.entry`.
pub fn find(name: &str) -> Option<&'static Kernel> {
    all().find(|kernel| kernel.name() == name)
}

#[cfg(test)]
mod tests {
    use super::super::cases::check_fast;
    use super::*;

    /// Kernels that are quick enough as their twins.
    const PLAIN: [&str; 1] = ["completion.count"];

    #[test]
    fn fast_is_the_twin() {
        let (fast, plain): (Vec<_>, Vec<_>) = all().partition(|kernel| kernel.fast.is_some());
        let plain: Vec<String> = plain.into_iter().map(Kernel::name).collect();
        assert_eq!(plain, PLAIN, "kernels without a fast version");
        fast.into_iter().try_for_each(check_fast).unwrap();
    }
}
