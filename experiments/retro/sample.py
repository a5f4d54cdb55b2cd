# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Continue a prompt, retrieving at every chunk boundary, and show with what.

  python -m experiments.retro.sample --prompt='The history of'
  python -m experiments.retro.sample --config=configs/<name>.py --workdir=DIR \
    --prompt='The history of' --num_samples=2 --seed=1 --stream

Without --workdir the RETRO that comes with the package writes; its first call prepares
the packaged articles.
--stream prints while it writes. --input_file=FILE continues many prompts, which
may bring their own neighbors (see retro_jax/views/prompts.py). --json=FILE writes the samples
too. --stop=TEXT, which may be repeated, ends a sample before that text.
Temperature, top-p, top-k, length, k and align_prompt are --config.sample.<field>.
A baseline's workdir samples without retrieval.
"""

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

from absl import flags, logging
import jax
import ml_collections

from experiments.engine import command, progress
from experiments.retro import sample_view, settings as settings_lib
from retrieval.store import store
from retro_jax.data import samples as samples_lib
from retro_jax.trained import language_model, loading, packaged, sampling
from retro_jax.views import prompts as prompts_lib, samples as views

CONFIG = (
  pathlib.Path(__file__).parents[2] / 'configs' / 'retro_pretrain_quickstart.py'
)
DEFAULT_PROMPT = 'The history of'


def run(
  config: ml_collections.ConfigDict,
  workdir: str | os.PathLike,
  *,
  prompt: str = DEFAULT_PROMPT,
  input_file: str = '',
  num_samples: int = 1,
  batch_size: int = sampling.BATCH_SIZE,
  seed: int | None = None,
  stop_strings: Sequence[str] = (),
  stream: bool = False,
  json_path: str = '',
) -> list[views.TextSample]:
  """Samples from the newest checkpoint and prints what came out.

  Args:
    config: `sample`, `embedder`, `data_dir` and `seed` are read from it.
    input_file: of prompts to be continued in its place; '' for none.
    seed: of the draws; None for the config's.
    stop_strings: a sample ends before the first of these.
    stream: prints while it writes, one sample after another.
    json_path: file that also gets the samples, batch by batch; '' for none.
  """
  prompts = [prompts_lib.TextPrompt(prompt)]
  if input_file:
    prompts = prompts_lib.read(input_file)
  if json_path:
    store.check_output(json_path)
  trained = _load(workdir, config.data_dir)
  settings_lib.take_models(trained.config, config)
  logging.info('Sampling from %s, step %d.', workdir, trained.step)
  settings = config.sample.to_dict() | {'stop_strings': tuple(stop_strings)}
  take = None
  if stream:
    names = [p.id for p in prompts for _ in range(num_samples)]
    take, batch_size = _printer(trained, names), 1
  keep, seed = None, config.seed if seed is None else seed
  if json_path and not jax.process_index():
    content = {'workdir': str(workdir), 'step': trained.step, 'seed': seed}
    content |= {'num_samples': num_samples, 'settings': settings}
    keep = functools.partial(_write, json_path, content, trained)
  with contextlib.ExitStack() as stack:
    update = None
    if take is None:
      update = stack.enter_context(progress.bar('sample', 'tokens'))
    samples = sampling.sample(
      trained,
      prompts,
      num_samples=num_samples,
      batch_size=batch_size,
      seed=seed,
      take=take,
      keep=keep,
      progress=update,
      **settings,
    )
  if jax.process_index():
    return samples
  metric = _metric(trained, samples)
  if input_file and not stream:
    sample_view.show_table(progress.console(), samples)
  elif not stream:
    sample_view.show(progress.console(), samples, metric)
  if json_path:
    logging.info('The samples are in %s.', json_path)
  return samples


def _load(workdir: str | os.PathLike, data_dir: str) -> loading.TrainedRetro:
  """Load a run, or the packaged model."""
  if workdir == packaged.NAME:
    workdir = packaged.take()
  return language_model.load(workdir, data_dir)


def _metric(trained, samples: Sequence[views.TextSample]) -> str:
  """Metric of the scores; '' where nothing was retrieved."""
  found = [i for sample in samples for c in sample.chunks for i in c.ids]
  retrieved = max(found, default=-1) >= 0
  return trained.data.metric if retrieved else ''


def _printer(trained, names) -> Callable[[samples_lib.Event], None]:
  """Print samples as they are written, in the first process alone."""
  if jax.process_index():
    return lambda event: None
  return sample_view.Stream(
    progress.console(),
    trained.data.tokenizer,
    lambda: trained.data.metric,
    names,
  ).take


def _write(
  path: str,
  content: dict[str, Any],
  trained: loading.TrainedRetro,
  samples: Sequence[views.TextSample],
) -> None:
  target = pathlib.Path(path)
  target.parent.mkdir(parents=True, exist_ok=True)
  content = content | {'metric': _metric(trained, samples) or None}
  rows = [dataclasses.asdict(sample) for sample in samples]
  data = json.dumps(content | {'samples': rows}, indent=2, ensure_ascii=False)
  store.write_atomically(target, data.encode() + b'\n')


def _define_flags() -> None:
  flags.DEFINE_string('prompt', DEFAULT_PROMPT, 'Text to continue.')
  flags.DEFINE_string('input_file', '', '.txt or .jsonl of prompts.')
  flags.DEFINE_integer('num_samples', 1, 'Continuations.', lower_bound=1)
  flags.DEFINE_integer(
    'batch_size',
    sampling.BATCH_SIZE,
    'Samples drawn side by side.',
    lower_bound=1,
  )
  flags.DEFINE_integer(
    'seed',
    None,
    "Of the draws; default: the config's.",
    lower_bound=0,
    upper_bound=2**32 - 1,
  )
  flags.DEFINE_multi_string('stop', [], 'Text before which a sample ends.')
  flags.DEFINE_bool('stream', False, 'Print while it writes.')
  flags.DEFINE_string('json', '', 'File that also gets the samples.')


def _run_with_flags(config: ml_collections.ConfigDict, workdir: str) -> None:
  values = flags.FLAGS
  if values.input_file and values['prompt'].present:
    raise ValueError('--prompt and --input_file: expected one of them.')
  run(
    config,
    workdir,
    prompt=values.prompt,
    input_file=values.input_file,
    num_samples=values.num_samples,
    batch_size=values.batch_size,
    seed=values.seed,
    stop_strings=values.stop,
    stream=values.stream,
    json_path=values.json,
  )


if __name__ == '__main__':
  command.main(
    _run_with_flags,
    settings_lib.Settings,
    _define_flags,
    default_config=str(CONFIG),
    default_workdir=packaged.NAME,
  )
