# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepare a corpus on a Ray cluster of this machine, and kill its nodes.

  python -m experiments.scale.demonstrate --workdir=runs/cluster

A head and nodes of one core each are started at the loopback device, and ended at the
end. One core without Ray prepares a quarter of the packaged articles (or of --corpus,
JSON lines), then all. One worker prepares all, then two workers do. After that nodes
are killed with signal 9 at --kills seeded moments, each replaced by a new one, and the
command itself at one, after which it is run again. The tables have the seconds of each
stage and the peak memory of one core. The command fails unless all folders of the same
documents hold the same bytes.

Flags after -- are those of experiments.retro.prepare, such as
-- --config.index.shards=16.
"""

import dataclasses
import hashlib
import json
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
from safetensors import numpy as safetensors_numpy

from experiments.benchmarks import turns
from experiments.engine import command, reports
from experiments.scale import loopback
from retrieval.nn import embedders

_STAGES = ('tokens', 'duplicates', 'chunks', 'vectors', 'index', 'neighbors')
_BEGINS = re.compile(r'Stage (\w+), in ')
# Times of an index's building are in its report.
_VARIES = ('index.json', '.verified')
_EMBEDDER = 'embedder'  # folder


def _define() -> None:
  flags.DEFINE_string(
    'workdir', 'runs/cluster', 'Folder of everything written.'
  )
  flags.DEFINE_string(
    'corpus', '', 'JSON lines; the packaged articles if empty.'
  )
  flags.DEFINE_integer('documents', 2000, 'Documents to prepare.', 1)
  flags.DEFINE_integer('kill_documents', 400, 'Documents, to kill nodes.', 1)
  flags.DEFINE_integer('kills', 10, 'Moments in which a node is killed.', 0)
  flags.DEFINE_integer('seed', 0, 'Seed of the moments.', 0)
  flags.DEFINE_bool(
    'hold_shards', False, "Whether actors hold an index's shards."
  )
  flags.DEFINE_string('output', '', 'JSON file to write.')
  flags.DEFINE_integer(
    'encoder_layers', 0, 'First layers of MiniLM that embed; 0 is all.', 0
  )


def _shorten(folder: pathlib.Path, num_layers: int) -> None:
  """Write the embedder of MiniLM's first layers."""
  folder.mkdir(parents=True)
  source = embedders.find_minilm()
  shutil.copy(source / 'tokenizer.json', folder)
  config = json.loads((source / 'config.json').read_text())
  config['num_hidden_layers'] = num_layers
  (folder / 'config.json').write_text(json.dumps(config))
  tensors = safetensors_numpy.load_file(source / 'model.safetensors')
  kept = {
    name: tensor
    for name, tensor in tensors.items()
    if not (layer := re.search(r'encoder\.layer\.(\d+)\.', name))
    or int(layer.group(1)) < num_layers
  }
  safetensors_numpy.save_file(kept, folder / 'model.safetensors')


def _start(
  workdir: pathlib.Path, documents: int, cores: set[int], *more: str
) -> subprocess.Popen:
  """Start to prepare a corpus on some cores."""
  arguments = [
    '--config=configs/retro_pretrain_quickstart.py',
    f'--workdir={workdir}',
    f'--config.corpus.max_documents={documents}',
    '--config.tokens.documents_per_shard=64',
    '--config.tokens.num_processes=1',
    '--config.deduplicate.threshold=0.8',
    '--config.index.searcher=exact',
  ]
  if flags.FLAGS.corpus:
    arguments += [
      '--config.corpus.kind=jsonl',
      f'--config.corpus.path={flags.FLAGS.corpus}',
    ]
  if flags.FLAGS.encoder_layers:
    embedder = workdir.parent / _EMBEDDER
    arguments.append(f'--config.embedder.path={embedder}')
  return subprocess.Popen(
    [sys.executable, '-m', 'experiments.retro.prepare', *arguments, *more],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
    preexec_fn=lambda: os.sched_setaffinity(0, cores),
  )


@dataclasses.dataclass
class _Cost:
  """Seconds of a stage, and peak bytes of the command's process."""

  sec: float
  anonymous: int = 0  # memory that is no page of a file
  resident: int = 0

  def sample(self, process: int) -> None:
    """Look at the memory of now."""
    for name, line in (('anonymous', 'RssAnon'), ('resident', 'VmRSS')):
      now = turns.status_bytes(line, process)
      setattr(self, name, max(getattr(self, name), now))


def _wait(process: subprocess.Popen) -> dict[str, _Cost]:
  """Return the costs of each stage.

  Raises:
    ValueError: when the command fails.
  """
  costs, lines, ended = {}, [], threading.Event()
  now = _Cost(0)  # of the stage that runs

  def sample():
    while not ended.wait(0.1):
      now.sample(process.pid)

  sampler = threading.Thread(target=sample, daemon=True)
  sampler.start()
  start = time.monotonic()
  try:
    for line in process.stderr:
      lines.append(line)
      if found := _BEGINS.search(line):
        now.sec, start = time.monotonic() - start, time.monotonic()
        now = costs[found.group(1)] = _Cost(0)
        now.sample(process.pid)
      if 'runs again' in line:
        logging.info('%s', line.rstrip())
    now.sec = time.monotonic() - start
    failed = process.wait()
  finally:
    process.kill()  # where this command is ended
    ended.set()
    sampler.join()
  if failed:
    raise ValueError(f'experiments.retro.prepare: {"".join(lines[-3:])}')
  return {name: costs[name] for name in _STAGES}


def _hashes(workdir: pathlib.Path) -> dict[str, str]:
  """Return the hash of each file that does not depend on time."""
  return {
    str(file.relative_to(workdir)): hashlib.sha256(
      file.read_bytes()
    ).hexdigest()
    for file in sorted((workdir / 'data').rglob('*'))
    if file.is_file() and not file.name.endswith(_VARIES)
  }


def _check(wanted: dict[str, str], workdir: pathlib.Path) -> None:
  """Raise ValueError unless a folder holds the same bytes."""
  found = _hashes(workdir)
  differ = sorted(x for x in {*wanted, *found} if wanted.get(x) != found.get(x))
  if differ or not wanted:
    raise ValueError(
      f'{workdir}: {len(differ)} of {len(wanted)} files differ, such as '
      f'{differ[:3]}; expected the bytes of one process.'
    )


def _prepare_all(
  nodes: loopback.Nodes, root: pathlib.Path, cores: list[int], given: list[str]
) -> dict[str, dict[str, _Cost]]:
  """Prepare a corpus in several ways; return what `_wait` does, of each."""
  documents, wanted = flags.FLAGS.documents, {}
  ways = {
    'a quarter': (max(1, documents // 4), cores[:1], []),
    'one core': (documents, cores[:1], []),
    '1 worker': (documents, cores[:1], _on_cluster(nodes, 1)),
    '2 workers': (documents, cores, _on_cluster(nodes, 2)),
  }
  costs = {}
  for name, (number, some, more) in ways.items():
    logging.info('Preparing %d documents: %s.', number, name)
    folder = root / name.replace(' ', '-')
    costs[name] = _wait(_start(folder, number, set(some), *given, *more))
    logging.info('%s', costs[name])
    if name == 'one core':
      wanted = _hashes(folder)
    elif name != 'a quarter':
      _check(wanted, folder)
  return costs


def _on_cluster(nodes: loopback.Nodes, num_workers: int) -> list[str]:
  return [
    f'--config.cluster.address={nodes.address}',
    f'--config.cluster.workers={num_workers}',
    f'--config.cluster.hold_shards={flags.FLAGS.hold_shards}',
  ]


def _kill_all(
  nodes: loopback.Nodes, root: pathlib.Path, given: list[str]
) -> list[float]:
  """Kill a node at seeded moments.

  Returns:
    Seconds of a run without a death, then of the others.
  """
  cores = os.sched_getaffinity(0)
  remote = *_on_cluster(nodes, 0), *given
  documents, draw = flags.FLAGS.kill_documents, random.Random(flags.FLAGS.seed)
  _wait(_start(root / 'kill', documents, cores, *given))
  start = time.monotonic()
  _wait(_start(root / 'whole', documents, cores, *remote))
  seconds = [time.monotonic() - start]
  while len(seconds) <= flags.FLAGS.kills:
    folder, killed = root / f'kill-{len(seconds)}', []
    moment = draw.uniform(0.2, 1.0) * seconds[0]
    start = time.monotonic()
    process = _start(folder, documents, cores, *remote)

    def kill(process=process, killed=killed):
      if process.poll() is None:
        killed.append(True)
        nodes.kill()

    killer = threading.Timer(moment, kill)
    killer.start()
    _wait(process)
    killer.cancel()
    killer.join()
    _check(_hashes(root / 'kill'), folder)
    if killed:
      seconds.append(time.monotonic() - start)
      logging.info(
        'Kill %d after %.1f s: the same bytes.', len(seconds) - 1, moment
      )
    shutil.rmtree(folder)
    nodes.restore(2)
  folder = root / 'kill-driver'
  process = _start(folder, documents, cores, *remote)
  time.sleep(seconds[0] / 2)
  process.kill()
  process.communicate()
  _wait(_start(folder, documents, cores, *remote))
  _check(_hashes(root / 'kill'), folder)
  logging.info('The command killed and run again: the same bytes.')
  return seconds


def _print(costs: dict[str, dict[str, _Cost]], caption: str) -> None:
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
    few, all_of = quarter[stage], whole[stage]
    peaks = few.anonymous, all_of.anonymous, few.resident, all_of.resident
    mib = [f'{x / 2**20:,.0f}' for x in peaks]
    ratio = f'{all_of.anonymous / max(few.anonymous, 1):.2f}'
    rows.append((stage, *mib[:2], ratio, *mib[2:]))
  reports.print_table(
    ('stage, MiB', 'a quarter', 'all', 'ratio', 'with files', 'all with files'),
    rows,
    'Peak memory of one core',
    'Without pages of mapped files, which the kernel drops when memory is '
    'wanted, and with them, of a quarter and of all documents.',
  )


def run(argv: list[str]) -> None:
  """Start the cluster, prepare, kill, and print the tables."""
  given = argv[1:]
  root = pathlib.Path(flags.FLAGS.workdir).absolute()
  if root.exists():
    raise ValueError(f'--workdir={root}: exists; expected a new folder.')
  if flags.FLAGS.encoder_layers:
    _shorten(root / _EMBEDDER, flags.FLAGS.encoder_layers)
  cores = sorted(os.sched_getaffinity(0))
  with loopback.cluster(num_workers=2) as nodes:
    costs = _prepare_all(nodes, root, cores, given)
    kills = _kill_all(nodes, root, given)
  if flags.FLAGS.output:
    values = {
      way: {stage: dataclasses.asdict(x) for stage, x in stages.items()}
      for way, stages in costs.items()
    }
    content = {'cores': len(cores), 'kills': kills, 'costs': values}
    reports.write_json(pathlib.Path(flags.FLAGS.output), content)
  caption = (
    f'All folders hold the same bytes, also of {len(kills) - 1} runs in which '
    'a node was killed and of one in which the command was.'
  )
  _print(costs, caption)


if __name__ == '__main__':
  _define()
  command.main_of_script(run)
