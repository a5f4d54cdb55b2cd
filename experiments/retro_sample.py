# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Continues a prompt, retrieving at every chunk boundary, and shows with what.

  python -m experiments.retro_sample --config=configs/<name>.py --workdir=DIR \
    --prompt='The history of' --num_samples=2 --seed=1

--json=FILE writes the samples too. Temperature, top-p, top-k, length and k are
--config.sample.<field>. A twin's workdir samples without retrieval.
"""

from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from absl import flags
from absl import logging
import jax
import ml_collections
import rich.console
import rich.padding
import rich.rule
import rich.table
import rich.text

from experiments import command
from experiments import progress
from experiments import retro_task
from retrieval import store
from retro_jax import decode

DEFAULT_PROMPT = 'The history of'
_SHOWN_CHARACTERS = 240


@dataclasses.dataclass(frozen=True)
class TextChunk:
  """A chunk of a sample and what it retrieved, best first.

  Attributes:
    prompt: its text that is prompt.
    written: its text that was drawn.
    ids: datastore chunks; empty for the incomplete last one and for a twin.
    scores: larger is better; squared distances are negative.
    titles: of the neighbors' documents.
    neighbors: the neighbors' text, with continuation.
  """

  prompt: str
  written: str
  ids: list[int]
  scores: list[float]
  titles: list[str]
  neighbors: list[str]

  @property
  def text(self) -> str:
    """All of its text."""
    return self.prompt + self.written


@dataclasses.dataclass(frozen=True)
class TextSample:
  """A prompt and its continuation as text.

  Attributes:
    text: both.
    prompt: the prompt alone.
    chunks: the same, chunk by chunk.
  """

  text: str
  prompt: str
  chunks: list[TextChunk]


def _to_text(sample: decode.Sample, tokenizer) -> TextSample:
  chunks = []
  for u, tokens in enumerate(sample.chunks()):
    first_new = max(0, sample.prompt_length - u * sample.chunk_length)
    found = sample.neighbors[u] if u < len(sample.neighbors) else None
    kept = (
      [] if found is None else [i for i, x in enumerate(found.ids) if x >= 0]
    )
    chunks.append(
      TextChunk(
        prompt=tokenizer.decode(tokens[:first_new]),
        written=tokenizer.decode(tokens[first_new:]),
        ids=[int(found.ids[i]) for i in kept],
        scores=[float(found.scores[i]) for i in kept],
        titles=[found.titles[i] for i in kept],
        neighbors=[
          tokenizer.decode(found.tokens[i][found.mask[i]]) for i in kept
        ],
      )
    )
  prompt = tokenizer.decode(sample.tokens[: sample.prompt_length])
  return TextSample(tokenizer.decode(sample.tokens), prompt, chunks)


def sample_texts(
  trained: retro_task.Trained,
  prompt: str = DEFAULT_PROMPT,
  *,
  num_samples: int = 1,
  seed: int = 0,
  retrieval: bool = True,
  **settings,
) -> list[TextSample]:
  """Continues a prompt.

  Args:
    trained: a RETRO or a twin, with the data it retrieves from.
    prompt: '' begins a document.
    num_samples: continuations.
    seed: of the draws.
    retrieval: False is RETRO[OFF].
    **settings: fields of `decode.SamplingConfig`; by default the model's config
      has them under `sample`.

  Returns:
    The samples.

  Raises:
    ValueError: for settings out of range, or data that do not fit the model.
  """
  if num_samples < 1:
    raise ValueError(f'num_samples {num_samples}: expected 1 or more.')
  config, data = trained.config, trained.data
  tokenizer = data.tokenizer
  data.tokens.check_tokenizer(tokenizer)
  fields = {
    'context_chunks': max(2, config.sequence_chunks),
    'stop_ids': (tokenizer.eos_id,),
    'banned_ids': (tokenizer.pad_id, tokenizer.bos_id),
    **config.sample.to_dict(),
    **settings,
  }
  sampling = decode.SamplingConfig(**fields)
  retrieve = None
  if retrieval and sampling.num_neighbors and trained.model.config.cca_layers:
    retrieve = data.retriever(config).retrieve_tokens
  tokens = [tokenizer.bos_id, *tokenizer.encode(prompt).ids.tolist()]
  with progress.bar('sample', 'tokens') as update:
    samples = decode.sample(
      trained.model,
      trained.params,
      [tokens] * num_samples,
      sampling,
      retrieve=retrieve,
      seed=seed,
      progress=update,
    )
  return [_to_text(sample, tokenizer) for sample in samples]


def _shorten(text: str) -> str:
  line = ' '.join(text.split())
  if len(line) <= _SHOWN_CHARACTERS:
    return line
  return line[: _SHOWN_CHARACTERS - 4] + ' ...'


def show(
  console: rich.console.Console, samples: Sequence[TextSample], metric: str
) -> None:
  """Prints samples: each chunk, then what it retrieved for what follows it."""
  squared = metric == 'squared_l2'
  for i, sample in enumerate(samples, start=1):
    console.print(rich.rule.Rule(f'sample {i} of {len(samples)}'))
    for chunk in sample.chunks:
      text = rich.text.Text(chunk.prompt, style='bold')
      text.append(chunk.written, style='not bold')
      console.print(text)
      if chunk.ids:
        table = rich.table.Table(box=None, padding=(0, 1), header_style='dim')
        table.add_column('distance' if squared else 'score', justify='right')
        table.add_column('from', style='cyan')
        table.add_column('retrieved', style='dim')
        for score, title, neighbor in zip(
          chunk.scores, chunk.titles, chunk.neighbors, strict=True
        ):
          table.add_row(
            f'{-score if squared else score:.3f}',
            rich.text.Text(title),
            rich.text.Text(_shorten(neighbor)),
          )
        console.print(rich.padding.Padding(table, (0, 0, 1, 4)))


def run(
  config: ml_collections.ConfigDict,
  workdir: str | os.PathLike,
  *,
  prompt: str = DEFAULT_PROMPT,
  num_samples: int = 1,
  seed: int | None = None,
  json_path: str = '',
) -> list[TextSample]:
  """Samples from the newest checkpoint and prints what came out.

  Args:
    config: `sample`, `embedder`, `data_dir` and `seed` are read from it.
    workdir: of the training run.
    prompt: to be continued.
    num_samples: continuations.
    seed: of the draws; None for the config's.
    json_path: file that also gets the samples; '' for none.

  Returns:
    The samples.
  """
  trained = retro_task.load(workdir, config.data_dir)
  trained.config.embedder = config.embedder
  logging.info('Sampling from %s, step %d.', workdir, trained.step)
  samples = sample_texts(
    trained,
    prompt,
    num_samples=num_samples,
    seed=config.seed if seed is None else seed,
    **config.sample.to_dict(),
  )
  retrieved = any(chunk.ids for sample in samples for chunk in sample.chunks)
  metric = trained.data.index.searcher.metric if retrieved else ''
  if jax.process_index():
    return samples
  show(progress.console(), samples, metric)
  if json_path:
    path = pathlib.Path(json_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
      'step': trained.step,
      'settings': config.sample.to_dict(),
      'metric': metric or None,
      'samples': [dataclasses.asdict(sample) for sample in samples],
    }
    data = json.dumps(content, indent=2, ensure_ascii=False) + '\n'
    store.write_atomically(path, data.encode())
    logging.info('The samples are in %s.', path)
  return samples


def _define_flags() -> None:
  flags.DEFINE_string('prompt', DEFAULT_PROMPT, 'Text to continue.')
  flags.DEFINE_integer('num_samples', 1, 'Continuations.', lower_bound=1)
  flags.DEFINE_integer('seed', None, "Of the draws; default: the config's.")
  flags.DEFINE_string('json', '', 'File that also gets the samples.')


def _run_with_flags(config: ml_collections.ConfigDict, workdir: str) -> None:
  values = flags.FLAGS
  run(
    config,
    workdir,
    prompt=values.prompt,
    num_samples=values.num_samples,
    seed=values.seed,
    json_path=values.json,
  )


if __name__ == '__main__':
  command.main(_run_with_flags, _define_flags, computes=True)
