# SPDX-License-Identifier: Apache-2.0
"""The whole loop on this machine, as two processes: ``python scripts/demo_robot.py FOLDER --seconds 12``."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from leapp_policy.tasks.robots import ROBOTS  # pyright: ignore[reportMissingImports]

from leapp_policy.errors import LeappPolicyError
from leapp_policy.onboard.trial import Trial, is_replay_equal, run_trial

PROCESS = Path(__file__).with_name("robot_process.py")


def main() -> None:
    """Run leapp-run against a robot in MuJoCo and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="deployment folder of leapp-policy pack")
    parser.add_argument("--robot", choices=ROBOTS, default="arm", help="which one the folder was packed for")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--robot-rate-hz", type=float, help="how often the robot sends sensors; its own by default")
    parser.add_argument("--transport", help="shm:NAME or udp:PORT; shared memory by default")
    parser.add_argument("--out", type=Path, default=Path("outputs/demo_robot"), help="stem of log, report and picture")
    args = parser.parse_args()
    print(f"Starting leapp-run on '{args.folder}' and '{args.robot}' in MuJoCo for {args.seconds:g} s …", flush=True)
    rate = args.robot_rate_hz or ROBOTS[args.robot].rate_hz
    command = [sys.executable, str(PROCESS), "--robot", args.robot]
    try:
        trial = run_trial(
            args.folder, command, seconds=args.seconds, robot_rate_hz=rate, address=args.transport, out=args.out
        )
    except LeappPolicyError as error:
        sys.exit(f"Demo failed: {error}")
    print(describe(trial))
    equal = is_replay_equal(args.folder, args.out.with_name(f"{args.out.name}.log"))
    print(f"  replay       {'every action bit-equal' if equal else 'DIFFERS'}")
    print(f"Open {args.out}.svg to see when steps began; {args.out}.json has all figures.")


def describe(trial: Trial) -> str:
    """Return how a trial went, for people."""
    report, robot = trial.report, trial.robot
    step = report["step_us"]
    lines = [f"  {each.strip()}" for each in trial.notes.strip().splitlines()]
    lines.append(
        f"  step         p50 {step['p50']:.0f} us, p99 {step['p99']:.0f} us, p99.9 {step['p99_9']:.0f} us, "
        f"max {step['max']:.0f} us, of {1e6 / report['rate_hz']:.0f} us"
    )
    why = ", ".join(f"{key.replace('_', ' ')} {count}" for key, count in report["missed_because"].items() if count)
    missed = f"{report['deadline_misses']} missed{f' ({why})' if why else ''}"
    lines.append(f"  deadlines    {missed} of {report['running_steps']} steps")
    lines.append(f"  processor    {trial.cpu_percent:.1f} % of a core, memory {trial.rss_mb:.0f} MB")
    lines.append(f"  robot        {robot['sent']} sensor packets out, {robot['received']} target packets in")
    return "\n".join([*lines, *describe_progress(robot["progress"])])


def describe_progress(progress: Mapping[str, float]) -> list[str]:
    """Return how the robot did its task, for people.

    Args:
        progress: What ``RobotModel.progress`` gave.
    """
    lines = []
    if "reached" in progress:
        lines.append(
            f"  tracking     {progress['reached']} of {progress['goals']} goals reached within 20 mm, "
            f"{1e3 * progress['mean_distance']:.1f} mm off on average"
        )
    if "upright" in progress:
        lines.append(
            f"  walking      {'fell after' if progress['fell'] else 'upright for'} {progress['upright']:.1f} of "
            f"{progress['simulated']:.1f} s, {progress['way']:.2f} m along its heading and "
            f"{progress['distance']:.2f} m along the first, {progress['speed']:.2f} m/s, "
            f"largest tilt {progress['tilt']:.2f} rad"
        )
    return lines


if __name__ == "__main__":
    main()
