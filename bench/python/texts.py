# Writes and reads JSON, and looks through it with regular expressions.
import json
import re

ROWS = [
    {
        "id": i,
        "name": "user %d" % i,
        "tags": ["a%d" % (i % 7), "b", "c"],
        "nested": {"x": i * 1.5, "y": [i, i + 1, i + 2], "t": "2024-01-%02d" % (i % 28 + 1)},
    }
    for i in range(1500)
]
date, word, total = re.compile(r"(\d+)-(\d+)-(\d+)"), re.compile(r"\b\w+\b"), 0
for turn in range(280):
    text = json.dumps(ROWS)
    for row in json.loads(text):
        total += int(date.match(row["nested"]["t"]).group(3))
    part = text[:20000]
    total += len(word.findall(part)) + len(re.sub(r"user (\d+)", lambda m: m.group(1), part))
    if turn % 10 == 0:
        json.dumps(ROWS[:200], indent=1)
print(total)
