//! Writes kernels of meganeura as WGSL, whose form compilers of GPUs take: `benches/peers/README.md` tells what for.
//!
//!     meganeura-kernels FOLDER

#![allow(clippy::expect_used, reason = "a bench may panic")]

use std::path::Path;

use meganeura::codegen::{
    self, Conv2dCoopDirection, CoopConfig, ShaderGroup, ShaderModule, generate_conv2d_coop_module,
    generate_flash_attention_coop_module, generate_flash_attention_module, generate_flash_grad_kv_module,
    generate_flash_grad_q_module, generate_module_coop,
};
use meganeura::compile::Dispatch;
use meganeura::{CoopPolicy, Graph, Mode, NodeId, Session, SessionConfig, SessionOptions, TuningKnobs};

const HEADS: u32 = 8;
const HEAD_DIM: u32 = 64;

fn main() {
    let folder = std::env::args_os().nth(1).expect("a folder for the kernels");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let write = |operation: &str, (name, module): (String, ShaderModule)| {
        let file = Path::new(&folder).join(format!("{operation}-{name}.wgsl"));
        std::fs::write(file, bound(&module.source)).expect("the folder takes files");
    };
    for operation in ["product", "convolution", "inference", "attention"] {
        of_session(&session(operation)).into_iter().for_each(|kernel| write(operation, kernel));
    }
    cooperative().into_iter().for_each(|kernel| write("cooperative", kernel));
}

/// A session that has made one step of an operation on the first device, without its cooperative matrices.
fn session(operation: &str) -> Session {
    let mut graph = Graph::new();
    let (output, parameters) = match operation {
        "product" => product(&mut graph),
        "attention" => attention(&mut graph),
        _ => convolution(&mut graph),
    };
    // Winograd's convolution is of inference alone. Of the product, as of burn's, forward alone is compared.
    let is_forward = ["product", "inference"].contains(&operation);
    let mode = if is_forward { Mode::Inference } else { Mode::Training };
    let output = if is_forward { output } else { graph.sum_all(output) };
    graph.set_outputs(vec![output]);
    let runtime = SessionOptions { coop: CoopPolicy::Disabled, ..SessionOptions::default() };
    let mut session = meganeura::build(&graph, SessionConfig { mode, runtime, ..SessionConfig::default() }).0;
    for (name, shape) in parameters {
        session.set_parameter(name, &vec![0.5; shape.iter().product()]);
    }
    session.step();
    session.wait();
    println!("{operation} on {}", session.device_information().device_name);
    session
}

type Parameters = Vec<(&'static str, Vec<usize>)>;

fn product(graph: &mut Graph) -> (NodeId, Parameters) {
    let (nodes, parameters) = parameters(graph, &[("a", &[1024, 1024]), ("b", &[1024, 1024])]);
    (graph.matmul(nodes[0], nodes[1]), parameters)
}

/// Of 56 × 56 × 64, with 64 windows of 3 × 3.
fn convolution(graph: &mut Graph) -> (NodeId, Parameters) {
    let (nodes, parameters) = parameters(graph, &[("x", &[64 * 56 * 56]), ("weights", &[64 * 64 * 3 * 3])]);
    (graph.conv2d(nodes[0], nodes[1], 1, 64, 56, 56, 64, 3, 3, 1, 1), parameters)
}

fn attention(graph: &mut Graph) -> (NodeId, Parameters) {
    let shape = [512, (HEADS * HEAD_DIM) as usize];
    let (nodes, parameters) = parameters(graph, &[("queries", &shape), ("keys", &shape), ("values", &shape)]);
    (graph.multi_head_attn(nodes[0], nodes[1], nodes[2], HEADS, HEADS, HEAD_DIM, false), parameters)
}

fn parameters(graph: &mut Graph, shapes: &[(&'static str, &[usize])]) -> (Vec<NodeId>, Parameters) {
    let nodes = shapes.iter().map(|(name, shape)| graph.parameter(name, shape)).collect();
    (nodes, shapes.iter().map(|(name, shape)| (*name, shape.to_vec())).collect())
}

/// The kernels of a session's plan, each once.
fn of_session(session: &Session) -> Vec<(String, ShaderModule)> {
    let mut kernels: Vec<(String, ShaderModule)> = Vec::new();
    for dispatch in &session.plan().dispatches {
        let name = format!("{:?}", dispatch.shader);
        println!("  {name}, workgroups {:?}", dispatch.workgroups);
        if dispatch.pointwise.is_none() && dispatch.reduction.is_none() && kernels.iter().all(|(it, _)| *it != name) {
            kernels.push((name, module(dispatch, &session.plan().knobs)));
        }
    }
    kernels
}

/// The text of a dispatch's kernel, as the session made it.
fn module(dispatch: &Dispatch, knobs: &TuningKnobs) -> ShaderModule {
    match dispatch.shader.shader_group() {
        ShaderGroup::FlashAttention => generate_flash_attention_module(HEAD_DIM, knobs.flash_ept_cap),
        ShaderGroup::FlashGradQ => generate_flash_grad_q_module(HEAD_DIM, knobs.flash_grad_q_ept_cap),
        ShaderGroup::FlashGradKV => generate_flash_grad_kv_module(HEAD_DIM, knobs.flash_grad_kv_ept_cap),
        group if dispatch.use_small_tiles => codegen::generate_module_small(group),
        group => codegen::generate_module(group),
    }
}

/// The kernels for devices with cooperative matrices of 16 × 16 16-bit floats.
fn cooperative() -> Vec<(String, ShaderModule)> {
    let config = CoopConfig { tile_size: 16, use_f16_input: true, compensated: false };
    let convolution = |direction| generate_conv2d_coop_module(3, 3, 1, direction, &config);
    vec![
        ("MatMul".to_owned(), generate_module_coop(ShaderGroup::MatMul, &config)),
        ("Conv2dGemm".to_owned(), convolution(Conv2dCoopDirection::Forward)),
        ("Conv2dGradInputGemm".to_owned(), convolution(Conv2dCoopDirection::GradInput)),
        ("FlashAttention".to_owned(), generate_flash_attention_coop_module(HEAD_DIM)),
    ]
}

/// The text with numbers for its buffers, which meganeura leaves to blade.
fn bound(source: &str) -> String {
    let mut bound = String::new();
    let mut number = 0;
    for line in source.lines() {
        if line.starts_with("var<storage") || line.starts_with("var<uniform>") {
            bound += &format!("@group(0) @binding({number}) ");
            number += 1;
        }
        bound += line;
        bound += "\n";
    }
    bound
}
