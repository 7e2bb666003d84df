class PageError(ValueError):
    reason: str
    offset: int
    def __init__(self, reason: str, offset: int) -> None: ...
