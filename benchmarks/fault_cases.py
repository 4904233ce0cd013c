# SPDX-License-Identifier: Apache-2.0
"""The kinds of faults, how each is made, what docs/onboard.md says of it, and whether a run was like that."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fault_run import Pair, hold_again_and_again, step_wall_clock

# What may follow a state, as in docs/onboard.md.
NEXT = {
    "init": {"armed", "fault"},
    "armed": {"running", "init", "fault"},
    "running": {"hold", "fault"},
    "hold": {"running", "damped", "armed", "fault"},
    "damped": {"fault", "armed"},
    "fault": set(),
}
# A full machine can do this to any run: signals get old, deadlines are missed.
BY_MACHINE = {11, 12, 18}
Act = Callable[[Pair], None]


@dataclass(frozen=True)
class Case:
    """A kind of fault and what is documented of it.

    Attributes:
        name: In the table.
        act: Does it, beside a pair of processes that run.
        then: States after the first ``running``, with the causes of the packets.
        code: Exit code of the runner.
        folder: Deployment, by name.
        link: Kind of a fault of the robot's link, with its length [s].
    """

    name: str
    act: Act
    then: tuple[tuple[str, int], ...] = ()
    code: int = 0
    folder: str = "plain"
    link: tuple[str, float] | None = None


def lasting(name: str, kind: str, cause: int) -> Case:
    """A fault of the link that does not end."""
    return Case(name, await_end, (("hold", cause), *OVER), 3, link=(kind, 60.0))


def passing(name: str, kind: str, *then: tuple[str, int], seconds: float = 0.2) -> Case:
    """A fault of the link that is over after some time."""
    return Case(name, watch, then, link=(kind, seconds))


def watch(pair: Pair) -> None:
    """Let the fault of the link begin and end."""
    pair.wait(3.4, 3.6)


def await_end(pair: Pair) -> None:
    """The runner ends by itself."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        pair.runners[-1].wait(timeout=20.0)


def kill_robot(pair: Pair) -> None:
    """The robot's process is killed."""
    pair.wait(0.3, 1.3)
    pair.robots[0].kill()
    await_end(pair)


def restart_robot(pair: Pair) -> None:
    """The robot's process is killed, and another one, whose numbers begin anew, comes before the hold is over."""
    pair.start_robot(waits=True)
    pair.wait(1.0, 2.0)
    pair.robots[0].kill()
    pair.wait(0.2, 0.25)
    pair.go.set()
    pair.wait(1.2, 1.4)


def restart_runner(pair: Pair) -> None:
    """The runner is killed, and another one comes while the robot lives."""
    pair.wait(0.3, 1.3)
    pair.runners[-1].send_signal(signal.SIGKILL)
    pair.runners[-1].wait()
    pair.start_runner()
    pair.await_note("armed -> running", 10.0)
    pair.wait(0.8, 1.2)


def hold_runner(pair: Pair) -> None:
    """The runner's process is held for 5 ms, again and again."""
    pair.wait(0.3, 1.3)
    hold_again_and_again(pair, 2.0)


def step_clock(seconds: int) -> Act:
    """The wall clock that the runner sees is stepped."""

    def act(pair: Pair) -> None:
        pair.wait(0.3, 1.3)
        step_wall_clock(pair.settings.scratch / "clocks", seconds)
        pair.wait(1.2, 1.4)

    return act


OVER = (("damped", 19), ("fault", 20))
BACK = ("running", 21)
HELD = "the runner is held for 5 ms at a time"
SLOW = "a model that takes over 5 ms too long, 500 Hz"
CASES = [
    lasting("a signal is NaN, for good", "nan", 13),
    passing("a signal is NaN for 0.2 s", "nan", ("hold", 13), BACK),
    lasting("a signal is out of its range, for good", "range", 14),
    lasting("no packets any more", "silent", 11),
    passing("no packets for 0.25 s", "silent", ("hold", 11), BACK, seconds=0.25),
    lasting("packets with an old time stamp", "stale", 11),
    lasting("packets from the future (10 s)", "clock", 11),
    lasting("damaged packets", "corrupt", 11),
    lasting("packets that lack a value", "short", 11),
    passing("packets 5 ms late for 1 s", "delay", seconds=1.0),
    Case("a stop is asked for", await_end, (("hold", 3), *OVER), 3, link=("stop", 1.0)),
    Case("emergency stop", await_end, (("fault", 4),), 3, link=("estop", 1.0)),
    Case("the robot is killed", kill_robot, (("hold", 11), *OVER), 3),
    Case("the robot is killed and started anew", restart_robot, (("hold", 11), BACK)),
    Case("the runner is killed and started anew", restart_runner),
    Case(f"{HELD}, 50 Hz", hold_runner),
    Case(f"{HELD}, 500 Hz, `continue`", hold_runner, folder="fast_continue"),
    Case(
        f"{HELD}, 500 Hz, `hold`",
        hold_runner,
        (("hold", 18), *OVER),
        3,
        folder="fast_hold",
    ),
    Case(f"{HELD}, 500 Hz, `fault`", hold_runner, (("fault", 18),), 3, folder="fast_fault"),
    Case(f"{SLOW}, `continue`", watch, folder="slow_continue"),
    Case(f"{SLOW}, `hold`", await_end, (("hold", 18), *OVER), 3, folder="slow_hold"),
    Case(f"{SLOW}, `fault`", await_end, (("fault", 18),), 3, folder="slow_fault"),
    Case("the wall clock steps 1 h forward", step_clock(3600)),
    Case("the wall clock steps 1 h back", step_clock(-3600)),
]


def judge(case: Case, found: dict[str, Any]) -> dict[str, Any]:
    """Say whether a run ended as documented, and whether the machine disturbed it."""
    seen = [tuple(each) for each in found["transitions"]]
    first = next((at for at, (state, _) in enumerate(seen) if state == "running"), len(seen))
    then = tuple(seen[first + 1 :])
    good = first < len(seen) and then == case.then and found["exit"] == case.code
    if "runner is killed" in case.name:
        good = good and found["killed"] == [-signal.SIGKILL] and found["restarts_seen"] == 1
    if "500 Hz" in case.name:
        good = good and found["missed"] > 0
    if "wall clock" in case.name:
        good = good and found["clock_reads"] > 0
    states = ["init", *(state for state, _ in seen)]
    legal = all(after in NEXT[before] for before, after in itertools.pairwise(states))
    known = {cause for _, cause in case.then}
    by_machine = any(cause in BY_MACHINE - known for _, cause in seen) or (then[:1] == (("hold", 11),) and not good)
    return {
        "as_documented": good,
        "disturbed": not good and legal and by_machine,
        "crashed": found["exit"] < 0 or any(code != -signal.SIGKILL for code in found["killed"]),
    }
