"""Every equation holds on every kind of matrix, and notices when an ingredient is wrong."""
import re

import numpy as np
import pytest
from scipy import linalg

from ksvd_ref import dual, equations, features, kernels, large, primal, solution
from ksvd_ref.command import main, verify
from ksvd_ref.course import datasets
from mutants import (K_as, MUTANTS, PHI, PSI, SMALLEST_FIRST, of_dual, of_primal, plant,
                     without_second)

FOLLOWS = {equations.describe(function)[0]: function.follows for function in equations.EQUATIONS}
TAGS, COUNTED = list(FOLLOWS), [tag for tag, follows in FOLLOWS.items() if not follows]
FOLLOWS = {tag: follows for tag, follows in FOLLOWS.items() if follows}


def orthonormal(rng, n, k):
    return np.linalg.qr(rng.standard_normal((n, k)))[0]


def matrices():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((8, 8))
    return {
        "wide": rng.standard_normal((4, 9)), "tall": rng.standard_normal((9, 4)), "square": A,
        "1 x 1": np.array([[-3.0]]), "row": rng.standard_normal((1, 6)),
        "column": rng.standard_normal((6, 1)), "symmetric": A + A.T, "antisymmetric": A - A.T,
        "rank 2": rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5)),
        "identity": np.eye(5), "permutation": np.eye(6)[[2, 0, 1, 5, 4, 3]],
        "repeated": orthonormal(rng, 7, 5) * [3.0, 3, 3, 1, 1] @ orthonormal(rng, 6, 5).T,
        "nearly repeated": orthonormal(rng, 7, 4) * [1 + 1e-9, 1, 1 - 1e-7, 0.5]
        @ orthonormal(rng, 6, 4).T,
        "spread 1e-9": orthonormal(rng, 7, 4) * [1, 1e-3, 1e-6, 1e-9] @ orthonormal(rng, 6, 4).T,
        "Hadamard": np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]]),
        "small": 1e-150 * A, "large": 1e150 * A, "counts": rng.integers(0, 3, (10, 6)),
        "softmax": kernels.softmax(A[:6, :], A), "migration": datasets.canada_migration().A,
    }


@pytest.mark.parametrize("rank", [None, 1, 2])
@pytest.mark.parametrize("name", matrices())
def test_every_equation_holds(name, rank):
    A = matrices()[name]
    if rank and rank > np.linalg.matrix_rank(A):
        with pytest.raises(ValueError, match="numerical rank 1 "):
            equations.verify_matrix(A, rank=rank)
        return
    assert [residual for residual in equations.verify_matrix(A, rank=rank) if not residual.ok] == []


@pytest.mark.parametrize("shapes", [(9, 7, 4), (4, 7, 9), (5, 5, 5), (1, 3, 2), (3, 1, 6)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_equation_holds_for_features(shapes, dtype):
    rng = np.random.default_rng(1)
    N, M, p = shapes
    Phi = rng.standard_normal((N, p)).astype(dtype)
    Psi = rng.standard_normal((M, p)).astype(dtype)
    assert [residual for residual in equations.verify(Phi, Psi) if not residual.ok] == []


def graded(rng, N, M, sigma):
    U, V = orthonormal(rng, N, len(sigma)), orthonormal(rng, M, len(sigma))
    return U * np.sort(sigma)[::-1] @ V.T


def hard():
    """Matrices on which a rule for rounding that is too narrow gives false alarms."""
    rng, found = np.random.default_rng(10), {}
    for n in (5, 12, 60):
        i, j = np.indices((n, n))
        found |= {f"Kahan {n}": np.sin(1.2) ** i * ((i == j) - np.cos(1.2) * (j > i)),
                  f"Frank {n}": np.where(j >= i - 1, n - np.maximum(i, j), 0.0),
                  f"nilpotent {n}": np.triu(np.ones((n, n)), 1), f"Jordan {n}": np.eye(n, k=1),
                  f"circulant {n}": linalg.circulant(rng.standard_normal(n)),
                  f"graded {n}": graded(rng, n + 3, n, np.logspace(0, -14, n)),
                  f"rows graded {n}": np.logspace(0, -14, n)[:, None] * rng.random((n, n)),
                  f"cluster {n}": graded(rng, n, n, 1 + 1e-8 * rng.random(n)),
                  f"cluster below 1, {n}": graded(rng, n, n, [1, *1e-4 + 1e-8 * rng.random(n - 1)])}
    found |= {f"Hilbert {n}": linalg.hilbert(n) for n in (4, 12, 50, 100)}
    found |= {f"Hadamard {n}": linalg.hadamard(n).astype(float) for n in (2, 16, 64)}
    found |= {f"1e{n}": 10.0 ** n * rng.standard_normal((9, 7)) for n in (-300, 300)}
    return found | {"offset": 1e6 + rng.standard_normal((40, 30)), "ones": np.ones((6, 8))}


@pytest.mark.parametrize("name", hard())
def test_no_false_alarm_on_hard_matrices(name):
    A = hard()[name]
    for dtype in ("float64", "float32")[:1 if "1e" in name else 2]:
        r = equations.solution(*features.compatible(A.astype(dtype))).rank
        for rank in {None, 1, min(2, r), max(r // 2, 1)}:
            found = equations.verify_matrix(A.astype(dtype), rank=rank)
            assert [residual for residual in found if not residual.ok] == []


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("N, M, p", [(3, 3, 2000), (20, 30, 5000), (5, 4, 5000), (30, 20, 7),
                                     (600, 520, 12), (300, 4, 500)])
def test_no_false_alarm_on_many_features_far_from_0(N, M, p, offset):
    rng = np.random.default_rng(11)
    Phi, Psi = rng.standard_normal((N, p)) + offset, rng.standard_normal((M, p)) + offset
    for rank in (None, 1):
        assert [r for r in equations.verify(Phi, Psi, rank=rank) if not r.ok] == []


def test_opposed_features():
    # |Phi| |Psi| / sigma_1 = 1e3: what Psi makes large Phi makes small, and the tolerance says so
    rng = np.random.default_rng(2)
    U, V, d = orthonormal(rng, 20, 4), orthonormal(rng, 15, 4), np.array([1.0, 1e-1, 1e-2, 1e-3])
    found = equations.verify(U * d, V / d * [4, 3, 2, 1])
    assert [residual for residual in found if not residual.ok] == []
    assert 100 < found[0].tolerance / equations.verify(U, V * [4, 3, 2, 1])[0].tolerance < 1000


def test_on_the_library(lib):
    rng = np.random.default_rng(3)
    Phi, Psi = lib.array(rng.standard_normal((6, 4))), lib.array(rng.standard_normal((5, 4)))
    found = equations.verify(Phi, Psi)
    assert [residual for residual in found if not residual.ok] == []
    assert all(isinstance(residual.value, float) for residual in found)


@pytest.fixture(scope="module")
def s():
    rng = np.random.default_rng(4)
    Phi, Psi = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    return equations.solution(Phi - Phi.mean(axis=0), Psi - Psi.mean(axis=0))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_solver_is_reported_by_exactly_these(name, monkeypatch):
    """V41, V42, V43. Order, objective and gradient are noticed where they are wrong."""
    changes, tags = MUTANTS[name]
    plant(monkeypatch, changes)
    found = equations.residuals(solution.solution(PHI, PSI, rank=3))
    for follows, expected in zip((False, True), (tags + " | ").split(" | ")):
        assert [r.tag for r in found
                if not r.ok and bool(r.follows_from) == follows] == expected.split()


def test_the_problem_of_the_mutants_is_solved():
    assert all(r.ok for r in equations.residuals(solution.solution(PHI, PSI, rank=3)))


def test_only_a_solution_has_residuals():
    with pytest.raises(TypeError, match="as solution.. returns, got Dual"):
        equations.residuals(dual.solve(PHI @ PSI.T))


def test_any_two_counted_residuals_are_parted_by_a_mutant():
    """For each ordered pair there is a mutant that the first notices and the second does not."""
    noticed = [set(tags.split()) for _, tags in MUTANTS.values()]
    assert {(one, other) for one in COUNTED for other in COUNTED if one != other and not any(
        one in tags and other not in tags for tags in noticed)} == {
            ("K.15", "K.7"), ("K.15", "V11")}       # which say K.15 and something more


def test_a_consequence_fails_only_with_what_it_follows_from():
    for tag, follows in FOLLOWS.items():
        assert set(follows.split(", ")) <= set(COUNTED)
        for name, (_, tags) in MUTANTS.items():
            assert tag not in tags.split() or set(follows.split(", ")) & set(tags.split()), name


def test_every_consequence_is_noticed_by_some_mutant():
    assert {tag for _, tags in MUTANTS.values() for tag in tags.split()} - {"|"} == set(TAGS)


def parts(function, changes, monkeypatch):
    """Sizes of the terms of one residual, relative to its tolerance, under a mutant."""
    plant(monkeypatch, changes)
    s = solution.solution(PHI, PSI, rank=3)
    return [s.size([term]) / (equations.ROUNDINGS * s.rounding) for term in function(s)]


def test_the_competitor_of_the_trace_is_a_hard_one(monkeypatch):
    """V10. Components that are not the leading ones have a smaller trace than the competitor."""
    trace, competitor = parts(equations.bounded_variational_form, SMALLEST_FIRST, monkeypatch)
    assert trace <= 1 < 1e9 < competitor


def test_the_symmetric_objective_is_looked_at_where_it_is_not_zero(monkeypatch):
    """V18. J of Φ = Ψ is compared at the probe, the vectors at the solution."""
    objective, vectors = parts(equations.symmetric_case, MUTANTS["J of a square K"][0], monkeypatch)
    assert vectors <= 1 < 1e9 < objective


REPORTED = ["both smallest first", "both without the second", "dual: one side's sign", "J times 7",
            "primal: one side's sign", "gradient: a part orthogonal to W", "Lambda = Sigma",
            "primal: a null vector of Phi", "primal: W_e and W_r exchanged"]


@pytest.mark.parametrize("name", REPORTED)
def test_the_command_reports_them(name, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("pair.npz", Phi=PHI, Psi=PSI)
    plant(monkeypatch, MUTANTS[name][0])
    monkeypatch.setattr(verify, "solution", solution.solution)
    assert main.main(["verify", "pair.npz", "--rank", "3"]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT HOLD" in out and not re.search(r"(\d+) of \1 equations hold", out)


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("small", [1e-2, 1e-4])
def test_one_wrong_column_beside_a_large_right_one(small, column, monkeypatch, tmp_path, capsys):
    rng = np.random.default_rng(3)
    np.savez(tmp_path / "pair.npz", Phi=orthonormal(rng, 9, 3) * [1, small, small ** 2],
             Psi=orthonormal(rng, 7, 3))
    plant(monkeypatch, [(primal, "solve", lambda right, *args: (
        lambda W_e, sigma, W_r: primal.Primal(
            W_e * (1 + 0.01 * (np.arange(len(sigma)) == column)), sigma, W_r))(*right(*args)))])
    assert main.main(["verify", str(tmp_path / "pair.npz")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:1] == ["K.17"] and "DOES NOT HOLD" in line for line in lines)


@pytest.mark.parametrize("one", [of_dual(without_second),
                                 of_primal(without_second, (6, 5), (5, 6))],
                         ids=["dual", "primal"])
def test_a_solver_that_loses_a_component_of_all_is_reported(one, monkeypatch):
    rng = np.random.default_rng(7)
    plant(monkeypatch, [one])
    found = equations.verify(rng.standard_normal((6, 4)), rng.standard_normal((5, 4)))
    assert {"V11", "V17"} <= {r.tag for r in found if not r.ok}


def test_a_kernel_of_more_rank_than_features_is_reported(monkeypatch):
    """V16. K alone does not know p: what exceeds it is seen, and not cut off."""
    rng = np.random.default_rng(12)
    plant(monkeypatch, [K_as(lambda K: K + 1e-3 * np.eye(6))])
    s = solution.solution(rng.standard_normal((6, 3)), rng.standard_normal((6, 3)))
    beyond, tail, counted = [s.size([term]) for term in equations.rank_bounds_the_components(s)]
    assert s.rank == 3 and beyond == counted == 0.0 and tail > 1e-4


def test_a_wrong_golub_kahan_is_reported(monkeypatch):
    rng = np.random.default_rng(6)
    Phi, Psi = rng.standard_normal((510, 3)), rng.standard_normal((505, 3))
    plant(monkeypatch, [(large, "golub_kahan", lambda right, *args: (
        lambda U, sigma, V: dual.Dual(U, sigma, V * [1, -1, 1]))(*right(*args)))])
    found = {r.tag for r in equations.verify(Phi, Psi) if not r.ok}
    assert {"K.7", "K.12", "K.14", "K.15", "EY", "V11", "V15"} <= found
    assert not {"K.17", "K.39", "V14", "V17", "V41"} & found


def test_a_matrix_that_was_not_given_is_reported(s):
    """K.33. The features of another matrix."""
    other = s._replace(given=s.K * (1 + 1e-6))
    assert [r.tag for r in equations.residuals(other) if not r.ok] == ["K.33"]


def test_new_points_are_no_mixtures_of_the_old(s):
    """K.20. New rows lie outside the span of the old: N = 3 rows in p = 10 dimensions."""
    new = solution.solution(PHI[:3, :], PSI)
    assert np.linalg.matrix_rank(np.vstack([new.Phi, new.Phi_new])) == 6
    assert np.linalg.matrix_rank(np.vstack([new.Psi, new.Psi_new])) == 7           # of rank 4
    for name, change in (("K_rows", MEAN @ s.Psi.T), ("K_columns", s.Phi @ MEAN.T)):
        # the mean was not taken off a new point; a constant alone would not show, since centred
        # singular vectors are orthogonal to it
        wrong = s._replace(**{name: getattr(s, name) + change})
        assert [r.tag for r in equations.residuals(wrong) if not r.ok] == ["K.20"]


MEAN = np.array([[0.1, -0.2, 0.3, 0.1]])


def test_a_rank_that_cuts_through_a_tie_is_a_remark_and_no_failure():
    rng = np.random.default_rng(5)
    A = orthonormal(rng, 8, 4) * [2.0, 1, 1, 0.5] @ orthonormal(rng, 7, 4).T
    for rank, remarks in ((1, 0), (2, 1), (3, 0), (None, 0)):
        s = equations.solution(*features.compatible(A), given=A, rank=rank)
        assert len(s.remarks) == remarks and all(r.ok for r in equations.residuals(s))
    near = equations.solution(np.diag([2.0, 1 + 1e-9, 1]), np.eye(3), rank=2)
    assert near.remarks == []                       # 1e-9 apart is no tie: the vectors are unique
    even = equations.solution(np.eye(3), np.eye(3), rank=2)
    assert even.remarks == ["σ_2 and σ_3 agree to rounding, and 2 components cut between them: "
                            "the vectors kept of this σ are not unique"]


def test_tags_are_those_of_the_derivation():
    K = [7, *range(10, 24), 33, 34, 35, 39]
    V = [1, 2, 3, 4, 6, 8, *range(10, 19), 41, 42, 43]      # V5, V7: counter-examples, V9 counts
    assert TAGS == [f"K.{n}" for n in K] + ["EY"] + [f"V{n}" for n in V]


def test_every_residual_says_what_and_whence(s):
    for residual in equations.residuals(s):
        assert residual.statement and residual.source and len(residual.statement) < 80
        assert residual.ok == (residual.value <= residual.tolerance)
    for function in equations.EQUATIONS:
        assert len(function.__doc__.splitlines()) <= 8      # the source included


def test_a_tie_is_aligned_even_where_the_rank_cuts_through_it():
    rng = np.random.default_rng(5)
    A = orthonormal(rng, 8, 4) * [2.0, 1, 1, 1] @ orthonormal(rng, 7, 4).T
    Phi, Psi = features.compatible(A)
    raw = dual.solve(Phi @ Psi.T, 3), primal.solve(Phi, Psi, 3)
    s = equations.solution(Phi, Psi, rank=3)
    # without alignment the two bases of the block differ (by about 1), with it they agree
    assert abs(Phi @ raw[1].W_e - raw[0].H_e * raw[0].sigma).max() > 1e-3
    assert s.size(equations.constraints(s)) < 1e-13         # rounding of an 8 x 7 problem


def test_a_sign_that_differs_is_not_aligned_away(s):
    again = equations.solution(s.Phi, s.Psi)
    flipped = again._replace(W_e=-again.W_e, W_r=-again.W_r)        # stationary, another pair
    assert [r.tag for r in equations.residuals(flipped) if not r.ok] == \
        ["K.11", "K.12", "K.14", "K.20"]


@pytest.mark.parametrize("bad, message", [
    (np.zeros((3, 3)), r"K = Phi Psi\^T must not be zero"),
    (np.array([[1.0, np.nan]]), "must be finite, got NaN or infinity in entry"),
    (np.ones(3), "must have 2 axes"), (np.ones((0, 3)), "must not be empty")])
def test_bad_matrices_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        equations.verify_matrix(bad)


def test_a_wrong_primal_in_a_near_tie_is_not_blamed_on_the_dual():
    rng = np.random.default_rng(8)
    A = orthonormal(rng, 9, 4) * [2.0, 1 + 1e-6, 1, 0.5] @ orthonormal(rng, 8, 4).T
    s = equations.solution(*features.compatible(A), given=A)
    c, d = np.cos(0.3), np.sin(0.3)                 # turns the weights of sigma_2 and sigma_3
    T = np.array([[1, 0, 0, 0], [0, c, d, 0], [0, -d, c, 0], [0, 0, 0, 1]])
    found = [r.tag for r in equations.residuals(s._replace(W_e=s.W_e @ T, W_r=s.W_r @ T))
             if not r.ok]
    assert {"K.17", "K.18", "V14"} <= set(found) and not {"K.7", "K.15", "K.16", "EY"} & set(found)


def test_crowded_spectra_hold():
    # the Gram route of the primal turns a cluster by kappa eps; the dual must not inherit that
    rng = np.random.default_rng(9)
    sigma = np.r_[1.0, 1e-2 * (1 + 1e-10 * rng.random(39))]
    A = orthonormal(rng, 40, 40) * np.sort(sigma)[::-1] @ orthonormal(rng, 40, 40).T
    found = equations.verify_matrix(A)
    assert max(residual.value / residual.tolerance for residual in found) < 0.5


def test_a_compatible_map_that_loses_something_is_noticed(monkeypatch):
    A = np.diag([1.0, 0.5, 1e-4, 1e-5])
    monkeypatch.setattr(features, "compatible",
                        lambda A, C=None: (np.diag([1.0, 1, 0, 0]), np.asarray(A).T))
    assert [r.tag for r in equations.verify_matrix(A) if not r.ok] == ["K.33"]


def test_offset_data_with_a_sign_that_rounding_decides():
    # both entries of the second left vector have one size on paper, and sigma_2 is 1e-9 sigma_1:
    # dual and primal may choose opposite signs, and either is a solution
    X = np.array([[1000000002.0, 1000000000], [1000000000, 1000000001]])
    Z = np.array([[1.0, 0], [0, 1], [1, 1]])
    assert [residual for residual in equations.verify(X, Z) if not residual.ok] == []


def test_the_coarser_of_two_precisions_counts():
    rng = np.random.default_rng(6)
    Phi, Psi = rng.standard_normal((6, 3)), rng.standard_normal((5, 3))
    mixed = equations.verify(Phi.astype("float32"), Psi)
    assert [residual for residual in mixed if not residual.ok] == []
    single = equations.verify(Phi.astype("float32"), Psi.astype("float32"))
    np.testing.assert_allclose(mixed[0].tolerance, single[0].tolerance, rtol=1e-5)


def test_what_rounding_has_swallowed_is_not_verified():
    # K = Phi Psi^T is of the size of the rounding of Phi and Psi: any residual would pass
    noise = 1e-15 * np.random.default_rng(7).standard_normal((4, 4))
    Phi, Psi = np.hstack([np.eye(4), 0 * noise]), np.hstack([noise, np.eye(4)])
    with pytest.raises(ValueError, match="is lost in rounding: float64 cannot verify"):
        equations.verify(Phi, Psi)
    with pytest.raises(ValueError, match="must not be zero, nor overflow or underflow"):
        equations.verify(1e-200 * Phi, 1e-200 * Phi)
    with pytest.raises(ValueError, match="must not be zero, nor overflow or underflow"):
        equations.verify(1e200 * Phi, 1e200 * Phi)


@pytest.mark.parametrize("rank", [0, -1, 3, 1.5, True, "2"])
def test_bad_ranks_are_refused(rank):
    with pytest.raises(ValueError, match=r"from 1 to 2 for K of numerical rank 2 .* got"):
        equations.verify_matrix(np.outer([1.0, 2, 3], [1, 1, 0]) + np.eye(3)[:1].T, rank=rank)
