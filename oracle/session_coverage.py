"""Counts how often the sessions of sessions.py use each word that pprof's own help names."""

import re, subprocess
from collections import Counter

ALWAYS = "symbolize"  # a flag of every session
QUITS = [["q"], ["quit"], ["exit"]]


class HelpWords:
    """The words of pprof's help: in its shell, and on its command line."""

    def __init__(self, pprof, profile, env):
        shell = said(pprof, ["-symbolize=none", profile], env, b"help\n")
        commands, options = shell.split("  Commands:\n")[1].split("  Options:\n")
        self.commands = listed(r" {4}(\S+) {2,}", commands)
        # Names of groups stand alone in their lines.
        self.options = listed(r" {4}(\w+) +\S", options) + listed(r" {6}(\w+) +\S", options)
        self.groups = listed(r" {4}(\w+) *$", options)
        usage = said(pprof, ["-h"], env, b"").split("Environment Variables:")[0]
        formats, flags = usage.split("  Options:\n")
        self.formats = listed(r" {4}-(\w+)", formats)
        self.flags = listed(r" {3,6}-(\w+)", flags)
        for kind, words in vars(self).items():
            if not words:
                raise SystemExit(f"pprof's help names no {kind}: it is written in another way")

    def uses(self, made):
        """How many lines type each word of the shell, and how many sessions have each flag."""
        commands = [word for names in self.commands for word in names.split("/") if word != "^D"]
        topics = [name for name in commands if name not in ("o", "options", "q", "quit", "exit")]
        topics += self.options
        uses = Counter(dict.fromkeys([*commands, ":"], 0))
        uses.update({f"{word}=": 0 for word in self.options + self.groups})
        uses.update({f"help {word}": 0 for word in topics})
        uses.update({f"-{word}": 0 for word in self.flags if word != ALWAYS})
        # With a format, pprof reads no line. compare.py tries them all.
        uses["-FORMAT"] = 0
        for session in made:
            words = {flag.split("=")[0] for flag in session.flags}
            script = session.script
            if words & {f"-{word}" for word in self.formats}:
                words, script = words | {"-FORMAT"}, b""
            uses.update(words & uses.keys())
            for line in script.decode(errors="replace").split("\n"):
                uses.update(line_words(line) & uses.keys())
                if line.split()[:1] in QUITS:
                    break
        return uses


def line_words(line):
    """The words of help that a line may use: its command, its option or its topic."""
    words = line.split()
    if not words:
        return set()
    name, equals, _ = line.partition("=")
    if equals:
        return {name.strip() + "="}
    if words[0] == "help":
        return {"help", " ".join(words)}
    return {re.sub(r"\d+$", "", words[0]), line.strip()}


def said(pprof, flags, env, script):
    done = subprocess.run([pprof, *flags], env=env, input=script, capture_output=True)
    return (done.stdout + done.stderr).decode(errors="replace")


def listed(pattern, text):
    return re.findall(f"^{pattern}", text, re.M)
