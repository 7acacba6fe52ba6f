"""Whether torch.export is at work: not so under torch.compile, with any torch."""

import pytest
import torch
from torch import Tensor, nn

from detector.utils.exporting import is_exporting


class OneIfExporting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if is_exporting() else x + 0


def test_eager_mode_and_torch_compile_do_not_export() -> None:
    assert OneIfExporting()(torch.zeros(1)) == 0
    assert torch.compile(OneIfExporting(), fullgraph=True, backend="eager")(torch.zeros(1)) == 0


@pytest.mark.parametrize("strict", [True, False])
def test_torch_export_exports(strict: bool) -> None:
    program = torch.export.export(OneIfExporting(), (torch.zeros(1),), strict=strict)
    assert program.module()(torch.zeros(1)) == 1
