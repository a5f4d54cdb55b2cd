# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections that configs share, built from the dataclasses that they fill."""

from collections.abc import Collection, Mapping
import dataclasses
from typing import Any

import ml_collections
from ml_collections import config_dict

from experiments.engine import run_settings
from realm_jax.serving import model_configs
from retrieval import searchers
from retrieval.index import index as index_lib
from retrieval.text import corpus as corpus_lib

Section = dict[str, Any]


def of(cls: type, *, without: Collection[str] = (), **values: Any) -> Section:
  """Return the section that fills a dataclass.

  Args:
    cls: dataclass. Its comments explain the fields; a field that is a dataclass
      becomes a section of its own.
    without: fields that no config sets.
    **values: take the place of defaults. A field that has neither is left out:
      the code that fills the dataclass knows it.

  Raises:
    ValueError: for a value of a field that does not exist.
  """
  section = {}
  for field in dataclasses.fields(cls):
    if field.default is not dataclasses.MISSING:
      section[field.name] = field.default
    elif field.default_factory is not dataclasses.MISSING:
      section[field.name] = field.default_factory()
  for name, value in section.items():
    if dataclasses.is_dataclass(value):
      section[name] = of(type(value), **dataclasses.asdict(value))
  unknown = {*values, *without} - {x.name for x in dataclasses.fields(cls)}
  if unknown:
    raise ValueError(f'{cls.__name__} has no field {sorted(unknown)}.')
  merged = section | {
    name: section[name] | value
    if isinstance(section.get(name), Mapping) and isinstance(value, Mapping)
    else value
    for name, value in values.items()
  }
  return {name: x for name, x in merged.items() if name not in without}


def check_arg(arg: str, known: Collection[str]) -> None:
  """Raise ValueError for an unknown argument of a config file."""
  if arg not in known:
    raise ValueError(f'Config argument {arg!r}: expected one of {known}.')


def corpus(kind: str) -> Section:
  """Source of documents."""
  return of(corpus_lib.CorpusConfig, kind=kind)


def index(*, without: Collection[str] = (), **values: Any) -> Section:
  """Settings of an index; ScaNN's zeros are chosen by the size of the data."""
  scann = of(searchers.ScannConfig, **values.pop('scann', {}))
  return of(index_lib.IndexConfig, without=without, scann=scann, **values)


def bert(checkpoint: str) -> Section:
  """One BERT; see `BertSection` for the checkpoint and the fields set beside it."""
  return of(model_configs.BertSection, checkpoint=checkpoint)


def workdir() -> config_dict.FieldReference:
  """The run that is evaluated; '' or None for --workdir."""
  return config_dict.placeholder(str)


def loop(**values: Any) -> Section:
  """Fields of the training loop, and the devices that it runs on."""
  return of(run_settings.Loop, **values)


def shrink_loop(config: ml_collections.ConfigDict) -> None:
  """Cut the loop to four steps that take a CPU seconds."""
  config.tokens.num_processes = 1
  config.update(
    batch_size=8,
    num_steps=4,
    log_every=1,
    eval_every=2,
    eval_batches=1,
    checkpoint_every=2,
    mesh={'data': -1, 'fsdp': 1, 'tensor': 1},
  )
  config.optimizer.update(
    learning_rate=1e-3, warmup_steps=2, accumulate_steps=1
  )
