# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The frame of every command: flags, logging, JAX set-up, one-line errors.

  if __name__ == '__main__':
    command.main(run, Settings)

`Settings` is the root of the room's configs: each field of the config is held to
it before `run`, so that nothing is written for a value that does not fit. `main`
defines the flags, so that importing a command defines none. To use
several hosts, run the command on each with --config.distributed=True and a
--workdir that all hosts see. If the cluster manager does not number the
processes for JAX, set JAX_COORDINATOR_ADDRESS (host:port), JAX_NUM_PROCESSES
and JAX_PROCESS_ID. One process prepares data; `config.cluster` lets others help it.
JAX_COMPILATION_CACHE_DIR keeps compiled programs between runs.
"""

from collections.abc import Callable, Iterator
import contextlib
import os
import pathlib
import select
import signal
import sys
import traceback
from typing import Any, NoReturn

from absl import app, flags, logging
import jax
import ml_collections
from ml_collections import config_flags

from experiments.engine import cluster, config_errors, ends, failures, quiet
from retrieval import settings
from retrieval.store import locks, verification

Run = Callable[[ml_collections.ConfigDict, str], None]


def main(
  run: Run,
  root: type,
  define_flags: Callable[[], None] | None = None,
  *,
  writes: str | None = None,
  default_config: str = '',
  default_workdir: str = '',
) -> None:
  """Parse flags, call `run(config, workdir)` and exit.

  Bad input (ValueError, a missing file, field or package) ends in one line on
  stderr and exit code 1, Ctrl-C in 130, SIGTERM in 143 and SIGHUP in 129; --debug
  shows the traceback.

  Args:
    root: dataclass with the fields of the config and what they accept.
    define_flags: defines the flags of the command other than --config and
      --workdir; `run` reads them from `flags.FLAGS`.
    writes: role in which the command is the one writer of --workdir
      (`locks.writer`): `locks.RUN` for a training, or the name of a file; a
      second one is refused before it begins. None for a command that reads, or
      that writes another folder and locks it.
    default_config: value of --config when it is not given; '' requires the flag.
    default_workdir: value of --workdir when it is not given; '' requires the flag.
  """
  ends.watch()
  try:
    _check_text(sys.argv)
    argv = _flags_of_files(sys.argv[1:])
    config_errors.check(argv, default_config)
    # Fields of a default config are set as soon as it is known.
    with config_errors.explained(argv, default_config):
      _define(define_flags, default_config, default_workdir)
    app.run(lambda argv: _run(run, root, argv, writes), flags_parser=_parse)
  except KeyboardInterrupt:
    ends.leave(signal.SIGINT)
  except ends.Terminated as ended:
    end_terminated(ended)
  except SystemExit as done:
    if jax.distributed.is_initialized():
      jax.distributed.shutdown()  # processes of a job leave together
    ends.end_with(done.code)
    raise
  except Exception as error:
    if not _told(error):
      raise
    _exit(1)


def end_terminated(ended: ends.Terminated) -> NoReturn:
  """End the process after a training that SIGTERM has ended.

  The processes of a job leave together: one that is left alone would abort.
  """
  if jax.distributed.is_initialized():
    jax.distributed.shutdown()
  ends.leave(signal.SIGTERM, str(ended))


def changed(
  config: ml_collections.ConfigDict, **fields: Any
) -> ml_collections.ConfigDict:
  """Return a copy of a config, locked or not, with other values of fields."""
  copied = config.copy_and_resolve_references()
  with copied.unlocked():
    copied.update(fields)
  return copied


def main_of_script(script: Callable[[list[str]], None]) -> None:
  """Run a script without --config; bad input ends in one line and exit code 1."""
  ends.watch()
  quiet.begin()
  try:
    _check_text(sys.argv)
    app.run(lambda argv: _flushed(script, argv), flags_parser=_parse)
  except SystemExit as done:
    ends.end_with(done.code)
    raise
  except Exception as error:
    if not _told(error):
      raise
    _exit(1)


def _flushed(script: Callable[[list[str]], None], argv: list[str]) -> None:
  script(argv)
  sys.stdout.flush()  # where a failure is still told


def _define(
  define_flags: Callable[[], None] | None,
  default_config: str,
  default_workdir: str,
) -> None:
  spec = sys.modules['__main__'].__spec__
  if spec is not None:  # python -m experiments.x.y: --help shows this name
    sys.argv[0] = spec.name
  before = set(flags.FLAGS)
  config_flags.DEFINE_config_file(
    'config',
    default_config or None,
    'Configuration, file.py[:arg].',
    lock_config=True,
  )
  flags.DEFINE_string(
    'workdir', default_workdir or None, 'Folder of everything written.'
  )
  flags.DEFINE_bool('debug', False, 'Show tracebacks and all log lines.')
  defaults = {'config': default_config, 'workdir': default_workdir}
  flags.mark_flags_as_required(
    [x for x, found in defaults.items() if not found]
  )
  if define_flags is not None:
    define_flags()
  for name in set(flags.FLAGS) - before:  # --help shows the main module's.
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])


def _check_text(argv: list[str]) -> None:
  """Raise ValueError for an argument that is not UTF-8."""
  for argument in argv:
    try:
      argument.encode()
    except UnicodeEncodeError as error:
      name = argument[: error.start].partition('=')[0]
      byte = ord(argument[error.start]) - 0xDC00  # PEP 383
      raise ValueError(
        f'{name}: byte {error.start} (0x{byte:02x}) of the argument is not UTF-8.'
      ) from None


def _flags_of_files(argv: list[str]) -> list[str]:
  """Return arguments with those of each --flagfile in its place."""
  with _bad_flags():
    return flags.FLAGS.read_flags_from_files(argv, force_gnu=False)


def _parse(argv: list[str]) -> list[str]:
  """Parse flags; a bad flag raises ValueError."""
  with _bad_flags(), config_errors.explained(_flags_of_files(argv[1:])):
    return flags.FLAGS(argv)


@contextlib.contextmanager
def _bad_flags() -> Iterator[None]:
  try:
    yield
  except flags.Error as error:
    line = ' '.join(str(error).split())
    raise ValueError(f'{line} (--help lists the flags)') from error


def _run(run: Run, root: type, argv: list[str], writes: str | None) -> None:
  if len(argv) > 1:
    raise ValueError(f'Unexpected arguments {argv[1:]}; flags start with --.')
  logging.set_verbosity(logging.INFO)
  if not flags.FLAGS.debug:
    quiet.begin()
  config = flags.FLAGS.config
  settings.check_section(root, config.to_dict(), 'config')
  _check_workdir(flags.FLAGS.workdir)
  verification.choose(config.get('verify', ''))
  cluster.hold_shards(config)
  if config.get('distributed', False):
    _start_distributed()
  with _writing(flags.FLAGS.workdir, writes):
    run(config, flags.FLAGS.workdir)
  sys.stdout.flush()  # where a failure is still told


def _check_workdir(workdir: str) -> None:
  """Raise ValueError for what cannot be a folder, now or later."""
  if not workdir:
    raise ValueError("--workdir='': expected a folder.")
  path = pathlib.Path(workdir)
  found = next((x for x in (path, *path.parents) if os.path.lexists(x)), path)
  if os.path.lexists(found) and not found.is_dir():
    raise ValueError(f'--workdir={workdir}: {found} is not a folder.')


def _writing(
  workdir: str, role: str | None
) -> contextlib.AbstractContextManager[None]:
  """Lock a folder that is there; who makes it anew locks it then."""
  if role is None or not os.path.isdir(workdir):
    return contextlib.nullcontext()
  distributed = jax.distributed.is_initialized()
  return locks.writer(workdir, role, jax.process_index() if distributed else 0)


def _start_distributed() -> None:
  """Join the other processes."""
  names = ('COORDINATOR_ADDRESS', 'NUM_PROCESSES', 'PROCESS_ID')
  address, count, index = (os.environ.get(f'JAX_{name}') for name in names)
  jax.distributed.initialize(
    address, int(count) if count else None, int(index) if index else None
  )
  ends.take_back_sigterm()
  process = f'{jax.process_index()} of {jax.process_count()}'
  devices = f'{jax.local_device_count()} of {jax.device_count()}'
  logging.info('Process %s, %s devices.', process, devices)


def _debugging() -> bool:
  return '--debug' in sys.argv or bool(os.environ.get('DEBUG'))


def _told(error: Exception) -> bool:
  """Tell a failure in one line, unless it is a bug."""
  if isinstance(error, BrokenPipeError) and _is_unread(1):
    # What is still to be written to it goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    line = 'the reader of standard output has left.'
  else:
    known = 'workdir' in flags.FLAGS
    line = failures.line_of(
      error, flags.FLAGS['workdir'].value if known else ''
    )
  if line is None:
    return False
  if _debugging():
    traceback.print_exception(error)
  print(f'error: {line}', file=sys.stderr)
  return True


def _is_unread(number: int) -> bool:
  """Whether a file descriptor is a pipe without a reader, as after `| head`."""
  poll = select.poll()
  poll.register(number, select.POLLOUT)
  return any(events & select.POLLERR for _, events in poll.poll(0))


def _exit(code: int) -> None:
  """End the process at once, even if other processes wait for it."""
  if jax.distributed.is_initialized():
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)
  ends.end_with(code)
  sys.exit(code)
