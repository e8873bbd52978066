// Gives each module a colour. Library modules are grey, so that a program's own code stands out.

import { hashText } from './text.js';

const HUES = [255, 150, 45, 320, 205, 100, 5, 290, 175, 70, 230, 125];
const BAND_HUES = [255, 45, 150, 320, 100, 205, 5];

// What canvases are drawn with; the style sheet has the same colours for elements.
const INKS = {
  light: {
    text: '#1b2027', muted: '#59636f', line: '#e3e7ec', surface: '#ffffff', inset: '#eef1f4',
    accent: '#3456b0', area: '#b9c6e655', brush: '#3456b01c', more: '#a94900', rss: '#8a6d3b',
    rest: '#cfd6de', root: '#e3e7ec', flag: '#ffffff',
  },
  dark: {
    text: '#e5e9ef', muted: '#9ea9b6', line: '#313843', surface: '#191d23', inset: '#232932',
    accent: '#94b1ff', area: '#3f528455', brush: '#94b1ff22', more: '#f5934a', rss: '#d9b876',
    rest: '#3a4350', root: '#2b323c', flag: '#12151a',
  },
};

// Makes the colours of a profile. Modules that `older` colours knew keep their hue.
export function makePalette(profile, weights, older) {
  const hueOf = assignHues(profile, weights, older ? older.hues : new Map());
  const hues = new Map(profile.moduleName.map((name, m) => [name, hueOf[m]]));
  const cache = new Map();
  const palette = { hues, theme: 'light', inks: INKS.light };
  palette.setTheme = theme => {
    palette.theme = theme;
    palette.inks = INKS[theme];
    cache.clear();
  };
  // Returns the colour of a function; −1 is the program.
  palette.of = f => {
    if (f < 0) return palette.inks.root;
    let colour = cache.get(f);
    if (!colour) cache.set(f, colour = functionColour(profile, f, hueOf, palette.theme));
    return colour;
  };
  // Returns the colour of a band in the timeline, by its rank.
  palette.band = rank => {
    const lightness = palette.theme === 'dark' ? 0.6 : 0.74;
    return `oklch(${lightness} .105 ${BAND_HUES[rank % BAND_HUES.length]})`;
  };
  return palette;
}

// The lightness differs a little by the function's name, so that neighbours can be told apart.
function functionColour(profile, f, hueOf, theme) {
  const m = profile.moduleOf[f];
  const isDark = theme === 'dark';
  const jitter = (hashText(profile.functionName[f]) % 7 - 3) * 0.009;
  if (profile.isLibrary[m]) {
    const grey = (isDark ? 0.37 : 0.905) + jitter;
    return `oklch(${grey.toFixed(3)} .012 250)`;
  }
  const lightness = (isDark ? 0.43 : 0.865) + jitter;
  return `oklch(${lightness.toFixed(3)} ${isDark ? 0.075 : 0.06} ${hueOf[m]})`;
}

// Takes hues in order of weight, from a start that the module's name decides.
function assignHues(profile, weights, known) {
  const used = new Set();
  const hueOf = profile.moduleName.map(() => HUES[0]);
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a] || a - b);
  for (const m of order) {
    const name = profile.moduleName[m];
    if (known.has(name)) {
      hueOf[m] = known.get(name);
      continue;
    }
    let slot = hashText(name) % HUES.length;
    if (!profile.isLibrary[m]) {
      for (let i = 0; used.has(slot) && i < HUES.length; i++) slot = (slot + 5) % HUES.length;
      used.add(slot);
    }
    hueOf[m] = HUES[slot];
  }
  return hueOf;
}

// Weighs modules by what their functions hold, themselves and with callees.
export function moduleWeights(profile, model) {
  const weights = new Float64Array(profile.moduleName.length);
  for (let f = 0; f < profile.functionCount; f++) {
    const weight = model.cum.after[f] + 9 * model.flat.after[f];
    weights[profile.moduleOf[f]] += weight;
  }
  return weights;
}
