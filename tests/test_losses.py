"""The losses of the layer term by term, against primal.objective, and their claims."""
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import assert_gradient

from ksvd_ref import dual, features, primal
from ksvd_ref.attention import (PrimalWeights, Scores, approximation_loss, even_rows,
                                mean_of_squares, paper_lambda, paper_loss, primal_attention,
                                published_loss, running_mean, square_of_mean)

from test_layer import (B, H, N, PADDED, SETTINGS, S, feature, moved, queries_and_keys,
                        some_weights)


def test_loss_hides_padded_scores_too():
    (Q, K), weights = queries_and_keys(), some_weights()
    scores = primal_attention(Q, K, weights, mask=PADDED)[1]
    dirty = Scores(*(np.where(PADDED[:, None, :, None], A, np.nan) for A in scores))
    for loss in (paper_loss, published_loss):
        want = loss(scores, weights, mask=PADDED)
        np.testing.assert_array_equal(loss(dirty, weights, mask=PADDED), want)
        with pytest.raises(ValueError, match="E must be finite"):
            loss(dirty, weights)


def one_head(rng, N=10, d=3, n=None, s=3):
    """Q, K, F and the KSVD solution of one sequence as weights of the layer."""
    Q, K, X = rng.standard_normal((3, N, d))
    F = None if n is None else even_rows(X, n)
    Phi, Psi = features.cosine(Q, K)
    Phi, Psi = (Phi, Psi) if n is None else features.data_dependent(Phi, Psi, F)
    H_e, sigma, H_r = dual.solve(Phi @ Psi.T, s)
    weights = PrimalWeights((Psi.T @ H_r)[None], (Phi.T @ H_e)[None], 1 / sigma[None],
                            np.ones((2 * s, 2)), np.zeros(2))
    return Q[None], K[None], None if n is None else F[None], weights, sigma, Phi, Psi


def J_of(loss, Q, K, F=None):
    """The loss as a function of W_e, W_r and Lambda, through the layer."""
    def J(W_e, W_r, Lambda, weights):
        weights = weights._replace(W_e=W_e, W_r=W_r, Lambda=Lambda)
        return anp.sum(loss(primal_attention(Q, K, weights, F=F)[1], weights))
    return J


def slopes(J, weights):
    return [grad(J, n)(*weights[:3], weights) for n in range(3)]


@pytest.mark.parametrize("n", [None, 2, 6, 10])
def test_paper_loss(n):
    """K.28. It is primal.objective at Phi F^T, and its gradient through the layer primal.gradient.
    """
    rng = np.random.default_rng(11)
    Q, K, F, weights, _, Phi, Psi = one_head(rng, n=n, s=2)
    D = Phi.shape[1]
    W_e, W_r, Lambda = *rng.standard_normal((2, 1, D, 2)), rng.uniform(0.5, 2.0, (1, 2))
    J = J_of(paper_loss, Q, K, F)
    arguments = W_e[0], W_r[0], Lambda[0], Phi, Psi
    np.testing.assert_allclose(J(W_e, W_r, Lambda, weights), primal.objective(*arguments),
                               rtol=1e-12)
    got = slopes(J, weights._replace(W_e=W_e, W_r=W_r, Lambda=Lambda))
    for one, two in zip(got, primal.gradient(*arguments)):
        np.testing.assert_allclose(one[0], two, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", [None, 6, 10])
def test_zero_at_the_solution_of_one_sequence(n):
    """V28. With F the kernel is Φ FᵀF Ψᵀ, its rank at most p, and J = 0 at its solution.

    V31. One W, Λ is in general not stationary for several sequences; it is for those whose features
    are orthogonal mixtures of each other's rows.
    """
    rng = np.random.default_rng(12)
    Q, K, F, weights, sigma, *_ = one_head(rng, n=n)
    J = J_of(paper_loss, Q, K, F)
    scale = np.sum(sigma)                                   # tr(W_e^T W_r), what J cancels
    assert abs(J(*weights[:3], weights)) < 1e-12 * scale
    for slope, W in zip(slopes(J, weights)[:2], weights):
        assert np.abs(slope).max() < 1e-11 * np.abs(W).max()
    other = one_head(rng, n=n)[:3]
    both = [None if A is None else np.stack([A, B]) for A, B in zip((Q, K, F), other)]
    J_2 = J_of(paper_loss, *both)
    assert max(np.abs(slope).max() for slope in slopes(J_2, weights)[:2]) > 0.1 * scale / N
    mixed = Q[..., ::-1, :], np.roll(K, 3, axis=-2), F          # the tokens in another order
    both = [None if A is None else np.stack([A, B]) for A, B in zip((Q, K, F), mixed)]
    for slope, W in zip(slopes(J_of(paper_loss, *both), weights)[:2], weights):
        assert np.abs(slope).max() < 1e-11 * np.abs(W).max()


def test_published_loss_is_stationary_elsewhere():
    """V35. The published loss is stationary at Λ = √(N/σ), not at 1/σ.

    V39. Its weights enter squared: their sign is not seen.
    """
    Q, K, F, weights, sigma, *_ = one_head(np.random.default_rng(13), n=6)
    J = J_of(published_loss, Q, K, F)
    right = weights._replace(Lambda=(10 / sigma[None]) ** 0.5)
    scale = np.sum(sigma)
    assert abs(J(*right[:3], right)) < 1e-12 * scale
    assert max(np.abs(slope).max() for slope in slopes(J, right)[:2]) < 1e-11 * scale
    assert abs(J(*weights[:3], weights)) > 0.1 * scale
    np.testing.assert_allclose(1 / paper_lambda(right.Lambda, 10)[0], sigma, rtol=1e-13)
    flipped = right._replace(Lambda=-right.Lambda)          # the sign is not seen
    assert J(*flipped[:3], flipped) == J(*right[:3], right)


@pytest.mark.parametrize("mask", [None, PADDED])
def test_identity_of_the_two_losses(mask):
    """K.31, V39. It is the mean over the heads of paper_loss with Lambda^2 / N; N counts real
    steps.
    """
    (Q, K), weights = queries_and_keys(), some_weights()
    scores = primal_attention(Q, K, weights, mask=mask)[1]
    got = published_loss(scores, weights, mask=mask)
    lengths = [N, N] if mask is None else PADDED.sum(axis=1)
    for b, length in enumerate(lengths):
        paper = weights._replace(Lambda=paper_lambda(weights.Lambda, length))
        one = Scores(*(A[b] for A in scores))
        np.testing.assert_allclose(np.mean(paper_loss(one, paper)), got[b], rtol=1e-12)


@pytest.mark.parametrize("mask", [None, PADDED, np.arange(N) == 2])
def test_losses(lib, mask):
    """K.28, K.31. Term by term."""
    (Q, K), weights = queries_and_keys(), some_weights()
    (E, R), (W_e, W_r, L, _, _) = primal_attention(Q, K, weights, mask=mask)[1], weights
    real = np.broadcast_to(True if mask is None else mask, (B, N))
    paper, published = np.zeros((B, H)), np.zeros(B)
    for b in range(B):
        steps = np.flatnonzero(real[b])
        for h in range(H):
            trace = sum(W_e[h, :, l] @ W_r[h, :, l] for l in range(S))
            paper[b, h] = 0.5 * sum(A[b, h, i] @ np.diag(L[h]) @ A[b, h, i]
                                    for A in (E, R) for i in steps) - trace
            published[b] += (0.5 * sum(np.sum((np.diag(L[h]) @ A[b, h, i]) ** 2)
                                       for A in (E, R) for i in steps) / len(steps) - trace) / H
    on_lib = Scores(lib.array(E), lib.array(R)), PrimalWeights(*map(lib.array, weights))
    options = moved(lib, {} if mask is None else {"mask": mask})
    for loss, want in ((paper_loss, paper), (published_loss, published)):
        got = lib.host(loss(*on_lib, **options))
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=lib.tol, atol=lib.tol)


def test_null_space_of_F():
    """V30. Weights in the null space of Fᵀ change J and not the scores: J = 0 without touching a
    score.
    """
    rng = np.random.default_rng(14)
    Q, K, F, weights, *_ = one_head(rng, n=6)
    weights = weights._replace(W_e=2.0 * weights.W_e)
    null = np.linalg.svd(F[0].T)[2][3:]                     # 3 = n - p directions
    assert null.shape[0] == 3
    output, scores = primal_attention(Q, K, weights, F=F)
    J = float(paper_loss(scores, weights)[0])
    assert J > 0.1
    shift = null[0][:, None] * np.full((1, 3), (J / 3) ** 0.5)
    found = []
    for sign in (1.0, -1.0):                                # tr(W_e^T W_r) grows by J, or shrinks
        new = weights._replace(W_e=weights.W_e + shift, W_r=weights.W_r + sign * shift)
        inner = np.sum(shift * (weights.W_r[0] + sign * weights.W_e[0]))
        same, new_scores = primal_attention(Q, K, new, F=F)
        np.testing.assert_allclose(same, output, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(paper_loss(new_scores, new)[0], J - sign * J - inner,
                                   rtol=1e-10, atol=1e-10)
        found.append(abs(inner))
    assert max(found) < 1e-10                               # solutions lie in the range of F


def test_trace_of_the_effective_weights_drops_F():
    """V29. tr(W_eᵀW_r) and the trace of FᵀW_e, FᵀW_r are different penalties; with the second F
    drops out if its rank is p.
    """
    rng = np.random.default_rng(15)
    Q, K, F, weights, sigma, *_ = one_head(rng, n=6)
    Phi, Psi = features.cosine(Q[0], K[0])
    plain = primal.solve(Phi, Psi, 3)
    lift = np.linalg.pinv(F[0].T)                           # F^T lift = I: rank 3 = p
    W_e, W_r = (lift @ W for W in (plain.W_e, plain.W_r))
    E, R = primal_attention(Q, K, weights._replace(W_e=W_e[None], W_r=W_r[None]), F=F)[1]
    L = 1 / plain.sigma
    J = 0.5 * np.sum(E ** 2 * L) + 0.5 * np.sum(R ** 2 * L)
    assert abs(J - np.sum((F[0].T @ W_e) * (F[0].T @ W_r))) < 1e-11 * plain.sigma[0]
    assert abs(J - np.sum(W_e * W_r)) > 0.1 * plain.sigma[0]
    assert np.abs(plain.sigma - sigma).max() > 0.1 * sigma[0]
    low = F[0, :, :1] @ F[0, :1]                            # of rank 1 < p: F^T W is one line, and
    near = low.T @ np.linalg.pinv(low.T) @ plain.W_e        # the weights without F are not on it
    assert np.abs(near - plain.W_e).max() > 0.1 * np.abs(plain.W_e).max()


def test_no_common_solution():
    """V37. At Λ = 1/σ of one sequence only W = 0 is stationary for another that has no such σ.

    Hand: Lambda = 1/2 fits Phi = diag(2, 1); diag(3, 1) has no solution there but W = 0. With
    Lambda = 1 both have one, for sigma = 1 is in both spectra.

    The Hessian of J splits into blocks [[lambda phi^2, -1], [-1, lambda psi^2]].
    """
    def determinants(Phi, Lambda=0.5):
        W = np.zeros((1, 2, 1))
        weights = PrimalWeights(W, W, np.array([[Lambda]]), np.ones((2, 1)), np.zeros(1))
        J = lambda W_e, W_r: anp.sum(paper_loss(
            primal_attention(Phi[None], np.eye(2)[None], weights._replace(W_e=W_e, W_r=W_r),
                             features="identity")[1], weights._replace(W_e=W_e, W_r=W_r)))
        e = np.eye(2).reshape(2, 1, 2, 1)                   # the gradient is linear in W
        rows = [(grad(J, 0)(e[k], W)[0, k, 0], grad(J, 0)(W, e[k])[0, k, 0],
                 grad(J, 1)(e[k], W)[0, k, 0], grad(J, 1)(W, e[k])[0, k, 0]) for k in (0, 1)]
        return [a * d - b * c for a, b, c, d in rows]
    np.testing.assert_allclose(determinants(np.diag([2.0, 1.0])), [0.0, -0.75], atol=1e-15)
    np.testing.assert_allclose(determinants(np.diag([3.0, 1.0])), [1.25, -0.75], atol=1e-15)
    np.testing.assert_allclose(determinants(np.diag([2.0, 1.0]), 1.0), [3.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(determinants(np.diag([3.0, 1.0]), 1.0), [8.0, 0.0], atol=1e-15)


# --- the loss whose minimum is the KSVD

KERNELS = {name: setting for name, setting in SETTINGS.items() if "causal" not in name}


def kernel_matrix(Q, K, F=None, features="cosine"):
    """Of one sequence and head, one query and one key at a time."""
    phi = lambda z: feature(z, features) if F is None else F @ feature(z, features)
    return np.array([[phi(q) @ phi(k) for k in K] for q in Q])


@pytest.mark.parametrize("setting", KERNELS)
def test_approximation_loss(lib, setting):
    """K.41. Against ‖K − ERᵀ‖²/‖K‖² with each K in hand, whatever padded steps hold."""
    options, D = KERNELS[setting]
    (Q, K), weights = queries_and_keys(), some_weights(D)
    E, R = primal_attention(Q, K, weights, **options)[1]
    real = np.broadcast_to(options.get("mask", True), (B, N))
    features, want = options.get("features", "cosine"), np.zeros((B, H))
    for b, h in np.ndindex(B, H):
        one, r = (A[b, h, real[b]] for A in (Q, K)), real[b]
        G = kernel_matrix(*one, options["F"][b, h] if "F" in options else None, features)
        want[b, h] = np.sum((G - E[b, h, r] @ R[b, h, r].T) ** 2) / np.sum(G ** 2)
    dirty = [np.where(real[:, None, :, None], A, np.nan) for A in (E, R, Q, K)]
    E, R, Q, K = map(lib.array, dirty)
    got = lib.host(approximation_loss(Scores(E, R), Q, K, **moved(lib, options)))
    assert got.shape == (B, H)
    np.testing.assert_allclose(got, want, rtol=10 * lib.tol)    # up to 4000: nothing cancels


def test_the_share_that_is_missed_at_a_solution():
    """K.41. What the leading components leave, Σ_{l>s} σ_l²/Σ σ_l², is reached in any mixture.

    K.42. One component exchanged for the next misses more, and so does any other point.
    """
    rng = np.random.default_rng(17)
    for n in (None, 6):
        Q, K, F, _, _, Phi, Psi = one_head(rng, n=n, s=2)
        H_e, sigma, H_r = dual.solve(Phi @ Psi.T)
        share = lambda E, R: approximation_loss((E[None], R[None]), Q, K, F=F)[0]
        best, T = np.sum(sigma[2:] ** 2) / np.sum(sigma ** 2), rng.standard_normal((2, 2))
        E, R = H_e[:, :2] * sigma[:2] @ T, H_r[:, :2] @ np.linalg.inv(T).T
        np.testing.assert_allclose(share(E, R), best, rtol=1e-10)
        assert share(H_e[:, [0, 2]] * sigma[[0, 2]], H_r[:, [0, 2]]) > best
        assert share(E + 0.01 * rng.standard_normal(E.shape), R) > best
        scale = rng.uniform(0.5, 2.0)                           # long or short: relative
        assert abs(share(0.0 * E, R) - 1.0) < 1e-15 and share(E, -scale * R) > 1.0


def test_a_kernel_of_zeros_has_no_share():
    with pytest.raises(ValueError, match="the kernel of a sequence is zero, or an argument"):
        approximation_loss(([[[1.0]]], [[[1.0]]]), [[[0.0]]], [[[1.0]]])


def test_share_of_causal_scores():
    """They belong to the kernel of the running means."""
    Q, K, _, weights, *_ = one_head(np.random.default_rng(18))
    E, R = primal_attention(Q, K, weights, causal=True)[1]
    means = running_mean(Q), running_mean(K)
    G = kernel_matrix(means[0][0], means[1][0])
    want = np.sum((G - E[0] @ R[0].T) ** 2) / np.sum(G ** 2)
    np.testing.assert_allclose(approximation_loss((E, R), *means), [want], rtol=1e-11)


def test_share_of_padding_alone_and_of_no_kernel():
    (Q, K), weights = queries_and_keys(), some_weights()
    mask = np.array([[True] * N, [False] * N])
    scores = primal_attention(Q, K, weights, mask=mask)[1]
    share = approximation_loss(scores, Q, K, mask=mask)
    assert np.all(share[1] == 1.0)
    np.testing.assert_allclose(share[0], approximation_loss(scores, Q, K)[0], rtol=1e-13)
    with pytest.raises(ValueError, match="approximation_loss overflows or is undefined"):
        approximation_loss(scores, 0.0 * Q, K)
    with pytest.raises(ValueError, match=r"F must have columns for the 4 features, got 3"):
        approximation_loss(scores, Q, K, F=np.ones((B, H, 2, 3)))
    with pytest.raises(ValueError, match="features must have 4 rows"):
        approximation_loss(scores, Q, K, features=np.ones((3, 5)))


@pytest.mark.parametrize("setting", KERNELS)
def test_its_float32_gradients_stay_float32(setting):
    options, D = KERNELS[setting]
    options = {name: X.astype("float32") if getattr(X, "dtype", None) == float else X
               for name, X in options.items()}
    Q, K, E, R = (A.astype("float32") for A in (*queries_and_keys(), *queries_and_keys(d=S)))
    f = lambda *four: anp.sum(approximation_loss(four[2:], *four[:2], **options))
    assert all(grad(f, n)(Q, K, E, R).dtype == np.float32 for n in range(4))


def test_heads_and_sequences_cancel():
    """K.27, V7. The mean of squares sees what the square of the mean does not."""
    J = np.array([9.809, -9.809])
    np.testing.assert_allclose([mean_of_squares(J), square_of_mean(J)], [9.809 ** 2, 0.0])
    J = np.random.default_rng(16).standard_normal(50)
    np.testing.assert_allclose(mean_of_squares(J) - square_of_mean(J), np.var(J), rtol=1e-12)
    assert_gradient(mean_of_squares, J)
    assert_gradient(square_of_mean, J)


def test_too_large_for_the_precision():
    """Refused without a warning: neither infinity nor NaN comes out."""
    (Q, K), weights = queries_and_keys(), some_weights()
    scores, huge = primal_attention(Q, K, weights)[1], 1e200
    big = weights._replace(W_e=huge * weights.W_e, W_r=huge * weights.W_r)
    far = Scores(huge * scores.E, huge * scores.R)
    for call in (lambda: paper_loss(scores, big), lambda: paper_loss(far, weights),
                 lambda: published_loss(scores, big), lambda: published_loss(far, weights),
                 lambda: paper_lambda([[huge]], 2),
                 lambda: mean_of_squares([huge]), lambda: square_of_mean([huge])):
        with pytest.raises(ValueError, match="(loss|lambda|mean|squares) overflows"):
            call()


def test_each_sequence_has_its_own_loss():
    scores, weights = primal_attention(*queries_and_keys(), some_weights())[1], some_weights()
    J = published_loss(scores, weights)
    np.testing.assert_allclose(published_loss(Scores(*(A[0] for A in scores)), weights), J[0])


def test_weights_are_five_and_scores_two():
    """A sixth part would be dropped in silence, a dict gives its names."""
    weights, scores = some_weights(), Scores(*np.ones((2, B, H, N, S)))
    for loss in (paper_loss, published_loss):
        for bad in (weights[:4], (*weights, 0.0), weights._asdict(), None):
            with pytest.raises(ValueError, match=r"weights must be \(W_e, .*b_o\), got "):
                loss(scores, bad)
        for bad in (scores[:1], (*scores, 0.0), scores._asdict(), None):
            with pytest.raises(ValueError, match=r"scores must be \(E, R\), got "):
                loss(bad, weights)
