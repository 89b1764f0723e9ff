//! A wasm module in two files: the second holds functions that are not needed at first, and is loaded when one of them is called.

use std::collections::HashSet;

use anyhow::{Context, Result};
use walrus::ir::Value;
use walrus::passes::gc;
use walrus::{
    ConstExpr, Data, Element, ElementItems, ElementKind, Export, ExportId, ExportItem, FunctionBuilder, FunctionId,
    FunctionKind, GlobalId, GlobalKind, ImportedFunction, LocalId, MemoryId, Module, RefType, TableId,
};

use crate::calls::of_name;

/// The first file imports `later.load`, which links the second one to it.
const LATER: &str = "later";
/// The module of the second file's imports.
const FIRST: &str = "first";

/// An item of the second copy of a module, in the place of one of the first.
enum Counterpart {
    Memory(MemoryId),
    Table(TableId),
    Global(GlobalId),
    Function(FunctionId),
}

/// Both files.
pub struct Parts {
    pub first: Module,
    pub later: Module,
    /// Functions that are called through the table.
    pub n_moved: usize,
}

/// Splits a module, of which two copies are given, by hashes of functions' names. Such a function is called through a table, which the
/// second file fills: what stands in its place in the first file looks whether it is there, and loads the second file if it is not.
/// What only such functions call moves with them. The table is exported by a name that no other build has, so that files of two builds do
/// not link.
pub fn split([mut first, mut later]: [Module; 2], hashes: &HashSet<&str>, table: &str) -> Result<Parts> {
    // Both were read from the same bytes: what is the n-th here is the n-th there.
    let functions: Vec<[FunctionId; 2]> =
        first.funcs.iter().zip(later.funcs.iter()).map(|(a, b)| [a.id(), b.id()]).collect();
    let is_moved = |id: FunctionId| {
        let function = first.funcs.get(id);
        matches!(function.kind, FunctionKind::Local(_))
            && function.name.as_ref().is_some_and(|name| hashes.contains(&*of_name(name)))
    };
    let (moved, others): (Vec<[FunctionId; 2]>, Vec<[FunctionId; 2]>) =
        functions.into_iter().partition(|[id, _]| is_moved(*id));

    let n_moved = moved.len();

    // All that the second file may import. What JavaScript gives goes through the first one, too.
    let memories =
        first.memories.iter().zip(later.memories.iter()).map(|(a, b)| (a.id().into(), Counterpart::Memory(b.id())));
    let tables = first.tables.iter().zip(later.tables.iter()).map(|(a, b)| (a.id().into(), Counterpart::Table(b.id())));
    let globals =
        first.globals.iter().zip(later.globals.iter()).map(|(a, b)| (a.id().into(), Counterpart::Global(b.id())));
    let shared: Vec<(ExportItem, Counterpart)> = memories
        .chain(tables)
        .chain(globals)
        .chain(others.into_iter().map(|[a, b]| (a.into(), Counterpart::Function(b))))
        .collect();

    let is_given = |item: &ExportItem| !matches!(item, ExportItem::Function(id) if matches!(first.funcs.get(*id).kind, FunctionKind::Local(_)));
    let given: Vec<ExportItem> = shared.iter().map(|(item, _)| *item).filter(is_given).collect();
    let kept: Vec<ExportId> = given.into_iter().map(|item| first.exports.add("", item)).collect();
    call_through_table(&mut first, table, &moved.iter().map(|[id, _]| *id).collect::<Vec<_>>())?;
    gc::run(&mut first);
    kept.into_iter().for_each(|id| first.exports.delete(id));

    empty(&mut later);
    let stays: HashSet<FunctionId> = first.funcs.iter().map(|function| function.id()).collect();
    let shared =
        shared.into_iter().filter(|(item, _)| !matches!(item, ExportItem::Function(id) if !stays.contains(id)));
    let shared: Vec<(String, ExportItem)> = shared
        .enumerate()
        .map(|(number, (item, counterpart))| {
            let name = number.to_string();
            import(&mut later, &name, counterpart);
            (name, item)
        })
        .collect();
    fill_table(&mut later, table, moved.into_iter().map(|[_, id]| id).collect());
    gc::run(&mut later);

    let needed: HashSet<&str> = later.imports.iter().map(|import| &*import.name).collect();
    for (name, item) in shared.into_iter().filter(|(name, _)| needed.contains(&**name)) {
        first.exports.add(&name, item);
    }
    gc::run(&mut first);
    Ok(Parts { first, later, n_moved })
}

/// Gives each function a body that calls what is at its place in a new table, and loads the second file if nothing is there.
fn call_through_table(module: &mut Module, name: &str, functions: &[FunctionId]) -> Result<()> {
    let table = module.tables.add_local(false, functions.len() as u64, Some(functions.len() as u64), RefType::FUNCREF);
    module.exports.add(name, table);
    let nothing = module.types.add(&[], &[]);
    let (load, _) = module.add_import_func(LATER, "load", nothing);
    for (slot, id) in functions.iter().enumerate() {
        let slot = i32::try_from(slot).context("too many functions")?;
        let ty = module.funcs.get(*id).ty();
        let (params, results) = module.types.params_results(ty);
        let (params, results) = (params.to_vec(), results.to_vec());
        let locals: Vec<LocalId> = params.iter().map(|ty| module.locals.add(*ty)).collect();
        let mut builder = FunctionBuilder::new(&mut module.types, &params, &results);
        let mut body = builder.func_body();
        body.i32_const(slot).table_get(table).ref_is_null().if_else(
            None,
            |then| {
                then.call(load);
            },
            |_| {},
        );
        for local in locals.iter().copied() {
            body.local_get(local);
        }
        body.i32_const(slot).call_indirect(ty, table);
        module.funcs.get_mut(*id).kind = FunctionKind::Local(builder.local_func(locals));
    }
    Ok(())
}

/// Leaves only the functions.
fn empty(module: &mut Module) {
    module.start = None;
    module.exports.iter().map(Export::id).collect::<Vec<_>>().into_iter().for_each(|id| module.exports.delete(id));
    module.elements.iter().map(Element::id).collect::<Vec<_>>().into_iter().for_each(|id| module.elements.delete(id));
    module.data.iter().map(Data::id).collect::<Vec<_>>().into_iter().for_each(|id| module.data.delete(id));
    module.tables.iter_mut().for_each(|table| table.elem_segments.clear());
    module.memories.iter_mut().for_each(|memory| memory.data_segments.clear());
}

/// Puts functions into the table of the first file.
fn fill_table(module: &mut Module, name: &str, functions: Vec<FunctionId>) {
    let size = functions.len() as u64;
    let (table, _) = module.add_import_table(FIRST, name, false, size, Some(size), RefType::FUNCREF);
    let kind = ElementKind::Active { table, offset: ConstExpr::Value(Value::I32(0)) };
    let id = module.elements.add(kind, ElementItems::Functions(functions));
    module.tables.get_mut(table).elem_segments.insert(id);
}

/// Makes an item one that the first file gives.
fn import(module: &mut Module, name: &str, item: Counterpart) {
    match item {
        Counterpart::Memory(id) => module.memories.get_mut(id).import = Some(module.imports.add(FIRST, name, id)),
        Counterpart::Table(id) => module.tables.get_mut(id).import = Some(module.imports.add(FIRST, name, id)),
        Counterpart::Global(id) => {
            module.globals.get_mut(id).kind = GlobalKind::Import(module.imports.add(FIRST, name, id))
        }
        Counterpart::Function(id) => {
            let function = module.funcs.get(id);
            let ty = function.ty();
            if let FunctionKind::Import(ImportedFunction { import, .. }) = &function.kind {
                module.imports.delete(*import);
            }
            let import = module.imports.add(FIRST, name, id);
            module.funcs.get_mut(id).kind = FunctionKind::Import(ImportedFunction { import, ty });
        }
    }
}
