# SPDX-License-Identifier: Apache-2.0
"""The arm in MuJoCo as a robot process: ``python scripts/robot_process.py --transport shm:arm --seconds 10``."""

import argparse
import json
import sys
from pathlib import Path

from leapp_policy.tasks.arm_reach.robot import PROFILE_PATH, ArmRobot  # pyright: ignore[reportMissingImports]

from leapp_policy.contract.robot import RobotProfile
from leapp_policy.errors import LeappPolicyError
from leapp_policy.onboard.faults import parse_fault
from leapp_policy.onboard.robot import RobotProcess


def main() -> None:
    """Run the robot and print what it saw, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", required=True, help="shm:NAME or udp:PORT")
    parser.add_argument("--profile", type=Path, default=PROFILE_PATH, help="robot profile")
    parser.add_argument("--rate-hz", type=float, default=500.0, help="how often sensors are sent")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=100, help="of the first pose and of the goals")
    parser.add_argument("--fault", action="append", default=[], help="KIND@START+DURATION, e.g. nan@2.0+0.1")
    parser.add_argument("--out", type=Path, help="file for the report; standard output by default")
    args = parser.parse_args()
    try:
        robot = ArmRobot(RobotProfile.load(args.profile), seed=args.seed)
        process = RobotProcess(
            robot.profile,
            robot,
            args.transport,
            target_floats=len(robot.driven),
            rate_hz=args.rate_hz,
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
