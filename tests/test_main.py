"""The command, as a person meets it: output, exit status, and one line for bad input."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ksvd_ref import equations, kernels
from ksvd_ref.command import main
from ksvd_ref.course import datasets


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
    assert max(map(len, out.splitlines())) <= 110


def test_own_file(command):
    Path("points.csv").write_text("player,win,draw\nAnn,2,1\nBob,0,1\nCyd,1,1\n")
    status, out, err = command("verify", "points.csv")
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


@pytest.mark.parametrize("out", ["figure.png", "figure.svg", "figure.pdf"])
def test_plot(command, out):
    A, labels = datasets.canada_migration()
    np.savez("A.npz", A=A, names=labels)
    status, _, err = command("verify", "A.npz", "--plot", out)
    assert status == 0 and err == f"figure written: {out}\n"
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[Path(out).suffix]
    content = Path(out).read_bytes()
    assert content.startswith(start) and len(content) > 5000


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
    np.save("large.npy", np.zeros((4001, 4001), dtype=bool))
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
    ("object.npy", "object.npy: numbers written by numpy.save or numpy.savez expected"),
    ("zero-d.npy", "zero-d.npy: K must have 2 axes, got shape ()"),
    ("one-d.npy", "one-d.npy: K must have 2 axes, got shape (3,)"),
    ("three-d.npy", "three-d.npy: K must have 2 axes, got shape (2, 2, 2)"),
    ("empty.npy", "empty.npy: K must not be empty"),
    ("zero.npy", "zero.npy: K = Phi Psi^T must not be zero"),
    ("large.npy", "large.npy: at most 4000 on the short side expected for the dual, "
     "got (4001, 4001): primal.solve"),
    ("constant.csv --center", "nothing but rounding left after --center"),
    ("both.npz", "both.npz: one matrix or one pair expected, found X, Z, K"),
    ("names.npz", "names.npz: an array named K or A, or a pair Phi, Psi or Q, K or X, Z expected, "
     "found B, C"),
    ("pair.npz", "pair.npz: X and Z need the same number of columns, got shapes (3, 2) and (3, 1)"),
    ("good.npy --rank 3", "good.npy: rank must be None or an integer from 1 to 2"),
    ("good.npy --rank 0", "good.npy: rank must be"), ("good.npy --rank x", "--rank: invalid int"),
    ("good.npy --kernel magic", "--kernel: one of linear, polynomial, rbf,"),
    ("good.npy --kernel rbf --gamma 0", "gamma must be a finite number above 0, got 0.0"),
    ("good.npy --kernel rbf --degree 2", "--degree: no such parameter, the rbf kernel takes gamma"),
    ("good.npy --kernel exponential --scale 1e-9", "exponential overflows"),
    ("good.npy --gamma 1", "--gamma: no such parameter"),
    ("good.npy --plot figure.gif", "--plot: a file .png, .pdf or .svg in a folder that can"),
    ("good.npy --plot nowhere/figure.png", "--plot: a file .png"),
    ("", "the following arguments are required: FILE"), ("good.npy --magic", "unrecognized")])
def test_bad_input_gets_one_line(command, argv, message):
    bad_files()
    before = sorted(os.listdir())
    status, out, err = command("verify", *argv.split())
    assert (status, out) == (2, "")
    assert err.startswith("ksvd-ref: ") and message in err and err.count("\n") == 1
    assert sorted(os.listdir()) == before               # nothing was written


def test_equations(command):
    status, out, _ = command("equations")
    assert status == 0 and out.count("equations.") >= 38
    assert re.search(r"^K\.15  K Hᵣ = Hₑ Σ,  Kᵀ Hₑ = Hᵣ Σ\n +Chen et al\. 2023; Lanczos 1958 · "
                     r"dual\.solve, .*?\n +equations\.coupled_eigenproblems · lesson", out, re.M)


def run(*argv, **options):
    return subprocess.run([sys.executable, "-m", "ksvd_ref", *argv], capture_output=True, text=True,
                          encoding="utf-8", **options)


def test_help_does_not_load_numpy():
    code = "import sys, ksvd_ref.command.main as m\n" \
        "try: m.main(['--help'])\nexcept SystemExit: pass\n" \
        "assert not {'numpy', 'autograd', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "verify" in done.stdout and "equations" in done.stdout


def test_in_a_process_of_its_own(tmp_path):
    np.save(tmp_path / "nan.npy", [[np.nan]])
    done = run("verify", str(tmp_path / "nan.npy"), env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    assert run("equations", env={**os.environ, "PYTHONIOENCODING": "ascii"}).returncode == 0


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(f'"{sys.executable}" -m ksvd_ref equations | true', shell=True,
                          capture_output=True, text=True)
    assert done.stderr == ""
