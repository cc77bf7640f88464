"""`heedful settings`."""


def settings() -> None:
    """Print every setting with its default, as a TOML file to start a run from: heedful settings > run.toml."""
    from heedful.config import settings_template

    print(settings_template(), end="")
