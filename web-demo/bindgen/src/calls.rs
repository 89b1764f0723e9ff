//! Calls of a wasm module's functions, noted, and hashes of their names that the next build has, too.

use walrus::ir::{Const, GlobalSet, Value};
use walrus::{ConstExpr, FunctionId, Module, ValType};

/// Gives each function an exported global `NUMBER HASH SIZE`, which is 0 until the function is called and 1 afterwards. The size is in instructions.
pub fn note(module: &mut Module) {
    let functions: Vec<(FunctionId, u64)> =
        module.funcs.iter_local().map(|(id, function)| (id, function.size())).collect();
    for (number, (id, size)) in functions.into_iter().enumerate() {
        let function = module.funcs.get_mut(id);
        let Some(name) = &function.name else { continue };
        let name = format!("{number} {} {size}", of_name(name));
        let global = module.globals.add_local(ValType::I32, true, false, ConstExpr::Value(Value::I32(0)));
        module.exports.add(&name, global);
        let function = function.kind.unwrap_local_mut();
        let entry = function.entry_block();
        let mut body = function.builder_mut().instr_seq(entry);
        body.instr_at(0, Const { value: Value::I32(1) }).instr_at(1, GlobalSet { global });
    }
}

/// A hash of a function's name, without what another version of a crate changes. Names themselves would be half a megabyte. If two
/// have the same hash, one more function is in the wrong file, and is found there.
pub fn of_name(name: &str) -> String {
    hash(plain(name).as_bytes())
}

/// FNV-1a of 32 bits, as eight digits.
pub fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// A name without the digits in brackets that follow those of crates: `manyhands[c278ab3c7fc43d61]::adapters`.
fn plain(name: &str) -> String {
    let mut parts = name.split('[');
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.split_once(']') {
            Some((digits, rest)) if digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                plain.push_str(rest)
            }
            _ => {
                plain.push('[');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{hash, plain};

    #[test]
    fn a_name_has_no_digits_of_crates() {
        assert_eq!(
            plain("<core[fafa5420d26920c8]::a<[u8; 4]> as b[c278ab3c7fc43d61]::c>"),
            "<core::a<[u8; 4]> as b::c>"
        );
    }

    // Of the algorithm's own test vectors.
    #[test]
    fn hashes_are_those_of_fnv() {
        assert_eq!(hash(b"a"), "e40c292c");
        assert_eq!(hash(b"foobar"), "bf9cf968");
    }
}
