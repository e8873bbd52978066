#!/usr/bin/env bash
# Builds pythons without the GIL from Debian's sources, for the tests of their stacks and objects.
# usage: oracle/build-free-threaded.sh FOLDER [VERSION...]
#   (3.13.5 3.14.5; needs curl, xz, a C compiler, and some ten minutes each on one core)
# Each becomes FOLDER/VERSION/bin/python3, and is left alone if it is there. The last line names
# them, with colons between them, as HEAPPROF_PYTHONS wants. DEBIAN names another mirror.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- 3.13.5 3.14.5
pythons=
for version; do
  root=$folder/$version name=python${version%.*}
  pythons=$pythons${pythons:+:}$root/bin/python3
  [ ! -x "$root/bin/python3" ] || continue
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
  curl -sfL "${DEBIAN:-http://deb.debian.org/debian}/pool/main/p/$name/${name}_$version.orig.tar.xz" |
    tar -xJ -C "$build" --strip-components=1
  (
    cd "$build"
    ./configure -q --disable-gil --without-ensurepip --disable-test-modules --prefix="$root"
    make -s "-j${JOBS:-1}"
    make -s install
  ) >"$folder/$version.log" 2>&1
  "$root/bin/python3" -c 'import sys; assert not sys._is_gil_enabled()'
  rm -rf "$build"
done
echo "$pythons"
