# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Look inside a RETRO: one document, its neighbors and their effect.

  python -m experiments.inspect --config=configs/<name>.py --workdir=DIR \
    --document='The Title'

writes DIR/inspect/<title>.html: tokens colored by the loss without retrieval minus
that with it, and by how much of the text up to them their neighbors repeat (Borgeaud
et al. 2022, appendix E.1); each chunk beside its neighbors, with titles, scores, the
longest run that both share, the attention that each neighbor gets and what it is
worth: how much likelier the next chunk is with it than without. --document names a
document of --split, which may be an evaluation set, by title or id; --text_file reads
any text instead, which is looked up in the datastore now. r(C) of a document counts
the first --config.evaluate.leakage.num_neighbors stored neighbors; r(C) of a text
counts the shown ones. The same figures go to a .json beside the page.
"""

import json
import pathlib
import re

from absl import flags, logging

from experiments.engine import command, progress, stages
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retrieval.readers import text_files
from retrieval.store import output_files
from retro_jax.trained import inspection
from retro_jax.views import page as page_lib

FOLDER = 'inspect'


def _write(page: page_lib.Page, workdir: str) -> pathlib.Path:
  """Write the page as .html and its figures as .json."""
  title = re.sub(r'[^\w.-]+', '_', page.title).strip('_')[:80] or 'document'
  default = pathlib.Path(workdir) / FOLDER / f'{title}.html'
  path = pathlib.Path(flags.FLAGS.output or default)
  output_files.write(path, page_lib.html_page(page))
  text = json.dumps(page.to_json(), ensure_ascii=False) + '\n'
  output_files.write(path.with_suffix('.json'), text)
  return path


def run(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Inspect a document and write the page."""
  stages.check_alone()
  values, k = flags.FLAGS, evaluate.k
  file = values.text_file
  text = file and text_files.read(file, text_files.PROMPT_BYTES)
  if file and not text:
    raise ValueError(f'--text_file={file}: the text is empty.')
  if not values.output:
    output_files.check_writable(pathlib.Path(workdir) / FOLDER, is_folder=True)
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  if text:
    title = pathlib.Path(file).stem
    passage = inspection.of_text(trained, text, k, title)
  else:
    first = inspection.find(trained, values.document, values.split)
    compared = evaluate.leakage.num_neighbors
    passage = inspection.of_store(trained, first, values.split, k, compared)
  with progress.bar('inspect', 'chunks') as update:
    page = inspection.inspect(trained, passage, progress=update)
  path = _write(page, workdir)
  print(page_lib.Scores([page]))
  logging.info('The page is %s.', path)


if __name__ == '__main__':
  flags.DEFINE_string('document', '', 'Title or id; default: the first.')
  flags.DEFINE_string(
    'split', 'valid', 'Of the document: train, valid or an evaluation set.'
  )
  flags.DEFINE_string('text_file', '', 'Text to be looked at instead.')
  command.define_output(
    'output', '', 'The page; default: DIR/inspect/TITLE.html.'
  )
  command.main(
    run,
    config_lib.Config,
    section=retro_evaluate.Evaluate,
    only_reads=True,
  )
