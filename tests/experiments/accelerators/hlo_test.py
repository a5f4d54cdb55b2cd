# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Traffic and exchanges of compiled programs."""

import jax
import jax.numpy as jnp
import pytest

from experiments.accelerators import hlo

_MESH = {'data': 2, 'fsdp': 4, 'tensor': 1}
_REDUCE = """HloModule m

ENTRY %main (p: f32[16]) -> f32[16] {
  %p = f32[16]{0} parameter(0)
  ROOT %r = f32[16]{0} all-reduce(%p), replica_groups=GROUPS, to_apply=%add
}
"""


@pytest.mark.parametrize(
  ('groups', 'axes', 'size'),
  [
    ('{{0,1,2,3},{4,5,6,7}}', ('fsdp',), 4),
    ('[4,2]<=[2,4]T(1,0)', ('data',), 2),
    ('[1,8]<=[8]', ('data', 'fsdp'), 8),
    ("mesh['a'=2,'b'=4] {'b'}", ('fsdp',), 4),
    ("mesh['a'=2,'b'=4] {'a'}", ('data',), 2),
    ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", ('data',), 2),
    ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}", ('fsdp',), 4),
  ],
)
def test_groups_are_axes_of_the_mesh(groups, axes, size):
  [found] = hlo.Program(_REDUCE.replace('GROUPS', groups)).collectives(_MESH)
  assert (found.kind, found.axes, found.size) == ('all-reduce', axes, size)
  assert (found.count, found.num_bytes) == (1, 64)
  assert found.seconds(10.0) == pytest.approx(2 * (size - 1) / size * 6.4)


_FUSED = """HloModule m

%start (p: f32[16]) -> f32[64] {
  %p = f32[16]{0} parameter(0)
  ROOT %g = f32[64]{0} all-gather(%p), channel_id=7, replica_groups={{0,1,2,3},{4,5,6,7}}
}

%done (p: f32[16]) -> f32[64] {
  %p = f32[16]{0} parameter(0)
  ROOT %g = f32[64]{0} all-gather(%p), channel_id=7, replica_groups={{0,1,2,3},{4,5,6,7}}
}

%all-reduce-scatter.1 (p: f32[64]) -> f32[16] {
  %p = f32[64]{0} parameter(0)
  %i = s32[] constant(0)
  %r = f32[64]{0} all-reduce(%p), channel_id=8, replica_groups={{0,1,2,3},{4,5,6,7}}
  ROOT %s = f32[16]{0} dynamic-slice(%r, %i)
}

ENTRY %main (p: f32[16]) -> f32[16] {
  %p = f32[16]{0} parameter(0)
  %a = f32[64]{0} fusion(%p), kind=kCustom, calls=%start
  %b = f32[64]{0} fusion(%p), kind=kCustom, calls=%done
  ROOT %c = f32[16]{0} fusion(%b), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_exchanges_in_fused_kernels_count_once():
  found = hlo.Program(_FUSED).collectives(_MESH)
  got = {(x.kind, x.axes, x.size, x.count, x.num_bytes) for x in found}
  assert got == {
    ('all-gather', ('fsdp',), 4, 1, 256),
    ('reduce-scatter', ('fsdp',), 4, 1, 256),
  }


def _program(function, *args):
  return hlo.Program(jax.jit(function).lower(*args).compile().as_text())


def test_a_loop_counts_as_often_as_it_runs():
  x = jnp.zeros((64, 64))

  def loop(x, length):
    return jax.lax.scan(lambda c, _: (jnp.sin(c @ c), None), x, length=length)[
      0
    ]

  short, long = (
    _program(lambda x, n=n: loop(x, n), x).traffic() for n in (10, 110)
  )
  # A product reads two matrices and writes one, the sine reads and writes one.
  assert long - short == pytest.approx(100 * 5 * x.nbytes, rel=0.25)


def test_of_what_is_sliced_only_the_slice_moves():
  x = jnp.zeros((1000, 128))
  program = _program(
    lambda x, i: jnp.sin(jax.lax.dynamic_slice(x, (i, 0), (2, 128))), x, 3
  )
  assert program.traffic() < 10 * 2 * 128 * 4
