# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The corpus and the machines of a plan; the fields are the flags of the command."""

import dataclasses
import math
from typing import Any

from absl import flags

from experiments.accelerators import chips
from experiments.scale import rates as rates_lib
from retrieval.index import vectors
from retrieval.nn import bert
from retrieval.searchers import scann
from retrieval.store import sharded_array

# Sizes of the encoders whose embedding is compiled.
EMBEDDERS = {
  'minilm': bert.BertConfig(d_model=384, d_ff=1536, num_layers=6),
  'bert_base': bert.BertConfig(),
}
CODES = ('scann', 'int8', 'exact')
_GIB = 2**30
_NAMES = {
  'embedder': tuple(EMBEDDERS),
  'vectors_dtype': vectors.DTYPES,
  'codes': CODES,
  'chip': tuple(chips.CHIPS),
}
_MAY_BE_ZERO = {
  'bytes_per_token',
  'dimension',
  'shards',
  'shards_to_search',
  'leaves_searched',
  'storage_gb_per_sec',
  'accelerators',
  'refresh_every',
}
# Field -> what --help says.
HELP = {
  'chunks': 'Chunks of the datastore.',
  'tokens_per_chunk': 'Tokens of a chunk.',
  'tokens_per_document': 'Tokens of a document.',
  'bytes_per_token': 'Bytes of text of a token; 0: as measured.',
  'vocab_size': 'Tokens of the vocabulary.',
  'embedder': 'Encoder of chunks.',
  'dimension': "Dimension of a vector; 0: the encoder's width.",
  'vectors_dtype': 'Type of the stored vectors.',
  'codes': 'What the memory holds of the vectors.',
  'shards': 'Shards of the index; 0: one a host, or as many as memory demands.',
  'shards_to_search': 'Nearest shards that a query asks; 0: all.',
  'leaves_searched': "Leaves of each shard; 0: the library's choice.",
  'k': 'Neighbors stored for each chunk.',
  'documents_per_shard': 'Documents of a shard of the stores.',
  'hosts': 'Hosts.',
  'cores': 'Cores of a host.',
  'ram_gib': 'GiB of memory of a host.',
  'disk_tb': 'TB of disk of a host.',
  'network_gbit': 'Gbit/s of the network of a host.',
  'storage_gb_per_sec': 'GB/s of the file system; 0: a measured disk a host.',
  'readers': 'Processes that read documents, or count them, for all workers.',
  'split_reading': 'Whether workers read the files, as uncompressed JSON lines.',
  'accelerators': 'Accelerators of a host.',
  'chip': 'Kind of the accelerators.',
  'refresh_every': "Steps between two of REALM's indices; 0: no REALM.",
  'within_hours': 'Hours that a stage may take.',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """A corpus and the machines that prepare it; HELP describes the fields."""

  chunks: float = 1e9
  tokens_per_chunk: int = 64
  tokens_per_document: float = 1000.0
  bytes_per_token: float = 0.0
  vocab_size: int = 128_000
  embedder: str = 'minilm'
  dimension: int = 0
  vectors_dtype: str = 'bfloat16'
  codes: str = 'scann'
  shards: int = 0
  shards_to_search: int = 0
  leaves_searched: int = 0
  k: int = 10
  documents_per_shard: int = 1024
  hosts: int = 1
  cores: int = 32
  ram_gib: float = 256.0
  disk_tb: float = 8.0
  network_gbit: float = 25.0
  storage_gb_per_sec: float = 0.0
  readers: int = 1
  split_reading: bool = True
  accelerators: int = 0
  chip: str = 'h100'
  refresh_every: int = 0
  within_hours: float = 168.0

  def __post_init__(self):
    """Check the fields.

    Raises:
      ValueError: for a value out of its range, or of no name.
    """
    for name, known in _NAMES.items():
      if getattr(self, name) not in known:
        raise ValueError(
          f'--{name}={getattr(self, name)!r}: expected one of {list(known)}.'
        )
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if isinstance(value, str | bool):
        continue
      zero = field.name in _MAY_BE_ZERO
      if not (0 < value < math.inf or (zero and not value)):
        least = '0 or more' if zero else 'more than 0'
        raise ValueError(f'--{field.name}={value}: expected {least}.')

  @property
  def tokens(self) -> float:
    """Tokens of all chunks."""
    return self.chunks * self.tokens_per_chunk

  @property
  def documents(self) -> float:
    """Documents of the corpus."""
    return max(1.0, self.tokens / self.tokens_per_document)

  @property
  def token_bytes(self) -> int:
    """Bytes of a stored token."""
    return 2 if self.vocab_size <= 1 << 16 else 4

  @property
  def width(self) -> int:
    """Dimension of a vector."""
    return self.dimension or EMBEDDERS[self.embedder].d_model

  @property
  def vector_bytes(self) -> int:
    """Bytes of a stored vector."""
    return self.width * sharded_array.dtype_of(self.vectors_dtype).itemsize

  @property
  def code_bytes(self) -> float:
    """Bytes of a vector's code in memory."""
    if self.codes == 'exact':
      return self.vector_bytes
    if self.codes == 'int8':
      return self.width + 4  # and its scale
    return self.scann_bytes(1)[1]

  def scann_bytes(self, rows: float) -> tuple[int, int]:
    """Bytes of a ScaNN of hashes alone, while it is built and searched."""
    config = scann.ScannConfig(rescore='none')
    return scann.expected_bytes(math.ceil(rows), self.width, config)

  @property
  def all_cores(self) -> int:
    """Cores of all hosts."""
    return self.hosts * self.cores

  @property
  def all_chips(self) -> int:
    """Accelerators of all hosts."""
    return self.hosts * self.accelerators

  @property
  def ram(self) -> float:
    """Bytes of memory of a host."""
    return self.ram_gib * _GIB

  @property
  def network(self) -> float:
    """Bytes a second of a host."""
    return self.network_gbit * 1e9 / 8

  @property
  def num_shards(self) -> int:
    """Shards of the index: a host has one, or as many as its memory demands."""
    if self.shards:
      return self.shards
    if self.codes != 'scann':
      return self.hosts
    least = self.scann_bytes(self.chunks)[0] / self.ram
    return self.hosts * max(1, math.ceil(least / self.hosts))

  @property
  def shards_asked(self) -> int:
    """Shards that each query asks."""
    return min(self.shards_to_search or self.num_shards, self.num_shards)

  def text_bytes(self, rates: rates_lib.Rates) -> float:
    """Bytes of text of all documents."""
    return self.tokens * (
      self.bytes_per_token or rates['bytes_per_token'].value
    )

  def wordpieces(self, rates: rates_lib.Rates) -> float:
    """Wordpieces of a chunk, [CLS] and [SEP] among them."""
    text = self.text_bytes(rates) / self.chunks
    return 2 + text / rates['bytes_per_wordpiece'].value


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
  """Define a flag for each field."""
  define = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
  }
  for field in dataclasses.fields(Job):
    name, known = field.name, _NAMES.get(field.name)
    if known:
      flags.DEFINE_enum(name, field.default, known, HELP[name], values)
    else:
      define[field.type](name, field.default, HELP[name], flag_values=values)


def of_flags(values: flags.FlagValues = flags.FLAGS) -> Job:
  """Return the job that the flags describe."""
  fields: dict[str, Any] = {
    x.name: values[x.name].value for x in dataclasses.fields(Job)
  }
  return Job(**fields)


def of_text(arguments: str) -> Job:
  """Return the job of flags in a line, such as '--chunks=1e9 --hosts=64'."""
  values = flags.FlagValues()
  define_flags(values)
  values(['plan', *arguments.split()])
  return of_flags(values)
