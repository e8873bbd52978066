#!/usr/bin/env bash
# Makes the profiles and their pages for run.sh, which sets HEAPPROF, PROFILES and PAGES. It writes
# PAGES/list.tsv: the name of each page, its base or -, its profiles, as the command line is asked
# about them in PROFILES, and its options.
set -euo pipefail
home=$1
rm -rf "$PROFILES" "$PAGES"
mkdir -p "$PROFILES" "$PAGES"
cp -r "$home/sample-profiles/valid" "$home/sample-profiles/perl" "$PROFILES"
cd "$PROFILES"

# Records a program that is built now; where that is not possible, another profile is taken.
record() {
  local name=$1 else=$2 program
  program=$(mktemp -d)/$name
  shift 2
  if "$@" -o "$program" 2>/dev/null &&
    "$HEAPPROF" record --exact -o "$name.pb.gz" -- "$program" >/dev/null 2>&1; then
    return
  fi
  echo "note: $1 could not build $name, or it could not be recorded; it is $else"
  cp "$else" "$name.pb.gz"
}
record cpp valid/c.waves.pb.gz g++ -O1 -g "$home/sample-profiles/programs/market.cc"
record rust valid/made.inlines.pb.gz rustc -O -g "$home/tests/programs/stack_rust.rs"
PYTHONDONTWRITEBYTECODE=1 python3 "$home/tests/browser/make_profiles.py" .

# Names that read the same without arguments, parameters and outer functions.
"$HEAPPROF" convert --values inuse_space/bytes --to pprof -o twins.pb.gz - <<'END'
main;shop::Map<shop::Key, int>::put(shop::Key) 100
main;shop::Map<shop::Other, int>::put(shop::Other) 90
main;shop::parse(int) 80
main;shop::parse(long) 70
main;shop::render::{closure#0} 60
END

# Writes a page: its name, its base or -, its profile, and options.
page() {
  local name=$1 base=$2 profile=$3
  shift 3
  printf '%s\t%s\t%s\t%s\n' "$name" "$base" "$profile" "$*" >>"$PAGES/list.tsv"
  [ "$base" = - ] || set -- --base "$base" "$@"
  "$HEAPPROF" report -o "$PAGES/$name.html" "$@" "$profile" 2>"$PAGES/$name.said" ||
    { cat "$PAGES/$name.said" >&2; exit 1; }
}
page go - valid/go.indexer.indexed.pb.gz
page cpp - cpp.pb.gz
page rust - rust.pb.gz
page diff valid/go.leaky.before.pb.gz valid/go.leaky.after.pb.gz
page series - series
# Others, for one thing each.
page waves - valid/c.waves.pb.gz
page cpu - valid/go.leaky.cpu.pb.gz
page perl - perl/orders.values.pb.gz
page python - imports.pb.gz
page values - perl/market-1.pb.gz
page freed - freed.pb.gz
page nothing - nothing.pb.gz
page names - valid/made.odd-names.pb.gz
page hostile - hostile.pb.gz
page negative - valid/made.negative.pb.gz
page inlines - valid/made.inlines.pb.gz
page recursion - valid/made.recursion.pb.gz
page sampled - valid/made.sampled.pb.gz
page even valid/made.sampled.pb.gz valid/made.sampled.pb.gz
page mixed valid/made.leaks.pb.gz valid/made.sampled.pb.gz
page twins - twins.pb.gz
page few - valid/go.leaky.after.pb.gz --max-nodes 30
page hidden - valid/go.leaky.after.pb.gz --anonymize
page plain - valid/go.leaky.after.pb.gz
page short - valid/go.leaky.after.pb.gz --paths none
page full - valid/go.leaky.after.pb.gz --paths full
page source - valid/c.waves.pb.gz --source --source-path "$home/sample-profiles/programs"
