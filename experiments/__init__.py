# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands, loops and everything that touches the outside world."""

import os
import sys

from experiments.engine import signals
from retrieval.store import children

# What follows are imports that take seconds; signals are answered from here on.
if sys.argv[:1] == ['-m']:  # python -m experiments.x.y, still looking for x.y
  if sys.getfilesystemencoding() != 'utf-8':  # arguments and files are UTF-8
    os.execv(sys.executable, [sys.executable, '-X', 'utf8', *sys.orig_argv[1:]])
  signals.watch()
elif sys.orig_argv[-1:] == ['--multiprocessing-fork']:  # a process of a command
  children.exit_with_parent()
