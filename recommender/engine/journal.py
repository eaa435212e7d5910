"""The files of a record: gzip members of one line of text each, which `zcat` prints.

A process that is killed while writing loses the unfinished member only. A file that has reached its size is continued
in another piece: `FILE`, `FILE.1`, `FILE.2` and so on, read in order.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import io
import math
import mmap
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

from recommender.base.errors import BadInput, Misuse

NAME = "phasewise record 3"
"""The file name in the header of each member: what it is, and the version of its format."""

GZIP_LEVEL = 1
"""Compression level: a round must not wait for it."""

MAX_BLOCK_BYTES = 2**30
"""A block that unpacks to more was not written by us."""


def _pack(content: bytes) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(NAME, "wb", GZIP_LEVEL, packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()


HEADER = _pack(b"")[: -len(zlib.compress(b"", wbits=-15)) - 8]
"""What each member begins with. Compressed data does not contain it, so that a damaged member hides no other."""


class Block(NamedTuple):
    """The content of one member, and its position: piece, number in it, and the byte after it."""

    piece: Path
    number: int
    end: int
    content: bytes


class Journal:
    """Appends blocks; no other process can meanwhile. Readable by its owner only.

    A piece of `piece_bytes` is continued in the next one. After `max_pieces` appending fails: a record is replayed from
    its start, so no piece can be dropped. `Misuse` if the file cannot be written or another process records there;
    `BadInput` if it is no record or damaged, since what would be appended could not be read.
    """

    def __init__(self, file: Path, piece_bytes: int, max_pieces: float = math.inf) -> None:
        self._first, self._piece_bytes, self._max_pieces = file, max(1, piece_bytes), max_pieces
        try:
            with ExitStack() as opened:
                # Held as long as it is open: a standby replica would overwrite the leader's blocks.
                fcntl.flock(opened.enter_context(_open(file)), fcntl.LOCK_EX | fcntl.LOCK_NB)
                pieces, end = pieces_of(file), 0
                for block in Reader(file).of_piece(pieces[-1], last=True):
                    end = block.end
                self._number, self._file = len(pieces) - 1, _open(pieces[-1])
                self._file.truncate(end)
                self._lock = opened.pop_all()
        except BlockingIOError as error:
            raise Misuse(f"{file}: another process records here. Give each replica a file of its own.") from error
        except OSError as error:
            piece, reason = error.filename or file, (error.strerror or str(error)).lower()
            raise Misuse(f"{piece}: cannot write here ({reason}). Name a file in a folder that exists.") from error

    def append(self, content: bytes) -> None:
        """Append a block, handed to the operating system as a whole when this returns; `OSError` if that fails."""
        if self._file.seek(0, os.SEEK_END) >= self._piece_bytes:
            if self._number + 1 >= self._max_pieces:
                raise OSError(errno.EFBIG, f"it has its {self._max_pieces:g} files, all of full size")
            self._file.close()
            self._number += 1
            self._file = _open(_piece(self._first, self._number))
        packed = _pack(content)
        if self._file.write(packed) < len(packed):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self._file.close()
        self._lock.close()


class Reader:
    """Reads the blocks of a record, over all its pieces.

    `cut_off` counts the bytes of an unfinished last block, which is skipped: the process was killed while writing it.
    """

    def __init__(self, file: Path) -> None:
        self._pieces, self.cut_off = [] if file.is_dir() else pieces_of(file), 0
        if not self._pieces:
            problem = "this is a folder" if file.is_dir() else "there is no such file"
            raise BadInput(problem, remedy="Give the file name that --record was given.", file=file)

    def __iter__(self) -> Iterator[Block]:
        for piece in self._pieces:
            yield from self.of_piece(piece, last=piece == self._pieces[-1])

    def of_piece(self, piece: Path, *, last: bool) -> Iterator[Block]:
        """The blocks of one piece; only the last piece may be truncated.

        `BadInput` if it is no record, or damaged; the message names piece and block.
        """
        if piece.stat().st_size == 0:
            return
        with piece.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            begin, number = 0, 1
            while begin < len(raw):
                head, following = raw[begin : begin + len(HEADER)], raw.find(HEADER, begin + 1)
                if not HEADER.startswith(head):
                    raise _damaged(piece, number, "its header is wrong") if begin else _foreign(piece, head)
                unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # with the header and checksum of gzip
                try:
                    content = unpacker.decompress(raw[begin : following if following > 0 else None], MAX_BLOCK_BYTES)
                except zlib.error as error:
                    raise _damaged(piece, number, str(error)) from error
                if not unpacker.eof:
                    if following > 0 or not last or unpacker.unconsumed_tail:
                        raise _damaged(piece, number, "it is cut off, or too large")
                    self.cut_off = len(raw) - begin
                    return
                begin = (following if following > 0 else len(raw)) - len(unpacker.unused_data)
                yield Block(piece, number, begin, content)
                number += 1


def pieces_of(file: Path) -> list[Path]:
    """The files of a record in order; empty if there are none."""
    pieces: list[Path] = []
    while (piece := _piece(file, len(pieces))).exists():
        pieces.append(piece)
    return pieces


def _piece(first: Path, number: int) -> Path:
    return first.with_name(f"{first.name}.{number}") if number else first


def _open(piece: Path) -> IO[bytes]:
    piece.touch(0o600)
    return piece.open("r+b", buffering=0)


def _foreign(piece: Path, head: bytes) -> BadInput:
    if version := re.search(rb"phasewise record (\d+)", head):
        problem = f"it is a record of format {version[1].decode()}, and this version reads {NAME[-1]}"
        return BadInput(problem, remedy="Replay it with the version that wrote it; record to another file.", file=piece)
    return BadInput("this is no record of a recommender", remedy="Give the file that --record wrote.", file=piece)


def _damaged(piece: Path, number: int, why: str) -> BadInput:
    remedy = "Copy the file again, or read only what is before it: `replay --until`, `explain --at`."
    return BadInput(f"block {number} is damaged: {why}", remedy=remedy, file=piece)
