"""Complete facts from own documents: what a RETROfit reads, and its controls.

  python docs/results/evidence/reading/facts.py OUT.json [PACKED] [MODES]
  python docs/results/evidence/reading/facts.py OUT.json CONTROL control

Writes a row for each fact and mode: what was written, whether the fact's words come
within the first six, whether the fact stands in what was read. PACKED is a folder of
`experiments.pack --parts=added`; default that of the package. CONTROL is one that was
trained with passages in its prompt (in_prompt.py): it gets what was retrieved there, or
the whole document.
"""

import json
import pathlib
import re
import sys
import tempfile

import numpy as np

from retro_jax.trained import language_model, packaged
from retro_jax.views import prompts

HERE = pathlib.Path(__file__).parent
MODES = 'real,swapped,shuffled,off,prompt,prompt_swapped'
CONTROL = 'retrieved,retrieved_swapped,document,document_swapped'


def words(text):
  """Words in lower case."""
  return re.sub(r'[^a-z0-9]+', ' ', text.lower().replace('.\n', ' ')).split()


def is_right(text, fact):
  """Whether the fact's words stand within the first six."""
  found, fact = words(text)[:6], words(fact)
  return any(found[i : i + len(fact)] == fact for i in range(6))


def in_prompt(model, text):
  """A prompt whose end reads "." alone, as the control was trained."""
  length = 1 + len(model.data.tokenizer.encode(text).ids)
  before = -(-length // model.model.config.chunk_length) - 1
  return prompts.TextPrompt(text, neighbors=[[]] * before + [['.']])


def retrieved(model, texts):
  """The neighbors that the end of each prompt finds."""
  drawn = model.sample(texts, max_new_tokens=1, temperature=0.0, batch_size=8)
  return [[c.neighbors for c in x.chunks if c.prompt][-1] for x in drawn]


def main(out, source='', modes=MODES):
  """Complete all facts in all modes; write and print."""
  modes = CONTROL if modes == 'control' else modes
  facts = json.loads((HERE / 'facts.json').read_text())
  folder = packaged.with_decoder(
    packaged.READER, pathlib.Path(source) if source else None
  )
  rows = []
  for which in ('answer', 'swapped'):
    documents = [
      {
        'id': str(i),
        'title': x['title'],
        'text': x['text'].format(*(f[which] for f in x['facts'])),
      }
      for i, x in enumerate(facts)
    ]
    asked = [
      (i, f'{f["lead"].strip()} {f["prompt"].strip()}', f[which])
      for i, x in enumerate(facts)
      for f in x['facts']
    ]
    with tempfile.TemporaryDirectory() as workdir:
      model = language_model.load(
        packaged.take(workdir, folder, documents=documents)
      )
      for mode in modes.split(','):
        if mode.endswith('swapped') != (which == 'swapped'):
          continue
        texts, neighbors = [text for _, text, _ in asked], None
        if mode == 'off' or mode.startswith('prompt'):
          neighbors = []
        if mode.startswith('prompt'):
          texts = [f'{documents[i]["text"]}\n\n{text}' for i, text, _ in asked]
        if mode == 'shuffled':  # what the prompts of a document far away find
          lists = retrieved(model, texts)
          lists = lists[len(lists) // 2 :] + lists[: len(lists) // 2]
          texts = [
            prompts.TextPrompt(text, neighbors=[read])
            for text, read in zip(texts, lists, strict=True)
          ]
        if mode.startswith(('retrieved', 'document')):
          before = [documents[i]['text'] for i, *_ in asked]
          if mode.startswith('retrieved'):
            before = ['\n\n'.join(x) for x in retrieved(model, texts)]
          texts = [
            in_prompt(model, f'{passages}\n\n{text}')
            for passages, text in zip(before, texts, strict=True)
          ]
        found = model.sample(
          texts,
          neighbors=neighbors,
          max_new_tokens=14,
          temperature=0.0,
          batch_size=8,
        )
        for (i, _, fact), sample in zip(asked, found, strict=True):
          read = [x for c in sample.chunks for x in c.neighbors if c.prompt]
          rows.append(
            {
              'mode': mode,
              'document': i,
              'style': facts[i]['style'],
              'fact': fact,
              'written': sample.completion,
              'right': is_right(sample.completion, fact),
              'retrieved': any(fact.lower() in x.lower() for x in read),
            }
          )
        mine = [x for x in rows if x['mode'] == mode]
        right, read = ([x[k] for x in mine] for k in ('right', 'retrieved'))
        both = int(np.logical_and(right, read).sum())
        print(
          f'{mode}: {sum(right)} of {len(mine)} right; {sum(read)} retrieved, '
          f'of which {both} right',
          flush=True,
        )
  pathlib.Path(out).write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
  main(*sys.argv[1:])
