// The view of a function's instructions: its lines, and below each what the compiler made of it.
// A server reads them from the binary, so a file with a report has no such view.

import { button, el, fill } from './dom.js';
import { shareText } from './format.js';
import { exactPattern, visibleText } from './text.js';

const FIRST_CODE_ROWS = 1000;
const MORE_CODE_ROWS = 2000;

// Whether a server can be asked for the instructions of a function. What the page itself named has
// none.
export function hasAssembly(app, f) {
  const { profile, source } = app;
  return f >= 0 && source.hasAssembly === true && !profile.isOther(f) && !profile.importedFrom(f);
}

// Opens the view, asks for what it shows, or closes it. It shows the data of its last question,
// also if the profile changes meanwhile.
export function drawAssembly(app) {
  const { state } = app;
  state.assembly = state.assembly && hasAssembly(app, state.selected);
  if (!state.assembly) {
    closeAssembly(app);
    return;
  }
  const question = questionAbout(app, state.selected);
  const key = JSON.stringify(question);
  if (app.assembly?.key === key) return;
  if (!app.assembly) openAssembly(app);
  app.assembly.key = key;
  askAssembly(app, app.assembly, question);
}

function questionAbout(app, f) {
  const { profile, state, model } = app;
  const { after, measure } = model.question;
  // One of several moments is asked for by its name. Of a difference, the later side is shown.
  const several = profile.snapshots.length > 1;
  const moment = several ? { profile: profile.snapshots[after].name, base: '' } : {};
  return {
    regex: exactPattern(profile.functionName[f]), sample_type: measure.name,
    ...app.question(), own_code: state.own ? 1 : '', ...moment,
  };
}

function openAssembly(app) {
  const label = { role: 'region', 'aria-label': 'Instructions' };
  const code = el('div', { cls: 'code', tabindex: 0, ...label });
  const title = el('b', { cls: 'fn', tid: 'assembly-name' });
  const dialog = el('dialog', { id: 'asm', 'aria-label': 'Assembly', tid: 'assembly' },
    el('div', { cls: 'acts' }, title,
      button('Close', null, () => dialog.close(), { title: 'Close (Esc)', tid: 'assembly-close' })),
    code);
  dialog.addEventListener('close', () => {
    app.state.assembly = false;
    closeAssembly(app);
    app.saved();
  });
  app.assembly = { dialog, title, code, key: null, abort: null, shown: FIRST_CODE_ROWS };
  document.body.append(dialog);
  dialog.showModal();
  code.focus();
}

function closeAssembly(app) {
  if (!app.assembly) return;
  const { dialog, abort } = app.assembly;
  app.assembly = null;
  abort.abort();
  dialog.remove();
  // What had the focus before has it again, unless it is gone, or a link opened the view.
  if (document.activeElement && document.activeElement !== document.body) return;
  document.querySelector('[data-testid=assembly-button]')?.focus({ preventScroll: true });
}

async function askAssembly(app, at, question) {
  at.abort?.abort();
  const { signal } = at.abort = new AbortController();
  const f = app.state.selected;
  fill(at.title, el('bdi', {}, app.names.full(f)));
  fill(at.code, el('p', { cls: 'where' }, 'Reading the instructions…'));
  at.shown = FIRST_CODE_ROWS;
  at.dialog.setAttribute('aria-busy', 'true');
  try {
    const answer = await app.source.assembly(question, signal);
    if (!signal.aborted) drawAnswer(app, at, ofFile(answer, app.profile.fileOf(f)));
  } catch (error) {
    if (signal.aborted) return;
    const words = error.isAnswer ? error.message : 'heapprof web no longer answers.';
    fill(at.code, el('p', { cls: 'where', tid: 'assembly-error', role: 'alert' },
      visibleText(words)));
  }
  if (!signal.aborted) at.dialog.setAttribute('aria-busy', 'false');
}

// Returns an answer with the function of a file only. If none is of this file, all stay.
function ofFile(answer, file) {
  const own = answer.rows.filter(row => row.file === file);
  return own.length ? { ...answer, rows: own } : answer;
}

function drawAnswer(app, at, answer) {
  let left = at.shown;
  const parts = [];
  for (const row of answer.rows) {
    const all = row.lines.flatMap((line, i) => rowsOfLine(app, row, line, row.lines[i - 1]));
    parts.push(functionHead(app, row, answer.total), notesOf(row));
    parts.push(codeTable(all.slice(0, left).map(make => make())));
    left -= all.length;
    if (left < 0) break;
  }
  fill(at.code, parts, left < 0 && moreButton(app, at, answer));
}

function moreButton(app, at, answer) {
  const more = () => {
    at.shown += MORE_CODE_ROWS;
    drawAnswer(app, at, answer);
    at.code.focus({ preventScroll: true });
  };
  const text = `Show ${MORE_CODE_ROWS} more rows`;
  return button(text, null, more, { cls: 'link', tid: 'assembly-more' });
}

function functionHead(app, row, total) {
  const written = value => `${app.write(value)} (${shareText(value / total)})`;
  const { profile, model } = app;
  const { name } = profile.snapshots[model.question.after];
  const from = profile.snapshots.length > 1 ? ` · in ${visibleText(name)}` : '';
  return el('p', { cls: 'where' }, el('bdi', {}, visibleText(row.file) || 'no source file'),
    ` · flat ${written(row.flat)} · cum ${written(row.cum)}${from}`);
}

// Says where the code is, and what is missing.
function notesOf(row) {
  const note = text => el('p', { cls: 'note', tid: 'assembly-note' }, visibleText(text));
  const code = ({ symbol, start, end, binary, cut, build_id: hasBuildId }) => el('p', { cls: 'where' },
    el('bdi', {}, visibleText(symbol || 'code without a symbol')),
    ` at ${hexText(start)}, ${end - start} bytes of `, el('bdi', {}, visibleText(binary)),
    cut && ', cut', !hasBuildId && '; no build id says whether this file ran');
  const isEmpty = row.lines.every(line => !line.instructions.length);
  const what = isEmpty ? 'No instructions' : 'Some instructions are missing';
  return [
    row.code.map(code), row.no_source != null && note(`No source: ${row.no_source}`),
    (row.missing ?? []).map(why => note(`${what}: ${why}`)),
  ];
}

function codeTable(rows) {
  const head = ['flat', 'cum', 'line', 'address'].map(text => el('th', { scope: 'col' }, text));
  return el('table', { tid: 'assembly-table' },
    el('thead', {}, el('tr', {}, head, el('th', { cls: 'l', scope: 'col' },
      'source and instructions'))),
    el('tbody', {}, rows));
}

// Returns functions that make the rows of a line, since there may be more than are shown: the line
// after a mark for lines that are left out, and its instructions.
function rowsOfLine(app, row, line, before) {
  const isAfterGap = before?.line > 0 && line.line > before.line + 1;
  return [
    ...isAfterGap ? [gapRow] : [], () => lineRow(app, line),
    ...line.instructions.map(each => () => instructionRow(app, row, each)),
  ];
}

function gapRow() {
  return el('tr', { cls: 'gap' }, el('td'), el('td'), el('td', {}, '⋮'), el('td'), el('td'));
}

function lineRow(app, { line, flat, cum, source, instructions }) {
  const text = source == null ? '' : visibleText(source.replace(/\t/g, '    '));
  const look = instructions.length ? 'line' : 'line dim';
  return el('tr', { cls: look, 'data-line': line, 'data-flat': flat, 'data-cum': cum },
    valueCells(app, flat, cum), el('td', {}, line ? String(line) : '?'), el('td'),
    el('td', { cls: 'l' }, el('bdi', {}, text)));
}

function instructionRow(app, row, { address, flat, cum, text, frames }) {
  const [inner, ...outer] = frames;
  const isInlined = outer.length > 0 && inner.function !== row.function;
  const place = isInlined && `${inner.function} ${inner.file.replace(/^.*\//, '')}:${inner.line}`;
  const look = flat || cum ? 'hot' : null;
  return el('tr', { cls: look, 'data-flat': flat, 'data-cum': cum },
    valueCells(app, flat, cum), el('td'), el('td', { cls: 'at' }, hexText(address)),
    el('td', { cls: 'l in' }, el('bdi', {}, visibleText(text)),
      place && el('small', { title: 'inlined from' }, el('bdi', {}, visibleText(place)))));
}

function valueCells(app, flat, cum) {
  const text = value => flat || cum ? app.write(value) : '';
  return [el('td', {}, text(flat)), el('td', {}, text(cum))];
}

// Writes an address. Beyond 2⁵³, JavaScript has rounded it, so its last digits are left out.
function hexText(address) {
  const digits = address.toString(16);
  return '0x' + (Number.isSafeInteger(address) ? digits : digits.slice(0, -3) + '…');
}
