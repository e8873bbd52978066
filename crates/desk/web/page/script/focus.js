// Keeps the keyboard focus where it was when a part of the page is made anew.

// Returns a function that gives the focus back to the same control.
export function keepFocus() {
  const element = document.activeElement;
  if (!element || element === document.body) return () => {};
  const selector = selectorOf(element);
  const { selectionStart, selectionEnd } = element.tagName === 'INPUT' ? element : {};
  return () => {
    if (document.activeElement === element || !selector) return;
    const again = element.isConnected ? element : document.querySelector(selector);
    if (!again) return;
    again.focus({ preventScroll: true });
    if (selectionStart != null) again.setSelectionRange(selectionStart, selectionEnd);
  };
}

function selectorOf(element) {
  const group = element.closest('[role=group]');
  const inGroup = group ? `[aria-label=${quoted(group.getAttribute('aria-label'))}] ` : '';
  const { k, testid, f, sort } = element.dataset;
  if (k) return inGroup + `[data-k=${quoted(k)}]`;
  if (testid) return `[data-testid=${quoted(testid)}]`;
  if (f && element.tagName === 'TR') return `tr[data-f=${quoted(f)}]`;
  if (sort) return `[data-sort=${quoted(sort)}]`;
  return element.id ? '#' + CSS.escape(element.id) : null;
}

function quoted(text) {
  return '"' + CSS.escape(text || '') + '"';
}
