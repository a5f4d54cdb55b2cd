# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents that the referee asks a model about, and the model's first answers.

Dimension key: B rows, T tokens, P places of a row, V vocabulary.
"""

import numpy as np


class Case:
  """Documents in rows, and the places that are looked at."""

  def __init__(self, scorer, documents, num_places, rng):
    self.scorer, self.documents, self.rng = scorer, documents, rng
    lengths = np.array([len(x.tokens) for x in documents])
    self.tokens = np.zeros((len(documents), lengths.max()), np.int64)
    for row, document in zip(self.tokens, documents, strict=True):
      row[: len(document.tokens)] = document.tokens
    # One place of each equal part of a text.
    parts = rng.random((len(documents), num_places)) + np.arange(num_places)
    self.places = (parts * (lengths[:, None] - 1) / num_places).astype(np.int64)
    self.ids = [x.id for x in documents]
    self.every = self.ask()
    # Nats of each document's tokens; of a masked model those at its places.
    self.alone = [*-self.targets(self.every)]
    if scorer.causal:
      self.alone = [self._nats(d, n - 1) for d, n in enumerate(lengths)]
    self.nats = np.array([x.sum() for x in self.alone])
    self.sizes = np.array([len(x.text.encode()) for x in documents])
    self.unit = 'byte'
    if not (scorer.causal and self.sizes.all()):
      self.sizes, self.unit = np.array([len(x) for x in self.alone]), 'token'

  def ask(self, tokens=None, places=None, ids=None, by=None):
    """Log-probabilities [B, P, V] float64 of rows, by default the documents as they are."""
    asked = (
      self.tokens if tokens is None else tokens,
      self.places if places is None else places,
      self.ids if ids is None else ids,
    )
    by, size, parts = by or self.scorer.log_probs, self.scorer.batch_size, []
    for i in range(0, len(asked[0]), size):
      parts.append(np.asarray(by(*(x[i : i + size] for x in asked))))
    return np.concatenate(parts).astype(np.float64)

  def targets(self, log_probs):
    """Log-probabilities [B, P] of the tokens that follow `places`."""
    following = np.take_along_axis(self.tokens, self.places + 1, axis=1)
    return np.take_along_axis(log_probs, following[..., None], axis=2)[..., 0]

  def bits(self, rows) -> str:
    """Bits a byte of rows."""
    size = max(self.sizes[rows].sum(), 1)
    return f'{self.nats[rows].sum() / np.log(2) / size:.3f} bits a {self.unit}'

  def _nats(self, d, count):
    """Nats [count] of a document's tokens, alone in a batch."""
    # All of one shape: what is compiled for one serves the others.
    tokens = self.tokens[d : d + 1]
    places = np.arange(tokens.shape[1] - 1)
    of_all = self.ask(tokens, places[None], self.ids[d : d + 1])[0]
    return -of_all[places, tokens[0, 1:]][:count]
