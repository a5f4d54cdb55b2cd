"""Complete facts with a kNN-LM over SmolLM2 whose datastore is the 24 documents.

  python facts_knn.py OUT.json

Keys are those of `retro_jax.evaluation.knn_lm`, all documents' tokens, exact search. The
settings are chosen in hindsight: those of a grid under which most facts' first tokens are
the likeliest. Prints the grid, right facts, seconds and bytes.
"""

import json
import pathlib
import re
import sys
import tempfile
import time

import jax
import numpy as np

from retro_jax.evaluation import knn_lm
from retro_jax.nn import models
from retro_jax.trained import language_model, packaged

HERE = pathlib.Path(__file__).parent

NEW, ROWS = 14, 8
GRID = [
  (k, t, w)
  for k in (1, 16, 256)
  for t in (0.3, 1.0, 3.0)
  for w in (0.5, 0.75, 0.9, 0.99)
]


def words(text):
  """Words in lower case."""
  return re.sub(r'[^a-z0-9]+', ' ', text.lower().replace('.\n', ' ')).split()


def is_right(text, fact):
  """Whether the fact's words stand within the first six."""
  found, fact = words(text)[:6], words(fact)
  return any(found[i : i + len(fact)] == fact for i in range(6))


def main(out):
  facts = json.loads((HERE / 'facts.json').read_text())
  rows, chosen = [], None
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
      folder = packaged.with_decoder(packaged.READER, None)
      model = language_model.load(
        packaged.take(workdir, folder, documents=documents)
      )
      tokenizer, params = model.data.tokenizer, jax.device_put(model.params)
      begin = tokenizer.bos_id

      def encode(text):
        return [begin, *tokenizer.encode(text).ids]

      @jax.jit
      def forward(tokens, segments, last):
        batch = {'tokens': tokens, 'segment_ids': segments}
        logits, keys = knn_lm._with_keys(model.model, params, batch, last=last)
        return jax.nn.log_softmax(logits[:, 0]), keys

      def run(texts, size):
        tokens, segments = np.zeros((2, len(texts), size), np.int32)
        for i, x in enumerate(texts):
          tokens[i, : len(x)], segments[i, : len(x)] = x, 1
        last = np.array([len(x) - 1 for x in texts], np.int32)
        logs, keys = forward(tokens, segments, last)
        return np.asarray(logs), np.asarray(keys)

      began = time.process_time()
      keys, values = [], []
      for x in documents:
        ids = encode(x['text'])
        _, h = run([ids], -(-len(ids) // 128) * 128)
        keys.append(h[0, : len(ids) - 1])
        values += ids[1:]
      keys, values = np.concatenate(keys), np.array(values)
      built = time.process_time() - began
      square = (keys.astype(np.float64) ** 2).sum(1)
      print(
        which,
        'keys',
        keys.shape,
        f'{built:.1f} CPU s',
        keys.nbytes + values.astype(np.int32).nbytes,
        'bytes float32',
        flush=True,
      )

      def nearest(queries, k):
        d = (
          (queries.astype(np.float64) ** 2).sum(1)[:, None]
          + square
          - 2.0 * (queries @ keys.T)
        )
        best = np.argsort(d, axis=1)[:, :k]
        return np.maximum(np.take_along_axis(d, best, 1), 0).astype(
          np.float32
        ), values[best]

      @jax.jit
      def begin_rows(tokens, segments, last):
        logits, state = model.model.apply(
          {'params': params},
          tokens,
          segment_ids=segments,
          last=last,
          mutable=['cache', 'intermediates'],
        )
        [keys] = state['intermediates']['layer_30_ffw']['normed']
        return jax.nn.log_softmax(logits[:, 0]), keys, state['cache']

      stepper = models.step_of(model.model)

      @jax.jit
      def next_rows(cache, tokens, position):
        logits, state = stepper.apply(
          {'params': params, 'cache': cache},
          tokens=tokens,
          position=position,
          mutable=['cache', 'intermediates'],
        )
        [keys] = state['intermediates']['layer_30_ffw']['normed']
        return (
          jax.nn.log_softmax(logits),
          keys.reshape(len(tokens), -1),
          state['cache'],
        )

      def start(part):
        tokens, segments = np.zeros((2, len(part), 128), np.int32)
        for i, x in enumerate(part):
          tokens[i, : len(x)], segments[i, : len(x)] = x, 1
        last = np.array([len(x) - 1 for x in part], np.int32)
        logs, keys, cache = begin_rows(tokens, segments, last)
        return (
          np.asarray(logs),
          np.asarray(keys)[np.arange(len(part)), last],
          cache,
          last,
        )

      prompts = [encode(x) for _, x, _ in asked]
      assert max(map(len, prompts)) + NEW <= 128, max(map(len, prompts))
      groups = [prompts[x : x + ROWS] for x in range(0, len(prompts), ROWS)]
      began = time.process_time()
      starts = [start(x) for x in groups]
      print('read prompts', time.process_time() - began)
      first = tuple(np.concatenate([x[i] for x in starts]) for i in (0, 1))
      if chosen is None:
        wanted = [tokenizer.encode(' ' + f).ids[0] for *_, f in asked]
        d, v = nearest(first[1], 1024)
        print(
          'nearest distance, median',
          np.median(d[:, 0]),
          '16th',
          np.median(d[:, 15]),
          '1024th',
          np.median(d[:, -1]),
        )
        score = {}
        for k, t, w in GRID:
          mixed = knn_lm.mix(first[0], d[:, :k], v[:, :k], t, w)
          score[k, t, w] = int((mixed.argmax(1) == wanted).sum())
          print(k, t, w, score[k, t, w])
        chosen = sorted(score, key=score.get)[-1]
        print(
          'chosen',
          chosen,
          score[chosen],
          'nothing',
          int((first[0].argmax(1) == wanted).sum()),
          flush=True,
        )
      settings = {
        'off': (1, 1.0, 0.0),
        'paper': (1024, 1 / 0.00785, 0.118),
        'best': chosen,
      }
      for mode, (k, t, w) in settings.items():
        if which == 'swapped' and mode == 'off':
          continue
        searching, read = 0.0, 0.0
        written_ids = []
        for group, (logs, queries, cache, last) in zip(
          groups, starts, strict=True
        ):
          out_ids = []
          for n in range(NEW):
            began = time.process_time()
            mixed = knn_lm.mix(logs, *nearest(queries, k), t, w) if w else logs
            searching += time.process_time() - began
            tokens = mixed.argmax(1).astype(np.int32)
            out_ids.append(tokens)
            began = time.process_time()
            if n < NEW - 1:
              logs, queries, cache = next_rows(cache, tokens, last + 1 + n)
              logs, queries = np.asarray(logs), np.asarray(queries)
            read += time.process_time() - began
          written_ids += list(np.stack(out_ids, 1))
        written = [tokenizer.decode([int(y) for y in x]) for x in written_ids]
        name = mode + ('_swapped' if which == 'swapped' else '')
        mine = [
          {
            'mode': name,
            'document': i,
            'fact': f,
            'written': y,
            'right': is_right(y, f),
            'settings': [k, t, w],
          }
          for (i, _, f), y in zip(asked, written, strict=True)
        ]
        rows += mine
        print(
          name,
          sum(x['right'] for x in mine),
          'of',
          len(mine),
          f'search {searching / len(mine):.3f} CPU s a fact, writing {read / len(mine):.2f}',
          flush=True,
        )
  pathlib.Path(out).write_text(json.dumps(rows, indent=1) + '\n')


main(*sys.argv[1:])
