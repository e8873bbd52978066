// Builds the elements of the page. Text from a profile only ever gets in as a text node.

// Makes an element. `cls` is its class, `tid` its test name, `css` its styles, `on…` its listeners.
export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue;
    if (key === 'css') setStyles(made, value);
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(attributeName(key), attributeText(key, value));
  }
  made.append(...flatNodes(children));
  return made;
}

// Puts children in the place of all that `host` holds.
export function fill(host, ...children) {
  host.replaceChildren(...flatNodes(children));
  return host;
}

export function byId(id) {
  return document.getElementById(id);
}

// Sets styles through the style object, because the page's policy forbids style attributes.
export function setStyles(element, styles) {
  for (const [name, value] of Object.entries(styles)) {
    if (value != null) element.style.setProperty(name, value);
  }
}

// Makes an SVG element.
export function svg(tag, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Makes a button that is pressed or not; `pressed` is null for a button that only acts.
export function button(text, pressed, act, attributes) {
  const state = pressed == null ? null : String(pressed);
  return el('button', { type: 'button', 'aria-pressed': state, onclick: act, ...attributes }, text);
}

// Makes a row of buttons of which one is pressed. An item is [key, text, title].
export function segments(label, items, current, act, attributes) {
  const one = ([key, text, title]) =>
    button(text, key === current, () => act(key), { title, 'data-k': key });
  const group = { cls: 'seg', role: 'group', 'aria-label': label, ...attributes };
  return el('div', group, items.map(one));
}

function flatNodes(children) {
  return children.flat(4).filter(child => child != null && child !== false);
}

function attributeName(key) {
  if (key === 'cls') return 'class';
  return key === 'tid' ? 'data-testid' : key;
}

function attributeText(key, value) {
  return value === true && !key.startsWith('aria-') ? '' : value;
}
