"""The safetensors reader and writer."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pyptox._safetensors import SafetensorsError, read, read_folder, write

TYPES = ["<f4", "<f2", "<f8", "<i4", "<i8", "u1", "i1", "?", "<u2"]
NARROW = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu]


@settings(max_examples=40, deadline=None)
@given(
    arrays=st.dictionaries(
        st.text(min_size=1).filter(lambda name: name != "__metadata__"),
        st.sampled_from(TYPES).flatmap(
            lambda t: hnp.arrays(t, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        ),
        max_size=4,
    )
)
def test_what_was_written_is_read(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("weights") / "a.safetensors"
    write(path, arrays, {"format": "pt"})
    found = read(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", NARROW)
def test_every_code_of_the_narrow_types(tmp_path, dtype):
    width = np.dtype(dtype).itemsize
    codes = np.arange(256**width, dtype=f"<u{width}")
    write(tmp_path / "a.safetensors", {"x": codes.view(dtype)})
    found = read(tmp_path / "a.safetensors")["x"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.view(codes.dtype), codes)


def test_bytes_as_the_format_lays_them_out(tmp_path):
    path = tmp_path / "a.safetensors"
    header = b'{"__metadata__":{"a":"b"},"x":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}} '
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x01\xff")
    assert read(path)["x"].tolist() == [1, -1]


def _file(header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\xff" * 8, "header would be"),
        (_file(b"{"), "not valid JSON"),
        (_file(b"[]"), "must be a JSON object"),
        (_file(b'{"x":1,"x":2}'), "appears twice"),
        (_file({"x": 3}), "`x` in a.safetensors needs"),
        (_file({"x": _entry(shape=(-2,))}), "needs dtype, shape"),
        (_file({"x": _entry("F4")}), "`x` in a.safetensors must have a type"),
        (_file({"x": _entry(shape=(3,))}), "`x` in a.safetensors is F32.* 12 bytes; its data_offsets hold 8"),
        (_file({"x": _entry()}, b"\0" * 7), "truncated: `x` ends at byte 8"),
        (_file({"x": _entry()}, b"\0" * 9), "holds 9 bytes of data; its header accounts for 8"),
        (_file({"x": _entry(shape=(1,), offsets=(4, 8))}), "`x` in a.safetensors begins at byte 4"),
        (_file({"x": _entry(), "y": _entry()}), "`y` in a.safetensors begins at byte 0"),
    ],
)
def test_a_file_that_is_not_what_it_says(tmp_path, content, message):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(SafetensorsError, match=message):
        read(path)


def test_a_folder_of_shards(tmp_path):
    with pytest.raises(SafetensorsError, match="it has neither"):
        read_folder(tmp_path)
    a, b = (np.full(3, n, np.float32) for n in (1, 2))
    write(tmp_path / "one.safetensors", {"a": a})
    write(tmp_path / "two.safetensors", {"b": b})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    assert {name: int(x[0]) for name, x in read_folder(tmp_path).items()} == {"a": 1, "b": 2}
    index.write_text(json.dumps({"weight_map": {"b": "one.safetensors"}}))
    with pytest.raises(SafetensorsError, match=r"`b` must be in one\.safetensors"):
        read_folder(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "absent.safetensors"}}))
    with pytest.raises(SafetensorsError, match="is not there"):
        read_folder(tmp_path)
    for text in ("{", "{}", '{"weight_map": {"a": "../one.safetensors"}}'):
        index.write_text(text)
        with pytest.raises(SafetensorsError, match="must hold a `weight_map`"):
            read_folder(tmp_path)


def test_a_type_that_the_format_lacks(tmp_path):
    with pytest.raises(SafetensorsError, match=r"`x` must have a type.*complex64"):
        write(tmp_path / "a.safetensors", {"x": np.zeros(2, np.complex64)})
    assert not list(tmp_path.iterdir())
