//! Silences drivers that print.

/// Restarts the program without the part of Mesa that prints.
///
/// Mesa's Vulkan layer that chooses among devices looks for the one of the desktop. Where there is no desktop, Wayland's
/// library prints an error for each search. All devices are listed here, so the layer has nothing to choose. It can be
/// switched off by the environment alone, which a running program can't change safely.
#[cfg(target_os = "linux")]
pub fn silence() {
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;
    use std::{env, io};

    const LAYER_IS_OFF: &str = "NODEVICE_SELECT";
    let has_desktop = env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).is_absolute());
    if has_desktop || env::var_os(LAYER_IS_OFF).is_some() {
        return;
    }
    let mut arguments = env::args_os();
    let Some((name, program)) = arguments.next().zip(env::current_exe().ok()) else { return };
    let error: io::Error = Command::new(program).arg0(name).args(arguments).env(LAYER_IS_OFF, "1").exec();
    log::debug!("the program could not be started anew: {error}");
}

/// Elsewhere drivers are quiet.
#[cfg(not(target_os = "linux"))]
pub fn silence() {}
