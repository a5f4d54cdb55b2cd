"""CPU seconds a fact and bytes of each writer over the 24 documents."""

import json, pathlib, tempfile, time
from retro_jax.trained import language_model, packaged

facts = json.loads(
  pathlib.Path('docs/results/evidence/reading/facts.json').read_text()
)
documents = [
  {
    'id': str(i),
    'title': x['title'],
    'text': x['text'].format(*(f['answer'] for f in x['facts'])),
  }
  for i, x in enumerate(facts)
]
asked = [
  (i, f'{f["lead"].strip()} {f["prompt"].strip()}')
  for i, x in enumerate(facts)
  for f in x['facts']
]
folder = packaged.with_decoder(packaged.READER, None)
with tempfile.TemporaryDirectory() as w:
  c = time.process_time()
  model = language_model.load(packaged.take(w, folder, documents=documents))
  print('documents taken in', time.process_time() - c, 'CPU s')
  n = sum(f.stat().st_size for f in pathlib.Path(w).rglob('*') if f.is_file())
  print('workdir bytes', n)
  for f in sorted(pathlib.Path(w).rglob('*')):
    if f.is_file():
      print(f.relative_to(w), f.stat().st_size)
  print('text bytes', sum(len(x['text'].encode()) for x in documents))
  import jax, numpy as np

  print(
    'params',
    sum(int(np.prod(x.shape)) for x in jax.tree.leaves(model.params)),
    'bytes',
    sum(x.nbytes for x in jax.tree.leaves(model.params)),
  )
  for mode in ('nothing', 'prompt', 'neighbors'):
    texts = [t for _, t in asked][:24]
    kw = {}
    if mode != 'neighbors':
      kw['neighbors'] = []
    if mode == 'prompt':
      texts = [f'{documents[i]["text"]}\n\n{t}' for i, t in asked][:24]
    for k in range(2):
      c, wl = time.process_time(), time.time()
      model.sample(
        texts, max_new_tokens=14, temperature=0.0, batch_size=8, **kw
      )
      print(
        mode,
        k,
        (time.process_time() - c) / 24,
        (time.time() - wl) / 24,
        flush=True,
      )
