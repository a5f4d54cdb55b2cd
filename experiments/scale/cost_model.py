# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Hours, memory, disk and network of each stage of a corpus, computed from rates.

A stage waits for several things at once, such as cores and the network; the slowest
one decides its time. Work is taken to spread evenly over hosts.
"""

from collections.abc import Mapping
import dataclasses
import math

from experiments.accelerators import chips
from experiments.scale import job as job_lib
from experiments.scale.rates import Rates
from retrieval.nn import bert
from retrieval.searchers import partition, scann

CORES, CHIPS, DRIVER = 'cores', 'chips', 'driver'
FEEDING, NETWORK, STORAGE = 'feeding cores', 'network', 'storage'
# REALM's evidence (Guu et al. 2020, section 4.2): blocks, wordpieces, dimension.
BLOCKS, BLOCK_LENGTH, BLOCK_WIDTH = 13_353_718, 288, 128
# As the library does: rows of each query that are fetched and that are scored again,
# queries of a batch, queries of the recall check.
FETCHED, RESCORED, QUERY_BATCH, CHECKED = 128, 256, 1024, 500
PAGE = 4096  # bytes
# Bytes a row of the stores, beside tokens and vectors: of a document, with an id and
# a title of 32 bytes, of a chunk, and of a neighbor.
DOCUMENT_BYTES, CHUNK_BYTES, NEIGHBOR_BYTES = 48 + 32, 28, 12
# Bytes a row of shards by centroid: of a shard's number, and of the list of its rows.
PART_BYTES, ROW_BYTES = 2, 8
# Peak bytes of a document while the search of neighbors counts chunks by document.
COUNTED_BYTES = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
  """Prediction for one stage."""

  name: str
  times: Mapping[str, float]  # what it waits for -> seconds
  ram: float = 0.0  # bytes of a host
  disk: float = 0.0  # bytes that it leaves, in all
  network: float = 0.0  # bytes, in all

  @property
  def bottleneck(self) -> str:
    """Resource that the stage waits for longest."""
    return max(self.times, key=self.times.__getitem__)

  @property
  def seconds(self) -> float:
    """Seconds of the stage."""
    return max(self.times.values())

  @property
  def rates(self) -> str:
    """Where the rates come from."""
    return 'measured, compiled' if CHIPS in self.times else 'measured'


def _traffic(
  job: job_lib.Job, rates: Rates, read: float, written: float, sent: float = 0
) -> tuple[dict[str, float], float]:
  """Seconds by storage and by network, and bytes of the network.

  Args:
    read: bytes from storage, which other hosts see over the network.
    written: bytes to storage.
    sent: bytes between hosts.
  """
  shared = 1e9 * job.storage_gb_per_sec
  disks = (job.hosts * rates[f'disk_{x}'].value for x in ('read', 'write'))
  at = [shared or x for x in disks]
  times = {STORAGE: read / at[0] + written / at[1]}
  if job.hosts == 1:
    return times, 0.0
  total = read + written + sent
  return times | {NETWORK: total / (job.hosts * job.network)}, total


def tokenize(job: job_lib.Job, rates: Rates) -> Stage:
  """Tokenize documents in all processes.

  With split reading these processes read the files twice, and `readers` processes count
  the documents in between. Else `readers` processes read the files for all.
  """
  text = job.text_bytes(rates)
  disk = job.tokens * job.token_bytes + job.documents * DOCUMENT_BYTES
  work, parsing = text / rates['tokenize'].value, text / rates['read'].value
  if job.split_reading:
    times, network = _traffic(job, rates, 2 * text, disk)
    times[CORES] = (work + 2 * parsing) / job.all_cores
    times[DRIVER] = job.documents * rates['count'].value / job.readers
  else:
    times, network = _traffic(job, rates, text, disk, sent=text)
    times[CORES] = work / job.all_cores
    times[DRIVER] = parsing / job.readers
    if job.hosts > 1:  # what the driver sends leaves its host
      sending = text / job.network / min(job.readers, job.hosts)
      times[NETWORK] = max(times[NETWORK], sending)
  shard = text / job.documents * job.documents_per_shard
  return Stage(
    name='tokenize',
    times=times,
    ram=2 * 2 * job.cores * shard,  # two shards a process, and their tokens
    disk=disk,
    network=network,
  )


def chunk(job: job_lib.Job, rates: Rates) -> Stage:
  """Cut documents into chunks, which are spans."""
  disk = job.chunks * CHUNK_BYTES
  times, network = _traffic(job, rates, job.documents * 16, disk)
  times[CORES] = job.chunks / rates['chunk'].value / job.all_cores
  shard = job.documents_per_shard * job.chunks / job.documents
  return Stage(
    name='chunk',
    times=times,
    ram=job.cores * shard * 2 * CHUNK_BYTES,
    disk=disk,
    network=network,
  )


def encoding_times(
  job: job_lib.Job,
  rates: Rates,
  wordpieces: float,
  length: float,
) -> dict[str, float]:
  """Seconds in which all hosts encode wordpieces, in rows of a length."""
  if job.accelerators:
    rate = rates[f'wordpieces_{job.embedder}_{job.chip}'].value
    return {CHIPS: wordpieces / rate / job.all_chips}
  config = job_lib.EMBEDDERS[job.embedder]
  flops = wordpieces * bert.flops_per_token(config, math.ceil(length))
  return {CORES: flops / rates['embed'].value / job.all_cores}


def embed(job: job_lib.Job, rates: Rates) -> Stage:
  """Embed the text of every chunk."""
  length = job.wordpieces(rates)
  disk = job.chunks * job.vector_bytes
  read = job.tokens * job.token_bytes + job.chunks * CHUNK_BYTES
  times, network = _traffic(job, rates, read, disk)
  times |= encoding_times(job, rates, job.chunks * length, length)
  text = job.text_bytes(rates)
  if job.accelerators:
    times[FEEDING] = text / rates['feed'].value / job.all_cores
  shard = job.documents_per_shard * job.chunks / job.documents
  return Stage(
    name='embed',
    times=times,
    ram=shard * (4 * job.width + 2 * text / job.chunks),
    disk=disk,
    network=network,
  )


def build_features(
  rows: float, dimension: int, leaves: float, sample: float
) -> list[float]:
  """Terms of the fit to the seconds of building a ScaNN."""
  return [
    rows * dimension,
    rows * leaves * dimension,
    sample * leaves * dimension,
  ]


def search_features(
  rows: float, dimension: int, leaves: float, searched: float
) -> list[float]:
  """Terms of the fit to the seconds of a query: one, leaves, rows in its leaves."""
  return [1, leaves * dimension, rows * searched / leaves * -(-dimension // 2)]


def partition_features(shards: float, dimension: int) -> list[float]:
  """Terms of the fit to the seconds in which a row's nearest shards are found."""
  return [shards * dimension, shards]


def scann_settings(job: job_lib.Job) -> scann.ScannConfig:
  """Settings of each shard, as the library chooses them."""
  rows = math.ceil(job.chunks / job.num_shards)
  config = scann.ScannConfig(num_to_rescore=min(rows, RESCORED))
  config = config.filled(rows, 'squared_l2')
  if not job.leaves_searched:
    return config
  searched = min(job.leaves_searched, config.num_leaves)
  return dataclasses.replace(config, num_leaves_to_search=searched)


def _shard_rows_of_host(job: job_lib.Job) -> float:
  """Rows of the shards that a host holds; hosts beyond the shards hold copies."""
  return math.ceil(job.num_shards / job.hosts) * job.chunks / job.num_shards


def index(job: job_lib.Job, rates: Rates) -> Stage:
  """Build the shards of the index, one on a host at a time, and measure recall."""
  rows = job.chunks / job.num_shards
  turns = math.ceil(job.num_shards / job.hosts)
  disk = 0.0 if job.codes == 'exact' else job.chunks * job.code_bytes
  is_partitioned = job.shards_asked < job.num_shards
  vectors, files = job.chunks * job.vector_bytes, disk
  # Vectors are read to be checked, to make codes, and for the exact search of the
  # recall check. The shards answer once, and again beside the answer of all shards.
  # Then files are hashed.
  read = (2 + (job.codes != 'exact')) * vectors + disk
  read += (1 + 2 * is_partitioned) * (disk or vectors)
  if is_partitioned:
    disk += job.chunks * ROW_BYTES
    nearest = (
      job.chunks * PART_BYTES * min(job.num_shards, partition.NUM_NEAREST)
    )
    parts = job.chunks * PART_BYTES
    files = disk + nearest + parts
    read += nearest + job.num_shards * parts
  times, network = _traffic(job, rates, read, files)
  products = CHECKED * 2.0 * job.chunks * job.width
  seconds = products / rates['exact'].value
  if job.codes != 'scann':
    few = job.shards_asked / job.num_shards
    answers = 2 * few + 1 if is_partitioned else 1
    seconds += answers * products / rates[job.codes].value
  seconds /= job.all_cores
  ram = _shard_rows_of_host(job) * job.code_bytes
  if job.codes == 'scann':
    config = scann_settings(job)
    features = build_features(
      rows, job.width, config.num_leaves, config.training_sample_size
    )
    names = ('scann_hash', 'scann_assign', 'scann_train')
    build = _weighed(rates, names, features)
    seconds += turns * build / job.cores
    ram = job.scann_bytes(rows)[0]
  if is_partitioned:
    features = partition_features(job.num_shards, job.width)
    names = ('partition_product', 'partition_choice')
    seconds += job.chunks * _weighed(rates, names, features) / job.all_cores
    times[DRIVER] = job.chunks * rates['place'].value  # one process, in order
  times[CORES] = seconds
  return Stage(name='index', times=times, ram=ram, disk=disk, network=network)


def _weighed(rates: Rates, names, features) -> float:
  return sum(
    rates[name].value * x for name, x in zip(names, features, strict=True)
  )


def query_sec(job: job_lib.Job, rates: Rates) -> dict[str, float]:
  """Seconds of one query in the shards that it asks: of one core, or of one chip."""
  asked = job.shards_asked
  if job.codes == 'scann':
    config = scann_settings(job)
    features = search_features(
      job.chunks / job.num_shards,
      job.width,
      config.num_leaves,
      config.num_leaves_to_search,
    )
    names = ('search_query', 'search_leaf', 'search_row')
    return {CORES: asked * _weighed(rates, names, features)}
  rows = job.chunks * asked / job.num_shards
  flops = 2.0 * rows * job.width
  if not job.accelerators:
    return {CORES: flops / rates[job.codes].value}
  chip = chips.CHIPS[job.chip]
  reading = rows * job.code_bytes / chip.bandwidth / QUERY_BATCH
  passes = rates['search_passes'].value
  return {CHIPS: max(passes * flops / chip.flops, reading)}


def rescoring_bytes(job: job_lib.Job) -> float:
  """Bytes that scoring again reads from storage: pages that memory does not hold."""
  if job.codes == 'exact':
    return 0.0
  vectors = job.chunks * job.vector_bytes
  spare = job.hosts * job.ram - job.chunks * job.code_bytes
  missing = 1 - min(1.0, max(0.0, spare) / vectors)
  pages = math.ceil(job.vector_bytes / PAGE) * PAGE
  return missing * job.chunks * RESCORED * pages


def neighbors(job: job_lib.Job, rates: Rates) -> Stage:
  """Search the neighbors of every chunk in the shards it asks, and merge them."""
  disk = job.chunks * job.k * NEIGHBOR_BYTES
  read = job.chunks * job.vector_bytes + rescoring_bytes(job)
  found = job.shards_asked * FETCHED * NEIGHBOR_BYTES
  hosts = min(job.hosts, job.shards_asked)
  sent = job.chunks * (hosts * job.width * 4 + found)
  times, network = _traffic(job, rates, read, disk, sent)
  workers = {CORES: job.all_cores, CHIPS: job.all_chips}
  for what, sec in query_sec(job, rates).items():
    times[what] = job.chunks * sec / workers[what]
  held = _shard_rows_of_host(job) * job.code_bytes
  if CHIPS in times:
    held = 0.0  # memory of the chips
  return Stage(
    name='neighbors',
    times=times,
    ram=held + job.documents * COUNTED_BYTES,
    disk=disk,
    network=network,
  )


def stages(job: job_lib.Job, rates: Rates) -> list[Stage]:
  """Predict the stages of RETRO's data."""
  made = (tokenize, chunk, embed, index, neighbors)
  return [stage(job, rates) for stage in made]


def refresh(job: job_lib.Job, rates: Rates) -> list[Stage]:
  """Predict REALM's refresh: 13 M blocks embedded by BERT base and indexed."""
  blocks = dataclasses.replace(
    job,
    chunks=BLOCKS,
    embedder='bert_base',
    dimension=BLOCK_WIDTH,
    shards=0,
  )
  disk = BLOCKS * blocks.vector_bytes
  read = BLOCKS * BLOCK_LENGTH * 2.0
  times, network = _traffic(blocks, rates, read, disk)
  pieces = BLOCKS * BLOCK_LENGTH
  times |= encoding_times(blocks, rates, pieces, BLOCK_LENGTH)
  made = Stage(
    name='REALM refresh: embed', times=times, disk=disk, network=network
  )
  found = index(blocks, rates)
  return [made, dataclasses.replace(found, name='REALM refresh: index')]
