// Factors in workgroup memory as they are: four 32-bit floats.

alias Kept = vec4<f32>;
