"""A value that an option of a script does not take is refused before anything starts."""

from __future__ import annotations

import pytest

from tests.benchmarks.benches import invoke


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("bench_harm --worlds flood", "--worlds"),
        ("bench_harm --modes Sometimes", "--modes"),
        ("bench_harm --days 0", "--days"),
        ("bench_node --rows static,best", "no best; there are static, default, script, unseen, ours"),
        ("bench_placement --rows best", "no best; there are burst, jobs, gangs"),
        ("bench_placement --patterns all", "no all; there are in groups, one by one"),
        (
            "bench_placement --placed-by ours,best",
            "no best; there are least, most, current, random, ours, strict",
        ),
        ("bench_quality --only epoch", "no epoch; there are recordings, epochs, next-phase, decision-time"),
        ("bench_scheduler --sizes 1", "--sizes"),
        ("bench_scheduler --sizes a", "--sizes"),
        ("bench_scheduler --kinds theirs", "no theirs; there are none, flask"),
        ("bench_scheduler --rounds 0", "--rounds"),
        ("bench_thesis --rows specom", "no specom"),
        ("record_training run -o raw --only lstm-fortran", "there are"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused(call: str, answer: str) -> None:
    done = invoke(*call.split())
    assert done.exit_code == 2
    assert answer in done.stderr
