// Fragments of 8 x 8: Apple's simdgroup matrices, and llvmpipe.

alias MatrixA = coop_mat8x8<f16, A>;
alias MatrixB = coop_mat8x8<f16, B>;
alias MatrixC = coop_mat8x8<f32, C>;
const FRAGMENT: u32 = 8u;
// Invocations of a subgroup at most.
const LARGEST_SUBGROUP: u32 = 32u;
