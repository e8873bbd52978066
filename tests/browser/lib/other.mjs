// Finds "(other)" in a flame graph, and opens it.
import { choices, clickRow, flameRows, follow } from './read.mjs';

// Returns each "(other)" that the table beside the graph has: {path, value}, with itself last.
export async function others(page) {
  const path = [];
  const found = [];
  for (const { name, level, value } of (await flameRows(page)).slice(1)) {
    path.length = level - 2;
    path.push(name);
    if (name === '(other)') found.push({ path: [...path], value });
  }
  return found.sort((a, b) => b.value - a.value);
}

// Zooms to an "(other)", and opens it by a click, or by a key as one does that is too deep to be
// in sight.
export async function openOther(page, hash, { path }, byKey) {
  const zoom = path.map(name => '&zoom=' + encodeURIComponent(name)).join('');
  // The page writes its address late, and the last one may have been the same.
  await choices(page);
  await follow(page, hash + zoom);
  if (byKey) {
    await page.tid('flame-mirror').focus();
    await page.keyboard.press('Enter');
    await page.settled();
  } else {
    await clickRow(page, path.length, 0.5);
  }
}
