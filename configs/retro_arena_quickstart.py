# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Memories of a small language model at equal cost.

The argument says what is equal: bytes of weights and memory (those of a RETRO of 1.4 M
parameters with its tokens and its index of words), FLOPs of training (its 250 steps of
2,048 tokens), or seconds of a CPU (those of a kNN-LM of as many FLOPs). bytes_simple,
flops_simple and seconds_simple are for 36,000 articles of Simple English Wikipedia, the
others for the packaged articles. After experiments.prepare of retro_pretrain_quickstart
with --config.neighbors.source=bm25 (and an evaluation set `fresh`), for each:

  python -m experiments.arena --config=configs/retro_arena_quickstart.py:bytes \
    --config.data_dir=runs/vital/data --workdir=runs/arena/bytes

A seed takes 30 to 80 minutes of a core, most of it for the RETRO of ten neighbors, for
searches of kNN-LM and for a wide model. Seeds may run side by side (--config.seed=1
--config.num_seeds=1, in the same workdir). Figures: docs/results/memories.md.
"""

from experiments.arena import Config
from experiments.engine import configs

_BASELINE, _RETRO = (f'retro_pretrain_quickstart{x}' for x in (':baseline', ''))
_NGRAMS, _KNN = 'retro_pretrain_quickstart:ngram', 'knn_lm_small'
_TWO, _TEN = (
  (f'num_neighbors={k}', f'evaluate.num_neighbors={k}') for k in (2, 10)
)
_COPY = ('evaluate.evaluators=copying', 'evaluate.num_neighbors=10')
_TUNED = (
  *('knn_lm.tune_split=valid', 'knn_lm.ks=(64, 256)'),
  'knn_lm.temperatures=(1.0, 3.0, 10.0)',
)


def _arms(d_model: int = 248, rows: int = 0, width: int = 18) -> dict:
  """Arms of every column; the wider model and the tables of n-grams may differ."""
  sizes = f'd_model={d_model}', f'encoder_d_model={d_model}'
  sizes += f'head_dim={d_model // 4}', f'd_ff={4 * d_model}'
  sizes += (f'init_scale={round(0.8 / d_model**0.5, 2)}',)
  # The shared rate is too high at this width: lab-notes/memories.md.
  rate = ('optimizer.learning_rate=0.001',) if d_model > 500 else ()
  tables = (f'model.ngrams.rows={rows}',) if rows else ()
  return {
    'baseline': (_BASELINE,),
    'wider': (_BASELINE, *(f'model.{x}' for x in sizes), *rate),
    'retro_2': (_RETRO, 'evaluate.shuffled=False', *_TWO),
    'retro_10': (_RETRO, 'evaluate.shuffled=False', *_TEN),
    'ngrams': (_NGRAMS, *tables, f'model.ngrams.width={width}'),
  }


def _knn_lm(base: str, documents: int) -> tuple[str, ...]:
  of = f'knn_lm.model_workdir=@{base}', f'knn_lm.max_documents={documents}'
  exact = ('knn_lm.index.searcher=exact',) if documents < 600 else ()
  return (_KNN, *of, *_TUNED, *exact)


def _bytes(documents: int, rows: int, of_ngrams: int) -> dict:
  """Arms that are as large as a RETRO with its neighbors."""
  return {
    'longer': (_BASELINE, 'num_steps=675'),
    'copier': (_BASELINE, 'model.d_ff=960', *_COPY),
    'knn_lm': _knn_lm('baseline', documents),
    '_fewer_rows': (_NGRAMS, f'model.ngrams.rows={rows}'),
    'knn_lm_ngrams': _knn_lm('_fewer_rows', of_ngrams),
  }


def _training(documents: int) -> dict:
  """Arms whose training costs as much; keys of the documents as 156 steps."""
  return _arms() | {
    'copier': ('@baseline', *_COPY),
    '_fewer_steps': (_BASELINE, 'num_steps=370'),
    'knn_lm': _knn_lm('_fewer_steps', documents),
    '_fewer_steps_ngrams': (_NGRAMS, 'num_steps=350'),
    'knn_lm_ngrams': _knn_lm('_fewer_steps_ngrams', documents),
  }


# Argument -> budget and arms.
_EQUAL = {
  'bytes': (14.11e6, _arms() | _bytes(160, 4096, 90)),
  'flops': (11.02e12, _training(4000)),
  'seconds': (187.0, _training(4000)),
  'bytes_simple': (91.92e6, _arms(648, 65536, 20) | _bytes(500, 32768, 330)),
  'flops_simple': (11.02e12, _training(970)),
  'seconds_simple': (208.0, _training(970)),
}
_TEST = {
  'baseline': ('retro_pretrain_quickstart:baseline_test',),
  'retro_2': ('retro_pretrain_quickstart:test', *_TWO),
  'copier': ('@baseline', 'evaluate.evaluators=copying'),
  '_ngrams': ('retro_pretrain_quickstart:ngram_test', 'num_steps=3'),
  'knn_lm': ('knn_lm_small:test', *_knn_lm('_ngrams', 99)[1:]),
}


def get_config(arg: str = 'bytes') -> configs.Config:
  configs.check_arg(arg, [*_EQUAL, 'test'])
  simple = arg.endswith('_simple')
  c = configs.of(Config, corpus='simplewiki' if simple else 'quickstart')
  c.fields = ('neighbors.source=bm25',)
  c.budget, arms = _EQUAL.get(arg, (1e7, _TEST))
  with c.unlocked():
    c.arms = arms
  if arg == 'test':
    c.splits, c.num_seeds = ('test',), 1
    return c
  c.equal = arg.removesuffix('_simple')
  if c.equal == 'bytes':
    c.fields = (*c.fields, 'num_steps=250')
  return c
