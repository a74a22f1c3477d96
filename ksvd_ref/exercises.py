"""The exercises of the lessons: their checks, run on the solutions and on wrong answers.

A file in `tutorials/solutions` defines `check_4_1(function)`, which raises an AssertionError or a
ValueError that says what is wrong, and `ANSWERS`: exercise -> the solution, then wrong answers.
"""


def refusal(check, function):
    """What a check says of a wrong answer.

    Parameters
    ----------
    check : callable
    function : callable

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If the check accepts it.

    Examples
    --------
    >>> def check(double):
    ...     assert double(2) == 4, f"twice 2 is 4, got {double(2)}"
    >>> refusal(check, lambda x: x)
    'twice 2 is 4, got 2'
    """
    try:
        check(function)
    except (AssertionError, ValueError) as error:
        return str(error)
    raise ValueError(f"{check.__name__} accepts a wrong answer, {function}")


def demonstrate(scope):
    """Run every check of a file of solutions: the solution passes, the wrong answers are told.

    Parameters
    ----------
    scope : dict
        The names of the file, `globals()` at its end: `ANSWERS` and the checks.

    Examples
    --------
    >>> def check_1_1(double):
    ...     assert double(2) == 4, f"twice 2 is 4, got {double(2)}"
    >>> def twice(x): return 2 * x
    >>> demonstrate({"check_1_1": check_1_1, "ANSWERS": {"1.1": (twice, lambda x: x)}})
    E1.1  twice is right
          refused: twice 2 is 4, got 2
    """
    for exercise, (solution, *wrong) in scope["ANSWERS"].items():
        check = scope["check_" + exercise.replace(".", "_")]
        check(solution)
        print(f"E{exercise}  {solution.__name__} is right")
        for function in wrong:
            print(f"      refused: {refusal(check, function)}")
