"""The jobs that train with scikit-learn: forest and boosted trees on tables, tf-idf on texts."""

from __future__ import annotations

import gc
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import QuantileTransformer

from tests.jobs import datasets
from tests.jobs.stages import Job

EVALUATION_SHARE = 0.2
TABLE_COLUMNS = 40
FOREST_CHECKS, BOOSTING_CHECKS = 4, 8
"""Number of factors on the features for which predictions are evaluated."""
TEXT_CHECKS = 30
"""Passes through the held-out documents per evaluation, as when timing a model for serving."""


def _table_from_file(job: Job) -> pd.DataFrame:
    """Write the table to a CSV file and read it back, as pipelines read files."""
    job.stage("make-data")
    path = job.folder / "table.csv"
    for start in range(0, job.run.rows, 5000):
        block, label = datasets.table(min(5000, job.run.rows - start), job.rng, TABLE_COLUMNS)
        frame = pd.DataFrame(block, columns=[f"x{column}" for column in range(TABLE_COLUMNS)])
        frame["label"] = label
        frame.to_csv(path, mode="a", header=start == 0, index=False, float_format="%.5f")
    job.stage("read-data")
    return pd.read_csv(path)


def _tabular(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    frame = _table_from_file(job)
    job.stage("preprocess")
    labels = frame.pop("label").to_numpy()
    values = QuantileTransformer(n_quantiles=500, random_state=0).fit_transform(frame).astype(np.float32)
    del frame
    gc.collect()
    held = round(len(values) * EVALUATION_SHARE)
    return values[held:], labels[held:], values[:held], labels[:held]


def _checkpoint(job: Job, model: Any, epoch: int) -> None:
    job.stage("checkpoint")
    joblib.dump(model, job.folder / f"checkpoint-{epoch}.joblib")


def _export(job: Job, model: Any) -> None:
    job.stage("export")
    joblib.dump(model, job.folder / "model.joblib", compress=3)


def forest(job: Job) -> None:
    run = job.run
    model = RandomForestClassifier(0, max_depth=14, warm_start=True, n_jobs=run.threads, random_state=run.seed)
    _grow(job, model, "n_estimators", 2, np.linspace(1.0, 0.7, FOREST_CHECKS))


def boosting(job: Job) -> None:
    model = HistGradientBoostingClassifier(
        max_iter=1, warm_start=True, early_stopping=False, random_state=job.run.seed, max_leaf_nodes=15
    )
    _grow(job, model, "max_iter", 1, np.linspace(1.0, 0.65, BOOSTING_CHECKS))


def _grow(job: Job, model: Any, size: str, by: int, strengths: np.ndarray) -> None:
    """Grow the model by `by` per step; every epoch ends with an evaluation at these strengths."""
    values, labels, held_values, held_labels = _tabular(job)
    for epoch in range(job.run.epochs):
        job.stage("train")
        for _ in range(job.run.steps):
            model.set_params(**{size: getattr(model, size) + by})
            model.fit(values, labels)
            job.stepped(float(log_loss(held_labels[:500], model.predict_proba(held_values[:500]))))
        job.stage("evaluate")
        for strength in strengths:
            model.predict_proba(held_values * strength)
        _checkpoint(job, model, epoch)
    _export(job, model)


def text(job: Job) -> None:
    """Classify documents by tf-idf and a linear model trained in batches."""
    run = job.run
    job.stage("make-data")
    documents, labels = datasets.texts(run.rows, job.rng)
    job.stage("preprocess")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), max_features=50_000, dtype=np.float32)
    values = vectorizer.fit_transform(documents)
    del documents
    gc.collect()
    held = round(run.rows * EVALUATION_SHARE)
    classes = np.arange(datasets.CLASSES)
    model = SGDClassifier(loss="log_loss", random_state=run.seed)
    for epoch in range(run.epochs):
        job.stage("train")
        for _ in range(run.steps):
            rows = job.rng.integers(held, run.rows, run.batch)
            model.partial_fit(values[rows], labels[rows], classes=classes)
            job.stepped(float(log_loss(labels[:500], model.predict_proba(values[:500]), labels=classes)))
        job.stage("evaluate")
        for _ in range(TEXT_CHECKS):
            model.predict_proba(values[:held])
        _checkpoint(job, model, epoch)
    _export(job, (vectorizer, model))


def run(job: Job) -> None:
    {"forest-sklearn": forest, "boosting-sklearn": boosting, "text-sklearn": text}[job.run.workload](job)
