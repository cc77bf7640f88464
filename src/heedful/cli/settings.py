"""`heedful settings`."""


def settings() -> None:
    """Print every setting with its default. The output is a file for `heedful train`: heedful settings > run.toml."""
    from heedful.config import settings_template

    print(settings_template(), end="")
