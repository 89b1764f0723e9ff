// Factors in workgroup memory as 16-bit floats, half the bytes. A device that takes 16-bit floats below 2^-14 for 0, as WGSL allows,
// does so here. Products and sums are of 32 bits.

alias Kept = vec4<f16>;
