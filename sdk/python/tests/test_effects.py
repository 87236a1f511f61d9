"""Effects are shown as the vectors that all languages share say."""

from __future__ import annotations

import json

from agent import write_ops
from conftest import ROOT

import millrace_sdk as mr
from millrace_sdk import _effects


def test_effects_are_shown_as_the_vectors_say() -> None:
    file = json.loads((ROOT / "proto/conformance/effects.json").read_text())
    assert file["effects"]
    assert file["batches"]
    for want in file["effects"] + file["batches"]:
        to = mr.Effects()
        write_ops(to, [want])
        assert _effects.effect(to._ops[0]) == [want]
