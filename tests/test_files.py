"""Reading the reader's files: what is accepted, what it is taken for, and what a refusal says."""
import io
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse

from ksvd_ref.command import files, frame, tables

A = np.array([[1.0, 2.0], [3.0, 4.5]])
TEXT = {
    "plain.csv": ("1,2\n3,4.5\n", None, None),
    "header.csv": ("u,v\n1,2\n3,4.5\n", None, ["u", "v"]),
    "labels.csv": ("a,1,2\nb,3,4.5\n", ["a", "b"], None),
    "both.csv": ("name,u,v\na,1,2\nb,3,4.5\n", ["a", "b"], ["u", "v"]),
    "index.csv": (",0,1\n0,1,2\n1,3,4.5\n", ["0", "1"], ["0", "1"]),      # as pandas writes it
    "R.txt": ("u v\na 1 2\nb 3 4.5\n", ["a", "b"], ["u", "v"]),           # no cell above the labels
    "semicolon.csv": ("1;2\n3;4.5\n", None, None),
    "bar.txt": ("u|v\n1|2\n3|4.5\n", None, ["u", "v"]),
    "tab.tsv": ("name\tu\tv\na\t1\t2\nb\t3\t4.5\n", ["a", "b"], ["u", "v"]),
    "space.txt": ("# written by savetxt\n 1.0  2.0\n\n 3e0  4.5 \n", None, None),
    "spaces-and-tabs.txt": ("x 1\t2\ny\t3  4.5\n", ["x", "y"], None),
    "comma-space.csv": ("1, 2\n3, 4.5\n", None, None),
    "quoted.csv": ('"Smith, A","1","2"\n"Jones, B","3","4.5"\n', ["Smith, A", "Jones, B"], None),
    "doubled.csv": ('n,u,v\n"5"" pipe",1,2\n"a\nb",3,4.5\n', ['5" pipe', "a\nb"], ["u", "v"]),
    "break.csv": ('n,"u\n# not a comment","v"\nx,1,2\ny,3,4.5\n', ["x", "y"],
                  ["u\n# not a comment", "v"]),
    "bom.csv": ("\ufeff1,2\r\n3,4.5\r\n", None, None), "mac.csv": ("1,2\r3,4.5\r", None, None),
    "one.txt": ("1 2\n", None, None),
    "hash-comma.csv": ("n;u;v\n#1;1;2,0\n#2;3;4,5\n", ["#1", "#2"], ["u", "v"]),
    "hash-rule.csv": ("1,2\n#--,--\n3,4.5\n", None, None),
    "R-one.txt": ("u v\n1 1 2\n2 3 4.5\n", ["1", "2"], ["u", "v"]),
    "hash.csv": ("# a comment\n#1 team,1,2\n#2 team,3,4.5\n", ["#1 team", "#2 team"], None),
    "percent.txt": ("% from Matlab, 2 rows\n1 2\n3 4.5\n%end\n", None, None),
    # the header, whatever it holds
    "years.csv": ("country,1990,1995\nFR,1,2\nDE,3,4.5\n", ["FR", "DE"], ["1990", "1995"]),
    "empty-corner.csv": (",1990,1995\nFR,1,2\nDE,3,4.5\n", ["FR", "DE"], ["1990", "1995"]),
    "halves.csv": ("x,0.5,1.5\nlow,1,2\nhigh,3,4.5\n", ["low", "high"], ["0.5", "1.5"]),
    "bands.csv": ("age,<5,5-9\nmen,1,2\nwomen,3,4.5\n", ["men", "women"], ["<5", "5-9"]),
    "ids.csv": ("node,7,3\n7,1,2\n3,3,4.5\n", ["7", "3"], ["7", "3"]),
    "R-quoted.txt": ('"7" "3"\n"7" 1 2\n"3" 3 4.5\n', ["7", "3"], ["7", "3"]),
    "quoted-years.csv": ('"1990","1991"\n1,2\n3,4.5\n', None, ["1990", "1991"]),
    # names of any kind
    "dates.csv": ("date,x,y\n2020-01-01,1,2\n01.02.2020,3,4.5\n", ["2020-01-01", "01.02.2020"],
                  ["x", "y"]),
    "dates-alone.csv": ("2020-01-01,1,2\n2020-01-02,3,4.5\n", ["2020-01-01", "2020-01-02"], None),
    "times.csv": ("t,x,y\n10:00,1,2\n10:30,3,4.5\n", ["10:00", "10:30"], ["x", "y"]),
    "ages.csv": ("age,x,y\n5-9,1,2\n65+,3,4.5\n", ["5-9", "65+"], ["x", "y"]),
    "floats.csv": ("who,Inf,Infinity,x\nNan,1,2,0\nAnn,3,4.5,0\n", ["Nan", "Ann"],
                   ["Inf", "Infinity", "x"]),
    "letters.csv": ("n,é,ß\nŁódź,1,2\n東京,3,4.5\n", ["Łódź", "東京"], ["é", "ß"]),
    "exponents.csv": ("room,x,y\n1E,1,2\n2D,3,4.5\n", ["1E", "2D"], ["x", "y"]),
    # the decimal comma
    "decimal.csv": ("n;u;v\na;1;2\nb;3;4,5\n", ["a", "b"], ["u", "v"]),
    "decimal.txt": ("1\t2\n3\t4,5\n", None, None), "decimal.tsv": ("1,0\t2\n3\t4,5\n", None, None),
    # what spreadsheets leave
    "sep.csv": ("sep=;\nu;v\n1;2\n3;4.5\n", None, ["u", "v"]),
    "trailing.csv": ("u,v,\n1,2,\n3,4.5,\n", None, ["u", "v"]),
    "trailing-body.csv": ("u,v\n1,2,\n3,4.5,\n", None, ["u", "v"]),
    "trailing-two.csv": ("1;2;;\n3;4,5;;\n", None, None),
    "empty-rows.csv": ("u,v\n1,2\n3,4.5\n,\n,\n", None, ["u", "v"]),
}


@pytest.mark.parametrize("name", TEXT)
def test_text(tmp_path, name):
    text, rows, columns = TEXT[name]
    (tmp_path / name).write_bytes(text.encode())
    found = files.read(tmp_path / name)
    want = A[:1] if name == "one.txt" else A
    np.testing.assert_array_equal(found.arrays["A"].load()[:, :2], want)
    assert (found.rows, found.columns) == (rows, columns)


@pytest.mark.parametrize("name, text, message", [
    ("empty.csv", "", "found an empty file"), ("comment.txt", "# nothing\n", "found an empty file"),
    ("header.csv", "u,v\n", "found only a header"),
    ("ragged.csv", "1,2\n3\n", "found 1 cells in line 2 and 2 in line 1"),
    ("title.csv", "My table\nn,u,v\na,1,2\nb,3,4\n", "a title, begin it with #"),
    ("title-of-two.csv", "Distances\n1,2\n3,4\n", "1 cells in line 1 .*; if column 1 .*--labels"),
    ("decimal.csv", "a\n1,5\n2,25\n7,5\n", "if the commas are decimal, --decimal ,"),
    ("hash.csv", "n,a,b\n#1,NA,2\nx,5,6\n", "found 'NA' in line 2, column 2: fill what is missing"),
    ("missing-first.csv", "1,n.a.\n3,4\n5,6\n", "found 'n.a.' in line 1, column 2: fill"),
    ("huge.csv", "1,1e400\n2,3\n", "found '1e400' in line 1, column 2: write plain numbers"),
    ("PK.csv", "PK\3\4\0", "a spreadsheet or an archive: export it as CSV"),
    ("delimiter.csv", "a,b\nx,y\n", "found only labels"),
    ("footer.csv", "u,v,w\n1,2,3\n3,4,5\nSource: us\n", "1 cells in line 4 .* begin it with #"),
    ("word.csv", "1,2\n3,x\n", "found 'x' in line 2, column 2"),
    ("first.csv", "1,x,3\n4,5,6\n", "found 'x' in line 1, column 2: .*--header if line 1"),
    ("corner.csv", "x,2,9\n4,5,6\n7,0,1\n", "found 'x' in line 1, column 1: .*--header if line 1"),
    ("corner-hole.csv", ",2,9\n4,5,6\n7,0,1\n", "found '' in line 1, column 1: fill what is missi"),
    ("missing.csv", "a,b\n1,2\nn/a,4\n", "found 'n/a' in line 3, column 1: fill .*--labels if"),
    ("header-hole.csv", "a,,c\n1,2,3\n4,5,6\n", "found '' in line 1, column 2: fill"),
    ("comma.csv", "a b\n1,5 2\n3,5 4\n", "found '1,5' in line 2, column 1: --decimal , if"),
    ("thousands.csv", "a;b\n1,500;2\n3,500;4\n", "'1,500' in line 2, column 1: .*--decimal ,"),
    ("mixed.csv", "a;b\n1,5;2\n3.5;4\n", "'1,5' in line 2, column 1"),
    ("underscore.csv", "1_000,2\n", "found '1_000' in line 1, column 1"),
    ("long.csv", "1," + 200_000 * "2" + "\n", "found something else"),
    ("quote.csv", 'n,u\n"a,1\nb,2\n', "something else in line 2 .*: a quote is doubled"),
    ("commas.tsv", "1,2\n3,4\n", "separated by tabs, found another mark: --delimiter comma"),
    ("hole.csv", "1,2\n3,\n", "found '' in line 2, column 2: fill what is missing"),
    ("last-column.csv", "a,b\n1,\n2,\n", "found '' in line 2, column 2"),
    ("nan.csv", "nan,nan\n1,2\n", "found 'nan' in line 1, column 1: fill what is missing"),
    ("labels.csv", "n,u\nA,1\nNA,2\nC,3\n", "found 'NA' in line 3, column 1: fill .*--labels if"),
    ("names.csv", "u,v,w,x\na,1,2\nb,3,4\n", "found 4 cells in line 1 and 3 in line 2"),
    ("null.csv", "1\0,2\n", "found other bytes: save it as UTF-8"),
    ("matrix.mat", "", "found the ending .mat"), ("matrix", "", "found a name without an ending")])
def test_bad_text_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        files.read(tmp_path / name)


@pytest.mark.parametrize("cell", [
    "1,234", "10%", "10 %", "£10", "10 €", "1'234", "1 234", "(10)", "1.5D-17", "<5", "≥ 5", "NA",
    "n/a", "NULL", "-", "--", "", "?", "…", "#N/A", "−5", "1_000", "1.234.567", "10*", "5-", "1/2",
    "٣", "½", "0x1F", "'5"])
@pytest.mark.parametrize("place", ["header", "label", "inside"])
def test_a_number_in_dress_is_never_a_name(cell, place):
    """Else its whole row or column would vanish without a word."""
    assert frame.kind(cell, ".") == "dressed"
    rows = [["1", "2", "9"], ["3", "5", "0"], ["7", "1", "1"]]
    for i, j in {"header": [(0, 0), (0, 2)], "label": [(1, 0), (2, 0)], "inside": [(2, 2)]}[place]:
        spoilt = [list(row) for row in rows]
        spoilt[i][j] = cell
        text = "\n".join(",".join(f'"{x}"' if "," in x else x for x in row) for row in spoilt)
        with pytest.raises(ValueError) as caught:
            tables.table(text.encode())
        said = str(caught.value)
        assert f"found {cell!r} in line" in said and f"column {j + 1}: " in said
        assert len(said) < 300
    for other in ("header", "labels"):              # a whole header or column of them, neither
        spoilt = [[cell, cell, cell], *rows[1:]] if other == "header" else [
            [cell, *row[1:]] for row in rows]
        text = "\n".join(",".join(f'"{x}"' for x in row) for row in spoilt)
        if cell:                                    # an empty corner, not alone
            with pytest.raises(ValueError, match="found "):
                tables.table(text.encode())
            assert tables.table(text.encode(), **{other: True}).A.size == 6


def test_options_overrule():
    text = b"0,1,2\n1,5,6\n2,8,9\n"
    assert tables.table(text).A.shape == (3, 3)
    found = tables.table(text, header=True, labels=True)
    assert found.A.tolist() == [[5, 6], [8, 9]]
    assert found.rows == ["1", "2"] and found.columns == ["1", "2"]
    assert tables.table(b"y,1990,1995\nFR,1,2\n", header=False).A.tolist() == [[1990, 1995], [1, 2]]
    assert tables.table(b"id,a\n1,5\n2,7\n", labels=True).rows == ["1", "2"]
    assert tables.table(b"a b\n1 2 3\n", header=True).columns == ["a", "b"]
    assert tables.table(b",0,1\n0,5,6\n1,7,8\n", labels=False, header=True).A.shape == (2, 3)
    for text, mark in ((b"1:2\n3:4\n", ":"), (b"1;2\n3;4\n", "semicolon"), (b"1\t2\n3\t4", "tab"),
                       (b"1\t2\n3\t4", "\\t"), (b"1  2\n3 4", "space"), (b"1|2\n3|4", "|")):
        assert tables.table(text, delimiter=mark).A.tolist() == [[1, 2], [3, 4]]
    assert tables.table(b'"1,5","2,5"\n"3","4"\n', decimal=",").A.tolist() == [[1.5, 2.5], [3, 4]]
    assert tables.table(b"a;b\n1,500;2,000\n", decimal=",").A.tolist() == [[1.5, 2.0]]
    assert tables.table(b"1,5\n2,25\n7,5\n", decimal=",").A.tolist() == [[1.5], [2.25], [7.5]]
    assert tables.table(b"1,5\n3,5\n", delimiter=";").remarks == ["no semicolon in it: --delimiter"]
    for mark in ("ab", "5", '"', "tabs"):
        with pytest.raises(ValueError, match="--delimiter: one character or tab, semicolon"):
            tables.table(b"1,2\n", delimiter=mark)
    with pytest.raises(ValueError, match="'1,500' in line 2, column 1"):
        tables.table(b"a;b\n1,500;2,000\n", decimal=".")


@pytest.mark.parametrize("text, remarks", [
    ("0,1,2\n5,7,6\n", ["line 1 (0, 1, 2) is taken for numbers: --header if it holds names"]),
    ("1990,1995\n5,7\n6,1\n", ["line 1 (1990, 1995) is taken for numbers: --header if it holds "
                               "names"]),
    ("id,a,b\n1,2,9\n2,5,1\n3,0,0\n", ["column 1 (1, 2, 3) is taken for numbers: --labels if it "
                                       "holds names"]),
    ("y,1990,1995\nFR,1,2\nDE,5,1\n", ["line 1 (y, 1990, 1995) is taken for a header: --no-header "
                                       "if it holds numbers"]),
    (",0,1\n0,5,2\n1,2,2\n", ["line 1 (, 0, 1) is taken for a header: --no-header if it holds "
                              "numbers", "column 1 (0, 1) is taken for labels: --no-labels if it "
                              "holds numbers"]),
    ("x\n1,5\n2,7\n", ["column 1 (1, 2) is taken for labels: --no-labels if it holds numbers"]),
    ("1,n.m.\n3,4\n5,6\n", ["line 1 (1, n.m.) is taken for a header: --no-header if it holds "
                            "numbers"]),
    ("a,b\nx,1,\ny,3,\n", ["the empty end of each line is left out: fill it if it is a column"]),
    ("a,b,\n5,1,\n7,3,\n", []), ("n;a;b\nx;1.2345;2.345\ny;3.456;4.567\n", []),
    ("n;a;b\nx;1.234;2.345\ny;3.456;4.567\n", ["the point of 1.234 is taken for a decimal one: "
                                               "leave the points out if they mark thousands"]),
    ("5,2,9\n4,1,7\n", []), ("name,a,b\nx,1,5\ny,0,2\n", [])])
def test_what_may_be_meant_otherwise_is_remarked(text, remarks):
    assert tables.table(text.encode()).remarks == remarks


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_unicode_with_its_mark(coding):
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(coding, b"")
    found = tables.table(mark + "ä,y\n1,2\n3,4.5\n".encode(coding))
    np.testing.assert_array_equal(found.A, A)
    assert found.columns == ["ä", "y"]


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ValueError, match="UTF-8 expected"):
        tables.table(b"\xff1,2\n")


def test_what_was_taken():
    assert tables.table(b"a;b\n1,5;2\n").taken == {
        "separator": ";", "decimal": ",", "header": True, "labels": False}
    assert tables.table(b"1\n2\n").taken["separator"] is None
    assert tables.table(b"1\n2\n").A.shape == (2, 1)


# NumPy files: the header is read first, nothing pickled is opened.

@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f8", ">f4", "longdouble",
                                   "int8", "bool"])
@pytest.mark.parametrize("order", "CF")
def test_numpy(tmp_path, dtype, order):
    stack = np.arange(24).reshape(2, 3, 4).astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(stack, order=order))
    found = files.read(tmp_path / "x.npy").arrays["A"]
    assert found.shape == (2, 3, 4) and found.dtype == np.dtype(dtype)
    for x, want in ((found.load(), stack), (found.load((1,)), stack[1]),
                    (found.load((1, 2)), stack[1, 2])):
        np.testing.assert_array_equal(x, want)
        if np.dtype(dtype).kind == "f":                 # nothing that as_array would refuse
            assert x.dtype == (np.float32 if dtype == "float32" else np.float64)
            assert x.dtype.isnative


def test_archive_with_labels(tmp_path):
    np.savez(tmp_path / "x.npz", K=A, rows=["a", "b"], columns=[b"u", b"v"])
    found = files.read(tmp_path / "x.npz")
    assert set(found.arrays) == {"K"}
    assert (found.rows, found.columns) == (["a", "b"], ["u", "v"])
    np.savez_compressed(tmp_path / "y.npz", A=A, names=["a", "b"])
    assert files.read(tmp_path / "y.npz")[1:3] == (["a", "b"], ["a", "b"])
    np.savez(tmp_path / "z.npz", A=A, rows=[101, 102], columns=np.array(["2020", "2021"], "M8[Y]"))
    assert files.read(tmp_path / "z.npz")[1:3] == (["101", "102"], ["2020", "2021"])


def test_damaged_numpy_files_are_refused(tmp_path):
    good = io.BytesIO()
    np.savez(good, K=A)
    for name in ("x.npy", "x.npz"):
        for content in (b"", b"PK\x03\x04 no archive", b"\x93NUMPY\x01\x00", b"1,2\n",
                        b"\x93NUMPY\x01\x00\x05\x00{'a':", good.getvalue()[:150]):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ValueError, match="numbers written by numpy.save"):
                files.read(tmp_path / name)
    np.save(tmp_path / "short.npy", np.ones(100))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-8])
    with pytest.raises(ValueError, match="numbers written by numpy.save"):
        files.read(tmp_path / "short.npy").arrays["A"].load()


def test_pickles_are_not_opened_and_named(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="found pickled objects, which are not opened"):
        files.read(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", K=A, names=np.array(["x", "y"], dtype=object))
    found = files.read(tmp_path / "x.npz")
    np.testing.assert_array_equal(found.arrays["K"].load(), A)
    assert found.remarks == ["names: pickled, left out"] and found.rows is None


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("form", ["array", "matrix"])
def test_sparse_matrices_as_scipy_writes_them(tmp_path, kind, form, monkeypatch):
    dense = np.where(np.random.default_rng(0).random((7, 5)) < 0.4, np.arange(35).reshape(7, 5), 0)
    K = getattr(scipy.sparse, f"{kind}_{form}")(dense)
    scipy.sparse.save_npz(tmp_path / "x.npz", K)
    monkeypatch.setitem(sys.modules, "scipy", None)     # it is not needed
    found = files.read(tmp_path / "x.npz").arrays["A"]
    assert found.shape == (7, 5)
    np.testing.assert_array_equal(found.load(), dense)


def test_sparse_matrices_that_are_not_read(tmp_path):
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.dia_array(np.eye(3)))
    with pytest.raises(ValueError, match="csr, csc or coo .* found dia .*load_npz.FILE.*toarray"):
        files.read(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", format=b"coo", shape=[2, 2], data=[1.0], row=[-1], col=[0])
    with pytest.raises(ValueError, match="found something else .invalid entry in coordinates"):
        files.read(tmp_path / "y.npz").arrays["A"].load()
    np.savez(tmp_path / "z.npz", format=b"csr", shape=[10 ** 6, 10 ** 6], data=[1.0], indices=[0],
             indptr=[0, 1])
    assert files.read(tmp_path / "z.npz").arrays["A"].shape == (10 ** 6, 10 ** 6)   # judged first


def test_structured_arrays(tmp_path):
    points = np.array([("Ann", 1, 2.5), ("Bob", 3, 4.0)],
                      dtype=[("who", "U3"), ("win", int), ("draw", float)])
    np.save(tmp_path / "x.npy", points)
    found = files.read(tmp_path / "x.npy")
    np.testing.assert_array_equal(found.arrays["A"].load(), [[1, 2.5], [3, 4]])
    assert (found.rows, found.columns) == (["Ann", "Bob"], ["win", "draw"])
    np.save(tmp_path / "y.npy", np.zeros(3, dtype=[("a", float, (2,))]))
    with pytest.raises(ValueError, match="a structured array of one axis"):
        files.read(tmp_path / "y.npy")


def test_only_what_is_wanted_is_unpacked(tmp_path, monkeypatch):
    """The header of a member says its shape; 80 MB of zeros are 0.1 MB that nobody unpacks."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("big.npy", "w", force_zip64=True) as stream:
            np.lib.format.write_array_header_1_0(
                stream, {"descr": "<f8", "fortran_order": False, "shape": (1000, 10000)})
            for _ in range(10):
                stream.write(bytes(8 * 10 ** 6))
        with archive.open("K.npy", "w") as stream:
            np.save(stream, A)
    asked = []
    read = zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read",
                        lambda stream, n=-1: asked.append(n) or read(stream, n))
    found = files.read(tmp_path / "x.npz").arrays
    assert found["big"].shape == (1000, 10000)
    np.testing.assert_array_equal(found["K"].load(), A)
    assert max(asked) < 1000 and min(asked) >= 0


@pytest.mark.parametrize("content", ["npy", "npz", "a,b\n1,2\n3,4.5\n"])
def test_standard_input(monkeypatch, content):
    stream = io.BytesIO()
    if content == "npy":
        np.save(stream, A)
    elif content == "npz":
        np.savez(stream, A=A)
    else:
        stream.write(content.encode())
    stream.seek(0)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    np.testing.assert_array_equal(files.read("-").arrays["A"].load(), A)


def test_a_text_too_long_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "TEXT", 3)
    (tmp_path / "x.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match="a text of at most 1 GB expected: save the numbers by"):
        files.read(tmp_path / "x.csv")


def test_a_missing_file_is_an_os_error(tmp_path):
    for name in ("x.npy", "x.npz", "x.csv"):
        with pytest.raises(OSError):
            files.read(tmp_path / name)
