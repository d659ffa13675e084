"""Lines of logs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyptox import artifacts

tenths = st.integers(0, 10**9).map(lambda n: n / 10)
statistics = st.builds(artifacts.Statistics, tenths, tenths, tenths, tenths)
ranks = st.sampled_from(["0", "1", "4711"])


@given(st.data())
def test_run_lines(data) -> None:
    timed = data.draw(st.booleans())
    rounds = artifacts.Rounds(
        rounds=data.draw(st.integers(1, 999)) if timed else None,
        effective_us=data.draw(statistics) if timed else None,
        unavailable=None if timed else "no device timing",
        ranks=data.draw(st.dictionaries(ranks, statistics | st.none())),
        raw=data.draw(st.dictionaries(ranks, st.lists(tenths, max_size=3).map(tuple))),
        warmup=data.draw(st.integers(0, 9)),
    )
    slots = data.draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "decode (fwd)"]), statistics)))
    owners = list(rounds.ranks)[:1] or [""]
    rounds = replace(rounds, slots=tuple((owners[0], *slot) for slot in slots))
    assert artifacts.parse_rounds("noise\n" + artifacts.format_rounds(rounds)) == rounds


def test_run_lines_as_printed() -> None:
    text = """12:00:01 [RUN] benchmark kernel=decode l3=1 rounds=100 ranks=2
[RUN]   effective_us (100 rounds) min=902.9 median=931.0 mean=940.5 max=1016.7
[RUN]     rank 77: eff_us min=902.9 median=931.0 mean=940.5 max=1016.7
[RUN]       slot 0 (decode): eff_us min=1.0 median=2.0 mean=3.0 max=4.0
[RUN]     rank 78: (no timing)
[RUN]   raw samples: ranks=1 rounds=100 warmup=5
[RUN]     rank 77 raw n=2 eff_us=[902.9, 1016.7]"""
    rounds = artifacts.parse_rounds(text)
    assert rounds is not None
    assert rounds.effective_us == artifacts.Statistics(902.9, 931.0, 940.5, 1016.7)
    assert rounds.ranks["78"] is None
    assert rounds.slots[0][:3] == ("77", 0, "decode")
    assert rounds.raw == {"77": (902.9, 1016.7)}
    assert "\n".join(text.splitlines()[1:]) == artifacts.format_rounds(rounds)
    assert artifacts.parse_rounds("nothing here") is None
    with pytest.raises(ValueError, match="n=3 samples; got 1"):
        artifacts.parse_rounds("[RUN]     rank 77 raw n=3 eff_us=[902.9]")


words = st.text("abc_.0123456789", min_size=1, max_size=8)
spans = st.builds(
    artifacts.Span,
    words,
    st.integers(0, 2**60),
    st.integers(0, 2**60),
    words,
    words,
    words,
    words,
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(["clk", "rank"]), words),
)


@given(st.lists(spans, max_size=4))
def test_strace_lines(made) -> None:
    assert artifacts.parse_spans("\n".join(f"ERR {artifacts.format_span(span)}" for span in made)) == made


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[STRACE] v=1 pid=1", "must have `tid`"),
        ("[STRACE] v=2 pid=1 tid=1 inv=0 hid=0 depth=0 name=a ts=1 dur=1", "`v` must be 1"),
        ("[STRACE] v=1 pid=1 tid=1 inv=0 hid=0 depth=0 name=a ts=1.5 dur=1", "must be integers"),
    ],
)
def test_bad_strace_lines(line, message) -> None:
    with pytest.raises(ValueError, match=message):
        artifacts.parse_spans("fine\n" + line)
    with pytest.raises(ValueError, match="one word"):
        artifacts.format_span(artifacts.Span("a b", 0, 0))
