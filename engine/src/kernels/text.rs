//! The texts of kernels, as they stand in `shaders/`; in a page, without what only people read.

/// The text of a file in `shaders/`, by its name without `.wgsl`.
macro_rules! wgsl {
    ($stem:literal) => {{
        const TEXT: &str = include_str!(concat!("../../shaders/", $stem, ".wgsl"));
        #[cfg(not(target_arch = "wasm32"))]
        let text = TEXT;
        #[cfg(target_arch = "wasm32")]
        let text = {
            const LEN: usize = $crate::kernels::text::bare::<0>(TEXT).1;
            const BARE: [u8; LEN] = $crate::kernels::text::bare::<LEN>(TEXT).0;
            const { $crate::kernels::text::as_text(&BARE) }
        };
        text
    }};
}
pub(super) use wgsl;

/// A text's bytes without comments, indentation and empty lines, and how many that are. Bytes past `N` are not kept.
///
/// WGSL has no literal that could hold `//`; the files hold no `/*`.
#[cfg(any(target_arch = "wasm32", test))]
pub(super) const fn bare<const N: usize>(text: &str) -> ([u8; N], usize) {
    let text = text.as_bytes();
    let (mut kept, mut len, mut last) = ([0; N], 0, b'\n');
    let mut at = 0;
    while at < text.len() {
        let is_comment = text[at] == b'/' && at + 1 < text.len() && text[at + 1] == b'/';
        if is_comment {
            while at < text.len() && text[at] != b'\n' {
                at += 1;
            }
            continue;
        }
        let byte = text[at];
        at += 1;
        if last == b'\n' && (byte == b' ' || byte == b'\n') {
            continue;
        }
        if len < N {
            kept[len] = byte;
        }
        len += 1;
        last = byte;
    }
    (kept, len)
}

/// The text of bytes that were a text.
#[cfg(any(target_arch = "wasm32", test))]
pub(super) const fn as_text(bytes: &[u8]) -> &str {
    match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("whole characters are left out, so a text stays one"),
    }
}

#[cfg(test)]
mod tests {
    use super::{as_text, bare};

    #[test]
    fn what_is_left_is_what_a_compiler_reads() {
        const TEXT: &str = "// Title, with an ä.\n\nfn f() {\n    return a / b; // half\n}\n    // end";
        const LEN: usize = bare::<0>(TEXT).1;
        assert_eq!(as_text(&bare::<LEN>(TEXT).0), "fn f() {\nreturn a / b; \n}\n");
    }
}
