"""The scripts that sessions.py types into pprof's interactive shell: some written here, and as many
more as are wanted, dealt from the lines below.

In a line, {type} is a sample type of the session's profile, {other} one of another profile, {base}
and {self} are the paths of another profile and of its own, and {re} is a regular expression that
finds some functions of most profiles. A character from U+DC80 to U+DCFF stands for a byte that is
not UTF-8.
"""

import random, re
from dataclasses import dataclass

COMMANDS = (
    "callgrind comments disasm dot eog evince gif gv kcachegrind list pdf peek png proto ps raw svg"
    " tags text top topproto traces tree web weblist"
).split()
SWITCHES = (
    "call_tree compact_labels drop_negative intel_syntax mean noinlines normalize"
    " relative_percentages showcolumns trim"
).split()
CHOICES = "addresses cum filefunctions files flat functions lines".split()
OPTIONS = (
    SWITCHES
    + CHOICES
    + (
        "divide_by edgefraction focus granularity hide ignore nodecount nodefraction output"
        " prune_from sample_index show show_from sort source_path tagfocus taghide tagignore"
        " tagleaf tagroot tagshow trim_path unit"
    ).split()
)
PATTERN_OPTIONS = (
    "focus hide ignore prune_from show show_from tagfocus taghide tagignore tagshow".split()
)
PATTERNS = [
    *["main", "put|walk|parse", "step", "runtime", "malloc|new", "(?i)MAIN", "^f", "[0-9]$"],
    *[".", "zzz", r"file\d\.cc", r"\.go$", "app1", "a+", "core::|ns::", "m[a-i]+n"],
]
BAD_PATTERNS = (
    r"[ ( ) * a** \ (?P<n x{2000} a{2,1} [z-a] \8 (?=x) \pX (?i a{1001} [[:nope:]] (?P<1>x)"
    r" \x{110000}"
    " +x ?x (((x) x\udcff [\udcff] (?z) [a-\\d] \\Q(  x{1}{2} (?P<a>x)(?P<a>y)"
).split()

# An option, and the values that a session gives it.
VALUES = {
    "divide_by": ["2", "0", "1e3", "-1", ".5", "0x1p-1", "Inf", "NaN", "1e400", "two", "", "1"],
    "edgefraction": ["0", "0.1", "1", "-0.5", "x", "", "1_0", "0.001"],
    "focus": ["{re}", "{re}", "{re}", "a=b", "", "", "{re} //: and why", "//: nothing"],
    "granularity": ["lines", "files", "addresses", "functions", "filefunctions", "x", "", "Lines"],
    "hide": ["{re}", "{re}", ""],
    "ignore": ["{re}", "{re}", "zzz", ""],
    "nodecount": ["5", "0", "-1", "+3", "1", "x", "", "9223372036854775808", "0x5", "1_0", "5.0"],
    "nodefraction": ["0", "0.05", "0.5", "2", "-1", "5%", "nan", "infinity", "0x1p-4", "", "0.005"],
    "output": ["out.txt", "out two.txt", "dir", "missing/out", "old.txt", "/dev/null", "", "", ""],
    "prune_from": ["{re}", "{re}", "zzz", ""],
    "sample_index": ["{type}", "{type}", "0", "1", "00", "-1", "4", "nope", "{other}", "", "1.0"],
    "show": ["{re}", "{re}", ""],
    "show_from": ["{re}", "zzz", ""],
    "sort": ["cum", "flat", "x", "", "Cum", "name"],
    "source_path": ["source", "nowhere", "a:source", ""],
    "tagfocus": [
        "16:",
        ":4kb",
        "bytes=1kb:64kb",
        "io|main",
        "thread=io",
        "64b",
        "",
        "1kb:1b",
        "x:",
    ],
    "taghide": ["bytes", "thread", "zzz", ""],
    "tagignore": ["16", "4kb:", "thread=worker.*", "bytes=64b,4kb", "nokey=x", ""],
    "tagleaf": ["bytes", "thread", "thread,bytes", "nokey", ""],
    "tagroot": ["thread", "bytes", "bytes,thread", "nokey,", ""],
    "tagshow": ["bytes", "thread", ".", "zzz", ""],
    "trim_path": ["/src", "/usr", "/nowhere", ""],
    "unit": ["mb", "kb", "bytes", "auto", "minimum", "count", "ms", "MB", "GiB", "x", "", "µs"],
}
SWITCH_VALUES = ["", "=true", "=false", "=1", "=no", "=Y", "=", "=2", "=maybe", " = T", "=false"]
CHOICE_VALUES = ["=true", "=1", "=T", "", "=false", "=yes", "="]

REPORTS = """
comments|comments >c.txt|comments 3
disasm {re}|disasm .|disasm|disasm {re} >d.txt|disasm 0x100010
dot|dot 5|dot {re} -zzz|dot >g.dot|dot 10 -cum|dot 8 -{re}
list {re}|list|list {re} >l.txt|list main -zzz|list 0x100010|list {re} main|list5
peek {re}|peek|peek {re}|peek x|peek main >p.txt|peek 5|peek main -put|peek {re} step
raw|raw >r.txt|raw {re}|raw 3
tags|tags bytes|tags thread -x|tags >t.txt|tags -bytes|tags key -x|tags 3 io|tags -cum
text|text 5|text {re}|text >t.txt|text -cum
top|top 5|top 20 -foo bar -cum|top10|top5 >file|top > file|top {re}|top -{re}|top -cum 5|top --cum
top 0|top -5|top +4|top 99999999999|top 3 2|top {re} put|top -a -b|top 5 >f1 >f2|top -|top 0x10
top focus={re}|top10 {re} -zzz|top5>f|top >>f|top 3 >old.txt|top >dir|top >missing/f|top >/dev/null
traces|traces {re}|traces >t.txt|traces -{re}|traces 2
tree|tree 5 main|tree5|tree -cum|tree {re} >t.txt|tree 3 -{re}
callgrind|callgrind >c.out|callgrind {re}|callgrind 5
proto|proto >p|proto {re}|proto >p.pb.gz|proto -{re}
topproto|topproto >p|topproto 5 {re}|topproto 3 >t.pb.gz
""".strip().replace("\n", "|").split("|")
IMAGES = [
    f"{c}{rest}" for c in "gif pdf png ps svg".split() for rest in ("", " 5", f" main >i.{c}")
]
ODDITIES = """
nosuch|nosuch 5|10|5 top|TOP|Top|topx|xtop10|top10x|tops|top=5|nosuch=1|focus5|focus x|unit|unit mb
cum 5|lines x|sort|sort cum|granularity|granularity lines|sample_index|sample_index 1|nodecount 5
output|output f|FOCUS=x|focus|hide|tagfocus|source_path|source_path x|divide_by|nodefraction .1
top >|tree 5 >|dot main > |peek >|peek main >|list >|tags >|proto >|: x|::|=|=x|= |//: words
//:|# words|-top|-focus=x|?|h|info|top;tree|top\t3|\ttree 3\t|focus\t=\tmain|focus= main | focus =x
mean|total|inuse|{other}|total_{other}|mean_{other}|{type}=1|total|mean_|total_nope
sample_index=nope
normalize 1|trim 0|mean 1|call_tree x|options x|o x|top \udcff|top é|peek é|unit=é|x\udcff
top \x00|svg >|svg main >|q5|quit5|exit=1|help=1|help5|o=1|top //: words|top5 //:|top -cum=1
top "a b"
top 'x'
""".strip().replace("\n", "|").split("|")
OTHER_HELP = """
help|help|help nosuch|help o|help options|help quit|help :|help top tree|help  top|help sort
help granularity|help total_{type}|help {type}|help top10|help TOP|help focus=|help \udcff
HELP|help help
""".strip().replace("\n", "|").split("|")
HELP = [f"help {word}" for word in COMMANDS + OPTIONS] + OTHER_HELP
SHORTCUTS = [
    "{type}",
    "total_{type}",
    "mean_{type}",
    ":",
    "{type}",
    " {type} ",
    "o",
    "options",
    "o",
]

# Flags at the start. {base} is another profile, most often with the same sample types.
STARTS = """
-focus={re}|-cum -lines -unit=kb|-lines|-files -cum|-addresses|-noinlines|-nodecount=3|-trim=false
-base={base}|-diff_base={base}|-diff_base={base} -cum|-base={base} -normalize|-drop_negative
-diff_base={base} -drop_negative|-mean|-divide_by=2|-divide_by=0|-sample_index=0|-sample_index=nope
-inuse_objects|-alloc_space|-inuse_space|-hide={re} -show={re}|-tagfocus=:4kb|-tagroot=bytes
-tagleaf=thread|-output=out.txt|-relative_percentages -focus={re}|-compact_labels=false|-call_tree
-nodefraction=0|-ignore={re}|-add_comment=words|-all_frames|-unit=mb|-show_from={re}|-tagshow=bytes
-sample_index=1|-cum=false|-focus=[|-prune_from={re}|-filefunctions|nosuch.pb.gz
-edgefraction=0.5|-tagignore=16|-taghide=bytes|-showcolumns -lines|-source_path=source
-base={self}|-diff_base={self}|-base={self} -cum|-trim_path=/src|-intel_syntax|-functions -flat
-mean -sample_index=1|-nodecount=0|{base}|{base} -cum
""".strip().replace("\n", "|").split("|")

# Flags that go together, so that each flag of pprof's help is in some of the sessions.
FLAG_SETS = """
-focus={re} -relative_percentages -functions|-hide={re} -unit=kb -flat|-ignore={re} -trim_path=/src
-show={re} -nodefraction=0.01 -cum|-show_from={re} -edgefraction=0.1|-nodecount=6 -trim=false -files
-prune_from={re} -compact_labels=false|-tagfocus=:4kb -tagshow=bytes|-tagignore=64b -taghide=thread
-tagroot=bytes -call_tree|-tagleaf=thread -noinlines -addresses|-mean -filefunctions -divide_by=3
-lines -showcolumns -source_path=source|-sample_index={type} -intel_syntax -all_frames
-diff_base={base} -normalize|-base={base} -drop_negative -output=out.txt|-inuse_space -nodecount=9
-seconds=5 -timeout=9 -buildid=0badcafe|-tools=nowhere -add_comment=words|-inuse_objects -lines
-tls_cert=a.pem -tls_key=b.pem -tls_ca=c.pem|-alloc_space -cum|-alloc_objects|-alloc_space -files
-total_delay|-contentions -inuse_space|-mean_delay -lines|-no_browser|-http=localhost:0 -{format}
-{format}
""".strip().replace("\n", "|").split("|")
FORMATS = """
callgrind comments dot proto raw tags text top topproto traces tree peek={re} list={re} disasm={re}
""".split()
# What stands before the sources of a dealt session.
LEADS = ["start", "start", "flag set", "flag set", "flag set", ""]
ENDS = ["\n", "\n", "\nq\n", "\nexit\n", "\nquit\nnosuch\n", ""]

# Sessions that are written out: what is special about one, and its lines.
WRITTEN = [
    ("ends at once", ""),
    ("a blank line", "\n"),
    ("blanks without a newline", "  \t "),
    ("a report without a newline", "top 3"),
    ("an assignment without a newline", "top\nfocus=main"),
    ("an error without a newline", "nosuch"),
    ("help without a newline", "help top"),
    ("options without a newline", "o"),
    ("quit without a newline", "quit"),
    ("quit before the end", "top 2\nquit\ntop 3\n"),
    ("q before the end", "q\ntop 3\n"),
    ("exit before the end", "exit\ntop 3\n"),
    ("q with words", "q now\ntop 3\n"),
    ("quit with blanks", " \tquit\t \ntop 3\n"),
    ("exit with words", "exit 3\ntop\n"),
    ("exit to a file", "exit >f\ntop\n"),
    ("quit in capitals", "QUIT\nExit\nquit;\nq\n"),
    ("quit as an option", "quit=1\nq=1\nexit=\no=\nhelp=\no\nq\n"),
    (
        "CRLF",
        "top 3\r\nfocus=main\r\no\r\nhelp top\r\ncum=1\r\n{type}\r\n:\r\n\r\ntop >f\r\nquit\r\n",
    ),
    ("CR alone", "top 3\rtree\nfocus=a\rb\no\n"),
    ("tabs", "\ttop\t3\t-cum\t\n\tfocus\t=\tmain\t\no\n\t:\t\n\t{type}\t\no\n"),
    ("blank lines", "\n\n  \n\t\n \r\n top 2\n\n"),
    ("long unknown word", "x" * 70000 + "\ntop 3\n"),
    ("long value", "focus=" + "b" * 100000 + "\no\ntop 3\nfocus=\ntop 3\n"),
    ("long list of words", "top 5" + " main" * 3000 + "\ntop" + " -zzz" * 3000 + "\n"),
    ("long file name", "top >" + "f" * 300 + "\noutput=" + "g" * 255 + "\ntop 3\n"),
    ("long line of blanks", "top" + " " * 100000 + "3\n"),
    ("NUL", "top\0\nfocus=a\0b\no\ntop 3\ntop >a\0b\n\0\n\0=1\nfocus=\noutput=c\0\ntop\n"),
    ("UTF-8", "focus=é|日本\no\ntop\ntöp\nfocus=\nunit=µs\ntop 3\ntop >é.txt\npeek 日本\n"),
    (
        "bytes that are not UTF-8",
        "focus=\udcff\no\ntop\nfocus=\n\udcff\nx\udcc3=1\npeek \udcff\n",
    ),
    ("width of options", "focus=éééééééééééééééé\nhide=日本日本\nunit=\udcff\no\n"),
    ("spaces of Unicode", "\xa0top\xa03\u2003-cum\u3000\nfocus\xa0=\u2003x\xa0\no\n\x85top\x852\n"),
    ("not spaces", "\ufefftop\n\u200btop\n\x1ctop\n\x00top\nfocus=\u200bx\no\n"),
    ("vertical tab and form feed", "\vtop\f2\nfocus=\v\fx\v\no\n"),
    (
        "settings stay",
        "focus={re}\ntop 5\ncum=1\ntop 5\nlines=1\ntop 5\nunit=kb\ntree 3\n:\ntop 5\no\n",
    ),
    ("arguments do not stay", "top 3 {re} -zzz -cum\no\ntop\ntree 2 >t\no\ntree 3\ntags x -y\no\n"),
    ("output stays", "output=out.txt\ntop 3\ntree 3\nproto\ndot 3\no\noutput=\ntop 2\n"),
    ("output and a file of the line", "output=a\ntop 3 >b\ntop 2\n"),
    (
        "output of binary formats",
        "output=out.pb.gz\nproto\noutput=top.pb.gz\ntopproto\ncallgrind\n",
    ),
    (
        "output into a folder",
        "output=dir\ntop 3\noutput=dir/f\ntop 3\noutput=missing/f\ntop 3\no\n",
    ),
    (
        "output to a device",
        "output=/dev/null\ntop\noutput=/dev/full\ntop\noutput=/dev/stdout\ntop 3\n",
    ),
    ("output with blanks", 'output= a b \ntop 3\ntop > "a b"\noutput=x //: y\ntop 2\n'),
    ("files that exist", "top 3 >old.txt\noutput=old.txt\ntop 1\n"),
    (
        "names of binary formats",
        "proto\nproto\ntopproto\ncallgrind\ncallgrind\nproto >p\nproto >\n",
    ),
    ("taken names", "top 3 >profile001.pb.gz\ntop 3 >profile003.pb.gz\nproto\nproto\ntopproto\n"),
    ("names of images", "png 3\nsvg 3\ngif 3\nps 3\npdf 3\npng 3\nproto\n"),
    ("images into files", "png 3 >a.png\noutput=b.svg\nsvg 3\noutput=c\nps 3\ngif 2\npdf 2\n"),
    (
        "divisors",
        "divide_by=0\ntop\no\ndivide_by=NaN\ntop\ndivide_by=Inf\ntop\ndivide_by=-2\ntop 4\no\n",
    ),
    (
        "fractions",
        "nodefraction=NaN\ntop\no\nnodefraction=-Inf\ntop\nedgefraction=1e-7\no\ndot 5\n",
    ),
    (
        "floats shown",
        "divide_by=1e21\no\ndivide_by=123456789\no\ndivide_by=1e-5\no\ndivide_by=1e20\no\n",
    ),
    (
        "wrong numbers",
        "nodecount=x\nnodecount=\nnodecount=9223372036854775808\n"
        "nodefraction=1_0\nnodefraction=x\n",
    ),
    (
        "wrong choices",
        "sort=x\nsort=\ngranularity=\ngranularity=Lines\ncum=2\nlines=\nlines\nfiles=no\n",
    ),
    (
        "choices",
        "lines=1\no\ncum=t\no\ngranularity=files\nsort=flat\no\naddresses=TRUE\nflat=True\no\n",
    ),
    (
        "switches",
        "".join(f"{s}\n" for s in SWITCHES) + "o\n" + "".join(f"{s}=0\n" for s in SWITCHES) + "o\n",
    ),
    (
        "values of a switch",
        "".join(f"mean={v}\no\n" for v in "t F yes NO y n 0 1 TrUe".split()) + "mean=on\n",
    ),
    ("all values gone", "".join(f"{o}=\n" for o in OPTIONS) + "o\ntop 3\n"),
    ("no value", "".join(f"{o}\n" for o in OPTIONS) + "o\ntop 3\n"),
    (
        "comments",
        "focus=main //: a //: b\no\nfocus=a//:b\nhide=//:\nunit=kb//:\n"
        "//: x\ntop //: x\no\ntop 3\n",
    ),
    ("two equals signs", "focus=a=b\no\nfocus==\no\ntagfocus=bytes=16:\no\ntop 3\n"),
    (
        "sample types",
        "sample_index=0\no\n{type}\no\ntotal_{type}\no\nmean_{type}\no\ntop 3\nsample_index=\no\n",
    ),
    (
        "wrong sample types",
        "sample_index=nope\nsample_index=-1\nsample_index=99\nsample_index=0x0\n{other}\no\n",
    ),
    (
        "the shortcut",
        "focus=a\nignore=b\nhide=c\ntagfocus=d\ntagignore=e\nshow=f\no\n:\no\n : \n:x\n",
    ),
    (
        "did you mean",
        "focus x y\nunit\nunit kb\ncum x\nlines 5\nfocus5\nfocus 5\nsource_path x\nsort x\n",
    ),
    (
        "digits",
        "top5 3\ntop05\ntree3 2\npeek5\nlist5\n5\nx5\n"
        "top99999999999\ntop-5\ntags5\nhelp5\no5\nq5\n",
    ),
    (
        "no matches",
        "focus=zzz\ntop\nignore=.\ntop\n:\nhide=.\ntop\n:\nshow=zzz\ntop\ntagfocus=zzz\ntree\n",
    ),
    (
        "labels",
        "tagroot=bytes\ntop 5\ntagleaf=thread\ntree 5\ntagroot=nokey\ntop 3\n"
        "tags\ntagshow=bytes\ntags\n",
    ),
    (
        "ranges",
        "tagfocus=16:\ntop 3\ntagignore=4kb\ntop 3\n:\n"
        "tagfocus=bytes=:1kb\ntraces\ntagfocus=16:x\ntop\n",
    ),
    (
        "sources",
        "source_path=source\nlist {re}\ntrim_path=/src\nlist {re}\nlist main >l\n"
        "source_path=\nlist main\n",
    ),
    ("all of help", "".join(f"help {w}\n" for w in COMMANDS + OPTIONS + ["nosuch", ""])),
    (
        "a broken pattern of each option",
        "".join(f"{o}=[\ntop 3\n{o}=\n" for o in PATTERN_OPTIONS),
    ),
    ("broken patterns", "".join(f"focus={p}\ntop 2\n" for p in BAD_PATTERNS)),
    ("broken arguments", "".join(f"peek {p}\ntop {p} x\n" for p in BAD_PATTERNS)),
    (
        "an error after a file was named",
        "output=f\nfocus=[\ntop\npeek [\nfocus=\nnosuch\ntop >g [\n",
    ),
]

# Sessions about the profile of profiles.odd_profile. It has no values of the last type, which is
# the default.
ODD = [
    (
        "types named as commands",
        "top\noptions\nlines\noptions\no\nquit\noptions\nfocus\ntop 2\noptions\nq\ntop 3\n",
    ),
    ("blank lines as a type", "options\n\noptions\nmean_\noptions\ntotal_\noptions\ntags\n"),
    ("blanks at the end as a type", "options\n  "),
    (
        "a type with two words",
        "two words\noptions\ntext\nmean_two words\nsample_index=two words\ntext 2\n",
    ),
    (
        "a type with a sign",
        "a=b\noptions\nsample_index=a=b\noptions\ntotal_a=b\ntext\nhelp sample_index\n",
    ),
    ("units of labels", "tags\ntagfocus=size=64:\ntop 2\ntraces\nraw\nexit\n"),
]

# Sessions with viewers: the programs on PATH beside dot (None: not even dot), BROWSER, the lines.
SHOWN = [
    ("gv", "eog evince gv", "", "gv 5\neog 5 >x.svg\nevince 5\n"),
    ("gv again", "gv", "", "gv\ngv 3 main\n"),
    ("kcachegrind", "kcachegrind", "", "kcachegrind\n"),
    ("web", "firefox", "", "web 5\n"),
    ("the first browser", "firefox chromium sensible-browser", "", "web 5\no\n"),
    ("BROWSER", "firefox own", "own --tab two", "web 5\n"),
    ("BROWSER is missing", "firefox", "nosuch", "web 5\n"),
    ("weblist", "firefox", "", "weblist main\nweblist\nweblist [\n"),
    ("a viewer without a newline", "eog", "", "eog 3"),
    (
        "no viewer",
        "",
        "",
        "gv\neog 2\nevince\nweb\nweblist .\nkcachegrind\nweb >w.svg\nevince 3\nkcachegrind 2\n",
    ),
    (
        "no viewer, output",
        "",
        "",
        (
            "output=x\ngv\nweb\nkcachegrind\nweblist main\nevince\neog\n"
            "output=y.pdf\nevince\nkcachegrind main\n"
        ),
    ),
    (
        "no dot",
        None,
        "",
        "png\nsvg >s.svg\ngv\nweb 5\ndot 3\nkcachegrind >k\noutput=o\npdf\neog\nevince\n",
    ),
]


@dataclass
class Session:
    """What is typed into one shell, and what surrounds it."""

    name: str
    flags: list
    sources: list
    script: bytes
    viewers: str | None = None  # fake programs; None leaves PATH as it is
    dot: bool = True
    browser: str = ""
    joined: bool = False  # stderr goes where stdout goes, so that their order is compared


class Deck:
    """Deals its cards in random order, each once before any comes again."""

    def __init__(self, cards, rng):
        self.cards, self.rng, self.left = list(cards), rng, []

    def deal(self):
        if not self.left:
            self.left = self.rng.sample(self.cards, len(self.cards))
        return self.left.pop()


class Dealer:
    """Makes sessions about the profiles, which it takes in turn."""

    def __init__(self, profiles, rng):
        self.profiles, self.rng = profiles, rng  # path: its sample types
        self.paths = Deck(profiles, rng)
        values = [f"{o}={v}" for o, all_values in VALUES.items() for v in all_values]
        values += [f"{o}={p}" for o in ("focus", "hide", "tagfocus") for p in BAD_PATTERNS]
        values += [s + v for s in SWITCHES for v in SWITCH_VALUES]
        values += [c + v for c in CHOICES for v in CHOICE_VALUES]
        values += SHORTCUTS * 5
        decks = {
            "pattern": PATTERNS,
            "value": values,
            "report": REPORTS,
            "image": IMAGES,
            "oddity": ODDITIES,
            "help": HELP,
            "start": STARTS,
            "flag set": FLAG_SETS,
            "format": FORMATS,
            "lead": LEADS,
        }
        self.decks = {kind: Deck(cards, rng) for kind, cards in decks.items()}

    def filled(self, text, path):
        """The text with a pattern, and sample types, for its placeholders."""
        others = [t for p in self.profiles if p != path for t in self.profiles[p]] or ["cpu"]
        choices = {
            "{re}": lambda: self.decks["pattern"].deal(),
            "{type}": lambda: self.rng.choice(self.profiles[path] or ["none"]),
            "{other}": lambda: self.rng.choice(others),
            "{base}": lambda: self.base(path),
            "{self}": lambda: path,
            "{format}": lambda: self.filled(self.decks["format"].deal(), path),
        }
        return re.sub(r"\{(re|type|other|base|self|format)\}", lambda m: choices[m[0]](), text)

    def base(self, path):
        """Another profile; four times of five one with the same sample types, if there is one."""
        alike = [p for p, types in self.profiles.items() if types == self.profiles[path]]
        return self.rng.choice(alike if self.rng.random() < 0.8 else list(self.profiles))

    def session(self, name, script, path=None, flags="", **more):
        path = path or self.paths.deal()
        script = self.filled(script, path).encode("utf-8", "surrogateescape")
        words = [self.filled(word, path) for word in flags.split()]
        words.sort(key=lambda word: not word.startswith("-"))  # flags come before sources
        sources = [word for word in words if not word.startswith("-")] + [path]
        return Session(name, words[: len(words) + 1 - len(sources)], sources, script, **more)

    def dealt(self, number, small):
        """A session of dealt lines; a small profile's also draws images, before it has settings."""
        path = self.paths.deal()
        deal = lambda kind: self.decks[kind].deal()
        lines = [deal("image")] if path in small and self.rng.random() < 0.6 else []
        for _ in range(self.rng.randint(2, 6)):
            lines += [deal("value") for _ in range(self.rng.choice([0, 1, 1, 2]))]
            lines += [deal("oddity")] if self.rng.random() < 0.4 else []
            lines += [deal("report")]
            lines += [deal("help")] if self.rng.random() < 0.5 else []
            lines += [":"] if self.rng.random() < 0.2 else []
        script = "\n".join(lines) + self.rng.choice(ENDS)
        lead = deal("lead")
        flags = deal(lead) if lead else ""
        joined = self.rng.random() < 0.1
        return self.session(f"dealt {number}", script, path, flags, joined=joined)


def sessions(profiles, small, odd, seed, count):
    """Makes `count` sessions, or more if more are written out, about the profiles."""
    rng = random.Random(seed)
    dealer = Dealer(profiles, rng)
    small_paths = Deck(small or profiles, rng)
    made = [dealer.session(name, script, small_paths.deal()) for name, script in WRITTEN]
    made += [dealer.session(name, script, odd) for name, script in ODD]
    for name, programs, browser, script in SHOWN:
        made.append(
            dealer.session(
                name,
                script,
                small_paths.deal(),
                viewers=programs or "",
                dot=programs is not None,
                browser=browser,
            )
        )
    made += [dealer.dealt(i, small) for i in range(count - len(made))]
    return made
