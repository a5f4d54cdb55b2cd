# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluate a trained model by the evaluators of config.task.

  python -m experiments.evaluate --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.questions="('webquestions:test=test.json',)"

--config.evaluate.* are the fields of the evaluators; results are tables on the terminal
and JSON files in DIR.
"""

from experiments.engine import command

if __name__ == '__main__':
  command.main('evaluate', writes='evaluation.json')
