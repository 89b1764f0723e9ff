//! Is each physical card listed once, and does a choice name what a person means? On recorded lists.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test prints and panics")]

use manyhands::adapters::{Info, Kind, list};
use manyhands_engine::adapters::list::{FXC, Raw, System, choose, deduplicate, sort};

const INTEL: u32 = 0x8086;
const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;
const MESA: u32 = 0x1_0005;
const MICROSOFT: u32 = 0x1414;

fn info(backend: &str, kind: Kind, name: &str, vendor: u32, device: u32, bus_id: &str) -> Info {
    let (name, backend, bus_id) = (name.into(), backend.into(), bus_id.into());
    Info { index: 0, name, kind, backend, driver: String::new(), vendor, device, bus_id }
}

/// `backend name bus`, sorted as users see it, of a raw list.
fn listed(raw: &[Info], system: System) -> Vec<String> {
    let raw = raw.iter().cloned().enumerate().map(|(position, info)| Raw { info, position }).collect();
    let infos = sort(deduplicate(raw, system).into_iter().map(|raw| raw.info).collect());
    assert!(infos.iter().enumerate().all(|(index, info)| info.index == index));
    infos.iter().map(|info| format!("{} {} {}", info.backend, info.name, info.bus_id).trim().to_owned()).collect()
}

fn laptop() -> Vec<Info> {
    let nvidia = "NVIDIA GeForce RTX 3060 Laptop GPU";
    let intel = "Intel(R) Iris(R) Xe Graphics";
    vec![
        info("vulkan", Kind::DiscreteGpu, nvidia, NVIDIA, 0x2520, "0000:01:00.0"),
        info("vulkan", Kind::IntegratedGpu, intel, INTEL, 0x9a49, "0000:00:02.0"),
        info("dx12", Kind::IntegratedGpu, intel, INTEL, 0x9a49, "0000:00:02.0"),
        info("dx12", Kind::DiscreteGpu, nvidia, NVIDIA, 0x2520, "0000:01:00.0"),
        info("dx12", Kind::Software, "Microsoft Basic Render Driver", MICROSOFT, 0x8c, ""),
        info("gl", Kind::VirtualGpu, "Intel(R) Iris(R) Xe Graphics", INTEL, 0, ""),
    ]
}

#[test]
fn a_laptop_with_two_gpus_on_windows() {
    let expected = [
        "dx12 NVIDIA GeForce RTX 3060 Laptop GPU 0000:01:00.0",
        "dx12 Intel(R) Iris(R) Xe Graphics 0000:00:02.0",
        "dx12 Microsoft Basic Render Driver",
    ];
    assert_eq!(listed(&laptop(), System::Windows), expected);
}

#[test]
fn the_order_of_enumeration_does_not_matter() {
    let expected = listed(&laptop(), System::Windows);
    let mut turned = laptop();
    for _ in 0..turned.len() {
        turned.rotate_left(1);
        assert_eq!(listed(&turned, System::Windows), expected);
    }
}

#[test]
fn two_identical_cards_are_two() {
    let name = "NVIDIA GeForce RTX 4090";
    let card = |backend, bus| info(backend, Kind::DiscreteGpu, name, NVIDIA, 0x2684, bus);
    // DX12 finds the bus id by vendor and device: that of the first card, for both.
    let windows = [
        card("dx12", "0000:01:00.0"),
        card("dx12", "0000:01:00.0"),
        card("vulkan", "0000:01:00.0"),
        card("vulkan", "0000:02:00.0"),
        info("gl", Kind::VirtualGpu, "NVIDIA GeForce RTX 4090/PCIe/SSE2", NVIDIA, 0, ""),
    ];
    assert_eq!(listed(&windows, System::Windows), ["dx12 NVIDIA GeForce RTX 4090 0000:01:00.0"; 2]);
    let expected = ["vulkan NVIDIA GeForce RTX 4090 0000:01:00.0", "vulkan NVIDIA GeForce RTX 4090 0000:02:00.0"];
    assert_eq!(listed(&windows[2..], System::Linux), expected);
    // A third that only Vulkan shows.
    let third = [windows.to_vec(), vec![card("vulkan", "0000:03:00.0")]].concat();
    assert_eq!(listed(&third, System::Windows).len(), 3);
}

#[test]
fn a_desktop_of_amd_and_nvidia() {
    let cards = [
        info("vulkan", Kind::DiscreteGpu, "AMD Radeon RX 6800 (RADV NAVI21)", AMD, 0x73bf, "0000:03:00.0"),
        info("vulkan", Kind::DiscreteGpu, "NVIDIA GeForce RTX 3080", NVIDIA, 0x2206, "0000:0b:00.0"),
        info("vulkan", Kind::Software, "llvmpipe (LLVM 17.0.6, 256 bits)", MESA, 0, ""),
        info("gl", Kind::VirtualGpu, "AMD Radeon RX 6800 (radeonsi, navi21)", AMD, 0, ""),
    ];
    let expected = [
        "vulkan AMD Radeon RX 6800 (RADV NAVI21) 0000:03:00.0",
        "vulkan NVIDIA GeForce RTX 3080 0000:0b:00.0",
        "vulkan llvmpipe (LLVM 17.0.6, 256 bits)",
    ];
    assert_eq!(listed(&cards, System::Linux), expected);
}

#[test]
fn a_desktop_of_amd_and_nvidia_on_windows() {
    let (radeon, geforce) = ("AMD Radeon RX 6800", "NVIDIA GeForce RTX 3080");
    let amd = |backend, name| info(backend, Kind::DiscreteGpu, name, AMD, 0x73bf, "0000:03:00.0");
    let nvidia = |backend, name| info(backend, Kind::DiscreteGpu, name, NVIDIA, 0x2206, "0000:0b:00.0");
    let cards = [
        nvidia("vulkan", geforce),
        amd("vulkan", radeon),
        amd("dx12", radeon),
        nvidia("dx12", geforce),
        // The processor's own graphics, which AMD's desktop chips have.
        info("vulkan", Kind::IntegratedGpu, "AMD Radeon(TM) Graphics", AMD, 0x164e, "0000:10:00.0"),
        info("dx12", Kind::IntegratedGpu, "AMD Radeon(TM) Graphics", AMD, 0x164e, "0000:10:00.0"),
        info("dx12", Kind::Software, "Microsoft Basic Render Driver", MICROSOFT, 0x8c, ""),
        info("gl", Kind::VirtualGpu, "NVIDIA GeForce RTX 3080/PCIe/SSE2", NVIDIA, 0, ""),
    ];
    let expected = [
        "dx12 AMD Radeon RX 6800 0000:03:00.0",
        "dx12 NVIDIA GeForce RTX 3080 0000:0b:00.0",
        "dx12 AMD Radeon(TM) Graphics 0000:10:00.0",
        "dx12 Microsoft Basic Render Driver",
    ];
    assert_eq!(listed(&cards, System::Windows), expected);
}

/// The list where DX12 has the old compiler alone.
fn with_fxc(mut cards: Vec<Info>) -> Vec<Info> {
    for card in cards.iter_mut().filter(|card| card.backend == "dx12") {
        card.driver = format!("31.0.15.5222 {FXC}");
    }
    cards
}

#[test]
fn vulkan_goes_before_the_old_compiler() {
    let expected = [
        "vulkan NVIDIA GeForce RTX 3060 Laptop GPU 0000:01:00.0",
        "vulkan Intel(R) Iris(R) Xe Graphics 0000:00:02.0",
        "dx12 Microsoft Basic Render Driver",
    ];
    assert_eq!(listed(&with_fxc(laptop()), System::Windows), expected);
    // Without Vulkan drivers DX12 is taken as it is, and GL is not.
    let no_vulkan = laptop().into_iter().filter(|card| card.backend != "vulkan").collect();
    let expected = expected.map(|card| card.replace("vulkan", "dx12"));
    assert_eq!(listed(&with_fxc(no_vulkan), System::Windows), expected);
    // Identical cards: DX12 says the first one's bus id of both, Vulkan tells them apart.
    let card = |backend, bus| info(backend, Kind::DiscreteGpu, "NVIDIA GeForce RTX 4090", NVIDIA, 0x2684, bus);
    let (first, second) = ("0000:01:00.0", "0000:02:00.0");
    let twins = vec![card("dx12", first), card("dx12", first), card("vulkan", first), card("vulkan", second)];
    let expected = [first, second].map(|bus| format!("vulkan NVIDIA GeForce RTX 4090 {bus}"));
    assert_eq!(listed(&with_fxc(twins), System::Windows), expected);
}

#[test]
fn a_laptop_uses_both_gpus_and_no_software() {
    for cards in [laptop(), with_fxc(laptop())] {
        let raw = cards.into_iter().enumerate().map(|(position, info)| Raw { info, position }).collect();
        let cpu = info("host", Kind::Cpu, "CPU (8 threads)", 0, 0, "");
        let cards = deduplicate(raw, System::Windows).into_iter().map(|raw| raw.info);
        let list = sort(cards.chain([cpu]).collect());
        let kinds = |wanted| choose(&list, wanted).unwrap().iter().map(|info| info.kind).collect::<Vec<_>>();
        assert_eq!(kinds(""), [Kind::DiscreteGpu, Kind::IntegratedGpu]);
        assert_eq!(kinds("discrete"), [Kind::DiscreteGpu]);
        assert_eq!(kinds("all,cpu"), [Kind::DiscreteGpu, Kind::IntegratedGpu, Kind::Cpu]);
    }
}

#[test]
fn two_drivers_of_one_card_are_one() {
    let driver = |driver: &str, name| Info {
        driver: driver.into(),
        ..info("vulkan", Kind::DiscreteGpu, name, AMD, 0x73bf, "0000:03:00.0")
    };
    let both = [driver("radv", "AMD Radeon RX 6800 (RADV NAVI21)"), driver("AMDVLK", "AMD Radeon RX 6800")];
    assert_eq!(listed(&both, System::Linux), ["vulkan AMD Radeon RX 6800 (RADV NAVI21) 0000:03:00.0"]);
}

#[test]
fn a_card_through_dozen_is_the_card() {
    let name = "Microsoft Direct3D12 (NVIDIA GeForce RTX 3080)";
    let cards = [
        info("vulkan", Kind::DiscreteGpu, name, NVIDIA, 0x2206, ""),
        info("vulkan", Kind::DiscreteGpu, "NVIDIA GeForce RTX 3080", NVIDIA, 0x2206, "0000:0b:00.0"),
    ];
    assert_eq!(listed(&cards, System::Windows), ["vulkan NVIDIA GeForce RTX 3080 0000:0b:00.0"]);
    assert_eq!(listed(&cards[..1], System::Linux), ["vulkan Microsoft Direct3D12 (NVIDIA GeForce RTX 3080)"]);
}

#[test]
fn a_mac_has_one_gpu() {
    let cards = [
        info("metal", Kind::IntegratedGpu, "Apple M2 Pro", 0, 0, ""),
        info("vulkan", Kind::IntegratedGpu, "Apple M2 Pro", 0, 0, ""),
    ];
    assert_eq!(listed(&cards, System::Mac), ["metal Apple M2 Pro"]);
    assert_eq!(listed(&cards[..1], System::Mac), ["metal Apple M2 Pro"]);
}

#[test]
fn software_alone() {
    let warp = info("dx12", Kind::Software, "Microsoft Basic Render Driver", MICROSOFT, 0x8c, "");
    assert_eq!(listed(&[warp], System::Windows), ["dx12 Microsoft Basic Render Driver"]);
    let name = "llvmpipe (LLVM 15.0.6, 256 bits)";
    let both = [info("vulkan", Kind::Software, name, MESA, 0, ""), info("gl", Kind::Software, name, MESA, 0, "")];
    assert_eq!(listed(&both, System::Linux), ["vulkan llvmpipe (LLVM 15.0.6, 256 bits)"]);
    assert_eq!(listed(&both[1..], System::Linux), ["gl llvmpipe (LLVM 15.0.6, 256 bits)"]);
    for system in [System::Windows, System::Linux, System::Mac] {
        assert!(listed(&[], system).is_empty());
    }
}

#[test]
fn gl_stays_where_nothing_else_shows_its_vendor() {
    let old = [
        info("gl", Kind::VirtualGpu, "AMD Radeon HD 7450", AMD, 0, ""),
        info("vulkan", Kind::Software, "llvmpipe (LLVM 15.0.6, 256 bits)", MESA, 0, ""),
    ];
    assert_eq!(listed(&old, System::Linux).len(), 2);
}

fn rig() -> Vec<Info> {
    sort(vec![
        info("vulkan", Kind::Software, "llvmpipe (LLVM 15.0.6, 256 bits)", MESA, 0, ""),
        info("host", Kind::Cpu, "CPU (8 threads)", 0, 0, ""),
        info("vulkan", Kind::IntegratedGpu, "Intel(R) UHD Graphics", INTEL, 1, "0000:00:02.0"),
        info("vulkan", Kind::DiscreteGpu, "NVIDIA GeForce RTX 3080", NVIDIA, 2, "0000:0b:00.0"),
        info("vulkan", Kind::DiscreteGpu, "AMD Radeon RX 6800", AMD, 3, "0000:03:00.0"),
    ])
}

fn chosen(wanted: &str) -> Vec<usize> {
    choose(&rig(), wanted).unwrap().iter().map(|info| info.index).collect()
}

#[test]
fn choices() {
    for (wanted, expected) in [
        ("", &[0, 1, 2][..]),
        ("all", &[0, 1, 2]),
        ("gpu", &[0, 1, 2]),
        ("discrete", &[0, 1]),
        ("integrated", &[2]),
        ("cpu", &[3]),
        ("software", &[4]),
        ("all,cpu", &[0, 1, 2, 3]),
        ("1", &[1]),
        ("2, 0", &[2, 0]),
        ("0,0", &[0, 0]),
        ("nvidia", &[1]),
        ("3080", &[1]),
        ("LLVMpipe,Radeon", &[4, 0]),
    ] {
        assert_eq!(chosen(wanted), expected, "`{wanted}`");
    }
}

#[test]
fn without_a_gpu_all_and_the_default_are_the_cpu() {
    let list = sort(rig().split_off(3));
    for wanted in [" ", "all", "ALL", "all,all"] {
        let names: Vec<String> = choose(&list, wanted).unwrap().into_iter().map(|info| info.name).collect();
        assert_eq!(names, ["CPU (8 threads)"], "`{wanted}`");
    }
}

#[test]
fn an_unknown_adapter_is_an_error_with_the_list() {
    let list = sort(rig().split_off(3));
    let text = |wanted| choose(&list, wanted).unwrap_err().to_string();
    let help = "\n  help: give indices, name parts, `discrete`, `integrated`, `cpu`, `software`, `gpu` (every GPU) or `all` \
                (every GPU, or the CPU where there is none), with commas; this machine has \
                `CPU (8 threads)` (index 0), `llvmpipe (LLVM 15.0.6, 256 bits)` (index 1)";
    assert_eq!(text("0,radeon"), format!("the choice of adapters names no adapter of this machine: `radeon`{help}"));
    assert_eq!(text("7"), format!("the choice of adapters names no adapter of this machine: `7`{help}"));
    assert_eq!(text("gpu"), format!("the choice of adapters names no adapter of this machine: `gpu`{help}"));
    assert_eq!(text("0,,1"), format!("the choice of adapters has an empty item{help}"));
}

#[test]
fn the_cpu_adapter_is_always_there() {
    let list = list();
    assert_eq!(list.iter().filter(|info| info.kind == Kind::Cpu).count(), 1);
    assert!(list.iter().enumerate().all(|(index, info)| info.index == index));
    for info in &list {
        println!(
            "{} {:?} {} {} {:x}:{:x} {}",
            info.index, info.kind, info.backend, info.name, info.vendor, info.device, info.driver
        );
    }
}

#[test]
fn a_group_that_names_nothing_leaves_the_others() {
    let list = sort(rig().split_off(3));
    let names = |wanted| choose(&list, wanted).unwrap().into_iter().map(|info| info.name).collect::<Vec<_>>();
    assert_eq!(names("all,cpu"), ["CPU (8 threads)"]);
    assert_eq!(names("cpu, discrete"), ["CPU (8 threads)"]);
    assert_eq!(names("software,all"), ["llvmpipe (LLVM 15.0.6, 256 bits)", "CPU (8 threads)"]);
}
