"""What can go wrong. Each message says who, what was needed and what was got; a line `help:` says how to mend it."""


class ManyhandsError(Exception):
    """Any error of this package."""


class ModelError(ManyhandsError, ValueError):
    """A model that can't be trained on adapters. It is raised before the first step, with all problems at once."""


class DataError(ManyhandsError, ValueError):
    """Data that the model can't take: shapes, labels, values that are not finite."""


class SettingError(ManyhandsError, ValueError):
    """A setting that makes no sense, alone or with another."""


class AdapterError(ManyhandsError, RuntimeError):
    """There is no adapter, a chosen one is unknown, or the last one has failed."""


class NonFiniteError(ManyhandsError, ArithmeticError):
    """The loss or the gradient is not finite. The training step was not applied."""


class MismatchError(ManyhandsError, RuntimeError):
    """Keras or PyTorch computes another result than this package for the first batch. Nothing was trained."""


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
