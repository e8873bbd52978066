// Groups sample types into families: inuse_space and inuse_objects are one thing in two units.

const KNOWN = {
  inuse: ['In use', 'held when the snapshot was taken'],
  alloc: ['Allocated', 'everything allocated so far, freed or not'],
  peak: ['At peak', 'held when the heap was largest'],
  temporary: ['Temporary', 'freed right after it was allocated'],
};
const KIND_LABEL = { space: 'Bytes', objects: 'Objects' };
const ORDER = Object.keys(KNOWN);

// Makes the list of families from [[name, unit]]. A type without a pair stands alone.
export function readMeasures(types) {
  const all = types.map(([name, unit], index) => {
    const pair = name.match(/^(.+)_(objects|space)$/);
    return { index, name, unit, family: pair ? pair[1] : name, kind: pair ? pair[2] : 'own' };
  });
  const families = [];
  for (const measure of all) {
    let family = families.find(known => known.key === measure.family);
    if (!family) families.push(family = makeFamily(measure.family));
    family.kinds[measure.kind] = measure;
  }
  families.sort((a, b) => rank(a.key) - rank(b.key));
  return { all, families };
}

// Returns the measure of a family in a kind, or the family's first one.
export function measureOf(measures, family, kind) {
  const found = measures.families.find(known => known.key === family) || measures.families[0];
  return found.kinds[kind] || kindsOf(found)[0];
}

// Returns the measures of a family, bytes first.
export function kindsOf(family) {
  const { space, objects, own } = family.kinds;
  return [space, objects, own].filter(Boolean);
}

// Returns the other measure of a pair: objects for bytes. It is null if there is none.
export function companionOf(measures, measure) {
  const family = measures.families.find(known => known.key === measure.family);
  return family.kinds[{ space: 'objects', objects: 'space' }[measure.kind]] || null;
}

// Returns the mean size from a value and its companion's value, in the unit of the space.
export function meanSize(measure, value, other) {
  const mean = measure.kind === 'space' ? value / other : other / value;
  return isFinite(mean) ? mean : 0;
}

export function kindLabel(measure) {
  return KIND_LABEL[measure.kind] || measure.unit;
}

function makeFamily(key) {
  const [label, title] = KNOWN[key] || [plainLabel(key), null];
  return { key, label, title, kinds: {} };
}

function plainLabel(key) {
  const words = key.replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function rank(key) {
  const at = ORDER.indexOf(key);
  return at < 0 ? ORDER.length : at;
}
