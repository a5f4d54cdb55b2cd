"""Write the rows that the RETROfit learned to read from, in DPR's form.

  xz -dc docs/results/evidence/reading/invent.py.xz > invent.py
  python invent.py --seed 1 --count 12000 --out invented.jsonl
  python docs/results/evidence/reading/rows.py DATA invented.jsonl OUT

DATA has qa/*.jsonl.xz (question, answers, context, answer_start, title) and
simplewiki.jsonl.xz (title, text). Writes OUT/{train,valid}.jsonl. Up to four rows that
follow each other have the same passages.
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
PROMPTS = 4  # of the same passages
WORDS = 76  # of a passage, at most; some 100 to 128 tokens
# Sets of questions, with the most groups of each. In the second, most texts have one
# question: two texts are put together.
SETS = {
  'squad_train_part': 6000,
  'squad_train_sentence': 1000,
  'qamr_wiki_devtest': 1000,
}
PAIRED = {
  'qed_nq_train': 1200,
  'tydiqa_goldp_en_train': 800,
  'entityquestions_simplewiki': 400,
  'hotpotqa_part': 200,
  'fewrel_templated': 300,
}
FORMS = [
  *[('Question: {}\nAnswer:', ' {}\n')] * 6,
  *[('Q: {}\nA:', ' {}\n')] * 2,
  ('{}\n', '{}\n'),
  ('{} ', '{}.'),
  ('{} The answer is', ' {}.'),
]
VALID = 24  # groups of each kind


def read(path):
  """Rows of a packed file."""
  with lzma.open(path, 'rt') as file:
    return [json.loads(line) for line in file]


def window(text, start, end):
  """A part of at most WORDS words around a span, cut anywhere, as chunks are."""
  words = [(m.start(), m.end()) for m in re.finditer(r'\S+', text)]
  if len(words) <= WORDS:
    return text
  first = next(i for i, w in enumerate(words) if w[1] > start)
  last = max(i for i, w in enumerate(words) if w[0] < end)
  low, high = max(0, last + 1 - WORDS), min(first, len(words) - WORDS)
  i = RNG.randint(min(low, high), max(low, high)) if low < high else low
  stop = words[min(i + WORDS, len(words)) - 1][1]
  return text[words[i][0] : stop]


def anywhere(text):
  """A part of a text."""
  place = RNG.randint(0, max(0, len(text) - 10))
  return window(text, place, place + 1)


def passages_of(text, span, wrong):
  """Choose passages: two parts of one text, one and a wrong one, or one alone."""
  right, chance = window(text, *span), RNG.random()
  if chance < 0.5 and len(right) < len(text):
    start = text.find(right)
    rest = text[start + len(right) :] if start < len(text) / 3 else text[:start]
    found = [right, window(rest, 0, len(rest)) if start else anywhere(rest)]
  elif chance < 0.9:
    found = [right, anywhere(wrong)]
  else:
    found = [right]
  if RNG.random() < 0.5:
    found.reverse()
  return [x.strip() for x in found]


def group(passages, asked):
  """Rows of the same passages: (prompt, answer, the words that it rests on)."""
  ctxs = [{'title': '', 'text': x} for x in passages]
  asked = [(p, a) for p, a, fact in asked if any(fact in x for x in passages)]
  RNG.shuffle(asked)
  return [
    {'question': p, 'answers': [a], 'ctxs': ctxs} for p, a in asked[:PROMPTS]
  ]


def asked(question, answer):
  """A question in one of the forms, and what follows it."""
  form, end = RNG.choice(FORMS)
  question = re.sub(r'\s+', ' ', question).strip()
  return form.format(question), end.format(answer), answer


def texts_of(path):
  """Texts with their questions: {text: [(question, answer, start, title)]}."""
  found = collections.defaultdict(list)
  for x in read(path):
    if not (x.get('context') and x.get('answers')):
      continue
    text, answer = x['context'], x['answers'][0].strip()
    start = x.get('answer_start')
    start = start[0] if isinstance(start, list) else start
    start = text.find(answer) if start is None else start
    if answer and answer in text and start >= 0 and len(answer.split()) <= 12:
      found[text].append((x['question'], answer, start, x.get('title') or ''))
  return found


def questions(data):
  """Questions with what a search for them could find."""
  for name, most in SETS.items():
    texts = texts_of(data / 'qa' / f'{name}.jsonl.xz')
    by_title = collections.defaultdict(list)
    for text, rows in texts.items():
      by_title[rows[0][3]].append(text)
    every = [*texts]
    RNG.shuffle(every)
    for text in every[:most]:
      rows = texts[text]
      _, answer, start, title = RNG.choice(rows)
      near = by_title[title] if title and RNG.random() < 0.7 else every
      found = passages_of(text, (start, start + len(answer)), RNG.choice(near))
      yield group(found, [asked(q, a) for q, a, *_ in rows])
  for name, most in PAIRED.items():
    texts = texts_of(data / 'qa' / f'{name}.jsonl.xz')
    every = [*texts]
    RNG.shuffle(every)
    for pair in list(zip(every[::2], every[1::2], strict=False))[:most]:
      rows = [RNG.choice(texts[text]) for text in pair]
      found = [
        window(text, start, start + len(answer)).strip()
        for text, (_, answer, start, _) in zip(pair, rows, strict=True)
      ]
      yield group(found, [asked(q, a) for q, a, *_ in rows])


def invented(path):
  """Unfinished sentences, and a quarter questions, about invented things."""
  things = [json.loads(line) for line in open(path)]
  for x in things:
    answer = RNG.choice(x['facts'])['answer']
    start = x['text'].find(answer)
    others = RNG.sample(things, 40)
    same = [y for y in others if y['style'] == x['style']] or others
    found = passages_of(
      x['text'], (start, start + len(answer)), RNG.choice(same)['text']
    )
    rows = []
    for fact in x['facts']:
      if RNG.random() < 0.75:
        text = f'{fact["lead"]} {fact["prompt"]}'.strip()
        end = RNG.choice(['.', '.', ',', '.\n'])
        rows.append((text, f' {fact["answer"]}{end}', fact['answer']))
      else:
        rows.append(asked(fact['question'], fact['answer']))
    yield group(found, rows)


def articles(data):
  """Openings, and paragraphs of other articles that share rare words with them."""
  texts = read(data / 'simplewiki.jsonl.xz')
  texts = [x for x in texts if len(x['text'].split()) >= 160]
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
  for i, x in enumerate(texts[:2500]):
    own, size, heads = x['text'].split(' '), RNG.randint(28, 45), []
    for at in range(0, len(own) - size - 40, size)[:PROMPTS]:
      head = ' '.join(own[at : at + size])
      tail = ' '.join(own[at + size : at + size + 28])
      heads.append((head, f' {tail}', ''))
    scores = collections.Counter()
    for word in words(' '.join(h for h, _, _ in heads) + x['title']):
      places = index.get(word, ())
      if 0 < len(places) < 250:
        for n in places:
          scores[n] += math.log(len(paragraphs) / len(places))
    best = [n for n, _ in scores.most_common(12) if paragraphs[n][0] != i][:2]
    if len(best) == 2:
      yield group([anywhere(paragraphs[n][1]) for n in best], heads)


def main(data, things, out):
  """Write the rows."""
  data, out = pathlib.Path(data), pathlib.Path(out)
  kinds = [[*questions(data)], [*invented(things)], [*articles(data)]]
  for kind, most in zip(kinds, (None, 9000, None), strict=True):
    kind[:] = [rows for rows in kind if rows]
    RNG.shuffle(kind)
    del kind[most or len(kind) :]
  parts = {
    'valid': [x for kind in kinds for x in kind[:VALID]],
    'train': [x for kind in kinds for x in kind[VALID:]],
  }
  for name, groups in parts.items():
    RNG.shuffle(groups)
    lines = (json.dumps(x) + '\n' for rows in groups for x in rows)
    (out / f'{name}.jsonl').write_text(''.join(lines))
    sizes = collections.Counter(map(len, groups))
    print(name, len(groups), sorted(sizes.items()))


if __name__ == '__main__':
  main(*sys.argv[1:])
