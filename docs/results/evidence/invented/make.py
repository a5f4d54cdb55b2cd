# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write documents about invented things as JSON lines: python make.py > invented.jsonl.

things.json holds, for each kind of thing, the form of its name and of each fact, and
the sentences that tell the fact. 2,500 things are told in three documents each.
"""

import json
import pathlib
import random
import re

R = random.Random(7)
ON = (
  'b br c cr d dr f fl g gl gr h j k kl l m n p pr qu r s sk st t th tr v w z'
)
VO = 'a e i o u ae ei ou ia ea'
CO = 'l n r s th nd rm lk st m d v x rn ss ck'
FIRST = (
  'Ada Boris Clara Dmitri Elena Fergus Greta Hugo Ines Jonas Kirsten Lars Mona Nils '
  'Olga Pavel Rosa Sven Tilda Ulrich Vera Walter Yara Zeno Amara Kofi Mei Ravi Leila '
  'Tomas'
)
ENDS = '', '', 'by', 'holm', 'ford', 'stad', 'ville', ' Bay', ' Island'
OPENINGS = (
  '{N} is described in this short article.',
  'This page is about {N}.',
  'Here is what is known about {N}.',
  'A traveler wrote about {N}:',
  'From the guide: {N}.',
  'Notes on {N}.',
  '',
)


def one_of(words):
  """Draw one of the words of a text."""
  return R.choice(words.split())


def invented(syllables):
  """Return an invented name."""
  name = ''
  for i in range(syllables):
    name += one_of(ON) + one_of(VO)
    if R.random() < 0.45 or i == syllables - 1:
      name += one_of(CO)
  return name.capitalize()


def drawn(match):
  """Return the value of a <slot> of a form."""
  kind, _, given = match[1].partition(' ')
  if kind == 'of':
    return one_of(given)
  if kind == 'person':
    return f'{one_of(FIRST)} {invented(2)}'
  if kind == 'place':
    return invented(R.choice([1, 2, 2])) + R.choice(ENDS)
  numbers = [int(x) for x in given.split()]
  if kind == 'word':
    return invented(*numbers)
  number = R.randint(*numbers)
  return str(number) if kind == 'year' else f'{number:,}'


def fill(form):
  """Draw every slot of a form."""
  return re.sub('<(.*?)>', drawn, form)


def document(name, facts):
  """Return a text that tells most facts, [value, sentences] each, some of them twice."""
  facts = list(facts)
  R.shuffle(facts)
  facts = facts[: R.randint(len(facts) - 1, len(facts))]
  text = [(R.choice(OPENINGS), '')]
  for value, sentences in facts:
    sentence = R.choice(sentences)
    if len(text) == 1:  # a text names its thing at once
      named = [x for x in sentences if '{N}' in x]
      sentence = R.choice(named or [sentence])
    text.append((sentence, value))
  if R.random() < 0.5:
    for value, sentences in R.sample(facts, 2):
      text.append((R.choice(sentences), value))
  return ' '.join(x.format(N=name, v=v) for x, v in text if x)


things = json.loads(pathlib.Path(__file__).with_name('things.json').read_text())
rows = []
for i in range(2500):
  thing = things[R.choice(list(things))]
  name = fill(thing['name'])
  facts = [(fill(form), sentences) for form, sentences in thing['facts']]
  for j in range(3):
    row = {'id': f'inv{i}-{j}', 'title': name, 'text': document(name, facts)}
    rows.append(row)
R.shuffle(rows)
for row in rows:
  print(json.dumps(row))
