#!/usr/bin/env python3
"""Runs dozens more of real programs bare, under `heapprof record` and under `record --exact`, and
says which noticed.

usage: more_programs.py [--heapprof PATH] [--only a,b,...]

As real_programs.py, with one run a mode, for breadth: interpreters, compilers, editors, archivers,
shells that start hundreds of children. Exit code, stdout and what the program itself writes to
stderr must be those of the bare run. A program that is not installed is left out, and named at the
end. Prints Markdown; exit code 1 where something differs or left no profile.
"""

import argparse, glob, json, os, shutil, subprocess, sys, tempfile

ap = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
ap.add_argument("--heapprof", default="heapprof")
ap.add_argument("--only", default="", help="names of programs, separated by commas")
a = ap.parse_args()
a.heapprof = os.path.abspath(shutil.which(a.heapprof) or a.heapprof)
LIMIT = 300  # seconds a run may take
scratch = tempfile.TemporaryDirectory(prefix="more-")
work = scratch.name

FILES = {
    "a.rb": (
        'h = Hash.new(0); 200000.times { |i| h["k#{i % 5000}"] += i }; puts h.size\nputs'
        " 4.times.map { |k| Thread.new { (0..20000).map(&:to_s).join.size }"
        " }.map(&:value).inspect\nputs `echo hi`; pid = fork { exit 3 }; Process.wait pid; puts"
        " $?.exitstatus"
    ),
    "a.php": (
        '<?php $a = []; for ($i = 0; $i < 300000; $i++) $a["k".($i % 7000)][] = $i; echo'
        ' strlen(json_encode($a)), "\\n"; exit(7);'
    ),
    "a.el": (
        "(let ((h (make-hash-table :test (quote equal)))) (dotimes (i 200000) (puthash (format"
        ' "k%d" (% i 5000)) i h)) (princ (hash-table-count h)))'
    ),
    "a.lua": (
        "local t = {} for i = 1, 300000 do t[i % 5000 + 1] = tostring(i) .. (t[i % 5000 + 1] or"
        ' ""):sub(1, 20) end print(#t)\nlocal c = coroutine.wrap(function() for i = 1, 1000 do'
        " coroutine.yield({i}) end end) local s = 0 for i = 1, 1000 do s = s + c()[1] end print(s)"
    ),
    "a.scm": (
        "(define h (make-hash-table)) (do ((i 0 (+ i 1))) ((= i 200000)) (hash-set! h (modulo i"
        " 5000) (number->string i))) (display (hash-count (const #t) h))"
    ),
    "a.ml": (
        "let () = let h = Hashtbl.create 10 in for i = 0 to 300000 do Hashtbl.replace h (i mod"
        " 5000) (string_of_int i) done; print_int (Hashtbl.length h)"
    ),
    "a.R": (
        "m <- matrix((1:250000 * 7919) %% 50021, 500); print(dim(solve(m + diag(500) * 9e6)));"
        " print(coef(lm(mpg ~ wt, mtcars)))"
    ),
    "a.m": (
        "a = magic(301); b = inv(a); disp(size(b)); s = cell(1, 10000); for i = 1:10000 s{i} ="
        " num2str(i); end; disp(numel(s)); exit(4)"
    ),
    "a.tex": (
        r"\documentclass{article}\begin{document}"
        + r"Hello $x^2$ world. \section{A} text " * 300
        + r"\end{document}"
    ),
    "a.md": (
        "# T\n\n"
        + "Some *text* with [links](http://x.y) and `code`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        * 300
    ),
    "a.dot": (
        "digraph G {"
        + "".join(f"n{i}->n{i * 7 % 300};n{i}->n{i * 13 % 300};" for i in range(300))
        + "}"
    ),
    "a.pl": (
        "p(X,Y) :- between(1, 200000, X), Y is X*X. :- findall(X-Y, p(X,Y), L), length(L, N),"
        " print(N), nl, halt(5)."
    ),
    "a.lisp": (
        "(let ((h (make-hash-table))) (dotimes (i 300000) (setf (gethash (mod i 5000) h) (format"
        ' nil "~a" i))) (print (hash-table-count h)) (sb-ext:exit :code 6))'
    ),
    "a.rkt": (
        "#lang racket/base\n(define h (make-hash)) (for ([i 300000]) (hash-set! h (modulo i 5000)"
        " (number->string i))) (displayln (hash-count h)) (exit 8)"
    ),
    "a.smt2": (
        "(declare-const x Int)(declare-const y Int)(assert (= (+ (* x x) (* y y)) 4225))(assert (>"
        " x y))(assert (> y 1))(check-sat)"
    ),
    "a.c": '#include <stdio.h>\nint main() { puts("x"); return 0; }',
    "a.cpp": (
        "#include <map>\n#include <regex>\n#include <string>\nint main() { std::map<std::string,"
        ' int> m; std::regex r("a"); return m.size(); }'
    ),
    "a.json": "[" + ",".join('{"a":%d,"b":"x%d"}' % (i, i) for i in range(60000)) + "]",
    "a.y": (
        "%token A\n%%\ns: s A | A ;\n%%\nint yylex() { return 0; } int yyerror(char *s) { return 0;"
        " } int main() { return yyparse(); }\n"
    ),
    "a.awk": (
        'BEGIN { for (i = 0; i < 400000; i++) a["k" i % 5000] = a["k" i % 5000] substr(i, 1, 2);'
        " for (k in a) n += length(a[k]); print n; exit 12 }"
    ),
    "a.sh": (
        "set -e; for i in $(seq 300); do x=$(echo $i); done; echo $x | (read y; echo $y); exit 13"
    ),
    "a.gdb": "set print thread-events off\nbreak main\nrun > /dev/null\nbt\nkill\n",
    "many.py": (
        "import concurrent.futures, subprocess\npool ="
        " concurrent.futures.ThreadPoolExecutor(8)\nprint(sum(len(r) for r in pool.map(lambda i:"
        ' subprocess.check_output(["echo", str(i)]), range(100))))'
    ),
    "pool.py": (
        "import multiprocessing\ndef f(x): return x * x\nif __name__ == '__main__':\n  with"
        " multiprocessing.Pool(4) as pool: print(sum(pool.map(f, range(1000))))"
    ),
    "CMakeLists.txt": (
        "cmake_minimum_required(VERSION 3.10)\nproject(x CXX)\nadd_executable(x a.cpp)\n"
    ),
    "big.txt": "lorem ipsum dolor\n" * 400000,
}
FORKS = (
    'for (1..50) { my $p = fork; if (!$p) { my @a = map { "x" x $_ } 1..100; exit($_ % 5) } } my $s'
    ' = 0; while (wait > 0) { $s += $? >> 8 } print "$s\\n"'
)
# The commands; a string is a shell's.
PROGRAMS = {
    "ruby": ["ruby", "a.rb"],
    "php": ["php", "a.php"],
    "emacs": ["emacs", "--batch", "-l", "./a.el"],
    "lua5.4": ["lua5.4", "a.lua"],
    "guile": ["guile", "--no-auto-compile", "a.scm"],
    "ocaml": ["ocaml", "a.ml"],
    "R": ["Rscript", "--vanilla", "a.R"],
    "octave": ["octave-cli", "--norc", "a.m"],
    "swi-prolog": ["swipl", "-q", "a.pl"],
    "sbcl": ["sbcl", "--script", "a.lisp"],
    "racket": ["racket", "a.rkt"],
    "erlang": [
        "erl",
        "-noshell",
        "-eval",
        (
            "L=[spawn(fun() -> receive _ -> x end end)||_<-lists:seq(1,2000)], [P!hi||P<-L],"
            ' io:format("~p~n",[length(L)]), halt(11).'
        ),
    ],
    "z3": ["z3", "-T:20", "a.smt2"],
    "clang": ["clang", "-O2", "-c", "a.cpp", "-o", "/dev/null"],
    "g++ -flto": ["g++", "-flto=2", "-O2", "a.cpp", "-o", "a.out"],
    "cmake and ninja": (
        "cmake -S . -B build -G Ninja >/dev/null && ninja -C build | tail -1 | cut -c1-20; rm -rf"
        " build"
    ),
    "bison": ["bison", "-o", "/dev/null", "a.y"],
    "gdb": "gcc -g a.c -o debugged && gdb -batch -x a.gdb ./debugged | grep -v process",
    "objdump": "objdump -d $(command -v git) | md5sum",
    "pdflatex": "pdflatex -interaction=batchmode a.tex >/dev/null; echo $?; md5sum <a.aux",
    "pandoc": ["pandoc", "a.md", "-o", "-"],
    "groff": (
        "groff -man -Tascii $(ls /usr/share/man/man1/*.1 /usr/share/man/man1/*.1.gz | head -1) |"
        " md5sum"
    ),
    "graphviz": ["dot", "-Tsvg", "a.dot"],
    "ghostscript": "gs -q -dBATCH -dNOPAUSE -sDEVICE=bbox -c showpage; echo $?",
    "imagemagick": [
        "convert",
        "-size",
        "600x400",
        "-seed",
        "1",
        "plasma:red-blue",
        "-blur",
        "0x3",
        "-resize",
        "50%",
        "-format",
        "%w %h",
        "info:",
    ],
    "ffmpeg": [
        "ffmpeg",
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc=duration=2:size=320x240",
        "-c:v",
        "mpeg4",
        "-f",
        "md5",
        "-",
    ],
    "doxygen": (
        "(echo INPUT=a.cpp; echo OUTPUT_DIRECTORY=documented; echo QUIET=YES) | doxygen -"
        " 2>/dev/null; echo $?; rm -rf documented"
    ),
    "vim": "vim -es -u NONE -c ':%s/ipsum/x/g' -c ':wq! changed.txt' big.txt; md5sum <changed.txt",
    "jq": ["jq", "-c", "map(.a) | add", "a.json"],
    "gawk": ["gawk", "-f", "a.awk"],
    "dash": ["dash", "a.sh"],
    "bash": ["bash", "a.sh"],
    "sort": "sort --parallel=2 big.txt | md5sum",
    "tar and xz": "tar cJf - /usr/share/perl | wc -c",
    "zstd": "zstd -T2 -q -c big.txt | zstd -dc | md5sum",
    "pigz": "pigz -p2 -c big.txt | gzip -dc | md5sum",
    "rsync": "rsync -a /usr/share/perl/ copied; find copied | wc -l; rm -rf copied",
    "openssl": (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout /dev/null -out /dev/null -subj /CN=x"
        " -days 1 2>/dev/null; echo $?"
    ),
    "apt": ["apt-cache", "show", "bash", "coreutils", "perl"],
    "xargs": "seq 40 | xargs -P4 -n1 echo | sort -n | md5sum",
    "python3 with threads and children": [sys.executable, "many.py"],
    "python3 multiprocessing": [sys.executable, "pool.py"],
    "perl with forks": ["perl", "-e", FORKS],
}
# What has to be there, where it is not the name or the first word.
NEEDS = {
    "cmake and ninja": ["cmake", "ninja"],
    "gdb": ["gcc", "gdb"],
    "objdump": ["objdump", "git"],
    "ghostscript": ["gs"],
    "tar and xz": ["tar", "xz"],
    "apt": ["apt-cache"],
}


def is_there(name, command):
    first = command[0] if isinstance(command, list) else name
    return all(shutil.which(need) for need in NEEDS.get(name, [first]))


def run(command, wrap=()):
    words = ["sh", "-c", command] if isinstance(command, str) else command
    ended = subprocess.run(
        [*wrap, *words], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT
    )
    errors = [line for line in ended.stderr.splitlines() if not line.startswith(b"heapprof: ")]
    return ended.returncode, ended.stdout, errors


def question(*words):
    return json.loads(
        subprocess.run(
            [a.heapprof, *words, "-f", "json"], check=True, stdout=subprocess.PIPE
        ).stdout
    )


for name, text in FILES.items():
    with open(os.path.join(work, name), "w") as f:
        f.write(text)
only = [name for name in a.only.split(",") if name]
if unknown := set(only) - set(PROGRAMS):
    sys.exit(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
missing, failed = [], []
print("| program | exit code | profiles | alloc_objects, exact | alloc_space |")
print("| :--- | ---: | ---: | ---: | ---: |")
for name, command in PROGRAMS.items():
    if only and name not in only:
        continue
    if not is_there(name, command):
        missing.append(name)
        continue
    run(command)  # what it caches, it caches now
    bare, profiles = run(command), []
    for mode in ([], ["--exact"]):
        folder = os.path.join(work, "profiles")
        shutil.rmtree(folder, ignore_errors=True)
        found = run(command, [a.heapprof, "record", "--no-symbolize", *mode, "-o", folder, "--"])
        profiles = glob.glob(folder + "/*.pb.gz")
        if found != bare or not profiles:
            what = [
                w
                for w, one, other in zip(("exit code", "stdout", "stderr"), found, bare)
                if one != other
            ]
            failed.append(f"* {name}, {mode or 'sampled'}: {', '.join(what) or 'no profile'}")
    types = question("info", *profiles)["sample_types"] if profiles else []
    total = {t["sample_type"]["type"]: t["total"] for t in types}
    objects, mib = total.get("alloc_objects", 0), total.get("alloc_space", 0) / (1 << 20)
    print(f"| {name} | {bare[0]} | {len(profiles)} | {objects:,} | {mib:.1f} MiB |", flush=True)
print("", *failed, *(["not installed: " + ", ".join(missing)] if missing else []), sep="\n")
sys.exit(bool(failed))
