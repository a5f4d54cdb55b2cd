# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Explains a prediction of REALM by its documents (Guu et al. 2020, Table 3).

  python -m experiments.realm.explain --config=configs/<name>.py --workdir=DIR \
    --text "The capital of France is [MASK]." --answer Paris

Shows the most probable words, and of every document p(z | x), p(z | x, y), its
retrieval utility and what the answer's probability would be without it. y is the
--answer, or the model's own prediction where none is given. --json prints JSON.
"""

from collections.abc import Sequence
import dataclasses
import json
from typing import Any

from absl import flags
import jax
import ml_collections
import numpy as np
import rich.markup
import rich.table

from experiments.engine import command
from experiments.engine import progress
from experiments.realm import task as realm_task
from realm_jax.data import examples
from realm_jax.data import pipeline
from realm_jax.serving import evaluate
from realm_jax.serving import index_folders
from realm_jax.serving import serving

MASK = '[MASK]'
_SHOWN = 70  # characters of a document's text


@dataclasses.dataclass(frozen=True)
class Explained:
  """A prediction and its documents.

  Attributes:
    text: with its masks.
    predictions: for each mask, words with their probabilities, best first.
    answer: y, the words that the rest is about.
    log_prob: log p(y | x) of each of its tokens, summed.
    null_log_prob: the same with the null document only.
    documents: rows of block, title, text, prior p(z | x), posterior p(z | x, y),
      utility in nats, log_prob with this document alone, without the log_prob of
      all others, and word, the prediction with this document alone. The null
      document is the first.
  """

  text: str
  predictions: list[list[tuple[str, float]]]
  answer: str
  log_prob: float
  null_log_prob: float
  documents: list[dict[str, Any]]


def encode(
  trained: realm_task.Trained, text: str, answer: str = ''
) -> dict[str, np.ndarray]:
  """A row of the pipeline from a text with masks.

  Args:
    trained: whose tokenizer and lengths count.
    text: with at least one [MASK].
    answer: its wordpieces, one after another, are the masks' targets; a single
      [MASK] is repeated for each of them.

  Returns:
    As `examples.mask_sentence`, with one row.

  Raises:
    ValueError: for a text without mask, too long, or an answer that does not fit.
  """
  layout, tokenizer = trained.layout, trained.data.tokenizer
  masks = text.count(MASK)
  if not masks:
    raise ValueError(f'{text!r}: expected at least one {MASK}.')
  pieces = tokenizer.encode(answer).ids.tolist() if answer else []
  if pieces and masks == 1:
    text = text.replace(MASK, ' '.join([MASK] * len(pieces)))
    masks = len(pieces)
  if answer and len(pieces) != masks:
    raise ValueError(
      f'{answer!r} is {len(pieces)} wordpieces, but there are {masks} masks.'
    )
  if masks > layout.max_targets:
    raise ValueError(
      f'{masks} masks, expected at most layout.max_targets={layout.max_targets}.'
    )
  tokens: list[int] = []
  positions: list[int] = []
  for i, part in enumerate(text.split(MASK)):
    if i:
      positions.append(len(tokens))
      tokens.append(layout.mask_id)
    tokens += tokenizer.encode(part.strip()).ids.tolist()
  if len(tokens) > layout.query_tokens:
    raise ValueError(
      f'{len(tokens)} wordpieces, expected at most {layout.query_tokens}.'
    )
  filled = np.asarray(tokens, np.int32)
  filled[positions] = pieces or layout.mask_id
  row = examples.mask_sentence(layout, filled, np.asarray(positions))
  row |= {'origin': np.int32(-1), 'origin_hash': np.uint64(0)}
  return examples.stack([row])


def explain(
  trained: realm_task.Trained,
  index: serving.ServingIndex,
  text: str,
  answer: str = '',
  *,
  top: int = 5,
) -> Explained:
  """Predicts the masks of a text and says what each document did.

  Args:
    trained: the model.
    index: to retrieve from.
    text: with at least one [MASK].
    answer: what the documents are judged by; '' is the prediction.
    top: words to name for each mask.

  Returns:
    The explanation.

  Raises:
    ValueError: as `encode`; for a model of ICT, which has no encoder.
  """
  if 'encoder' not in trained.params:
    raise ValueError('A model of ICT has no encoder: it predicts nothing.')
  retrieval = pipeline.Retrieval(
    trained.data.blocks, trained.layout, pipeline.OneSnapshot(index)
  )
  batch = retrieval(None, encode(trained, text, answer))
  predict = evaluate.predict
  out = jax.device_get(
    predict(trained.model, trained.params, batch, num_tokens=top)
  )
  if not answer:
    batch['mlm_targets'] = out.tokens[..., 0]
    out = jax.device_get(
      predict(trained.model, trained.params, batch, num_tokens=top)
    )
  return _explained(trained, batch, out, text)


def _words(trained: realm_task.Trained, ids: Sequence[int]) -> str:
  return trained.data.tokenizer.decode(np.asarray(ids))


def _explained(trained, batch, out: evaluate.Prediction, text) -> Explained:
  mask = batch['mlm_mask'][0]
  blocks, ids = trained.data.blocks, batch['candidate_block_ids'][0].tolist()
  documents = []
  for k, block in enumerate(ids):
    if not batch['candidate_valid'][0, k]:
      continue
    documents.append(
      {
        'block': block,
        'title': blocks.titles([block])[0] if block >= 0 else '(null)',
        'text': blocks.texts([block])[0] if block >= 0 else '',
        'prior': float(np.exp(out.log_prior[0, k])),
        'posterior': float(np.exp(out.log_posterior[0, k])),
        'utility': float(out.utility[0, k]),
        'log_prob': float(out.gold[0, k][mask].sum()),
        'without': float(out.without[0, k][mask].sum()),
        'word': _words(trained, out.candidate_tokens[0, k][mask]),
      }
    )
  predictions = [
    [
      (_words(trained, [token]), float(np.exp(log_prob)))
      for token, log_prob in zip(*pair, strict=True)
    ]
    for pair in zip(
      out.tokens[0][mask], out.token_log_probs[0][mask], strict=True
    )
  ]
  return Explained(
    text=text,
    predictions=predictions,
    answer=_words(trained, batch['mlm_targets'][0][mask]),
    log_prob=float(out.marginal_gold[0][mask].sum()),
    null_log_prob=float(out.gold[0, 0][mask].sum()),
    documents=documents,
  )


def print_explained(found: Explained) -> None:
  """Prints an explanation as tables."""
  console = progress.console()
  console.print(found.text, style='bold', markup=False, highlight=False)
  for i, words in enumerate(found.predictions, start=1):
    shown = ', '.join(f'{word} {share:.3f}' for word, share in words)
    console.print(f'  mask {i}: {shown}', markup=False, highlight=False)
  console.print(
    f'  y = {found.answer!r}: log p(y|x) {found.log_prob:.3f}, with the null '
    f'document only {found.null_log_prob:.3f}, retrieval utility '
    f'{found.log_prob - found.null_log_prob:+.3f}',
    markup=False,
    highlight=False,
  )
  table = rich.table.Table(
    *('document', 'p(z|x)', 'p(z|x,y)', 'utility', 'without it', 'alone'),
    show_lines=False,
  )
  for row in found.documents:
    text = ' '.join(row['text'].split())[:_SHOWN]
    document = f'{row["title"]}: {text}' if text else row['title']
    table.add_row(
      rich.markup.escape(document),
      f'{row["prior"]:.3f}',
      f'{row["posterior"]:.3f}',
      f'{row["utility"]:+.3f}',
      f'{row["without"] - found.log_prob:+.3f}',
      rich.markup.escape(row['word']),
    )
  console.print(table)


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Explains every --text."""
  values = flags.FLAGS
  answers = values.answer or [''] * len(values.text)
  if not values.text or len(answers) != len(values.text):
    raise ValueError(
      f'{len(values.text)} --text and {len(values.answer)} --answer: expected '
      'at least one text, and as many answers or none.'
    )
  trained = realm_task.load(workdir, config.data_dir)
  index = trained.open_index(
    index_folders.index_folder(workdir, config.data_dir)
  )
  found = [
    explain(trained, index, text, answer, top=config.explain.top)
    for text, answer in zip(values.text, answers, strict=True)
  ]
  if values.json:
    print(json.dumps([dataclasses.asdict(x) for x in found], indent=1))
    return
  for one in found:
    print_explained(one)


def define_flags() -> None:
  """--text, --answer and --json."""
  flags.DEFINE_multi_string('text', [], f'Sentence with {MASK}; may repeat.')
  flags.DEFINE_multi_string(
    'answer', [], 'What stood there; one for each text.'
  )
  flags.DEFINE_bool('json', False, 'Print JSON instead of tables.')


if __name__ == '__main__':
  command.main(run, define_flags, computes=True)
