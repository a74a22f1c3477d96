"""Reading the reader's files: what is accepted, and what a refusal says."""
import numpy as np
import pytest

from ksvd_ref.command import files

A = np.array([[1.0, 2.0], [3.0, 4.5]])
TEXT = {
    "plain.csv": ("1,2\n3,4.5\n", None, None),
    "header.csv": ("u,v\n1,2\n3,4.5\n", None, ["u", "v"]),
    "labels.csv": ("a,1,2\nb,3,4.5\n", ["a", "b"], None),
    "both.csv": ("name,u,v\na,1,2\nb,3,4.5\n", ["a", "b"], ["u", "v"]),
    "index.csv": (",0,1\n0,1,2\n1,3,4.5\n", ["0", "1"], ["0", "1"]),      # as pandas writes it
    "R.txt": ("u v\na 1 2\nb 3 4.5\n", ["a", "b"], ["u", "v"]),           # no cell above the labels
    "semicolon.csv": ("1;2\n3;4.5\n", None, None),
    "tab.tsv": ("name\tu\tv\na\t1\t2\nb\t3\t4.5\n", ["a", "b"], ["u", "v"]),
    "space.txt": ("# written by savetxt\n 1.0  2.0\n\n 3e0  4.5\n", None, None),
    "quoted.csv": ('"Smith, A","1","2"\n"Jones, B","3","4.5"\n', ["Smith, A", "Jones, B"], None),
    "bom.csv": ("\ufeff1,2\r\n3,4.5\r\n", None, None),
    "one.txt": ("1 2\n", None, None),
    "hash.csv": ("# a comment\n#1 team,1,2\n#2 team,3,4.5\n", ["#1 team", "#2 team"], None),
}


@pytest.mark.parametrize("name", TEXT)
def test_text(tmp_path, name):
    text, rows, columns = TEXT[name]
    (tmp_path / name).write_bytes(text.encode())
    found = files.read(tmp_path / name)
    np.testing.assert_array_equal(found.arrays["A"], A[:len(found.arrays["A"])])
    assert (found.rows, found.columns) == (rows, columns)


@pytest.mark.parametrize("name, text, message", [
    ("empty.csv", "", "found an empty file"), ("comment.txt", "# nothing\n", "found an empty file"),
    ("header.csv", "u,v\n", "found only a header"),
    ("ragged.csv", "1,2\n3\n", "found 1 cells in line 2 after 2 in line 1"),
    ("word.csv", "1,2\n3,x\n", "found 'x' in line 2, column 2"),
    ("first.csv", "1,x,3\n4,5,6\n", "found 'x' in line 1, column 2"),
    ("missing.csv", "a,b\n1,2\nn/a,4\n", "found 'n/a' in line 3, column 1"),
    ("comma.csv", "a;b\n1,5;2\n3,5;4\n", "decimal point .* found '1,5' in line 2, column 1"),
    ("percent.csv", "a,b\n1%,2\n3%,4\n", "decimal point .* found '1%' in line 2, column 1"),
    ("underscore.csv", "1_000,2\n", "found '1_000' in line 1, column 1"),
    ("long.csv", "1," + 200_000 * "2" + "\n", "found something else"),
    ("commas.tsv", "1,2\n3,4\n", "cells of a .tsv are separated by tabs"),
    ("hole.csv", "1,2\n3,\n", "found '' in line 2, column 2"),
    ("names.csv", "u,v,w,x\na,1,2\nb,3,4\n", "header of 2 names expected"),
    ("matrix.mat", "", "found the ending .mat"), ("matrix", "", "found a name without an ending")])
def test_bad_text_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        files.read(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match="UTF-8 expected"):
        files.read(tmp_path / "x.csv")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f8", "int8", "bool"])
def test_numpy(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.eye(3).astype(dtype))
    x = files.read(tmp_path / "x.npy").arrays["A"]
    np.testing.assert_array_equal(x, np.eye(3))
    if np.dtype(dtype).kind == "f":                     # nothing that as_array would refuse
        assert x.dtype == (np.float32 if dtype == "float32" else np.float64) and x.dtype.isnative


def test_archive_with_labels(tmp_path):
    np.savez(tmp_path / "x.npz", K=A, rows=["a", "b"], columns=["u", "v"])
    found = files.read(tmp_path / "x.npz")
    assert set(found.arrays) == {"K"}
    assert (found.rows, found.columns) == (["a", "b"], ["u", "v"])
    np.savez(tmp_path / "y.npz", A=A, names=["a", "b"])
    assert files.read(tmp_path / "y.npz")[1:] == (["a", "b"], ["a", "b"])


def test_damaged_numpy_files_are_refused(tmp_path):
    for name in ("x.npy", "x.npz"):
        for content in (b"", b"PK\x03\x04 no archive", b"\x93NUMPY\x01\x00", b"1,2\n"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ValueError, match="numbers written by numpy.save"):
                files.read(tmp_path / name)


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        files.read(tmp_path / "x.npy")


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        files.read(tmp_path / "x.npy")
