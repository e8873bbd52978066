#!/usr/bin/env bash
# Builds Debian's perl 5.36 for musl, for oracle/reach.py.
# usage: oracle/build-musl-perl.sh FOLDER        needs curl, xz and musl-gcc; takes some five minutes
# FOLDER/bin/perl is made, unless it is there. It names the musl of this machine as its loader.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ ! -e "$folder/bin/perl" ] || exit 0
version=5.36.0
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
cd "$sources"
curl --silent --show-error --fail --location --remote-name \
  "${DEBIAN:-http://deb.debian.org/debian}/pool/main/p/perl/perl_$version.orig.tar.xz"
tar -xf "perl_$version.orig.tar.xz"
cd "perl-$version"
# Configure would take glibc's files and libraries for those of musl.
libc=$(dirname "$(realpath /lib/ld-musl-x86_64.so.1)")/libc.a
./Configure -des -Dcc=musl-gcc -Dld=musl-gcc -Dprefix="$folder" -Doptimize="-O2 -g" -Dusethreads \
  -Aldflags=-Wl,--eh-frame-hdr -Uusenm -Dlibc="$libc" -Dlibpth="$(dirname "$libc")" \
  -Dlocincpth= -Dloclibpth= -Dlibs=-lm -Dperllibs=-lm \
  -Dnoextensions="DB_File GDBM_File NDBM_File ODBM_File" > configure.log 2>&1 ||
  { tail -5 configure.log >&2; exit 1; }
make perl > make.log 2>&1 && make install.perl >> make.log 2>&1 ||
  { tail -5 make.log >&2; exit 1; }
"$folder/bin/perl" -e 'print "$]\n"' > /dev/null
