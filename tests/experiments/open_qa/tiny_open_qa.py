# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny ORQA: data, questions with answers in the blocks, and its config.

  python tiny_open_qa.py DATA WORKDIR ADDRESS PROCESS FIELDS

trains as one of two processes; FIELDS, a JSON object, override `get_config`.
"""

import dataclasses
import json
import pathlib
import sys
import types

import jax
import numpy as np

from experiments.engine import checkpoint_writer, configs, loop, metric_writer
from experiments.open_qa import config as config_lib, task as qa_task
from realm_jax.data import folder as realm_data
from realm_jax.trained import index_builder, loading, reader_configs
from retrieval.nn import sharding
from tests.experiments.realm import tiny_realm

WANTED = ('Paris', 'Rome', '1066', '1999', 'river', 'crown')


_FLAGS = {
  **{'question': [], 'input': '', 'output': '', 'answers': 3, 'as_of': ''},
  **{'reader_beam': 0, 'retriever': '', 'reranker': '', 'risk': 0.0},
  **{'kinds': ['bm25'], 'run': [], 'depth': 7, 'contexts': 3, 'beir': ''},
  **{'embedder': '', 'form': 'dpr', 'packaged': False},
}


class Flags(types.SimpleNamespace):
  """Values of flags of ask and retrieve; --workdir was given."""

  def __init__(self, **values):
    super().__init__(**_FLAGS | values)

  def __getitem__(self, name):
    assert name == 'workdir'
    return types.SimpleNamespace(using_default_value=False)


def make_data(root: pathlib.Path, metadata: str = '') -> pathlib.Path:
  """Writes a data folder with questions.jsonl and patterns.tsv in it."""
  tiny_realm.make_data(root, metadata)
  lines = [
    {'id': f'q{i}', 'question': f'The mill {i} stood in?', 'answer': [word]}
    for i, word in enumerate(WANTED)
  ]
  text = ''.join(json.dumps(line) + '\n' for line in lines)
  (root / 'questions.jsonl').write_text(text)
  (root / 'patterns.tsv').write_text(
    'p1\tfactoid\tWhen was the crown in Rome?\t(1066|1999)\n'
    'p2\tfactoid\tWhere was the mill?\tPar.s\n'
  )
  return root


def sets(data_dir: pathlib.Path) -> tuple[str, str]:
  """The question sets of `make_data`, to evaluate."""
  return (
    f'custom:test={data_dir}/questions.jsonl',
    f'curatedtrec:test={data_dir}/patterns.tsv',
  )


def set_tiny(c, data_dir: pathlib.Path) -> None:
  """Sets four steps of a tiny reader."""
  tiny_realm.tiny(c, str(data_dir))
  c.layout.query_length = 24
  c.lookup.row_length = 48
  c.update(batch_size=4, num_steps=4, eval_every=4, checkpoint_every=2)
  c.eval_batches = 1
  c.update(keep_checkpoints=4)
  c.optimizer.learning_rate = 1e-2


def get_config(
  data_dir: pathlib.Path, arg: str = 'test', **fields
) -> config_lib.Config:
  """Four steps of a tiny model on the data of `make_data`."""
  c = configs.of(config_lib.Config)
  config_lib.set_variant(c, arg)
  set_tiny(c, data_dir)
  c.lookup.retriever_beam = 12
  c.reader.max_span_width = 2  # each width is a program of its own
  c.questions.train = (f'custom:train={data_dir}/questions.jsonl',)
  c.questions.dev = (f'custom:dev={data_dir}/questions.jsonl',)
  c.questions.allow_other_counts = True
  return configs.replaced(configs.build(config_lib.Config, c), **fields)


def task(config, workdir, devices=None):
  """Returns the task of a config."""
  data = tiny_realm.data_of(config)
  return qa_task.make_task(config, data, str(workdir), devices=devices)


def train(config, workdir, devices=None):
  """Trains on one device, or on these; returns the state and the metrics."""
  devices = devices or jax.devices()[:1]
  config = qa_task.freeze(config)
  made = task(config, workdir, devices)
  state = loop.train(made, config, str(workdir), devices=devices)
  return state, metric_writer.read(workdir)


def save(workdir: pathlib.Path, trained, config, **fields) -> None:
  """Writes the checkpoint of a run that has not been trained."""
  checkpoint_writer.save_params(
    str(workdir),
    trained.params,
    config=dataclasses.asdict(config),
    fingerprints=trained.data.fingerprints(),
    **fields,
  )


def reader_of(config, data):
  """A reader before training."""
  model = reader_configs.reader_config(config, data.tokenizer.vocab_size)
  key = jax.random.split(jax.random.key(config.seed))[0]
  params = qa_task.init_params(key, config=config, model=model)
  found = loading.of_params(config, data, sharding.unbox(params), 0)
  own = qa_task.kept_embedder(config, model.realm)
  return dataclasses.replace(found, block_params=own)


def untrained(root: pathlib.Path) -> types.SimpleNamespace:
  """A run of a reader that has not been trained, in `root`."""
  data, workdir = make_data(root / 'data'), root / 'run'
  config = get_config(data)
  trained = reader_of(config, realm_data.DataFolder(data))
  save(workdir, trained, config)
  return types.SimpleNamespace(config=config, workdir=workdir, data=data)


def fine_tuned(root: pathlib.Path) -> types.SimpleNamespace:
  """A run whose index is of the embedder that it began with, in `root`."""
  data, workdir = make_data(root / 'data', 'year'), root / 'run'
  config = get_config(data)
  trained = reader_of(config, realm_data.DataFolder(data))
  index = trained.as_realm().open_index(workdir / index_builder.INDEX)
  rng = np.random.default_rng(0)
  embedder = jax.tree.map(
    lambda x: x + 0.1 * rng.normal(size=x.shape).astype(x.dtype),
    trained.params['embedder'],
  )
  params = {**trained.params, 'embedder': embedder}
  changed = dataclasses.replace(trained, params=params)
  save(workdir, changed, config, index_version=index.version.name)
  return types.SimpleNamespace(data=data, config=config, workdir=workdir)


def main() -> None:
  """Trains as one of two processes."""
  data, workdir, address, process, fields = sys.argv[1:]
  jax.config.update('jax_platforms', 'cpu')
  jax.distributed.initialize(address, 2, int(process))
  qa_task.train(get_config(pathlib.Path(data), **json.loads(fields)), workdir)


if __name__ == '__main__':
  main()
