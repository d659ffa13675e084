"""Published rows about warms, and the search for one on a decode step."""

import itertools
import json

import pytest

import autotune
from pyptox import PyptoxError, chip, validation
from pyptox import program as pp
from pyptox.hardware import a2a3
from pyptox.validation import _decode_layers as layers
from pyptox.validation import _l2_prefetch as rows

HEADER = (
    "id,group,workload,ranks,warm_set,bytes_mb,scopes,contexts,issue_order,anchor,baseline_us,measured_us,delta_us,"
    "delta_pct,bandwidth_gbs,duration_us,metric,outcome_sign,split"
)


def answers(folder, *lines: str) -> dict[str, dict]:
    (folder / "l2_prefetch.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    return {row["id"]: row for row in validation.validate(folder, a2a3()).rows}


@pytest.fixture(scope="module")
def published(shared):
    found = validation._report.read(shared / "measured", "l2_prefetch")
    return {row["id"]: validation._report._answer("l2_prefetch", row, a2a3()) for row in found}


def test_every_sign_of_a_warm_is_right(published):
    judged = [row for row in published.values() if row["outcome_predicted"] is not None]
    assert len(judged) >= 12
    assert {row["id"] for row in judged if row["outcome_predicted"] != row["outcome_measured"]} == set()


def test_gains_are_within_a_factor_of_two(published):
    gains = [r for r in published.values() if r["outcome_measured"] == "gain" and r["measured"] and r["measured"] < 0]
    assert len(gains) >= 6
    assert all(0.5 <= row["predicted"] / row["measured"] <= 2.0 for row in gains)


def test_anchors_and_sets_are_in_the_published_order(published):
    for names in (("l2_anchor_q", "l2_anchor_kv", "l2_anchor_rms"), ("l2_set_woa_wob", "l2_set_woa", "l2_set_wob")):
        measured, predicted = ([published[name][key] for name in names] for key in ("measured", "predicted"))
        assert measured == sorted(measured)
        assert predicted == sorted(predicted)


def test_streams_and_spans_are_near(published):
    near = {r["id"]: r["relative_error"] for r in published.values() if r["unit"] in ("GB/s", "MB")}
    near |= {name: published[name]["relative_error"] for name in ("l2_layer_SWA", "l2_layer_CSA", "l2_moe_ffn_b")}
    assert len(near) >= 8
    assert max(map(abs, near.values())) < 0.25


def test_one_program_gives_the_published_span_of_a_step():
    assert chip.simulate(layers.decode_step(a2a3()).work).makespan_us == pytest.approx(34423.7, rel=0.01)
    weights = layers.WEIGHTS
    assert sum(weights[name] for name in ("w1", "w3", "w2", "shared")) / 1e6 == pytest.approx(427.8, abs=0.1)
    attention = sum(weights[name] for name in ("wqkv_a", "wq_b", "wo_a", "wo_b")) / 1e6
    assert attention == pytest.approx(146.9, abs=0.2)


def test_one_context_beats_two_and_half_of_l2_beats_more_than_it(tmp_path):
    found = answers(
        tmp_path,
        "one,g,,,o-proj,,1,1,,,,,,-1.0,,,p50,gain,",
        "two,g,,,o-proj,,2,2,,,,,,1.0,,,p50,,",
        "half,g,,,wo_a+wo_b,100.7,1,1,,,,,,-1.0,,,p50,gain,",
        "more,g,,,+ routed w1 + w3,268.4,1,1,,,,,,3.0,,,p50,loss,",
    )
    assert found["one"]["predicted"] == found["half"]["predicted"] < found["two"]["predicted"]
    assert found["half"]["predicted"] < 0 < found["more"]["predicted"]


def test_rows_that_state_too_little_say_why(published, tmp_path):
    left = {row["id"]: row["reason"] for row in published.values() if not row["covered"]}
    assert "older runtime" in left["l2_963_e2e"]
    assert "stalls" in left["l2_spike_20"]
    assert all(left.values())
    found = answers(tmp_path, "a,g,,,nothing known,,,,,,,,-3,,,,p50,,", "b,g,,,wo_a,,,,,,,,,,,,p50,,")
    assert "no set of weights" in found["a"]["reason"]
    assert "no difference" in found["b"]["reason"]


def test_a_row_is_read_in_its_order_and_at_its_anchor():
    row = {"warm_set": "wo_a,wo_b", "issue_order": "wo_b,wo_a", "anchor": "rms_norm task id", "contexts": "1"}
    assert rows.plan_of(row) == ((("wo_b", "wo_a"), "rms_norm", 1),)
    over = {"warm_set": "o-proj plus second warm of q/kv projection at layer entry", "group": "over_warming"}
    assert rows.plan_of(over) == ((("wo_a", "wo_b"), "q_b", 1), (("wqkv_a", "wq_b"), "hc_pre", 1))
    assert rows._numbers("+625..+673 relative") == [625.0, 673.0]
    assert rows._numbers("247-258") == [247.0, 258.0]


@pytest.fixture(scope="module")
def step():
    return layers.decode_step(a2a3()).work


def test_the_search_gains_at_least_what_the_best_published_choice_does(step):
    found = autotune.prefetch(step, budget=100)
    best = autotune.prefetch(step, choices=["wo_a,wo_b@q_b"])
    assert found.gain_us >= best.gain_us > 500
    assert len(found.tried) <= 101
    text = str(found)
    assert "of L2" in text
    assert "nearest alternatives" in text


def test_published_losers_are_explained(step):
    found = autotune.prefetch(
        step, choices=["wo_a,wo_b@q_b", "wo_a,wo_b@q_b/2", "wo_a,wo_b,w1,w3@q_b", "wo_a,wo_b@rms_norm"]
    )
    why = {str(one): found.why(one.choice) for one in found.tried}
    assert "too big" in why["wo_a,wo_b,w1,w3@q_b"]
    assert "contends with" in why["wo_a,wo_b,w1,w3@q_b"]
    assert "too late" in why["wo_a,wo_b@q_b/2"]
    assert "holds a vector core that norm_apply waits for" in why["wo_a,wo_b@rms_norm"]
    margins = {m.weights: m for m in found.margins(found.best.choice)}
    assert set(margins) == {"wo_a", "wo_b"}
    assert margins["wo_a"].found > 0.4


def test_a_search_is_never_worse_than_no_warm_and_says_what_is_resident(step):
    found = autotune.prefetch(step, repeated=True, choices=[])
    assert found.gain_us == 0.0
    assert found.best.choice == ()
    small = chip.Memory.of([9.0, 4.0], [0.0, 9.0], [0.0] * 2, regions=[2**20], uses=[[(0, 1.0)], [(0, 1.0)]])
    work = chip.Workload.of(["AIC"] * 2, [24] * 2, [9.0, 9.0], [[], [0]], names=["t0 up", "t1 down"], memory=small)
    found = autotune.prefetch(work)
    assert found.gain_us == 0.0
    assert "none pays" in str(found)
    assert [c.name for c in found.candidates.resident] == ["up", "down"]


def test_every_choice_of_one_warm_is_tried_where_they_are_few():
    memory = chip.Memory.of(
        [9.0, 90.0, 4.0, 4.0],
        [0.0, 0.0, 9.0, 9.0],
        [0.0] * 4,
        regions=[2**22] * 2,
        uses=[[], [], [(0, 1.0)], [(1, 1.0)]],
    )
    names = ["t0 norm", "t1 mix", "t2 up", "t3 down"]
    work = chip.Workload.of(
        ["AIV", "AIV", "AIC", "AIC"],
        [1, 1, 24, 24],
        [9.0, 90.0, 9.0, 9.0],
        [[], [0], [1], [2]],
        names=names,
        memory=memory,
    )
    found = autotune.prefetch(work)
    assert found.method == "exhaustive"
    assert found.gain_us > 5
    assert all(one.time_us >= found.best.time_us for one in found.tried)


@pytest.mark.parametrize("repeated", [False, True])
def test_the_search_goes_on_to_the_best_second_warm(step, repeated):
    (pair,) = autotune.prefetch(step, repeated=repeated, choices=["w1@attention+wo_a@combine"]).tried[:1]
    found = autotune.prefetch(step, repeated=repeated, budget=120)
    assert found.best.time_us <= pair.time_us < found.as_is_us - 1700
    assert len(found.best.choice) > 1
    assert "MB behind each attention" in str(found)


def test_a_larger_budget_is_never_worse():
    from pyptox.cli._programs import program_at

    layers_of = program_at("docs/programs/layers.py:layers")
    results = [autotune.prefetch(layers_of, budget=budget) for budget in (1, 10, 30, 60, 189, 200, 400)]
    times = [found.best.time_us for found in results]
    assert all(after <= before * (1 + 1e-4) for before, after in itertools.pairwise(times))
    assert times[0] > times[-1] + 40.0
    methods = [found.method for found in results]
    assert (methods[0], methods[-1]) == ("gradient", "exhaustive")
    one_warm = {str(one) for one in results[-1].tried if len(one.choice) == 1}
    assert len(one_warm) >= 189
    for few, more in itertools.pairwise(results):  # the same choices, and then others
        assert {str(one) for one in few.tried} <= {str(one) for one in more.tried}


def chain():
    import pyptox as px

    shapes = {"x": (16, 1024), "a": (1024, 4096), "b": (4096, 1024), "c": (1024, 4096)}

    @pp.program(sizes=lambda: {name: px.spec(shape, "bf16") for name, shape in shapes.items()})
    def products(x, a, b, c):
        x = pp.submit(px.kernels.matmul, x, a, name="ma", m=16, n=128, k=128)
        x = pp.submit(px.kernels.matmul, x, b, name="mb", m=16, n=64, k=256)
        return pp.submit(px.kernels.matmul, x, c, name="mc", m=16, n=128, k=256)

    return products


def test_what_gains_nothing_says_why():
    found = autotune.prefetch(chain(), choices=["mb.b@ma", "mc.b@mb", "mc.b@ma"])
    why = {str(one): found.why(one.choice) for one in found.tried}
    assert why["mb.b@ma"] == "too late: 0% of mb.b is there at its use"
    assert "too late: 0% of mc.b" in why["mc.b@mb"]
    assert "a warm holds its core for" in why["mc.b@mb"]
    assert why["mc.b@ma"].startswith("blocks save")
    (margin,) = found.margins(next(one.choice for one in found.tried if str(one) == "mb.b@ma"))
    assert margin.found == 0.0
    assert margin.least_us < 0
    assert "3 choices priced (those given)" in str(found)
    assert "1 choice priced" in str(autotune.prefetch(chain(), choices=["mb.b@ma"]))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("mc.b@ma/0", "1 to 4 contexts"),
        ("mc.b@ma/99", "1 to 4 contexts"),
        ("mc.b@ma/", "1 to 4 contexts"),
        ("mc.b@ma/²", "1 to 4 contexts"),
        ("mc.b,mc.b@ma", "once behind an anchor"),
        ("mc.b@ma+mc.b@ma", "once behind an anchor"),
        ("mc.b@ma+mb.b,mc.b@ma/2", "once behind an anchor"),
        ("", "`choices` must be a text"),
        (3, "`choices` must be a text"),
        (",mc.b@ma", "WEIGHTS@ANCHOR"),
        ("mc.b@ma+", "WEIGHTS@ANCHOR"),
    ],
)
def test_what_is_no_choice_is_refused(choice, message):
    with pytest.raises(PyptoxError, match=message):
        autotune.prefetch(chain(), choices=[choice])


def test_spaces_do_not_matter_and_arguments_are_what_they_should_be():
    from typing import Any

    apart, close = ("mc.b , mb.b @ ma / 2 + mc.b @ mb", "mc.b,mb.b@ma/2+mc.b@mb")
    (one,) = {str(autotune.prefetch(chain(), choices=[text]).tried[-1]) for text in (apart, close)}
    assert one == "mc.b,mb.b@ma/2 + mc.b@mb"
    text: Any = "mb.b@ma"
    number: Any = 3
    for wrong in (text, number):
        with pytest.raises(PyptoxError, match="`choices` must be several texts"):
            autotune.prefetch(chain(), choices=wrong)
    for budget in (2.5, True, "9", -1):
        given: Any = budget
        with pytest.raises(PyptoxError, match="`budget` must be 1 or more, an integer"):
            autotune.prefetch(chain(), budget=given)
    space = autotune.Space(**{"a.m": autotune.PowerOfTwo(16, 32)})
    for budget in (1.5, -1, None):
        given = budget
        with pytest.raises(PyptoxError, match="`prefetch` must be 0 or more, an integer"):
            autotune.tune_program(lambda _: pp.graph(chain()), space, start={"a.m": 16}, prefetch=given)


@pytest.mark.parametrize("body", ["return 1 / 0", "pp.warm(w[idx])"])
def test_an_error_in_the_users_file_is_a_message(capsys, tmp_path, body):
    from pyptox.cli import main

    file = tmp_path / "mine.py"
    specs = '{"x": px.spec((16, 64), "bf16"), "w": px.spec((2, 64, 64), "bf16"), "idx": px.spec((1,), "int32")}'
    file.write_text(
        "import pyptox as px\nfrom pyptox import program as pp\n\n\n"
        f"@pp.program(sizes=lambda: {specs})\ndef zz(x, w, idx):\n    {body}\n"
    )
    messages = set()
    for command in ("prefetch", "simulate"):
        with pytest.raises(SystemExit) as stopped:
            main([command, f"{file}:zz"])
        shown = capsys.readouterr()
        assert (stopped.value.code, shown.out) == (2, "")
        assert f"{file}:7: " in shown.err
        messages.add(shown.err)
    assert len(messages) == 1


def test_a_program_is_searched_by_the_arguments_of_its_tasks(tmp_path):
    import pyptox as px

    @pp.program(sizes=lambda: {"x": px.spec((16, 4096), "bf16"), "w": px.spec((4, 4096, 4096), "bf16")})
    def stack(x, w):
        for layer in range(4):
            x = pp.submit(px.kernels.matmul, x, w[layer], name="up")
        return x

    found = autotune.prefetch(stack, budget=20)
    assert list(found.candidates.weights) == ["up.b"]
    assert found.best.time_us <= found.as_is_us
    with pytest.raises(PyptoxError, match="cannot be warmed"):
        autotune.prefetch(stack, choices=["gate@up"])
    with pytest.raises(PyptoxError, match="is no kind of task"):
        autotune.prefetch(stack, choices=["up.b@gate"])
    with pytest.raises(PyptoxError, match="WEIGHTS@ANCHOR"):
        autotune.prefetch(stack, choices=["up.b"])
    with pytest.raises(PyptoxError, match="`budget`"):
        autotune.prefetch(stack, budget=0)


def test_the_command_prices_given_choices_and_refuses_unknown_ones(capsys):
    from pyptox.cli import main

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["prefetch", "decode_step", *arguments])
        shown = capsys.readouterr()
        return int(stopped.value.code or 0), shown.out, shown.err

    code, out, _ = run("--choice", "wo_a,wo_b@q_b", "--choice", "wo_a,wo_b@rms_norm", "--json")
    found = json.loads(out)
    assert (code, found["best"], found["method"]) == (0, "wo_a,wo_b@q_b", "given")
    assert found["gain_us"] == pytest.approx(found["without_us"] - found["predicted_us"])
    assert "norm_apply" in found["alternatives"][0]["why"]
    code, _, err = run("--choice", "wo_a@nowhere")
    assert code == 2
    assert "is no kind of task" in err


def test_the_report_says_what_answers_rest_on(tmp_path):
    (tmp_path / "l2_prefetch.csv").write_text(HEADER + "\none,g,,,single,,1,1,,,,,,,285,,bandwidth,,\n")
    report = validation.validate(tmp_path, a2a3())
    rests = report.to_dict()["files"]["l2_prefetch"]["rests_on"]
    assert rests.startswith("calibrated:")
    assert "At risk in other rows" in rests
    assert "calibrated: the rate of one stream" in str(report)
