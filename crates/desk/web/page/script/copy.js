// Copies text to the clipboard and says so on the button.

import { el } from './dom.js';

const SAID_MS = 1200;

// Copies a text. Where the page may not use the clipboard, it copies from a hidden field.
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el('textarea', { cls: 'sr', 'aria-hidden': 'true' });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
    button.focus();
  }
  const before = button.dataset.words || button.textContent;
  button.dataset.words = before;
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = before; }, SAID_MS);
}
