# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM, ORQA and DPR: language models that retrieve, then predict or answer.

  reader = realm_jax.packaged()
  reader.answer('Who discovered penicillin?')

  model = realm_jax.packaged_realm()  # or realm_jax.load('runs/quickstart/realm')
  model.explain('The capital of France is [MASK].')

A loss and its metrics are `Mean`s, to be pooled over batches; `.value` is the number.
Names are imported at first use. Importing this package starts no JAX backend.
"""

from retrieval import lazy

_MODULES = {
  'load': '.trained.loading',
  'packaged': '.trained.loading',
  'packaged_realm': '.trained.loading',
  'TrainedReader': '.trained.loading',
  'TrainedRealm': '.trained.realm',
  'Answer': '.trained.answers',
  'Answered': '.trained.answers',
  'Answers': '.trained.answers',
  'Explained': '.trained.explain',
  'RealmConfig': '.nn.config',
  'Realm': '.nn.realm',
  'OpenQaConfig': '.nn.open_qa',
  'OpenQa': '.nn.open_qa',
  'marginal_token': 'retrieval.nn.objectives',
  'marginal_seq': 'retrieval.nn.objectives',
  'token_log_likelihood': '.objectives.losses',
  'Mean': 'retrieval.nn.means',
  'realm_loss': '.objectives.losses:loss',
  'reader_loss': '.objectives.reader_losses:loss',
  'ict_loss': '.objectives.ict:loss',
  'mlm_loss': '.objectives.mlm:loss',
  'dpr_loss': '.objectives.dpr:loss',
}
__all__ = sorted(_MODULES)
__getattr__, __dir__ = lazy.attach(__name__, _MODULES)
