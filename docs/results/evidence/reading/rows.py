"""Write the rows that the RETROfit learned to read from, in DPR's form.

  xz -dc docs/results/evidence/reading/invent.py.xz > invent.py
  python invent.py --seed 1 --count 12000 --out invented.jsonl
  python docs/results/evidence/reading/rows.py DATA invented.jsonl OUT

DATA has qa/*.jsonl.xz (question, answers, context, answer_start, title) and
simplewiki.jsonl.xz (title, text). Writes OUT/{train,valid}.jsonl.
"""

import collections
import json
import lzma
import math
import pathlib
import random
import re
import sys

RNG = random.Random(0)
# Most rows of each set of questions.
SETS = {
  'squad_train_part': 12000,
  'qed_nq_train': 4000,
  'tydiqa_goldp_en_train': 3000,
  'squad_train_sentence': 2500,
  'entityquestions_simplewiki': 2000,
  'hotpotqa_part': 1000,
  'qamr_wiki_devtest': 1500,
  'fewrel_templated': 800,
}
FORMS = [
  *[('Question: {}\nAnswer:', ' {}\n')] * 6,
  *[('Q: {}\nA:', ' {}\n')] * 2,
  ('{}\n', '{}\n'),
  ('{} ', '{}.'),
  ('{} The answer is', ' {}.'),
]
VALID = 64  # rows of each kind


def read(path):
  """Rows of a packed file."""
  with lzma.open(path, 'rt') as file:
    return [json.loads(line) for line in file]


def window(text, start, end, most=76):
  """A part of at most `most` words around a span, cut anywhere, as chunks are."""
  words = [(m.start(), m.end()) for m in re.finditer(r'\S+', text)]
  if len(words) <= most:
    return text
  first = next(i for i, w in enumerate(words) if w[1] > start)
  last = max(i for i, w in enumerate(words) if w[0] < end)
  low, high = max(0, last + 1 - most), min(first, len(words) - most)
  i = RNG.randint(min(low, high), max(low, high)) if low < high else low
  stop = words[min(i + most, len(words)) - 1][1]
  return text[words[i][0] : stop]


def anywhere(text):
  """A part of a text."""
  place = RNG.randint(0, max(0, len(text) - 10))
  return window(text, place, place + 1)


def row(prompt, answer, passages):
  """A row in DPR's form."""
  ctxs = [{'title': '', 'text': x} for x in passages]
  return {'question': prompt, 'answers': [answer], 'ctxs': ctxs}


def passages(right, wrong):
  """Both in any order, or a fifth of the time the right one alone."""
  found = [right, anywhere(wrong)] if RNG.random() < 0.8 else [right]
  if RNG.random() < 0.5:
    found.reverse()
  return found


def asked(question, answer):
  """A question in one of the forms, and what follows it."""
  form, end = RNG.choice(FORMS)
  return form.format(question), end.format(answer)


def questions(data):
  """Questions with a right passage, and one of the same article or any other."""
  for name, most in SETS.items():
    found = [
      x
      for x in read(data / 'qa' / f'{name}.jsonl.xz')
      if x.get('context')
      and x.get('answers')
      and x['answers'][0].strip()
      and len(x['answers'][0].split()) <= 12
    ]
    RNG.shuffle(found)
    every, by_title = (
      [x['context'] for x in found],
      collections.defaultdict(list),
    )
    for x in found:
      by_title[x.get('title') or ''].append(x['context'])
    for x in found[:most]:
      text, answer = x['context'], x['answers'][0].strip()
      start = x.get('answer_start')
      start = start[0] if isinstance(start, list) else start
      start = max(0, text.find(answer)) if start is None else start
      if start < 0 or answer not in text:
        continue
      near = by_title[x['title']] if x.get('title') else []
      near = [y for y in near if y != text and answer.lower() not in y.lower()]
      wrong = RNG.choice(near if near and RNG.random() < 0.7 else every)
      whole = re.compile(rf'\b{re.escape(answer.lower())}\b')
      for _ in range(20):
        if not whole.search(wrong.lower()):
          break
        wrong = RNG.choice(every)
      right = window(text, start, start + len(answer))
      question = re.sub(r'\s+', ' ', x['question']).strip()
      yield row(*asked(question, answer), passages(right, wrong))


def invented(path):
  """Unfinished sentences, and a quarter questions, about invented things."""
  things = [json.loads(line) for line in open(path)]
  for x in things:
    for fact in RNG.sample(x['facts'], min(2, len(x['facts']))):
      answer = fact['answer']
      start = x['text'].find(answer)
      others = RNG.sample(things, 40)
      same = [y for y in others if y['style'] == x['style']]
      same = [y for y in same if answer not in y['text']] or others[:1]
      found = passages(
        window(x['text'], start, start + len(answer)), RNG.choice(same)['text']
      )
      if RNG.random() < 0.75:
        end = RNG.choice(['.', '.', ',', '.\n'])
        text = f'{fact["lead"]} {fact["prompt"]}'.strip()
        yield row(text, f' {answer}{end}', found)
      else:
        yield row(*asked(fact['question'], answer), found)


def articles(data):
  """Openings, and paragraphs of other articles that share rare words with them."""
  texts = read(data / 'simplewiki.jsonl.xz')
  texts = [x for x in texts if len(x['text'].split()) >= 110]
  RNG.shuffle(texts)
  texts, index = texts[:8000], collections.defaultdict(list)
  paragraphs = [
    (i, p)
    for i, x in enumerate(texts)
    for p in x['text'].split('\n')
    if 40 <= len(p.split()) <= 160
  ]

  def words(text):
    return sorted({*re.findall(r'[a-z0-9]{3,}', text.lower())})

  for n, (_, paragraph) in enumerate(paragraphs):
    for word in words(paragraph):
      index[word].append(n)
  for i, x in enumerate(texts[:5000]):
    own, size = x['text'].split(' '), RNG.randint(28, 45)
    if len(own) < size + 60:
      continue
    at = RNG.randint(0, len(own) - size - 40)
    head = ' '.join(own[at : at + size])
    tail = ' '.join(own[at + size : at + size + 28])
    scores = collections.Counter()
    for word in words(f'{head} {x["title"]}'):
      places = index.get(word, ())
      if 0 < len(places) < 250:
        for n in places:
          scores[n] += math.log(len(paragraphs) / len(places))
    best = [n for n, _ in scores.most_common(12) if paragraphs[n][0] != i][:2]
    if len(best) == 2:
      yield row(head, f' {tail}', [anywhere(paragraphs[n][1]) for n in best])


def main(data, things, out):
  """Write the rows."""
  data, out = pathlib.Path(data), pathlib.Path(out)
  kinds = [[*questions(data)], [*invented(things)], [*articles(data)]]
  for kind, most in zip(kinds, (None, 16000, None), strict=True):
    RNG.shuffle(kind)
    del kind[most or len(kind) :]
  parts = {
    'valid': [x for kind in kinds for x in kind[:VALID]],
    'train': [x for kind in kinds for x in kind[VALID:]],
  }
  for name, rows in parts.items():
    RNG.shuffle(rows)
    lines = (json.dumps(x) + '\n' for x in rows)
    (out / f'{name}.jsonl').write_text(''.join(lines))


if __name__ == '__main__':
  main(*sys.argv[1:])
