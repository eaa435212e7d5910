"""The jobs that train with JAX."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.jobs import datasets
from tests.jobs.stages import Arrays, Job, Recipe, run_recipe

Weights = Any
Loss = Callable[[Weights, tuple[jax.Array, ...]], jax.Array]


class JaxLearner:
    """JAX weights with their loss and Adam, compiled on first use."""

    def __init__(self, weights: Weights, loss: Loss, learning_rate: float = 1e-3) -> None:
        zeros = jax.tree.map(jnp.zeros_like, weights)
        self.state = (weights, zeros, zeros, jnp.zeros(()))
        self._loss = jax.jit(loss)
        self._step = jax.jit(partial(_adam_step, loss, learning_rate))

    def step(self, batch: Arrays) -> float:
        self.state, loss = self._step(self.state, batch)
        return float(loss)

    def evaluate(self, batch: Arrays) -> float:
        return float(self._loss(self.state[0], batch))

    def save(self, to: Path | IO[bytes]) -> None:
        np.savez(to, *map(np.asarray, jax.tree.leaves(self.state)))

    def load(self, file: IO[bytes]) -> None:
        with np.load(io.BytesIO(file.read())) as kept:
            leaves = [jnp.asarray(kept[f"arr_{place}"]) for place in range(len(kept.files))]
        self.state = jax.tree.unflatten(jax.tree.structure(self.state), leaves)

    def export(self, path: Path) -> None:
        """Write the weights in half precision, compressed."""
        np.savez_compressed(path, *(np.asarray(leaf, np.float16) for leaf in jax.tree.leaves(self.state[0])))


def _adam_step(loss: Loss, rate: float, state: Any, batch: Any) -> tuple[Any, jax.Array]:
    weights, first, second, count = state
    value, slope = jax.value_and_grad(loss)(weights, batch)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slope)
    size = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = jax.tree.map(lambda w, m, v: w - size * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return (weights, first, second, count), value


def _dense(rng: np.random.Generator, *sizes: int) -> list[tuple[jax.Array, jax.Array]]:
    return [
        (jnp.asarray(rng.normal(0, (2 / rows) ** 0.5, (rows, columns)), jnp.float32), jnp.zeros(columns))
        for rows, columns in pairwise(sizes)
    ]


def _through(layers: list[tuple[jax.Array, jax.Array]], values: jax.Array) -> jax.Array:
    for weight, bias in layers[:-1]:
        values = jax.nn.relu(values @ weight + bias)
    return values @ layers[-1][0] + layers[-1][1]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None].astype(jnp.int32), axis=-1)
    return -picked.mean()


def mlp_loss(weights: Weights, batch: tuple[jax.Array, ...]) -> jax.Array:
    return _cross_entropy(_through(weights, batch[0]), batch[1])


def vae_loss(weights: Weights, batch: tuple[jax.Array, ...]) -> jax.Array:
    """Return reconstruction loss plus divergence of the code, per pixel."""
    mean, log_variance = jnp.split(_through(weights["encoder"], batch[0]), 2, axis=1)
    key = jax.random.key(jnp.sum(batch[1]).astype(jnp.int32))
    code = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
    logits = _through(weights["decoder"], code)
    entropy = jnp.maximum(logits, 0) - logits * batch[0] + jnp.log1p(jnp.exp(-jnp.abs(logits)))
    divergence = -0.5 * (1 + log_variance - mean**2 - jnp.exp(log_variance)).sum() / batch[0].size
    return entropy.mean() + divergence


def cnn_loss(weights: Weights, batch: tuple[jax.Array, ...]) -> jax.Array:
    values = batch[0]
    for kernel in weights["kernels"]:
        values = jax.lax.conv_general_dilated(
            values, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        values = jax.nn.relu(values)
    return _cross_entropy(_through(weights["head"], values.mean(axis=(1, 2))), batch[1])


def gru_loss(weights: Weights, batch: tuple[jax.Array, ...]) -> jax.Array:
    """Return the cross entropy read out from the last state of a GRU."""
    hidden = weights["across"].shape[0]

    def move(state: jax.Array, moment: jax.Array) -> tuple[jax.Array, None]:
        inward, across = moment @ weights["inward"], state @ weights["across"]
        update = jax.nn.sigmoid(inward[:, :hidden] + across[:, :hidden])
        reset = jax.nn.sigmoid(inward[:, hidden : 2 * hidden] + across[:, hidden : 2 * hidden])
        proposal = jnp.tanh(inward[:, 2 * hidden :] + reset * across[:, 2 * hidden :])
        return (1 - update) * state + update * proposal, None

    start = jnp.zeros((batch[0].shape[0], hidden))
    state, _ = jax.lax.scan(move, start, jnp.swapaxes(batch[0], 0, 1))
    return _cross_entropy(_through(weights["head"], state), batch[1])


def lstm_loss(weights: Weights, batch: tuple[jax.Array, ...]) -> jax.Array:
    """Return the cross entropy read out from the last state of an LSTM."""
    hidden = weights["across"].shape[0]

    def move(state: tuple[jax.Array, jax.Array], moment: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        gates = moment @ weights["inward"] + state[0] @ weights["across"]
        take, forget, show, proposal = jnp.split(gates, 4, axis=1)
        cell = jax.nn.sigmoid(forget + 1) * state[1] + jax.nn.sigmoid(take) * jnp.tanh(proposal)
        return (jax.nn.sigmoid(show) * jnp.tanh(cell), cell), None

    start = jnp.zeros((batch[0].shape[0], hidden))
    (state, _), _ = jax.lax.scan(move, (start, start), jnp.swapaxes(batch[0], 0, 1))
    return _cross_entropy(_through(weights["head"], state), batch[1])


def _normalised(values: jax.Array) -> jax.Array:
    return (values - values.mean(-1, keepdims=True)) / (values.std(-1, keepdims=True) + 1e-5)


def transformer_loss(weights: Weights, batch: tuple[jax.Array, ...]) -> jax.Array:
    rows = batch[0][:, :-1]
    values = weights["embedding"][rows]
    length, width = values.shape[1], values.shape[2]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for block in weights["blocks"]:
        query, key, value = jnp.split(_normalised(values) @ block["attention"], 3, axis=-1)
        scores = jnp.where(mask, query @ jnp.swapaxes(key, 1, 2) / width**0.5, -1e9)
        values = values + jax.nn.softmax(scores) @ value
        values = values + _through(block["dense"], _normalised(values))
    return _cross_entropy(values @ weights["embedding"].T, batch[0][:, 1:])


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> jax.Array:
    return jnp.asarray(rng.normal(0, rows**-0.5, (rows, columns)), jnp.float32)


def _vae(batch: Arrays) -> JaxLearner:
    rng, pixels = np.random.default_rng(0), batch[0].shape[1]
    weights = {"encoder": _dense(rng, pixels, 512, 32), "decoder": _dense(rng, 16, 512, pixels)}
    return JaxLearner(weights, vae_loss)


def _cnn(batch: Arrays) -> JaxLearner:
    rng = np.random.default_rng(0)
    widths = (batch[0].shape[-1], 24, 48)
    kernels = [
        jnp.asarray(rng.normal(0, (2 / (9 * before)) ** 0.5, (3, 3, before, after)), jnp.float32)
        for before, after in pairwise(widths)
    ]
    return JaxLearner({"kernels": kernels, "head": _dense(rng, widths[-1], datasets.CLASSES)}, cnn_loss)


def _recurrent(loss: Loss, gates: int, hidden: int, batch: Arrays) -> JaxLearner:
    rng = np.random.default_rng(0)
    weights = {
        "inward": _matrix(rng, batch[0].shape[2], gates * hidden),
        "across": _matrix(rng, hidden, gates * hidden),
        "head": _dense(rng, hidden, datasets.CLASSES),
    }
    return JaxLearner(weights, loss)


def _transformer(batch: Arrays) -> JaxLearner:
    rng, width = np.random.default_rng(0), 96
    blocks = [
        {"attention": _matrix(rng, width, 3 * width), "dense": _dense(rng, width, 4 * width, width)} for _ in range(2)
    ]
    return JaxLearner({"embedding": 0.3 * _matrix(rng, 4000, width), "blocks": blocks}, transformer_loss)


def _mlp(batch: Arrays) -> JaxLearner:
    return JaxLearner(_dense(np.random.default_rng(0), batch[0].shape[1], 512, 256, datasets.CLASSES), mlp_loss)


def recipes() -> dict[str, Recipe]:
    sequences, standardised, noisy = datasets.sequences, datasets.standardised, datasets.noisy
    return {
        "vae-jax": Recipe(
            partial(datasets.images, side=28, channels=1, passes=6), datasets.zero_to_one, _vae, noisy,
            keeps_raw=True, evaluation_rows=12_000, evaluation_passes=5,
        ),
        "cnn-jax": Recipe(
            partial(datasets.images, passes=4), standardised, _cnn, datasets.cropped,
            evaluation_rows=6000, evaluation_passes=4,
        ),
        "transformer-jax": Recipe(
            partial(datasets.tokens, passes=10), datasets.same_rows, _transformer,
            shard_fraction=0.5, evaluation_rows=2000, evaluation_passes=2,
        ),
        "gru-jax": Recipe(
            partial(sequences, features=32, passes=5), standardised, partial(_recurrent, gru_loss, 3, 128),
            evaluation_rows=4000, evaluation_passes=2,
        ),
        "lstm-jax": Recipe(
            partial(sequences, length=80, passes=6), standardised, partial(_recurrent, lstm_loss, 4, 96), noisy,
            keeps_raw=True, evaluation_rows=6000,
        ),
        "mlp-jax": Recipe(
            partial(datasets.table, columns=120, passes=6), standardised, _mlp, noisy,
            shard_fraction=0.4, evaluation_rows=20_000, evaluation_passes=4,
        ),
    }  # fmt: skip


def run(job: Job) -> None:
    """Run a job; `tests.jobs.job` sets the number of threads in the environment before JAX is loaded."""
    run_recipe(recipes()[job.run.workload], job)
