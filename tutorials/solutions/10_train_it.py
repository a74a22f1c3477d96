# %% [markdown]
# # Solutions to lesson 10, with the checks
# Each check takes your function, tries it on several inputs and says what is wrong.
# %%
import numpy as np

from ksvd_ref import attention


# %% [markdown]
# **E10.1** `X[mask]` is the list of the real steps.
# %%
def standardise(X, mask):
    steps = X[mask]                                 # (steps, c)
    return np.where(mask[:, :, None], (X - steps.mean(axis=0)) / steps.std(axis=0), 0.0)


def check_10_1(function):
    rng = np.random.default_rng(101)
    for n, N, c in ((4, 6, 2), (3, 9, 1), (10, 5, 4)):
        mask = np.arange(N) < rng.integers(1, N + 1, size=(n, 1))
        X = np.where(mask[:, :, None], 3.0 + 5.0 * rng.standard_normal((n, N, c)), 0.0)
        got = function(X.copy(), mask)
        if np.shape(got) != X.shape:
            raise ValueError(f"the result must have shape {X.shape}, got {np.shape(got)}")
        if np.any(got[~mask] != 0.0):
            raise AssertionError("padded steps are no longer zero")
        mean, deviation = got[mask].mean(axis=0), got[mask].std(axis=0)
        flat = X.reshape(-1, c)
        if np.allclose(got[mask], ((X - flat.mean(axis=0)) / flat.std(axis=0))[mask]):
            raise AssertionError("the padded zeros are counted in the mean and the deviation")
        if np.abs(mean).max() > 1e-9:
            raise AssertionError(f"the real steps have mean {mean.round(3)}, not 0, by channel")
        if np.abs(deviation - 1).max() > 1e-9:
            raise AssertionError(f"the real steps have deviation {deviation.round(3)}, not 1")


# %% [markdown]
# **E10.2** Square each series' J, average over the series, add up the layers (K.27).
# %%
def penalty(layers, eta):
    return eta * sum(attention.mean_of_squares(attention.published_loss(scores, weights, mask=mask))
                     for scores, weights, mask in layers)


def check_10_2(function):
    rng = np.random.default_rng(102)
    mask = np.array([[True] * 6, [True, True, False, False, False, False]])
    layers, each = [], []
    for layer in range(3):
        weights = attention.published_init(rng, 2, 5, 3, 4)
        Q, K = rng.standard_normal((2, 2, 2, 6, 5)) * (layer + 1)
        scores = attention.primal_attention(Q, K, weights, features="identity", mask=mask)[1]
        layers.append((scores, weights, mask))
        J = []                                      # series by series
        for b in range(2):
            part = attention.Scores(*(A[b][:, mask[b]] for A in scores))
            J.append(float(attention.published_loss(part, weights)))
        each.append(np.array(J))
    for eta in (0.5, 10.0):
        for n in (1, 2, 3):
            got, J = function(layers[:n], eta), np.array(each[:n])
            want = eta * np.sum(np.mean(J ** 2, axis=1))
            for wrong, what in (
                    (eta * np.sum(np.mean(J, axis=1) ** 2), "the batch is averaged before it is "
                     "squared: J of two series may cancel"),
                    (want / n, "the layers are averaged, as in the published code, not added"),
                    (want / eta, "eta is missing"),
                    (eta * np.sum(J ** 2), "the series are added up, not averaged"),
                    (eta * sum(np.mean(attention.published_loss(s, w) ** 2)
                               for s, w, _ in layers[:n]), "padded steps are counted: give the "
                     "mask to the loss")):
                if np.isclose(got, wrong) and not np.isclose(wrong, want):
                    raise AssertionError(what)
            if not np.isclose(got, want):
                raise AssertionError(f"{n} layers, eta = {eta}: {want:.6f} expected, got {got:.6f}")


# %% [markdown]
# The questions. 1. The noisier: the maximum of more scattered numbers is larger. 2. It can shrink
# $W_e$, $W_r$ and $\Lambda$ and let $W_o$ grow, or use the null space of $F^\top$ (lesson 09). 3.
# The mean over the heads, and in some published folders over the batch, comes before the square:
# positive and negative J cancel.
# %%
if __name__ == "__main__":
    def rejects(check, wrong):
        try:
            check(wrong)
        except (AssertionError, ValueError) as error:
            return str(error)
        raise SystemExit(f"{check.__name__} accepts a wrong answer")

    def with_zeros(X, mask):
        flat = X.reshape(-1, X.shape[-1])
        return np.where(mask[:, :, None], (X - flat.mean(axis=0)) / flat.std(axis=0), 0.0)

    def of_layers(square, padded=True):
        return lambda layers, eta: eta * sum(square(attention.published_loss(
            s, w, mask=mask if padded else None)) for s, w, mask in layers)

    for check, right, wrongs in (
            (check_10_1, standardise, (
                with_zeros, lambda X, mask: (X - X[mask].mean(axis=0)) / X[mask].std(axis=0),
                lambda X, mask: np.where(mask[:, :, None], X - X[mask].mean(axis=0), 0.0))),
            (check_10_2, penalty, (
                of_layers(attention.square_of_mean),
                of_layers(attention.mean_of_squares, padded=False),
                lambda layers, eta: penalty(layers, eta) / len(layers)))):
        check(right)
        print(f"{check.__name__}: {right.__name__} is right, {len(wrongs)} wrong ones are told:")
        for wrong in wrongs:
            print("   ", rejects(check, wrong))
