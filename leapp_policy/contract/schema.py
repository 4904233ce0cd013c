# SPDX-License-Identifier: Apache-2.0
"""What a deployed policy promises and asks for: the types of a contract.

Imports neither torch nor Warp: the robot reads it, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leapp_policy.contract.plain import Numbers, Pair, Plain, Range, element_count, refuse_twice
from leapp_policy.contract.terms import InputSpec, Term
from leapp_policy.errors import ContractError

VERSION = 1


@dataclass(frozen=True)
class Joint(Plain):
    """A joint that the policy knows, in the policy's order.

    Attributes:
        name: Its name.
        position_limits: Lower and upper limit [rad or m].
        velocity_limit: Largest speed [rad/s or m/s].
        effort_limit: Largest torque or force [N m or N].
        default_pos: Position that actions and observations are relative to [rad or m].
        kp: Proportional gain of the position loop [N m/rad or N/m].
        kd: Derivative gain [N m s/rad or N s/m].
    """

    name: str
    position_limits: Pair | None = None
    velocity_limit: float | None = None
    effort_limit: float | None = None
    default_pos: float | None = None
    kp: float | None = None
    kd: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name or "," in self.name:
            raise self.refuse("must have a name without a comma: consumers split lists of joints there")


@dataclass(frozen=True)
class Command(Plain):
    """What somebody asks of the policy.

    Attributes:
        name: Its name, e.g. ``base_velocity``.
        ranges: Lower and upper bound of each element by name; None where it has none.
        units: Unit of elements by name.
        term: The input or term that takes it.
    """

    name: str
    ranges: Mapping[str, Pair | None] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    term: str | None = None


@dataclass(frozen=True)
class ActionSpec(Plain):
    """What an output does: ``processed = clip(clip_raw(raw) * scale + offset)``.

    Attributes:
        name: Its name, e.g. ``joint_pos``.
        kind: Role of the processed output in LEAPP's words, e.g. ``target/joint/position``.
        unit: Unit of the processed output.
        joints: Joint of each element, in order.
        raw: Model output of the network's own values.
        processed: Model output of what goes to the robot.
        scale: Factor; None where a file did not say.
        offset: What is added; None where a file did not say.
        clip_raw: Bounds of the raw values.
        clip: Bounds of the processed values.
    """

    name: str
    kind: str | None = None
    unit: str | None = None
    joints: tuple[str, ...] = ()
    raw: str | None = None
    processed: str | None = None
    scale: Numbers | None = None
    offset: Numbers | None = None
    clip_raw: Range | None = None
    clip: Range | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("scale", "offset", "clip_raw", "clip"):
            count = element_count(getattr(self, key))
            if count is not None and self.joints and count != len(self.joints):
                raise self.refuse(f"drives {len(self.joints)} joints but has {count} values in {key}; give one each")


@dataclass(frozen=True)
class StateSpec(Plain):
    """A value that the runner keeps from one step to the next.

    Attributes:
        name: Its name.
        input: ``node/input`` that takes it.
        output: ``node/output`` that gives its next value.
        shape: Its shape.
        reset: How it begins, e.g. ``initial_values`` (the file of the artifact), or in words.
    """

    name: str
    input: str = ""
    output: str = ""
    shape: tuple[int, ...] = ()
    reset: str = "initial_values"


@dataclass(frozen=True)
class StartEnvelope(Plain):
    """Where the policy may be started.

    Attributes:
        ranges: Bounds of inputs or terms by name, for all elements or for each.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)


@dataclass(frozen=True)
class Target(Plain):
    """The machine that the models are built for; the export knows it.

    Attributes:
        device: ``cpu`` or ``cuda``.
        backend: Format of the models.
        warp_version: Warp that made the captures; empty without segments.
        wrp_format: Format number of the archives.
        onnxruntime: Oldest ONNX Runtime that reads the models.
        opset: Opset of the standard operators.
        ir_version: IR version of the ONNX files.
        isa: Triple and instruction set level of CPU code, e.g. ``x86_64-unknown-linux-gnu x86-64-v3``.
        cpu_features: CPU features that it needs.
        gpu_archs: Compute capabilities times ten with machine code.
        gpu_floor: Oldest compute capability times ten that runs it.
    """

    device: str | None = None
    backend: str | None = None
    warp_version: str | None = None
    wrp_format: int | None = None
    onnxruntime: str | None = None
    opset: int | None = None
    ir_version: int | None = None
    isa: str | None = None
    cpu_features: tuple[str, ...] = ()
    gpu_archs: tuple[int, ...] = ()
    gpu_floor: int | None = None


@dataclass(frozen=True)
class Results(Plain):
    """What was measured after the export; not part of the models' copy.

    Attributes:
        parity: Verdict and errors of the last parity run.
        latency: Figures of the last timing run [us].
    """

    parity: Mapping[str, Any] = field(default_factory=dict)
    latency: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contract(Plain):
    """All that a robot must know to run a policy, and nothing that it must guess.

    Attributes:
        name: Name of the policy.
        version: Version of this format.
        rate_hz: Control rate that the policy was trained at [Hz]; 0 where unknown.
        dt: Control period [s]; follows from the rate, and the other way round.
        inputs: The inputs with their terms, in the order of the models.
        observations: Terms of the observation vector that the graph makes from the inputs, in order.
        joints: The joints in the policy's order.
        commands: What may be asked of it.
        actions: What its outputs do.
        states: What the runner keeps between steps.
        start: Where it may be started.
        target: The machine that it is built for.
        results: What was measured.
        profiles: Consumers whose keys the export must have.
        extras: Further keys of those consumers, e.g. ``anchor_body_name``.
        source: File that it was read from, for people.
    """

    name: str = ""
    version: int = VERSION
    rate_hz: float = 0.0
    dt: float = 0.0
    inputs: tuple[InputSpec, ...] = ()
    observations: tuple[Term, ...] = ()
    joints: tuple[Joint, ...] = ()
    commands: tuple[Command, ...] = ()
    actions: tuple[ActionSpec, ...] = ()
    states: tuple[StateSpec, ...] = ()
    start: StartEnvelope = StartEnvelope()
    target: Target = Target()
    results: Results = Results()
    profiles: tuple[str, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version != VERSION:
            raise ContractError(f"Contract must have version {VERSION}, got {self.version}; export the policy again")
        self._set_rate()
        for what in ("inputs", "observations", "joints", "commands", "actions", "states"):
            refuse_twice(self, what.removesuffix("s"), [each.name for each in getattr(self, what)])
        known = {each.name for each in self.joints}
        for action in self.actions:
            unknown = [each for each in action.joints if each not in known]
            if known and unknown:
                raise action.refuse(f"drives joints {unknown}, which are not among the joints {sorted(known)}")

    def _set_rate(self) -> None:
        if self.rate_hz < 0.0 or self.dt < 0.0:
            raise ContractError(f"Contract rate_hz and dt must be positive, got {self.rate_hz} Hz and {self.dt} s")
        if self.rate_hz and self.dt and not math.isclose(self.rate_hz * self.dt, 1.0, rel_tol=1e-6):
            raise ContractError(
                f"Contract rate_hz {self.rate_hz} and dt {self.dt} must belong together; give one of them"
            )
        if self.dt and not self.rate_hz:
            object.__setattr__(self, "rate_hz", 1.0 / self.dt)
        elif self.rate_hz and not self.dt:
            object.__setattr__(self, "dt", 1.0 / self.rate_hz)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON or YAML, without fields that have their default but the version."""
        return {"version": self.version, **super().to_dict()}
