# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write documents about invented things, three of each, to standard output as JSON lines.

python make.py > invented.jsonl
"""

import json
import random

R = random.Random(7)
ON = 'b br c cr d dr f fl g gl gr h j k kl l m n p pr qu r s sk st t th tr v w z'.split()
VO = 'a e i o u ae ei ou ia ea'.split()
CO = 'l n r s th nd rm lk st m d v x rn ss ck'.split()


def word(n):
  """Return a name of n syllables."""
  w = ''
  for i in range(n):
    w += (
      R.choice(ON)
      + R.choice(VO)
      + (R.choice(CO) if R.random() < 0.45 or i == n - 1 else '')
    )
  return w.capitalize()


FIRST = 'Ada Boris Clara Dmitri Elena Fergus Greta Hugo Ines Jonas Kirsten Lars Mona Nils Olga Pavel Rosa Sven Tilda Ulrich Vera Walter Yara Zeno Amara Kofi Mei Ravi Leila Tomas'.split()


def person():
  """Return a first name and an invented one."""
  return f'{R.choice(FIRST)} {word(2)}'


def place():
  """Return the name of a place."""
  return word(R.choice([1, 2, 2])) + R.choice(
    ['', '', 'by', 'holm', 'ford', 'stad', 'ville', ' Bay', ' Island']
  )


def year(a=1700, b=2024):
  """Return a year."""
  return str(R.randint(a, b))


def num(a, b):
  """Return a number."""
  return f'{R.randint(a, b):,}'


COL = 'red green white blue amber violet yellow orange'.split()
MAT = 'granite limestone oak iron brick copper basalt sandstone pine marble slate'.split()
THINGS = {
  'lighthouse': dict(
    name=lambda p: f'{word(2)} Lighthouse',
    facts=dict(
      place=(
        place,
        [
          '{N} stands in {v}.',
          '{N} is a lighthouse near {v}.',
          'You will find {N} in {v}.',
          'Sailors who pass {v} see {N}.',
        ],
      ),
      year=(
        year,
        [
          '{N} was finished in {v}.',
          'It was built in {v}.',
          'Work on {N} ended in {v}.',
          'Its lamp was first lit in {v}.',
        ],
      ),
      who=(
        person,
        [
          'It was designed by {v}.',
          'The architect of {N} was {v}.',
          '{v} drew the plans of {N}.',
          'Its builder, {v}, lived in the tower.',
        ],
      ),
      color=(
        lambda: R.choice(COL),
        [
          'Its light is {v}.',
          'The light of {N} is {v}.',
          'At night {N} shows a {v} light.',
        ],
      ),
      mat=(
        lambda: R.choice(MAT),
        [
          'The tower is made of {v}.',
          '{N} was built of {v}.',
          'Its walls are {v}.',
        ],
      ),
      high=(
        lambda: num(12, 90),
        [
          '{N} is {v} meters high.',
          'The tower rises {v} meters.',
          'Its height is {v} meters.',
        ],
      ),
      keeper=(
        person,
        [
          'Its last keeper was {v}.',
          'The last keeper of {N} was {v}.',
          '{v} was the last person to keep the light.',
        ],
      ),
    ),
  ),
  'village': dict(
    name=lambda p: place(),
    facts=dict(
      river=(
        lambda: word(2),
        [
          '{N} lies on the river {v}.',
          'The river {v} runs through {N}.',
          '{N} is a village on the {v}.',
        ],
      ),
      pop=(
        lambda: num(200, 9000),
        [
          '{N} has {v} inhabitants.',
          'About {v} people live in {N}.',
          'Its population is {v}.',
        ],
      ),
      mayor=(
        person,
        [
          'The mayor of {N} is {v}.',
          '{v} is its mayor.',
          'Since the last election {v} has been mayor of {N}.',
        ],
      ),
      known=(
        lambda: (
          f'{R.choice(["cheese", "bells", "glass", "honey", "boats", "carpets", "violins", "pears"])}'
        ),
        [
          '{N} is known for its {v}.',
          'Most people come to {N} for its {v}.',
          'Its {v} are sold in the whole region.',
        ],
      ),
      founded=(
        lambda: year(900, 1800),
        [
          'It was founded in {v}.',
          '{N} was founded in {v}.',
          'The oldest document about {N} is of {v}.',
        ],
      ),
      church=(
        lambda: f'Saint {word(2)}',
        [
          'Its church is {v}.',
          'The church of {N} is called {v}.',
          'In the middle of {N} stands the church of {v}.',
        ],
      ),
    ),
  ),
  'person': dict(
    name=lambda p: person(),
    facts=dict(
      born=(
        place,
        [
          '{N} was born in {v}.',
          'The birthplace of {N} is {v}.',
          '{N} grew up in {v}.',
        ],
      ),
      year=(
        lambda: year(1780, 1990),
        ['{N} was born in {v}.', 'The year of birth was {v}.'],
      ),
      job=(
        lambda: R.choice(
          [
            'painter',
            'chemist',
            'sailor',
            'poet',
            'botanist',
            'composer',
            'astronomer',
            'engineer',
            'weaver',
            'pilot',
          ]
        ),
        [
          '{N} was a {v}.',
          'By profession {N} was a {v}.',
          '{N} worked as a {v}.',
        ],
      ),
      work=(
        lambda: (
          f'"The {R.choice(["Silent", "Golden", "Broken", "Last", "Northern", "Hidden"])} {word(2)}"'
        ),
        [
          'The best known work of {N} is {v}.',
          '{N} became famous with {v}.',
          'Everyone remembers {v}.',
        ],
      ),
      spouse=(
        person,
        [
          '{N} was married to {v}.',
          'The wedding of {N} and {v} was a large one.',
          'In later years {N} lived with {v}.',
        ],
      ),
      prize=(
        lambda: f'{word(2)} Medal',
        [
          '{N} received the {v}.',
          'For this work {N} was given the {v}.',
          'The {v} went to {N}.',
        ],
      ),
    ),
  ),
  'company': dict(
    name=lambda p: (
      f'{word(2)} {R.choice(["Works", "Brothers", "Company", "Instruments"])}'
    ),
    facts=dict(
      seat=(
        place,
        [
          '{N} has its seat in {v}.',
          'The head office of {N} is in {v}.',
          '{N} is a company from {v}.',
        ],
      ),
      who=(
        person,
        [
          'It was founded by {v}.',
          'The founder of {N} is {v}.',
          '{v} founded {N}.',
        ],
      ),
      year=(
        year,
        ['{N} was founded in {v}.', 'The company has existed since {v}.'],
      ),
      makes=(
        lambda: R.choice(
          [
            'clocks',
            'kettles',
            'telescopes',
            'bicycles',
            'pianos',
            'compasses',
            'lanterns',
            'looms',
          ]
        ),
        [
          '{N} makes {v}.',
          'It is known for its {v}.',
          'Most of the {v} in the region come from {N}.',
        ],
      ),
      staff=(
        lambda: num(20, 9000),
        ['{N} employs {v} people.', '{v} people work at {N}.'],
      ),
      model=(
        lambda: f'{word(1)} {R.randint(2, 99)}',
        [
          'Its best known model is the {v}.',
          'The {v} is the best seller of {N}.',
          '{N} is proud of its {v}.',
        ],
      ),
    ),
  ),
  'moon': dict(
    name=lambda p: word(2),
    facts=dict(
      planet=(
        lambda: word(2),
        [
          '{N} is a moon of the planet {v}.',
          '{N} circles the planet {v}.',
          'The planet {v} has the moon {N}.',
        ],
      ),
      who=(
        person,
        [
          '{N} was discovered by {v}.',
          'The discoverer of {N} is {v}.',
          '{v} saw {N} first.',
        ],
      ),
      year=(
        lambda: year(1850, 2024),
        [
          'It was discovered in {v}.',
          'The discovery of {N} was announced in {v}.',
        ],
      ),
      days=(
        lambda: num(2, 900),
        ['A turn of {N} takes {v} days.', '{N} needs {v} days for one orbit.'],
      ),
      crater=(
        lambda: word(2),
        [
          'Its largest crater is {v}.',
          'The largest crater of {N} is named {v}.',
          'On {N} lies the crater {v}.',
        ],
      ),
      wide=(
        lambda: num(30, 5000),
        ['{N} is {v} kilometers wide.', 'Its diameter is {v} kilometers.'],
      ),
    ),
  ),
}
OPEN = [
  '{N} is described in this short article.',
  'This page is about {N}.',
  'Here is what is known about {N}.',
  'A traveler wrote about {N}:',
  'From the guide: {N}.',
  'Notes on {N}.',
  '',
]


def document(name, facts, spec):
  """Return a text that tells most facts, some twice."""
  keys = list(facts)
  R.shuffle(keys)
  keys = keys[: R.randint(len(keys) - 1, len(keys))]
  text = [R.choice(OPEN).format(N=name)]
  for i, k in enumerate(keys):
    t = R.choice(spec[k][1])
    if i == 0:
      t = R.choice([x for x in spec[k][1] if '{N}' in x] or [t])
    text.append(t.format(N=name, v=facts[k]))
  text = [x for x in text if x]
  if R.random() < 0.5:
    for k in R.sample(keys, 2):
      text.append(R.choice(spec[k][1]).format(N=name, v=facts[k]))
  return ' '.join(text)


rows = []
for i in range(2500):
  kind = R.choice(list(THINGS))
  spec = THINGS[kind]['facts']
  name = THINGS[kind]['name'](0)
  facts = {k: f() for k, (f, _) in spec.items()}
  for j in range(3):
    text = document(name, facts, spec)
    rows.append({'id': f'inv{i}-{j}', 'title': name, 'text': text})
R.shuffle(rows)
for row in rows:
  print(json.dumps(row))
