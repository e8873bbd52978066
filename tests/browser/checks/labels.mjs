// The words in the charts over time: no line goes through them, and they are not over each other.
import { coveredWords, drawnOn, noteDrawing } from '../lib/drawn.mjs';

const CHARTS = [
  ['series', 'view=timeline'], ['series', 'view=timeline&a=0&b=1'],
  ['series', 'view=timeline&a=2&b=9'], ['series', 'view=timeline&a=18'],
  ['series', 'view=timeline&focus=report'],
  ['series', 'view=timeline&unit=objects'], ['waves', 'view=timeline'],
  ['waves', 'view=timeline&unit=objects'], ['cpp', 'view=timeline'], ['diff', 'view=timeline'],
];

export default async function ({ check, visit }) {
  for (const [name, hash] of CHARTS) {
    for (const width of [1280, 700]) {
      await visit(`${hash}, ${width} wide`, name, hash, async page => {
        const drawn = await drawnOn(page, 'timeline-canvas');
        check(drawn.words.length > 4, `it has words (${drawn.words.length})`);
        check.equal(coveredWords(drawn).join(), '', 'no line goes through them');
        check.equal(doubled(drawn.words).join(), '', 'none are over others');
      }, { init: noteDrawing, width });
    }
  }
}

function doubled(words) {
  const isOver = (a, b) => a !== b && Math.abs(a.y - b.y) < 10 && a.left < b.right
    && b.left < a.right;
  return words.filter(word => words.some(other => isOver(word, other))).map(word => word.text);
}
