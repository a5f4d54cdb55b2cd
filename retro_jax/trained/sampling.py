# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Samples from a trained model, as text."""

from collections.abc import Callable, Sequence
import functools
from typing import Any

from retro_jax.data import samples as samples_lib
from retro_jax.decoding import decode, drawing
from retro_jax.trained import loading
from retro_jax.views import prompts as prompts_lib, samples as views

BATCH_SIZE = 16
# In place of SamplingConfig's defaults.
DEFAULTS = {'temperature': 0.8, 'top_p': 0.95}


def sample(
  trained: loading.TrainedRetro,
  prompts: str | Sequence[str | prompts_lib.TextPrompt],
  *,
  num_samples: int = 1,
  batch_size: int = BATCH_SIZE,
  seed: int = 0,
  retrieval: bool = True,
  take: Callable[[samples_lib.Event], None] | None = None,
  keep: Callable[[Sequence[views.TextSample]], None] | None = None,
  progress: Callable[[int, int], None] | None = None,
  **settings: Any,
) -> views.Listing:
  """Continue prompts.

  Args:
    trained: a RETRO or a baseline, with the data it retrieves from.
    prompts: a text or any number of them; '' begins a document.
    batch_size: samples drawn side by side; no draw depends on it.
    retrieval: False is RETRO[OFF], but for prompts with their own neighbors.
    take: called with every event.
    keep: called after every batch with all samples drawn so far.
    progress: called with (tokens drawn, at most so many).
    **settings: fields of `drawing.SamplingConfig`; see `DEFAULTS`.

  Returns:
    The samples of the first prompt, then those of the next.
  """
  for name, value in (('num_samples', num_samples), ('batch_size', batch_size)):
    if value < 1:
      raise ValueError(f'{name} {value}: expected 1 or more.')
  prompts = prompts_lib.as_prompts(prompts)
  sampling = _sampling_config(trained, settings)
  tokenizer, model_cfg = trained.data.tokenizer, trained.model.config
  for prompt in prompts:
    if prompt.neighbors and not model_cfg.cca_layers:
      raise ValueError(
        f'Prompt {prompt.id} brings neighbors, but the model is a baseline: it '
        'reads none.'
      )
  by_prompt = [p.tokens(tokenizer, model_cfg.neighbor_length) for p in prompts]
  names = [p.id for p in prompts for _ in range(num_samples)]
  rows = [row for row in by_prompt for _ in range(num_samples)]
  retrieve = _retrieve_fn(trained, sampling, rows) if retrieval else None
  done = views.Listing()
  for start in range(0, len(rows), batch_size):
    numbers = range(start, min(start + batch_size, len(rows)))
    events = decode.stream(
      trained.model,
      trained.params,
      [rows[i] for i in numbers],
      sampling,
      retrieve=retrieve,
      detokenize=tokenizer.decode,
      seed=seed,
      row_numbers=numbers,
      progress=progress
      and functools.partial(_report, progress, numbers, len(rows)),
    )
    for event in events:
      if take is not None:
        take(event)
      if isinstance(event, samples_lib.Finished):
        name = names[len(done)]
        done.append(views.to_text(event.sample, tokenizer, name))
    if keep is not None:
      keep(done)
  return done


def _report(progress, numbers, num_rows, step, max_steps) -> None:
  """Reports a batch's tokens as a part of all rows' tokens."""
  done = numbers.start * max_steps + len(numbers) * step
  progress(done, num_rows * max_steps)


def _sampling_config(trained, settings) -> drawing.SamplingConfig:
  config = trained.config
  trained.data.check_tokenizer()
  fields = {
    'context_chunks': max(2, config.sequence_chunks),
    **loading.special_ids(trained.data.tokenizer),
    **DEFAULTS,
    **settings,
  }
  return drawing.SamplingConfig(**fields)


def _retrieve_fn(trained, sampling, rows) -> samples_lib.RetrieveFn | None:
  """The retriever, or None where no row retrieves."""
  if not trained.model.config.cca_layers or not sampling.num_neighbors:
    return None
  if all(row.neighbors is not None for row in rows):
    return None
  lookup = trained.data.datastore.lookup(trained.config)
  lookup.check_stored(sampling.num_neighbors)
  return lookup.retrieve_tokens
