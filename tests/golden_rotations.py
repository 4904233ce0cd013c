# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of frame changes: data that no code of this project made.

Made with MuJoCo's ``mju_rotVecQuat`` and ``mju_negQuat`` in double precision, and checked against rotation matrices in
NumPy; written with nine decimals.
"""

from __future__ import annotations

from typing import NamedTuple


class Golden(NamedTuple):
    """One rotation.

    Attributes:
        name: The rotation.
        quat_wxyz: Unit quaternion, body to world.
        vector: A vector.
        rotated: The vector rotated, body to world.
        rotated_inverse: The vector rotated inversely, world to body.
        gravity: ``(0, 0, -1)`` seen from the body.
    """

    name: str
    quat_wxyz: tuple[float, float, float, float]
    vector: tuple[float, float, float]
    rotated: tuple[float, float, float]
    rotated_inverse: tuple[float, float, float]
    gravity: tuple[float, float, float]


GOLDEN = (
    Golden("identity", (1.0, 0.0, 0.0, 0.0), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0), (0.0, 0.0, -1.0)),
    Golden(
        "90 deg about +x",
        (0.707106781, 0.707106781, 0.0, 0.0),
        (0.3, -0.2, 9.81),
        (0.3, -9.81, -0.2),
        (0.3, 9.81, 0.2),
        (0.0, -1.0, 0.0),
    ),
    Golden(
        "90 deg about +y",
        (0.707106781, 0.0, 0.707106781, 0.0),
        (-1.5, 0.25, 0.125),
        (0.125, 0.25, 1.5),
        (-0.125, 0.25, -1.5),
        (1.0, 0.0, 0.0),
    ),
    Golden(
        "90 deg about +z",
        (0.707106781, 0.0, 0.0, 0.707106781),
        (1.0, 2.0, 3.0),
        (-2.0, 1.0, 3.0),
        (2.0, -1.0, 3.0),
        (0.0, 0.0, -1.0),
    ),
    Golden(
        "180 deg about +z",
        (0.0, 0.0, 0.0, 1.0),
        (0.3, -0.2, 9.81),
        (-0.3, 0.2, 9.81),
        (-0.3, 0.2, 9.81),
        (0.0, 0.0, -1.0),
    ),
    Golden(
        "0.7 rad about +x",
        (0.939372713, 0.342897807, 0.0, 0.0),
        (-1.5, 0.25, 0.125),
        (-1.5, 0.110683336, 0.256659695),
        (-1.5, 0.271737758, -0.065449148),
        (0.0, -0.644217687, -0.764842187),
    ),
    Golden(
        "45 deg about +y",
        (0.923879533, 0.0, 0.382683432, 0.0),
        (1.0, 2.0, 3.0),
        (2.828427125, 2.0, 1.414213562),
        (-1.414213562, 2.0, 2.828427125),
        (0.707106781, 0.0, -0.707106781),
    ),
    Golden(
        "1.1 rad about (1, 2, -3)",
        (0.852524522, 0.139694038, 0.279388076, -0.419082114),
        (0.3, -0.2, 9.81),
        (3.513839176, -4.946726355, 7.716795488),
        (-5.546725294, 0.155200326, 8.097891786),
        (0.593456917, -0.004012095, -0.804855758),
    ),
    Golden(
        "-2.3 rad about (-1, 0.5, 0.2)",
        (0.408487441, 0.803643838, -0.401821919, -0.160728768),
        (-1.5, 0.25, 0.125),
        (-1.140076211, 1.013970081, 0.014693739),
        (-1.123662291, 0.784175191, 0.671250569),
        (-0.069941047, -0.785725514, 0.614608548),
    ),
    Golden(
        "3.0 rad about (0.3, -1, 2)",
        (0.070737202, 0.132639564, -0.44213188, 0.884263759),
        (1.0, 2.0, 3.0),
        (-0.923504958, -3.592312765, 0.492369361),
        (-0.047800145, -3.729923522, 0.292208261),
        (-0.297127063, 0.763157292, -0.573852294),
    ),
)
