# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Leaves out what installed libraries say of failures that a command tells itself."""

import logging as std_logging
import os
import sys

from absl import logging


def begin() -> None:
  """Leave it out from now on, in this process."""
  logging.get_absl_handler().addFilter(_is_worth_showing)
  sys.unraisablehook = _show_ignored


def _is_worth_showing(record: std_logging.LogRecord) -> bool:
  """Drop the routine lines of installed libraries, and their tracebacks."""
  if f'{os.sep}site-packages{os.sep}' not in record.pathname:
    return True
  record.exc_info = None  # what a library raises as well is told once
  orbax_raises = f'{os.sep}orbax{os.sep}' in record.pathname
  above = std_logging.ERROR if orbax_raises else std_logging.INFO
  return record.levelno > above


def _show_ignored(ignored) -> None:
  """Drop what TensorStore's threads meet after the save that they were of."""
  if str(ignored.exc_value) != 'Event loop is closed':
    sys.__unraisablehook__(ignored)
