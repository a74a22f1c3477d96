"""Formulas of plain text as LaTeX: known pairs, and no letter of a statement is lost."""
import re
import unicodedata

import pytest

from ksvd_ref.course import book, formulas, index, typeset

ENTRIES = index.entries()


@pytest.fixture(scope="module")
def setter():
    return typeset.Setter()


@pytest.mark.parametrize("text, made", [
    ("W_eᵀφ(x_i)", r"W_{e}^{\top}\varphi (x_{i})"), ("K_rows", r"K_{\mathrm{rows}}"),
    ("H_eΣ", r"H_{e}\Sigma"), ("Σ_l σ_l²", r"\sum_{l} \sigma_{l}^{2}"), ("Σᵢ e", r"\sum_{i} e"),
    ("λ′_l", r"\lambda '_{l}"), ("D̂^{-1/2}", r"\hat{D}^{-1/2}"), ("Ṽ", r"\tilde{V}"),
    ("(x)^degree", r"(x)^{\mathrm{degree}}"), ("2^(−8h/H)", "2^{-8h/H}"), ("T⁻ᵀ", r"T^{-\top}"),
    ("R_{i−j}", "R_{i-j}"), ("√(NM)", r"\sqrt{NM}"), ("√ε σ₁", r"\sqrt{\varepsilon} \sigma_{1}"),
    ("κ_exp(f, f′)", r"\kappa_{\exp} (f, f')"), ("½ tr W", r"\tfrac12 \operatorname{tr} W"),
    ("[0 K; Kᵀ 0]", r"\begin{bmatrix}0 & K \\ K^{\top} & 0\end{bmatrix}")])
def test_latex(text, made):
    assert formulas.latex(text) == made


@pytest.mark.parametrize("text, made", [
    ("E = KH_r at s", "$E = KH_{r}$ at $s$"), ("a matrix A", "a matrix $A$"),
    ("A loss, a", "A loss, a"), ("A ≥ B", r"$A \ge B$"), ("the mean of J", "the mean of $J$"),
    ("mean J", r"$\operatorname{mean} J$"), ("K = A, B = C", "$K = A$, $B = C$"),
    ("κ(x, z): two", r"$\kappa (x, z)$: two"), ("(in K) and", "(in $K$) and"),
    ("(x + y)/i", "$(x + y)/i$"), ("K.12 and V3", "K.12 and V3"), ("4 1/4 hours", "4 1/4 hours"),
    ("`H_e` and\n  H_e.", "`H_e` and\n  $H_{e}$."), ("| σ | 3 |", r"| $\sigma$ | 3 |"),
    ("", ""), ("two words", "two words")])
def test_what_is_a_formula(text, made):
    assert formulas.markdown(text) == made


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.tag for entry in ENTRIES])
def test_a_statement_is_set_whole(setter, entry):
    """Letter for letter, sign for sign of its Unicode, and nothing of LaTeX is left in sight."""
    assert read(setter.statement(entry.tag)) == letters(f"{entry.tag} {entry.statement}")


def test_the_notation_is_set_whole(setter):
    text = book._readme().partition("\n## Notation\n")[2].partition("\n## ")[0]
    shown = setter.prose(formulas.markdown(text))
    assert read(shown) == letters(re.sub(r"`|\|[-|]+\|", "", text))


def read(page):
    """Letters of a page, as a browser shows them."""
    return letters(re.sub(r"&#x(\w+);", lambda code: chr(int(code[1], 16)),
                          re.sub("<[^>]*>", "", page)))


def letters(text):
    """Letters and digits, raised and lowered ones too; a sum is a sigma, a transpose a T."""
    text = unicodedata.normalize("NFKD", text.replace("⊤", "T").replace("∑", "Σ"))
    return re.sub(r"[\W_]", "", text)
