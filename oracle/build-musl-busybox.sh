#!/usr/bin/env bash
# Builds Debian's busybox 1.35 for musl, linked dynamically, for the clean root of .ci/release.d.
# usage: oracle/build-musl-busybox.sh FILE     needs curl, bzip2, make, musl-gcc and Linux's headers
# FILE is made, unless it is there. It names the musl of this machine as its loader.
set -euo pipefail
file=$(realpath -m "$1")
[ ! -e "$file" ] || exit 0
version=1.35.0
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
cd "$sources"
curl --silent --show-error --fail --location --remote-name \
  "${DEBIAN:-http://deb.debian.org/debian}/pool/main/b/busybox/busybox_$version.orig.tar.bz2"
tar -xjf "busybox_$version.orig.tar.bz2"
cd "busybox-$version"
# musl-gcc knows musl's headers alone: those of Linux, which are for every libc, come last.
mkdir headers
for of in linux asm asm-generic mtd; do
  from=/usr/include/$of
  [ -e "$from" ] || from=/usr/include/x86_64-linux-gnu/$of
  ln -s "$from" "headers/$of"
done
make defconfig > make.log 2>&1
# tc wants headers of an older Linux.
sed -i 's/^CONFIG_TC=y/# CONFIG_TC is not set/' .config
make CC=musl-gcc EXTRA_CFLAGS="-idirafter $PWD/headers" busybox >> make.log 2>&1 ||
  { tail -5 make.log >&2; exit 1; }
install -m 755 busybox "$file"
