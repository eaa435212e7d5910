"""The jobs that train with PyTorch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

from tests.jobs import datasets
from tests.jobs.plan import Run
from tests.jobs.stages import Arrays, Job, Recipe, run_recipe

Loss = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


class TorchLearner:
    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model = model
        self.loss = loss
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(self, batch: Arrays) -> float:
        self.model.train()
        self.optimiser.zero_grad()
        loss = self.loss(self.model, tuple(torch.as_tensor(array) for array in batch))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return float(loss.detach())

    def evaluate(self, batch: Arrays) -> float:
        self.model.eval()
        with torch.no_grad():
            return float(self.loss(self.model, tuple(torch.as_tensor(array) for array in batch)))

    def save(self, to: Path | IO[bytes]) -> None:
        torch.save({"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}, to)

    def load(self, file: IO[bytes]) -> None:
        kept = torch.load(io.BytesIO(file.read()), weights_only=True)
        self.model.load_state_dict(kept["model"])
        self.optimiser.load_state_dict(kept["optimiser"])

    def export(self, path: Path) -> None:
        torch.save({name: value.half() for name, value in self.model.state_dict().items()}, path)


class Vae(nn.Module):
    def __init__(self, inputs: int, hidden: int = 512, latent: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, inputs))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(inputs).chunk(2, dim=1)
        code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(code), mean, log_variance


def vae_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return reconstruction loss plus divergence of the code, per pixel."""
    logits, mean, log_variance = model(batch[0])
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum() / batch[0].numel()
    return functional.binary_cross_entropy_with_logits(logits, batch[0]) + divergence


class Recurrent(nn.Module):
    """A recurrent cell of any kind, read out at its last step; lengths are optional."""

    def __init__(
        self, kind: type[nn.RNNBase], features: int, hidden: int, layers: int = 1, both_ways: bool = False
    ) -> None:
        super().__init__()
        self.cell = kind(features, hidden, num_layers=layers, batch_first=True, bidirectional=both_ways)
        self.head = nn.Linear(hidden * (2 if both_ways else 1), datasets.CLASSES)
        self.directions = 2 if both_ways else 1

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        if lengths is not None:
            packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
            state = self.cell(packed)[1]
        else:
            state = self.cell(inputs)[1]
        last = state[0] if isinstance(state, tuple) else state
        return self.head(torch.cat(list(last[-self.directions :]), dim=1))


def label_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return the cross entropy of the labels; a third array holds the lengths of the sequences."""
    return functional.cross_entropy(model(batch[0], *batch[2:]), batch[1])


def convolutional(channels: int, width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * width, datasets.CLASSES),
    )


class TransformerLm(nn.Module):
    def __init__(self, vocabulary: int = 4000, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, rows: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(rows.shape[1])
        return self.head(self.encoder(self.embedding(rows), mask=mask, is_causal=True))


def next_token_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    rows = batch[0].long()
    logits = model(rows[:, :-1])
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))


def _recurrent(
    kind: type[nn.RNNBase], hidden: int, batch: Arrays, layers: int = 1, both_ways: bool = False
) -> TorchLearner:
    return TorchLearner(Recurrent(kind, batch[0].shape[2], hidden, layers, both_ways), label_loss)


def _mlp(batch: Arrays) -> TorchLearner:
    layers = [nn.Linear(batch[0].shape[1], 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()]
    return TorchLearner(nn.Sequential(*layers, nn.Linear(256, datasets.CLASSES)), label_loss)


def channels_first(data: Arrays) -> Arrays:
    """Return standardised images with channels first, as PyTorch expects."""
    scaled = datasets.standardised(data)
    return (np.ascontiguousarray(np.moveaxis(scaled[0], -1, 1)), *scaled[1:])


class _Pictures(Dataset[tuple[np.ndarray, int]]):
    def __init__(self, data: Arrays, rows: int, seed: int) -> None:
        self.data = data
        self.rows = rows
        self.seed = seed

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        rng = np.random.default_rng([self.seed, place])
        picked = int(rng.integers(0, len(self.data[0])))
        picture = np.roll(self.data[0][picked], tuple(rng.integers(-3, 4, 2)), axis=(1, 2))
        picture = picture + 0.05 * rng.standard_normal(picture.shape, dtype=np.float32)
        return picture.astype(np.float32), int(self.data[1][picked])


def by_worker_process(data: Arrays, run: Run, epoch: int) -> Iterator[Arrays]:
    """Serve an epoch's batches from a worker process that lives as long as the epoch."""
    pictures = _Pictures(data, run.steps * run.batch, run.seed + epoch)
    for batch in DataLoader(pictures, batch_size=run.batch, num_workers=1):
        yield tuple(part.numpy() for part in batch)


def recipes() -> dict[str, Recipe]:
    sequences, standardised, noisy = datasets.sequences, datasets.standardised, datasets.noisy
    return {
        "vae-torch": Recipe(
            partial(datasets.images, side=28, channels=1, passes=6), datasets.zero_to_one,
            lambda batch: TorchLearner(Vae(batch[0].shape[1]), vae_loss),
            evaluation_rows=12_000, evaluation_passes=10,
        ),
        "gru-torch": Recipe(
            partial(sequences, passes=6), standardised, partial(_recurrent, nn.GRU, 96), noisy,
            keeps_raw=True, evaluation_rows=8000,
        ),
        "lstm-torch": Recipe(
            partial(sequences, length=80, passes=6), standardised, partial(_recurrent, nn.LSTM, 128),
            evaluation_rows=8000, evaluation_passes=3,
        ),
        "rnn-torch": Recipe(
            partial(sequences, features=32, passes=4), standardised, partial(_recurrent, nn.RNN, 128),
            keeps_raw=True, evaluates_each_epoch=False, evaluation_rows=12_000, evaluation_passes=8,
        ),
        "birnn-torch": Recipe(
            partial(sequences, length=64, passes=12), standardised,
            partial(_recurrent, nn.RNN, 96, layers=2, both_ways=True), noisy,
            shard_fraction=0.5, evaluation_rows=8000,
        ),
        "dynrnn-torch": Recipe(
            datasets.ragged_sequences, standardised, partial(_recurrent, nn.GRU, 96),
            evaluation_rows=8000, evaluation_passes=5,
        ),
        "cnn-torch": Recipe(
            partial(datasets.images, passes=4), channels_first,
            lambda batch: TorchLearner(convolutional(batch[0].shape[1]), label_loss),
            evaluation_rows=6000, batches=by_worker_process,
        ),
        "transformer-torch": Recipe(
            partial(datasets.tokens, passes=8), datasets.same_rows,
            lambda batch: TorchLearner(TransformerLm(), next_token_loss), evaluation_rows=1500,
        ),
        "mlp-torch": Recipe(
            partial(datasets.table, columns=160, passes=3), standardised, _mlp, noisy,
            keeps_raw=True, shard_fraction=0.3, evaluation_rows=20_000, evaluation_passes=6,
        ),
    }  # fmt: skip


def run(job: Job) -> None:
    """Run a job with the threads and the seed of its run."""
    torch.set_num_threads(job.run.threads)
    torch.manual_seed(job.run.seed)
    run_recipe(recipes()[job.run.workload], job)
