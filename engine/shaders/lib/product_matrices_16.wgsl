// Fragments of 16 x 16: NVIDIA's tensor cores from Turing on, AMD's WMMA from RDNA 3 on.

alias MatrixA = coop_mat16x16<f16, A>;
alias MatrixB = coop_mat16x16<f16, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const FRAGMENT: u32 = 16u;
// Invocations of a subgroup at most.
const LARGEST_SUBGROUP: u32 = 64u;
