"""Answer SQuAD 1.1 dev questions with the paragraph as neighbors, or in the prompt.

  python docs/results/evidence/reading/squad.py SQUAD_DEV.json OUT.json [PACKED] [MODES]

The questions are 500, evenly spread. A paragraph is cut into spans of 128 tokens, 64
apart, of which the two that share most words with the question are read. Mode control:
the paragraph in the prompt, as in_prompt.py trains PACKED. Greedy; an answer is right if
a gold answer stands in its first line.
"""

import json
import lzma
import pathlib
import sys
import tempfile

import facts

from retrieval.questions import qa_metrics
from retrieval.search import bm25
from retro_jax.trained import language_model, packaged
from retro_jax.views import prompts

COUNT = 500
SHOT = (
  'Marie Curie was born in Warsaw in 1867 and moved to Paris in 1891.\n\n'
  'Question: Where was Marie Curie born?\nAnswer: Warsaw\n\n'
)
MODES = 'neighbors,prompt,off'


def questions(path):
  """Every n-th question: paragraph, question, gold answers."""
  opened = lzma.open if path.endswith('.xz') else open
  with opened(path, 'rt') as file:
    data = json.load(file)['data']
  rows = [
    (p['context'], q['question'].strip(), [a['text'] for a in q['answers']])
    for article in data
    for p in article['paragraphs']
    for q in p['qas']
  ]
  step = len(rows) / COUNT
  return [rows[int(i * step)] for i in range(COUNT)]


def spans(tokenizer, text, question):
  """The two spans of a paragraph that share most words with the question."""
  ids = tokenizer.encode(text).ids
  found = [
    tokenizer.decode(ids[i : i + 128])
    for i in range(0, max(len(ids) - 64, 1), 64)
  ]
  asked = {*bm25.words_of(question)} - {*bm25.STOP_WORDS}
  return sorted(found, key=lambda x: -len(asked & {*bm25.words_of(x)}))[:2]


def main(path, out, source='', modes=MODES):
  """Ask all questions in all modes; write and print."""
  folder = packaged.with_decoder(
    packaged.READER, pathlib.Path(source) if source else None
  )
  asked, rows = questions(path), []
  with tempfile.TemporaryDirectory() as workdir:
    model = language_model.load(
      packaged.take(workdir, folder, documents=[{'text': 'None.'}])
    )
    for mode in modes.split(','):
      texts = []
      for text, question, _ in asked:
        form = f'Question: {question}\nAnswer:'
        read = ()
        if mode == 'prompt':
          form = f'{SHOT}{text}\n\n{form}'
        elif mode == 'neighbors':
          read = [spans(model.data.tokenizer, text, question)]
        elif mode == 'control':
          texts.append(facts.in_prompt(model, f'{text}\n\n{form}'))
          continue
        texts.append(prompts.TextPrompt(form, neighbors=read))
      order = sorted(range(len(texts)), key=lambda i: len(texts[i].text))
      found = model.sample(
        [texts[i] for i in order],
        max_new_tokens=16,
        temperature=0.0,
        batch_size=8,
      )
      written = dict(zip(order, (x.completion for x in found), strict=True))
      right = exact = 0
      for i, (_, question, gold) in enumerate(asked):
        line = written[i].strip().split('\n')[0]
        normal = [qa_metrics.normalize_answer(x) for x in gold]
        mine = qa_metrics.normalize_answer(line)
        row = {'mode': mode, 'question': question, 'gold': gold, 'line': line}
        row['right'] = any(f' {x} ' in f' {mine} ' for x in normal)
        row['exact'] = mine in normal
        rows.append(row)
        right, exact = right + row['right'], exact + row['exact']
      print(f'{mode}: {right} right, {exact} exact of {COUNT}', flush=True)
  pathlib.Path(out).write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
  main(*sys.argv[1:])
