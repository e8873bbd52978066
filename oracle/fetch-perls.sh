#!/usr/bin/env bash
# Unpacks the perls of other Debian releases, each with its libc, for the test of their stacks.
# usage: oracle/fetch-perls.sh FOLDER [SUITE...]     (bullseye trixie sid; needs apt)
# Each becomes FOLDER/SUITE, a root to be entered by chroot. DEBIAN names another mirror.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye trixie sid
for suite in "$@"; do
  state="$folder/.apt/$suite"
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/packages"
  : > "$state/status"
  # The packages are unpacked and run only in the test, so no key of another release is needed.
  echo "deb [trusted=yes] ${DEBIAN:-http://deb.debian.org/debian} $suite main" > "$state/sources.list"
  apt=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache"
    -o "Dir::State::status=$state/status" -o Acquire::AllowInsecureRepositories=true)
  apt-get "${apt[@]}" update -qq
  cd "$state/packages"
  modules=$(apt-cache "${apt[@]}" depends perl | awk '/Depends: (libperl5|perl-modules)/ { print $2 }' |
    grep -v '<' | sort -u)
  for package in perl-base perl $modules libc6 libcrypt1 libgcc-s1 libdb5.3 libdb5.3t64 zlib1g; do
    # Some have another name in some releases.
    apt-get "${apt[@]}" download -qq "$package" 2>/dev/null || true
  done
  root="$folder/$suite"
  rm -rf "$root" && mkdir -p "$root"
  for package in *.deb; do dpkg -x "$package" "$root"; done
  for name in bin lib lib64 sbin; do
    [ -e "$root/$name" ] || ln -s "usr/$name" "$root/$name"
  done
  mkdir -p "$root/tmp" "$root/dev" "$root/proc"
  [ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
  [ -x "$root/usr/bin/perl" ]
done
