"""Numbers that the default pattern finds in training logs, and patterns of pods, which may be malformed or slow."""

from __future__ import annotations

import time

import pytest

from recommender.cluster.progress.patterns import search


def by_default(line: str) -> dict[str, str]:
    (found,) = search(None, [line])
    return found


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
    found = search(r"L(?P<loss>\d+) n(?P<step>\d+)", ["L3 n1", "nothing", "L2 n2"])
    assert found == [{"loss": "3", "step": "1"}, {}, {"loss": "2", "step": "2"}]


def test_a_pattern_returns_only_short_texts_of_groups_with_a_meaning() -> None:
    """Otherwise a pattern with seventy groups, each of them the whole line, would fill the recommender's memory."""
    found = search("(?P<stage>(?P<a>(?P<b>(?P<c>.*))))", ["long " * 200])
    assert found == [{"stage": ("long " * 13)[:64]}]


@pytest.mark.parametrize("pattern", ["(?P<loss>(a+)+)b", "(?P<loss>(a+)+)$", "(?P<loss>zzz)|(?:(?:a|a)+)+b"])
def test_a_pattern_that_takes_other_engines_years_ends_at_once(pattern: str) -> None:
    began_s = time.process_time()
    search(pattern, ["a" * 999 + "c"] * 60)
    assert time.process_time() - began_s < 0.2


@pytest.mark.parametrize("pattern", ["(?P<loss>(?:.?){999})b", "(?P<loss>.)(?:.*" + "(?:.?){40}" * 5 + "b)?"])
def test_a_large_pattern_is_refused_once_it_has_used_the_time_of_a_pod(pattern: str) -> None:
    began_s = time.process_time()
    with pytest.raises(ValueError, match=r"takes more than 0.2 s"):
        search(pattern, ["a" * 999] * 60)
    assert time.process_time() - began_s < 0.6


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(?P<loss>x)(", "missing"),
        (r"(\d+)", "none of the groups"),
        ("(?P<loss>" + "x" * 600 + ")", "longer than 512"),
        ("(?P<loss>" + "(" * 490, "missing"),
        (r"(?P<loss>(?:\pL?){100})", "too large"),
        (r"(?a)(?P<loss>\d+)", "RE2"),
        (r"(?P<loss>\d+)(?= more)", "no lookarounds"),
        (r"(?P<loss>\d+) (?P=loss)", "no backreferences"),
    ],
)
def test_an_unusable_pattern_is_reported(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        search(pattern, ["x"])
