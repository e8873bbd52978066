//! The frames of a page that stand for Python's imports.
//!
//! A page has the tree with all code, and folds imports itself while it shows own code. The frames
//! that it then shows are made here, by the rules of `import_chain`.

use std::collections::{BTreeSet, HashMap};

use heapprof_totals::import_chain::{import_name, is_import_machinery, is_module_code};

use crate::report_tree::{ReportFunction, ReportNode};

/// What a page needs to fold Python's imports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportImports {
    /// The functions of the import machinery, ascending.
    pub machinery: Vec<u32>,
    /// The lines of modules that the machinery runs, ascending.
    pub modules: Vec<ImportedModule>,
}

/// A line of a module's code. All fields are positions in the places of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedModule {
    /// The line.
    pub line: u32,
    /// The frame that stands for the import, if it is the outermost one of its stack. It is the
    /// program's own code.
    pub outermost: u32,
    /// The frame that stands for the import inside another import.
    pub inner: u32,
}

/// Adds the functions and the places that stand for imports, after all others. Returns `None` if no
/// module is imported in the tree.
pub(crate) fn add_imports(
    functions: &mut Vec<ReportFunction>,
    places: &mut Vec<(u32, i64)>,
    nodes: &[ReportNode],
) -> Option<ReportImports> {
    let is_machinery = |function: &ReportFunction| is_import_machinery(&function.file);
    let of_machinery: Vec<bool> = functions.iter().map(is_machinery).collect();
    let function_of = |place: u32| places[place as usize].0 as usize;
    let mut imported = BTreeSet::new();
    for node in nodes {
        let caller = node.parent.map(|parent| nodes[parent as usize]);
        let function = function_of(node.place);
        let is_called = caller.is_some_and(|caller| of_machinery[function_of(caller.place)]);
        if is_called && !of_machinery[function] && is_module_code(&functions[function].name) {
            imported.insert(node.place);
        }
    }
    if imported.is_empty() {
        return None;
    }
    let machinery = (0..).zip(&of_machinery).filter(|(_, is)| **is);
    let mut imports = ReportImports {
        machinery: machinery.map(|(function, _)| function).collect(),
        modules: Vec::new(),
    };
    let mut made = HashMap::new();
    for line in imported {
        let (function, number) = places[line as usize];
        let module = functions[function as usize].clone();
        let name = import_name(&module.file);
        let inner = ReportFunction {
            label: name.clone(),
            name: name.clone(),
            start_line: 0,
            ..module
        };
        // A function without a file is the program's own.
        let outermost = ReportFunction {
            label: name.clone(),
            name,
            ..ReportFunction::default()
        };
        let mut place_of = |function: ReportFunction, line: i64| {
            let next = functions.len() as u32;
            let key = (function.name.clone(), function.file.clone());
            let number = *made.entry(key).or_insert(next);
            if number == next {
                functions.push(function);
            }
            places.push((number, line));
            places.len() as u32 - 1
        };
        imports.modules.push(ImportedModule {
            line,
            outermost: place_of(outermost, 0),
            inner: place_of(inner, number),
        });
    }
    Some(imports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(texts: &[(&str, &str)]) -> Vec<ReportFunction> {
        let function = |(name, file): &(&str, &str)| ReportFunction {
            name: (*name).to_string(),
            file: (*file).to_string(),
            module: "m".to_string(),
            is_library: true,
            ..ReportFunction::default()
        };
        texts.iter().map(function).collect()
    }

    /// Adds the imports of a tree, whose nodes are given by their parents and functions.
    fn added(
        functions: &mut Vec<ReportFunction>,
        nodes: &[(Option<u32>, u32)],
    ) -> (Vec<(u32, i64)>, Option<ReportImports>) {
        let mut places = (0..functions.len() as u32).map(|at| (at, 7)).collect();
        let node = |&(parent, place): &(Option<u32>, u32)| ReportNode { parent, place };
        let nodes: Vec<ReportNode> = nodes.iter().map(node).collect();
        let imports = add_imports(functions, &mut places, &nodes);
        (places, imports)
    }

    #[test]
    fn imports_get_functions_and_places() {
        let texts = [
            ("<module>", "/home/me/job.py"),
            ("_find_and_load", "<frozen importlib._bootstrap>"),
            (
                "<module>",
                "/usr/lib/python3/dist-packages/pandas/__init__.py",
            ),
        ];
        let nodes = [(None, 0), (Some(0), 1), (Some(1), 1), (Some(2), 2)];
        let mut functions = functions(&texts);
        let (places, imports) = added(&mut functions, &nodes);
        let imports = imports.unwrap();
        assert_eq!(imports.machinery, [1]);
        let module = ImportedModule {
            line: 2,
            outermost: 3,
            inner: 4,
        };
        assert_eq!(imports.modules, [module]);
        assert_eq!(places[3..], [(3, 0), (4, 7)]);
        let shown = functions[3..]
            .iter()
            .map(|f| (&*f.name, &*f.file, f.is_library));
        let wanted = [
            ("import pandas", "", false),
            ("import pandas", texts[2].1, true),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_module_that_is_run_is_no_import() {
        let mut functions =
            functions(&[("<module>", "/home/me/job.py"), ("load", "/home/me/job.py")]);
        let (places, imports) = added(&mut functions, &[(None, 0), (Some(0), 1)]);
        assert_eq!(imports, None);
        assert_eq!((functions.len(), places.len()), (2, 2));
    }
}
