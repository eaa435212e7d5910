"""Record files: gzip files whose complete blocks are read; a truncated end is reported, damage never read as data."""

from __future__ import annotations

import gzip
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import BadInput, Misuse
from recommender.engine.journal import HEADER, Journal, Reader, pieces_of

LARGE = 2**20


def written(file: Path, *contents: bytes, piece_bytes: int = LARGE) -> None:
    journal = Journal(file, piece_bytes)
    for content in contents:
        journal.append(content)
    journal.close()


def read(file: Path) -> list[bytes]:
    return [block.content for block in Reader(file)]


def test_blocks_of_one_process_and_the_next_are_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "record"
    written(file, b"one", b"two")
    written(file, b"three")
    assert read(file) == [b"one", b"two", b"three"]
    assert gzip.decompress(file.read_bytes()) == b"onetwothree"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_has_reached_its_size_is_continued_in_another(tmp_path: Path) -> None:
    file = tmp_path / "record"
    contents = [bytes([number]) for number in range(5)]
    written(file, *contents[:3], piece_bytes=1)
    written(file, *contents[3:], piece_bytes=1)
    assert [piece.name for piece in pieces_of(file)] == ["record", "record.1", "record.2", "record.3", "record.4"]
    assert read(file) == contents
    assert {stat.S_IMODE(piece.stat().st_mode) for piece in pieces_of(file)} == {0o600}


@given(contents=st.lists(st.binary(max_size=60), min_size=1, max_size=4), data=st.data())
def test_a_truncated_file_is_read_and_continued_after_its_last_complete_block(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("cut") / "record"
    written(file, *contents)
    ends = [0, *(block.end for block in Reader(file))]
    end = data.draw(st.integers(0, ends[-1]))
    with file.open("r+b") as opened:
        opened.truncate(end)
    complete = contents[: sum(one <= end for one in ends) - 1]
    reader = Reader(file)
    assert [block.content for block in reader] == complete
    assert reader.cut_off == end - max(one for one in ends if one <= end)
    written(file, b"after")
    assert read(file) == [*complete, b"after"]


@given(contents=st.lists(st.binary(min_size=1, max_size=60), min_size=2, max_size=4), data=st.data())
def test_a_flipped_bit_is_never_read_as_data(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    """A damaged block is named; the last one may look truncated. Bits that only fill a byte may differ."""
    file = tmp_path_factory.mktemp("damaged") / "record"
    written(file, *contents)
    *_, last_begin, _ = (block.end for block in Reader(file))
    raw = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(raw)
    found, reader = list[bytes](), Reader(file)
    try:
        found.extend(block.content for block in reader)
    except BadInput as error:
        assert found == contents[: len(found)]
        assert f"block {len(found) + 1} is damaged" in str(error) or not found
        with pytest.raises(BadInput):  # nothing is appended to a damaged file
            Journal(file, LARGE)
    else:
        truncated = at >= last_begin and (found, reader.cut_off) == (contents[:-1], len(raw) - last_begin)
        assert found == contents or truncated


def test_a_truncated_piece_before_the_last_one_is_damage(tmp_path: Path) -> None:
    file = tmp_path / "record"
    written(file, b"one", b"two", piece_bytes=1)
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1)
    with pytest.raises(BadInput, match=r"record: block 1 is damaged: it is cut off, or too large\. Copy"):
        read(file)


def test_a_file_of_another_kind_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("not a record")
    with pytest.raises(BadInput, match="this is no record of a recommender"):
        Journal(file, LARGE)
    assert file.read_text() == "not a record"


@pytest.mark.parametrize(
    ("begins", "number"), [(b"phasewise record 2\nxxxx", "2"), (HEADER.replace(b"record 3", b"record 4"), "4")]
)
def test_a_record_of_another_format_is_refused_with_its_number(tmp_path: Path, begins: bytes, number: str) -> None:
    file = tmp_path / "record"
    file.write_bytes(begins)
    with pytest.raises(BadInput, match=f"it is a record of format {number}, and this version reads 3") as refused:
        Journal(file, LARGE)
    assert "Replay it with the version that wrote it" in str(refused.value)
    assert file.read_bytes() == begins


def test_an_unwritable_or_missing_file_and_a_folder_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="nowhere/record: cannot write here"):
        Journal(tmp_path / "nowhere" / "record", LARGE)
    with pytest.raises(BadInput, match="there is no such file"):
        Reader(tmp_path / "record")
    with pytest.raises(BadInput, match="this is a folder"):
        Reader(Path())


def test_a_second_process_cannot_record_to_the_file_of_a_running_one(tmp_path: Path) -> None:
    file = tmp_path / "record"
    leader = Journal(file, 1)
    leader.append(b"one")
    leader.append(b"two")  # in another piece
    with pytest.raises(Misuse, match="record: another process records here"):
        Journal(file, 1)
    leader.append(b"three")
    assert read(file) == [b"one", b"two", b"three"]
    leader.close()
    written(file, b"four")
    assert read(file) == [b"one", b"two", b"three", b"four"]
