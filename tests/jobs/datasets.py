"""Synthetic data sets that can be learned, generated in chunks as a reader would deliver them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.jobs.stages import Arrays

CHUNK_ROWS = 500
CLASSES = 10


def _chunks(rows: int) -> list[int]:
    return [min(CHUNK_ROWS, rows - start) for start in range(0, rows, CHUNK_ROWS)]


def images(rows: int, rng: np.random.Generator, side: int = 32, channels: int = 3, passes: int = 2) -> Arrays:
    """Return smooth noise images with one bright bar per label: (rows, side, side, channels) float32, labels.

    The number of smoothing `passes` stands for the work of decoding image files.
    """
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    low_pass = np.exp(-((frequency * 6) ** 2)).astype(np.float32)[None, :, :, None]
    parts, labels = [], []
    for count in _chunks(rows):
        label = rng.integers(0, CLASSES, count)
        picture: NDArray[np.float32] = rng.standard_normal((count, side, side, channels), dtype=np.float32)
        for _ in range(passes):
            smooth = np.fft.irfft2(np.fft.rfft2(picture, axes=(1, 2)) * low_pass, s=(side, side), axes=(1, 2))
            picture = (smooth / smooth.std()).astype(np.float32)
        picture[np.arange(count), label * side // CLASSES] += 2.0
        parts.append(picture)
        labels.append(label)
    return np.concatenate(parts), np.concatenate(labels)


def sequences(rows: int, rng: np.random.Generator, length: int = 60, features: int = 24, passes: int = 2) -> Arrays:
    """Return noisy oscillations whose speed is the label: (rows, length, features) float32, labels."""
    moments = np.arange(length, dtype=np.float32)[None, :, None]
    parts, labels = [], []
    for count in _chunks(rows):
        label = rng.integers(0, CLASSES, count)
        speed = (0.05 + 0.03 * label)[:, None, None]
        signal = np.zeros((count, length, features), dtype=np.float32)
        for _ in range(passes):
            phase = rng.uniform(0, 2 * np.pi, (count, 1, features))
            signal += np.sin(2 * np.pi * speed * moments + phase).astype(np.float32)
        signal += rng.standard_normal(signal.shape, dtype=np.float32)
        parts.append(signal)
        labels.append(label)
    return np.concatenate(parts), np.concatenate(labels)


def ragged_sequences(rows: int, rng: np.random.Generator, longest: int = 80, features: int = 16) -> Arrays:
    """Return sequences of differing length, padded with zeros, their labels and their lengths."""
    signal, label = sequences(rows, rng, longest, features, passes=9)
    lengths = rng.integers(longest // 5, longest + 1, rows)
    signal[np.arange(longest)[None, :] >= lengths[:, None]] = 0.0
    return signal, label, lengths


def tokens(rows: int, rng: np.random.Generator, length: int = 64, vocabulary: int = 4000, passes: int = 3) -> Arrays:
    """Return rows of tokens that depend on their predecessors: (rows, length + 1) int32."""
    parts = []
    for count in _chunks(rows):
        drawn = np.minimum(rng.zipf(1.3, (count, length + 1)), vocabulary - 1)
        for _ in range(passes):
            follows = rng.random(drawn.shape) < 0.3
            follows[:, 0] = False
            where = np.nonzero(follows)
            drawn[where] = (drawn[where[0], where[1] - 1] * 7 + 3) % vocabulary
            # Sorting stands for the look-ups of a tokenizer; its result is not used.
            np.sort(rng.random(drawn.shape), axis=1)
        parts.append(drawn.astype(np.int32))
    return (np.concatenate(parts),)


def table(rows: int, rng: np.random.Generator, columns: int = 100, passes: int = 2) -> Arrays:
    """Return a table with correlated columns and a label that depends on some of them."""
    mixing = rng.standard_normal((columns, columns)).astype(np.float32) / np.sqrt(columns)
    parts, labels = [], []
    for count in _chunks(rows):
        block = rng.standard_normal((count, columns), dtype=np.float32)
        for _ in range(passes):
            block = np.tanh(block @ mixing) + 0.1 * rng.standard_normal(block.shape, dtype=np.float32)
        score = block[:, :CLASSES] + 0.3 * block[:, CLASSES : 2 * CLASSES] ** 2
        parts.append(block)
        labels.append(score.argmax(axis=1))
    return np.concatenate(parts), np.concatenate(labels)


def texts(rows: int, rng: np.random.Generator, words: int = 120) -> tuple[list[str], NDArray[np.int64]]:
    """Return documents of made-up words whose vocabulary shifts with the label, and the labels."""
    label = rng.integers(0, CLASSES, rows)
    documents: list[str] = []
    for start in range(0, rows, CHUNK_ROWS):
        drawn = np.minimum(rng.zipf(1.25, (min(CHUNK_ROWS, rows - start), words)), 60_000)
        shift = label[start : start + CHUNK_ROWS, None] * 13
        documents.extend(" ".join(f"w{word:x}" for word in row) for row in (drawn + shift).tolist())
    return documents, label


def standardised(data: Arrays) -> Arrays:
    """Return the first array centred and scaled per feature (in float64, as pandas would), others unchanged."""
    first = data[0].astype(np.float64)
    axes = tuple(range(first.ndim - 1))
    scaled = (first - first.mean(axis=axes)) / (first.std(axis=axes) + 1e-6)
    return (scaled.astype(np.float32), *data[1:])


def zero_to_one(data: Arrays) -> Arrays:
    flat = data[0].reshape(len(data[0]), -1)
    low = np.percentile(flat, 1, axis=1, keepdims=True)
    high = np.percentile(flat, 99, axis=1, keepdims=True)
    return (np.clip((flat - low) / (high - low), 0, 1).astype(np.float32), *data[1:])


def noisy(batch: Arrays, rng: np.random.Generator) -> Arrays:
    noise = rng.standard_normal(batch[0].shape, dtype=np.float32)
    return (batch[0] + 0.05 * noise, *batch[1:])


def cropped(batch: Arrays, rng: np.random.Generator) -> Arrays:
    """Return images shifted and re-lit one by one, as image pipelines do on the host."""
    pictures = np.empty_like(batch[0])
    shifts = rng.integers(-3, 4, (len(pictures), 2))
    for place, (picture, shift) in enumerate(zip(batch[0], shifts, strict=True)):
        turned = np.roll(picture, tuple(shift), axis=(0, 1))
        light = rng.uniform(0.8, 1.2)
        # Sorting the pixels stands for the cost of histogram equalisation.
        pictures[place] = np.sort(turned.ravel()).mean() + light * turned
    return (pictures, *batch[1:])


def same_rows(data: Arrays) -> Arrays:
    return tuple(array.copy() for array in data)
