//! Messages between processes as bytes: a status, then numbers or an error.

use crate::error::{Error, ErrorKind};

/// Status of a message of a process that goes on.
const FINE: u8 = 0;
/// Status of a message of a process that has failed.
const FAILED: u8 = 1;

/// The kinds of errors, each sent as its place in this list.
const KINDS: [ErrorKind; 11] = [
    ErrorKind::Model,
    ErrorKind::Data,
    ErrorKind::Setting,
    ErrorKind::Adapter,
    ErrorKind::AdapterLost,
    ErrorKind::OutOfMemory,
    ErrorKind::Unsupported,
    ErrorKind::Checkpoint,
    ErrorKind::NonFinite,
    ErrorKind::File,
    ErrorKind::Process,
];

/// A message of a process that goes on.
pub(super) fn fine(message: &[u8]) -> Vec<u8> {
    [&[FINE], message].concat()
}

/// The message of a process that has failed.
pub(super) fn failed(error: &Error) -> Vec<u8> {
    [&[FAILED], bytes_of_error(error).as_slice()].concat()
}

/// The contents of a message.
///
/// # Errors
/// That of the process, if it has failed.
pub(super) fn read(message: &[u8]) -> Result<&[u8], Error> {
    match message.split_first() {
        Some((&FINE, contents)) => Ok(contents),
        Some((_, contents)) => Err(error_in(contents).unwrap_or_else(unreadable)),
        None => Err(unreadable()),
    }
}

fn unreadable() -> Error {
    let help = "start all processes with the same version of the program";
    Error::new(ErrorKind::Process, "a message", "needs a status, but has none that is known", help)
}

/// An error as bytes.
pub(super) fn bytes_of_error(error: &Error) -> Vec<u8> {
    let place = KINDS.iter().position(|kind| *kind == error.kind()).unwrap_or_default();
    let kind = char::from(b'a' + u8::try_from(place).unwrap_or_default());
    [&kind.to_string(), error.who(), error.problem(), error.help()].join("\0").into_bytes()
}

/// The error in a message; `None` if there is none.
pub(super) fn error_in(message: &[u8]) -> Option<Error> {
    let text = String::from_utf8_lossy(message);
    let mut fields = text.split('\0');
    let place = fields.next()?.bytes().next()?.checked_sub(b'a')?;
    let kind = KINDS.get(usize::from(place)).copied()?;
    Some(Error::new(kind, fields.next()?, fields.next()?, fields.next()?))
}

/// Numbers as bytes.
pub(super) fn bytes_of(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The numbers in a message.
pub(super) fn numbers_in(message: &[u8]) -> Vec<f64> {
    message.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_errors_are_read_as_they_were_sent() {
        let numbers = [0.1, -0.0, f64::INFINITY, 1e-320];
        assert_eq!(numbers_in(read(&fine(&bytes_of(&numbers))).unwrap()), numbers);
        assert!(numbers_in(&bytes_of(&[f64::NAN]))[0].is_nan());
        for kind in KINDS {
            let sent = Error::new(kind, "layer 0 `größe`", "needs ü, but has\nnone", "help");
            let told = read(&failed(&sent)).unwrap_err();
            assert_eq!((told.kind(), told.to_string()), (kind, sent.to_string()));
        }
        assert!(error_in(&[]).is_none() && read(&[]).is_err() && read(&[7, 0]).is_err());
    }
}
