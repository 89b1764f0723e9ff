"""What can go wrong. Each message says who, what was needed and what was got; a line `help:` says how to mend it."""


class ManyhandsError(Exception):
    """Any error of this package."""


class ModelError(ManyhandsError, ValueError):
    """A model that can't be trained here. Found before anything runs."""


class DataError(ManyhandsError, ValueError):
    """Data that the model can't take: shapes, labels, values that are not finite."""


class SettingError(ManyhandsError, ValueError):
    """A setting that makes no sense, alone or with another."""


class AdapterError(ManyhandsError, RuntimeError):
    """No adapter, an unknown one, or one that failed beyond repair."""


class NonFiniteError(ManyhandsError, ArithmeticError):
    """Loss or gradient are no numbers any more. The training step was not applied."""


class MismatchError(ManyhandsError, RuntimeError):
    """Keras and this package compute different results for the same batch. Nothing was trained."""


def explained(who: str, problem: str, help: str) -> str:
    """A message in the form of all others."""
    return f"{who} {problem}\n  help: {help}"


def raise_problems(who: str, problems: list[str], library: str) -> None:
    """Raises all problems of a model in one error, if there are any."""
    if problems:
        listed = "".join(f"\n    {problem}" for problem in problems)
        places = "one place" if len(problems) == 1 else f"{len(problems)} places"
        text = f"can't train on adapters as it is: {places} to change{listed}"
        raise ModelError(explained(who, text, f"change these, or train it with {library} itself"))
