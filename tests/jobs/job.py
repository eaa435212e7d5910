"""Run one training job: `python -m tests.jobs.job --class lstm-torch --run 3`."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import tempfile
from pathlib import Path

import click

from tests.jobs.plan import Run, planned_runs, workload_named
from tests.jobs.stages import Job

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "PJRT_NPROC")


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that limit numeric libraries to `threads` threads; set them before the libraries load.

    Waiting threads sleep: spinning would count as use, and slow down other jobs on the machine.
    """
    multi = str(threads > 1).lower()
    return {
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={multi}",
        "JAX_PLATFORMS": "cpu",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def run_job(run: Run, folder: Path, progress_path: Path | None = None, checkpoint_path: Path | None = None) -> None:
    """Run one training job in this process; it writes into `folder`.

    With a `checkpoint_path`, it saves a checkpoint and exits on SIGTERM, and the next run resumes from it.
    """
    job = Job(run, folder, progress_path, checkpoint_path)
    if checkpoint_path is not None:
        signal.signal(signal.SIGTERM, lambda *_: setattr(job, "stop_requested", True))
    framework = workload_named(run.workload).framework
    job.stage("import")
    importlib.import_module(f"tests.jobs.{framework}_jobs").run(job)
    job.stage("end")


@click.command()
@click.option("--class", "workload", required=True, help="Class of the job, for example lstm-torch.")
@click.option("--run", "number", default=1, show_default=True, help="Number of the run.")
@click.option("--seed", default=0, show_default=True, help="Seed of the plan.")
@click.option("--scale", default=1.0, show_default=True, help="Factor on data and steps.")
@click.option("--progress", type=click.Path(path_type=Path), help="File for the latest `stage step loss`.")
@click.option(
    "--checkpoint", type=click.Path(path_type=Path), help="Checkpoint to write on SIGTERM and resume (PyTorch, JAX)."
)
@click.option("--folder", type=click.Path(path_type=Path), help="Output folder.  [default: a temporary one]")
def main(
    *,
    workload: str,
    number: int,
    seed: int,
    scale: float,
    progress: Path | None,
    checkpoint: Path | None,
    folder: Path | None,
) -> None:
    runs = {(run.workload, run.number): run for run in planned_runs(seed)}
    if (workload, number) not in runs:
        raise click.UsageError(f"no run {number} of {workload!r}; `record_training plan` lists them")
    if checkpoint is not None and workload.endswith("-sklearn"):
        raise click.UsageError("--checkpoint: scikit-learn jobs cannot resume")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run = runs[workload, number].scaled(scale)
    os.environ.update(thread_environment(run.threads))
    output = tempfile.TemporaryDirectory(prefix="training-") if folder is None else contextlib.nullcontext(folder)
    with output as path:
        run_job(run, Path(path), progress, checkpoint)


if __name__ == "__main__":
    main()
