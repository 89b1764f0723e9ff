// Gates of recurrent cells, and the constants that all of their kernels have.

// 0 leaves `bias` or the mask unread: any buffer may be bound there.
override USE_BIAS: u32 = 1u;
override MASKED: u32 = 0u;
// Is the output 0 at masked steps? Else it is the state.
override ZERO_OUTPUT: u32 = 0u;
// Is the gates' function the hard sigmoid?
override HARD: u32 = 0u;

fn gate(x: f32) -> f32 {
    if HARD != 0u {
        return hard_sigmoid(x);
    }
    return sigmoid(x);
}

fn gate_slope(y: f32) -> f32 {
    if HARD != 0u {
        return select(0.0, 0.16666667, y > 0.0 && y < 1.0);
    }
    return y * (1.0 - y);
}
