// The drawer with the SQL of the view, and the same question as a command.

import { copyText } from './copy.js';
import { button, byId, el, fill } from './dom.js';
import { isDiff } from './state.js';
import { exactPattern, shellQuoted, visibleText } from './text.js';

// The commands that show own code, and those that show all code, unless they are asked otherwise.
const OF_OWN_CODE = /^\S+ (top|tree|diff|flame|leaks) (?!peek |traces )/;
const OF_ALL_CODE = /^\S+ (tree peek|tree traces|info stats|info tags|list) /;
// The words before the arguments of a command.
const NAME_OF_COMMAND = /^\S+ (tree peek|tree traces|info \w+|growth \w+|\S+)/;

// Fills the drawer, or closes it.
export function drawSql(app) {
  const drawer = byId('sql');
  drawer.hidden = !app.state.sql;
  if (drawer.hidden) return;
  const statement = statementText(app);
  const command = commandText(app);
  const copy = text => event => copyText(text, event.currentTarget);
  fill(drawer,
    el('div', { cls: 'acts' }, el('b', {}, 'The SQL behind this view'),
      statement && button('Copy SQL', null, copy(statement), { tid: 'sql-copy' }),
      command && button('Copy command', null, copy(command), { tid: 'command-copy' }),
      button('Close', null, () => app.toggleSql())),
    el('pre', { tid: 'sql-text', tabindex: 0, 'aria-label': 'SQL' },
      statement ? visibleLines(statement) : 'This file has no SQL for this view.'),
    command && el('pre', { tid: 'command-text', tabindex: 0, 'aria-label': 'Command' },
      '$ ' + visibleLines(command)));
}

// Returns the statement of the view with the current type and patterns filled in.
export function statementText(app) {
  const template = templateFor(app, app.profile.head.sql);
  return template && filled(template, app, text => text.replace(/'/g, "''"));
}

// Returns the command of the view, with flags for what the user chose.
export function commandText(app) {
  const template = templateFor(app, app.profile.head.commands);
  if (!template) return null;
  const { focus, ignore, own } = app.state;
  const { measure } = app.model.question;
  // The template has its places between single quotes.
  let command = filled(template, app, text => text.replace(/'/g, "'\\''"));
  const flags = [];
  const hasType = /(^|\s)(-t|--type)[\s=]\S+/;
  const type = '-t ' + shellQuoted(measure.name);
  if (hasType.test(command)) command = command.replace(hasType, (_, space) => space + type);
  else if (OF_OWN_CODE.test(command) || OF_ALL_CODE.test(command)) flags.push(type);
  if (focus) flags.push('--focus ' + shellQuoted(focus));
  if (ignore) flags.push('--ignore ' + shellQuoted(ignore));
  if (own && OF_ALL_CODE.test(command)) flags.push('--own-code');
  if (!own && OF_OWN_CODE.test(command)) flags.push('--all-code');
  return command.replace(NAME_OF_COMMAND, found => [found, ...flags].join(' '));
}

// Looks for a text of the view in its mode first: pivot, then comparison, then the view.
function templateFor(app, texts) {
  if (!texts) return null;
  const { view, pivot } = app.state;
  const names = [
    view === 'flame' && pivot >= 0 && 'pivot', isDiff(app.state) && view + '.diff', view,
  ];
  const found = names.find(name => name && texts[name]);
  return found ? texts[found] : null;
}

function filled(template, app, quoted) {
  const { focus, ignore, pivot, selected } = app.state;
  const named = pivot >= 0 ? pivot : selected;
  const name = named >= 0 ? app.profile.functionName[named] : '';
  const values = {
    type: app.model.question.measure.name, focus, ignore, function: name,
    pattern: name && exactPattern(name),
  };
  return template.replace(/\{(type|focus|ignore|function|pattern)\}/g,
    (_, key) => quoted(values[key]));
}

function visibleLines(text) {
  return text.split('\n').map(visibleText).join('\n');
}
