from collections.abc import Callable

class Descriptor:
    fd: int
    def __init__(self, opened: Callable[..., int], *args: object, **keywords: object) -> None: ...

class PlainFile:
    descriptor: Descriptor | None

def folder_beneath(path: str, names: list[str]) -> int: ...
