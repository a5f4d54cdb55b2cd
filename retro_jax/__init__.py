# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO (Borgeaud et al. 2021): language models that retrieve, then write.

  model = retro_jax.packaged()  # or retro_jax.load('runs/quickstart/retro')
  model.sample('The history of', num_samples=2, temperature=0.8)
  model.score('A text.').bits_per_byte
  model.loglikelihood(['Paris is in', 'Paris is in'], [' France.', ' Peru.'])
  model.neighbors('A text.')

  retro_jax.referee(model, held_out_texts)  # verdicts on its figures

Models: `Retro`, `RetroStep` (one token at a time), `RetroConfig`, and the
paper's sizes by `preset('172m')`. Losses: `batch_nll`, and `loss`, which returns
`Mean`s, to be pooled over batches; `.value` is the number. Each result shows
itself in a notebook. Names are imported on first use.
"""

from retrieval import lazy

_MODULES = {
  'LanguageModel': 'retro_jax.trained.language_model',
  'Mean': 'retrieval.nn.means',
  'Retro': 'retro_jax.nn.retro',
  'RetroConfig': 'retro_jax.nn.config',
  'RetroStep': 'retro_jax.nn.retro_step',
  'Scorer': 'retro_jax.evaluation.referee',
  'TextPrompt': 'retro_jax.views.prompts',
  'batch_nll': 'retro_jax.nn.losses',
  'load': 'retro_jax.trained.language_model',
  'loss': 'retro_jax.nn.losses',
  'packaged': 'retro_jax.trained.language_model',
  'preset': 'retro_jax.nn.presets',
  'referee': 'retro_jax.evaluation.referee',
}
__all__ = [*_MODULES]
__getattr__, __dir__ = lazy.attach(__name__, _MODULES)
