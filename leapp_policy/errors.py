# SPDX-License-Identifier: Apache-2.0
"""One tree of errors; each is also the builtin that callers of such an interface would catch.

A message is one sentence: the subject in quotes, what was expected, what was got, and the remedy.
"""


class LeappPolicyError(Exception):
    """Root of every error that this package raises on purpose."""


class AnnotationError(LeappPolicyError, ValueError):
    """An annotation was used in the wrong order, twice, or with the wrong kind of value."""


class TraceError(LeappPolicyError, RuntimeError):
    """The traced code did something that cannot be recorded."""


class FrozenValueError(TraceError):
    """A value that depends on traced data was about to be frozen into a Python constant."""


class SegmentMismatchError(TraceError):
    """The capture pass ran other Warp calls than the discovery pass."""


class HiddenStateError(TraceError):
    """The policy keeps a value from one step to the next that the graph does not carry."""


class CaptureError(LeappPolicyError, RuntimeError):
    """A Warp producer was asked for something that cannot be done while a graph is being captured."""


class NotCapturableError(CaptureError):
    """A Warp producer that works on the host was called where its work would be recorded."""


class LegacyPluginStreamError(CaptureError):
    """A Warp producer that launches on Warp's current stream was called for the capture of another one."""


class ExportError(LeappPolicyError, RuntimeError):
    """The recorded graph could not be turned into an artifact."""


class BackendError(ExportError, NotImplementedError):
    """The chosen backend cannot represent the graph."""


class BundleError(LeappPolicyError, ValueError):
    """A Warp bundle is damaged or does not fit the running machine."""


class ArtifactError(LeappPolicyError, ValueError):
    """An artifact folder is incomplete, damaged or does not belong together."""


class CheckpointError(LeappPolicyError, ValueError):
    """A trained policy's file is damaged, of another kind than stated, or holds what is not read."""


class RuntimeLibraryError(LeappPolicyError, OSError):
    """The native library is missing or cannot be loaded."""


class AssetError(LeappPolicyError, OSError):
    """A robot model or a policy that is downloaded on demand is missing, or is not the pinned one."""


class ContractError(LeappPolicyError, ValueError):
    """A signal is missing, unknown, or has another shape, dtype or range than the manifest."""


class ConfigError(LeappPolicyError, ValueError):
    """A configuration names something that does not exist or does not fit together."""


class ParityError(LeappPolicyError, AssertionError):
    """The exported policy does not act as the original did."""


class ContractWarning(UserWarning):
    """Something that a contract says is possible but seldom meant, e.g. a gain of zero."""
