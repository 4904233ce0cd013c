# SPDX-License-Identifier: Apache-2.0
"""A robot in MuJoCo as a process: ``python scripts/robot_process.py --robot arm --transport shm:arm --seconds 10``."""

import argparse
import json
import sys
from pathlib import Path

from leapp_policy.tasks.robots import ROBOTS  # pyright: ignore[reportMissingImports]

from leapp_policy.contract.robot import RobotProfile
from leapp_policy.errors import LeappPolicyError
from leapp_policy.onboard.faults import parse_fault
from leapp_policy.onboard.robot import RobotProcess


def main() -> None:
    """Run the robot and print what it saw, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", choices=ROBOTS, default="arm")
    parser.add_argument("--transport", required=True, help="shm:NAME or udp:PORT")
    parser.add_argument("--profile", type=Path, help="robot profile; the robot's own by default")
    parser.add_argument("--rate-hz", type=float, help="how often sensors are sent; the robot's own by default")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=100, help="of the first pose and of an arm's goals")
    parser.add_argument("--fault", action="append", default=[], help="KIND@START+DURATION, e.g. nan@2.0+0.1")
    parser.add_argument("--out", type=Path, help="file for the report; standard output by default")
    args = parser.parse_args()
    try:
        robot = ROBOTS[args.robot]
        profile = RobotProfile.load(args.profile or robot.profile_path)
        process = RobotProcess(
            profile,
            robot.make(profile, seed=args.seed),
            args.transport,
            target_floats=len(profile.joints),
            rate_hz=args.rate_hz or robot.rate_hz,
            faults=[parse_fault(each) for each in args.fault],
        )
        report = process.run(args.seconds)
    except LeappPolicyError as error:
        sys.exit(f"error: {error}")
    text = json.dumps(report.to_dict(), indent=1)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
