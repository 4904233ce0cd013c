# SPDX-License-Identifier: Apache-2.0
"""The whole loop on this machine, as two processes: ``python scripts/demo_robot.py FOLDER --seconds 12``."""

import argparse
import sys
from pathlib import Path

from leapp_policy.errors import LeappPolicyError
from leapp_policy.onboard.trial import Trial, is_replay_equal, run_trial

ROBOT = Path(__file__).with_name("robot_process.py")


def main() -> None:
    """Run leapp-run against the arm in MuJoCo and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="deployment folder of leapp-policy pack")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--robot-rate-hz", type=float, default=200.0, help="how often the robot sends sensors")
    parser.add_argument("--out", type=Path, default=Path("outputs/demo_robot"), help="stem of log, report and picture")
    args = parser.parse_args()
    print(f"Starting leapp-run on '{args.folder}' and the arm in MuJoCo for {args.seconds:g} s …", flush=True)
    command = [sys.executable, str(ROBOT)]
    try:
        trial = run_trial(args.folder, command, seconds=args.seconds, robot_rate_hz=args.robot_rate_hz, out=args.out)
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
    lines.append(f"  deadlines    {report['deadline_misses']} missed of {report['running_steps']} steps")
    lines.append(f"  processor    {trial.cpu_percent:.1f} % of a core, memory {trial.rss_mb:.0f} MB")
    progress = robot["progress"]
    lines.append(f"  robot        {robot['sent']} sensor packets out, {robot['received']} target packets in")
    if "reached" in progress:
        mean = 1e3 * progress["mean_distance"]
        lines.append(
            f"  tracking     {progress['reached']} of {progress['goals']} goals reached within 20 mm, "
            f"{mean:.1f} mm off on average"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
