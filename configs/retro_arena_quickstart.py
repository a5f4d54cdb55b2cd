# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Memories of a small language model at equal cost, on the packaged articles.

The argument says what is equal: bytes of weights and memory (those of a RETRO of 1.4 M
parameters with its tokens and its index of words), FLOPs of training (its 250 steps, a
quarter of the articles' tokens), or seconds of a CPU. After experiments.prepare of
retro_pretrain_quickstart with --config.neighbors.source=bm25 (and an evaluation set
`fresh`), for each:

  python -m experiments.arena --config=configs/retro_arena_quickstart.py:bytes \
    --config.data_dir=runs/vital/data --workdir=runs/arena/bytes

A seed takes about half an hour of a core, most of it for the RETRO of ten neighbors and
for searches of kNN-LM. Seeds may run side by side (--config.seed=1
--config.num_seeds=1, in the same workdir). Figures: docs/results/memories.md.
"""

from experiments.arena import Config
from experiments.engine import configs

_BASELINE, _RETRO = (f'retro_pretrain_quickstart{x}' for x in (':baseline', ''))
_NGRAMS, _KNN = 'retro_pretrain_quickstart:ngram', 'knn_lm_small'
_TWO, _TEN = (
  (f'num_neighbors={k}', f'evaluate.num_neighbors={k}') for k in (2, 10)
)
_WIDER = (
  *('model.d_model=248', 'model.encoder_d_model=248', 'model.head_dim=62'),
  *('model.d_ff=992', 'model.init_scale=0.05'),
)
_COPY = ('evaluate.evaluators=copying', 'evaluate.num_neighbors=10')
_TUNED = (
  *('knn_lm.tune_split=valid', 'knn_lm.ks=(64, 256)'),
  'knn_lm.temperatures=(1.0, 3.0, 10.0)',
)
# Arms that cost the same under each column.
_ARMS = {
  'baseline': (_BASELINE,),
  'wider': (_BASELINE, *_WIDER),
  'retro_2': (_RETRO, 'evaluate.shuffled=False', *_TWO),
  'retro_10': (_RETRO, 'evaluate.shuffled=False', *_TEN),
  'ngrams': (_NGRAMS, 'model.ngrams.width=18'),
}


def _knn_lm(base: str, documents: int) -> tuple[str, ...]:
  of = f'knn_lm.model_workdir=@{base}', f'knn_lm.max_documents={documents}'
  exact = ('knn_lm.index.searcher=exact',) if documents < 1000 else ()
  return (_KNN, *of, *_TUNED, *exact)


_EQUAL = {
  'bytes': {
    'budget': 14.11e6,
    'arms': _ARMS
    | {
      'longer': (_BASELINE, 'num_steps=675'),
      'copier': (_BASELINE, 'model.d_ff=960', *_COPY),
      'knn_lm': _knn_lm('baseline', 160),
      '_fewer_rows': (_NGRAMS, 'model.ngrams.rows=4096'),
      'knn_lm_ngrams': _knn_lm('_fewer_rows', 90),
    },
  },
  # Keys of 4,000 documents cost as much as 156 steps.
  'flops': {
    'budget': 11.02e12,
    'arms': _ARMS
    | {
      'copier': ('@baseline', *_COPY),
      '_fewer_steps': (_BASELINE, 'num_steps=370'),
      'knn_lm': _knn_lm('_fewer_steps', 4000),
      '_fewer_steps_ngrams': (_NGRAMS, 'num_steps=350'),
      'knn_lm_ngrams': _knn_lm('_fewer_steps_ngrams', 4000),
    },
  },
}
_EQUAL['seconds'] = {'budget': 160.0, 'arms': _EQUAL['flops']['arms']}
_EQUAL['test'] = {
  'budget': 1e7,
  'arms': {
    'baseline': ('retro_pretrain_quickstart:baseline_test',),
    'retro_2': ('retro_pretrain_quickstart:test', *_TWO),
    'copier': ('@baseline', 'evaluate.evaluators=copying'),
    '_ngrams': ('retro_pretrain_quickstart:ngram_test', 'num_steps=3'),
    'knn_lm': ('knn_lm_small:test', *_knn_lm('_ngrams', 99)[1:]),
  },
}


def get_config(arg: str = 'bytes') -> configs.Config:
  configs.check_arg(arg, [*_EQUAL])
  c = configs.of(Config, corpus='quickstart', fields=('neighbors.source=bm25',))
  c.equal = 'bytes' if arg == 'test' else arg
  if arg == 'bytes':
    c.fields = (*c.fields, 'num_steps=250')
  c.budget = _EQUAL[arg]['budget']
  with c.unlocked():
    c.arms = _EQUAL[arg]['arms']
  if arg == 'test':
    c.splits, c.num_seeds = ('test',), 1
  return c
