# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The frame of every command: flags, config, JAX set-up, one-line errors.

`command.main(run, Config)` calls `run(config, workdir)` with the frozen dataclass
`Config`, built from --config and its overrides (`configs.py`); `section=Evaluate`
adds the command's fields and passes them on. `main('train')` finds all of these by
config.task (`rooms.py`). Bad input ends in one line on stderr and exit code 1;
--debug shows the traceback.

To use several hosts, run the command on each with --config.distributed=True and a
--workdir that all hosts see. If the cluster manager does not number the processes for
JAX, set JAX_COORDINATOR_ADDRESS (host:port), JAX_NUM_PROCESSES and JAX_PROCESS_ID.
"""

import atexit
from collections.abc import Callable, Iterator
import contextlib
import io
import logging as std_logging
import os
import pathlib
import platform
import re
import sys
import traceback
from typing import Any

from absl import app, flags, logging

from experiments.engine import configs, failures, field_help, rooms, signals
from retrieval.store import checksums, cluster_settings, locks, output_files

_OVERRIDE = re.compile(r'--?(no)?config\.([^=]+)(?:=(.*))?\Z', re.DOTALL)
_WRITTEN = ('output', 'workdir')  # flags of what a command writes
_SETTING = re.compile(r'[\w.]+=\S*\Z')  # a flag without its dashes
_MAX_CACHE_BYTES = 2 << 30


def main(
  run: Callable[..., None] | str,
  root: type | None = None,
  *,
  section: type | None = None,
  writes: str | None = None,
  only_reads: bool = False,
  default_config: str = '',
  default_workdir: str = '',
  text: str = '',
) -> None:
  """Parse flags, call `run(config, workdir[, section])` and exit.

  Flags beside --config and --workdir are defined before; `run` reads them from
  `flags.FLAGS`.

  Args:
    run: a function, or a verb: its function, config and section in the room of
      config.task.
    root: dataclass of the config; None: that of the room of config.task.
    section: dataclass of the command's section of the config.
    writes: role in which the command is the one writer of --workdir
      (`locks.writer`): the name of a file. None for a command that locks what it
      writes itself.
    only_reads: whether --workdir may be a folder that cannot be written.
    default_config: default of --config; '' requires the flag.
    default_workdir: default of --workdir; '' requires the flag.
    text: the flag whose texts may also stand without it; '' for none.
  """

  def read(path: str) -> tuple[Any, ...]:
    """Read a config: also its function, dataclass, section and their values."""
    config = configs.load(path)
    task, call, cls, part = config.get('task'), run, root, section
    if isinstance(run, str):
      call, part = rooms.function(task, run), rooms.section(task, run)
    cls = cls or rooms.config_class(task)
    sections = configs.complete(config, overrides, cls, part)
    return config, call, cls, part, sections

  def parse(argv: list[str]) -> list[str]:
    try:
      return _parse(argv, text)
    except SystemExit:  # of --help
      if path := _config_of(argv) or default_config:
        config, _, cls, part, _ = read(path)
        print(f'\nFields of {path}:')
        values, full = config.to_dict(), '--helpfull' in argv
        print(*field_help.lines(cls, values, full), sep='\n')
        if part:
          name = configs.section_name(part)
          texts = field_help.lines(part, values[name], full, f'config.{name}')
          print(*texts, sep='\n')
      raise

  def start(unused_args: list[str]) -> None:
    _, call, _, _, sections = read(flags.FLAGS.config)
    _keep_programs()
    with _prepared(sections[0], flags.FLAGS.workdir, writes):
      call(sections[0], flags.FLAGS.workdir, *sections[1:])
    sys.stdout.flush()  # where a failure is still told

  with _one_line_errors():
    with _bad_flags():
      argv = flags.FLAGS.read_flags_from_files(sys.argv, force_gnu=False)
    argv, overrides = _split(argv)
    _define(default_config, default_workdir, only_reads)
    _show_flags()
    app.run(start, argv, parse)


def define_output(
  name: str, default: str | None, about: str, *, is_folder: bool = False
) -> None:
  """Define the flag of a file or a folder that a command will write.

  A path that cannot be written is refused before any work.
  """

  def check(path: str | None) -> bool:
    try:
      if path:
        output_files.check_writable(path, is_folder=is_folder)
    except (OSError, ValueError) as error:
      raise flags.ValidationError(failures.line_of(error)) from None
    return True

  flags.DEFINE_string(name, default, about)
  flags.register_validator(name, check)


def folders(text: str) -> list[str]:
  """Split the folders of a flag at commas; the name of one folder may hold them."""
  return [text] if pathlib.Path(text).exists() else text.split(',')


def main_of_script(
  script: Callable[[list[str]], None],
  own_arguments: bool = False,
  text: str = '',
) -> None:
  """Run a script without --config; bad input ends in one line and exit code 1.

  Args:
    own_arguments: whether the script parses its arguments itself.
    text: the flag whose texts may also stand without it; '' for none.
  """

  def start(argv: list[str]) -> None:
    _keep_programs()
    script(argv)

  def parse(argv: list[str]) -> list[str]:
    if own_arguments:
      return argv if _parse(argv[:1]) else []
    return _parse(argv, text)

  with _one_line_errors():
    _show_flags()
    app.run(start, sys.argv, parse)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
  """Turn exceptions into a line and an exit code; end without taking Python down.

  Taking Python down aborts a process whose other threads return from XLA.
  """
  codes: list[int] = []

  def end() -> None:
    if codes:
      with contextlib.suppress(OSError):  # a reader such as `head` left
        sys.stdout.flush()
      os._exit(codes[0])

  if isinstance(sys.stdin, io.TextIOWrapper):
    sys.stdin.reconfigure(encoding='utf-8')
  if isinstance(sys.stdout, io.TextIOWrapper):  # what it cannot show is escaped
    sys.stdout.reconfigure(errors='backslashreplace')
  atexit.register(end)  # registered first, called last
  signals.watch()
  debug = {'--debug', '--debug=true'} & {*sys.argv}
  logging.set_verbosity(logging.INFO)
  if not debug:
    logging.get_absl_handler().addFilter(_is_worth_showing)
  try:
    yield
  except SystemExit as done:  # absl always ends so
    if _of_several():  # a job's processes leave together
      sys.modules['jax'].distributed.shutdown()
    if not isinstance(done.code, str):
      codes.append(done.code or 0)
    raise
  except Exception as error:
    written = [flags.FLAGS[x].value for x in _WRITTEN if x in flags.FLAGS]
    paths = [x for x in written if x and isinstance(x, str)]
    line = failures.line_of(error, *paths[:1])
    if line is None:  # a bug
      raise
    if debug:
      traceback.print_exception(error)
    print(f'error: {line}', file=sys.stderr)
    if _of_several():  # the others may wait for this process
      os._exit(1)
    codes.append(1)
    sys.exit(1)


def _of_several() -> bool:
  """Whether this process has joined others; most errors come before JAX."""
  jax = sys.modules.get('jax')
  return jax is not None and jax.distributed.is_initialized()


def _split(argv: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
  """Take the overrides of fields out of the arguments.

  The value may be the next argument; a flag before another flag means True.
  """
  rest, overrides, todo = [], [], argv[::-1]
  while todo:
    argument = todo.pop()
    if match := _OVERRIDE.match(argument):
      off, name, text = match.groups()
      if text is None and (off or not todo or todo[-1].startswith('--')):
        text = str(not off)
      overrides.append((name, todo.pop() if text is None else text))
    else:
      rest.append(argument)
  return rest, overrides


def _config_of(argv: list[str]) -> str:
  """Return the value of --config among arguments, '' without one."""
  for argument, after in zip(argv, [*argv[1:], ''], strict=True):
    name, equals, value = argument.partition('=')
    if name in ('--config', '-config'):
      return value if equals else after
  return ''


def _define(config: str, workdir: str, only_reads: bool) -> None:
  about = 'file.py[:arg]; --config.FIELD=VALUE sets a field, --help lists them.'
  flags.DEFINE_string('config', config or None, about, required=not config)
  if only_reads:
    flags.DEFINE_string('workdir', workdir or None, 'Folder of the run.')
  else:
    about = 'Folder of everything written.'
    define_output('workdir', workdir or None, about, is_folder=True)
  if not workdir:
    flags.mark_flag_as_required('workdir')
  flags.DEFINE_bool('debug', False, 'Show tracebacks and all log lines.')


def _show_flags() -> None:
  """Let --help show flags defined here and by `python -m experiments.x.y`."""
  script, spec = sys.argv[0], sys.modules['__main__'].__spec__
  if spec is not None:
    sys.argv[0] = spec.name
  for module in (script, __name__):
    for flag in flags.FLAGS.get_flags_for_module(module):
      flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _parse(argv: list[str], text: str = '') -> list[str]:
  """Parse flags; arguments without one are values of --`text`.

  Raises:
    ValueError: for a bad flag, or arguments without one that are no such texts.
  """
  with _bad_flags():
    rest = flags.FLAGS([sys.argv[0], *argv[1:]])
  if text and len(rest) > 1:
    _take_texts(flags.FLAGS[text], rest[1:])
    rest = rest[:1]
  if text and not flags.FLAGS['verbosity'].present:
    logging.get_absl_handler().addFilter(_is_of_the_answer)
  if len(rest) > 1 and 'workdir' in flags.FLAGS and '--' not in argv:
    raise ValueError(f'Unexpected arguments {rest[1:]}: expected --NAME=VALUE.')
  return rest


def _take_texts(flag: flags.Flag, texts: list[str]) -> None:
  if flag.present:
    raise ValueError(f'--{flag.name} and {texts}: expected one of them.')
  several = isinstance(flag, flags.MultiFlag)
  words = len(texts) > 1 and any(len(x.split()) == 1 for x in texts)
  if words or len(texts) > 1 and not several or _SETTING.match(texts[0]):
    expected = 'texts, each' if several else 'one text'
    raise ValueError(
      f'Unexpected arguments {texts}: expected {expected} in quotes, or '
      f'--NAME=VALUE such as --{flag.name}=TEXT.'
    )
  flag.parse(texts if several else texts[0])


@contextlib.contextmanager
def _bad_flags() -> Iterator[None]:
  try:
    yield
  except flags.Error as error:
    line = ' '.join(str(error).split())
    line = re.sub('invalid literal for int.*', 'expected a whole number', line)
    line = re.sub('could not convert .* float.*', 'expected a number', line)
    raise ValueError(f'{line} (--help lists the flags)') from error


def _prepared(
  config: Any, workdir: str, writes: str | None
) -> contextlib.AbstractContextManager:
  """Set the process up as a config says; return the lock of the folder, if any."""
  if not workdir:
    raise ValueError("--workdir='': expected a folder.")
  checksums.choose(getattr(config, 'verify', ''))
  cluster = getattr(config, 'cluster', cluster_settings.Cluster())
  if cluster.hold_shards:
    from retrieval.store import ray_cluster

    ray_cluster.connect(cluster.address)
  cluster_settings.hold_shards(cluster.address if cluster.hold_shards else '')
  index = 0
  if getattr(config, 'distributed', False):
    index = _join(writes == locks.RUN)
  if not writes or not os.path.isdir(workdir):  # who makes it locks it then
    return contextlib.nullcontext()
  return locks.writer(workdir, writes, index)


def _keep_programs() -> None:
  """Keep compiled programs in the user's cache folder."""
  import jax  # after the checks of flags and config

  if not jax.config.jax_compilation_cache_dir:
    root = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    # Compiled for this machine's CPU; a home folder may be shared by others.
    folder = pathlib.Path(root) / 'realm-retro-jax' / platform.node()
    jax.config.update('jax_compilation_cache_dir', str(folder))
    jax.config.update('jax_compilation_cache_max_size', _MAX_CACHE_BYTES)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.2)


def _is_worth_showing(record: std_logging.LogRecord) -> bool:
  """Hide library log lines about errors that the command reports."""
  if f'{os.sep}site-packages{os.sep}' not in record.pathname:
    return True
  record.exc_info = None
  from_orbax = f'{os.sep}orbax{os.sep}' in record.pathname
  most = std_logging.ERROR if from_orbax else std_logging.INFO
  return record.levelno > most


def _is_of_the_answer(record: std_logging.LogRecord) -> bool:
  """Hide log lines before an answer, except those of progress and the command."""
  bars = str(pathlib.Path(__file__).with_name('progress.py'))
  told = bars, sys.modules['__main__'].__file__
  return record.levelno > std_logging.INFO or record.pathname in told


def _join(saves: bool) -> int:
  """Join the other processes of a job.

  Args:
    saves: whether all save the same step after SIGTERM, which otherwise ends the
      process at once.
  """
  import jax

  jax.config.update('jax_enable_preemption_service', saves)
  names = ('COORDINATOR_ADDRESS', 'NUM_PROCESSES', 'PROCESS_ID')
  address, count, index = (os.environ.get(f'JAX_{name}') for name in names)
  jax.distributed.initialize(
    address, int(count) if count else None, int(index) if index else None
  )
  process = f'{jax.process_index()} of {jax.process_count()}'
  devices = f'{jax.local_device_count()} of {jax.device_count()}'
  logging.info('Process %s, %s devices.', process, devices)
  return jax.process_index()
