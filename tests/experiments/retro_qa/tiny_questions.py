# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A few questions, and what was retrieved for them."""

import json
import pathlib

from retrieval.questions import dpr_json

ANSWERS = {'who?': 'moon', 'what?': 'queen river', 'x?': 'jokes'}


def write(root: pathlib.Path, form: str = '{}', count: int = 1) -> None:
  """Write questions.jsonl and results.json, `count` passages that hold the answer."""
  lines = [
    json.dumps({'question': q, 'answer': [a]}) for q, a in ANSWERS.items()
  ]
  (root / 'questions.jsonl').write_text('\n'.join(lines) + '\n')
  results = (
    dpr_json.Result(
      question=question,
      answers=(answer,),
      contexts=(dpr_json.Context(title='T', text=form.format(answer)),) * count,
    )
    for question, answer in ANSWERS.items()
  )
  dpr_json.write_results(root / 'results.json', results)
