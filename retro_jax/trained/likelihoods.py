# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What continuations cost a trained model after their contexts."""

from collections.abc import Callable, Sequence
import functools

from absl import logging
import jax

from retrieval import arguments, settings as settings_lib
from retro_jax.evaluation import continuations as continuations_lib
from retro_jax.nn import losses
from retro_jax.trained import loading

_token_scores = jax.jit(losses.token_scores, static_argnames='model')
_LOGITS = 1 << 26  # of a batch of several texts: 256 MiB in float32


def token_scorer(trained: loading.TrainedRetro) -> continuations_lib.ScoreFn:
  """Return the function of a batch that scores its targets."""
  params = jax.device_put(trained.params)
  return functools.partial(_token_scores, trained.model, params)


def measure(
  trained: loading.TrainedRetro,
  contexts: str | Sequence[str],
  continuations: str | Sequence[str],
  score_tokens: continuations_lib.ScoreFn,
  *,
  num_neighbors: int,
  stride_chunks: int,
  batch_size: int,
  progress: Callable[[int, int], None] | None = None,
) -> list[continuations_lib.Likelihood]:
  """Measure continuations; arguments and errors as of `LanguageModel.loglikelihood`.

  Args:
    score_tokens: of `trained`, such as `token_scorer`.
  """
  contexts = list(arguments.texts(contexts, 'contexts'))
  ends = list(arguments.texts(continuations, 'continuations'))
  if len(ends) != len(contexts):
    raise settings_lib.SettingsError(
      'continuations',
      len(ends),
      f'{len(contexts)} texts, one for each context',
    )
  if '' in ends:
    name = f'continuations[{ends.index("")}]'
    raise settings_lib.SettingsError(name, '', 'a text that is not empty')
  data, config, sizes = trained.data, trained.config, trained.model.config
  settings = continuations_lib.Settings(
    chunk_length=sizes.chunk_length,
    neighbor_length=sizes.neighbor_length,
    sequence_chunks=config.sequence_chunks,
    stride_chunks=stride_chunks or max(1, config.sequence_chunks // 2),
    num_neighbors=num_neighbors,
    batch_size=batch_size,
    max_tokens=_LOGITS // sizes.vocab_size,
  )
  data.check_tokenizer()
  retrieve = None
  if num_neighbors and sizes.cca_layers:
    lookup = data.datastore.lookup(config)
    lookup.check_stored(num_neighbors)
    retrieve = lookup.retrieve_tokens
  texts = [
    continuations_lib.encode(data.tokenizer, *pair)
    for pair in zip(contexts, ends, strict=True)
  ]
  nats, greedy, dropped = continuations_lib.score(
    score_tokens, texts, settings, retrieve=retrieve, progress=progress
  )
  if dropped.any():
    logging.warning(
      '%d of %d contexts do not fit into %d tokens with what is scored: their '
      'beginnings were not read.',
      (dropped > 0).sum(),
      len(dropped),
      config.sequence_chunks * sizes.chunk_length,
    )
  num_bytes = [len(text.encode()) for text in ends]
  columns = nats.tolist(), num_bytes, greedy.tolist(), dropped.tolist()
  return [
    continuations_lib.Likelihood(*row) for row in zip(*columns, strict=True)
  ]
