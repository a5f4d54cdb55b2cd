# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Classification of claims by retrieved evidence, as in FEVER and HoVer.

ORQA's code has this head beside the reader of spans: a BERT reads the claim
with each block and scores the classes, and the retriever's logit is added. Any
block may give the gold class.

Dimension key: B claims, C retriever beam, R reader beam, L reader row, N
classes, n rows.
"""

from collections.abc import Mapping
import dataclasses
from typing import Annotated, Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from realm_jax.nn import (
  config as config_lib,
  initialize,
  open_qa,
  realm as model_lib,
)
from realm_jax.objectives import reader_losses
from retrieval import settings
from retrieval.nn import bert, means, objectives

RULES = ('best', 'marginal')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimsConfig:
  """A retriever and a classifier."""

  # The embedders as of REALM; `encoder` is the classifier's BERT.
  realm: config_lib.RealmConfig
  # N: 3 of FEVER, 2 of HoVer
  num_classes: Annotated[int, settings.Range(2, 2**16)] = 3

  __post_init__ = settings.check

  @property
  def classifier_bert(self) -> bert.BertConfig:
    """The encoder's BERT with a pooler."""
    return dataclasses.replace(self.realm.encoder, pooler=True)


class Classifier(nn.Module):
  """BERT with a pooler over claim and block, and a score of every class."""

  config: ClaimsConfig

  def setup(self):
    """BERT and one matrix."""
    config = self.config.classifier_bert
    self.bert = bert.Bert(config)
    exact = dataclasses.replace(config, dtype=jnp.float32)
    self.classes = bert.dense(exact, self.config.num_classes, ('embed', None))

  def __call__(
    self,
    ids: Int[Array, 'n l'],
    mask: Bool[Array, 'n l'],
    type_ids: Int[Array, 'n l'],
    *,
    train: bool = False,
  ) -> Float[Array, 'n classes']:
    """Score classes in float32; arguments as for `open_qa.SpanReader`."""
    first = jnp.zeros_like(ids[:, :1])
    pooled = self.bert(ids, mask, type_ids, first, train=train).pooled
    return self.classes(pooled.astype(jnp.float32))


class Claims(open_qa.BeamScorer):
  """Retriever and classifier."""

  config: ClaimsConfig

  def setup(self):
    """The embedders and the classifier."""
    super().setup()
    self.classifier = Classifier(self.config)

  def __call__(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> tuple[Float[Array, 'B C'], Float[Array, 'B R N']]:
    """Score a batch: retriever logits [B, C], class scores [B, R, N].

    `batch`: the arrays of `open_qa.BeamScorer.beam_scores`; reader_ids,
    reader_mask, reader_types [B, R, L].
    """
    rows = model_lib.fold_rows(batch, 'reader')
    scores = self.classifier(*rows, train=train)
    scores = scores.reshape(*batch['reader_ids'].shape[:2], -1)
    return self.beam_scores(batch, train=train), scores


def init_params(
  key: jax.Array,
  config: ClaimsConfig,
  *,
  embedder: initialize.Source = None,
  encoder: initialize.Source = None,
) -> dict:
  """Initial parameters of a Claims, with arguments of `open_qa.init_params`.

  The classes are always random, and so is a pooler that the BERT lacks.
  """
  found = config.classifier_bert
  start, whole = initialize.start_bert(encoder, found, 'classifier')
  # Trained encoders have no pooler; layers and embeddings must be there.
  layers = [f'layer_{i}' for i in range(found.num_layers)]
  whole = [f'{x}/{y}' for x in whole for y in ('embeddings', *layers)]
  return open_qa.start_params(key, config, Claims, (start, whole), embedder)


def add_retriever(
  batch: Mapping[str, jax.Array],
  retriever: Float[Array, 'B C'],
  classes: Float[Array, 'B R N'],
) -> Float[Array, 'B R N']:
  """Joint scores of blocks and classes, -1e30 where there is no block."""
  blocks = reader_losses.read_blocks(batch)[..., None]
  joint = classes + retriever[:, : classes.shape[1], None]
  return jnp.where(blocks, joint, objectives.NEVER)


def class_scores(
  model: Claims, params: Any, batch: Mapping[str, jax.Array]
) -> Float[Array, 'B R N']:
  """Joint scores of a batch's blocks and classes; the batch needs no label."""
  found = model_lib.apply(model, params, batch, train=False, key=None)
  return add_retriever(batch, *found)


def check_rule(rule: str) -> None:
  """Raise ValueError for a rule that is not one of `RULES`."""
  if rule not in RULES:
    raise ValueError(f'rule {rule!r}; expected one of {RULES}.')


def predict(
  scores: Float[Array, 'B R N'], rule: str = 'best'
) -> Int[Array, ' B']:
  """Predict the class of each claim, int32.

  Args:
    scores: joint scores of `class_scores`.
    rule: 'best': the class of the best pair of block and class, as released;
      'marginal': the class with the highest probability, summed over blocks.

  Raises:
    ValueError: for another rule.
  """
  check_rule(rule)
  if rule == 'best':
    best = scores.reshape(len(scores), -1).argmax(axis=-1) % scores.shape[-1]
  else:
    best = jax.nn.logsumexp(scores, axis=1).argmax(axis=-1)
  return best.astype(jnp.int32)


def loss(
  model: Claims,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  early_weight: float = 1.0,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Loss of the gold class, summed over blocks, and early loss of the evidence.

  `batch` has the arrays of `reader_losses.loss` without reader_block_mask and
  reader_correct; claim_label [B] int32, the gold class. beam_has_answer marks
  the blocks of evidence; without it there is no early loss.

  Returns:
    The mean over claims in nats, and metrics over claims: `accuracy` and
    `marginal_accuracy` are those of both rules of `predict`.

  Raises:
    ValueError: if the reader's beam is wider than the retriever's.
  """
  retriever, classes = model_lib.apply(
    model, params, batch, train=train, key=key
  )
  scores = add_retriever(batch, retriever, classes)
  labels = batch['claim_label']
  gold = labels[:, None, None] == jnp.arange(scores.shape[-1])
  blocks = reader_losses.read_blocks(batch)[..., None]
  full = reader_losses.marginal_loss(scores, blocks, gold)

  def mean(x):
    return means.of(x, batch['row_valid'])

  value = mean(full)
  metrics = {
    'full_loss': value,
    'accuracy': mean(predict(scores) == labels),
    'marginal_accuracy': mean(predict(scores, 'marginal') == labels),
  }
  if 'beam_has_answer' in batch:
    early = mean(reader_losses.early_loss(batch, retriever))
    evidence = batch['beam_has_answer'] & batch['beam_valid']
    metrics |= {
      'early_loss': early,
      'beam_has_answer': mean(evidence.any(axis=-1)),
    }
    value = value + early_weight * early
  return value, metrics
