#!/usr/bin/env bash
# Opens pages of heapprof in Chromium, uses every view of each, and compares what they show with the
# command line.
# usage: tests/browser/run.sh HEAPPROF [CHECK...]     (a CHECK is a file of checks/, as `diff`)
# WORK is where pages and what npm installs go (target/browser), CHROMIUM the browser. With PICTURES,
# the pictures of the guide are written into that folder instead. Ends with 77 if node, npm or
# Chromium is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=$(cd "$here/../.." && pwd)
skip() {
  echo "skipped: $*"
  exit 77
}
[ $# -ge 1 ] || { sed -n '4,5s/^# //p' "$0" >&2; exit 2; }
HEAPPROF=$(realpath "$1")
shift
[ -x "$HEAPPROF" ] || { echo "$HEAPPROF: not a program" >&2; exit 2; }
command -v node >/dev/null || skip "there is no node"
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
[ -n "$CHROMIUM" ] || skip "there is no chromium; CHROMIUM may name one"

WORK=$(mkdir -p "${WORK:-$home/target/browser}" && cd "${WORK:-$home/target/browser}" && pwd)
MODULES=$WORK/modules
mkdir -p "$MODULES"
if ! cmp -s "$here/package-lock.json" "$MODULES/installed.json"; then
  command -v npm >/dev/null || skip "there is no npm"
  cp "$here/package.json" "$here/package-lock.json" "$MODULES/"
  npm ci --silent --prefix "$MODULES" >"$WORK/npm.log" 2>&1 ||
    skip "npm could not install playwright-core and axe-core: $(tail -1 "$WORK/npm.log")"
  cp "$here/package-lock.json" "$MODULES/installed.json"
fi
export HEAPPROF CHROMIUM WORK MODULES PROFILES=$WORK/profiles PAGES=$WORK/pages
"$here/make-pages.sh" "$home"
[ -z "${PICTURES:-}" ] || exec node "$here/pictures.mjs" "$PICTURES"
exec node "$here/run.mjs" "$@"
