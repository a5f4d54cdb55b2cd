# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions of REALM, and the effect of each document on them.

Guu et al. 2020, sections 3.1 and 3.4 (retrieval utility) and Table 3.

Dimension key: B queries, K candidates (the null document first), M masked
positions, V vocabulary.
"""

import collections
from collections.abc import Iterable, Mapping
import dataclasses
import functools
import html
from typing import Annotated, Any

from flax import struct
import jax
from jax import numpy as jnp
import numpy as np

from realm_jax.data import examples, pipeline
from realm_jax.nn import batches, realm as model_lib
from realm_jax.objectives import losses
from realm_jax.trained import model_configs
from retrieval import arguments, settings, text_table
from retrieval.questions import bootstrap

MASK = '[MASK]'
COLUMNS = (
  'document',
  'p(z|x)',
  'p(z|x,y)',
  'utility',
  'without it',
  'alone',
)
_SHOWN = 70  # characters of a document's text
_Array = jax.Array | np.ndarray  # computed, or fetched from the device


@struct.dataclass
class Prediction:
  """Predictions for a batch; log-probabilities in nats."""

  log_prior: _Array  # [B, K] float32. log p(z | x).
  # [B, K] float32. log p(z | x, y), y all targets together.
  log_posterior: _Array
  gold: _Array  # [B, K, M] float32. log p(y_m | z, x) of the targets.
  # [B, M] float32. log p(y_m | x); 0 where there is no target.
  marginal_gold: _Array
  # [B, K] float32. RU(z | x) = log p(y | z, x) - log p(y | null, x), equation
  # 2.
  utility: _Array
  without: _Array  # [B, K, M] float32. log p(y_m | x) without a candidate.
  # [B, M, n] int32. The most probable tokens under the marginal.
  tokens: _Array
  token_log_probs: _Array  # [B, M, n] float32. Their log-probabilities.
  # [B, K, M] int32. The most probable token with each candidate alone.
  candidate_tokens: _Array


@functools.partial(jax.jit, static_argnames=('model', 'num_tokens'))
def predict(
  model: model_lib.Realm,
  params: Any,
  batch: Mapping[str, jax.Array],
  num_tokens: int = 1,
) -> Prediction:
  """Predict the num_tokens most probable tokens of each mask."""
  run = functools.partial(model.apply, {'params': params}, batch)
  scores = run(method='relevance_scores')
  log_probs = jax.nn.log_softmax(run(method='token_logits'))
  masks = losses.batch_masks(batch)
  gold = batches.take_targets(log_probs, batch)
  best, tokens = jax.lax.top_k(
    losses.marginal_log_probs(scores, log_probs, masks.candidates), num_tokens
  )
  return Prediction(
    log_prior=losses.log_prior(scores, masks.candidates),
    log_posterior=losses.log_posterior(scores, gold, masks),
    gold=gold,
    marginal_gold=losses.token_log_likelihood(scores, gold, masks),
    utility=losses.candidate_utility(gold, masks),
    without=losses.leave_one_out(scores, gold, masks),
    tokens=tokens,
    token_log_probs=best,
    candidate_tokens=log_probs.argmax(axis=-1).astype(jnp.int32),
  )


def measure(
  model: model_lib.Realm, params: Any, batches: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
  """Measure a model on batches of `pipeline.make_dataset`.

  Returns:
    log_prob, accuracy and exact_span of the marginal; the same with the null
    document only (null_*), and marginal minus null (*_gain: {mean, low, high}, a
    95 % interval of a bootstrap over sentences); retrieval_utility, the mean of
    marginal minus null over target tokens; best_utility, the mean utility of the
    best candidate of a query; null_prior, the mean p(null | x); examples.
  """
  values = collections.defaultdict(list)
  for batch in batches:
    out = jax.device_get(predict(model, params, dict(batch)))
    mask, targets = batch['mlm_mask'], batch['mlm_targets']
    rows = mask.any(axis=1)
    for name, tokens, gold in (
      ('', out.tokens[..., 0], out.marginal_gold),
      ('null_', out.candidate_tokens[:, 0], out.gold[:, 0]),
    ):
      right = (tokens == targets) & mask
      values[f'{name}log_prob'].append(np.where(mask, gold, 0).sum(axis=1))
      values[f'{name}accuracy'].append(right.sum(axis=1))
      values[f'{name}exact_span'].append((right == mask).all(axis=1))
    values['tokens'].append(mask.sum(axis=1))
    values['best_utility'].append(out.utility.max(axis=1))
    values['null_prior'].append(np.exp(out.log_prior[:, 0]))
    for arrays in values.values():
      arrays[-1] = arrays[-1][rows].astype(np.float64)
  columns = {name: np.concatenate(x) for name, x in values.items()}
  if not columns or not columns['tokens'].size:
    raise ValueError('Nothing to measure: there is no batch with a target.')
  tokens, result = columns.pop('tokens'), {}
  sizes = dict.fromkeys(('log_prob', 'accuracy'), tokens)
  for name, x in columns.items():
    size = sizes.get(name.removeprefix('null_'), np.ones_like(x))
    result[name] = float(x.sum() / size.sum())
    if (null := f'null_{name}') in columns:
      gain = bootstrap.bootstrap(x - columns[null], size)
      result[f'{name}_gain'] = dataclasses.asdict(gain)
  utility = result['log_prob_gain']['mean']
  return result | {'retrieval_utility': utility, 'examples': float(len(tokens))}


@dataclasses.dataclass(frozen=True, repr=False)
class Explained(text_table.Short):
  """A prediction and its documents."""

  text: str
  # for each mask, words with their probabilities, best first
  predictions: list[list[tuple[str, float]]]
  answer: str  # y, the words whose probability is explained
  log_prob: float  # log p(y | x), summed over the tokens of y
  null_log_prob: float  # the same with the null document only
  # rows of block, title, text, prior p(z | x), posterior p(z | x, y), utility in
  # nats, log_prob with this document alone, without (log_prob without it), and
  # word, the prediction with this document alone. The null document is the first.
  documents: list[dict[str, Any]]

  def lines(self) -> list[str]:
    """Return the predictions of each mask, and the answer's log-probabilities."""
    lines = []
    for i, words in enumerate(self.predictions, start=1):
      shown = ', '.join(f'{word} {share:.3f}' for word, share in words)
      lines.append(f'mask {i}: {shown}')
    gain = self.log_prob - self.null_log_prob
    lines.append(
      f'log-probability of {self.answer!r}: {self.log_prob:.3f}, without '
      f'documents {self.null_log_prob:.3f}, so that they gain {gain:+.3f} nats'
    )
    return lines

  def rows(self) -> list[tuple[str, ...]]:
    """Return the cells of `COLUMNS` of each document."""
    rows = []
    for row in self.documents:
      text = ' '.join(row['text'].split())[:_SHOWN]
      rows.append(
        (
          f'{row["title"]}: {text}' if text else row['title'],
          f'{row["prior"]:.3f}',
          f'{row["posterior"]:.3f}',
          f'{row["utility"]:+.3f}',
          f'{row["without"] - self.log_prob:+.3f}',
          row['word'],
        )
      )
    return rows

  def __str__(self) -> str:
    table = text_table.lines(COLUMNS, self.rows())
    return '\n'.join([self.text, *self.lines(), table])

  def _repr_html_(self) -> str:
    lines = ''.join(f'<br>{html.escape(line)}' for line in self.lines())
    table = text_table.to_html(COLUMNS, self.rows())
    return f'<p><b>{html.escape(self.text)}</b>{lines}</p>{table}'


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
  trained: Any, text: str, answer: str = '', *, top: int = 5
) -> Explained:
  """Explain a prediction as `TrainedRealm.explain`."""
  if 'encoder' not in trained.params:
    raise ValueError('A model of ICT has no encoder: it predicts nothing.')
  arguments.texts([text], 'cloze')
  arguments.texts([answer], 'answer')
  most = trained.data.tokenizer.vocab_size
  settings.check_value('top', top, Annotated[int, settings.Range(1, most)])
  retrieval = pipeline.Retrieval(
    trained.data.blocks, trained.layout, trained.index
  )
  batch = retrieval(None, encode(trained, text, answer))
  out = jax.device_get(predict(trained.model, trained.params, batch, top))
  if not answer:
    batch['mlm_targets'] = out.tokens[..., 0]
    out = jax.device_get(predict(trained.model, trained.params, batch, top))
  return _explained(trained, batch, out, text)


def _explained(trained, batch, out: Prediction, text: str) -> Explained:
  out, batch = jax.tree.map(lambda x: x[0], (out, batch))
  mask, blocks = batch['mlm_mask'], trained.data.blocks
  ids = batch['candidate_block_ids'].tolist()

  def words(ids):
    return trained.data.tokenizer.decode(np.asarray(ids))

  return Explained(
    text=text,
    predictions=[
      [(words([x]), float(np.exp(y))) for x, y in zip(*pair, strict=True)]
      for pair in zip(out.tokens[mask], out.token_log_probs[mask], strict=True)
    ],
    answer=words(batch['mlm_targets'][mask]),
    log_prob=float(out.marginal_gold[mask].sum()),
    null_log_prob=float(out.gold[0][mask].sum()),
    documents=[
      {
        'block': ids[k],
        'title': blocks.titles([ids[k]])[0] if ids[k] >= 0 else '(null)',
        'text': blocks.texts([ids[k]])[0] if ids[k] >= 0 else '',
        'prior': float(np.exp(out.log_prior[k])),
        'posterior': float(np.exp(out.log_posterior[k])),
        'utility': float(out.utility[k]),
        'log_prob': float(out.gold[k][mask].sum()),
        'without': float(out.without[k][mask].sum()),
        'word': words(out.candidate_tokens[k][mask]),
      }
      for k in np.flatnonzero(batch['candidate_valid']).tolist()
    ],
  )
