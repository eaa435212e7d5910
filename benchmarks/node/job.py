"""One training job with the stages of a real one: waits take fixed time, work on the CPU is a fixed amount.

`python -m benchmarks.node.job --workload torch --seed 1`. It imports NumPy and, for `torch`, PyTorch, and little else,
as imports are part of the measurement. It prints each stage as it begins: `stage=load`.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.node.models import Model

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
FEATURES = 256
CLASSES = 10
SHARDS = 24
ROWS = 125_000
"""With FEATURES of 4 bytes, 122 MiB; `preprocess` holds up to four copies for a while."""
SHARD_WAIT_S = 0.5
PREPROCESS_PASSES = 2
BATCH = 128
STEPS = 68
STEP_WAIT_S = 0.11
HELD_OUT_SHARE = 0.25
EVALUATION_PASSES = 3
EVALUATION_ROWS = 10_000
MIN_ROWS = 8_000


def stage(name: str) -> None:
    print(f"stage={name}", flush=True)


class Job:
    def __init__(self, seed: int, size: float, pace: float, scale: float, waits: int, work: int, model: Model) -> None:
        import numpy as np  # noqa: PLC0415 - `import` is a stage

        self._np = np
        self._chance = np.random.default_rng(seed)
        self._rows = max(MIN_ROWS, round(ROWS * size * scale)) // SHARDS
        self._pace = pace
        self._scale = scale
        self._waits, self._work = waits, work
        self._model = model
        self._shards: list[NDArray[np.float32]] = []
        self._prepared: NDArray[np.float32]
        self._labels: NDArray[np.int64]

    def load(self) -> None:
        """Wait for storage shard by shard; memory grows with each."""
        for _ in range(SHARDS):
            time.sleep(SHARD_WAIT_S * self._pace * self._scale * self._waits)
            self._shards.append(self._chance.standard_normal((self._rows, FEATURES), dtype=self._np.float32))

    def preprocess(self) -> None:
        """Clip and standardise on the CPU, with several copies of the data in memory."""
        np = self._np
        raw = np.concatenate(self._shards)
        self._shards.clear()
        centred = raw - raw.mean(axis=0)
        prepared = np.empty_like(raw)
        block = max(1, len(raw) // 64)
        for _ in range(PREPROCESS_PASSES * self._work):
            for start in range(0, len(raw), block):
                part = slice(start, start + block)
                ranks = np.sort(centred[part], axis=0)
                prepared[part] = np.clip(centred[part], ranks[len(ranks) // 100], ranks[-len(ranks) // 100])
        prepared /= prepared.std(axis=0)
        self._labels = np.argmax(raw[:, :CLASSES], axis=1)
        self._prepared = prepared

    def train(self) -> None:
        held_out = round(len(self._prepared) * HELD_OUT_SHARE)
        for _ in range(max(2, round(STEPS * self._scale)) * self._waits):
            picked = self._chance.integers(held_out, len(self._prepared), BATCH)
            self._model.step(self._prepared[picked], self._labels[picked])
            time.sleep(STEP_WAIT_S * self._pace)

    def evaluate(self) -> None:
        held_out = round(len(self._prepared) * HELD_OUT_SHARE)
        losses = []
        for _ in range(EVALUATION_PASSES * self._work):
            for start in range(0, held_out, EVALUATION_ROWS):
                part = slice(start, min(start + EVALUATION_ROWS, held_out))
                losses.append(self._model.evaluate(self._prepared[part], self._labels[part]))
        print(f"loss={sum(losses) / len(losses):.4f}", flush=True)

    def export(self, folder: Path) -> None:
        """Write the model and compressed reference rows."""
        self._model.save(folder / "model")
        reference = self._prepared[: len(self._prepared) // 20].tobytes()
        (folder / "reference.z").write_bytes(zlib.compress(reference, level=4))


def run(arguments: argparse.Namespace) -> None:
    stage("import")
    from benchmarks.node import models  # noqa: PLC0415 - importing is a stage

    model = models.new(arguments.workload, FEATURES, CLASSES, arguments.seed)
    job = Job(arguments.seed, arguments.size, arguments.pace, arguments.scale, arguments.waits, arguments.work, model)
    stage("load")
    job.load()
    stage("preprocess")
    job.preprocess()
    gc.collect()
    for _ in range(arguments.epochs):
        stage("train")
        job.train()
        stage("evaluate")
        job.evaluate()
    stage("export")
    with tempfile.TemporaryDirectory() as folder:
        job.export(Path(folder))
    stage("end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=["torch", "numpy"], default="torch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--waits", type=int, default=1)
    parser.add_argument("--work", type=int, default=1)
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    run(parser.parse_args())


if __name__ == "__main__":
    main()
