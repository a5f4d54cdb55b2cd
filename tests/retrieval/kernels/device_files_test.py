# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of TPUs have names that other hardware has, too; the vendor decides."""

from retrieval.kernels import device_files


def test_files_of_gpus_and_of_googles_devices_count(monkeypatch, tmp_path):
  monkeypatch.setattr(device_files, '_DEV', tmp_path / 'dev')
  monkeypatch.setattr(device_files, '_PCI', tmp_path / 'pci')
  assert device_files.paths() == []
  (tmp_path / 'dev/vfio').mkdir(parents=True)
  for name in ('vfio/12', 'vfio/vfio', 'nvidiactl'):
    (tmp_path / 'dev' / name).touch()
  assert device_files.paths() == []  # a network card given to a guest
  (tmp_path / 'pci/a').mkdir(parents=True)
  (tmp_path / 'pci/a/vendor').write_text('0x8086\n')
  assert device_files.paths() == []
  (tmp_path / 'pci/a/vendor').write_text('0x1ae0\n')
  assert device_files.paths() == [str(tmp_path / 'dev/vfio/12')]
  (tmp_path / 'dev/nvidia0').touch()
  assert device_files.paths()[0] == str(tmp_path / 'dev/nvidia0')
