#!/usr/bin/env bash
# Compares the values that heapprof traces with what Test::LeakTrace says, with the perls of other Debian releases: by line,
# of tests/perl/leaks.pl. Also runs the module's own tests with the values traced, and compares the values in arenas with
# PL_sv_count in five programs.
# usage: oracle/values-perls.sh FOLDER [SUITE...]     (roots of prove-perls.sh; needs root, and a release build)
# A release whose libc is too old for heapprof runs its perl with the libc of this machine.
set -euo pipefail
home=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye trixie sid
heapprof="$home/target/release/heapprof"
library=$("$heapprof" preload-path)

# A program on each line.
programs() {
  cat <<'END'
use POSIX; use Data::Dumper; 1
use Storable "dclone"; $d = dclone({ a => [ 1 .. 99 ] })
$r = [$r] for 1 .. 5000; %h = map { ($_, 1) } 1 .. 3000
eval "sub f$_ { my \$x = shift; [\$x] }" and push @k, main->can("f$_")->($_) for 1 .. 500
$0 = "/dev/null"; do "/tmp/values/arenas.pl" or die $@ || $!
END
}

for suite in "$@"; do
  root="$folder/$suite"
  work="$root/tmp/values"
  rm -rf "$work" && mkdir -p "$work"
  cp "$heapprof" "$library" "$home/tests/perl/leaks.pl" "$home/tests/perl/arenas.pl" "$work"
  cp -r "$root/tmp/module" "$work/module"
  mkdir -p "$root/proc" && mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
  version=$(chroot "$root" perl -e 'printf "%vd", $^V')
  if chroot "$root" /tmp/values/heapprof --version > /dev/null 2>&1; then
    run() { chroot "$root" env HOME=/tmp/values LD_PRELOAD="/tmp/values/libheapprof.so" "$@"; }
  else
    inc=$(chroot "$root" perl -e 'print join ":", map { "'"$root"'$_" } grep { m{^/} } @INC')
    run() {
      local perl="$root/usr/bin/perl" command=()
      for word in "$@"; do case $word in perl) command+=("$perl") ;; *) command+=("${word//\/tmp\/values/$work}") ;; esac; done
      env PERL5LIB="$inc" LD_PRELOAD="$library" "${command[@]}"
    }
  fi
  blib=(-I"/tmp/values/module/blib/lib" -I"/tmp/values/module/blib/arch")
  env=(env HEAPPROF_MODE=exact HEAPPROF_PERL_VALUES=yes HEAPPROF_OUTPUT="/tmp/values/p.%n.pb.gz")
  wanted=$(chroot "$root" perl /tmp/values/leaks.pl trace)
  found=$(run "${env[@]}" perl "${blib[@]}" -MDevel::HeapProf /tmp/values/leaks.pl leaks)
  if [ "$wanted" != "$found" ]; then
    echo "$suite: perl $version: other values than Test::LeakTrace:"
    diff <(echo "$wanted") <(echo "$found") || true
    exit 1
  fi
  lines=$(echo "$wanted" | wc -l)
  run "${env[@]}" perl "${blib[@]}" /tmp/values/module/t/leaks.t | grep -v '^ok' | grep -q '^1\.\.'
  censuses=0
  while read -r line; do
    rm -f "$work"/p.*
    run "${env[@]}" perl "${blib[@]}" -MDevel::HeapProf -e "$line" > /dev/null
    said=$("$heapprof" info "$(ls -t "$work"/p.*.pb.gz | head -1)" | sed -n 's/^Comment *perl: values: //p')
    case $said in
      *' in arenas, PL_sv_count '*) ;;
      *) echo "$suite: perl $version: $line: no census: $said"; exit 1 ;;
    esac
    used=${said%% *} counted=${said##* }
    [ "$used" = "$counted" ] || { echo "$suite: perl $version: $line: $said"; exit 1; }
    censuses=$((censuses + 1))
  done < <(programs)
  echo "$suite: perl $version: $lines lines as Test::LeakTrace, t/leaks.t, $censuses censuses equal PL_sv_count"
done
