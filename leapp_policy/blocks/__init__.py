# SPDX-License-Identifier: Apache-2.0
"""Blocks around a network: how observations are made, and what becomes of actions; each in torch and in Warp.

==================== ========================================================================
Module               What
==================== ========================================================================
``quat_order``       order of a quaternion's elements
``quaternions``      rotate, rotate inversely, projected gravity, change of order
``gather``           reorder by names
``affine``           scale, offset, clip
``normalizer``       frozen statistics, the twin of ``policies.normalizer``
``history``          the last frames, laid out frame-major or term-major
``delay``            whole steps of delay
``last_action``      the last action
``clock``            phase clock that takes the time of a step
``filters``          low-pass and rate limiter of targets
``pd``               torques about position targets
``terms``            named terms in order, and their description
``observation``      terms composed into one vector
==================== ========================================================================

Every block is made of ``block``, and one with state of ``state``: ``begin(node)``, one change, ``reset(rows)``. What
these take (where a block runs, how its rows begin anew) is said there once; a block adds what is its own.
"""
