// Asks the command line, whose numbers the page must show.
import { execFileSync } from 'node:child_process';

const folder = process.env.PROFILES;

// Runs heapprof in the folder of the profiles, and returns what it prints.
export function heapprof(...words) {
  const options = { cwd: folder, maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe'] };
  return execFileSync(process.env.HEAPPROF, words.flat(), options).toString();
}

// The commands that show own code unless they are asked for all code.
const OF_OWN_CODE = ['diff', 'leaks', 'top', 'tree'];

// Returns an answer as JSON. It is about all code, as a page with `fold=0` is, unless the words
// have `own`.
export function answer(...words) {
  const [command, ...all] = words.flat();
  const rest = all.filter(word => word !== 'own');
  const isAll = OF_OWN_CODE.includes(command) && rest.length === all.length;
  return JSON.parse(heapprof(command, '--format', 'json', ...isAll ? ['--all-code'] : [], ...rest));
}

// Runs a command line as the page shows it, in a shell.
export function inShell(line) {
  const options = { cwd: folder, maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe'] };
  const named = line.replace(/^heapprof /, '"$HEAPPROF" ');
  return execFileSync('/bin/sh', ['-c', named], options).toString();
}
