# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Judge whether a language model's figures can be believed, in one page of verdicts.

  python -m experiments.referee --workdir=RUN
  python -m experiments.referee --model=mine:log_probs --texts=held_out.jsonl

RUN is the folder of a RETRO, of its baseline, of a RETROfit, of an evaluated kNN-LM or of
a REALM; or packaged, smollm2 or realm, models of the package. Documents are those of
--split, or the lines of --texts (.txt, or .jsonl with "text"). --mixture=copying judges
RUN mixed with the n-grams of its neighbors, as the evaluator copying wrote it.

--model names a Scorer (retro_jax.evaluation.referee), or a function of token ids [B, T]
that returns log-probabilities [B, T, V] in nats, row t those of token t + 1. `encode` in
the same module turns a text into token ids, of which the first one is not scored.

The exit code is 1 where a verdict fails.
"""

import concurrent.futures
import dataclasses
import functools
import importlib
import itertools
import multiprocessing
import os
from typing import Any

from absl import flags
import jax
import numpy as np

from experiments.engine import command
from experiments.knn_lm import evaluate as knn_lm
from experiments.realm import masked_words
from experiments.retro import copying
from realm_jax.trained import (
  loading as realm_loading,
  packaged as realm_packaged,
)
from retrieval.readers import base as readers, json_files
from retrieval.store import checkpoints, children, hub
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import referee as referee_lib
from retro_jax.trained import language_model, packaged

_REALM = 'realm'  # that of the package


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a model is, for this process and another one."""

  model: str = ''  # module:name
  workdir: str = ''
  data_dir: str = ''
  mixture: str = ''

  @property
  def folder(self) -> str | os.PathLike:
    """The folder of `workdir`; models of the package are made first."""
    if self.workdir == _REALM:
      return realm_packaged.take()
    if self.workdir in packaged.NAMES:
      return packaged.named(self.workdir)
    return hub.local(self.workdir)


@functools.lru_cache(maxsize=1)
def load(place: Place) -> tuple[Any, referee_lib.Scorer]:
  """Return a loaded model, None for one of --model, and what it shows."""
  if place.model:
    return None, _of_module(place.model)
  workdir = place.folder
  if place.mixture:
    model = language_model.load(workdir, place.data_dir)
    model = copying.load(model, workdir)
  elif knn_lm.is_mixed(workdir):
    model = knn_lm.load(workdir, place.data_dir)
  elif 'embedding' not in checkpoints.find(str(workdir)).params:
    model = realm_loading.load(workdir, place.data_dir, part='realm')
    return model, masked_words.scorer(model)
  else:
    model = language_model.load(workdir, place.data_dir)
  return model, model.scorer()


def _of_module(name: str) -> referee_lib.Scorer:
  module_name, _, attribute = name.partition(':')
  try:
    module = importlib.import_module(module_name)
    scorer = referee_lib.as_scorer(getattr(module, attribute))
  except (ImportError, AttributeError, TypeError, ValueError) as error:
    raise ValueError(
      f'--model={name}: {error}; expected MODULE:FUNCTION.'
    ) from error
  encode = scorer.encode or getattr(module, 'encode', None)
  return dataclasses.replace(scorer, encode=encode)


def read_texts(path: str, most: int) -> list[str]:
  """Read the texts of the first lines of a file."""
  lines = itertools.islice(json_files.read_prompts(path, 'text'), most)
  return [readers.string(record, 'text', where) for where, record in lines]


def held_out(model: Any, place: Place, split: str, most: int) -> list[Any]:
  """Return documents of a model's data that it was not trained on."""
  if not isinstance(model, language_model.LanguageModel):
    config = checkpoints.find(str(place.folder)).config
    share = config.get('valid_fraction', 0.0)
    return masked_words.documents(model, share, most)
  # Opened anew: what the model does not open itself is not of the model.
  data = dataclasses.replace(model.data)
  chunks = data.chunks(split)
  documents = windows_lib.find_documents(chunks, most).index.tolist()
  rows = [chunks.tokens.document(i) for i in documents]
  return [data.tokenizer.decode(x) for x in rows]


def _log_probs_anew(place: Place, *asked: Any) -> np.ndarray:
  return np.asarray(load(place)[1].log_probs(*asked))


def judge(
  place: Place,
  texts: list[Any] | None = None,
  *,
  split: str = 'test',
  max_documents: int = 8,
  num_places: int = 8,
) -> referee_lib.Report:
  """Judge a model; another process loads it again.

  Args:
    texts: as of `referee`; default the documents of a split of the model's data.

  Raises:
    ValueError: for no texts of a model without data, or as `referee`.
  """
  model, scorer = load(place)
  if texts is None:
    if model is None:
      raise ValueError('--model needs --texts: a file of held-out documents.')
    texts = held_out(model, place, split, max_documents)
  if folder := jax.config.jax_compilation_cache_dir:
    os.environ['JAX_COMPILATION_CACHE_DIR'] = folder
  with concurrent.futures.ProcessPoolExecutor(
    1, multiprocessing.get_context('spawn'), children.exit_with_parent
  ) as other:
    return referee_lib.referee(
      scorer,
      texts,
      again=lambda *x: other.submit(_log_probs_anew, place, *x).result(),
      max_documents=max_documents,
      num_places=num_places,
    )


def main(unused_argv: list[str]) -> None:
  """Print the page of verdicts."""
  values = flags.FLAGS
  if bool(values.model) == bool(values.workdir):
    raise ValueError('expected --workdir=RUN or --model=MODULE:FUNCTION.')
  if values.model and values.mixture:
    raise ValueError('--mixture: expected --workdir=RUN beside it.')
  most = values.max_documents
  report = judge(
    Place(values.model, values.workdir, values.data_dir, values.mixture),
    read_texts(values.texts, most) if values.texts else None,
    split=values.split,
    max_documents=most,
    num_places=values.num_places,
  )
  print(report)
  if report.failed:
    raise SystemExit(1)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', '', 'Folder of the run.')
  flags.DEFINE_string('model', '', 'MODULE:FUNCTION of any other model.')
  flags.DEFINE_string('texts', '', '.txt or .jsonl of held-out documents.')
  flags.DEFINE_string('data_dir', '', 'Folder of the data, if they have moved.')
  flags.DEFINE_string('split', 'test', 'Documents of the data to score.')
  flags.DEFINE_enum('mixture', '', ['', 'copying'], 'Mix with n-grams.')
  flags.DEFINE_integer('max_documents', 8, 'Documents.', lower_bound=1)
  flags.DEFINE_integer('num_places', 8, 'Places of each.', lower_bound=1)
  command.main_of_script(main)
