//! Facts from the operating system: memory, and the limits after which it resets a driver.

use std::fs;
use std::process::{Command, Stdio};

use super::facts::Reset;
use manyhands::adapters::Info;

/// The registry's key of the limits of Windows.
const TDR_KEY: &str = r"HKLM\SYSTEM\CurrentControlSet\Control\GraphicsDrivers";
/// Seconds that Windows waits where the key has no value.
const TDR_SECONDS: f64 = 2.0;

/// Bytes of main memory, and those that are free, where the system says.
pub fn memory() -> (Option<u64>, Option<u64>) {
    if cfg!(target_os = "macos") {
        let total = output("sysctl", &["-n", "hw.memsize"]).and_then(|text| text.trim().parse().ok());
        return (total, None);
    }
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    (line_of(&text, "MemTotal:"), line_of(&text, "MemAvailable:"))
}

/// Bytes of a line of `/proc/meminfo`.
fn line_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes of a card's own memory, where its driver says.
pub fn memory_of(info: &Info) -> Option<u64> {
    // Of AMD's cards under Linux.
    let of = |file: &str| fs::read_to_string(format!("/sys/bus/pci/devices/{}/{file}", info.bus_id)).ok();
    of("mem_info_vram_total")?.trim().parse().ok()
}

/// Limits after which the system resets a driver, where they can be known.
pub fn resets() -> Vec<Reset> {
    if cfg!(windows) {
        return vec![of_windows(&output("reg", &["query", TDR_KEY]).unwrap_or_default())];
    }
    let amd = fs::read_to_string("/sys/module/amdgpu/parameters/lockup_timeout").ok();
    amd.and_then(|text| of_amdgpu(&text)).into_iter().collect()
}

/// The limit of Windows, from the output of `reg query`.
fn of_windows(text: &str) -> Reset {
    let value = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        u32::from_str_radix(line.split_whitespace().last()?.strip_prefix("0x")?, 16).ok()
    };
    let is_off = value("TdrLevel") == Some(0);
    let seconds = value("TdrDelay").map_or(TDR_SECONDS, f64::from);
    Reset { name: format!(r"{TDR_KEY}\TdrDelay"), seconds: (!is_off).then_some(seconds) }
}

/// The limit of AMD's driver for compute work: milliseconds for graphics, compute and more. Without a value it has none.
fn of_amdgpu(text: &str) -> Option<Reset> {
    let times: Vec<f64> = text.trim().split(',').filter_map(|time| time.parse().ok()).collect();
    let ms = *times.get(1).or(times.first())?;
    (ms != 0.0).then(|| Reset { name: "amdgpu.lockup_timeout".into(), seconds: (ms > 0.0).then_some(ms / 1e3) })
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kibibytes() {
        let text = "MemTotal:       32768000 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n";
        assert_eq!((line_of(text, "MemTotal:"), line_of(text, "MemAvailable:")), (Some(33_554_432_000), Some(1 << 20)));
        assert_eq!(line_of(text, "Swap:"), None);
    }

    #[test]
    fn limits_of_resets_are_read() {
        let text = "\r\nHKEY_LOCAL_MACHINE\\SYSTEM\\CurrentControlSet\\Control\\GraphicsDrivers\r\n    \
                    TdrDelay    REG_DWORD    0x3c\r\n    TdrDdiDelay    REG_DWORD    0x5\r\n";
        assert_eq!(of_windows(text).seconds, Some(60.0));
        assert_eq!(of_windows("").seconds, Some(2.0));
        assert_eq!(of_windows("    TdrLevel    REG_DWORD    0x0\r\n").seconds, None);
        let seconds = |text: &str| of_amdgpu(text).map(|reset| reset.seconds);
        assert_eq!(seconds("10000,60000,10000,10000\n"), Some(Some(60.0)));
        assert_eq!(
            (seconds("5000\n"), seconds("-1\n"), seconds("\n"), seconds("0\n")),
            (Some(Some(5.0)), Some(None), None, None)
        );
    }
}
