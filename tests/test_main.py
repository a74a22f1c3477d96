"""The command, as a person meets it: output, exit status, and one line for bad input."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import runs

from ksvd_ref import equations, kernels
from ksvd_ref.command import main, matrix, verify
from ksvd_ref.course import datasets, index


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Runs the command in an empty folder; gives status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        status = main.main([str(word) for word in argv])
        return (status, *capsys.readouterr())
    return run


def test_without_arguments_a_real_head(command):
    status, out, err = command()
    assert (status, err) == (0, "")
    assert out.count("24 of 24 equations hold") == 2 and "DOES NOT HOLD" not in out
    assert "64 x 64, numerical rank 32" in out and "64 x 64, numerical rank 64" in out
    heads = datasets.minilm_heads()                     # the printed sigma and share, by NumPy
    scores = heads.Q[5, 0] @ heads.K[5, 0].T / 32 ** 0.5
    for K in (scores, kernels.softmax(heads.Q[5, 0], heads.K[5, 0])):
        sigma = np.linalg.svd(K, compute_uv=False)
        assert f"{sigma[0]:9.3g} {sigma[1]:9.3g}" in out
        assert f"{100 * sigma[0] ** 2 / np.sum(sigma ** 2):8.2f}%" in out
        assert f"{np.linalg.norm(K - K.T) / np.linalg.norm(K + K.T):.3g}" in out
    for tag, end in (("K.15", ""), ("K.22", "  (K.17, V42)"), ("V18", "")):
        assert len(re.findall(rf"^   {re.escape(tag)} .* ok{re.escape(end)}$", out, re.M)) == 2
    first, second, _ = re.split("What follows from those in brackets, and is not counted:", out)
    assert "K.15 " in first and "K.22 " not in first and "K.22 " in second
    assert max(map(len, out.splitlines())) <= 115


def test_own_file(command):
    Path("points.csv").write_text("player,win,draw\nAnn,2,1\nBob,0,1\nCyd,1,1\n")
    status, out, err = command("verify", "points.csv")
    assert ("read as a table with comma between cells, decimal point, a header, a column of labels"
            in out)
    head, _, rest = out.partition("K.7 ")               # the tolerance comes first, and once
    assert "   tolerance  " in head and "rounding" not in rest
    assert (status, err) == (0, "") and "points.csv: the matrix K" in out
    assert "rows labelled Ann, Bob, Cyd, columns labelled win, draw" in out
    assert "asymmetry" not in out                       # 3 x 2 is not square


def test_json(command):
    A = np.random.default_rng(0).standard_normal((6, 4))
    np.save("A.npy", A)
    status, out, err = command("verify", "A.npy", "--json", "--rank", 2)
    found = json.loads(out)
    assert status == 0 and found["shape"] == [6, 4]
    assert found["rank"] == 4 and found["components"] == 2
    np.testing.assert_allclose(found["sigma"], np.linalg.svd(A, compute_uv=False)[:2], rtol=1e-13)
    assert [set(r) for r in found["residuals"]] == 38 * [
        {"tag", "statement", "source", "value", "tolerance", "ok", "follows_from"}]
    follows = {r["tag"]: r["follows_from"] for r in found["residuals"]}
    assert (follows["K.15"], follows["K.22"]) == (None, "K.17, V42") and found["remarks"] == []
    assert list(follows.values()).count(None) == 24 and all(r["ok"] for r in found["residuals"])


def test_a_remark_where_the_rank_cuts_through_a_tie(command):
    np.save("tie.npy", np.diag([2.0, 1, 1]))
    remark = "σ_2 and σ_3 agree to rounding, and 2 components cut between them: the vectors " \
        "kept of this σ are not unique"
    status, out, _ = command("verify", "tie.npy", "--rank", 2)
    assert status == 0 and f"   Remark: {remark}.\n" in out and "24 of 24" in out
    assert json.loads(command("verify", "tie.npy", "--rank", 2, "--json")[1])["remarks"] == [remark]
    assert "Remark" not in command("verify", "tie.npy")[1]


@pytest.mark.parametrize("name, parameters", [
    ("linear", {}), ("polynomial", {"degree": 3, "gamma": 0.5, "coef0": 2.0}),
    ("rbf", {"gamma": 0.3}), ("exponential", {"scale": 2.0}), ("cosine", {}),
    ("softmax", {"scale": 3.0}), ("sne", {"gamma": 0.2})])
def test_kernels_of_two_files(command, name, parameters):
    rng = np.random.default_rng(1)
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((5, 3))
    np.savetxt("X.txt", X)
    np.savetxt("Z.csv", Z, delimiter=",")
    words = [word for key, value in parameters.items() for word in (f"--{key}", value)]
    for center in ([], ["--center"]):
        status, out, _ = command("verify", "X.txt", "Z.csv", "--kernel", name, *words, *center,
                                 "--json")
        K = getattr(kernels, name)(X, Z, **parameters)
        K = kernels.center(K) if center else K
        found = json.loads(out)
        expected = np.linalg.svd(K, compute_uv=False)[:found["rank"]]
        assert status == 0
        # the smallest sigma of the centred kernel is known to sigma_1 * eps only
        np.testing.assert_allclose(found["sigma"], expected, rtol=1e-9, atol=1e-14 * expected[0])


@pytest.mark.parametrize("names", [("Phi", "Psi"), ("Q", "K"), ("X", "Z")])
def test_pairs_in_an_archive(command, names):
    rng = np.random.default_rng(2)
    pair = rng.standard_normal((6, 3)), rng.standard_normal((4, 3))
    np.savez("pair.npz", **dict(zip(names, pair)))
    status, out, _ = command("verify", "pair.npz", "--json")
    scale = 3 ** 0.5 if names == ("Q", "K") else 1.0            # attention divides by sqrt(d)
    expected = np.linalg.svd(pair[0] @ pair[1].T / scale, compute_uv=False)[:3]
    np.testing.assert_allclose(json.loads(out)["sigma"], expected, rtol=1e-12)
    assert status == 0


def test_few_features_of_many_points_go_by_golub_kahan(command):
    rng = np.random.default_rng(5)
    Phi, Psi = rng.standard_normal((600, 12)), rng.standard_normal((520, 12))
    np.savez("pair.npz", Phi=Phi, Psi=Psi)
    status, out, err = command("verify", "pair.npz")
    assert (status, err) == (0, "") and "24 of 24" in out
    assert "numerical rank 12, 12 components; dual by block Golub–Kahan, primal from 12 fea" in out
    sigma = np.linalg.svd(Phi @ Psi.T, compute_uv=False)
    assert f"{sigma[0]:9.3g} {sigma[1]:9.3g}" in out
    np.savez("small.npz", Phi=Phi[:60, :], Psi=Psi[:50, :])
    assert "dual by the SVD" in command("verify", "small.npz")[1]


def test_one_data_file_with_a_kernel_is_both_sides(command):
    X = np.random.default_rng(3).standard_normal((6, 2))
    np.save("X.npy", X)
    _, out, _ = command("verify", "X.npy", "--kernel", "rbf", "--json")
    np.testing.assert_allclose(json.loads(out)["sigma"],
                               np.linalg.svd(kernels.rbf(X, X), compute_uv=False), rtol=1e-9)


PLOT = """if True:
    import sys, numpy as np, ksvd_ref.command.main as m
    from ksvd_ref.course import datasets
    A, labels = datasets.canada_migration()
    np.savez("A.npz", A=A, names=labels)
    for out in ("figure.png", "figure.svg", "figure.pdf"):
        assert m.main(["verify", "A.npz", "--plot", out]) == 0"""


@runs(("-c", PLOT))
def test_plot(ran):
    folder, status, _, err = ran
    assert status == 0, err
    for end, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        assert f"figure written: figure{end}\n" in err
        content = (folder / f"figure{end}").read_bytes()
        assert content.startswith(start) and len(content) > 5000
    assert err.count("\n") == 3


def test_an_equation_that_fails_gives_status_1(command, monkeypatch):
    monkeypatch.setattr(equations, "ROUNDINGS", 0.0)    # no rounding allowed
    np.save("A.npy", np.random.default_rng(4).standard_normal((5, 4)))
    status, out, _ = command("verify", "A.npy")
    assert status == 1 and "DOES NOT HOLD" in out and "24 of 24" not in out
    assert command("verify", "A.npy", "--json")[0] == 1


def bad_files():
    np.save("good.npy", np.arange(6.0).reshape(3, 2))
    np.save("nan.npy", [[1.0, np.nan], [0, 1]])
    np.save("inf.npy", [[1.0, np.inf], [0, 1]])
    np.save("complex.npy", np.eye(2) * 1j)
    np.save("text.npy", np.array([["a", "b"]]))
    np.save("object.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.save("zero-d.npy", 3.0)
    np.save("one-d.npy", np.ones(3))
    np.save("three-d.npy", np.ones((2, 2, 2)))
    np.save("empty.npy", np.ones((0, 3)))
    np.save("zero.npy", np.zeros((3, 3)))
    np.lib.format.open_memmap("large.npy", "w+", bool, (8000, 8000))       # a hole, not 64 MB
    np.save("heads.npy", np.ones((2, 3, 4, 4)))
    np.save("masked.npy", [[1.0, -np.inf], [2.0, -np.inf]])
    np.savez("heads.npz", Q=np.ones((2, 3, 4)), K=np.ones((3, 4)))
    np.savez("names.npz", B=np.eye(2), C=np.eye(2))
    np.savez("pair.npz", X=np.ones((3, 2)), Z=np.ones((3, 1)))
    np.savez("both.npz", X=np.ones((3, 2)), Z=np.ones((3, 2)), K=np.ones((3, 3)))
    Path("constant.csv").write_text("0.1,0.1,0.1\n0.1,0.1,0.1\n")
    Path("ragged.csv").write_text("1,2\n3\n")
    Path("words.csv").write_text("hello\nworld\n")
    Path("empty.csv").write_text("")
    Path("matrix.mat").write_text("")


@pytest.mark.parametrize("argv, message", [
    ("missing.npy", "missing.npy: a readable file expected, found: No such file or directory"),
    ("empty.csv", "empty.csv: a table of numbers expected, found an empty file"),
    ("words.csv", "words.csv: a table of numbers expected, found only labels"),
    ("ragged.csv", "ragged.csv: rows of one length expected, found 1 cells in line 2"),
    ("matrix.mat", "matrix.mat: a .npy, .npz, .csv, .tsv or .txt file expected"),
    ("nan.npy", "nan.npy: K must be finite, got NaN or infinity in entry (0, 1)"),
    ("inf.npy", "inf.npy: K must be finite"),
    ("complex.npy", "complex.npy: K must hold real numbers"),
    ("text.npy", "text.npy: K must hold real numbers"),
    ("object.npy", "object.npy: numbers written by numpy.save or numpy.savez expected, found pick"),
    ("masked.npy", "in entry (0, 1) of shape (2, 2); K looks like masked scores (its least entry is"
     " -inf, of all others the largest is 2): take the softmax first"),
    ("heads.npy", "K must have 2 axes, got shape (2, 3, 4, 4): --index from 0,0 to 1,2 chooses "
     "along the first 2"), ("heads.npy --index 5,0", "chooses along the first 2, got 5,0"),
    ("heads.npy --index x", "argument --index: invalid integers value: 'x'"),
    ("good.npy --index 0", "K must have 2 axes, got shape (3, 2): --index has nothing to choose"),
    ("heads.npz", "Q must have 2 axes, got shape (2, 3, 4): --index from 0 to 1 chooses"),
    ("names.npz --array D", "--array: one of B, C expected, got D"),
    ("good.npy --header", "one of the last three for --header, --labels, --delimiter and "
     "--decimal, found the ending .npy"),
    ("words.csv --decimal x", "--decimal: invalid choice: 'x'"),
    ("good.npy --save out.txt", "--save: a file .npz, not one that is read, in a folder that"),
    ("names.npz --array B --save ./names.npz", "--save: a file .npz, not one that is read"),
    (". ", ".txt file expected, one of the last three for --header, --labels, --delimiter and "
     "--decimal, found a folder"),
    ("zero-d.npy", "zero-d.npy: K must have 2 axes, got shape ()"),
    ("one-d.npy", "one-d.npy: K must have 2 axes, got shape (3,)"),
    ("three-d.npy", "three-d.npy: K must have 2 axes, got shape (2, 2, 2)"),
    ("empty.npy", "empty.npy: K must not be empty"),
    ("zero.npy", "zero.npy: K = Phi Psi^T must not be zero"),
    ("large.npy", "large.npy: at most 8 GB and 30 min expected, 8000 x 8000 needs about 14 GB and "
     "2 h: primal.solve(Phi, Psi) takes features of any number of rows and no K"),
    ("constant.csv --center", "nothing but rounding left after --center"),
    ("both.npz", "both.npz: one matrix, K or A, or one pair, Phi, Psi or Q, K or X, Z, expected, "
     "found X, Z, K"),
    ("names.npz", "names.npz: one matrix, K or A, or one pair, Phi, Psi or Q, K or X, Z, expected, "
     "found B, C: --array NAME chooses"),
    ("pair.npz", "pair.npz: X and Z need the same number of columns, got shapes (3, 2) and (3, 1)"),
    ("good.npy --rank 3", "good.npy: rank must be None or an integer from 1 to 2"),
    ("good.npy --rank 0", "good.npy: rank must be"), ("good.npy --rank x", "invalid int"),
    ("good.npy --rank 2.5", "invalid int value: '2.5' (see ksvd-ref verify --help)"),
    ("good.npy --kernel magic", "--kernel: invalid choice: 'magic' (choose from"),
    ("good.npy --kernel rbf --gamma 0", "gamma must be a finite number above 0, got 0.0"),
    ("good.npy --kernel rbf --degree 2", "--degree: no such parameter, the rbf kernel takes gamma"),
    ("good.npy --kernel exponential --scale 1e-9", "exponential overflows"),
    ("good.npy --gamma 1", "--gamma: no such parameter"),
    ("good.npy --plot figure.gif", "--plot: a file .png, .pdf, .svg, not one that is read, in a"),
    ("good.npy --plot nowhere/figure.png", "--plot: a file .png"),
    ("", "the following arguments are required: FILE"), ("good.npy --magic", "unrecognized")])
def test_bad_input_gets_one_line(command, argv, message):
    bad_files()
    before = sorted(os.listdir())
    status, out, err = command("verify", *argv.split())
    assert (status, out) == (2, "")
    assert err.startswith("ksvd-ref: ") and message in err and err.count("\n") == 1
    assert sorted(os.listdir()) == before               # nothing was written


@pytest.mark.parametrize("argv, message", [
    (["notebooks", "--out", ""], "argument --out: invalid folder value: ''"),
    (["book", "--quick", "--out", ""], "argument --out: invalid folder value: ''"),
    (["check", "good.npy", "--feedback", ""], "argument --feedback: invalid folder value: ''"),
    (["check", "empty.py", "--feedback", "good.npy"], "--feedback: a folder expected, good.npy is"),
    (["equations", "--into", "nowhere.md"], "nowhere.md: No such file or directory")])
def test_a_folder_that_is_none_gets_one_line(command, argv, message):
    """An unset variable of a shell, `--out "$OUT"`, does not mean the folder one stands in."""
    bad_files()
    Path("empty.py").write_text("")
    before = sorted(os.listdir())
    status, out, err = command(*argv)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_a_saved_file_has_the_name_that_was_said(command):
    bad_files()
    assert command("verify", "good.npy", "--save", "halves.NPZ")[0] == 0
    with np.load("halves.NPZ") as halves:
        assert halves["sigma"].shape == (2,)


def test_equations(command):
    status, out, _ = command("equations")
    assert status == 0 and out.count("equations.") >= 38
    assert re.search(r"^K\.15  K Hᵣ = Hₑ Σ,  Kᵀ Hₑ = Hᵣ Σ\n +Chen et al\. 2023; Lanczos 1958 · "
                     r"dual\.solve, .*?\n +equations\.coupled_eigenproblems · lesson", out, re.M)


def run(*argv, **options):
    return subprocess.run([sys.executable, "-m", "ksvd_ref", *argv], capture_output=True, text=True,
                          encoding="utf-8", **options)


@pytest.mark.parametrize("ran, words", [
    (("-c", "import sys, ksvd_ref.course.marking, ksvd_ref.command.main as m\n"
      f"try: m.main({[*command, '--help']})\nexcept SystemExit: pass\n"
      "assert not {'numpy', 'autograd', 'matplotlib'} & set(sys.modules)"), words)
    for command, words in (([], ("verify", "equations")), (["check"], ("--lesson N",)))],
    indirect=["ran"])
def test_help_does_not_load_numpy(ran, words):
    _, status, out, err = ran
    assert status == 0 and all(word in out for word in words), err


def test_in_a_process_of_its_own(tmp_path):
    np.save(tmp_path / "nan.npy", [[np.nan]])
    done = run("verify", str(tmp_path / "nan.npy"), env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    assert run("equations", env={**os.environ, "PYTHONIOENCODING": "ascii"}).returncode == 0


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(f'"{sys.executable}" -m ksvd_ref equations | true', shell=True,
                          capture_output=True, text=True)
    assert done.stderr == ""


# The reader's own files: which matrix, what is told, what is written.

def test_what_a_table_was_taken_for_is_in_the_json(command):
    Path("years.csv").write_text("country;1990;1995\nFR;1,5;2\nDE;4;5\n")
    _, out, _ = command("verify", "years.csv", "--json")
    found = json.loads(out)
    assert (found["rows"], found["columns"]) == (["FR", "DE"], ["1990", "1995"])
    assert (found["separator"], found["decimal"]) == (";", ",")
    assert found["remarks"] == ["line 1 (country, 1990, 1995) is taken for a header: --no-header "
                                "if it holds numbers"]
    _, out, _ = command("verify", "years.csv", "--no-header", "--no-labels")
    assert out == ""                                    # FR is no number
    _, out, _ = command("verify", "years.csv")
    assert "remark: line 1 (country, 1990, 1995) is taken for a header" in out.partition("K.7")[0]
    assert "read as a table with semicolon between cells, decimal comma" in out


@pytest.mark.parametrize("argv, pick", [
    ("stack.npy --index 1,2", lambda a: a[1, 2]), ("stack.npy --index -1,0", lambda a: a[-1, 0]),
    ("named.npz --array attn --index 0,1", lambda a: a[0, 1]), ("single.npy", lambda a: a[0, 0]),
    ("layers.npy --index 2", lambda a: a[0, 2]), ("layers.npy --index 0,2", lambda a: a[0, 2])])
def test_one_matrix_of_a_dump(command, argv, pick):
    stack = np.random.default_rng(0).standard_normal((2, 3, 5, 4))
    np.save("stack.npy", stack)
    np.savez("named.npz", attn=stack, other=np.eye(2))
    np.save("single.npy", stack[:1, :1])
    np.save("layers.npy", stack[:1])
    status, out, err = command("verify", *argv.split(), "--json")
    assert (status, err) == (0, "")
    np.testing.assert_allclose(json.loads(out)["sigma"],
                               np.linalg.svd(pick(stack), compute_uv=False), rtol=1e-12)


def test_heads_in_lower_case(command):
    q, k = np.random.default_rng(0).standard_normal((2, 4, 6, 3)).astype("float16")
    np.savez("heads.npz", q=q, k=k)
    _, out, _ = command("verify", "heads.npz", "--index", "3", "--json")
    scores = q[3].astype(float) @ k[3].T.astype(float) / 3 ** 0.5
    np.testing.assert_allclose(json.loads(out)["sigma"],
                               np.linalg.svd(scores, compute_uv=False)[:3], rtol=1e-12)


@pytest.mark.parametrize("low", [np.finfo("float16").min, -1e9, np.finfo("float32").min])
def test_masked_scores_get_a_hint(command, low):
    np.save("scores.npy", np.where(np.tri(4), np.arange(16.0).reshape(4, 4), low))
    _, out, _ = command("verify", "scores.npy")
    assert "remark: K looks like masked scores (its least entry is" in out
    np.save("scores.npy", np.array([[-1e9, -2e9], [1e9, 3.0]]))
    assert "remark" not in command("verify", "scores.npy")[1]


def test_small_matrices_are_printed(command):
    """By hand: K = [[3, 0], [4, 5]] has sigma sqrt(45), sqrt(5); Phi = I and Psi = K^T."""
    Path("K.csv").write_text("3,0\n4,5\n")
    _, out, _ = command("verify", "K.csv")
    end = out.partition("the vectors, to check by hand")[2]
    got = [[float(x) for x in re.findall(r"-?[0-9.]+", line[9:])] for line in end.splitlines()[2:]]
    root = lambda *x: np.array(x) / 10 ** 0.5
    H_e, H_r = np.array([root(1, 3), root(3, -1)]).T, np.array([[1, 1], [1, -1]]) / 2 ** 0.5
    want = [[45 ** 0.5, 5 ** 0.5], *H_e, *H_r, *(H_e * [45 ** 0.5, 5 ** 0.5]), *H_e]
    np.testing.assert_allclose(np.array(got), want, atol=1e-5)
    np.save("seven.npy", np.eye(7))
    assert "by hand" not in command("verify", "seven.npy")[1]
    np.savez("wide.npz", Phi=np.ones((2, 9)), Psi=np.ones((2, 9)))
    assert "W_e   9 x 1: --save writes it" in command("verify", "wide.npz")[1]


@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
@pytest.mark.parametrize("rank", [[], ["--rank", 1]])
def test_save(command, scale, rank):
    """Everything in the reader's units, a repeated sigma too."""
    Phi, Psi = np.eye(3)[:, :2] * scale, np.eye(4)[:, :2] * 2
    np.savez("pair.npz", Phi=Phi, Psi=Psi, rows=["a", "b", "c"])
    status, _, err = command("verify", "pair.npz", "--save", "out.npz", *rank)
    assert (status, err) == (0, "saved: out.npz\n")
    found, K = np.load("out.npz"), Phi @ Psi.T
    assert set(found) == {"sigma", "H_e", "H_r", "W_e", "W_r", "E", "R", "rows"}
    assert found["rows"].tolist() == ["a", "b", "c"]
    near = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * abs(b).max())
    near(found["E"], K @ found["H_r"])
    near(found["R"], K.T @ found["H_e"])
    near(found["E"], found["H_e"] * found["sigma"])
    near(found["W_e"], Psi.T @ found["H_r"])
    near(found["W_r"], Phi.T @ found["H_e"])


def test_standard_input(tmp_path):
    done = run("verify", "-", "--json", input="x,y\n1,2\n3,5\n")
    assert done.returncode == 0 and json.loads(done.stdout)["columns"] == ["x", "y"]


def test_version_and_examples(command, capsys):
    for word, said in (("--version", r"ksvd-ref \d"), ("--help", "ksvd-ref verify points.csv")):
        with pytest.raises(SystemExit) as left:
            command(word)
        assert left.value.code == 0 and re.search(said, capsys.readouterr().out)


def test_negative_numbers_as_values(command):
    X = np.random.default_rng(1).standard_normal((5, 2))
    np.save("X.npy", X)
    status, out, _ = command("verify", "X.npy", "--kernel", "polynomial", "--coef0", "-1e-3",
                             "--json")
    want = np.linalg.svd(kernels.polynomial(X, X, coef0=-1e-3), compute_uv=False)
    np.testing.assert_allclose(json.loads(out)["sigma"], want[:len(json.loads(out)["sigma"])],
                               rtol=1e-8)


# The outcome: 1 is kept for an equation that does not hold.

@pytest.mark.parametrize("error, said", [
    (MemoryError("Unable to allocate 7 GiB"), "out of memory: Unable to allocate 7 GiB"),
    (MemoryError(), "out of memory\n"), (RecursionError("too\ndeep"), "unforeseen RecursionError: "
                                         "too deep (test_main.py, line"),
    (KeyError("x" * 5000), "unforeseen KeyError"), (AssertionError(), "unforeseen AssertionError"),
    (UnicodeError("\x1b[31m"), "?[31m"), (KeyboardInterrupt(), "interrupted")])
def test_whatever_happens_is_one_line(command, monkeypatch, error, said):
    def fail(*args, **options):
        raise error
    monkeypatch.setattr(verify, "problem", fail)
    status, out, err = command("verify", "x.npy")
    assert status == (130 if isinstance(error, KeyboardInterrupt) else 2) and out == ""
    assert said in err and err.count("\n") == 1 and err.startswith("ksvd-ref: ")
    assert len(err) < 1100 and "\x1b" not in err


# Nobody reads what is printed: the pipe is closed before a line is.
CLOSED = """if True:
    import os, sys, numpy as np, ksvd_ref.equations as e, ksvd_ref.command.main as m
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    np.save('A.npy', np.random.default_rng(0).standard_normal((40, 30)))
    e.ROUNDINGS = %s
    sys.exit(m.main(['verify', 'A.npy', '--plot', 'A.png', '--save', 'A.npz']))"""


@pytest.mark.skipif(os.name != "posix", reason="a pipe of POSIX")
@pytest.mark.parametrize("ran, want", [(("-c", CLOSED % 128.0), 0), (("-c", CLOSED % 0.0), 1)],
                         indirect=["ran"])
def test_a_closed_pipe_changes_neither_the_status_nor_the_figure(ran, want):
    folder, status, _, err = ran
    assert status == want and err == "saved: A.npz\nfigure written: A.png\n"
    assert (folder / "A.png").stat().st_size > 10_000 and (folder / "A.npz").exists()


def test_labels_and_names_of_files_are_cleaned(command):
    name = "odd\x1b[31m\n.npz"
    np.savez(name, K=np.eye(2), rows=["\x1b]0;x\x07\n\r", "y" * 100_000], columns=["u", "v"])
    status, out, err = command("verify", name, "--plot", "out.svg")
    assert status == 0 and "\x1b" not in out + err and len(out) < 6000
    assert "rows labelled ?]0;x?, yyyy" in out and "odd?[31m .npz: the matrix K" in out
    content = Path("out.svg").read_text("utf-8")
    assert "\x1b" not in content and "\x07" not in content and len(content) < 200_000
    np.save(name[:-1] + "y", [[np.nan]])
    status, _, err = command("verify", name[:-1] + "y")
    assert status == 2 and "\x1b" not in err and err.count("\n") == 1


def test_a_missing_extra_is_named_before_any_work(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(verify, "problem", lambda options: pytest.fail("began"))
    status, _, err = command("verify", "x.npy", "--plot", "out.png")
    assert status == 2 and "figures need Matplotlib: pip install 'ksvd_ref[lessons]'" in err


def test_cost_is_told_and_limited(command, monkeypatch, capsys):
    matrix.announce(700, 700)
    assert capsys.readouterr().err == ""
    matrix.announce(2000, 2000)
    assert capsys.readouterr().err == "ksvd-ref: 2000 x 2000 needs about 0.86 GB and 2 min\n"
    for shape in ((60000, 3999, 2), (30000, 30000), (5500, 5500), (10 ** 6, 2000)):
        with pytest.raises(ValueError, match="at most 8 GB and 30 min expected, .* primal.solve"):
            matrix.announce(*shape)
    matrix.announce(100_000, 100)                       # thin: N x M decides, not the short side
    np.savez("pair.npz", Phi=np.ones((60000, 2)), Psi=np.ones((3999, 2)))
    status, out, err = command("verify", "pair.npz")
    assert (status, out) == (2, "") and "60000 x 3999 needs about 9 GB and" in err


@pytest.mark.parametrize("ran, want", [
    (("-c", f"""if True:
        import os, sys
        for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
            del os.environ[name]
        os.environ |= {more}
        import ksvd_ref.command.main as m
        m.main(["equations", "K.12"])
        print([os.environ.get(x) for x in m.THREADS], file=sys.stderr)"""), want)
    for more, want in (({}, ["1"] * 4), ({"OMP_NUM_THREADS": "3"}, [None, "3", None, None]))],
    indirect=["ran"])
def test_one_thread_unless_the_reader_set_it(ran, want):
    assert ran[3] == f"{want}\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_table_goes_into_a_page_as_it_is(command, end, monkeypatch):
    page = ["# A page", index.BEGIN, "old", index.END, "the end"]
    Path("page.md").write_bytes(end.join(page).encode())
    Path("page.md").chmod(0o640)
    Path("link.md").symlink_to("page.md")
    assert command("equations", "--into", "link.md")[0] == 0
    content = Path("page.md").read_bytes().decode()
    assert content.startswith(f"# A page{end}{index.BEGIN}{end}{end}| tag |")
    assert content.endswith(f"{index.END}{end}the end") and "\r\n" in content or end == "\n"
    assert ("\n" in content.replace("\r\n", "")) == (end == "\n")
    assert Path("link.md").is_symlink() and Path("page.md").stat().st_mode & 0o777 == 0o640
    before = Path("page.md").read_bytes()

    def fail(*args):
        raise OSError("no space left")
    monkeypatch.setattr(os, "replace", fail)
    assert command("equations", "--into", "page.md")[0] == 2
    assert Path("page.md").read_bytes() == before and not list(Path().glob(".page*"))


BARE = """if True:
    import importlib, pkgutil, sys
    BARE = {"numpy", "autograd", "ksvd_ref"} | sys.stdlib_module_names
    class Nothing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] not in BARE:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Nothing())
    import ksvd_ref
    from ksvd_ref import *
    for module in pkgutil.walk_packages(ksvd_ref.__path__, "ksvd_ref."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert {*ksvd_ref.MODULES, *ksvd_ref.WINGS} <= set(dir(ksvd_ref))
    from ksvd_ref.command.main import main
    assert main(["equations", "K.12"]) == 0
    for words, extra in ((["book"], "book"), (["notebooks", "--out", "no"], "book"),
                         (["verify", "no.npy", "--plot", "no.png"], "lessons")):
        assert main(words) == 2, words"""


@runs(("-c", BARE))
def test_a_bare_install_imports_everything(ran):
    """NumPy and autograd alone; what CI proves in an environment of its own."""
    _, status, _, err = ran
    assert status == 0, err
    assert err.count("pip install") == err.count("\n") == 3


def test_which_array_of_many_was_taken_is_said(tmp_path, capsys):
    """K beside A, a beside b: a guess among several speaks."""
    for arrays, words in (({"K": np.eye(2), "A": np.ones((2, 3))}, "took K of the arrays K, A"),
                          ({"a": np.eye(2), "b": np.eye(3)}, "took a of the arrays a, b")):
        np.savez(tmp_path / "many.npz", **arrays)
        assert main.main(["verify", str(tmp_path / "many.npz")]) == 0
        assert f"remark: {words}: --array NAME chooses another" in capsys.readouterr().out
    assert main.main(["verify", str(tmp_path / "many.npz"), "--array", "b"]) == 0
    assert "remark" not in capsys.readouterr().out
