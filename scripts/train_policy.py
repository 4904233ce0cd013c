# SPDX-License-Identifier: Apache-2.0
"""Train the arm-reach policy: ``python scripts/train_policy.py [seed=… num_rounds=… out_dir=…]``."""

import sys

import hydra
from omegaconf import DictConfig

from leapp_policy.config import to_config
from leapp_policy.errors import LeappPolicyError

try:
    from leapp_policy.tasks.arm_reach.train import TrainCfg, train  # pyright: ignore[reportMissingImports]
except ImportError as e:
    sys.exit(f"Training needs '{e.name}', which is not installed; install leapp-policy[train].")


@hydra.main(version_base="1.3", config_path="pkg://leapp_policy.conf", config_name="train")
def main(raw: DictConfig) -> None:
    """Train and report."""
    try:
        train(to_config(raw, TrainCfg))
    except LeappPolicyError as e:
        sys.exit(str(e))
    except KeyboardInterrupt:
        sys.exit("Stopped; the same command continues after the last finished round.")


if __name__ == "__main__":
    main()
