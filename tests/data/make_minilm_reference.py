# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes minilm_reference.json with sentence-transformers.

Run in an environment of its own (torch, sentence-transformers):

  python make_minilm_reference.py PATH_OF_MODEL_FOLDER
"""

import json
import pathlib
import sys

import sentence_transformers

SENTENCES = [
  'A short one.',
  'The mill by the river has not ground corn for a hundred years.',
  'Retrieval finds what the parameters of a model have forgotten.',
  'Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.',
  'E = mc², says the poster; nobody reads it.',
  '日本の首都は東京です。',
  '  spaces,\ttabs\nand   newlines  ',
  'a ' * 150,
]


def main(path: str) -> None:
  model = sentence_transformers.SentenceTransformer(path, device='cpu')
  model.max_seq_length = 128
  vectors = model.encode(SENTENCES, normalize_embeddings=True)
  rows = [
    {'text': text, 'vector': [round(float(x), 8) for x in vector]}
    for text, vector in zip(SENTENCES, vectors, strict=True)
  ]
  file = pathlib.Path(__file__).with_name('minilm_reference.json')
  file.write_text(json.dumps(rows, ensure_ascii=False) + '\n')


if __name__ == '__main__':
  main(sys.argv[1])
