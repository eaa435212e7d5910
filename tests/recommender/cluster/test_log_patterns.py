"""Numbers that the default pattern finds in training logs, and patterns of pods, which may be malformed or slow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from recommender.cluster.progress import pattern_worker, patterns
from recommender.cluster.progress.patterns import Search, SearchResult, search


def by_default(line: str) -> dict[str, str]:
    (found,) = search([Search(None, [line])])
    assert found.groups is not None
    return found.groups[0]


@pytest.mark.parametrize(
    ("line", "groups"),
    [
        ("step=12 loss=0.4", {"step": "12", "loss": "0.4"}),
        (
            "Epoch 3/10 - loss: 0.4 - accuracy: 0.9 - val_loss: 0.2",
            {"epoch": "3", "loss": "0.4", "accuracy": "0.9"},
        ),
        ("{'loss': 1.5e-3, 'grad_norm': 3, 'epoch': 0.5}", {"loss": "1.5e-3", "epoch": "0.5"}),
        ("Epoch [3/10], Step [100/600], Loss: 0.1234", {"epoch": "3", "step": "100", "loss": "0.1234"}),
        ("loss: tensor(0.41, device='cpu')", {"loss": "0.41"}),
        ("75%|##  | 3/4 [00:01<00:00, loss=0.42, acc=0.1]", {"loss": "0.42", "accuracy": "0.1"}),
        ("train_loss 0.3 Iteration 45: done", {"loss": "0.3", "step": "45"}),
        ("loss nan", {"loss": "nan"}),
        ("episode reward=-3.5 step=9", {"score": "-3.5", "step": "9"}),
        ("val_loss=3", {}),
        ("lossless 3", {}),
        ("loss: info", {}),
        ("loss=0.4abc", {}),
        ("stage=load", {"stage": "load"}),
        ("[12:01] Stage: 'warm-up' begins", {"stage": "warm-up"}),
        ("Saving model checkpoint to out/checkpoint-500", {"checkpoint": "Saving"}),
        ("Checkpoint saved to /data/last.pt", {"checkpoint": "Checkpoint"}),
        ("step=9 loss=0.4 wrote checkpoint", {"step": "9", "loss": "0.4", "checkpoint": "wrote"}),
        ("***** Evaluating *****", {"evaluate": "Evaluating"}),
        ("Loading checkpoint out/checkpoint-500", {}),
        ("backstage=1", {}),
        ("it took 3.4 s", {}),
        ("", {}),
    ],
)
def test_the_default_pattern_finds_what_scripts_print(line: str, groups: dict[str, str]) -> None:
    assert by_default(line) == groups


@pytest.mark.parametrize(
    "line",
    [
        "loss" * 250,
        "saved " * 166,
        "save " + "a." * 490,
        "checkpoint " * 90,
        "stage= " * 140,
        "loss " * 200,
        "loss=" + "1" * 995,
        "loss: " + " " * 990,
        "1" * 1000,
    ],
)
def test_the_default_pattern_is_fast_on_every_line(line: str) -> None:
    began_s = time.process_time()
    by_default(line)
    assert time.process_time() - began_s < 0.1


def test_the_pattern_of_a_pod_is_searched_in_its_lines() -> None:
    found = search([Search(r"L(?P<loss>\d+) n(?P<step>\d+)", ["L3 n1", "nothing", "L2 n2"])])
    assert found == [SearchResult([{"loss": "3", "step": "1"}, {}, {"loss": "2", "step": "2"}])]


def test_a_pattern_returns_only_short_texts_of_groups_with_a_meaning() -> None:
    """Otherwise a pattern with seventy groups, each of them the whole line, would fill the recommender's memory."""
    found = search([Search("(?P<stage>(?P<a>(?P<b>(?P<c>.*))))", ["long " * 200])])
    assert found == [SearchResult([{"stage": ("long " * 13)[:64]}])]


def test_an_endless_search_is_aborted_and_the_others_have_results() -> None:
    endless = Search(r"(?P<loss>(a+)+)$", ["a" * 40 + "b"])
    good = Search(r"(?P<score>\d+)", ["7"])
    found = search([good, endless, good])
    assert [result.groups for result in found] == [[{"score": "7"}], None, [{"score": "7"}]]
    assert "takes more than 0.2 s" in found[1].problem


def test_a_pattern_that_crashes_the_worker_is_reported_and_the_others_have_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crash = 'import os\n        if "crash" in request:\n            os.abort()\n        result = answer(request)'
    worker = Path(pattern_worker.__file__).read_text(encoding="utf-8").replace("result = answer(request)", crash)
    (tmp_path / "worker.py").write_text(worker, encoding="utf-8")
    monkeypatch.setattr(pattern_worker, "__file__", str(tmp_path / "worker.py"))
    good = Search(r"(?P<score>\d+)", ["7"])
    found = search([good, Search("(?P<loss>crash)", ["7"]), good])
    assert [result.groups for result in found] == [[{"score": "7"}], None, [{"score": "7"}]]
    assert "SIGABRT" in found[1].problem


def test_searches_beyond_the_cpu_limit_of_a_round_wait_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each search alone is too short to be aborted."""
    monkeypatch.setattr(patterns, "ROUND_CPU_LIMIT_S", 0.05)
    slow = Search(r"(?:(?:a+)+b)|(?P<loss>zzz)", ["a" * 15] * 2)
    good = [Search(r"(?P<score>\d+)", ["7"]), Search(None, ["loss=1"])]
    found = search([*good, *[slow] * 200])
    assert [result.groups for result in found[:2]] == [[{"score": "7"}], [{"loss": "1"}]]
    assert found[-1] == SearchResult(None)
    assert 0.04 < sum(result.cpu_s for result in found) < 0.3
    assert search([Search(None, ["loss loss " * 90] * 1000), good[1]])[1] == SearchResult(None)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(?P<loss>x)(", "unterminated"),
        (r"(\d+)", "none of the groups"),
        ("(?P<loss>" + "x" * 600 + ")", "longer than 512"),
        ("(?P<loss>" + "(" * 490, "missing|unterminated|recursion"),
        (r"(?a)(?u)(?P<loss>\d+)", "incompatible"),
    ],
)
def test_an_unusable_pattern_is_reported(pattern: str, problem: str) -> None:
    (found,) = search([Search(pattern, ["x"])])
    assert found.groups is None
    assert any(word in found.problem for word in problem.split("|")), found.problem
