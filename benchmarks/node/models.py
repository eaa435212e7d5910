"""Models that jobs train: a small network in PyTorch, or one in NumPy where there is no PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN = 512
LEARNING_RATE = 1e-3

Rows = NDArray[np.float32]
Labels = NDArray[np.int64]


class TorchModel:
    """Three dense layers and Adam."""

    def __init__(self, features: int, classes: int, seed: int) -> None:
        import torch  # noqa: PLC0415 - costs three seconds and 300 MiB

        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self._torch: Any = torch
        layers = torch.nn
        self._net = layers.Sequential(
            layers.Linear(features, HIDDEN),
            layers.ReLU(),
            layers.Linear(HIDDEN, HIDDEN),
            layers.ReLU(),
            layers.Linear(HIDDEN, classes),
        )
        self._optimiser = torch.optim.Adam(self._net.parameters(), lr=LEARNING_RATE)
        self._loss = layers.CrossEntropyLoss()

    def step(self, rows: Rows, labels: Labels) -> float:
        self._optimiser.zero_grad()
        loss = self._loss(self._net(self._torch.from_numpy(rows)), self._torch.from_numpy(labels))
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())

    def evaluate(self, rows: Rows, labels: Labels) -> float:
        with self._torch.no_grad():
            return float(self._loss(self._net(self._torch.from_numpy(rows)), self._torch.from_numpy(labels)))

    def save(self, path: Path) -> None:
        self._torch.save({"model": self._net.state_dict(), "optimiser": self._optimiser.state_dict()}, path)


class NumpyModel:
    """One hidden layer and plain gradient descent."""

    def __init__(self, features: int, classes: int, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self._first = (chance.standard_normal((features, HIDDEN)) / np.sqrt(features)).astype(np.float32)
        self._second = (chance.standard_normal((HIDDEN, classes)) / np.sqrt(HIDDEN)).astype(np.float32)

    def step(self, rows: Rows, labels: Labels) -> float:
        hidden, probabilities, loss = self._forward(rows, labels)
        probabilities[np.arange(len(labels)), labels] -= 1
        probabilities /= len(labels)
        below = (probabilities @ self._second.T) * (hidden > 0)
        self._second -= LEARNING_RATE * hidden.T @ probabilities
        self._first -= LEARNING_RATE * rows.T @ below
        return loss

    def evaluate(self, rows: Rows, labels: Labels) -> float:
        return self._forward(rows, labels)[2]

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, first=self._first, second=self._second)

    def _forward(self, rows: Rows, labels: Labels) -> tuple[Rows, Rows, float]:
        hidden = np.maximum(rows @ self._first, 0)
        scores = hidden @ self._second
        probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        loss = -float(np.log(probabilities[np.arange(len(labels)), labels] + 1e-9).mean())
        return hidden, probabilities, loss


Model = TorchModel | NumpyModel


def new(workload: str, features: int, classes: int, seed: int) -> Model:
    return TorchModel(features, classes, seed) if workload == "torch" else NumpyModel(features, classes, seed)
