#!/usr/bin/env bash
# Unpacks the libcs of other Debian releases, with their headers, for the walk of their heaps.
# usage: oracle/fetch-libcs.sh FOLDER [SUITE...]     (bullseye trixie sid; needs apt)
# Each becomes FOLDER/SUITE, which gcc takes as --sysroot, with its loader as FOLDER/SUITE/loader.
# DEBIAN names another mirror.
set -euo pipefail
source "$(dirname "$0")/debian.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye trixie sid
for suite in "$@"; do
  debian_release "$folder" "$suite"
  debian_unpack "$folder/$suite" libc6 libc6-dev linux-libc-dev libgcc-s1
  # The loader has its version in its name until 2.33, and a link that leads to the root.
  loader=$(find "$folder/$suite" -type f \( -name 'ld-2.*.so' -o -name 'ld-linux-x86-64.so.2' \))
  ln -s "$loader" "$folder/$suite/loader"
done
