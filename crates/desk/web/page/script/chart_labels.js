// Finds room for the words in a chart, so that they cover no line and no other words.

const HEIGHT = 14;
const STEP = 7;
// How far from a point its words may stand, in steps.
const MOST_STEPS = 24;
// How much of the words is left of their point.
const BESIDE = [0, 1, 0.5, 1.5, -0.5, 2, -1];

// Makes the place for the words of one chart. `area` is {left, right, top, bottom}.
export function makeLabelRoom(area) {
  const lines = [];
  const taken = [];
  return {
    // Keeps words away from a line through points.
    avoid: points => lines.push(points),
    // Keeps words away from a mark of this radius.
    avoidMark: (x, y, radius) => taken.push(
      { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius }),
    // Writes words as near to a point as there is room. It returns where they are.
    write(context, words, x, y) {
      const width = context.measureText(words).width;
      const box = placesFor(x, y, width, area).find(place => isFree(place, lines, taken))
        || placesFor(x, y, width, area)[0];
      if (!box) return null;
      taken.push(box);
      context.textAlign = 'left';
      context.fillText(words, box.left, box.top + HEIGHT / 2);
      return box;
    },
  };
}

// Returns the places for words around a point, the nearest first: above and below it, and at each
// height at one side of it, at the other, over it, and further away.
function placesFor(x, y, width, { left, right, top, bottom }) {
  const places = [];
  for (let step = 0; step <= MOST_STEPS; step++) {
    for (const middle of [y - 9 - STEP * step, y + 9 + STEP * step]) {
      for (const share of BESIDE) {
        const start = x - width * share + 9 * Math.sign(0.5 - share);
        const begin = Math.min(Math.max(start, left + 2), right - width);
        const box = {
          left: begin, right: begin + width, top: middle - HEIGHT / 2, bottom: middle + HEIGHT / 2,
        };
        if (box.top >= top && box.bottom <= bottom && begin >= left) places.push(box);
      }
    }
  }
  return places;
}

function isFree(box, lines, taken) {
  const overlaps = other => other.left < box.right && other.right > box.left
    && other.top < box.bottom && other.bottom > box.top;
  return !taken.some(overlaps) && !lines.some(points => crosses(points, box));
}

// Whether a line through points goes through a box.
function crosses(points, { left, right, top, bottom }) {
  for (let i = 1; i < points.length; i++) {
    const [x1, y1] = points[i - 1];
    const [x2, y2] = points[i];
    if (Math.max(x1, x2) < left - 2 || Math.min(x1, x2) > right + 2) continue;
    // The part of the line that is within the width of the box has these heights.
    const heightAt = x => x1 === x2 ? y1 : y1 + (y2 - y1) * (x - x1) / (x2 - x1);
    const from = Math.max(left - 2, Math.min(x1, x2));
    const to = Math.min(right + 2, Math.max(x1, x2));
    const heights = x1 === x2 ? [y1, y2] : [heightAt(from), heightAt(to)];
    if (Math.max(...heights) >= top && Math.min(...heights) <= bottom) return true;
  }
  return false;
}
