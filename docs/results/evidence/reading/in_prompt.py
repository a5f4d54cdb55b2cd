"""Put the passages of rows.py into the prompts: the rows of the control.

  python docs/results/evidence/reading/in_prompt.py ROWS OUT

Each row reads "." as its only neighbor, so that the same parameters are trained in the
same tokens. `--config.reading.prompt_chunks=5` holds 95 % of the prompts whole; of longer
ones the beginning is cut.
"""

import json
import pathlib
import sys


def main(rows, out):
  """Write OUT/{train,valid}.jsonl."""
  for name in ('train.jsonl', 'valid.jsonl'):
    lines = (pathlib.Path(rows) / name).read_text().splitlines()
    with open(pathlib.Path(out) / name, 'w') as file:
      for row in map(json.loads, lines):
        parts = [x['text'] for x in row['ctxs']] + [row['question']]
        row['question'] = '\n\n'.join(parts)
        row['ctxs'] = [{'title': '', 'text': '.'}]
        file.write(json.dumps(row) + '\n')


if __name__ == '__main__':
  main(*sys.argv[1:])
