//! Pictures of the call graph, drawn by Graphviz.
