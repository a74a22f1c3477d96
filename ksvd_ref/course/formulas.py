"""Formulas in plain text, K Hᵣ = Hₑ Σ, as LaTeX: what a docstring says, a page can set.

A token is a word if two letters stand side by side in it, the second small, other than in an index
or in the name of a function. What stands between words is a formula.

No equation: it respells those of the other modules.
"""
import re
import unicodedata
from itertools import groupby

from .index import TAG

NAMES = "exp|log|max|min", "diag|mean|orth|polar|tr|vec"      # those that TeX has, and others
NAME = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(NAMES)})(?![A-Za-z])")
INDEX = re.compile(r"[_^](?:\{[^{}]*\}|\([^()]*\)|\w+)")
# a code, a tag, an article, initials, a word, the bars and rules of a table
WORD = re.compile(rf"`|{TAG}|(?<!\w)(?:an?|T5)(?![\w(])|[A-Z]{{3}}|[A-Za-z][a-z]|^\W?[-|:&]+\W?$")
SIGNS = {"−": "-", "·": r"\cdot ", "×": r"\times ", "∘": r"\circ ", "⟨": r"\langle ",
         "⟩": r"\rangle ", "‖": r"\|", "∂": r"\partial ", "∇": r"\nabla ", "∞": r"\infty ",
         "…": r"\dots ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∝": r"\propto ", "∈": r"\in ",
         "←": r"\leftarrow ", "→": r"\to ", "½": r"\tfrac12 ", "′": "'"}


def markdown(text):
    r"""The text with dollars around its formulas.

    >>> print(markdown("The sides cross, Wₑ = ΨᵀHᵣ, at any `rank`."))
    The sides cross, $W_{e} = \Psi^{\top}H_{r}$, at any `rank`.
    """
    return "\n".join(map(_line, text.split("\n")))


def _line(text):
    made, run, word = "", "", True
    tokens = re.findall(r"(?:\{[^{}]*\}|`[^`]*`|\[[^][]*; [^][]*\]|\S)+\s*", text)
    for token, word in reversed([*zip(tokens, _words(tokens))]):
        ends = run and token.rstrip()[-1] in ",:;" and _open(run) == 0
        if word or ends:
            made, run = _formula(run) + made, ""
        made, run = (token + made, run) if word else (made, token + run)
    return re.match(r"\s*", text)[0] + _formula(run) + made


def _words(tokens):
    """Which tokens are words; a name, or an A at the start, is one if a word follows."""
    found, after = [], True
    for at in reversed(range(len(tokens))):
        bare = INDEX.sub("_", tokens[at].strip())
        start = at == 0 or tokens[at - 1].rstrip()[-1] in ".:"
        after = bool(WORD.search(NAME.sub("", bare))) or after and (
            bool(NAME.fullmatch(bare)) or bare == "A" and start)
        found.insert(0, after)
    return found


def _open(text):
    return sum(text.count(x) for x in "([⟨") - sum(text.count(x) for x in ")]⟩")


def _formula(text):
    """Between dollars, without the stop and the bracket of the sentence; numbers alone stay."""
    before, inside, after = "", *re.fullmatch(r"(.*?)([.,:;]?\s*)", text, re.S).groups()
    if _open(inside) > 0 and inside[0] == "(":
        before, inside = "(", inside[1:]
    elif _open(inside) < 0 and inside[-1] == ")":
        inside, after = inside[:-1], ")" + after
    is_one = re.search(r"[^\W\d]|[^\x00-\x7f]", inside)
    return f"{before}${latex(inside)}${after}" if is_one else text


def latex(text):
    r"""A formula of plain text as LaTeX.

    >>> print(latex("√(σ₁² − σ_{s+1}) D̂⁻¹ [0 K; Kᵀ 0]"))        # doctest: +NORMALIZE_WHITESPACE
    \sqrt{\sigma_{1}^{2} - \sigma_{s+1}} \hat{D}^{-1}
    \begin{bmatrix}0 & K \\ K^{\top} & 0\end{bmatrix}
    """
    text = re.sub(r"[A-Za-z]{2,}", _name, text)
    for sign, command in SIGNS.items():
        text = text.replace(sign, command)
    for mark, command in (("\u0302", "hat"), ("\u0303", "tilde")):
        text = re.sub(f"(.){mark}", rf"\\{command}{{\1}}", unicodedata.normalize("NFD", text))
    text = "".join(_script(*run) for run in groupby(text, _height))
    for pattern, made in (
            (r"\^\(([^()]*)\)", r"^{\1}"),
            (r"([_^])([A-Za-z0-9]+|[Α-ω]|\\[a-z]+(?:\{\w+\})?)", r"\1{\2}"),
            (r"√(\w)", r"\\sqrt{\1}"), (r"√\(((?:[^()]|\([^()]*\))*)\)", r"\\sqrt{\1}"),
            (r"Σ(?=_)", r"\\sum "), ("[Α-ω]", _greek),
            (r"\[([^][]*; [^][]*)\]", _matrix), (r" +(?=[\s)}^_])", "")):
        text = re.sub(pattern, made, text)
    return text.strip()


def _name(found):
    name = found[0]
    if re.fullmatch(NAMES[0], name):
        return rf"\{name} "
    if re.fullmatch(NAMES[1], name):
        return rf"\operatorname{{{name}}}"
    return rf"\mathrm{{{name}}}" if name.islower() and len(name) > 2 else name


def _height(char):
    return {"<sub>": "_", "<super>": "^"}.get(unicodedata.decomposition(char).partition(" ")[0], "")


def _script(height, chars):
    """Signs of one height; raised and lowered ones as what they are, between braces."""
    if not height:
        return "".join(chars)
    made = "".join(unicodedata.normalize("NFKC", char) for char in chars).replace("−", "-")
    return f"{height}{{{made}}}".replace("^{T}", r"^{\top}").replace("-T}", r"-\top}")


def _greek(found):
    _, kind, *_, name = unicodedata.name(found[0]).split()
    name = {"LAMDA": "lambda"}.get(name, name.lower())
    shape = "var" if kind == "SMALL" and name in ("phi", "epsilon") else ""
    return rf"\{name.capitalize() if kind == 'CAPITAL' else shape + name} "


def _matrix(found):
    rows = (" & ".join(row.split()) for row in found[1].split("; "))
    return r"\begin{bmatrix}" + r" \\ ".join(rows) + r"\end{bmatrix}"
