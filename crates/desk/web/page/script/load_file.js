// Loads the profile from the page itself: the data block is the last element of the file.

import { byId } from './dom.js';
import { fromBase64, openContainer } from './decode.js';

// Makes the source of a page that holds its own data.
export function makeFileSource() {
  return {
    isLive: false,
    refreshMs: 0,
    load: () => loadFromPage(byId('data')),
  };
}

async function loadFromPage(block) {
  const text = block ? block.textContent : '';
  const expected = block ? Number(block.dataset.chars) : 0;
  if (block) block.remove();
  if (!expected || text.length !== expected) {
    throw new Error(`${text.length} of ${expected || '?'} characters of data arrived`);
  }
  return openContainer(fromBase64(text));
}
