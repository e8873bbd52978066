// Asks the command line, whose numbers the page must show.
import { execFileSync } from 'node:child_process';

const folder = process.env.PROFILES;

// Runs heapprof in the folder of the profiles, and returns what it prints.
export function heapprof(...words) {
  const options = { cwd: folder, maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe'] };
  return execFileSync(process.env.HEAPPROF, words.flat(), options).toString();
}

// Returns an answer as JSON.
export function answer(...words) {
  const [command, ...rest] = words.flat();
  return JSON.parse(heapprof(command, '--format', 'json', ...rest));
}

// Runs a command line as the page shows it, in a shell.
export function inShell(line) {
  const options = { cwd: folder, maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe'] };
  const named = line.replace(/^heapprof /, '"$HEAPPROF" ');
  return execFileSync('/bin/sh', ['-c', named], options).toString();
}
