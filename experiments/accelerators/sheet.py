# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time six programs on the first accelerator of this machine, in minutes.

  python -m experiments.accelerators.sheet

Input is random; a row takes the largest of its batches that fits. Beside the median
seconds of a run are those at the chip's peaks, as `compile` reports them. --dry_run
rehearses all of it at tiny sizes, on a CPU, too. Writes <workdir>/accelerator.json.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
import pathlib
import re
import statistics
import time
from typing import Any

from absl import flags, logging
import jax
import jax.numpy as jnp

from experiments.accelerators import chips, compile as compile_lib
from experiments.engine import command, configs, reports, rooms
from retrieval.kernels import backend

FILE = 'accelerator.json'
_CHUNK = 64  # tokens that decoding draws in one call
_ROUNDS = 5  # timed runs of a program
KEYS = ('batch', 'seconds', 'peak_sec', 'rate')  # columns of the table
# Arguments that hold words, and how many different ones (as in small vocabularies).
_WORDS = re.compile(r"'(tokens|targets|neighbors|\w+_tokens|mlm_targets)'")
_MOST_WORDS = 1000
_UNKNOWN = chips.Chip('', 1e30, 1e30, 1e30)
_ALONE = {'mesh.fsdp': 1, 'mesh.tensor': 1, 'optimizer.accumulate_steps': 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """A program of a config, at the largest of some batches that fits."""

  config: str  # module in configs/
  variant: str = 'base'  # argument of the config
  test: str = 'test'  # the same of a rehearsal
  program: str = 'train'
  field: str = 'batch_size'  # what a batch sets
  batches: tuple[int, ...] = (32, 16, 8, 4, 2, 1)
  fields: dict[str, Any] = dataclasses.field(default_factory=dict)
  unit: str = 'sequences'
  per_batch: float = 1  # units that a run makes for each of the batch
  # (arguments) -> arguments whose values decide how much is done
  choose: Callable[[tuple], tuple] = lambda x: x


# In the order of their worth for the time they take to compile.
ROWS = {
  'RETRO 425m, step': Row(config='retro_published', variant='425m'),
  'RETRO 425m baseline, step': Row(
    config='retro_published', variant='425m_baseline', test='baseline_test'
  ),
  'RETRO 425m, decoding of 32': Row(
    config='retro_published',
    variant='425m',
    program='decode',
    batches=(32,),
    unit='tokens',
    per_batch=_CHUNK,
    choose=lambda x: (*x[:-1], jnp.asarray([0, _CHUNK], jnp.int32)),
  ),
  'MiniLM, chunks of 128 wordpieces': Row(
    config='realm_pretrain_base',
    program='embed',
    field='vectors.batch_tokens',
    batches=(2**18, 2**16, 2**14),
    fields={
      'embedder.d_model': 384,
      'embedder.d_ff': 1536,
      'embedder.num_layers': 6,
      'blocks.max_length': 128,
    },
    unit='chunks',
    per_batch=1 / 128,
  ),
  '13,353,718 vectors searched, k = 5': Row(
    config='open_qa_released',
    program='search_alone',
    batches=(64,),
    fields={'lookup.retriever_beam': 5, 'vectors.dtype': 'bfloat16'},
    unit='questions',
    choose=lambda x: (x[0], x[1]._replace(count=jnp.int32(len(x[1].rows)))),
  ),
  'REALM, step': Row(
    config='realm_pretrain_base', batches=(16, 8, 4, 2, 1), unit='examples'
  ),
}


def random_input(compiled: jax.stages.Compiled, device: jax.Device) -> tuple:
  """Return small random floats, ones, and words as frequent as in text (1 / rank)."""

  def make(path, info):
    kind, shape = info.dtype, info.shape
    if jnp.issubdtype(kind, jax.dtypes.prng_key):
      return jnp.broadcast_to(jax.random.key(0), shape)
    if _WORDS.search(jax.tree_util.keystr(path)):
      share = jax.random.uniform(jax.random.key(1), shape)
      return jnp.exp(share * math.log(_MOST_WORDS)).astype(kind)
    if not jnp.issubdtype(kind, jnp.floating):
      return jnp.ones(shape, kind)
    return jax.random.uniform(jax.random.key(1), shape, kind, 0, 0.02)

  with jax.default_device(device):
    return jax.tree_util.tree_map_with_path(make, compiled.args_info[0])


def seconds_of(
  compiled: jax.stages.Compiled, row: Row, device: jax.Device
) -> float:
  """Return the median seconds of a run, each on new arguments."""
  taken, arguments = [], None
  for _ in range(_ROUNDS + 1):
    del arguments  # before the next ones take memory
    arguments = row.choose(random_input(compiled, device))
    jax.block_until_ready(arguments)
    start = time.perf_counter()
    jax.block_until_ready(compiled(*arguments))
    taken.append(time.perf_counter() - start)
  return statistics.median(taken[1:])  # the first warms up


def _measure(row: Row, batch: int, device: jax.Device) -> dict[str, Any]:
  """Compile a row at a batch, and time it."""
  options, sizes = flags.FLAGS, {}
  variant, fields = row.variant, row.fields
  if options.dry_run:
    variant, fields = row.test, {}
    sizes = {'num_blocks': 8192} if row.program == 'search_alone' else {}
  loaded = configs.load(f'{configs.FOLDER}/{row.config}.py:{variant}')
  config = configs.build(rooms.config_class(loaded.task), loaded)
  config = configs.replaced(config, **_ALONE, **fields, **{row.field: batch})
  # The compiler tunes what it compiles for a device that is there.
  known = chips.of_device(device)
  chip = dataclasses.replace(known or _UNKNOWN, options={})
  report, compiled = compile_lib.compiled_for(
    config, row.program, chip, [device], **sizes
  )
  loops = _CHUNK if row.program == 'decode' else 1  # which a report counts once
  seconds = seconds_of(compiled, row, device)
  return {
    'batch': batch,
    'seconds': round(seconds, 6),
    'peak_sec': round(loops * report['peak_sec'], 6) if known else None,
    'rate': f'{row.per_batch * batch / seconds:,.0f} {row.unit}/s',
    'compile_sec': report['compile_sec'],
    'needed_bytes': report['needed_bytes'],
  }


def measure(row: Row, device: jax.Device) -> dict[str, Any]:
  """Time a row at the largest batch that fits; one row must not cost the others."""
  for batch in row.batches[-1 if flags.FLAGS.dry_run else 0 :]:
    try:
      return _measure(row, batch, device)
    except Exception as error:
      text = ' '.join(f'{type(error).__name__}: {error}'.split())[:300]
      if not re.search('TooLargeError|RESOURCE_EXHAUSTED', text):
        break
  return {'rate': text}


def main(argv: Sequence[str]) -> None:
  """Measure, print and write."""
  del argv
  options, device = flags.FLAGS, backend.devices()[0]
  if device.platform == 'cpu' and not options.dry_run:
    raise ValueError('No accelerator: JAX computes on the CPU; use --dry_run.')
  rows, told = {}, {'device': device.device_kind, 'jax': jax.__version__}
  for name, row in ROWS.items():
    logging.info('%s.', name)
    rows[name] = measure(row, device)
    reports.write_json(pathlib.Path(options.workdir) / FILE, {**told, **rows})
  lines = [
    (name, *(str(x.get(key) or '-') for key in KEYS))
    for name, x in rows.items()
  ]
  reports.print_table(('program', *KEYS), lines, device.device_kind, wrap=True)


if __name__ == '__main__':
  command.define_output(
    'workdir', 'runs/accelerator', 'Folder of the report.', is_folder=True
  )
  flags.DEFINE_bool('dry_run', False, 'Tiny sizes: rehearse, measure nothing.')
  command.main_of_script(main)
