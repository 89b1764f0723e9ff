// Fragments of 16 x 16: NVIDIA's tensor cores from Turing on, AMD's WMMA from RDNA 3 on.

alias MatrixA = coop_mat16x16<f16, A>;
alias MatrixB = coop_mat16x16<f16, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const FRAGMENT: u32 = 16u;
// Blocks of a subgroup of 64 invocations, the largest there is.
const MOST_BLOCKS: u32 = 2u;
