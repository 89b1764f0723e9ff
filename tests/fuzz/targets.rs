//! What is fuzzed: how each is read, and whole inputs to start from.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;
use image::{ImageFormat, RgbImage};
use manyhands::data::{Batch, DataConfig, digits};
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten, Relu};
use manyhands::logs::JsonLog;
use manyhands::model::Objective;
use manyhands::simulator::RigConfig;
use manyhands::{Checkpoint, Compile, Fit, Loss, Model, ModelConfig, Optimizer, Sequential, Trainer};
use manyhands_engine::adapters::remote::{self, LinkEnd, Packet};
use manyhands_engine::adapters::{ActorId, Combining, Event, Fault, Message, Request, Run, Ticket, cpu};
use manyhands_engine::kernels::FAMILIES;
use manyhands_engine::plan::{Pass, Role, Scalars};
use manyhands_engine::runtime::{LocalTask, Native, Runtime};
use serde::Deserialize as _;

use super::fuzz::{Target, write};

pub const TARGETS: &[Target] = &[
    Target { name: "model_settings", seeds: model_settings, run: read_model_settings },
    Target { name: "data_settings", seeds: data_settings, run: read_data_settings },
    Target { name: "model_file", seeds: model_files, run: read_model_file },
    Target { name: "checkpoint", seeds: checkpoints, run: read_checkpoint },
    Target { name: "json_log", seeds: json_logs, run: read_json_log },
    Target { name: "rig", seeds: rigs, run: read_rig },
    Target { name: "csv", seeds: tables, run: read_table },
    Target { name: "idx", seeds: idx_files, run: read_idx },
    Target { name: "cifar", seeds: cifar_files, run: read_cifar },
    Target { name: "numpy", seeds: numpy_files, run: read_numpy },
    Target { name: "npz", seeds: npz_files, run: read_npz },
    Target { name: "safetensors", seeds: tensor_files, run: read_tensors },
    Target { name: "image", seeds: images, run: read_image },
    Target { name: "wire_requests", seeds: requests, run: serve_requests },
    Target { name: "wire_events", seeds: events, run: take_events },
];

const LAYERS: &str = r#"
input = [4, 4, 1]
layers = [
  { type = "Conv2D", filters = 2, kernel_size = [3, 3], padding = "same", strides = [1, 1], use_bias = false },
  { type = "BatchNormalization", momentum = 0.9 },
  { type = "ReLU" },
  { type = "MaxPooling2D", pool_size = [2, 2] },
  { type = "Flatten", name = "flat" },
  { type = "Dropout", rate = 0.4 },
  { type = "Dense", units = 3 },
]
"#;

const GRAPH: &str = r#"
outputs = ["sum"]
inputs = [{ name = "a", shape = [4] }, { name = "b", shape = [4] }]
layers = [
  { type = "Dense", name = "shared", units = 3, inputs = ["a"] },
  { reuse = "shared", inputs = ["b"] },
  { type = "Add", name = "sum", inputs = ["shared", "shared:1"] },
]
"#;

fn model_settings() -> Vec<Vec<u8>> {
    vec![LAYERS.into(), GRAPH.into()]
}

fn read_model_settings(input: &[u8], _: &Path) {
    let Ok(config) = toml::from_str::<ModelConfig>(&String::from_utf8_lossy(input)) else { return };
    drop(config.build(0).map(|model| model.summary().to_string()));
}

fn data_settings() -> Vec<Vec<u8>> {
    vec![
        b"type = 'synthetic'\nshape = [4, 4]\nclasses = 3\nrows = 100\ntest_rows = 10\nseed = 7\n".to_vec(),
        b"type = 'digits'\n".to_vec(),
        b"type = 'csv'\ntrain = 'a.csv'\ntarget = ['x', 'y']\ntarget_kind = 'values'\nignore = [3]\ndelimiter = ';'\n"
            .to_vec(),
        b"type = 'image_folder'\ntrain = 'a'\nheight = 8\nwidth = 8\nchannels = 3\n".to_vec(),
    ]
}

fn read_data_settings(input: &[u8], _: &Path) {
    let Ok(config) = toml::from_str::<DataConfig>(&String::from_utf8_lossy(input)) else { return };
    let Ok(data) = config.open() else { return };
    if !data.train.is_empty() && data.train.input_shapes().iter().map(manyhands::Shape::len).sum::<usize>() < 1 << 20 {
        drop(Batch::fetch(&data.train, &[0]));
    }
}

fn small() -> Model {
    let model = Sequential::new([8, 8, 1]).add(Conv2D::new(2, [3, 3]).no_bias()).add(BatchNormalization::new());
    model.add(Relu::default()).add(Flatten::default()).add(Dense::new(10)).build(1).unwrap()
}

fn model_files() -> Vec<Vec<u8>> {
    let graph: ModelConfig = toml::from_str(GRAPH).unwrap();
    vec![small().to_bytes().unwrap(), graph.build(3).unwrap().to_bytes().unwrap()]
}

fn read_model_file(input: &[u8], _: &Path) {
    drop(Model::from_bytes(input, "a file", &[]));
}

/// Trains two steps: the checkpoint, and the log of steps.
fn trained() -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, log) = (folder.path().join("a.safetensors"), folder.path().join("a.jsonl"));
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let mut trainer = Trainer::new(small(), compile).unwrap().adapters("cpu").unwrap();
    let mut json = JsonLog::create(&log).unwrap();
    let fit = Fit::new(1).batch_size(700).save(&checkpoint);
    trainer.fit_with(digits::train().unwrap(), &fit, &mut [&mut json]).unwrap();
    (fs::read(checkpoint).unwrap(), fs::read(log).unwrap())
}

fn checkpoints() -> Vec<Vec<u8>> {
    vec![trained().0]
}

fn read_checkpoint(input: &[u8], folder: &Path) {
    let path = folder.join("a.safetensors");
    write(&path, input);
    drop(Checkpoint::load(&path));
}

fn json_logs() -> Vec<Vec<u8>> {
    vec![trained().1]
}

fn read_json_log(input: &[u8], folder: &Path) {
    let path = folder.join("a.jsonl");
    write(&path, input);
    drop(JsonLog::recorded_split(&path, 2));
    drop(JsonLog::resume(&path, 1, 1));
}

fn rigs() -> Vec<Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("examples/rigs");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn read_rig(input: &[u8], _: &Path) {
    drop(RigConfig::parse(&String::from_utf8_lossy(input)));
}

fn tables() -> Vec<Vec<u8>> {
    vec![
        b"height,width,name\n1.5,2,a\n3,-4e2,b\n\"5\",6,\"c, \"\"d\"\"\"\n".to_vec(),
        b"1,2,0\r\n3,4,1\r\n5,6,01\r\n7,8,1.0\r\n".to_vec(),
    ]
}

fn open(settings: &str, folder: &Path) {
    let mut settings: toml::Table = toml::from_str(settings).unwrap();
    for key in ["train", "folder", "file"] {
        if let Some(toml::Value::String(path)) = settings.get_mut(key) {
            *path = folder.join(&path).display().to_string();
        }
    }
    let Ok(data) = DataConfig::deserialize(settings).unwrap().open() else { return };
    let rows: Vec<usize> = (0..data.train.len().min(4)).collect();
    drop(Batch::fetch(&data.train, &rows));
}

fn read_table(input: &[u8], folder: &Path) {
    write(&folder.join("a.csv"), input);
    open("type = 'csv'\ntrain = 'a.csv'\ntarget = [2]\ntarget_kind = 'classes'", folder);
    open("type = 'csv'\ntrain = 'a.csv'\ntarget = [1]\ntarget_kind = 'values'\nignore = [2]", folder);
}

/// Images and labels, with the length of the images before them.
fn idx_files() -> Vec<Vec<u8>> {
    let images = [&[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2][..], &[7; 12]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2];
    let plain = [&[u8::try_from(images.len()).unwrap()][..], &images, &labels].concat();
    let packed = gzipped(&images);
    let packed = [&[u8::try_from(packed.len()).unwrap()][..], &packed, &gzipped(&labels)].concat();
    vec![plain, packed]
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read_idx(input: &[u8], folder: &Path) {
    let Some((&length, rest)) = input.split_first() else { return };
    let (images, labels) = rest.split_at(usize::from(length).min(rest.len()));
    for ending in ["", ".gz"] {
        write(&folder.join(format!("train-images-idx3-ubyte{ending}")), images);
        write(&folder.join(format!("train-labels-idx1-ubyte{ending}")), labels);
        open("type = 'idx'\nfolder = ''", folder);
        fs::remove_file(folder.join(format!("train-images-idx3-ubyte{ending}"))).unwrap();
        fs::remove_file(folder.join(format!("train-labels-idx1-ubyte{ending}"))).unwrap();
    }
}

/// An array of two rows of three numbers, of a kind and with its bytes.
fn array(kind: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let text = format!("{:<117}\n", format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"));
    [b"\x93NUMPY\x01\0\x76\0", text.as_bytes(), bytes].concat()
}

/// An archive without packing of the named arrays.
fn archive(arrays: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut locals, mut centrals) = (Vec::new(), Vec::new());
    for (name, array) in arrays {
        let mut crc = flate2::Crc::new();
        crc.update(array);
        let [at, length, name_length] =
            [locals.len(), array.len(), name.len()].map(|size| u32::try_from(size).unwrap());
        let [length, name_length] = [length.to_le_bytes(), name_length.to_le_bytes()];
        // Version 2.0, no flags, not packed, the time of day and day; checksum, both lengths, that of the name.
        let facts = [&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..], &crc.sum().to_le_bytes(), &length, &length].concat();
        let facts = [&facts[..], &name_length[..2]].concat();
        locals.extend([b"PK\x03\x04", &facts[..], &[0, 0], name.as_bytes(), array].concat());
        let place = [&[0; 12][..], &at.to_le_bytes(), name.as_bytes()].concat();
        centrals.extend([b"PK\x01\x02\x14\0", &facts[..], &place].concat());
    }
    let [size, at] = [centrals.len(), locals.len()].map(|size| u32::try_from(size).unwrap().to_le_bytes());
    let count = u16::try_from(arrays.len()).unwrap().to_le_bytes();
    let end = [b"PK\x05\x06", &[0; 4][..], &count, &count, &size, &at, &[0, 0]].concat();
    [locals, centrals, end].concat()
}

/// An array, and an archive that has it.
fn numpy_files() -> Vec<Vec<u8>> {
    let array = array("<f4", "(2, 3)", &[0; 24]);
    let archive = archive(&[("x.npy", &array)]);
    vec![array, archive]
}

/// Inputs and labels, with the length of the inputs before them: an archive of both is whole, whatever they hold.
fn npz_files() -> Vec<Vec<u8>> {
    let inputs = array("<f4", "(2, 3)", &[0; 24]);
    let labels = [array("<i8", "(2,)", &[0; 16]), array("<u2", "(2, 1)", &[1; 4]), array("<f8", "(2,)", &[7; 16])];
    let length = [u8::try_from(inputs.len()).unwrap()];
    labels.iter().map(|labels| [&length, &inputs[..], labels].concat()).collect()
}

fn read_npz(input: &[u8], folder: &Path) {
    let Some((&length, rest)) = input.split_first() else { return };
    let (inputs, labels) = rest.split_at(usize::from(length).min(rest.len()));
    write(&folder.join("a.npz"), &archive(&[("x.npy", inputs), ("y.npy", labels)]));
    open("type = 'npz'\nfile = 'a.npz'", folder);
}

fn read_numpy(input: &[u8], folder: &Path) {
    for name in ["x.npy", "x.npz"] {
        let path = folder.join(name);
        write(&path, input);
        if let Ok(data) = manyhands::data::numpy::open_inputs(&path) {
            drop(Batch::fetch(&data, &[0]));
        }
    }
}

fn tensor_files() -> Vec<Vec<u8>> {
    let header = r#"{"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"y":{"dtype":"I64","shape":[2],"data_offsets":[8,24]}}"#;
    vec![[&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 24]].concat()]
}

fn read_tensors(input: &[u8], folder: &Path) {
    write(&folder.join("a.safetensors"), input);
    open("type = 'safetensors'\nfile = 'a.safetensors'", folder);
}

fn cifar_files() -> Vec<Vec<u8>> {
    vec![[&[3][..], &[100; 3072], &[9], &[200; 3072]].concat()]
}

fn read_cifar(input: &[u8], folder: &Path) {
    for number in 1..=5 {
        write(&folder.join(format!("data_batch_{number}.bin")), input);
    }
    open("type = 'cifar10'\nfolder = ''", folder);
}

fn images() -> Vec<Vec<u8>> {
    let image = RgbImage::from_fn(9, 7, |x, y| image::Rgb([x, y, 7].map(|value| u8::try_from(value * 20).unwrap())));
    [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Bmp].map(|format| encoded(&image, format)).into()
}

fn encoded(image: &RgbImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn read_image(input: &[u8], folder: &Path) {
    let class = folder.join("images/a");
    fs::create_dir_all(&class).unwrap();
    let ending = match input.first() {
        Some(0xff) => "jpg",
        Some(b'B') => "bmp",
        _ => "png",
    };
    let path = class.join(format!("a.{ending}"));
    write(&path, input);
    open("type = 'image_folder'\ntrain = 'images'\nheight = 4\nwidth = 4", folder);
    fs::remove_file(path).unwrap();
}

/// Packets as bytes: for each, how many words, the words, how many arrays, and each array with its length.
fn packed(packets: &[Packet]) -> Vec<u8> {
    let mut words = Vec::new();
    for packet in packets {
        words.push(u32::try_from(packet.words.len()).unwrap());
        words.extend(&packet.words);
        words.push(u32::try_from(packet.arrays.len()).unwrap());
        for array in &packet.arrays {
            words.push(u32::try_from(array.len()).unwrap());
            words.extend(array.iter().map(|value| value.to_bits()));
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The packets of an input, as far as it goes.
fn unpacked(input: &[u8]) -> Vec<Packet> {
    let mut words = input.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let mut packets = Vec::new();
    while let Some(n_words) = words.next() {
        let mut packet = Packet { words: words.by_ref().take(n_words as usize).collect(), arrays: Vec::new() };
        for _ in 0..words.next().unwrap_or(0).min(8) {
            let length = words.next().unwrap_or(0) as usize;
            packet.arrays.push(words.by_ref().take(length).map(f32::from_bits).collect());
        }
        packets.push(packet);
    }
    packets
}

/// The two ends of a link.
fn link() -> (LinkEnd, LinkEnd) {
    let (there, far) = async_channel::unbounded();
    let (back, here) = async_channel::unbounded();
    (LinkEnd { there, here }, LinkEnd { there: back, here: far })
}

/// Loads a plan, writes its parameters, and runs each pass.
fn whole_requests() -> Vec<Packet> {
    let model = small();
    let objective = Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::adam(1e-3));
    let plan = Arc::new(model.plan(&objective).unwrap());
    let (near, far) = link();
    let (events, _messages) = async_channel::unbounded();
    let runtime = Joined::default();
    let handle = remote::connect(&cpu::info(), ActorId::default(), &runtime, events, near);
    let send = |request| handle.requests.try_send(request).unwrap();
    send(Request::Load { plan, capacity: 4 });
    for (segment, values) in (0..).zip(&model.weights.parameters) {
        send(Request::Write { role: Role::Parameters(segment), offset: 0, data: Arc::from(values.as_slice()) });
    }
    for (slot, pass) in (0..).zip([Pass::Train, Pass::Evaluate, Pass::Predict]) {
        let scalars = Scalars { rows: 2, batch_rows: 2, loss_scales: vec![0.5], ..Scalars::default() };
        let feeds = vec![
            (Role::Input(0), vec![0.1; 128].into()),
            (Role::Target(0), vec![1.0; 2].into()),
            (Role::SampleWeight(0), vec![1.0; 2].into()),
        ];
        let ticket = Ticket { step: 0, attempt: 0, slot };
        send(Request::Run(Run { ticket, pass, scalars, feeds, combining: Combining::Device }));
    }
    send(Request::Read(Role::Parameters(0)));
    handle.requests.close();
    let packets = std::iter::from_fn(|| far.here.recv_blocking().ok()).collect();
    drop(far);
    runtime.join();
    packets
}

fn requests() -> Vec<Vec<u8>> {
    let whole = whole_requests();
    vec![packed(&whole), packed(&whole[..1])]
}

/// The system's runtime, whose actors are waited for.
#[derive(Default)]
struct Joined(Mutex<Vec<JoinHandle<()>>>);

impl Runtime for Joined {
    fn now_ms(&self) -> f64 {
        Native.now_ms()
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Native.sleep(ms)
    }

    fn spawn(&self, _: &str, actor: Box<dyn FnOnce() -> LocalTask + Send>) {
        self.0.lock().unwrap().push(std::thread::spawn(|| pollster::block_on(actor())));
    }
}

impl Joined {
    fn join(&self) {
        for actor in self.0.lock().unwrap().drain(..) {
            actor.join().unwrap();
        }
    }
}

/// An adapter serves all requests of an input.
fn serve_requests(input: &[u8], _: &Path) {
    let (near, far) = link();
    for packet in unpacked(input) {
        near.there.try_send(packet).unwrap();
    }
    near.there.close();
    let runtime = Arc::new(Joined::default());
    pollster::block_on(remote::serve(runtime.clone(), far, FAMILIES));
    runtime.join();
}

/// What an adapter answers to [`whole_requests`], up to the parameters that the last one reads.
fn events() -> Vec<Vec<u8>> {
    let (near, far) = link();
    let runtime = Arc::new(Joined::default());
    let served = runtime.clone();
    let server = std::thread::spawn(move || pollster::block_on(remote::serve(served, far, FAMILIES)));
    for packet in whole_requests() {
        near.there.try_send(packet).unwrap();
    }
    let answers: Vec<Packet> = std::iter::from_fn(|| near.here.recv_blocking().ok()).take(5).collect();
    near.there.close();
    server.join().unwrap();
    runtime.join();
    vec![packed(&answers)]
}

fn take_events(input: &[u8], _: &Path) {
    let (near, far) = link();
    let (events, messages) = async_channel::unbounded();
    let runtime = Joined::default();
    let handle = remote::connect(&cpu::info(), ActorId::default(), &runtime, events, near);
    for packet in unpacked(input) {
        // An adapter that is lost takes no more.
        drop(far.there.try_send(packet));
    }
    drop(far);
    let last = std::iter::from_fn(|| messages.recv_blocking().ok()).last();
    let is_lost = |message: &Message| matches!(message.event, Event::Failed { fault: Fault::Lost(_), .. });
    assert!(last.as_ref().is_some_and(is_lost), "an adapter whose link is cut ends lost, but told {last:?}");
    drop(handle);
    runtime.join();
}
