#!/usr/bin/env bash
# Builds the module Devel::HeapProf and runs its tests with the perls of other Debian releases, each in a root of its own
# with that release's compiler and headers.
# usage: oracle/prove-perls.sh FOLDER [SUITE...]     (bullseye trixie sid; needs root and mmdebstrap)
# Each becomes FOLDER/SUITE, some 500 MB. A root that is there is used again. DEBIAN names another mirror.
set -euo pipefail
source=$(cd "$(dirname "$0")/../perl/Devel-HeapProf" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye trixie sid
for suite in "$@"; do
  root="$folder/$suite"
  # The packages run only in this test, so no key of another release is needed, and an old mirror will do.
  [ -x "$root/usr/bin/gcc" ] || mmdebstrap --quiet --mode=root --variant=minbase \
    --include=gcc,libc6-dev,make,libperl-dev,perl,libtest-leaktrace-perl --aptopt='Acquire::Check-Valid-Until "false"' \
    "$suite" "$root" "deb [trusted=yes] ${DEBIAN:-http://deb.debian.org/debian} $suite main"
  rm -rf "$root/tmp/module"
  cp -r "$source" "$root/tmp/module"
  printf '%s: ' "$suite"
  chroot "$root" sh -euc '
    cd /tmp/module
    perl -e "printf qq{perl %vd\n}, \$^V"
    perl Makefile.PL > build.log
    make >> build.log 2>&1
    ! grep -i "warning" build.log
    prove -b t'
done
