# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Eight virtual CPU devices, chosen before JAX starts; fixtures for all.

What one test compiles, another finds in a cache: in this session, in its other
workers, in the processes that tests start, and in later sessions on this machine.
"""

import ctypes
import gc
import os
import pathlib
import platform
import shutil

from tests import xla_flags

_CACHE = 'JAX_COMPILATION_CACHE_DIR'
_MAX_BYTES = 1 << 30  # a session writes about 60 MB
_LARGE = 900 << 20  # bytes of a process after which it looks for garbage
_LIBC = ctypes.CDLL(None)
if _CACHE not in os.environ:  # workers of pytest-xdist inherit it
  root = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  # Compiled for this machine's CPU; a home folder may be shared by others.
  folder = pathlib.Path(root) / 'realm-retro-jax' / f'tests-{platform.node()}'
  if sum(path.stat().st_size for path in folder.glob('*')) > _MAX_BYTES:
    shutil.rmtree(folder)
  os.environ[_CACHE] = str(folder)
  os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0.2'

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# Processes that tests start find the project from any folder.
os.environ['PYTHONPATH'] = str(pathlib.Path(__file__).resolve().parents[1])
os.environ['XLA_FLAGS'] = ' '.join(
  (os.environ.get('XLA_FLAGS', ''), xla_flags.devices(8))
)

# Traces leave millions of objects, which live to the end: looking through all of
# them for cycles took 7 % of the time of retro_jax/nn and retrieval/nn.
gc.set_threshold(50_000, 50, 50)

from absl import flags  # noqa: E402
import jax  # noqa: E402
from jax import experimental  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

if not hasattr(jax, 'enable_x64'):  # jax < 0.8
  jax.enable_x64 = experimental.enable_x64

# Grain's worker processes read absl flags, which pytest never parses.
flags.FLAGS.mark_as_parsed()


def pytest_addoption(parser):
  """Name the data of tests/outside_test.py."""
  parser.addoption('--outside', default='', help='Folder of published sets.')
  parser.addoption('--smollm2', default='', help='Folder of SmolLM2-135M.')


@pytest.fixture(scope='module', autouse=True)
def forget_programs():
  """Release what a module compiled: a process stays below 2 GB."""
  yield
  jax.clear_caches()
  if resident_bytes() > _LARGE:
    gc.collect()
    if hasattr(_LIBC, 'malloc_trim'):
      _LIBC.malloc_trim(0)


def resident_bytes() -> int:
  """Bytes that this process holds; 0 where the system does not tell."""
  statm = pathlib.Path('/proc/self/statm')
  if not statm.exists():
    return 0
  return int(statm.read_text().split()[1]) * os.sysconf('SC_PAGESIZE')


@pytest.fixture(scope='session')
def root(tmp_path_factory):
  """The data folder of `tiny_data`, which no test changes."""
  from tests.retro_jax.data import tiny_data

  def files():
    found = (path for path in made.rglob('*') if path.is_file())
    return {path: path.read_bytes() for path in found}

  made = tiny_data.make(tmp_path_factory.mktemp('data'))
  before = files()
  yield made
  assert files() == before


@pytest.fixture(scope='session')
def minilm():
  """The folder of the packaged BERT; what needs it is skipped without it."""
  from retrieval.nn import bert_checkpoint

  try:
    return bert_checkpoint.find_minilm()
  except (FileNotFoundError, ImportError, ValueError) as e:
    pytest.skip(f'The packaged BERT is not installed: {e}')


@pytest.fixture
def unchecked(monkeypatch):
  """Leaves types unchecked, as they are for users: errors are our own."""
  monkeypatch.setattr(jaxtyping.config, 'jaxtyping_disable', True)
