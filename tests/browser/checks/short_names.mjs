// Short names stay apart: pieces at the front go only if no other function has the rest as its name,
// and a name that is cut keeps its beginning.
import { makeNames } from '../../../crates/desk/web/page/script/names.js';

// Each name, a length, and what of it is shown.
const SHOWN = [
  ['a::run', 6, 'a::run'], ['a::run', 5, 'a::r…'], ['b::run', 5, 'b::r…'],
  ['market::Hall::open(int)', 18, 'market::Hall::open'],
  ['market::Hall::open(int)', 10, 'Hall::open'], ['market::Hall::open(int)', 3, 'ma…'],
  ['go/parser.(*parser).parseIdent', 26, '(*parser).parseIdent'],
  ['go/parser.(*parser).parseIdent', 10, 'parseIdent'],
  ['go/parser.(*parser).parseIdent', 8, 'parser.…'],
  ['go/ast.Walk', 8, 'ast.Walk'], ['io/fs.Walk', 6, 'fs.Wa…'],
  ['memcpy.constprop.0', 8, 'memcpy.…'], ['import pandas.core', 9, 'import p…'],
  ['app+0x1f00', 6, 'app+0…'],
];

export default async function ({ check }) {
  check.at('short names');
  const names = [...new Set(SHOWN.map(([name]) => name))];
  const made = makeNames({ functionName: names, fileOf: () => '', program: 'app' });
  for (const [name, length, wanted] of SHOWN) {
    check.equal(made.nice(names.indexOf(name), length), wanted, `${name} in ${length}`);
  }
  for (let length = 4; length < 30; length++) {
    const shown = names.map((_, f) => made.nice(f, length)).filter(form => !form.includes('…'));
    check.equal(new Set(shown).size, shown.length, `whole names differ in ${length}`);
  }
}
