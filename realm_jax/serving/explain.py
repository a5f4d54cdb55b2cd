# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Explain a prediction of REALM by its documents (Guu et al. 2020, Table 3)."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from realm_jax.data import examples, pipeline
from realm_jax.serving import masked_words, model_configs, serving, views

MASK = '[MASK]'


@dataclasses.dataclass(frozen=True)
class Explained:
  """A prediction and its documents."""

  text: str
  # for each mask, words with their probabilities, best first
  predictions: list[list[tuple[str, float]]]
  answer: str  # y, the words whose probability is explained
  log_prob: float  # log p(y | x), summed over the tokens of y
  null_log_prob: float  # the same with the null document only
  # rows of block, title, text, prior p(z | x), posterior p(z | x, y) utility in
  # nats, log_prob with this document alone, without the log_prob of all others,
  # and word, the prediction with this document alone. The null document is the
  # first.
  documents: list[dict[str, Any]]

  def _repr_html_(self) -> str:
    return views.explained_html(self)


def encode(
  trained: model_configs.TrainedModel, text: str, answer: str = ''
) -> dict[str, np.ndarray]:
  """Make one row, as of `examples.mask_sentence`, from a text with masks.

  The wordpieces of `answer` are, one after another, the masks' targets; a
  single [MASK] is repeated for each of them.

  Raises:
    ValueError: for a text without mask or too long, or an answer too long.
  """
  layout, tokenizer = trained.layout, trained.data.tokenizer
  masks = text.count(MASK)
  pieces = tokenizer.encode(answer).ids.tolist() if answer else []
  if pieces and masks == 1:
    text = text.replace(MASK, ' '.join([MASK] * len(pieces)))
    masks = len(pieces)
  if not 1 <= masks <= layout.max_targets or (answer and len(pieces) != masks):
    raise ValueError(
      f'{text!r} has {masks} {MASK} and {answer!r} {len(pieces)} wordpieces: '
      f'expected as many, 1 to layout.max_targets={layout.max_targets}.'
    )
  tokens: list[int] = []
  positions: list[int] = []
  for i, part in enumerate(text.split(MASK)):
    if i:
      positions.append(len(tokens))
      tokens.append(layout.mask_id)
    tokens += tokenizer.encode(part.strip()).ids.tolist()
  if len(tokens) > layout.query_tokens:
    raise ValueError(
      f'{text!r} has {len(tokens)} wordpieces: expected at most '
      f'{layout.query_tokens}.'
    )
  filled = np.asarray(tokens, np.int32)
  filled[positions] = pieces or layout.mask_id
  row = examples.mask_sentence(layout, filled, np.asarray(positions))
  row |= {'origin': np.int32(-1), 'origin_hash': np.uint64(0)}
  return examples.stack([row])


def explain(
  trained: model_configs.TrainedModel,
  index: serving.ServingIndex | None,
  text: str,
  answer: str = '',
  *,
  top: int = 5,
) -> Explained:
  """Explain a prediction as `TrainedRealm.explain`; None: its own index."""
  check_encoder(trained)
  snapshots = pipeline.OneSnapshot(index or trained.index)
  retrieval = pipeline.Retrieval(trained.data.blocks, trained.layout, snapshots)
  batch = retrieval(None, encode(trained, text, answer))
  predict = functools.partial(
    masked_words.predict, trained.model, trained.params, num_tokens=top
  )
  out = jax.device_get(predict(batch))
  if not answer:
    batch['mlm_targets'] = out.tokens[..., 0]
    out = jax.device_get(predict(batch))
  return _explained(trained, batch, out, text)


def check_encoder(trained: model_configs.TrainedModel) -> None:
  """Raise ValueError for a model of ICT."""
  if 'encoder' not in trained.params:
    raise ValueError('A model of ICT has no encoder: it predicts nothing.')


def _words(trained: model_configs.TrainedModel, ids: Any) -> str:
  return trained.data.tokenizer.decode(np.asarray(ids))


def _explained(trained, batch, out: masked_words.Prediction, text) -> Explained:
  mask = batch['mlm_mask'][0]
  blocks, ids = trained.data.blocks, batch['candidate_block_ids'][0].tolist()
  documents = []
  for k, block in enumerate(ids):
    if not batch['candidate_valid'][0, k]:
      continue
    documents.append(
      {
        'block': block,
        'title': blocks.titles([block])[0] if block >= 0 else '(null)',
        'text': blocks.texts([block])[0] if block >= 0 else '',
        'prior': float(np.exp(out.log_prior[0, k])),
        'posterior': float(np.exp(out.log_posterior[0, k])),
        'utility': float(out.utility[0, k]),
        'log_prob': float(out.gold[0, k][mask].sum()),
        'without': float(out.without[0, k][mask].sum()),
        'word': _words(trained, out.candidate_tokens[0, k][mask]),
      }
    )
  predictions = [
    [
      (_words(trained, [token]), float(np.exp(log_prob)))
      for token, log_prob in zip(*pair, strict=True)
    ]
    for pair in zip(
      out.tokens[0][mask], out.token_log_probs[0][mask], strict=True
    )
  ]
  return Explained(
    text=text,
    predictions=predictions,
    answer=_words(trained, batch['mlm_targets'][0][mask]),
    log_prob=float(out.marginal_gold[0][mask].sum()),
    null_log_prob=float(out.gold[0, 0][mask].sum()),
    documents=documents,
  )
