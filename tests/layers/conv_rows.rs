//! The contracts of the convolutions other than `Conv2D`.

use super::rows::{NO_IMAGE, Refusal, Row, row};

const GAPS: &str = "needs strides of 1 where it has a dilation rate, but got strides [2, 1], rate [1, 2]\n  help: take one or \
                    the other, as in Keras; `DepthwiseConv2D` can have both; its input comes from `in0`";

const NO_FILTER: Refusal = Refusal {
    settings: "filters = 0\nkernel_size = 3",
    inputs: &[&[5, 5, 1]],
    says: "needs at least one filter, but got 0\n  help: set `filters`; its input comes from `in0`",
};

pub static ROWS: &[Row] = &[
    Row {
        output: &[3, 4, 4],
        numbers: [40, 0],
        refuses: &[
            Refusal {
                settings: "filters = 6\nkernel_size = 3\ngroups = 4",
                inputs: &[&[5, 5, 8]],
                says: "needs groups that divide its channels and filters, but got 4 groups, 8 channels and 6 filters\n  \
                       help: let `groups` divide both; its input comes from `in0`",
            },
            Refusal {
                settings: "filters = 2\nkernel_size = 1\nstrides = [2, 1]\ndilation_rate = [1, 2]",
                inputs: &[&[5, 5, 2]],
                says: GAPS,
            },
        ],
        ..row(
            "Conv2D",
            "filters = 4\nkernel_size = [3, 1]\nstrides = [2, 1]\npadding = \"same\"\ngroups = 2\nactivation = \"tanh\"",
            &[&[5, 4, 6]],
        )
    },
    // As many groups as channels: windows over each.
    Row {
        output: &[4, 2, 6],
        numbers: [60, 0],
        ..row("Conv2D", "filters = 6\nkernel_size = [3, 3]\ngroups = 3\ndilation_rate = [1, 2]", &[&[6, 6, 3]])
    },
    Row {
        output: &[3, 5, 3],
        numbers: [27, 0],
        ..row(
            "Conv2D",
            "filters = 3\nkernel_size = [3, 1]\npadding = \"same\"\ndilation_rate = [2, 1]\nuse_bias = false",
            &[&[3, 5, 3]],
        )
    },
    Row {
        output: &[5, 8, 3],
        numbers: [39, 0],
        refuses: &[
            Refusal { settings: "filters = 8\nkernel_size = 3", inputs: &[&[64]], says: NO_IMAGE },
            NO_FILTER,
            Refusal {
                settings: "filters = 2\nkernel_size = 3\nstrides = 2\noutput_padding = [2, 0]",
                inputs: &[&[5, 5, 1]],
                says: "needs output padding below its strides [2, 2], but got [2, 0]\n  help: leave `output_padding` out for \
                       the size that Keras chooses; its input comes from `in0`",
            },
            Refusal {
                settings: "filters = 2\nkernel_size = 2\nstrides = [2, 1]\ndilation_rate = [1, 2]",
                inputs: &[&[5, 5, 1]],
                says: GAPS,
            },
            Refusal {
                settings: "filters = 2\nkernel_size = 2\npadding = \"same\"\noutput_padding = 0",
                inputs: &[&[1, 5, 1]],
                says: "needs an output of at least 1 × 1, but it would be 0 × 4\n  help: take a larger `output_padding`, or an \
                       odd window; its input comes from `in0`",
            },
        ],
        ..row(
            "Conv2DTranspose",
            "filters = 3\nkernel_size = [3, 2]\nstrides = [1, 2]\npadding = \"same\"\nactivation = \"tanh\"",
            &[&[5, 4, 2]],
        )
    },
    Row {
        output: &[8, 7, 2],
        numbers: [24, 0],
        ..row(
            "Conv2DTranspose",
            "filters = 2\nkernel_size = [2, 2]\nstrides = [3, 2]\noutput_padding = [0, 1]\nuse_bias = false\nactivation = \"gelu\"",
            &[&[3, 3, 3]],
        )
    },
    Row {
        output: &[3, 4, 6],
        numbers: [42, 0],
        refuses: &[
            Refusal { settings: "kernel_size = 3", inputs: &[&[64]], says: NO_IMAGE },
            Refusal {
                settings: "kernel_size = 3\ndilation_rate = 2",
                inputs: &[&[4, 5, 1]],
                says: "needs an image of at least 5 × 5, but got 4 × 5\n  help: use padding `same`, a smaller window, or \
                       fewer layers that shrink the image; its input comes from `in0`",
            },
            Refusal {
                settings: "kernel_size = 3\ndilation_rate = [1, 0]",
                inputs: &[&[5, 5, 1]],
                says: "needs a dilation rate of at least 1, but got [1, 0]\n  help: 1 is a window without gaps; its input \
                       comes from `in0`",
            },
            Refusal {
                settings: "kernel_size = 3\ndepth_multiplier = 0",
                inputs: &[&[5, 5, 1]],
                says: "needs a depth multiplier of at least 1, but got 0\n  help: Keras' default is 1; its input comes from \
                       `in0`",
            },
        ],
        ..row(
            "DepthwiseConv2D",
            "kernel_size = [3, 2]\nstrides = [2, 1]\npadding = \"same\"\ndepth_multiplier = 2\nactivation = \"tanh\"",
            &[&[5, 4, 3]],
        )
    },
    Row {
        output: &[4, 3, 5],
        numbers: [45, 0],
        ..row("DepthwiseConv2D", "kernel_size = [3, 3]\ndilation_rate = [1, 2]\nuse_bias = false", &[&[6, 7, 5]])
    },
    Row {
        output: &[3, 2, 5],
        numbers: [93, 0],
        refuses: &[Refusal { settings: "filters = 8\nkernel_size = 3", inputs: &[&[64]], says: NO_IMAGE }, NO_FILTER],
        ..row(
            "SeparableConv2D",
            "filters = 5\nkernel_size = [3, 2]\nstrides = [2, 2]\npadding = \"same\"\ndepth_multiplier = 2\nactivation = \"sigmoid\"",
            &[&[5, 4, 4]],
        )
    },
    Row {
        output: &[2, 3, 2],
        numbers: [44, 0],
        ..row(
            "SeparableConv2D",
            "filters = 2\nkernel_size = [3, 3]\ndilation_rate = [2, 1]\nuse_bias = false",
            &[&[6, 5, 4]],
        )
    },
];
