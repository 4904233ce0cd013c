# SPDX-License-Identifier: Apache-2.0
"""What keeps the system from delaying a loop: locked memory, a processor of its own, a real-time priority."""

from __future__ import annotations

import ctypes
import os
import resource
from dataclasses import dataclass

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


@dataclass(frozen=True)
class RealtimeOptions:
    """What is asked for.

    Attributes:
        lock_memory: Whether no page may be swapped out.
        cpu: Processor for the calling thread; None for any.
        fifo: SCHED_FIFO priority of the calling thread, 1 to 99; None for the normal one.
    """

    lock_memory: bool = True
    cpu: int | None = None
    fifo: int | None = None


@dataclass(frozen=True)
class RealtimeResult:
    """What the calling thread got. A robot without the rights still runs, and says what it lacks.

    Attributes:
        memory_locked: Whether memory is locked.
        pinned: Whether the thread has its processor.
        fifo: Whether it has the priority.
        notes: One sentence for each thing that was refused.
    """

    memory_locked: bool
    pinned: bool
    fifo: bool
    notes: tuple[str, ...]


def set_up_realtime(options: RealtimeOptions) -> RealtimeResult:
    """Set up the calling thread. Threads that it starts later inherit processor and priority.

    Args:
        options: What is asked for.
    """
    notes: list[str] = []
    locked = options.lock_memory and _lock_memory(notes)
    pinned = options.cpu is not None and _pin(options.cpu, notes)
    fifo = options.fifo is not None and _set_priority(options.fifo, notes)
    return RealtimeResult(locked, pinned, fifo, tuple(notes))


def _lock_memory(notes: list[str]) -> bool:
    flags = _MCL_CURRENT | _MCL_ONFAULT
    # Under a small limit MCL_FUTURE succeeds and lets later allocations fail.
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        flags |= _MCL_FUTURE
    if ctypes.CDLL(None, use_errno=True).mlockall(flags) == 0:
        return True
    notes.append(
        f"Memory is not locked ({os.strerror(ctypes.get_errno())}): a page that was swapped out can delay a step; "
        "raise 'ulimit -l' or grant CAP_IPC_LOCK."
    )
    return False


def _pin(cpu: int, notes: list[str]) -> bool:
    try:
        os.sched_setaffinity(0, {cpu})
    except (OSError, ValueError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        notes.append(f"The loop is not pinned to CPU {cpu} ({reason}); name one that this process may use.")
        return False
    return True


def _set_priority(priority: int, notes: list[str]) -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        notes.append(
            f"The loop has no real-time priority {priority} ({error.strerror}): other processes can delay it; raise "
            "'ulimit -r' or grant CAP_SYS_NICE."
        )
        return False
    return True
