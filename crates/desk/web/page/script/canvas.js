// Prepares canvases and fits names into boxes.

import { cutForm, isDrawable } from './names.js';
import { headOf } from './text.js';

export const UI_FONT = '-apple-system,"Segoe UI",Roboto,"Noto Sans",Ubuntu,"Helvetica Neue",' +
  'Arial,sans-serif';

// The characters of a name from which a cut one is taken, and the fewest that it is cut to.
const LONGEST_CUT = 400;
const LEAST_CUT = 2;

// Makes a canvas as large as an element shows, clears it, and returns [context, width, height].
export function clearedCanvas(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.setProperty('width', width + 'px');
    canvas.style.setProperty('height', height + 'px');
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = 'middle';
  context.direction = 'ltr';
  return context;
}

// Makes {name, text, width} for one font: what of a function's name or of a text fits into a width,
// and how wide a text is. It measures each text once.
export function makeFitter(names) {
  const widths = new Map();
  const measured = (context, text) => {
    let width = widths.get(text);
    if (width === undefined) {
      if (widths.size > 20000) widths.clear();
      widths.set(text, width = context.measureText(text).width);
    }
    return width;
  };
  const cut = (context, text, width) => {
    const start = text.slice(0, LONGEST_CUT);
    let count = Math.floor(start.length * width / context.measureText(start).width);
    while (count >= LEAST_CUT && context.measureText(headOf(start, count)).width > width) count--;
    return count >= LEAST_CUT ? headOf(start, count) : '';
  };
  return {
    // `end` stands after the name, even if the name is cut.
    name(context, f, width, end = '') {
      const forms = names.formsOf(f);
      const room = end ? width - measured(context, end) : width;
      for (const form of forms) {
        const mayFit = isDrawable(form) && form.length * 4 < room;
        if (mayFit && measured(context, form) <= room) return form + end;
      }
      const start = cut(context, cutForm(forms), room);
      return start && start + end;
    },
    // This may be called with another font, too.
    text: (context, text, width) =>
      context.measureText(text).width <= width ? text : cut(context, text, width),
    width: measured,
  };
}

// Draws a text with a rim, so that lines under it do not disturb it.
export function rimmedText(context, text, x, y, rim) {
  context.strokeStyle = rim;
  context.lineWidth = 4;
  context.lineJoin = 'round';
  context.strokeText(text, x, y);
  context.fillText(text, x, y);
}

// Draws a line through points.
export function strokeThrough(context, points) {
  context.beginPath();
  points.forEach(([x, y], i) => i ? context.lineTo(x, y) : context.moveTo(x, y));
}
