"""`phasewise controller`: admits gangs of pods and moves training jobs."""

from __future__ import annotations

from collections.abc import Callable

import click

from extender.gangs.controller import Controller, ControllerOptions
from extender.gangs.decide import Timeouts
from extender.gangs.waking import Waker
from extender.moves.board import Planner
from extender.moves.gate import LATE, MOVED, MOVING, MoveLimits
from extender.moves.mover import Mover
from extender.moves.phasewise import MoveOptions, PhasewisePlanner
from extender.moves.specon import SpeConPlanner
from extender.watches import Watches
from extender.web.app import App, Telemetry
from extender.web.server import Server
from recommender import __version__
from recommender.cli.common import DURATION, STEP, FiniteRange, WholeRange
from recommender.cli.connection import connection_options
from recommender.cli.grouped import GroupedCommand
from recommender.cli.logs import with_log_options
from recommender.cluster.access.connection import Api
from recommender.cluster.lease import LeaderElection

LEASE = "phasewise-controller"


@click.command("controller", cls=GroupedCommand, environment="PHASEWISE_CONTROLLER")
@click.option("--address", default="127.0.0.1:8944", help="Address of /healthz, /readyz and /metrics, host:port.")
@click.option("--leader-elect", is_flag=True, help="Act only while holding a Lease: for standby replicas.")
@click.option("--lease-namespace", default="kube-system", help="Namespace of the Lease and of the reservations.")
@click.option(
    "--bind-within", "bind_within_s", type=DURATION, default="5m", help="How long an unbound gang holds up others."
)
@click.option(
    "--keep-after",
    "keep_after_s",
    type=DURATION,
    default="10m",
    help="How long the first gang of the queue waits until free capacity is kept for it.",
)
@click.option(
    "--period", "period_s", type=DURATION, default="5s", help="Longest time between two runs of the control loop."
)
@click.option(
    "--retry-after",
    "retry_s",
    type=STEP,
    default="30s",
    help="Time until the scheduler retries a pod that the extender refused on every node; `none`: up to the scheduler.",
)
@click.option(
    "--moves",
    type=click.Choice(["off", "plan", "act"]),
    default="off",
    help="plan: events say which training jobs would be moved where; act: move them.",
)
@click.option(
    "--moves-policy",
    type=click.Choice(["specon", "phasewise"]),
    default="specon",
    help="specon: make room for jobs that still learn; phasewise: let jobs end sooner, by earlier runs of their class.",
)
@click.option(
    "--move-cost",
    "move_cost_s",
    type=DURATION,
    default="60s",
    help="With phasewise: cost of a move to a job, until it has been measured.",
)
@click.option(
    "--move-margin",
    type=FiniteRange(0, min_open=True),
    default=2.0,
    help="With phasewise: a move must gain more than so many times its cost.",
)
@click.option("--moves-at-once", type=WholeRange(1), default=4, help="With --moves act: most moves in progress.")
@click.option(
    "--moves-at-once-in-namespace", type=WholeRange(1), default=1, help="Most moves in progress per namespace."
)
@click.option(
    "--move-within",
    "back_within_s",
    type=DURATION,
    default="10m",
    help="A job that does not run again within this time is late: neither it nor its class is moved again.",
)
@click.option("--move-rest", "rest_s", type=DURATION, default="10m", help="Least time between moves of a job.")
@click.option("--qps", type=FiniteRange(0, min_open=True), default=50.0, help="Requests per second.")
@click.option("--burst", type=WholeRange(1), default=100, help="Requests at once after a pause.")
@with_log_options
@connection_options
def command(
    address: str,
    leader_elect: bool,
    lease_namespace: str,
    bind_within_s: float,
    keep_after_s: float,
    period_s: float,
    retry_s: float,
    moves: str,
    moves_policy: str,
    move_cost_s: float,
    move_margin: float,
    moves_at_once: int,
    moves_at_once_in_namespace: int,
    back_within_s: float,
    rest_s: float,
    qps: float,
    burst: int,
    connect: Callable[..., Api],
) -> None:
    """Admit gangs: remove the scheduling gate phasewise.dev/gang from the pods of a gang all together, or not at all.

    A gang is named by the label phasewise.dev/gang, its size by phasewise.dev/gang-size; groups of JobSet, Kubeflow,
    Volcano, Coscheduling, Kueue and plain Jobs are recognised by their own labels. Events on the pods say why a gang
    waits. The scheduler is made to retry pods that the extender refused on every node. With --moves plan, events say
    which pods with the annotation phasewise.dev/checkpointable: "true" would be moved, by their PhaseProfiles; with
    --moves act, pods of Jobs are moved, each to a node that is reserved for its replacement. Options may also be set in
    the environment: PHASEWISE_CONTROLLER_QPS=20.
    """
    agent = f"phasewise-controller/{__version__}"
    api = connect(qps=qps, burst=burst, user_agent=agent)

    def build() -> App:
        elected = LeaderElection.join(api, lease_namespace, LEASE) if leader_elect else None
        timeouts = Timeouts(bind_within_s=bind_within_s, keep_after_s=keep_after_s)
        controller_options = ControllerOptions(period_s=period_s, timeouts=timeouts)

        def leads() -> bool:
            return elected is None or elected.is_leader

        controller = Controller(api, leads, controller_options, namespace=lease_namespace)
        waker = Waker(api, leads, controller.refused, retry_s) if retry_s else None
        limits = (
            MoveLimits(moves_at_once, moves_at_once_in_namespace, back_within_s, rest_s) if moves == "act" else None
        )
        planner: Planner = SpeConPlanner()
        if moves_policy == "phasewise":
            planner = PhasewisePlanner(MoveOptions(cost_s=move_cost_s, margin=move_margin, cool_down_s=rest_s))
        mover = Mover(api, leads, controller.cluster, controller.ledger, planner, limits) if moves != "off" else None
        of_moves = (mover.watches, mover.loop) if mover is not None else ()
        app = App(_telemetry(controller, waker, mover), {}, controller.not_ready)
        app.parts = (elected, controller.watches, controller.loop, waker.loop if waker else None, *of_moves)
        return app

    Server(build, address).run()


def _telemetry(controller: Controller, waker: Waker | None, mover: Mover | None) -> Telemetry:
    watches = Watches(*controller.watches, *(mover.watches if mover else ()))
    telemetry = Telemetry("controller")
    telemetry.watch(
        ("gangs_admitted", "Gangs admitted since the start.", lambda: controller.admitted),
        ("gangs_waiting", "Gated gangs.", lambda: controller.waiting),
        ("unreadable_objects", "Objects that cannot be parsed and are ignored.", lambda: watches.unreadable),
        ("pods_woken", "Retries of refused pods.", lambda: waker.woken if waker else 0),
        ("moves_planned", "Planned moves of training jobs.", lambda: mover.planned if mover else 0),
        ("moves_refused", "Planned moves that are not allowed.", lambda: mover.refused if mover else 0),
        ("moves_started", "Training jobs moved since the start.", lambda: mover.counts[MOVING] if mover else 0),
        ("moves_done", "Moved jobs that run again.", lambda: mover.counts[MOVED] if mover else 0),
        ("moves_late", "Moved jobs that did not run again in time.", lambda: mover.counts[LATE] if mover else 0),
        ("watches_failing", "Watches without contact.", lambda: watches.failing),
    )
    return telemetry
