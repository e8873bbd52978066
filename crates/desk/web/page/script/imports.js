// Folds Python's imports as the command line does: the frames of importlib that lead to a module
// are one frame `import NAME`. The profile names the functions of importlib, and for the code of
// each module the frames that stand for its import.

// Returns a function that finds the place of a node in the tree, below the place of its caller.
// `placeOf` has the places of the nodes before it.
export function makeImportFolder(profile, placeOf, find, keyOf) {
  const { nodes, head } = profile;
  const { parent, func, frame } = nodes;
  const machinery = new Set(head.imports.machinery);
  const modules = new Map(head.imports.modules.map(([module, ...imports]) => [module, imports]));
  // The place under which the frames of importlib begin that a node belongs to, or −1.
  const begin = new Int32Array(nodes.count).fill(-1);
  const isImported = new Uint8Array(nodes.count);
  return (node, under) => {
    const caller = parent[node];
    const start = caller < 0 ? -1 : begin[caller];
    isImported[node] = caller < 0 ? 0 : isImported[caller];
    if (machinery.has(func[node])) {
      begin[node] = start < 0 ? under : start;
      // If no module comes, the first frame of importlib stands for all.
      return start < 0 ? find(under, keyOf(frame[node])) : placeOf[caller];
    }
    const imports = start < 0 ? null : modules.get(frame[node]);
    if (!imports) return find(under, keyOf(frame[node]));
    const [outermost, inner] = imports;
    const made = find(start, keyOf(isImported[node] ? inner : outermost));
    isImported[node] = 1;
    return made;
  };
}
