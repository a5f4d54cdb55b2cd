# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepare a corpus on a Ray cluster of this machine, and kill its nodes.

  python -m experiments.scale.demonstrate --workdir=runs/cluster

A head and nodes of one core each are started at the loopback device, and ended at the
end. The packaged articles (or those of --corpus, JSON lines) are prepared by one core
without Ray, by one worker and by two. Then nodes are killed with signal 9 at --kills
seeded moments, each replaced by a new one, and the command itself at one, after which
it is run again. The table has the seconds of each stage; the command fails unless all
folders hold the same bytes.
"""

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

from experiments.engine import command, reports
from experiments.scale import loopback

_STAGES = ('tokens', 'duplicates', 'chunks', 'vectors', 'index', 'neighbors')
_BEGINS = re.compile(r'Stage (\w+), in ')
# Times of an index's building are in its report.
_VARIES = ('index.json', '.verified')


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
  flags.DEFINE_string('output', '', 'JSON file to write.')


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
    *more,
  ]
  if flags.FLAGS.corpus:
    arguments += [
      '--config.corpus.kind=jsonl',
      f'--config.corpus.path={flags.FLAGS.corpus}',
    ]
  return subprocess.Popen(
    [sys.executable, '-m', 'experiments.retro.prepare', *arguments],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
    preexec_fn=lambda: os.sched_setaffinity(0, cores),
  )


def _wait(process: subprocess.Popen) -> dict[str, float]:
  """Return the seconds of each stage.

  Raises:
    ValueError: when the command fails.
  """
  begun, lines = [], []
  for line in process.stderr:
    lines.append(line)
    if found := _BEGINS.search(line):
      begun.append((found.group(1), time.monotonic()))
    if 'runs again' in line:
      logging.info('%s', line.rstrip())
  ended = time.monotonic()
  if process.wait():
    raise ValueError(f'experiments.retro.prepare: {"".join(lines[-3:])}')
  ends = [sec for _, sec in begun[1:]] + [ended]
  seconds = {
    name: end - sec for (name, sec), end in zip(begun, ends, strict=True)
  }
  return {name: seconds[name] for name in _STAGES}


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
  nodes: loopback.Nodes, root: pathlib.Path, cores: list[int]
) -> dict[str, dict[str, float]]:
  """Prepare a corpus in three ways; return the seconds of their stages."""
  documents, address = flags.FLAGS.documents, nodes.address
  remote = f'--config.cluster.address={address}'
  ways = {
    'one core': (set(cores[:1]), ()),
    '1 worker': (set(cores[:1]), (remote, '--config.cluster.workers=1')),
    '2 workers': (set(cores), (remote, '--config.cluster.workers=2')),
  }
  seconds = {}
  for name, (some, more) in ways.items():
    logging.info('Preparing %d documents: %s.', documents, name)
    folder = root / name.replace(' ', '-')
    seconds[name] = _wait(_start(folder, documents, some, *more))
    _check(_hashes(root / 'one-core'), folder)
  return seconds


def _kill_all(nodes: loopback.Nodes, root: pathlib.Path) -> list[float]:
  """Kill a node at seeded moments.

  Returns:
    Seconds of a run without a death, then of the others.
  """
  cores = os.sched_getaffinity(0)
  remote = f'--config.cluster.address={nodes.address}'
  documents, draw = flags.FLAGS.kill_documents, random.Random(flags.FLAGS.seed)
  _wait(_start(root / 'kill', documents, cores))
  start = time.monotonic()
  _wait(_start(root / 'whole', documents, cores, remote))
  seconds = [time.monotonic() - start]
  while len(seconds) <= flags.FLAGS.kills:
    folder, killed = root / f'kill-{len(seconds)}', []
    moment = draw.uniform(0.2, 1.0) * seconds[0]
    start = time.monotonic()
    process = _start(folder, documents, cores, remote)

    def kill(process=process, killed=killed):
      if process.poll() is None:
        killed.append(True)
        nodes.kill()

    killer = threading.Timer(moment, kill)
    killer.start()
    try:
      _wait(process)
    finally:
      process.kill()  # where this command is ended
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
  process = _start(folder, documents, cores, remote)
  time.sleep(seconds[0] / 2)
  process.kill()
  process.communicate()
  _wait(_start(folder, documents, cores, remote))
  _check(_hashes(root / 'kill'), folder)
  logging.info('The command killed and run again: the same bytes.')
  return seconds


def run(argv: list[str]) -> None:
  """Start the cluster, prepare, kill, and print the table."""
  del argv
  root = pathlib.Path(flags.FLAGS.workdir).absolute()
  if root.exists():
    raise ValueError(f'--workdir={root}: exists; expected a new folder.')
  cores = sorted(os.sched_getaffinity(0))
  with loopback.cluster(num_workers=2) as nodes:
    seconds = _prepare_all(nodes, root, cores)
    kills = _kill_all(nodes, root)
  totals = {name: sum(stages.values()) for name, stages in seconds.items()}
  rows = [
    (stage, *(f'{seconds[name][stage]:.1f}' for name in seconds))
    for stage in _STAGES
  ]
  rows.append(('all', *(f'{total:.1f}' for total in totals.values())))
  rows.append(
    ('of one core', *(f'{x / totals["one core"]:.2f}' for x in totals.values()))
  )
  reports.print_table(
    ('stage, seconds', *seconds),
    rows,
    title=f'{flags.FLAGS.documents:,} documents on {len(cores)} cores',
    caption=f'All folders hold the same bytes, also of {len(kills) - 1} '
    'runs in which a node was killed and of one in which the command was.',
  )
  if flags.FLAGS.output:
    content = {'seconds': seconds, 'kills': kills, 'cores': len(cores)}
    reports.write_json(pathlib.Path(flags.FLAGS.output), content)


if __name__ == '__main__':
  _define()
  command.main_of_script(run)
