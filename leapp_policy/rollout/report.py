# SPDX-License-Identifier: Apache-2.0
"""Write."""

import json
from pathlib import Path


def write_json(result, path):
    Path(path).write_text(json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n")
