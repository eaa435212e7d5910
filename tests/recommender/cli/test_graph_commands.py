"""`phasewise research graph`: what the commands read, write and refuse."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from recommender.phases import graph_io
from recommender.phases.graph import PhaseGraph, runs_of
from recommender.phases.graph_answers import GraphPredictor
from recommender.sources.sequences import read_sequences
from tests.fakes.command_line import CommandResult

Phasewise = Callable[..., CommandResult]

DLAAS = Path(__file__).parents[2] / "data" / "ai4dl" / "dlaas_phase_sequences.parquet"

SMALL = {
    "a": [1, 1, 1, 1, 3, 3, 0, 0, 0],
    "b": [1, 1, 1, 1, 3, 3, 3, 0, 0, 2],
    "c": [1, 1, 1, 1, 2, 2, 4, 2, 4, 2, 4],
    "d": [1, 1, 1, 1, 2],
}


def _rows(sequences: dict[str, list[int]]) -> list[tuple[str, int, int]]:
    return [(name, step, phase) for name, phases in sequences.items() for step, phase in enumerate(phases)]


def _csv(path: Path, lines: list[str], header: str = "container,step,phase") -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return _csv(tmp_path / "small.csv", [f"{name},{step},{phase}" for name, step, phase in _rows(SMALL)])


@pytest.fixture
def graph(tmp_path: Path, small: Path, phasewise: Phasewise) -> Path:
    output = tmp_path / "graph.json"
    assert phasewise("research", "graph", "fit", small, "-o", output).code == 0
    return output


@pytest.mark.option("phasewise research graph fit", "-o")
def test_score_gives_top1_and_log_loss(graph: Path, small: Path, tmp_path: Path, phasewise: Phasewise) -> None:
    output = tmp_path / "score.json"
    assert phasewise("research", "graph", "score", graph, small, "--json", output).code == 0
    result = json.loads(output.read_text())
    sequences = [runs_of(phases) for phases in SMALL.values()]
    expected = GraphPredictor(PhaseGraph.fit(sequences)).score(sequences)
    assert list(result) == ["transitions", "top1", "log_loss"]
    assert result["transitions"] == 2 + 3 + 6 + 1
    assert (result["top1"], result["log_loss"]) == (expected.top1, expected.log_loss)


@pytest.mark.option("phasewise research graph score", "--json")
def test_score_writes_pure_json_to_standard_output(graph: Path, small: Path, phasewise: Phasewise) -> None:
    assert json.loads(phasewise("research", "graph", "score", graph, small, "--json", "-").out)["transitions"] == 12


def test_without_json_a_table_is_shown(graph: Path, small: Path, phasewise: Phasewise) -> None:
    assert "log-loss" in phasewise("research", "graph", "score", graph, small).out
    shown = phasewise("research", "graph", "prototypes", small).out
    assert "1 2 4 2 4 2 4" not in shown
    assert "1 (2 4)*" in shown


@pytest.mark.option("phasewise research graph explain", "--json")
def test_explain_shows_what_comes_next_and_the_context_it_follows(
    graph: Path, small: Path, tmp_path: Path, phasewise: Phasewise
) -> None:
    shown = phasewise("research", "graph", "explain", graph, small, "--container", "a").out
    assert "phase 0 for 3 samples" in shown
    assert "phase 3 1 back" in shown
    explanation = json.loads(
        phasewise("research", "graph", "explain", graph, small, "--container", "a", "--json", "-").out
    )
    assert max(explanation["next_phase"], key=explanation["next_phase"].get) == "2", "as after the zeros of b"
    new = _csv(tmp_path / "new.csv", ["x,0,1", "x,1,9"])
    assert "a phase that the graph has never seen" in phasewise("research", "graph", "explain", graph, new).out


@pytest.mark.option("phasewise research graph explain", "--container")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "has 4 containers. Choose one: --container a"),
        (("--container", "z"), "no container z. The first of 4 is a."),
    ],
)
def test_explain_requires_a_container_that_the_file_has(
    options: tuple[str, ...], message: str, graph: Path, small: Path, phasewise: Phasewise
) -> None:
    ended = phasewise("research", "graph", "explain", graph, small, *options)
    assert ended.code == 2
    assert message in " ".join(ended.err.split())


def test_the_same_rows_in_any_order_and_format_give_the_same_file(
    graph: Path, tmp_path: Path, phasewise: Phasewise
) -> None:
    rows = _rows(SMALL)
    rows = [rows[at] for at in np.random.default_rng(3).permutation(len(rows))]
    frame = pd.DataFrame(rows, columns=["container", "step", "phase"])
    frame["extra"] = "x"
    frame.astype({"step": "int16", "phase": "int8"}).to_parquet(tmp_path / "s.parquet")
    shutil.copy(tmp_path / "s.parquet", tmp_path / "phases")
    with gzip.open(tmp_path / "s.csv.gz", "wt") as stream:
        frame[["phase", "extra", "container", "step"]].to_csv(stream, index=False)
    frame.astype({"phase": "float64"}).to_csv(tmp_path / "index.csv")
    for name in ("s.parquet", "phases", "s.csv.gz", "index.csv"):
        other = tmp_path / "other.json"
        assert phasewise("research", "graph", "fit", tmp_path / name, "-o", other).code == 0
        assert other.read_bytes() == graph.read_bytes(), name


def test_the_output_of_the_phases_command_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "s.csv"
    file.write_text("container,timestamp,phase\na,30,2\na,0,-1\na,15,1\na,45,-1\nunknown,0,-1\n")
    assert {name: runs_of(phases) for name, phases in read_sequences(file).items()} == {"a": [(1, 1), (2, 2)]}


def test_steps_order_the_samples_and_their_gaps_are_ignored(tmp_path: Path) -> None:
    file = _csv(tmp_path / "s.csv", ["x,300,2", "x,-5,1", "x,10,2", "007,1,3"])
    found = read_sequences(file)
    assert {name: phases.tolist() for name, phases in found.items()} == {"x": [1, 2, 2], "007": [3]}


@pytest.mark.option("phasewise research graph draw", "-o")
def test_draw_writes_reproducible_png_dot_and_graphml(graph: Path, tmp_path: Path, phasewise: Phasewise) -> None:
    for ending, begins in ((".png", b"\x89PNG"), (".dot", b"digraph"), (".graphml", b"<graphml")):
        output = tmp_path / f"drawn{ending}"
        assert phasewise("research", "graph", "draw", graph, "-o", output).code == 0
        assert output.read_bytes().startswith(begins)
        again = tmp_path / f"again{ending}"
        assert phasewise("research", "graph", "draw", graph, "-o", again).code == 0
        assert again.read_bytes() == output.read_bytes()
    assert nx.read_graphml(tmp_path / "drawn.graphml").edges["1", "3"]["count"] == 2


def test_fit_refuses_to_write_json_under_the_name_of_a_picture(
    small: Path, tmp_path: Path, phasewise: Phasewise
) -> None:
    for suffix in (".graphml", ".dot", ".PNG"):
        ended = phasewise("research", "graph", "fit", small, "-o", tmp_path / f"graph{suffix}")
        assert ended.code == 2
        assert "this is written as JSON" in ended.err
    assert list(tmp_path.iterdir()) == [small]


def test_no_command_overwrites_what_it_reads(graph: Path, small: Path, phasewise: Phasewise) -> None:
    before = graph.read_bytes(), small.read_bytes()
    for arguments in (
        ("score", graph, small, "--json", small),
        ("score", graph, small, "--json", graph),
        ("explain", graph, small, "--container", "a", "--json", graph),
        ("prototypes", small, "--json", small),
    ):
        ended = phasewise("research", "graph", *arguments)
        assert ended.code == 2
        assert "this command reads it" in ended.err
    assert (graph.read_bytes(), small.read_bytes()) == before


@pytest.mark.option("phasewise research graph prototypes", "--json")
def test_prototypes_are_listed(small: Path, tmp_path: Path, phasewise: Phasewise) -> None:
    listed = tmp_path / "p.json"
    assert phasewise("research", "graph", "prototypes", small, "--json", listed).code == 0
    result = json.loads(listed.read_text())
    assert result["executions"] == 4
    assert {(tuple(one["path"]), one["count"]) for one in result["prototypes"]} == {
        (("1", "3", "0", "2"), 2),
        (("1", "(2 4)*"), 1),
        (("1", "2"), 1),
    }
    assert result["prototypes"][-1]["cumulative_share"] == pytest.approx(1.0)


def test_a_single_phase_can_be_fitted_and_drawn_but_not_scored(tmp_path: Path, phasewise: Phasewise) -> None:
    one = _csv(tmp_path / "one.csv", ["x,0,2", "x,1,2"])
    output = tmp_path / "one.json"
    assert phasewise("research", "graph", "fit", one, "-o", output).code == 0
    assert phasewise("research", "graph", "draw", output, "-o", tmp_path / "one.png").code == 0
    ended = phasewise("research", "graph", "score", output, one, "--json", "-")
    assert ended.code == 2
    assert ended.out == ""
    assert "no transition to score" in ended.err


def test_phases_unknown_to_the_graph_can_be_scored(graph: Path, tmp_path: Path, phasewise: Phasewise) -> None:
    strange = _csv(tmp_path / "strange.csv", ["x,0,8", "x,1,1", "x,2,9", "x,3,9", "x,4,0"])
    output = tmp_path / "score.json"
    assert phasewise("research", "graph", "score", graph, strange, "--json", output).code == 0
    result = json.loads(output.read_text())
    assert result["transitions"] == 3
    assert np.isfinite(result["log_loss"])


def test_the_published_sequences_are_read_completely() -> None:
    found = read_sequences(DLAAS)
    assert len(found) == 336
    assert sum(len(phases) for phases in found.values()) == 16_858


BAD = [
    ("container,step\n", "a,1\n", ["column 'phase'", "container, step and phase"]),
    ("container,step,phases\n", "a,1,1\n", ["column 'phase'", "closest name is 'phases'"]),
    ("container,step,phase\n", "a,0,1\na,1,two\n", ["row 2", "column 'phase'", "'two' is not a number", "0..999"]),
    ("container,step,phase\n", "a,0,1\na,1,\n", ["row 2", "column 'phase'", "empty"]),
    ("container,step,phase\n", "a,0,1\na,1,1.5\n", ["row 2", "1.5 is not an integer"]),
    ("container,step,phase\n", "a,0,1\na,1,-2\n", ["row 2", "-2 is below -1", "-1 where it is unknown"]),
    ("container,step,phase\n", "a,0,-1\na,1,-1\n", ["no phase is known"]),
    ("container,timestamp,phase\n", "a,0,1\na,0,1\n", ["timestamp 0 of container 'a' occurs twice"]),
    ("container,step,phase\n", "a,0,1\na,1,1000\n", ["row 2", "above 999"]),
    ("container,step,phase\n", "a,0,1\na,1,inf\n", ["row 2", "not an integer"]),
    ("container,step,phase\n", "a,0,1\na,x,1\n", ["row 2", "column 'step'"]),
    ("container,step,phase\n", "a,0,1\nb,0,1\na,0,1\n", ["row 3", "step 0 of container 'a' occurs twice"]),
    ("container,step,phase\n", "a,0,1\n,1,1\n", ["row 2", "column 'container'"]),
    ("container,step,phase\n", "a,0,1\na,1,1,7\n", ["row 2", "4 fields under 3 columns"]),
    ("container,step,phase\n", "a,0,1\na,1\n", ["row 2", "2 fields under 3 columns"]),
    ("container,step,phase\n", "", ["no rows"]),
    ("container,step,step\n", "a,0,1\n", ["occurs twice"]),
    ("", "", ["empty"]),
]


@pytest.mark.parametrize(("header", "rows", "parts"), BAD)
def test_bad_sequences_exit_with_2_name_the_place_and_write_nothing(
    header: str, rows: str, parts: list[str], tmp_path: Path, phasewise: Phasewise
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(header + rows, encoding="utf-8")
    output = tmp_path / "graph.json"
    ended = phasewise("research", "graph", "fit", bad, "-o", output)
    assert ended.code == 2
    error = ended.err
    assert "bad.csv" in error
    for part in parts:
        assert part in error
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]


def test_bad_files_exit_with_2_and_a_reason(tmp_path: Path, phasewise: Phasewise) -> None:
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(DLAAS.read_bytes()[:2000])
    cut_gzip = tmp_path / "cut.csv.gz"
    cut_gzip.write_bytes(gzip.compress(b"container,step,phase\n" + b"a,1,1\n" * 5000)[:60])
    latin = tmp_path / "latin.csv"
    latin.write_bytes("container,step,phase\ngrün,0,1\n".encode("latin-1"))
    texts = tmp_path / "texts.parquet"
    pd.DataFrame({"container": ["a", "a"], "step": [0, 1], "phase": ["1", "x"]}).to_parquet(texts)
    nulls = tmp_path / "nulls.parquet"
    pd.DataFrame({"container": ["a", None], "step": [0, 1], "phase": [1.0, np.nan]}).to_parquet(nulls)
    dates = tmp_path / "dates.parquet"
    pd.DataFrame({"container": ["a"], "step": pd.to_datetime(["2024-01-01"]), "phase": [1]}).to_parquet(dates)
    for file, message in (
        (cut, "damaged"),
        (cut_gzip, "cut.csv.gz"),
        (latin, "latin.csv"),
        (texts, "row 2, column 'phase': 'x' is not a number"),
        (nulls, "row 2, column 'container'"),
        (dates, "timestamp"),
        (tmp_path / "nowhere.csv", "no such file"),
        (tmp_path, "folder"),
    ):
        ended = phasewise("research", "graph", "prototypes", file)
        assert (ended.code, message in ended.err) == (2, True), ended.err


def test_bad_graphs_and_outputs_exit_with_2(graph: Path, small: Path, tmp_path: Path, phasewise: Phasewise) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(graph.read_bytes()[:100])
    empty = tmp_path / "empty.json"
    empty.write_bytes(graph_io.to_json(PhaseGraph(3)))
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps({**json.loads(graph.read_text()), "schema": 9}))
    for arguments, message in (
        (["score", cut, small], "not JSON"),
        (["score", newer, small], "schema is 9, not 2"),
        (["score", empty, small], "empty.json: the graph is empty"),
        (["score", tmp_path / "none.json", small], "none.json"),
        (["draw", graph, "-o", tmp_path / "picture.gif"], ".png, .dot or .graphml"),
        (["fit", small, "-o", tmp_path / "no" / "folder.json"], "folder"),
        (["fit", small], "-o"),
    ):
        ended = phasewise("research", "graph", *arguments)
        assert (ended.code, message in ended.err) == (2, True), ended.err
