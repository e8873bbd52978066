// Notes what a page draws on its canvases: the lines, and the words, with where they stand and how
// strong they are.

// Is run in the page before its own script.
export function noteDrawing() {
  const { prototype } = CanvasRenderingContext2D;
  const noted = new WeakMap();
  window.drawnOn = canvas => noted.get(canvas);
  const wrap = (name, before) => {
    const plain = prototype[name];
    prototype[name] = function (...given) {
      if (!noted.has(this.canvas)) noted.set(this.canvas, { words: [], lines: [], path: [] });
      before(this, noted.get(this.canvas), given);
      return plain.apply(this, given);
    };
  };
  wrap('clearRect', (context, all) => Object.assign(all, { words: [], lines: [], path: [] }));
  wrap('beginPath', (context, all) => { all.path = []; });
  wrap('moveTo', (context, all, [x, y]) => all.path.push([[x, y]]));
  wrap('lineTo', (context, all, [x, y]) => {
    if (all.path.length) all.path.at(-1).push([x, y]);
    else all.path.push([[x, y]]);
  });
  wrap('stroke', (context, all) => all.lines.push(...all.path));
  wrap('fillText', (context, all, [text, x, y]) => {
    const { width } = context.measureText(text);
    const { font, textAlign, globalAlpha } = context;
    const left = textAlign === 'right' ? x - width : textAlign === 'center' ? x - width / 2 : x;
    all.words.push({ text, left, right: left + width, y, font, alpha: globalAlpha });
  });
}

// Returns {words: [{text, left, right, y, font, alpha}], lines: [[[x, y]]]} of a canvas.
export const drawnOn = (page, tid) => page.tid(tid).evaluate(canvas => window.drawnOn(canvas));

// Returns the words that a line goes through, with the line.
export function coveredWords({ words, lines }) {
  const found = [];
  for (const word of words) {
    const line = lines.find(points => goesThrough(points, word));
    if (line) found.push(word.text);
  }
  return found;
}

// Walks along a line in small steps, so that this is no copy of what the page does.
function goesThrough(points, { left, right, y }) {
  for (let i = 1; i < points.length; i++) {
    const [[x1, y1], [x2, y2]] = [points[i - 1], points[i]];
    const steps = Math.ceil(Math.hypot(x2 - x1, y2 - y1)) || 1;
    for (let step = 0; step <= steps; step++) {
      const at = { x: x1 + (x2 - x1) * step / steps, y: y1 + (y2 - y1) * step / steps };
      if (at.x > left && at.x < right && Math.abs(at.y - y) < 5) return true;
    }
  }
  return false;
}
