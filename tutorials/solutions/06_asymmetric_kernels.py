# %% [markdown]
# # Solutions to lesson 06, with the checks
# Each check takes your function, tries it on several inputs and says what is wrong.
# %%
import numpy as np

from ksvd_ref import kernels
from ksvd_ref.course import datasets, exercises
from ksvd_ref.course.exercises import compare, numbers


# %% [markdown]
# **E6.1** The number of features, or the shorter side if there are not enough points. Rounding may
# hide the small singular values of an rbf; the check takes a narrow one, of one set of points.
# %%
def predicted_rank(name, N, M, d):
    features = {"linear": d, "cosine": d, "square": d * (d + 1) // 2,
                "square, +1": (d + 1) * (d + 2) // 2, "rbf": N + M}
    return min(features[name], N, M)


def check_6_1(function):
    rng = np.random.default_rng(2)
    for N, M, d in ((20, 20, 3), (30, 12, 4), (4, 25, 3), (9, 8, 1), (2, 2, 5)):
        X, Z = rng.standard_normal((N, d)), rng.standard_normal((M, d))
        both = X if N >= M else Z       # a Gaussian narrow enough for rank to show in float64
        built = {"linear": kernels.linear(X, Z), "cosine": kernels.cosine(X, Z),
                 "square": kernels.polynomial(X, Z, coef0=0.0),
                 "square, +1": kernels.polynomial(X, Z),
                 "rbf": kernels.rbf(both[:N, :], both[:M, :], gamma=100.0)}
        for name, K in built.items():
            want = int(np.linalg.matrix_rank(K))
            got = float(numbers(function(name, N, M, d), (), f"the rank of {name!r}"))
            case = f"{name}, {N} x {M} points in {d} dimensions: rank {want}, not {got:g}"
            for wrong, why in (
                    (got > min(N, M), f"no {N} x {M} matrix has more than its shorter side"),
                    (name == "square" and got == min(d * d, N, M),
                     "x_a x_b and x_b x_a are one feature, not two"),
                    (name == "square, +1" and got == min(d * (d + 1) // 2, N, M),
                     "the constant adds the linear features and 1"),
                    (name == "rbf" and got < min(N, M), "the features of a Gaussian never run out"),
                    (True, "count the features")):
                if wrong and got != want:
                    raise AssertionError(f"{case}: {why}")


# %% [markdown]
# **E6.2** The column means and the mean of all belong to the training matrix, the row means to the
# new rows.
# %%
def centred_rows(K_new, K):
    return K_new - K.mean(axis=0) - K_new.mean(axis=1, keepdims=True) + K.mean()


def check_6_2(function):
    rng = np.random.default_rng(3)
    cases = {"articles by words": (datasets.wikipedia_words().A, np.eye(11))}
    for N, M, p in ((6, 4, 3), (3, 9, 2), (5, 5, 5)):
        cases[f"{N} x {M}"] = rng.standard_normal((N, p)) + 1, rng.standard_normal((M, p)) - 2
    for name, (Phi, Psi) in cases.items():
        for n in (4, 1):
            Phi_new = rng.standard_normal((n, Phi.shape[1])) + 3
            want = (Phi_new - Phi.mean(axis=0)) @ (Psi - Psi.mean(axis=0)).T        # by features
            K_new, K = Phi_new @ Psi.T, Phi @ Psi.T
            by_columns, by_rows = K_new - K.mean(axis=0), K_new - K_new.mean(axis=1, keepdims=True)
            compare(function(K_new.copy(), K.copy()), want, f"{name}, {n} new rows", (
                    (kernels.center(K_new), "these are centred by their own column means; phi has "
                     "its mean over the training rows"),
                    (by_columns + by_rows - K_new, "the mean of all is taken away twice, by column "
                     "means and by row means: add it once"),
                    (by_columns + by_rows - K_new + K_new.mean(), "the mean of all is that of the "
                     "new rows; it belongs to the training matrix"),
                    (by_columns, "phi is centred, psi is not: each new row has a mean too"),
                    (by_rows, "psi is centred, phi is not: K has column means to take away")))


# %% [markdown]
# The questions. 1. Yes: $K = \Phi\Phi^\top$ with $\Phi$ = eigenvectors times
# $\sqrt{\text{eigenvalue}}$. No: $\begin{bmatrix} 1 & 2 \\ 2 & 1 \end{bmatrix}$. 2. A constant
# vector $c$ of length 1 has $\|K c\| = 1 = \sigma_1$, so it is a leading right vector, and
# $K^\top K c = c$ with $K c = c$ says $K^\top c = c$. 3. $H_e$, as $P_N K h_r/\sigma$.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "6.1": (predicted_rank,
            lambda name, N, M, d: predicted_rank(name, 10 ** 6, 10 ** 6, d),
            lambda name, N, M, d: (min(d * d, N, M) if name == "square"
                                   else predicted_rank(name, N, M, d)),
            lambda name, N, M, d: predicted_rank(name.removesuffix(", +1"), N, M, d),
            lambda name, N, M, d: min(d, N, M) if name == "rbf" else predicted_rank(name, N, M, d)),
    "6.2": (centred_rows,
            lambda K_new, K: kernels.center(K_new),
            lambda K_new, K: centred_rows(K_new, K) - K.mean(),
            lambda K_new, K: centred_rows(K_new, K) - K.mean() + K_new.mean(),
            lambda K_new, K: K_new - K.mean(axis=0)),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
