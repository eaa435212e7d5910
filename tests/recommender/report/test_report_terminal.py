"""The table in the terminal: it fits, it is complete, and no container name can control the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from recommender.base.records import ContainerReplay, ReplayResult, Tally
from recommender.report.summary import Prices
from recommender.report.terminal import render_table, report_console
from recommender.report.texts import printable, shortened
from tests.recommender.report.simulation import Simulated, advice


def text_of(result: ReplayResult, width: int = 100, prices: Prices | None = None, colour: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    render_table(result, console=console, prices=prices, written=[("page", "out.html")])
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 92, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(run: Simulated, width: int) -> None:
    text = text_of(run.result, width, Prices(0.04, 0.005, 1.0, 2.0))
    assert max(map(len, text.splitlines())) <= width
    assert not re.search(r" \d[\d.]*…", text) and "0.0%" in text


def test_every_policy_has_a_line_and_oracles_and_phasewise_are_marked_without_colour(run: Simulated) -> None:
    lines = text_of(run.result).splitlines()
    for policy in run.result.policies:
        mark = " (oracle)" if policy in run.result.oracles else " (ours)" if policy == "phasewise" else ""
        assert sum(line.startswith(policy + mark + " ") for line in lines) == 1
    assert "\x1b" not in text_of(run.result)


def test_with_colour_phasewise_is_bold_and_oracles_are_dim(run: Simulated) -> None:
    lines = text_of(run.result, colour=True).splitlines()
    assert any("phasewise (ours)" in line and "\x1b[1;32m" in line for line in lines)
    assert any("ground.truth (oracle)" in line and "\x1b[2m" in line for line in lines)


def test_the_table_ends_with_containers_left_out_notes_and_files_written(run: Simulated) -> None:
    text = text_of(run.result)
    assert "Left out: 3 containers (2 × fewer than 5 samples; 1 × no decision)." in text
    assert "Note: flowcon was left out" in text and text.rstrip().endswith("Wrote page: out.html")


def test_the_name_of_a_written_file_that_is_not_utf8_can_be_printed(run: Simulated) -> None:
    file = io.TextIOWrapper(io.BytesIO(), "utf-8")
    render_table(run.result, console=Console(file=file, width=100), written=[("page", "caf\udce9.html")])
    file.flush()
    assert file.buffer.getvalue().rstrip().endswith(b"Wrote page: caf\\udce9.html")


def test_money_appears_only_with_prices(run: Simulated) -> None:
    assert "net saving" in text_of(run.result, prices=Prices(0.04)) and "net saving" not in text_of(run.result)


def test_without_a_judged_container_the_table_says_so() -> None:
    empty = ReplayResult(15, 600, ("static",), frozenset(), (), (("a", "too short"),), {})
    assert "No container could be judged." in text_of(empty) and "1 × too short" in text_of(empty)


def test_a_single_container_and_sample_are_singular() -> None:
    replay = ContainerReplay("a", None, {"mine": Tally(samples=1, judged_s=15.0)})
    text = text_of(ReplayResult(15, 600, ("mine",), frozenset(), (replay,), (), {}))
    assert "1 container, 1 sample of 15s" in text


def test_escape_sequences_and_markup_in_names_stay_text() -> None:
    tally = Tally(samples=10, judged_s=150, violations=(5, 0))
    of = (advice("a\x1b[2Jb\n[red]c", 1),)
    replay = ContainerReplay("p", None, {"p": tally})
    text = text_of(ReplayResult(15, 600, ("p",), frozenset(), (replay,), (), {}, workloads=of), width=160)
    assert "a\\x1b[2Jb\\n[red]c" in text and "\x1b" not in text


def test_long_names_lose_their_middle() -> None:
    assert shortened("abcdefghij", 5) == "ab…ij" and shortened("abc", 5) == "abc"
    assert printable("größe/日本") == "größe/日本"


def test_a_pipe_gets_plain_text_of_100_columns(run: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    file = io.StringIO()
    console = report_console(file)
    render_table(run.result, console=console)
    assert console.width == 100 and "\x1b" not in file.getvalue()


def test_a_terminal_narrower_than_the_tables_wraps_their_lines_and_hides_no_column(
    run: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    file = io.StringIO()
    render_table(run.result, console=report_console(file))
    assert "saved/" in file.getvalue(), "the last column of the table of workloads"


def test_no_color_is_honoured_on_a_terminal(run: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    render_table(run.result, console=report_console(file))
    assert "32m" not in file.getvalue()
