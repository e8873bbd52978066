# Functions that unpack packages of other Debian releases. It is sourced by the scripts beside it.
# DEBIAN names another mirror.

# Sets `apt` to a command line that knows one release and installs nothing, and enters the folder
# for its packages.
# usage: debian_release FOLDER SUITE
debian_release() {
  local state="$1/.apt/$2"
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/packages"
  : > "$state/status"
  # The packages are unpacked and run only in tests, so no key of another release is needed.
  echo "deb [trusted=yes] ${DEBIAN:-http://deb.debian.org/debian} $2 main" > "$state/sources.list"
  apt=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache"
    -o "Dir::State::status=$state/status" -o Acquire::AllowInsecureRepositories=true)
  apt-get "${apt[@]}" update -qq
  cd "$state/packages"
}

# Downloads packages, and unpacks all that the folder has to a root.
# usage: debian_unpack ROOT PACKAGE...
debian_unpack() {
  local root=$1 package
  shift
  for package; do
    # Some have another name in some releases.
    apt-get "${apt[@]}" download -qq "$package" 2>/dev/null || true
  done
  rm -rf "$root" && mkdir -p "$root"
  for package in *.deb; do dpkg -x "$package" "$root"; done
  # Links that lead to the root of the whole system lead to this one instead.
  find "$root" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
    ln -srfn "$root$target" "$link"
  done
  local name
  for name in bin lib lib64 sbin; do
    [ -e "$root/$name" ] || ln -s "usr/$name" "$root/$name"
  done
}
