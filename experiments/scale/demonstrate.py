# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepare a corpus on a Ray cluster of this machine, and kill its nodes.

  python -m experiments.scale.demonstrate --workdir=runs/cluster

A head and two nodes of one core each run at the loopback device. One core without Ray
prepares a quarter of the packaged articles (or of --corpus, JSON lines), then all;
then one worker and two workers prepare all. After that nodes are killed with signal 9
at --kills seeded moments, each replaced by a new one, and the command itself once,
after which it is run again. The tables have the seconds of each stage and the peak
memory of one core. The command fails unless all folders of the same documents hold
the same bytes.

Flags after -- are those of experiments.prepare, such as
-- --config.index.shards=16.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time

from absl import flags, logging

from experiments.benchmarks import turns
from experiments.engine import command, reports
from experiments.scale import loopback
from retrieval.nn import bert_checkpoint

_STAGES = ('tokens', 'duplicates', 'chunks', 'vectors', 'index', 'neighbors')
_BEGINS = re.compile(r'Stage (\w+), in ')
_GIVEN = (
  '--config=configs/retro_pretrain_quickstart.py',
  '--config.tokens.documents_per_shard=64',
  '--config.tokens.num_processes=1',
  '--config.deduplicate.threshold=0.8',
  '--config.index.searcher=exact',
)
# The report of an index holds times.
_VARIES = ('index.json',)


def shorten(folder: pathlib.Path, num_layers: int) -> None:
  """Write the embedder of MiniLM's first layers."""
  folder.mkdir(parents=True)
  source = bert_checkpoint.find_minilm()
  shutil.copy(source / 'tokenizer.json', folder)
  config, params, _ = bert_checkpoint.load_mlm(source)
  for number in range(num_layers, config.num_layers):
    del params[f'layer_{number}']
  config = dataclasses.replace(config, num_layers=num_layers)
  bert_checkpoint.save(folder, config, params)


@dataclasses.dataclass
class Cost:
  """Seconds of a stage, and peak bytes of the command's process."""

  sec: float = 0.0
  anonymous: int = 0  # memory that is not a page of a file
  resident: int = 0


Costs = dict[str, Cost]  # of each stage


def wait(process: subprocess.Popen) -> Costs:
  """Wait for a preparation; ValueError when the command fails."""
  running, costs, lines = Cost(), {}, []
  ended, start = threading.Event(), time.monotonic()

  def sample():
    while not ended.wait(0.1):
      anonymous, resident = (
        turns.status_bytes(x, process.pid) for x in ('RssAnon', 'VmRSS')
      )
      running.anonymous = max(running.anonymous, anonymous)
      running.resident = max(running.resident, resident)

  sampler = threading.Thread(target=sample, daemon=True)
  sampler.start()
  try:
    for line in process.stderr:
      lines.append(line)
      if found := _BEGINS.search(line):
        running.sec, start = time.monotonic() - start, time.monotonic()
        running = costs[found[1]] = Cost()
    running.sec = time.monotonic() - start
    failed = process.wait()
  finally:
    process.kill()  # where this command is interrupted
    ended.set()
    sampler.join()
  if failed:
    raise ValueError(f'experiments.prepare: {"".join(lines[-3:])}')
  return {name: costs[name] for name in _STAGES}


def hashes(workdir: pathlib.Path) -> dict[str, str]:
  """Return the hash of each file that does not depend on time."""
  return {
    str(file.relative_to(workdir)): hashlib.sha256(
      file.read_bytes()
    ).hexdigest()
    for file in sorted((workdir / 'data').rglob('*'))
    if file.is_file() and not file.name.endswith(_VARIES)
  }


def check(wanted: Mapping[str, str], workdir: pathlib.Path) -> None:
  """Raise ValueError unless a folder holds the same bytes."""
  found = hashes(workdir)
  differ = sorted(x for x in {*wanted, *found} if wanted.get(x) != found.get(x))
  if differ or not wanted:
    raise ValueError(
      f'{workdir}: {len(differ)} of {len(wanted)} files differ, such as '
      f'{differ[:3]}; expected the bytes of one process.'
    )


@dataclasses.dataclass(frozen=True)
class _Demonstration:
  """Preparations of a corpus by the flags, in folders below --workdir."""

  root: pathlib.Path
  nodes: loopback.Nodes
  given: Sequence[str]  # flags of experiments.prepare

  def _start(
    self,
    name: str,
    documents: int,
    num_cores: int | None = None,
    workers: int | None = None,
  ) -> subprocess.Popen:
    """Start a preparation, by workers of the cluster (0: all) unless None."""
    arguments = [f'--workdir={self.root / name}', *self.given]
    arguments.append(f'--config.corpus.max_documents={documents}')
    if workers is not None:
      arguments.append(f'--config.cluster.address={self.nodes.address}')
      arguments.append(f'--config.cluster.workers={workers}')
    cores = sorted(os.sched_getaffinity(0))[:num_cores]
    return subprocess.Popen(
      [sys.executable, '-m', 'experiments.prepare', *arguments],
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
      preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )

  def prepare_all(self, documents: int) -> dict[str, Costs]:
    """Prepare the corpus in several ways; return the costs of each."""
    costs = {}
    for name, number, num_cores, workers in (
      ('a quarter', max(1, documents // 4), 1, None),
      ('one core', documents, 1, None),
      ('1 worker', documents, 1, 1),
      ('2 workers', documents, None, 2),
    ):
      logging.info('Preparing %d documents: %s.', number, name)
      costs[name] = wait(self._start(name, number, num_cores, workers))
      if workers is not None:
        check(hashes(self.root / 'one core'), self.root / name)
    return costs

  def kill_all(self, documents: int, kills: int) -> int:
    """Kill nodes at seeded moments, then the command; return the nodes killed."""
    draw, killed = random.Random(0), 0
    wait(self._start('kill', documents))
    wanted = hashes(self.root / 'kill')
    start = time.monotonic()
    wait(self._start('whole', documents, workers=0))
    seconds = time.monotonic() - start
    while killed < kills:
      name, moment = f'kill-{killed}', draw.uniform(0.2, 1.0) * seconds
      process = self._start(name, documents, workers=0)
      killer = threading.Timer(moment, self.nodes.kill)
      killer.start()
      wait(process)
      if not killer.is_alive():  # else the run was over before
        killed += 1
        logging.info('Kill %d after %.1f s.', killed, moment)
      killer.cancel()
      killer.join()
      check(wanted, self.root / name)
      shutil.rmtree(self.root / name)
      self.nodes.restore(2)
    process = self._start('kill-driver', documents, workers=0)
    time.sleep(seconds / 2)
    process.kill()
    process.communicate()
    wait(self._start('kill-driver', documents, workers=0))
    check(wanted, self.root / 'kill-driver')
    return killed


def _print(costs: dict[str, Costs], caption: str) -> None:
  """Print the seconds of each stage, and the peaks of its memory."""
  quarter, whole = costs.pop('a quarter'), costs['one core']
  totals = [sum(cost.sec for cost in x.values()) for x in costs.values()]
  rows = [
    (stage, *(f'{x[stage].sec:.1f}' for x in costs.values()))
    for stage in _STAGES
  ]
  rows.append(('all', *(f'{total:.1f}' for total in totals)))
  rows.append(('of one core', *(f'{x / totals[0]:.2f}' for x in totals)))
  title = f'{flags.FLAGS.documents:,} documents'
  reports.print_table(('stage, seconds', *costs), rows, title, caption)
  rows = []
  for stage in _STAGES:
    few, many = quarter[stage], whole[stage]
    peaks = few.anonymous, many.anonymous, few.resident, many.resident
    mib = [f'{x / 2**20:,.0f}' for x in peaks]
    ratio = f'{many.anonymous / max(few.anonymous, 1):.2f}'
    rows.append((stage, *mib[:2], ratio, *mib[2:]))
  reports.print_table(
    ('stage, MiB', 'a quarter', 'all', 'ratio', 'with files', 'all with files'),
    rows,
    'Peak memory of one core',
    'Without and with pages of mapped files, which the kernel drops at need.',
  )


def run(argv: list[str]) -> None:
  """Start the cluster, prepare, kill, and print the tables."""
  options = flags.FLAGS
  root = pathlib.Path(options.workdir).absolute()
  if root.exists():
    raise ValueError(f'--workdir={root}: exists; expected a new folder.')
  given = [*_GIVEN]
  if options.corpus:
    given += [f'--config.corpus.path={options.corpus}']
    given += ['--config.corpus.kind=jsonl']
  if options.encoder_layers:
    shorten(root / 'embedder', options.encoder_layers)
    given.append(f'--config.embedder.path={root / "embedder"}')
  given += argv[1:]
  with loopback.cluster(num_workers=2) as nodes:
    demonstration = _Demonstration(root, nodes, given)
    costs = demonstration.prepare_all(options.documents)
    killed = demonstration.kill_all(options.kill_documents, options.kills)
  caption = (
    f'All folders hold the same bytes, also of {killed} runs in which a node was '
    'killed and of one in which the command was.'
  )
  _print(costs, caption)


if __name__ == '__main__':
  command.define_output(
    'workdir', 'runs/cluster', 'New folder.', is_folder=True
  )
  flags.DEFINE_string('corpus', '', 'JSON lines, or the packaged articles.')
  flags.DEFINE_integer('documents', 2000, 'Documents to prepare.', 1)
  flags.DEFINE_integer('kill_documents', 400, 'Documents, to kill nodes.', 1)
  flags.DEFINE_integer('kills', 10, 'Moments in which a node is killed.', 0)
  flags.DEFINE_integer('encoder_layers', 0, 'Layers of MiniLM; 0 is all.', 0)
  command.main_of_script(run)
