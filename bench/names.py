#!/usr/bin/env python3
"""Whether names are what binutils makes of them: the dynamic symbols of C++ libraries and Rust's
own, through heapprof's demangler and through `c++filt -i`.

usage: names.py [--demangle target/release/examples/demangle] [--packages a,b] [--show 20] [FOLDER
...]

The packages are fetched from Debian's archive (apt-get download) and unpacked in a temporary
folder; FOLDERs are searched as well, for Rust's: `rustc --print sysroot`.

build first: cargo build --release -p heapprof-symbolize --example demangle
needs: apt-get, dpkg-deb, nm, c++filt (binutils)
"""

import argparse
import os
import subprocess
import sys
import tempfile

PACKAGES = (
    "libstdc++6 libc++1-15 libllvm15 libclang-cpp15 libclang1-15 liblldb-15 libmlir-15 libqt5core5a"
    " libqt5gui5 libqt5widgets5 libqt5network5 libqt5qml5 libqt5quick5 libqt5webkit5 libqt6core6"
    " libqt6gui6 libqt6widgets6 libqt6qml6 libqt6quick6 libboost-locale1.74.0 libboost-log1.74.0"
    " libboost-math1.74.0 libboost-program-options1.74.0 libboost-python1.74.0 libboost-regex1.74.0"
    " libboost-serialization1.74.0 libboost-wave1.74.0 libboost-test1.74.0 libboost-graph1.74.0"
    " libprotobuf32 libgrpc++1.51 libabsl20220623 libwebkit2gtk-4.1-0 libopencv-core406"
    " libpoppler126 libicu72 libtbb12 libfmt9 libre2-9"
).split()


def symbols(folders):
    """The C++ and Rust linker names that the ELF files in folders define."""
    found = set()
    for folder in folders:
        for parent, _, files in os.walk(folder):
            for name in files:
                path = os.path.join(parent, name)
                if os.path.islink(path) or not is_elf(path):
                    continue
                listed = subprocess.run(
                    ["nm", "-D", "--defined-only", path], capture_output=True, text=True
                ).stdout
                names = (
                    line.split()[-1].split("@")[0] for line in listed.splitlines() if line.strip()
                )
                found.update(name for name in names if name.startswith(("_Z", "_R")))
    return sorted(found)


def is_elf(path):
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def through(command, names):
    run = subprocess.run(
        command, input="\n".join(names) + "\n", capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--demangle", default="target/release/examples/demangle")
    arguments.add_argument("--packages", default=",".join(PACKAGES))
    arguments.add_argument("--show", type=int, default=20)
    arguments.add_argument("folders", nargs="*")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="names-") as folder:
        for package in filter(None, args.packages.split(",")):
            fetched = subprocess.run(
                ["apt-get", "download", "-qq", package], cwd=folder, capture_output=True
            )
            if fetched.returncode:
                print(f"{package}: cannot be had", file=sys.stderr)
        for package in [name for name in os.listdir(folder) if name.endswith(".deb")]:
            subprocess.run(["dpkg-deb", "-x", package, "unpacked"], cwd=folder, check=True)
        names = symbols([os.path.join(folder, "unpacked"), *args.folders])
    ours, theirs = through([args.demangle], names), through(["c++filt", "-i"], names)
    mangled = [name for name, our in zip(names, ours) if our == name]
    differing = [row for row in zip(names, ours, theirs) if row[1] != row[2]]
    unread = [row for row in differing if row[2] == row[0]]
    print(
        f"{len(names)} names; {len(mangled)} stay mangled; {len(differing)} differ, of which"
        f" c++filt reads {len(unread)} not at all"
    )
    for name, our, their in differing[: args.show]:
        print(f"\n{name[:300]}\n  heapprof {our[:600]}\n  c++filt  {their[:600]}")


if __name__ == "__main__":
    main()
