# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare REALM's gradient over few documents with that over all of them.

REALM sums over the k best documents only (Guu et al. 2020, section 3.3). For some
training sentences the encoder reads every block; losses and gradients of
`realm_jax/objectives/marginal_estimates.py` are then compared with the exact ones.
Costs num_examples x blocks passes of the encoder for each checkpoint.
"""

import collections
from collections.abc import Iterator, Sequence
import dataclasses
import itertools
import pathlib
from typing import Annotated, Any

from absl import logging
import jax
import numpy as np
from scipy import special

from experiments.engine import pictures, progress, reports
from experiments.realm import (
  config as config_lib,
  recall,
  starts,
  task as realm_task,
)
from realm_jax.data import examples
from realm_jax.nn import realm
from realm_jax.objectives import marginal_estimates as estimates
from realm_jax.serving import serving, trained_models, trained_realm
from retrieval import settings
from retrieval.store import checkpoints, store

FILE = 'marginal_bias.json'
PICTURE = 'marginal_bias.png'


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginalBias:
  """The marginal of few documents against that of all (section 3.3)."""

  # checkpoints; 0 is the start of the training, () this and all that were kept
  steps: tuple[settings.Count, ...] = ()
  num_examples: settings.Size = 16
  ks: tuple[recall.Rank, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
  num_draws: Annotated[int, settings.Range(2, 2**16)] = 16
  read_at_once: settings.Size = 64  # documents


class _Reader:
  """Scores and reads all blocks for a masked sentence."""

  def __init__(self, trained: trained_realm.TrainedRealm, read_at_once: int):
    self._trained, self._at_once = trained, read_at_once
    model, data, layout = trained.model, trained.data, trained.layout
    ids = np.arange(-1, data.blocks.num_blocks)  # the null document first
    embedder = serving.BlockEmbedder(
      model.config, layout, data.blocks, serving.embedder_params(trained.params)
    )
    self.vectors = model.config.score_scale * embedder(ids)
    self._hashes = data.blocks.all_hashes()
    self._embed = serving.QueryEmbedder(model.config)
    self._gold = jax.jit(self._gold_log_probs)

  def _gold_log_probs(self, params: Any, batch: examples.Batch) -> jax.Array:
    """Read blocks: log p(y_m | x, z) of the targets, [1, K, M]."""
    model = self._trained.model
    logits = model.apply({'params': params}, batch, method='token_logits')
    gold = realm.take_targets(logits, batch)
    return gold - jax.nn.logsumexp(logits, axis=-1)

  def read(
    self, row: examples.Batch
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the documents' vectors [N, E], scores [N] and gold [N, M] of a row.

    `row` is of `sources.MaskedSentences.example`. The sentence's own block and
    its copies are left out.
    """
    trained, batch = self._trained, examples.stack([row])
    sentence = batch['sentence'], batch['sentence_count']
    asked = examples.queries(trained.layout, *sentence)
    query = self._embed(
      trained.params, asked['query_ids'], asked['query_mask']
    )[0]
    ids = np.flatnonzero(self._hashes != row['origin_hash'])
    ids = np.append(examples.NULL, ids)
    gold = [
      self._read(part, batch, sentence)
      for part in np.split(ids, range(self._at_once, len(ids), self._at_once))
    ]
    vectors = self.vectors[ids + 1]
    gold = np.concatenate(gold)[:, row['mlm_mask']]
    return vectors, vectors @ query, gold

  def _read(self, ids, batch, sentence) -> np.ndarray:
    """Read blocks, always as many: the last ones are padded."""
    padded = np.full(self._at_once, examples.NONE, np.int64)
    padded[: len(ids)] = ids
    trained = self._trained
    rows = examples.candidates(
      trained.layout, trained.data.blocks, padded[None], *sentence
    )
    rows |= {k: batch[k] for k in ('mlm_positions', 'mlm_targets')}
    gold = self._gold(trained.params, rows)
    return np.asarray(gold)[0, : len(ids)]


def _rows(
  run: config_lib.Config, trained: trained_realm.TrainedRealm, count: int
) -> Iterator[examples.Batch]:
  """Masked sentences of the training split, the same for every checkpoint."""
  source = realm_task.masked_sentences(run, trained.data, 'train')
  rng = np.random.default_rng(0)
  if count > len(source):
    raise settings.SettingsError(
      'marginal_bias.num_examples',
      count,
      f'at most {len(source)}, the blocks with something to mask',
    )
  for i in rng.choice(len(source), count, replace=False):
    yield source.example(int(i), rng)


def compare(
  run: config_lib.Config,
  trained: trained_realm.TrainedRealm,
  wanted: MarginalBias,
) -> list[dict[str, Any]]:
  """Return a row for each estimator, k and gradient at one checkpoint."""
  reader = _Reader(trained, wanted.read_at_once)
  rng = np.random.default_rng(run.seed)
  sums = collections.defaultdict(estimates.Comparison)
  masses = []
  with progress.bar(f'step {trained.step}', 'sentences') as update:
    rows = _rows(run, trained, wanted.num_examples)
    for done, row in enumerate(rows, start=1):
      vectors, scores, gold = reader.read(row)
      if run.loss.objective == 'marginal_seq':
        gold = gold.sum(axis=1, keepdims=True)
      masses.append(_masses(scores, gold, wanted.ks))
      exact = estimates.estimate(scores, gold)
      for name, k in itertools.product(estimates.ESTIMATORS, wanted.ks):
        draws = wanted.num_draws if name in estimates.RANDOM else 1
        chosen = [
          estimates.ESTIMATORS[name](scores, k, rng) for _ in range(draws)
        ]
        drawn = [estimates.estimate(scores, gold, x) for x in chosen]
        gradients = np.stack([x.gradient for x in drawn])
        values = np.array([x.loss for x in drawn])
        both = exact.gradient, gradients
        sums[name, k, 'blocks'].add(*both, values, exact.loss)
        both = (x @ vectors for x in both)
        sums[name, k, 'query'].add(*both, values, exact.loss)
      update(done, wanted.num_examples)
  mean = {k: float(np.mean([x[k] for x in masses])) for k in masses[0]}
  return [
    {
      'step': trained.step,
      'estimator': name,
      'k': k,
      'gradient': space,
      'examples': wanted.num_examples,
      'documents': len(reader.vectors),
      'entropy': mean['entropy'],
      'prior_mass': mean[f'prior {k}'],
      'posterior_mass': mean[f'posterior {k}'],
      **found.summary(),
    }
    for (name, k, space), found in sums.items()
  ]


def _masses(
  scores: np.ndarray, gold: np.ndarray, ks: Sequence[int]
) -> dict[str, float]:
  """Shares of p(z | x) and p(z | x, y) that the null and k best documents have.

  Also the entropy of p(z | x) in nats. The encoder's gradient is weighed by
  p(z | x, y), so that this share is the part of it that top-k sees.
  """
  prior = special.softmax(scores.astype(np.float64))
  posterior = special.softmax(scores[:, None] + gold, axis=0).mean(axis=1)
  found = {'entropy': float(special.entr(prior).sum())}
  for k in ks:
    ids = estimates.top(scores, k, np.random.default_rng(0)).ids
    found[f'prior {k}'] = float(prior[ids].sum())
    found[f'posterior {k}'] = float(posterior[ids].sum())
  return found


def plot(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
  """Draw cosine and bias of the gradients over k, a column for each checkpoint."""
  steps = sorted({row['step'] for row in rows})
  measures = {
    'cosine': 'cosine, one draw',
    'bias': 'bias / |exact gradient|',
  }
  size = (3.2 * len(steps) + 1, 6)
  with pictures.picture(
    path, nrows=2, ncols=len(steps), figsize=size, squeeze=False, sharey='row'
  ) as (figure, axes):
    for column, step in enumerate(steps):
      for line, (measure, label) in enumerate(measures.items()):
        one = axes[line][column]
        for color, name in enumerate(estimates.ESTIMATORS):
          for space, style in (('blocks', '-'), ('query', '--')):
            points = sorted(
              (row['k'], row[measure])
              for row in rows
              if (row['step'], row['estimator'], row['gradient'])
              == (step, name, space)
            )
            one.plot(
              *zip(*points, strict=True),
              style,
              color=f'C{color}',
              label=f'{name}, {space}',
            )
        one.set_xscale('log', base=2)
        one.set_ylim(-0.05, 1.05 if measure == 'cosine' else 1.55)
        one.set_xlabel('documents beside the null document')
        one.set_title(f'step {step}')
        one.grid(alpha=0.3)
        if not column:
          one.set_ylabel(label)
    names = axes[0][0].get_legend_handles_labels()
    figure.legend(*names, loc='outside lower center', ncols=4)


def _print(rows: Sequence[dict[str, Any]]) -> None:
  heads = ['step', 'estimator', 'k', 'p(z|x)', 'p(z|x,y)', 'loss bias']
  heads += ['cosine', 'bias', 'cosine, query', 'bias, query']
  lines = []
  for row, query in zip(rows[::2], rows[1::2], strict=True):
    figures = [row[x] for x in ('prior_mass', 'posterior_mass', 'loss_bias')]
    figures += [r[x] for r in (row, query) for x in ('cosine', 'bias')]
    names = [str(row[x]) for x in ('step', 'estimator', 'k')]
    lines.append([*names, *(f'{x:.3f}' for x in figures)])
  reports.print_table(heads, lines)


def marginal_bias(
  config: config_lib.Config, workdir: str, wanted: MarginalBias
) -> None:
  """Compare at every checkpoint of `workdir`; print and draw the rows.

  marginal_bias.json is written after each checkpoint, and a killed call continues.
  """
  root = pathlib.Path(workdir)
  saved = checkpoints.numbers(checkpoints.folder_of(root))
  path = root / FILE
  newest = trained_models.load(root, config.data_dir, part='realm')
  if 'encoder' not in newest.params:
    raise ValueError(f'{root}: a model of ICT reads nothing; expected a REALM.')
  run = config_lib.of_run(root)
  made = [dataclasses.asdict(x) for x in (run, wanted)]
  identity = store.fingerprint(
    [*made, newest.data.blocks.fingerprint, saved[-1]]
  )
  rows = reports.known_rows(path, identity)
  for step in wanted.steps or (0, *saved):
    if any(row['step'] == step for row in rows):
      continue
    trained = (
      trained_models.load(root, config.data_dir, step=step, part='realm')
      if step
      else starts.untrained(run, newest.data)
    )
    rows += compare(run, trained, wanted)
    reports.write_json(path, {'measured_as': identity, 'rows': rows})
  plot(rows, root / PICTURE)
  _print(rows)
  logging.info('Written to %s and %s.', path, root / PICTURE)
