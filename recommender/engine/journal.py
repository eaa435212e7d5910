"""An append-only file of compressed blocks, each framed by its length and checksums.

A process that is killed while it writes loses the block that it was writing and no other. A file that has reached its
size is followed by another piece: `FILE`, `FILE.1`, `FILE.2` and so on, which are read one after the other.
"""

from __future__ import annotations

import errno
import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from recommender.errors import BadInput, Misuse

MAGIC = b"phasewise record 2\n"

QUICKLY = 1
"""How hard zlib tries: a round must not wait for it."""

LARGEST_BLOCK = 2**30
"""A block that says it unpacks to more was not written by us."""

_HEAD = struct.Struct("<II")
_CHECK = struct.Struct("<I")
_FRAME = _HEAD.size + _CHECK.size
"""Length and checksum of the packed block, and a checksum of these two."""


class Block(NamedTuple):
    """One block, and where it stands: its piece, its number there, and the byte after it."""

    piece: Path
    number: int
    end: int
    content: bytes


class Journal:
    """Writes blocks after those that are there already. Only its owner may read it.

    Parameters
    ----------
    piece_bytes
        A piece that has grown to this is followed by the next one.
    most_pieces
        Beyond so many nothing is added: a record is run again from its start, so none of it can be dropped for room.

    Raises
    ------
    Misuse
        The file cannot be written, or is something else than a record.
    BadInput
        What it holds so far is damaged: what comes after it could not be read.
    """

    def __init__(self, file: Path, piece_bytes: int, most_pieces: float = math.inf) -> None:
        self._first, self._piece_bytes = file, max(piece_bytes, len(MAGIC) + 1)
        self._most_pieces, pieces = most_pieces, pieces_of(file)
        self._number, end = max(0, len(pieces) - 1), 0
        if pieces:
            for block in Reader(file).of_piece(pieces[-1], last=True):
                end = block.end
        try:
            self._file = self._open(end)
        except OSError as error:
            piece, reason = _piece(file, self._number), (error.strerror or str(error)).lower()
            raise Misuse(f"{piece}: cannot write here ({reason}). Name a file in a folder that exists.") from error

    def append(self, content: bytes) -> None:
        """Add a block, whole on the disk's side of the process when this returns; `OSError` when it cannot be."""
        if self._file.tell() >= self._piece_bytes:
            if self._number + 1 >= self._most_pieces:
                raise OSError(errno.EFBIG, f"it has its {self._most_pieces:g} files, all of full size")
            self._file.close()
            self._number += 1
            self._file = self._open(0)
        packed = zlib.compress(content, QUICKLY)
        head = _HEAD.pack(len(packed), zlib.crc32(packed))
        framed = head + _CHECK.pack(zlib.crc32(head)) + packed
        if self._file.write(framed) < len(framed):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Nothing more is added."""
        self._file.close()

    def _open(self, end: int) -> IO[bytes]:
        """The present piece, cut off after its last whole block."""
        piece = _piece(self._first, self._number)
        piece.touch(0o600)
        file = piece.open("r+b", buffering=0)
        file.truncate(end)
        file.seek(end)
        if end == 0:
            file.write(MAGIC)
        return file


class Reader:
    """Reads the blocks of a record, over all its pieces.

    Attributes
    ----------
    cut_off
        Bytes of an unfinished block at the end, left out: the process was killed while it wrote.
    """

    def __init__(self, file: Path) -> None:
        self._pieces, self.cut_off = pieces_of(file), 0
        if not self._pieces:
            raise BadInput("there is no such file", remedy="Give the name that --record was given.", file=file)

    def __iter__(self) -> Iterator[Block]:
        for piece in self._pieces:
            yield from self.of_piece(piece, last=piece == self._pieces[-1])

    def of_piece(self, piece: Path, *, last: bool) -> Iterator[Block]:
        """The blocks of one piece; only in the last one the end may be missing.

        Raises
        ------
        BadInput
            It is no record, or damaged; piece and block are named.
        """
        with piece.open("rb") as file:
            magic = file.read(len(MAGIC))
            if last and len(magic) < len(MAGIC) and MAGIC.startswith(magic):
                self.cut_off = len(magic)
                return
            if magic != MAGIC:
                remedy = "Give the file that --record wrote; it may have been written by another version."
                raise BadInput("this is no record of a recommender", remedy=remedy, file=piece)
            number = 0
            while frame := file.read(_FRAME):
                began, number = file.tell() - len(frame), number + 1
                packed = _packed(file, frame, number, piece)
                if packed is None:
                    if not last:
                        raise _damaged(piece, number, "it is cut off, and another piece follows")
                    self.cut_off = piece.stat().st_size - began
                    return
                yield Block(piece, number, file.tell(), _unpacked(packed, number, piece))


def pieces_of(file: Path) -> list[Path]:
    """The files of a record, in their order; none where there is none."""
    pieces: list[Path] = []
    while (piece := _piece(file, len(pieces))).exists():
        pieces.append(piece)
    return pieces


def _piece(first: Path, number: int) -> Path:
    return first.with_name(f"{first.name}.{number}") if number else first


def _packed(file: IO[bytes], frame: bytes, number: int, piece: Path) -> bytes | None:
    """What is in a frame; None where it is cut off."""
    if len(frame) < _FRAME:
        return None
    head = frame[: _HEAD.size]
    if _CHECK.unpack(frame[_HEAD.size :])[0] != zlib.crc32(head):
        raise _damaged(piece, number, "its length is not what was written")
    length, checksum = _HEAD.unpack(head)
    packed = file.read(length)
    if len(packed) < length:
        return None
    if zlib.crc32(packed) != checksum:
        raise _damaged(piece, number, "its checksum is not that of what it holds")
    return packed


def _unpacked(packed: bytes, number: int, piece: Path) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(packed, LARGEST_BLOCK)
    except zlib.error as error:
        raise _damaged(piece, number, f"it cannot be unpacked ({error})") from error
    if not unpacker.eof:
        raise _damaged(piece, number, "it is cut off, or too large")
    return content


def _damaged(piece: Path, number: int, why: str) -> BadInput:
    remedy = "Copy the file again; what comes before that block can be had with --until."
    return BadInput(f"block {number} is damaged: {why}", remedy=remedy, file=piece)
