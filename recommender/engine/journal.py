"""An append-only file of compressed blocks, each framed by its length and checksums.

A process that is killed while writing loses the unfinished block only. A file that has reached its size is continued in
another piece: `FILE`, `FILE.1`, `FILE.2` and so on, read in order.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from recommender.errors import BadInput, Misuse

MAGIC = b"phasewise record 2\n"

ZLIB_LEVEL = 1
"""Compression level: a round must not wait for it."""

MAX_BLOCK_BYTES = 2**30
"""A block that unpacks to more was not written by us."""

_HEAD = struct.Struct("<II")
_CHECK = struct.Struct("<I")
_FRAME = _HEAD.size + _CHECK.size
"""Length and checksum of the packed block, and a checksum of both."""


class Block(NamedTuple):
    """One block, and its position: piece, number in it, and the byte after it."""

    piece: Path
    number: int
    end: int
    content: bytes


class Journal:
    """Appends blocks; no other process can meanwhile. Readable by its owner only.

    A piece of `piece_bytes` is continued in the next one. After `max_pieces` appending fails: a record is replayed from
    its start, so no piece can be dropped.

    Raises
    ------
    Misuse
        The file cannot be written, is no record, or another process records there.
    BadInput
        It is damaged: what would be appended could not be read.
    """

    def __init__(self, file: Path, piece_bytes: int, max_pieces: float = math.inf) -> None:
        self._first, self._piece_bytes = file, max(piece_bytes, len(MAGIC) + 1)
        self._max_pieces = max_pieces
        try:
            self._lock = _lock(file)
            try:
                self._file = self._continue()
            except BaseException:
                self._lock.close()
                raise
        except OSError as error:
            piece, reason = error.filename or file, (error.strerror or str(error)).lower()
            raise Misuse(f"{piece}: cannot write here ({reason}). Name a file in a folder that exists.") from error

    def append(self, content: bytes) -> None:
        """Append a block, handed to the operating system as a whole when this returns; `OSError` if that fails."""
        if self._file.tell() >= self._piece_bytes:
            if self._number + 1 >= self._max_pieces:
                raise OSError(errno.EFBIG, f"it has its {self._max_pieces:g} files, all of full size")
            self._file.close()
            self._number += 1
            self._file = self._open(0)
        packed = zlib.compress(content, ZLIB_LEVEL)
        head = _HEAD.pack(len(packed), zlib.crc32(packed))
        framed = head + _CHECK.pack(zlib.crc32(head)) + packed
        if self._file.write(framed) < len(framed):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self._file.close()
        self._lock.close()

    def _continue(self) -> IO[bytes]:
        """Open the last piece after its last whole block."""
        pieces, end = pieces_of(self._first), 0
        self._number = len(pieces) - 1
        for block in Reader(self._first).of_piece(pieces[-1], last=True):
            end = block.end
        return self._open(end)

    def _open(self, end: int) -> IO[bytes]:
        """Open the present piece, truncated after its last whole block."""
        piece = _piece(self._first, self._number)
        piece.touch(0o600)
        file = piece.open("r+b", buffering=0)
        file.truncate(end)
        file.seek(end)
        if end == 0:
            file.write(MAGIC)
        return file


def _lock(file: Path) -> IO[bytes]:
    """Open the first piece, locked as long as it is open: a standby replica would overwrite the leader's blocks."""
    file.touch(0o600)
    opened = file.open("r+b", buffering=0)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        opened.close()
        if not isinstance(error, BlockingIOError):
            raise
        raise Misuse(f"{file}: another process records here. Give each replica a file of its own.") from error
    return opened


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
                packed = _read_packed(file, frame, number, piece)
                if packed is None:
                    if not last:
                        raise _damaged(piece, number, "it is cut off, and another piece follows")
                    self.cut_off = piece.stat().st_size - began
                    return
                yield Block(piece, number, file.tell(), _unpack(packed, number, piece))


def pieces_of(file: Path) -> list[Path]:
    """The files of a record in order; empty if there are none."""
    pieces: list[Path] = []
    while (piece := _piece(file, len(pieces))).exists():
        pieces.append(piece)
    return pieces


def _piece(first: Path, number: int) -> Path:
    return first.with_name(f"{first.name}.{number}") if number else first


def _read_packed(file: IO[bytes], frame: bytes, number: int, piece: Path) -> bytes | None:
    """The packed content of a frame; None if it is truncated."""
    if len(frame) < _FRAME:
        return None
    head = frame[: _HEAD.size]
    if _CHECK.unpack(frame[_HEAD.size :])[0] != zlib.crc32(head):
        raise _damaged(piece, number, "the checksum of its length is wrong")
    length, checksum = _HEAD.unpack(head)
    packed = file.read(length)
    if len(packed) < length:
        return None
    if zlib.crc32(packed) != checksum:
        raise _damaged(piece, number, "its checksum is wrong")
    return packed


def _unpack(packed: bytes, number: int, piece: Path) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(packed, MAX_BLOCK_BYTES)
    except zlib.error as error:
        raise _damaged(piece, number, f"it cannot be unpacked ({error})") from error
    if not unpacker.eof:
        raise _damaged(piece, number, "it is cut off, or too large")
    return content


def _damaged(piece: Path, number: int, why: str) -> BadInput:
    remedy = "Copy the file again, or read only what is before it: `replay --until`, `explain --at`."
    return BadInput(f"block {number} is damaged: {why}", remedy=remedy, file=piece)
