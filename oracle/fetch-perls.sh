#!/usr/bin/env bash
# Unpacks the perls of other Debian releases, each with its libc, for the test of their stacks.
# usage: oracle/fetch-perls.sh FOLDER [SUITE...]     (bullseye trixie sid; needs apt)
# Each becomes FOLDER/SUITE, a root to be entered by chroot. DEBIAN names another mirror.
set -euo pipefail
source "$(dirname "$0")/debian.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye trixie sid
for suite in "$@"; do
  debian_release "$folder" "$suite"
  modules=$(apt-cache "${apt[@]}" depends perl | awk '/Depends: (libperl5|perl-modules)/ { print $2 }' |
    grep -v '<' | sort -u)
  root="$folder/$suite"
  # shellcheck disable=SC2086 # Each of them is a word.
  debian_unpack "$root" perl-base perl $modules libc6 libcrypt1 libgcc-s1 libdb5.3 libdb5.3t64 zlib1g
  mkdir -p "$root/tmp" "$root/dev" "$root/proc"
  [ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
  [ -x "$root/usr/bin/perl" ]
done
