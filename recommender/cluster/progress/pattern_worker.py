"""Named groups in lines of text; also a worker program, killed by a pattern that takes too long.

The program reads one JSON object per line, `{"pattern": ..., "names": [...], "lines": [...]}`, and writes one line per
result, `{"groups": [{...}, ...]}` or `{"problem": ...}`, with the `cpu_s` used, until its argument of CPU seconds is
spent. It imports none of our modules, so that it starts within a few hundredths of a second.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
import time
from collections.abc import Sequence

CPU_LIMIT_S = 0.2
"""CPU limit for the lines of one pod; a kernel timer kills the program, since nothing else stops a runaway search."""

MEMORY_LIMIT_BYTES = 512 << 20


MAX_TEXT_CHARS = 64
"""Of a group: longer than any number, or name of a stage. A pattern could repeat a line a hundred times otherwise."""


def named_groups(pattern: re.Pattern[str], names: Sequence[str], line: str) -> dict[str, str]:
    """The first match of each of these groups in a line."""
    groups: dict[str, str] = {}
    for match in pattern.finditer(line):
        for name in names:
            if text := match[name]:
                groups.setdefault(name, text[:MAX_TEXT_CHARS])
    return groups


def answer(request: str) -> dict[str, object]:
    content = json.loads(request)
    try:
        pattern = re.compile(content["pattern"])
        names = [name for name in content["names"] if name in pattern.groupindex]
        return {"groups": [named_groups(pattern, names, line) for line in content["lines"]]}
    except Exception as error:  # noqa: BLE001 - `re` raises more than its own error, and other pods wait behind this one
        return {"problem": str(error) or type(error).__name__}


def main() -> None:
    """Answer requests from standard input, within the CPU limit."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    start_s = end_s = time.process_time()
    while end_s - start_s < float(sys.argv[1]) and (request := sys.stdin.readline()):
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        result = answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        previous_s, end_s = end_s, time.process_time()
        sys.stdout.write(json.dumps(result | {"cpu_s": end_s - previous_s}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
