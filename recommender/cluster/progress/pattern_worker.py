"""Named numbers in lines of text. Also run as a program of its own, where a pattern that takes too long ends alone.

The program takes a JSON object a line, `{"pattern": ..., "lines": [...]}`, and answers with a line each, `{"groups":
[{...}, ...]}` or `{"problem": ...}`, and the `cpu_s` that it took, until it has used the seconds that are its argument.
It imports nothing of ours: it starts within a few hundredths of a second.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
import time

CPU_LIMIT_S = 0.2
"""What one pod's lines may take; a kernel timer ends the program, since nothing else stops a search that runs away."""

MEMORY_LIMIT_BYTES = 512 << 20


def named_groups(pattern: re.Pattern[str], line: str) -> dict[str, str]:
    """What the named groups found in a line, each the first time."""
    groups: dict[str, str] = {}
    for match in pattern.finditer(line):
        for name, text in match.groupdict().items():
            if text:
                groups.setdefault(name, text)
    return groups


def answer(request: str) -> dict[str, object]:
    """One request of the program."""
    content = json.loads(request)
    try:
        pattern = re.compile(content["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        return {"problem": str(error)}
    return {"groups": [named_groups(pattern, line) for line in content["lines"]]}


def main() -> None:
    """Answer the lines of the standard input, as many as there is time for."""
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
