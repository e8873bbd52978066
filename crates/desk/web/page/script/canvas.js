// Prepares canvases and fits names into boxes.

import { isDrawable } from './names.js';
import { tailOf } from './text.js';

export const UI_FONT = '-apple-system,"Segoe UI",Roboto,"Noto Sans",Ubuntu,"Helvetica Neue",' +
  'Arial,sans-serif';

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

// Makes a function that fits a function's name into a width, for one font. It measures each text
// once.
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
  return (context, f, width) => {
    const forms = names.formsOf(f);
    for (const form of forms) {
      const mayFit = isDrawable(form) && form.length * 4 < width;
      if (mayFit && measured(context, form) <= width) return form;
    }
    const shortest = forms[forms.length - 1].slice(-400);
    const count = Math.floor(shortest.length * (width - 9) / measured(context, shortest));
    return count >= 3 ? tailOf(shortest, count) : '';
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
