#!/usr/bin/env bash
# Unpacks the pythons of other Debian releases, each with its libc, for the test of their stacks.
# usage: oracle/fetch-pythons.sh FOLDER [SUITE[:VERSION]...]
#   (bullseye trixie sid; needs root and apt)
# Each becomes FOLDER/SUITE or FOLDER/SUITE-VERSION, a root to be entered by chroot, with the Python
# that the suite calls python3, or one such as 3.15. WITH_HEADERS=1 adds what a program needs to be
# compiled against it. DEBIAN names another mirror.
set -euo pipefail
source "$(dirname "$0")/debian.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye trixie sid
for wanted in "$@"; do
  debian_release "$folder" "${wanted%:*}"
  root="$folder/${wanted/:/-}"
  case $wanted in
    *:*) python=python${wanted#*:} ;;
    *)
      python=$(apt-cache "${apt[@]}" depends python3 |
        awk '$2 ~ /^python3\.[0-9]+$/ { print $2 }')
      ;;
  esac
  headers=()
  [ -z "${WITH_HEADERS:-}" ] || headers=("lib$python-dev")
  rm -f -- *.deb
  # What the standard library's ctypes and asyncio load has other names in other releases.
  debian_unpack "$root" "$python-minimal" "lib$python-minimal" "lib$python-stdlib" "${headers[@]}" \
    libc6 libgcc-s1 zlib1g libexpat1 libffi7 libffi8 libssl1.1 libssl3 libssl3t64 libzstd1
  mkdir -p "$root/tmp" "$root/dev" "$root/proc"
  [ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
  ln -sfn "$python" "$root/usr/bin/python3"
  chroot "$root" python3 -c 'import asyncio, ctypes, sys; print(sys.version.split()[0])'
done
