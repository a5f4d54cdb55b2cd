# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of the Hugging Face Hub by name: hf://OWNER/NAME[@REVISION][/FILE].

A revision with a slash is refs/KIND/NAME, such as refs/pr/1, or has %2F for it.
"""

from collections.abc import Collection
import os
import pathlib
import re
from urllib import parse

PREFIX = 'hf://'
_REPOSITORY = re.compile(r'[\w.-]+/[\w.-]+', flags=re.ASCII)
_NAME = re.compile(
  r'hf://([\w.-]+/[\w.-]+)(?:@(refs/\w+/[^/]+|[^/]+))?(?:/(.+))?',
  flags=re.ASCII,
)
# What the readers of folders know: small files, and weights of the first kind that
# the repository has. Those of other frameworks, and copies, are not among them.
_SMALL = (
  *('*.json', '*.txt', '*.md', '*.npy', '*.metadata', '*.model', 'model'),
  *('*.index', '*.data-?????-of-?????'),
)
_WEIGHTS = ('*.safetensors*', '*pytorch_model*.bin')
_UNUSED = ('onnx/*', 'openvino/*', 'coreml/*', 'runs/*', 'consolidated*')


def local(path: str | os.PathLike) -> pathlib.Path:
  """Return a folder or file as it is, or its copy when it is on the Hub.

  The copy stands in the Hub's cache. Only files that this library reads are
  fetched; one that is there is not fetched again, and one that came in part is
  continued. HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are variables of the Hub.

  Args:
    path: of this machine, or hf://OWNER/NAME[@REVISION][/FILE].

  Raises:
    ValueError: for another form of name, or a repository that is gated.
    FileNotFoundError: when repository, revision or file are not there, or cannot be
      had without a network.
  """
  text = os.fspath(path)
  if not text.startswith(PREFIX):
    return pathlib.Path(path)
  match = _NAME.fullmatch(text)
  if not match:
    raise ValueError(f'{text}: expected hf://OWNER/NAME[@REVISION][/FILE].')
  from huggingface_hub import errors

  try:
    return pathlib.Path(_fetch(*_parts(match)))
  except errors.GatedRepoError:
    why = 'gated: accept its terms on its page, and set HF_TOKEN'
    raise ValueError(f'{text}: {why}.') from None
  except errors.RevisionNotFoundError:
    raise FileNotFoundError(f'{text}: no such revision.') from None
  except errors.RepositoryNotFoundError:
    why = 'no such repository, or a private one and no HF_TOKEN'
    raise FileNotFoundError(f'{text}: {why}.') from None
  except errors.LocalEntryNotFoundError:
    why = 'not in the cache, and the Hub is offline or cannot be reached'
    raise FileNotFoundError(f'{text}: {why}.') from None
  except errors.EntryNotFoundError:
    raise FileNotFoundError(f'{text}: no such file.') from None
  except (errors.HFValidationError, errors.HfHubHTTPError) as error:
    raise ValueError(f'{text}: {str(error).splitlines()[0]}') from None


def complete(path: str | os.PathLike, names: Collection[str]) -> pathlib.Path:
  """Return a folder as `local` does, with files that its repository may have.

  A copy that other programs left may lack them; the Hub is asked once for each.

  Raises:
    FileNotFoundError: as `local`, or without a network, where nothing tells whether
      the repository has a file that the copy lacks.
  """
  folder, match = local(path), _NAME.fullmatch(os.fspath(path))
  if not match:
    return folder
  import huggingface_hub
  from huggingface_hub import errors

  repo, revision, _ = _parts(match)
  for name in names:
    of_file = {'repo_id': repo, 'filename': name, 'revision': revision}
    if (folder / name).is_file() or huggingface_hub.try_to_load_from_cache(
      **of_file
    ):
      continue  # there, or known to be nowhere
    try:
      huggingface_hub.hf_hub_download(**of_file)
    except errors.LocalEntryNotFoundError:
      raise FileNotFoundError(
        f'{os.fspath(path)}: the copy in the cache is partial: it lacks {name}, and '
        'the Hub is offline or cannot be reached. Load it once with a network, or '
        f'name its folder to take it as it is: {folder}.'
      ) from None
    except errors.EntryNotFoundError:
      pass
  return folder


def _parts(match: re.Match) -> tuple[str, str | None, str | None]:
  repo, revision, file = match.groups()
  return repo, revision and parse.unquote(revision), file


def _fetch(repo: str, revision: str | None, file: str | None) -> str:
  import huggingface_hub

  if file:
    return huggingface_hub.hf_hub_download(repo, file, revision=revision)
  for weights in _WEIGHTS:
    folder = huggingface_hub.snapshot_download(
      repo,
      revision=revision,
      allow_patterns=[*_SMALL, weights],
      ignore_patterns=[*_UNUSED],
    )
    if any(pathlib.Path(folder).rglob(weights)):
      break
  return folder


def check_push(name: str) -> None:
  """Raise ValueError unless `push` may be tried: for a name, a token, offline."""
  import huggingface_hub
  from huggingface_hub import constants

  if not _REPOSITORY.fullmatch(name):
    raise ValueError(f'{name!r}: expected OWNER/NAME of a repository.')
  if constants.HF_HUB_OFFLINE:
    raise ValueError(f'{name}: HF_HUB_OFFLINE is set; nothing can be sent.')
  if not huggingface_hub.get_token():
    raise ValueError(
      f'{name}: no token of the Hub; set HF_TOKEN to one that may write, from '
      'https://huggingface.co/settings/tokens, or run `hf auth login`.'
    )


def push(
  folder: str | os.PathLike,
  name: str,
  files: Collection[str],
  *,
  private: bool = False,
) -> str:
  """Send files of a folder to a repository of the Hub; return its address.

  Files that the Hub has are not sent again, and others there stay.

  Args:
    name: OWNER/NAME; a repository that is not there is made.
    files: names in the folder.
    private: whether a new repository is private.

  Raises:
    ValueError: as `check_push`.
    OSError: when the Hub refuses the files or cannot be reached.
  """
  check_push(name)
  import huggingface_hub
  from huggingface_hub import errors

  api = huggingface_hub.HfApi()
  try:
    url = api.create_repo(name, private=private, exist_ok=True)
    api.upload_folder(
      repo_id=name,
      folder_path=folder,
      allow_patterns=sorted(files),
      commit_message='Pack a model',
    )
  except (errors.HTTPError, OSError) as error:
    why = ' '.join(str(error).split())
    raise OSError(f'{name}: the Hub does not take it ({why}).') from None
  return str(url)
