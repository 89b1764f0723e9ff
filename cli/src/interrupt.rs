//! Signals that end a run early: Ctrl-C, and on Unix also `kill` and a closed terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use manyhands::{Error, Result};

use super::terminal::Terminal;

/// Ends a run after the current step when a signal comes. A second signal ends the program at once.
#[derive(Clone)]
pub struct Interrupt {
    /// The exit status of a program that the signal ended; 0 if none came.
    status: Arc<AtomicI32>,
    /// Holds the handler of the signals, until the last copy of this is dropped.
    _caught: Arc<system::Caught>,
}

impl Interrupt {
    /// Catches the signals from now on; one that comes sets `stop`.
    pub fn catch(stop: Arc<AtomicBool>, terminal: &Terminal) -> Result<Self> {
        let status = Arc::new(AtomicI32::new(0));
        let (came_with, terminal) = (status.clone(), terminal.clone());
        let caught = system::catch(move |status| {
            came_with.store(status, Ordering::Relaxed);
            came(status, &stop, &terminal);
        });
        let caught = caught.map_err(|error| {
            Error::setting("Ctrl-C", format!("can't be caught: {error}"), "run this from another shell")
        })?;
        Ok(Self { status, _caught: Arc::new(caught) })
    }

    /// The exit status of the program; `None` if no signal came.
    pub fn status(&self) -> Option<i32> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status != 0)
    }
}

fn came(status: i32, stop: &AtomicBool, terminal: &Terminal) {
    if stop.swap(true, Ordering::Relaxed) {
        std::process::exit(status);
    }
    terminal.note("finishing this step, then saving; Ctrl-C again ends at once");
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::process::{Command, Stdio};

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::{Handle, Signals};

    /// A shell's exit status of a program that signal `n` ended is 128 + n.
    const BY_SIGNAL: i32 = 128;

    /// A thread and its pipe, which end when this is dropped: a program may run several commands.
    pub struct Caught(Handle);

    impl Drop for Caught {
        fn drop(&mut self) {
            self.0.close();
        }
    }

    /// Calls a function with the exit status of each signal that comes. A signal that the program inherited as
    /// ignored stays ignored: `nohup` does so with the hang-up of a terminal that closes.
    #[allow(
        clippy::disallowed_methods,
        reason = "the command is no part of a page, and its library need not know of signals"
    )]
    pub fn catch(came: impl Fn(i32) + Send + 'static) -> io::Result<Caught> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)))?;
        let caught = Caught(signals.handle());
        let wait = move || signals.forever().for_each(|signal| came(BY_SIGNAL + signal));
        std::thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(caught)
    }

    /// Whether this process is to ignore a signal. To ask the system itself takes unsafe code: Linux also says it in a file;
    /// elsewhere a child inherits it, and shows it by its survival.
    fn is_ignored(signal: i32) -> bool {
        if let Some(ignored) = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| ignored(&text)) {
            return ignored >> (signal - 1) & 1 == 1;
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("kill -{signal} $$")]);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().is_ok_and(|status| status.success())
    }

    /// The bits of the ignored signals in `/proc/self/status`. Source: proc(5).
    fn ignored(status: &str) -> Option<u64> {
        let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(bits.trim(), 16).ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn ignored_signals_are_those_of_the_status() {
            let text =
                "Name:\tmanyhands\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
            assert_eq!((ignored(text), ignored("Name:\tmanyhands\n")), (Some(0x1001), None));
            assert!(!is_ignored(SIGTERM));
        }
    }
}

#[cfg(windows)]
mod system {
    /// `STATUS_CONTROL_C_EXIT`, by which Windows says that Ctrl-C ended a program.
    const BY_CTRL_C: i32 = 0xC000_013A_u32.cast_signed();

    /// The handler stays for as long as the program: `ctrlc` has no way to take it back.
    pub struct Caught;

    /// Calls a function with the exit status each time that Ctrl-C or Ctrl-Break comes.
    pub fn catch(came: impl Fn(i32) + Send + 'static) -> Result<Caught, ctrlc::Error> {
        ctrlc::set_handler(move || came(BY_CTRL_C)).map(|()| Caught)
    }
}
