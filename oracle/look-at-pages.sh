#!/usr/bin/env bash
# Opens pages that `heapprof report` writes in Chromium: every view of each, in light and dark. The numbers in the table
# must be those of `heapprof top`, nothing may be loaded, nothing may be said on the console, and axe-core must find nothing
# serious.
# usage: oracle/look-at-pages.sh FOLDER     (pages and what npm installs go there; needs node, npm, Chromium, a debug build)
set -euo pipefail
home=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
heapprof="$home/target/debug/heapprof"
[ -e "$folder/node_modules/axe-core" ] || {
  echo '{"name": "page-tests", "private": true}' > "$folder/package.json"
  npm install --silent --prefix "$folder" playwright-core axe-core
}
cd "$home/sample-profiles"
# Name, and what to read: the last profile is the one that `top` is asked about.
pages() {
  cat <<'END'
go valid/go.indexer.indexed.pb.gz
cpu valid/go.leaky.cpu.pb.gz
perl perl/orders.values.pb.gz
names valid/made.odd-names.pb.gz
inlines valid/made.inlines.pb.gz
END
}
files=()
while read -r name profile; do
  "$heapprof" report -o "$folder/$name.html" "$profile" 2> "$folder/said"
  "$heapprof" top -n 0 --format json "$profile" > "$folder/$name.json"
  files+=("$folder/$name.html")
done < <(pages)
"$heapprof" report -o "$folder/diff.html" --base valid/go.leaky.before.pb.gz valid/go.leaky.after.pb.gz 2> "$folder/said"
"$heapprof" report --anonymize -o "$folder/hidden.html" valid/go.leaky.after.pb.gz 2> "$folder/said"
files+=("$folder/diff.html" "$folder/hidden.html")
MODULES=$folder ORACLE=$folder node "$home/crates/heapprof-web/page-tests/report.mjs" "${files[@]}"
